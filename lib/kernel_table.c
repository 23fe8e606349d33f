#include "lib/kernel_table.h"

/* clang-format off */
const struct moep_kernel moep_kernels[] = {
#define MOEP_HOST_KERNEL(op, dtype, block_n)                                  \
  {"moep_" #op "_" #dtype "_host", moep_op_##op, 0, 0, 1, 16, block_n, 0,     \
   moep_##op##_##dtype##_host, NULL},
#define MOEP_CUDA_KERNEL(op, dtype, arch, min_sm, max_sm, min_rows, multiple, \
                         block_n, blocks)                                     \
  {"moep_" #op "_" #dtype "_" #arch, moep_op_##op, min_sm, max_sm, min_rows,  \
   multiple, block_n, blocks,                                                 \
   moep_##op##_##dtype##_##arch, moep_##op##_##dtype##_##arch##_load},
#include "kernels/kernels.inc"
#undef MOEP_HOST_KERNEL
#undef MOEP_CUDA_KERNEL
};
/* clang-format on */

const size_t moep_kernel_count = sizeof(moep_kernels) / sizeof(*moep_kernels);

const char* moep_op_name(enum moep_op op) {
  static const char* const names[MOEP_OP_COUNT] = {
#define OP_NAME(name, type) [moep_op_##name] = #name,
      MOEP_OP_MAP(OP_NAME)
#undef OP_NAME
  };
  return names[op];
}

bool moep_kernel_runs_on(const struct moep_kernel* kernel,
                         const struct moep_device* device) {
  if (moep_device_is_host(device)) return kernel->min_sm == 0;
  return kernel->min_sm != 0 && kernel->min_sm <= device->sm &&
         device->sm <= kernel->max_sm;
}

const struct moep_kernel* moep_kernel_find(const struct moep_device* device,
                                           enum moep_op op,
                                           const struct moep_kernel_use* use) {
  const struct moep_kernel* found = NULL;
  for (size_t i = 0; i < moep_kernel_count; i++) {
    const struct moep_kernel* kernel = &moep_kernels[i];
    if (kernel->op != op || !moep_kernel_runs_on(kernel, device)) continue;
    if (use->rows < kernel->min_rows) continue;
    if ((use->widths & (kernel->multiple - 1)) != 0) continue;
    found = kernel;
    if (use->base) break;
  }
  return found;
}
