#include "lib/binding.h"

#include "lib/check.h"
#include "lib/site.h"

enum { STRIDE_MULTIPLE = 8 };

/* A named range of memory. */
struct range {
  const char* name;
  uintptr_t begin;
  uint64_t bytes;
};

/* One begins inside the other. No end is computed: it may be past the last
 * address. */
static bool overlap(const struct range* a, const struct range* b) {
  return a->bytes != 0 && b->bytes != 0 &&
         (b->begin - a->begin < a->bytes || a->begin - b->begin < b->bytes);
}

static enum moeplan_status check_pointer(const struct moeplan_hooks* hooks,
                                         const char* name, const void* pointer,
                                         size_t alignment) {
  if (pointer == NULL) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind %s: must not be NULL", name);
  }
  if ((uintptr_t)pointer % alignment != 0) {
    return MOEP_REFUSE(hooks, misaligned_pointer,
                       "cannot bind %s %p: must be a multiple of %zu bytes",
                       name, pointer, alignment);
  }
  return moeplan_status_success;
}

static enum moeplan_status check_stride(const struct moeplan_hooks* hooks,
                                        const char* name, size_t stride,
                                        uint32_t hidden) {
  if (stride % STRIDE_MULTIPLE != 0) {
    return MOEP_REFUSE(hooks, misaligned_pointer,
                       "cannot bind %s %zu: must be a multiple of %d elements",
                       name, stride, STRIDE_MULTIPLE);
  }
  if (stride < hidden || stride > (size_t)UINT32_MAX) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind %s %zu: must be %u (the row) to %u", name,
                       stride, hidden, UINT32_MAX);
  }
  return moeplan_status_success;
}

/* External routing and the trace ring. */
static enum moeplan_status check_routing(const struct moeplan_plan* plan,
                                         const struct moeplan_binding* b) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  if ((b->topk_ids == NULL) != (b->topk_weights == NULL)) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind topk_ids %p, topk_weights %p: must be set "
                       "together",
                       (const void*)b->topk_ids, (const void*)b->topk_weights);
  }
  const bool trace = b->trace.ids != NULL;
  if (trace != (b->trace.weights != NULL) ||
      trace != (b->trace.cursor != NULL)) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind trace ids %p, weights %p, cursor %p: must "
                       "be set together",
                       (const void*)b->trace.ids, (const void*)b->trace.weights,
                       (const void*)b->trace.cursor);
  }
  if (trace && b->trace.capacity_rows < plan->rows) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind a trace ring of %u rows: the plan has %u",
                       b->trace.capacity_rows, plan->rows);
  }
  if (plan->planner->dims.kind == moeplan_site_dense &&
      (b->topk_ids != NULL || trace)) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind topk_ids or a trace ring to a dense site: "
                       "it has no router");
  }
  return moeplan_status_success;
}

static enum moeplan_status check_alignments(const struct moeplan_plan* plan,
                                            const struct moeplan_binding* b) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  const struct {
    const char* name;
    const void* pointer;
    size_t alignment;
  } optional[] = {
      {"live_rows", b->live_rows, sizeof(int32_t)},
      {"topk_ids", b->topk_ids, sizeof(int32_t)},
      {"topk_weights", b->topk_weights, sizeof(float)},
      {"trace.ids", b->trace.ids, sizeof(int32_t)},
      {"trace.weights", b->trace.weights, sizeof(float)},
      {"trace.cursor", b->trace.cursor, sizeof(uint64_t)},
      {"host_site", b->host_site, sizeof(uint64_t)},
  };
  MOEP_TRY(check_pointer(hooks, "site", b->site,
                         moep_device_is_host(&plan->planner->device)
                             ? MOEPLAN_ROW_ALIGNMENT
                             : MOEPLAN_SITE_ALIGNMENT));
  MOEP_TRY(check_pointer(hooks, "x", b->x, MOEPLAN_ROW_ALIGNMENT));
  MOEP_TRY(check_pointer(hooks, "y", b->y, MOEPLAN_ROW_ALIGNMENT));
  MOEP_TRY(check_pointer(hooks, "workspace", b->workspace,
                         MOEPLAN_WORKSPACE_ALIGNMENT));
  for (size_t i = 0; i < sizeof(optional) / sizeof(*optional); i++) {
    if (optional[i].pointer == NULL) continue;
    MOEP_TRY(check_pointer(hooks, optional[i].name, optional[i].pointer,
                           optional[i].alignment));
  }
  return moeplan_status_success;
}

static bool is_blob_of(const struct moeplan_planner* planner,
                       const struct moep_site_table* table) {
  const struct moep_dims* dims = &planner->dims;
  return table->maps == moep_site_blob_maps(planner) &&
         table->magic == MOEP_SITE_MAGIC && table->hidden == dims->hidden &&
         table->inter == dims->inter && table->expert_count == dims->experts &&
         table->width == dims->width;
}

/* On the host the blob can be read: it has to be one for these sizes. */
static enum moeplan_status check_blob(const struct moeplan_plan* plan,
                                      const struct moeplan_binding* b) {
  const struct moep_site_table* table = b->site;
  if (!moep_device_is_host(&plan->planner->device)) {
    return moeplan_status_success;
  }
  if (!is_blob_of(plan->planner, table)) {
    return MOEP_REFUSE(&plan->planner->hooks, invalid_site,
                       "cannot bind site %p: it is not a blob that "
                       "moeplan_site_write wrote for this configuration",
                       b->site);
  }
  return moeplan_status_success;
}

/* What a plan with cuBLASLt's nodes wants besides. */
static enum moeplan_status check_tiered(const struct moeplan_plan* plan,
                                        const struct moeplan_binding* b) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  const struct moep_dims* dims = &plan->planner->dims;
  const struct moep_site_table* table = b->host_site;
  if (plan->matmuls[moep_matmul_down].rows == 0 &&
      plan->matmuls[moep_matmul_logits].rows == 0) {
    return moeplan_status_success;
  }
  if (table == NULL || !is_blob_of(plan->planner, table)) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind host_site %p: a TIERED plan of %u rows "
                       "takes addresses from the blob in host memory, as "
                       "moeplan_site_write wrote it for this configuration",
                       b->host_site, plan->rows);
  }
  if (dims->kind == moeplan_site_dense && b->live_rows != NULL) {
    return MOEP_REFUSE(hooks, unsupported_option,
                       "cannot bind live_rows to a dense TIERED plan of %u "
                       "rows: cuBLASLt writes every row of y",
                       plan->rows);
  }
  return moeplan_status_success;
}

/* What the device writes may touch nothing else; y may be x itself. The caller
 * gives away the whole workspace, not only what this plan uses of it. */
static enum moeplan_status check_overlap(const struct moeplan_plan* plan,
                                         const struct moeplan_binding* b) {
  const struct moep_dims* dims = &plan->planner->dims;
  const uint64_t y_bytes = plan->options.y_type == moeplan_dtype_f32 ? 4 : 2;
  const uint64_t rows = plan->rows, H = dims->hidden, slots = rows * dims->topk;
  const uint64_t ring = (uint64_t)b->trace.capacity_rows * dims->topk;
  /* The first ones are written, from x on they are only read. */
  enum { Y = 1, X = 5, WRITTEN = X };
  const struct range ranges[] = {
      {"workspace", (uintptr_t)b->workspace, b->workspace_bytes},
      [Y] = {"y", (uintptr_t)b->y, ((rows - 1) * b->y_stride + H) * y_bytes},
      {"trace.ids", (uintptr_t)b->trace.ids,
       b->trace.ids == NULL ? 0 : ring * sizeof(int32_t)},
      {"trace.weights", (uintptr_t)b->trace.weights,
       b->trace.weights == NULL ? 0 : ring * sizeof(float)},
      {"trace.cursor", (uintptr_t)b->trace.cursor,
       b->trace.cursor == NULL ? 0 : sizeof(uint64_t)},
      [X] = {"x", (uintptr_t)b->x, ((rows - 1) * b->x_stride + H) * 2},
      {"site", (uintptr_t)b->site, moep_site_blob_bytes(plan->planner)},
      {"live_rows", (uintptr_t)b->live_rows,
       b->live_rows == NULL ? 0 : sizeof(int32_t)},
      {"topk_ids", (uintptr_t)b->topk_ids,
       b->topk_ids == NULL ? 0 : slots * sizeof(int32_t)},
      {"topk_weights", (uintptr_t)b->topk_weights,
       b->topk_weights == NULL ? 0 : slots * sizeof(float)},
  };
  const bool in_place =
      b->y == b->x && b->y_stride == b->x_stride && y_bytes == 2;
  for (size_t i = 0; i < WRITTEN; i++) {
    for (size_t j = i + 1; j < sizeof(ranges) / sizeof(*ranges); j++) {
      if (!overlap(&ranges[i], &ranges[j])) continue;
      if (in_place && i == Y && j == X) continue;
      return MOEP_REFUSE(&plan->planner->hooks, overlapping_memory,
                         "cannot bind %s and %s: they overlap (only y == x in "
                         "bf16 with equal strides may)",
                         ranges[i].name, ranges[j].name);
    }
  }
  return moeplan_status_success;
}

enum moeplan_status moep_binding_read(const struct moeplan_plan* plan,
                                      const struct moeplan_binding* binding,
                                      struct moeplan_binding* binding_out) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  const uint32_t hidden = plan->planner->dims.hidden;
  if (binding == NULL) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot bind a plan: binding must not be NULL");
  }
  MOEP_CHECK_STRUCT(hooks, binding);
  struct moeplan_binding b = *binding;
  if (b.x_stride == 0) b.x_stride = hidden;
  if (b.y_stride == 0) b.y_stride = hidden;
  MOEP_TRY(check_alignments(plan, &b));
  MOEP_TRY(check_stride(hooks, "x_stride", b.x_stride, hidden));
  MOEP_TRY(check_stride(hooks, "y_stride", b.y_stride, hidden));
  MOEP_TRY(check_routing(plan, &b));
  if (b.workspace_bytes < plan->layout.total_bytes) {
    return MOEP_REFUSE(hooks, workspace_too_small,
                       "cannot bind a workspace of %zu bytes: the plan of %u "
                       "rows needs %zu",
                       b.workspace_bytes, plan->rows, plan->layout.total_bytes);
  }
  MOEP_TRY(check_overlap(plan, &b));
  MOEP_TRY(check_blob(plan, &b));
  MOEP_TRY(check_tiered(plan, &b));
  *binding_out = b;
  return moeplan_status_success;
}

enum moeplan_status moep_device_check_current(
    const struct moeplan_planner* planner) {
  if (moep_device_is_host(&planner->device)) return moeplan_status_success;
  if (planner->device.plan_only) {
    return MOEP_REFUSE(&planner->hooks, unsupported_device,
                       "cannot run a plan of %s: it describes a device, to "
                       "plan and print only",
                       planner->device.name);
  }
  /* LCOV_EXCL_START: asks the CUDA runtime */
  int current = -1;
  MOEP_TRY_CUDA(&planner->hooks, cudaGetDevice(&current));
  if (current != planner->device.ordinal) {
    return MOEP_REFUSE(&planner->hooks, invalid_state,
                       "cannot run a plan of %s: device %d is current",
                       planner->device.name, current);
  }
  return moeplan_status_success;
  /* LCOV_EXCL_STOP */
}
