/* Stage 6: the caller's pointers, checked once per capture. */

#ifndef MOEPLAN_LIB_BINDING_H_
#define MOEPLAN_LIB_BINDING_H_

#include "lib/plan.h"

/* Check `binding` against `plan` and copy it with its default strides filled
 * in. Nothing that a pointer points to is read. */
enum moeplan_status moep_binding_read(const struct moeplan_plan* plan,
                                      const struct moeplan_binding* binding,
                                      struct moeplan_binding* binding_out);

/* The plan's device must be current; the host always is. */
enum moeplan_status moep_device_check_current(
    const struct moeplan_planner* planner);

#endif /* MOEPLAN_LIB_BINDING_H_ */
