/* Launchers of every kernel, declared from kernels.inc. */

#ifndef MOEPLAN_KERNELS_KERNELS_H_
#define MOEPLAN_KERNELS_KERNELS_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "kernels/args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a node is launched; fixed when the plan is made. */
struct moep_launch {
  uint32_t grid[2]; /* blocks; host: pieces of work, for printing */
  uint32_t threads; /* host: worker threads at most; CUDA: chosen by kernel */
  uint32_t pdl;     /* CUDA: programmatic dependent launch */
  uint32_t shared_bytes; /* CUDA: most shared memory that a block may have */
};

/* Operations. X(name, argument struct). */
#define MOEP_OP_MAP(X)                      \
  X(group, struct moep_group_args)          \
  X(logits, struct moep_logits_args)        \
  X(ffn_up, struct moep_ffn_up_args)        \
  X(route, struct moep_route_args)          \
  X(sort_count, struct moep_sort_args)      \
  X(sort_scan, struct moep_sort_args)       \
  X(sort_scatter, struct moep_sort_args)    \
  X(permute_x, struct moep_permute_x_args)  \
  X(grouped_up, struct moep_grouped_args)   \
  X(grouped_down, struct moep_grouped_args) \
  X(ffn_down, struct moep_ffn_down_args)    \
  X(combine, struct moep_combine_args)      \
  X(swiglu, struct moep_swiglu_args)        \
  X(matmul_logits, struct moep_matmul_args) \
  X(matmul_gate, struct moep_matmul_args)   \
  X(matmul_up, struct moep_matmul_args)     \
  X(matmul_down, struct moep_matmul_args)

enum moep_op {
#define MOEP_OP_ENUM(name, type) moep_op_##name,
  MOEP_OP_MAP(MOEP_OP_ENUM)
#undef MOEP_OP_ENUM
      MOEP_OP_COUNT
};

union moep_args {
#define MOEP_OP_MEMBER(name, type) type name;
  MOEP_OP_MAP(MOEP_OP_MEMBER)
#undef MOEP_OP_MEMBER
};

/* moep_<op>_<dtype>_<arch>(args, launch, stream) enqueues the operation; a host
 * kernel does it at once and ignores the stream. Launchers neither allocate nor
 * wait. A CUDA kernel also has moep_<...>_load(), which makes the driver load
 * its code now instead of at its first launch. */
typedef cudaError_t (*moep_launch_fn)(const union moep_args* args,
                                      const struct moep_launch* launch,
                                      cudaStream_t stream);
typedef cudaError_t (*moep_load_fn)(void);

#define MOEP_LAUNCHER(name)                     \
  cudaError_t name(const union moep_args* args, \
                   const struct moep_launch* launch, cudaStream_t stream);
#define MOEP_HOST_KERNEL(op, dtype, block_n) \
  MOEP_LAUNCHER(moep_##op##_##dtype##_host)
#define MOEP_CUDA_KERNEL(op, dtype, arch, min_sm, max_sm, min_rows, multiple, \
                         block_n, blocks)                                     \
  MOEP_LAUNCHER(moep_##op##_##dtype##_##arch)                                 \
  cudaError_t moep_##op##_##dtype##_##arch##_load(void);
#include "kernels/kernels.inc"
#undef MOEP_HOST_KERNEL
#undef MOEP_CUDA_KERNEL
#undef MOEP_LAUNCHER

/* The maps of an expert's weights, hidden and inter multiples of 64. Asks the driver,
 * on the host, with a current context; no stream. */
cudaError_t moep_expert_maps_sm90(const struct moep_expert* expert,
                                  uint32_t hidden, uint32_t inter,
                                  struct moep_expert_maps* maps_out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MOEPLAN_KERNELS_KERNELS_H_ */
