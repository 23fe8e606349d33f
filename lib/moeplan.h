/* moeplan: precomputed execution plans for the MLP of a GLM-5-class layer.
 *
 * What one site computes, for each row r of x (bf16 in, bf16 out):
 *
 *   logit[e] = dot(x[r], router[e])                  all experts, float32
 *   s[e]     = sigmoid(logit[e])                     or softmax over e
 *   pick     = the k experts with the largest s[e] + bias[e]; ties go to the
 *              lower e; descending. The weight comes from s, not s + bias.
 *   w[j]     = s[pick[j]];  norm_topk_prob: w[j] /= sum(w) + 1e-20;
 *              w[j] *= routed_scaling_factor
 *   mlp(p,v) = p.down * h,  h = silu(min(p.gate v, L)) * clamp(p.up v, -L, L)
 *   y[r]     = sum_j w[j] * bf16(mlp(expert[pick[j]], x[r])) + mlp(shared, x[r])
 *   dense:     y[r] = mlp(dense, x[r])
 *
 * Exactly five tensors are rounded to bf16 (nearest even): gate, up, h, each
 * routed slot's down output, y. docs/numerics.md has every rounding point.
 *
 * One answer per row: the bits of y[r] depend on the site, x[r] and the GPU
 * architecture only. Never on the row count, the recipe, the tile, the row's
 * position, its neighbours, or the way of running (TIERED, an option, gives that
 * up for wide plans: enum moeplan_numerics). The "host" device needs no GPU and
 * gives the bits that an sm_90 GPU gives.
 *
 * The life of a plan, one section of this header per stage:
 *
 *   config -> planner -> site -> workspace -> plan -> binding -> run
 *   (host)    (host)     (host)  (host)       (host)  (host)     (stream)
 *
 * Rules that hold for every function unless its comment says otherwise:
 *
 *   Errors   The result is an enum moeplan_status. On failure no output
 *            argument is written, and one sentence with the value and the rule
 *            goes to the planner's log. If CUDA fails halfway through a
 *            "stream" call, what was enqueued before stays enqueued: treat y
 *            and the workspace as undefined and discard the capture if there
 *            was one. Faults inside kernels surface later, from CUDA.
 *   Memory   Device memory belongs to the caller: the library never allocates,
 *            frees or resizes it (the driver keeps some for an instantiated
 *            graph). Host memory is allocated in *_create calls only.
 *   Streams  "host" calls touch no stream of the caller's. "stream" calls
 *            enqueue on the given stream and return; they never synchronize
 *            and are legal while that stream is being captured. A host device
 *            has no streams: the call itself does the work and `stream` is
 *            ignored.
 *   Threads  A planner is used by one thread at a time. A plan is immutable
 *            and may be shared. A graph or set is replayed by one thread at a
 *            time. There are no globals.
 *   Device   Calls on a "cuda:N" planner want device N current; creating the
 *            planner does not change the current device.
 *   Structs  Structs passed by pointer open with struct_bytes (those inside
 *            them do not).
 *            Start from its *_INIT macro. A size the library does not know is
 *            refused.
 *   Units    Sizes named *_bytes are bytes, strides and widths are elements.
 *            Shapes are written [rows, columns], row-major.
 */

#ifndef MOEPLAN_LIB_MOEPLAN_H_
#define MOEPLAN_LIB_MOEPLAN_H_

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOEPLAN_API __attribute__((visibility("default")))
#else
#define MOEPLAN_API
#endif

/* ---- version ------------------------------------------------------------ */

#define MOEPLAN_VERSION_MAJOR 0
#define MOEPLAN_VERSION_MINOR 1
#define MOEPLAN_VERSION_PATCH 0

/* Version of the contract on bits. Two builds with the same number give the
 * same bits. */
#define MOEPLAN_NUMERICS_VERSION 1

/* Version of the linked library, for example "0.1.0". Never NULL. */
MOEPLAN_API const char* moeplan_version_string(void);

/* ---- status ------------------------------------------------------------- */

/* X(name, value, text). Values are pinned: add, never renumber. */
#define MOEPLAN_STATUS_MAP(X)                                             \
  X(success, 0, "success")                                                \
  X(invalid_argument, 1, "an argument is NULL or out of range")           \
  X(invalid_config, 2, "the configuration contradicts itself")            \
  X(invalid_state, 3, "the call is not allowed in this state")            \
  X(invalid_site, 4, "the site's weights contradict the configuration")   \
  X(unsupported_config, 10, "the configuration is valid but unsupported") \
  X(unsupported_device, 11, "the device cannot do this")                  \
  X(unsupported_option, 12, "the option is known but cannot be honoured") \
  X(workspace_too_small, 20, "the workspace is smaller than the plan")    \
  X(misaligned_pointer, 21, "a pointer or stride is not aligned")         \
  X(out_of_memory, 22, "host memory allocation failed")                   \
  X(overlapping_memory, 23, "two buffers overlap that must not")          \
  X(cuda_error, 30, "a CUDA call failed; see the log")                    \
  X(cublas_error, 31, "cuBLASLt is missing or failed; see the log")       \
  X(no_wisdom, 40, "no wisdom for this shape")                            \
  X(bad_wisdom, 41, "wisdom text is malformed or for another build")      \
  X(internal_error, 99, "internal error; please report")

enum moeplan_status {
#define MOEPLAN_STATUS_ENUM(name, value, text) moeplan_status_##name = (value),
  MOEPLAN_STATUS_MAP(MOEPLAN_STATUS_ENUM)
#undef MOEPLAN_STATUS_ENUM
};

/* Short name ("workspace_too_small") and English sentence. Never NULL, static
 * storage, safe for values this build does not know. */
MOEPLAN_API const char* moeplan_status_name(enum moeplan_status status);
MOEPLAN_API const char* moeplan_status_string(enum moeplan_status status);

/* ---- cuBLASLt (opened at run time) --------------------------------------- */

/* cuBLASLt's version (130100 for 13.1.0). Opens libcublasLt.so.13
 * and leaves it open: by the loader's search path, then in /usr/local/cuda/lib64.
 * cublas_error when it is not found or lacks a function the library uses. */
MOEPLAN_API enum moeplan_status moeplan_cublaslt_version(size_t* version_out);

/* ---- hooks -------------------------------------------------------------- */

enum moeplan_log_level {
  moeplan_log_error = 0,
  moeplan_log_warning = 1, /* a lever is away from its default */
  moeplan_log_info = 2,    /* one line per planning decision */
};

/* Host allocator and logger. Copied by moeplan_planner_create; `context` is
 * passed back as is. `allocate` returns memory aligned for any type and is set
 * together with `deallocate`; both NULL select malloc and free. A NULL `log`
 * selects silence. `log` may be called from any thread that
 * uses the planner or one of its plans; it must not call the library. */
struct moeplan_hooks {
  size_t struct_bytes;
  void* context;
  void* (*allocate)(void* context, size_t bytes);
  void (*deallocate)(void* context, void* pointer);
  void (*log)(void* context, enum moeplan_log_level level, const char* text);
};

#define MOEPLAN_HOOKS_INIT \
  { sizeof(struct moeplan_hooks), NULL, NULL, NULL, NULL }

/* ---- 1. config (host) --------------------------------------------------- */

enum moeplan_site_kind {
  moeplan_site_routed = 0, /* router, routed experts, optional shared expert */
  moeplan_site_dense = 1,  /* one bf16 SwiGLU FFN */
};

enum moeplan_scoring {
  moeplan_scoring_sigmoid = 0,
  moeplan_scoring_softmax = 1,
};

enum moeplan_dtype {
  moeplan_dtype_bf16 = 0,
  moeplan_dtype_f32 = 1,
  moeplan_dtype_nvfp4 = 2, /* E2M1, E4M3 scale per 16, float32 per tensor */
  moeplan_dtype_mxfp4 = 3,
  moeplan_dtype_fp8 = 4,
};

/* local_experts: every expert of the site is on this rank. */
#define MOEPLAN_ALL_EXPERTS UINT32_MAX

/* swiglu_limit: nothing is clamped (the value is +infinity). */
#define MOEPLAN_NO_SWIGLU_LIMIT (__builtin_inff())

/* Names follow the model's config.json. Limits: hidden_size and the three
 * intermediate widths are multiples of 16, at most 65536; experts <= 1024;
 * num_experts_per_tok <= min(experts, 32); max_rows <= 1048576. A dense site
 * uses hidden_size, dense_local_intermediate, swiglu_limit and max_rows and
 * leaves the rest as in MOEPLAN_CONFIG_INIT. */
struct moeplan_config {
  size_t struct_bytes;
  enum moeplan_site_kind kind;
  uint32_t hidden_size;               /* H */
  uint32_t moe_intermediate_size;     /* I, of one routed expert */
  uint32_t n_routed_experts;          /* E, of the whole site */
  uint32_t num_experts_per_tok;       /* k */
  uint32_t local_experts;             /* non-null experts on this rank */
  uint32_t n_group, topk_group;       /* 1 and 1; other values are refused */
  uint32_t shared_local_intermediate; /* this rank's width; 0: none here */
  uint32_t dense_local_intermediate;  /* this rank's width; dense sites */
  enum moeplan_scoring scoring;
  bool norm_topk_prob;
  bool router_bf16_ladder; /* round each router scalar to bf16 (numerics.md) */
  float routed_scaling_factor;     /* finite; applied once, never to shared */
  float swiglu_limit;              /* L > 0, or MOEPLAN_NO_SWIGLU_LIMIT */
  enum moeplan_dtype expert_dtype; /* nvfp4 only today */
  uint32_t expert_group_size;      /* weights per block scale: 16 for nvfp4 */
  enum moeplan_dtype router_dtype; /* bf16 only today */
  uint32_t max_rows;               /* largest row count of any plan */
};

#define MOEPLAN_CONFIG_INIT                                                    \
  {                                                                            \
    sizeof(struct moeplan_config), moeplan_site_routed, 0, 0, 0, 8,            \
        MOEPLAN_ALL_EXPERTS, 1, 1, 0, 0, moeplan_scoring_sigmoid, true, false, \
        1.0f, MOEPLAN_NO_SWIGLU_LIMIT, moeplan_dtype_nvfp4, 16,                \
        moeplan_dtype_bf16, 16384                                              \
  }

/* Check a configuration without creating anything. Pure; logs nothing: the
 * sentence comes from moeplan_planner_create. */
MOEPLAN_API enum moeplan_status moeplan_config_check(
    const struct moeplan_config* config);

/* ---- 2. planner (host) -------------------------------------------------- */

typedef struct moeplan_planner* moeplan_planner_t;

/* `device` is "host", "cuda:N" or "plan:NAME". On CUDA every kernel that a plan
 * may pick is loaded here, on a stream of the library's own, so this also works
 * while the caller captures elsewhere. `hooks` may be NULL.
 *
 * "plan:h200", "plan:h100" (SXM) and "plan:gb10" describe devices that need not
 * be there: their planners size, plan and print as the device would, but
 * moeplan_enqueue, moeplan_graph_create, moeplan_graph_add_child and
 * moeplan_set_create are refused with unsupported_device. */
MOEPLAN_API enum moeplan_status moeplan_planner_create(
    const struct moeplan_config* config, const char* device,
    const struct moeplan_hooks* hooks, moeplan_planner_t* planner_out);

/* Destroy plans, graphs and sets first. NULL is allowed. */
MOEPLAN_API void moeplan_planner_destroy(moeplan_planner_t planner);

/* The planner's device, and the rates that floors are predicted from. */
struct moeplan_device_info {
  size_t struct_bytes;
  const char* name;  /* as given to moeplan_planner_create; the planner's */
  const char* model; /* "NVIDIA H200"; "" for the host; the planner's */
  uint32_t sm;       /* compute capability x 10; 0: the host */
  uint32_t sm_count;
  double bytes_per_second; /* streaming read; 0: not known */
  double flop_per_second;  /* bf16, dense; 0: not known */
  bool datasheet;          /* the rates are the vendor's, not measured */
  bool plan_only;          /* "plan:NAME" */
};

#define MOEPLAN_DEVICE_INFO_INIT                                           \
  {                                                                        \
    sizeof(struct moeplan_device_info), NULL, NULL, 0, 0, 0.0, 0.0, false, \
        false                                                              \
  }

MOEPLAN_API enum moeplan_status moeplan_device_info(
    moeplan_planner_t planner, struct moeplan_device_info* info_out);

/* ---- 3. site (host) ----------------------------------------------------- */

/* One NVFP4 projection [N, K] of every routed expert. Host arrays of E
 * entries, indexed by global expert id; their entries are device addresses of
 * the checkpoint's bytes, never repacked. */
struct moeplan_projection {
  const void* const* weight;       /* u8 [N, K/2], even k in the low nibble */
  const void* const* weight_scale; /* E4M3 [N, K/16] */
  const float* weight_scale_2;     /* finite, 0 or more, below 2^102 */
};

/* A bf16 SwiGLU FFN, whole or one tensor-parallel shard of width W. A shard of
 * down is a column range of the whole matrix: pass its first column's address
 * and the whole matrix's width as pitch.
 *
 * Ranks: y of a rank is a partial sum over its experts and its shard of the
 * shared expert, joined here so that one all-reduce serves both; ask for
 * float32 (options.y_type), whose sum over the ranks is the whole site's y within
 * rounding. Routing is the same on every rank: each has the whole router. The
 * whole shared expert on more than one rank is the caller's error, which no rank
 * can see: the sum then holds it once for each. A rank without a shard of it
 * passes nulls and width 0. */
struct moeplan_ffn {
  const void* gate;    /* [W, H] bf16 */
  const void* up;      /* [W, H] bf16 */
  const void* down;    /* [H, W] bf16, rows down_pitch apart */
  uint32_t down_pitch; /* elements, a multiple of 8; 0: W */
};

/* The weights of one site as device addresses (host addresses for a "host"
 * planner). gate, up and down of an expert are null together: it belongs to
 * another rank, is never read and contributes zero. The number of non-null
 * experts is config.local_experts. The shared expert is null together and
 * exactly when shared_local_intermediate is 0. A routed site has no `dense`, a
 * dense site nothing else: the rest is NULL. On CUDA every address is 16-byte
 * aligned; on the host bf16 wants 2 bytes, float32 4, NVFP4 none. */
struct moeplan_site {
  size_t struct_bytes;
  const void* router;             /* [E, H] bf16 */
  const float* router_bias;       /* [E] float32, or NULL for zeros */
  struct moeplan_projection gate; /* N = I, K = H */
  struct moeplan_projection up;   /* N = I, K = H */
  struct moeplan_projection down; /* N = H, K = I */
  struct moeplan_ffn shared;
  struct moeplan_ffn dense;
  const void* projection_bias; /* NULL: biases are refused */
};

#define MOEPLAN_SITE_INIT                                              \
  {                                                                    \
    sizeof(struct moeplan_site), NULL, NULL, {NULL, NULL, NULL},       \
        {NULL, NULL, NULL}, {NULL, NULL, NULL}, {NULL, NULL, NULL, 0}, \
        {NULL, NULL, NULL, 0}, NULL                                    \
  }

/* Bytes of the blob that moeplan_site_write fills. */
MOEPLAN_API enum moeplan_status moeplan_site_size(moeplan_planner_t planner,
                                                  size_t* bytes_out);

/* Check the site and write its table of addresses and scales into host memory
 * (8-byte aligned). The caller uploads the blob to device memory aligned to
 * MOEPLAN_SITE_ALIGNMENT: that address is binding.site, read at replay. The blob of
 * an sm_90 device also has tensor maps of every expert's weights, which the CUDA
 * driver makes here (on the planner's device, no stream; what it refuses is a
 * cuda_error), so it serves planners of that architecture only, and that of a
 * "plan:" device none that runs. Rewriting the blob between replays, by a copy,
 * moves experts without touching a graph. Blob and weights are frozen while work
 * is in flight, and a kernel that writes them may not stand right before the plan
 * on its stream: the plan's first node may prefetch weights before that kernel
 * ends. A blob of another configuration is refused on the host and undefined on
 * CUDA. Weights themselves are not read here. */
MOEPLAN_API enum moeplan_status moeplan_site_write(
    moeplan_planner_t planner, const struct moeplan_site* site, void* blob,
    size_t blob_bytes);

/* ---- 4. options and workspace (host) ------------------------------------ */

enum moeplan_recipe {
  moeplan_recipe_auto = 0,       /* from the row count and the levers */
  moeplan_recipe_decode = 1,     /* 1 row */
  moeplan_recipe_verify = 2,     /* 1..cap rows over the union of experts */
  moeplan_recipe_row_groups = 3, /* verify's node, group by group */
  moeplan_recipe_per_row = 4,    /* decode's node, row by row */
  moeplan_recipe_prefill = 5,    /* sort by expert, grouped GEMM */
  moeplan_recipe_dense = 6,      /* dense sites, any row count */
};

enum moeplan_numerics {
  moeplan_numerics_invariant = 0, /* one answer per row */
  /* Plans of more than 8 rows on CUDA give the dense projections to cuBLASLt:
   * logits (float32), gate and up, down, of prefill and dense plans. Rows up to 8,
   * the routed experts' projections and the host device keep INVARIANT's bits;
   * what follows from cuBLASLt differs from it within rounding, routing included,
   * and with the row count. Such a plan wants binding.host_site, and on a dense
   * site refuses live_rows. moeplan_plan_create asks cuBLASLt for an algorithm
   * within a part of the workspace and has its kernels loaded, by a capture that
   * is thrown away: nothing runs, and nothing is left to load at the first call
   * or capture. The planner holds one cuBLASLt handle, and with it what memory
   * cuBLASLt takes for one. */
  moeplan_numerics_tiered = 1,
};

enum moeplan_y_mode {
  moeplan_y_store = 0,
  moeplan_y_add = 1, /* y += ...; refused today */
};

/* Levers of a plan. Zero is every lever's default. Each lever away from its
 * default is logged as a warning and printed with the plan. */
struct moeplan_options {
  size_t struct_bytes;
  enum moeplan_recipe recipe;
  bool no_row_batch;      /* no union: a row's experts are read for it alone */
  uint32_t row_batch_max; /* widest union group, 1..8; 0: 8. A group also holds
                             at most 64 / num_experts_per_tok rows */
  bool no_grouped;        /* no prefill recipe */
  uint32_t grouped_min_rows; /* prefill from this many rows, >= 9; 0: 9 */
  /* By name: n8, n16, n32, n48, n64, n80, n96, n128, n256, or base; NULL: by rule. Of
   * prefill plans only: the other recipes have one tile or none, and ignore it. base
   * is the plain kernels'; on CUDA any other wants sm_90 and widths that are multiples
   * of 64, and is refused elsewhere. */
  const char* tile;
  bool host_dispatch; /* debug: the call waits, reads the routing back and
                         launches each expert by itself */
  bool profile;       /* refused today */
  enum moeplan_numerics numerics;
  bool no_cublas; /* TIERED without cuBLASLt; no effect otherwise */
  bool no_pdl;    /* no programmatic dependent launch */
  /* As many blocks in a node as fill so many SMs (host: threads); 0: all. */
  uint32_t sm_limit;
  enum moeplan_dtype y_type; /* bf16, or f32 for partial sums */
  enum moeplan_y_mode y_mode;
  bool measure;     /* refused today */
  bool wisdom_only; /* refused today */
};

#define MOEPLAN_OPTIONS_INIT                                                 \
  {                                                                          \
    sizeof(struct moeplan_options), moeplan_recipe_auto, false, 0, false, 0, \
        NULL, false, false, moeplan_numerics_invariant, false, false, 0,     \
        moeplan_dtype_bf16, moeplan_y_store, false, false                    \
  }

/* Set levers from MOEPLAN_NO_ROW_BATCH, MOEPLAN_ROW_BATCH_MAX, MOEPLAN_GROUPED,
 * MOEPLAN_GROUPED_MIN_ROWS, MOEPLAN_TILE, MOEPLAN_RECIPE,
 * MOEPLAN_HOST_DISPATCH, MOEPLAN_PROFILE, MOEPLAN_NUMERICS, MOEPLAN_CUBLAS,
 * MOEPLAN_PDL and MOEPLAN_SM_LIMIT; unset ones leave their field alone. The
 * only place where the library reads its environment. A value that does not
 * parse or is out of range is invalid_argument and `options` keeps its values.
 * options->tile then points into the environment. */
MOEPLAN_API enum moeplan_status moeplan_options_from_environment(
    moeplan_planner_t planner, struct moeplan_options* options);

/* Bytes that cover every recipe, tile and lever up to max_rows rows. Never
 * decreases with max_rows: size it once for the largest plan. `options` may be
 * NULL; of the levers only `numerics` changes the answer. */
MOEPLAN_API enum moeplan_status moeplan_workspace_size(
    moeplan_planner_t planner, uint32_t max_rows,
    const struct moeplan_options* options, size_t* bytes_out);

/* ---- 5. plan (host) ----------------------------------------------------- */

typedef struct moeplan_plan* moeplan_plan_t;

/* A plan for exactly `rows` rows. It holds offsets, no pointers: one plan
 * serves every layer of the same shape. `options` may be NULL and is not kept. */
MOEPLAN_API enum moeplan_status moeplan_plan_create(
    moeplan_planner_t planner, uint32_t rows,
    const struct moeplan_options* options, moeplan_plan_t* plan_out);
MOEPLAN_API void moeplan_plan_destroy(moeplan_plan_t plan); /* NULL allowed */

struct moeplan_plan_info {
  size_t struct_bytes;
  uint32_t rows;
  enum moeplan_recipe recipe; /* never auto */
  const char* recipe_name;    /* static storage */
  uint32_t groups;            /* row groups or single rows; 1 otherwise */
  uint32_t nodes;
  const char* tile; /* of the routed projections, "-": none; static storage */
  size_t workspace_bytes; /* what this plan needs */
  uint64_t bytes;         /* most that one replay must read and write */
  uint64_t flop;
  double floor_seconds; /* at the device's rates; 0: none known */
};

#define MOEPLAN_PLAN_INFO_INIT                                            \
  {                                                                       \
    sizeof(struct moeplan_plan_info), 0, moeplan_recipe_auto, NULL, 0, 0, \
        NULL, 0, 0, 0, 0.0                                                \
  }

MOEPLAN_API enum moeplan_status moeplan_plan_info(
    moeplan_plan_t plan, struct moeplan_plan_info* info_out);

/* Sink for text. Returns 0 to go on, anything else to stop. */
typedef int (*moeplan_write_fn)(void* context, const char* text, size_t bytes);

/* The plan as text: a line for the plan, a line per lever away from its
 * default, a line per node. The workspace as text: a line per buffer. Stable
 * across runs and machines. */
MOEPLAN_API enum moeplan_status moeplan_plan_print(moeplan_plan_t plan,
                                                   moeplan_write_fn write,
                                                   void* context);
MOEPLAN_API enum moeplan_status moeplan_workspace_print(moeplan_plan_t plan,
                                                        moeplan_write_fn write,
                                                        void* context);

/* ---- 6. binding --------------------------------------------------------- */

/* A ring of rows in device memory that receives each live row's ids and
 * weights, whatever the recipe; it never changes y. Row number n since the
 * start lies at n % capacity_rows. All pointers null: no trace. */
struct moeplan_trace_ring {
  int32_t* ids;           /* [capacity_rows, k], slot order */
  float* weights;         /* [capacity_rows, k] */
  uint64_t* cursor;       /* rows written so far; the caller sets it to 0 */
  uint32_t capacity_rows; /* at least the plan's rows */
};

/* The only pointers of a run. All device memory, all caller-owned, all alive
 * until the work is done. y == x (in bf16 with equal strides) is allowed in
 * every recipe; any other overlap of what a run may write (y, workspace_bytes of
 * workspace, the trace ring and its cursor) with anything bound is refused. */
struct moeplan_binding {
  size_t struct_bytes;
  const void* site; /* the uploaded blob, MOEPLAN_SITE_ALIGNMENT */
  const void* x;    /* [rows, H] bf16, 16-byte aligned */
  size_t x_stride;  /* elements between rows, a multiple of 8; 0: H */
  void* y;          /* [rows, H] bf16 or float32, 16-byte aligned */
  size_t y_stride;  /* elements between rows, a multiple of 8; 0: H */
  void* workspace;  /* 256-byte aligned; contents may be anything */
  size_t workspace_bytes;
  /* Optional. One int32, read by the device, clamped to 0..rows, constant
   * during a replay. Rows past it load no expert and leave y untouched. */
  const int32_t* live_rows;
  /* Optional, together: routing from outside. The router is skipped. ids
   * outside 0..E-1 are unfilled slots: skipped, whatever their weight. Weights
   * are used as they are. */
  const int32_t* topk_ids;   /* [rows, k] */
  const float* topk_weights; /* [rows, k] */
  struct moeplan_trace_ring trace;
  /* TIERED: the site's blob in host memory, 8-byte aligned. The addresses of
   * router, shared and dense weights are taken from it during the call and are then
   * the graph's: rewriting the device's blob moves experts only,
   * moeplan_graph_update the others. NULL otherwise. */
  const void* host_site;
};

#define MOEPLAN_BINDING_INIT                                               \
  {                                                                        \
    sizeof(struct moeplan_binding), NULL, NULL, 0, NULL, 0, NULL, 0, NULL, \
        NULL, NULL, {NULL, NULL, NULL, 0}, NULL                            \
  }

#define MOEPLAN_WORKSPACE_ALIGNMENT 256
#define MOEPLAN_ROW_ALIGNMENT 16
#define MOEPLAN_SITE_ALIGNMENT 128 /* of the blob on CUDA; 16 on the host */

/* ---- 7. run: enqueue, capture, replay ----------------------------------- */

typedef struct moeplan_graph* moeplan_graph_t;
typedef struct moeplan_set* moeplan_set_t;

/* Three ways to run a plan, all giving the same bits:
 *
 * a) enqueue (stream): add the plan's work to `stream`. If the caller is
 *    capturing that stream, the work becomes nodes of the caller's graph.
 * b) own graph (host): captured on a stream of the library's own,
 *    instantiated, uploaded; replayed many times. The graph does not need the
 *    plan afterwards, only the planner. On the host device: a prepared list of calls.
 * c) child graph (host): the plan's graph, cloned as one node of the caller's.
 *    Refused on the host device.
 *
 * A routed plan of up to cap rows is one cooperative kernel with a block on each
 * SM (of sm_limit, if set): it starts when all of them have room, and a context
 * with fewer SMs than the device refuses it (cuda_error).
 *
 * b and c work while the caller captures another stream of this thread. A plan
 * with host_dispatch runs by a) only, outside capture. */
MOEPLAN_API enum moeplan_status moeplan_enqueue(
    moeplan_plan_t plan, const struct moeplan_binding* binding,
    cudaStream_t stream);
MOEPLAN_API enum moeplan_status moeplan_graph_create(
    moeplan_plan_t plan, const struct moeplan_binding* binding,
    moeplan_graph_t* graph_out);
MOEPLAN_API enum moeplan_status moeplan_graph_add_child(
    moeplan_plan_t plan, const struct moeplan_binding* binding,
    cudaGraph_t parent, const cudaGraphNode_t* dependencies,
    size_t num_dependencies, cudaGraphNode_t* node_out);

/* Bind the graph to other pointers (host). No replay of it may be in flight.
 * On failure it keeps its old binding. The graph of a TIERED plan has no logits
 * where topk_ids are bound: to bind them, or no longer, is a cuda_error there. */
MOEPLAN_API enum moeplan_status moeplan_graph_update(
    moeplan_graph_t graph, const struct moeplan_binding* binding);

/* Launch the graph (stream). Replays of one graph run one after another.
 * Graphs that share a workspace are ordered by the caller. */
MOEPLAN_API enum moeplan_status moeplan_graph_replay(moeplan_graph_t graph,
                                                     cudaStream_t stream);
MOEPLAN_API void moeplan_graph_destroy(moeplan_graph_t graph); /* NULL ok */

/* Every plan of a site, captured over one binding: one graph per row count.
 * row_counts are distinct, ascending, n of them. */
MOEPLAN_API enum moeplan_status moeplan_set_create(
    moeplan_planner_t planner, const struct moeplan_binding* binding,
    const uint32_t* row_counts, size_t n, const struct moeplan_options* options,
    moeplan_set_t* set_out);

/* Replay (stream) the graph of exactly `rows` rows, or of the next larger row
 * count if the binding has live_rows: the caller has then stored `rows` there.
 * invalid_argument when no graph covers `rows`. */
MOEPLAN_API enum moeplan_status moeplan_set_replay(moeplan_set_t set,
                                                   uint32_t rows,
                                                   cudaStream_t stream);
MOEPLAN_API void moeplan_set_destroy(moeplan_set_t set); /* NULL allowed */

/* Run the plan `repeats` times (1..1000) with a mark around each node, wait for
 * it, and give each node's median in seconds: seconds_out[i] for i below
 * moeplan_plan_info.nodes, in the order in which moeplan_plan_print lists them;
 * `capacity` is how many it holds. The marks keep nodes apart, so that the sum is more
 * than a replay takes. Refused on a stream that is captured, and with host_dispatch. */
MOEPLAN_API enum moeplan_status moeplan_measure_nodes(
    moeplan_plan_t plan, const struct moeplan_binding* binding,
    cudaStream_t stream, uint32_t repeats, double* seconds_out,
    uint32_t capacity);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MOEPLAN_LIB_MOEPLAN_H_ */
