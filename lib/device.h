/* Stage 2: what the planner knows of a device, as data. */

#ifndef MOEPLAN_LIB_DEVICE_H_
#define MOEPLAN_LIB_DEVICE_H_

#include "lib/hooks.h"

struct moep_device {
  char name[16];  /* "host", "cuda:N" or "plan:NAME", as the caller wrote it */
  char model[64]; /* "NVIDIA H200"; "" for the host */
  int ordinal;    /* -1: the host, or a device that need not be there */
  uint32_t sm;    /* compute capability x 10; 0: the host */
  uint32_t sm_count;
  uint32_t shared_bytes;   /* that one block may have; 0: the host */
  double bytes_per_second; /* streaming read; 0: not known */
  double flop_per_second;  /* bf16, dense; 0: not known */
  bool datasheet;          /* the rates are the vendor's, not measured */
  bool plan_only;          /* described, not there: plans, never runs */
};

static inline bool moep_device_is_host(const struct moep_device* device) {
  return device->sm == 0;
}

/* Read a device by name. "plan:NAME" is a
 * row of a table and touches no device. */
enum moeplan_status moep_device_read(const char* name,
                                     const struct moeplan_hooks* hooks,
                                     struct moep_device* device_out);

/* Measured rates of a model, or zeros. */
void moep_device_rates(struct moep_device* device);

#endif /* MOEPLAN_LIB_DEVICE_H_ */
