#include "lib/planner.h"

#include "kernels/group_memory.h"
#include "kernels/union.h"
#include "lib/check.h"
#include "lib/kernel_table.h"
#include "lib/matmul.h"
#include "lib/options.h"

/* Rows of a group whose block fits into an SM's shared memory; 0: not even one. */
static uint32_t group_rows(const struct moep_device* device,
                           const struct moep_dims* dims) {
  uint32_t rows = MOEP_UNION_ROWS;
  if (moep_device_is_host(device)) return rows;
  while (rows > 0 &&
         moep_group_least_bytes(dims->hidden, dims->width, rows, dims->topk,
                                dims->experts) > device->shared_bytes) {
    rows--;
  }
  return rows;
}

/* Whether tiles have kernels of their own, beside the plain one's. */
static bool takes_tiles(const struct moep_device* device,
                        const struct moep_dims* dims) {
  struct moep_kernel_use use = {
      .rows = MOEP_GROUPED_MIN_ROWS,
      .widths = moep_widths(dims, moep_op_grouped_up)};
  const struct moep_kernel* kernel =
      moep_kernel_find(device, moep_op_grouped_up, &use);
  use.base = true;
  return moep_device_is_host(device) ||
         kernel != moep_kernel_find(device, moep_op_grouped_up, &use);
}

enum moeplan_status moep_planner_create(const struct moeplan_config* config,
                                        const struct moep_device* device,
                                        const struct moeplan_hooks* hooks,
                                        moeplan_planner_t* planner_out) {
  struct moep_dims dims;
  MOEP_TRY(moep_dims_read(config, hooks, &dims));
  struct moeplan_planner* planner = moep_allocate(hooks, sizeof(*planner));
  if (planner == NULL) return moeplan_status_out_of_memory;
  dims.group_rows = group_rows(device, &dims);
  dims.tiles = takes_tiles(device, &dims);
  *planner = (struct moeplan_planner){
      .hooks = *hooks, .device = *device, .dims = dims};
  *planner_out = planner;
  return moeplan_status_success;
}

/* LCOV_EXCL_START: loads kernels on a GPU */
/* Load every kernel that this device can run, and make the stream. */
static enum moeplan_status load_on_current_device(void* context) {
  struct moeplan_planner* planner = context;
  for (size_t i = 0; i < moep_kernel_count; i++) {
    const struct moep_kernel* kernel = &moep_kernels[i];
    if (!moep_kernel_runs_on(kernel, &planner->device)) continue;
    MOEP_TRY_CUDA(&planner->hooks, kernel->load());
  }
  MOEP_TRY_CUDA(&planner->hooks, cudaStreamCreateWithFlags(
                                     &planner->stream, cudaStreamNonBlocking));
  return moeplan_status_success;
}

enum moeplan_status moep_on_device(const struct moeplan_planner* planner,
                                   enum moeplan_status (*work)(void* context),
                                   void* context) {
  int previous = 0;
  MOEP_TRY_CUDA(&planner->hooks, cudaGetDevice(&previous));
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  MOEP_TRY_CUDA(&planner->hooks, cudaThreadExchangeStreamCaptureMode(&mode));
  enum moeplan_status status =
      MOEP_CUDA(&planner->hooks, cudaSetDevice(planner->device.ordinal));
  if (status == moeplan_status_success) status = work(context);
  cudaSetDevice(previous);
  cudaThreadExchangeStreamCaptureMode(&mode);
  return status;
}
/* LCOV_EXCL_STOP */

enum moeplan_status moeplan_planner_create(const struct moeplan_config* config,
                                           const char* device,
                                           const struct moeplan_hooks* hooks,
                                           moeplan_planner_t* planner_out) {
  struct moeplan_hooks read_hooks;
  MOEP_TRY(moep_hooks_read(hooks, &read_hooks));
  if (config == NULL || device == NULL || planner_out == NULL) {
    return MOEP_REFUSE(&read_hooks, invalid_argument,
                       "cannot create a planner: config, device and "
                       "planner_out must not be NULL");
  }
  struct moep_device read_device;
  MOEP_TRY(moep_device_read(device, &read_hooks, &read_device));
  struct moeplan_planner* planner;
  MOEP_TRY(moep_planner_create(config, &read_device, &read_hooks, &planner));
  enum moeplan_status status = moeplan_status_success;
  if (!moep_device_is_host(&read_device) && !read_device.plan_only) {
    status = moep_on_device(planner, load_on_current_device, planner);
  }
  if (status != moeplan_status_success) {
    moeplan_planner_destroy(planner);
    return status;
  }
  *planner_out = planner;
  return moeplan_status_success;
}

enum moeplan_status moeplan_device_info(moeplan_planner_t planner,
                                        struct moeplan_device_info* info_out) {
  if (planner == NULL) return moeplan_status_invalid_argument;
  if (info_out == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot describe a device: info_out must not be NULL");
  }
  MOEP_CHECK_STRUCT(&planner->hooks, info_out);
  const struct moep_device* device = &planner->device;
  *info_out = (struct moeplan_device_info){
      .struct_bytes = sizeof(*info_out),
      .name = device->name,
      .model = device->model,
      .sm = device->sm,
      .sm_count = device->sm_count,
      .bytes_per_second = device->bytes_per_second,
      .flop_per_second = device->flop_per_second,
      .datasheet = device->datasheet,
      .plan_only = device->plan_only,
  };
  return moeplan_status_success;
}

void moeplan_planner_destroy(moeplan_planner_t planner) {
  if (planner == NULL) return;
  while (planner->announced != NULL) {
    struct moep_announced* next = planner->announced->next;
    moep_release(&planner->hooks, planner->announced);
    planner->announced = next;
  }
  moep_matmul_close(planner);
  if (planner->stream != NULL) cudaStreamDestroy(planner->stream);
  const struct moeplan_hooks hooks = planner->hooks;
  moep_release(&hooks, planner);
}
