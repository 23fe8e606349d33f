/* Stages 2 and 5: the planner, and what it has announced. */

#ifndef MOEPLAN_LIB_PLANNER_H_
#define MOEPLAN_LIB_PLANNER_H_

#include "lib/device.h"
#include "lib/dims.h"

/* A kind of plan that was announced once. */
struct moep_announced {
  struct moep_announced* next;
  uint32_t rows, parts;
  enum moeplan_recipe recipe;
  const char* tile;
};

struct moep_matmul_library;

struct moeplan_planner {
  struct moeplan_hooks hooks;
  struct moep_device device;
  struct moep_dims dims;
  cudaStream_t stream; /* capture and upload; NULL on the host */
  struct moep_announced* announced;
  struct moep_matmul_library* matmul; /* NULL until a TIERED plan wants it */
};

/* A planner for a device as data; nothing is loaded. */
enum moeplan_status moep_planner_create(const struct moeplan_config* config,
                                        const struct moep_device* device,
                                        const struct moeplan_hooks* hooks,
                                        moeplan_planner_t* planner_out);

/* work(context) with the planner's CUDA device current and any capture of this
 * thread's left in peace; both are put back. */
enum moeplan_status moep_on_device(const struct moeplan_planner* planner,
                                   enum moeplan_status (*work)(void* context),
                                   void* context);

#endif /* MOEPLAN_LIB_PLANNER_H_ */
