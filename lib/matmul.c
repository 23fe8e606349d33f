/* out[r, n] = weight[n] . x[r], row-major, is in cuBLASLt's column-major terms
 * D [n, rows] = A^T B with A = weight [K, n], B = x [K, rows]. */

#include "lib/matmul.h"

#include <stdio.h>
#include <string.h>

#include "lib/check.h"
#include "lib/cublaslt.h"
#include "lib/layout.h"

enum { MAX_MATMUL_NODES = 32 }; /* of one call, a few are seen */

/* A handle and the functions that take it. */
struct moep_matmul_library {
  struct moep_cublaslt functions;
  cublasLtHandle_t handle;
};

/* One call, described. */
struct problem {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, d;
};

static const struct {
  enum moep_matmul_id id;
  struct moep_kernel kernel;
} lines[] = {
    {moep_matmul_logits,
     {.name = "cublasLt_logits", .op = moep_op_matmul_logits}},
    {moep_matmul_up, {.name = "cublasLt_gate", .op = moep_op_matmul_gate}},
    {moep_matmul_up, {.name = "cublasLt_up", .op = moep_op_matmul_up}},
    {moep_matmul_down, {.name = "cublasLt_down", .op = moep_op_matmul_down}},
};

enum { LINE_COUNT = sizeof(lines) / sizeof(*lines) };

enum moep_matmul_id moep_matmul_of(enum moep_op op) {
  for (size_t i = 0; i < LINE_COUNT; i++) {
    if (lines[i].kernel.op == op) return lines[i].id;
  }
  return MOEP_MATMUL_COUNT;
}

const struct moep_kernel* moep_matmul_kernel(enum moep_op op) {
  for (size_t i = 0; i < LINE_COUNT; i++) {
    if (lines[i].kernel.op == op) return &lines[i].kernel;
  }
  return NULL;
}

/* LCOV_EXCL_START: needs a GPU */

static enum moeplan_status status_of(const struct moeplan_planner* planner,
                                     cublasStatus_t result, const char* what) {
  if (result == CUBLAS_STATUS_SUCCESS) return moeplan_status_success;
  return MOEP_REFUSE(&planner->hooks, cublas_error,
                     "cannot %s: cuBLASLt says %s", what,
                     planner->matmul->functions.status_name(result));
}

/* The planner's handle, made at its first TIERED plan. */
static enum moeplan_status open_library(struct moeplan_planner* planner) {
  if (planner->matmul != NULL) return moeplan_status_success;
  struct moep_matmul_library* library =
      moep_allocate(&planner->hooks, sizeof(*library));
  if (library == NULL) return moeplan_status_out_of_memory;
  *library = (struct moep_matmul_library){.handle = NULL};
  if (moep_cublaslt_find(&library->functions) != moeplan_status_success) {
    moep_release(&planner->hooks, library);
    return MOEP_REFUSE(&planner->hooks, cublas_error,
                       "cannot plan with numerics tiered: libcublasLt.so.13 is "
                       "not found or too old (no_cublas plans without it)");
  }
  planner->matmul = library;
  const enum moeplan_status status =
      status_of(planner, library->functions.create(&library->handle),
                "create a cuBLASLt handle");
  if (status != moeplan_status_success) moep_matmul_close(planner);
  return status;
}

void moep_matmul_close(struct moeplan_planner* planner) {
  struct moep_matmul_library* library = planner->matmul;
  if (library == NULL) return;
  if (library->handle != NULL) library->functions.destroy(library->handle);
  moep_release(&planner->hooks, library);
  planner->matmul = NULL;
}

static enum moeplan_status describe(const struct moeplan_planner* planner,
                                    const struct moep_matmul* matmul,
                                    const struct moep_matmul_args* args,
                                    struct problem* problem_out) {
  const struct moep_cublaslt* lt = &planner->matmul->functions;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const int32_t sms = (int32_t)matmul->sm_limit;
  const cudaDataType_t out_type = matmul->out_f32 ? CUDA_R_32F : CUDA_R_16BF;
  struct problem p;
  cublasStatus_t result =
      lt->desc_init(&p.desc, sizeof(p.desc), CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (result == CUBLAS_STATUS_SUCCESS) {
    result = lt->desc_set(&p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                          sizeof(transposed));
  }
  if (result == CUBLAS_STATUS_SUCCESS && sms != 0) {
    result = lt->desc_set(&p.desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms,
                          sizeof(sms));
  }
  if (result == CUBLAS_STATUS_SUCCESS) {
    result = lt->layout_init(&p.a, sizeof(p.a), CUDA_R_16BF, matmul->k,
                             matmul->n, (int64_t)args->weight_stride);
  }
  if (result == CUBLAS_STATUS_SUCCESS) {
    result = lt->layout_init(&p.b, sizeof(p.b), CUDA_R_16BF, matmul->k,
                             matmul->rows, (int64_t)args->x.stride);
  }
  if (result == CUBLAS_STATUS_SUCCESS) {
    result = lt->layout_init(&p.d, sizeof(p.d), out_type, matmul->n,
                             matmul->rows, (int64_t)args->out.stride);
  }
  MOEP_TRY(status_of(planner, result, "describe a matrix multiplication"));
  *problem_out = p;
  return moeplan_status_success;
}

enum moeplan_status moep_matmul_run(const struct moeplan_planner* planner,
                                    const struct moep_matmul* matmul,
                                    const struct moep_matmul_args* args,
                                    cudaStream_t stream) {
  const struct moep_matmul_library* library = planner->matmul;
  const float one = 1.0f, zero = 0.0f;
  if (args->out.data == NULL) return moeplan_status_success;
  struct problem p;
  MOEP_TRY(describe(planner, matmul, args, &p));
  cublasLtMatmulAlgo_t algorithm;
  _Static_assert(sizeof(algorithm) == sizeof(matmul->algorithm), "its copy");
  memcpy(&algorithm, matmul->algorithm, sizeof(algorithm));
  return status_of(
      planner,
      library->functions.matmul(library->handle, &p.desc, &one, args->weight,
                                &p.a, args->x.data, &p.b, &zero, args->out.data,
                                &p.d, args->out.data, &p.d, &algorithm,
                                args->work, matmul->work_bytes, stream),
      "multiply matrices");
}

/* Addresses are only known to be multiples of what a binding and a site allow. */
static enum moeplan_status prefer(
    const struct moeplan_planner* planner,
    cublasLtMatmulPreferenceOpaque_t* preference) {
  const struct moep_cublaslt* lt = &planner->matmul->functions;
  const size_t work_bytes = MOEP_MATMUL_WORK_BYTES;
  const uint32_t alignment = MOEPLAN_ROW_ALIGNMENT;
  static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  cublasStatus_t result = lt->preference_init(preference, sizeof(*preference));
  if (result == CUBLAS_STATUS_SUCCESS) {
    result =
        lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                           &work_bytes, sizeof(work_bytes));
  }
  for (size_t i = 0; i < sizeof(alignments) / sizeof(*alignments) &&
                     result == CUBLAS_STATUS_SUCCESS;
       i++) {
    result = lt->preference_set(preference, alignments[i], &alignment,
                                sizeof(alignment));
  }
  return status_of(planner, result, "ask for a matrix multiplication");
}

/* Where nothing is read or written: the graph is not launched. */
static struct moep_matmul_args nowhere(const struct moep_matmul* matmul) {
  /* No address of the program's: none has to stay one. */
  /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
  char* const address = (char*)(uintptr_t)(1 << 20);
  const size_t apart = (size_t)1 << 40;
  return (struct moep_matmul_args){
      .weight = (const uint16_t*)(address + apart),
      .weight_stride = matmul->k,
      .x = {.data = (const uint16_t*)(address + 2 * apart),
            .stride = matmul->k},
      .out = {.data = address + 3 * apart, .stride = matmul->n},
      .work = address + 4 * apart,
  };
}

/* Instantiate the kernels of a graph alone: a memset of a made-up address would
 * be refused. */
static enum moeplan_status instantiate_kernels(
    const struct moeplan_hooks* hooks, cudaGraph_t graph) {
  cudaGraphNode_t nodes[MAX_MATMUL_NODES];
  size_t count = MAX_MATMUL_NODES;
  MOEP_TRY_CUDA(hooks, cudaGraphGetNodes(graph, nodes, &count));
  for (size_t i = 0; i < count; i++) {
    enum cudaGraphNodeType type;
    MOEP_TRY_CUDA(hooks, cudaGraphNodeGetType(nodes[i], &type));
    if (type == cudaGraphNodeTypeKernel) continue;
    MOEP_TRY_CUDA(hooks, cudaGraphDestroyNode(nodes[i]));
  }
  cudaGraphExec_t exec = NULL;
  MOEP_TRY_CUDA(hooks, cudaGraphInstantiate(&exec, graph, 0));
  cudaGraphExecDestroy(exec);
  return moeplan_status_success;
}

static enum moeplan_status capture_nowhere(
    const struct moeplan_planner* planner, const struct moep_matmul* matmul) {
  const struct moeplan_hooks* hooks = &planner->hooks;
  const struct moep_matmul_args args = nowhere(matmul);
  MOEP_TRY_CUDA(hooks, cudaStreamBeginCapture(planner->stream,
                                              cudaStreamCaptureModeRelaxed));
  enum moeplan_status status =
      moep_matmul_run(planner, matmul, &args, planner->stream);
  cudaGraph_t graph = NULL;
  const enum moeplan_status ended =
      MOEP_CUDA(hooks, cudaStreamEndCapture(planner->stream, &graph));
  if (status == moeplan_status_success) status = ended;
  if (status == moeplan_status_success) {
    status = instantiate_kernels(hooks, graph);
  }
  if (graph != NULL) cudaGraphDestroy(graph);
  return status;
}

static enum moeplan_status choose(const struct moeplan_planner* planner,
                                  struct moep_matmul* matmul) {
  const struct moep_matmul_library* library = planner->matmul;
  const struct moep_matmul_args args = nowhere(matmul);
  cublasLtMatmulPreferenceOpaque_t preference;
  struct problem p;
  MOEP_TRY(describe(planner, matmul, &args, &p));
  MOEP_TRY(prefer(planner, &preference));
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  const cublasStatus_t result =
      library->functions.heuristic(library->handle, &p.desc, &p.a, &p.b, &p.d,
                                   &p.d, &preference, 1, &found, &count);
  MOEP_TRY(status_of(planner, result, "choose a matrix multiplication"));
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) {
    return MOEP_REFUSE(
        &planner->hooks, cublas_error,
        "cannot plan %u x %u x %u with numerics tiered: cuBLASLt "
        "has no algorithm (no_cublas plans without it)",
        matmul->rows, matmul->n, matmul->k);
  }
  memcpy(matmul->algorithm, &found.algo, sizeof(matmul->algorithm));
  matmul->work_bytes = found.workspaceSize;
  matmul->is_chosen = true;
  return capture_nowhere(planner, matmul);
}

enum moeplan_status moep_matmul_choose(struct moeplan_planner* planner,
                                       struct moep_matmul* matmul) {
  if (planner->stream == NULL) return moeplan_status_success;
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  MOEP_TRY_CUDA(&planner->hooks, cudaThreadExchangeStreamCaptureMode(&mode));
  enum moeplan_status status = open_library(planner);
  if (status == moeplan_status_success) status = choose(planner, matmul);
  cudaThreadExchangeStreamCaptureMode(&mode);
  return status;
}

static void print_algorithm(const struct moeplan_planner* planner,
                            const struct moep_matmul* matmul,
                            char text[MOEP_MATMUL_TEXT_BYTES]) {
  static const cublasLtMatmulAlgoConfigAttributes_t attributes[] = {
      CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID,
      CUBLASLT_ALGO_CONFIG_STAGES_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM};
  uint32_t values[4] = {0};
  cublasLtMatmulAlgo_t algorithm;
  memcpy(&algorithm, matmul->algorithm, sizeof(algorithm));
  for (size_t i = 0; i < 4; i++) {
    size_t written = 0;
    planner->matmul->functions.algorithm_get(
        &algorithm, attributes[i], &values[i], sizeof(values[i]), &written);
  }
  snprintf(text, MOEP_MATMUL_TEXT_BYTES,
           "algo %u tile %u stages %u split_k %u work %zu", values[0],
           values[1], values[2], values[3], matmul->work_bytes);
}
/* LCOV_EXCL_STOP */

void moep_matmul_text(const struct moeplan_planner* planner,
                      const struct moep_matmul* matmul,
                      char text[MOEP_MATMUL_TEXT_BYTES]) {
  if (matmul->is_chosen) {
    print_algorithm(planner, matmul, text);
  } else {
    snprintf(text, MOEP_MATMUL_TEXT_BYTES, "algo -");
  }
}
