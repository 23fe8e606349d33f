#include "lib/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/check.h"

enum { MAX_ORDINAL_DIGITS = 3 };

/* Streaming read of 8 GiB and cuBLAS bf16 8192^3, docs/performance.md. */
static const struct {
  const char* model;
  double bytes_per_second;
  double flop_per_second;
} measured[] = {
    {"NVIDIA H200", 4.54e12, 811e12},
};

/* Devices to plan for without having them. Rates that are 0 here come from the
 * table above if the model is there, and are not known otherwise. */
static const struct moep_device described[] = {
    {.name = "plan:h200",
     .model = "NVIDIA H200",
     .sm = 90,
     .sm_count = 132,
     .shared_bytes = 227 * 1024},
    /* NVIDIA H100 Tensor Core GPU datasheet, SXM: 3.35 TB/s, 989 TFLOP/s dense
     * bf16 (1,979 with sparsity). */
    {.name = "plan:h100",
     .model = "NVIDIA H100 SXM",
     .sm = 90,
     .sm_count = 132,
     .shared_bytes = 227 * 1024,
     .bytes_per_second = 3.35e12,
     .flop_per_second = 989e12,
     .datasheet = true},
    /* NVIDIA DGX Spark datasheet: 273 GB/s. It states a rate for sparse FP4
     * only, so the bf16 rate is not known. */
    {.name = "plan:gb10",
     .model = "NVIDIA GB10",
     .sm = 121,
     .sm_count = 48,
     .shared_bytes = 99 * 1024,
     .bytes_per_second = 273e9,
     .datasheet = true},
};

void moep_device_rates(struct moep_device* device) {
  for (size_t i = 0; i < sizeof(measured) / sizeof(*measured); i++) {
    if (strcmp(device->model, measured[i].model) != 0) continue;
    device->bytes_per_second = measured[i].bytes_per_second;
    device->flop_per_second = measured[i].flop_per_second;
  }
}

/* N of "cuda:N", or -1. */
static int parse_ordinal(const char* name) {
  if (strncmp(name, "cuda:", 5) != 0) return -1;
  const char* digits = name + 5;
  const size_t count = strspn(digits, "0123456789");
  if (count == 0 || count > MAX_ORDINAL_DIGITS || digits[count] != '\0') {
    return -1;
  }
  return atoi(digits);
}

/* LCOV_EXCL_START: asks the CUDA runtime */
static enum moeplan_status read_cuda(int ordinal,
                                     const struct moeplan_hooks* hooks,
                                     struct moep_device* device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return MOEP_REFUSE(hooks, unsupported_device, "cannot use device %s: %s",
                       device->name, cudaGetErrorString(error));
  }
  if (ordinal >= count) {
    return MOEP_REFUSE(hooks, unsupported_device,
                       "cannot use device %s: there are %d CUDA devices",
                       device->name, count);
  }
  struct cudaDeviceProp properties;
  MOEP_TRY_CUDA(hooks, cudaGetDeviceProperties(&properties, ordinal));
  device->ordinal = ordinal;
  device->sm = (uint32_t)(properties.major * 10 + properties.minor);
  device->sm_count = (uint32_t)properties.multiProcessorCount;
  device->shared_bytes = (uint32_t)properties.sharedMemPerBlockOptin;
  snprintf(device->model, sizeof(device->model), "%.63s", properties.name);
  moep_device_rates(device);
  return moeplan_status_success;
}
/* LCOV_EXCL_STOP */

/* False: `name` is no row of the table. */
static bool read_described(const char* name, struct moep_device* device) {
  for (size_t i = 0; i < sizeof(described) / sizeof(*described); i++) {
    if (strcmp(name, described[i].name) != 0) continue;
    *device = described[i];
    device->ordinal = -1;
    device->plan_only = true;
    moep_device_rates(device);
    return true;
  }
  return false;
}

enum moeplan_status moep_device_read(const char* name,
                                     const struct moeplan_hooks* hooks,
                                     struct moep_device* device_out) {
  struct moep_device device = {.ordinal = -1, .sm_count = 1};
  if (read_described(name, &device)) {
    *device_out = device;
    return moeplan_status_success;
  }
  const int ordinal = parse_ordinal(name);
  if (strcmp(name, "host") != 0 && ordinal < 0) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot use device \"%.64s\": must be \"host\" or "
                       "\"cuda:N\", or \"plan:\" with h200, h100 or gb10",
                       name);
  }
  snprintf(device.name, sizeof(device.name), "%s", name);
  if (ordinal >= 0) MOEP_TRY(read_cuda(ordinal, hooks, &device));
  *device_out = device;
  return moeplan_status_success;
}
