/* Stage 7: the time of each node by itself. Waits: for measuring, not for
 * serving. */

#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <stdlib.h>
#include <time.h>

#include "lib/binding.h"
#include "lib/check.h"
#include "lib/enqueue.h"

enum { MAX_REPEATS = 1000 };

/* What one measurement holds: samples[node][repeat], and on CUDA an event
 * before each node and one after the last. */
struct measure {
  const struct moeplan_plan* plan;
  const struct moeplan_binding* binding;
  cudaStream_t stream;
  uint32_t repeats;
  double* samples;
  cudaEvent_t* events;
};

static enum moeplan_status launch_node(const struct measure* measure,
                                       uint32_t node) {
  struct moep_call call;
  moep_call_prepare(measure->plan, node, measure->binding, NULL, &call);
  return moep_call_launch(&measure->plan->planner->hooks, &call,
                          measure->stream);
}

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum moeplan_status run_on_host(const struct measure* measure,
                                       uint32_t repeat) {
  for (uint32_t i = 0; i < measure->plan->node_count; i++) {
    const double begin = now_seconds();
    MOEP_TRY(launch_node(measure, i));
    measure->samples[(size_t)i * measure->repeats + repeat] =
        now_seconds() - begin;
  }
  return moeplan_status_success;
}

/* LCOV_EXCL_START: events of a GPU */
static enum moeplan_status run_on_cuda(const struct measure* measure,
                                       uint32_t repeat) {
  const struct moeplan_hooks* hooks = &measure->plan->planner->hooks;
  const uint32_t nodes = measure->plan->node_count;
  MOEP_TRY_CUDA(hooks, cudaEventRecord(measure->events[0], measure->stream));
  for (uint32_t i = 0; i < nodes; i++) {
    MOEP_TRY(launch_node(measure, i));
    MOEP_TRY_CUDA(hooks,
                  cudaEventRecord(measure->events[i + 1], measure->stream));
  }
  MOEP_TRY_CUDA(hooks, cudaEventSynchronize(measure->events[nodes]));
  for (uint32_t i = 0; i < nodes; i++) {
    float milliseconds = 0.0f;
    MOEP_TRY_CUDA(hooks, cudaEventElapsedTime(&milliseconds, measure->events[i],
                                              measure->events[i + 1]));
    measure->samples[(size_t)i * measure->repeats + repeat] =
        1e-3 * (double)milliseconds;
  }
  return moeplan_status_success;
}

static enum moeplan_status create_events(const struct measure* measure) {
  for (uint32_t i = 0; i <= measure->plan->node_count; i++) {
    MOEP_TRY_CUDA(&measure->plan->planner->hooks,
                  cudaEventCreate(&measure->events[i]));
  }
  return moeplan_status_success;
}

static enum moeplan_status check_stream(const struct moeplan_hooks* hooks,
                                        cudaStream_t stream) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  MOEP_TRY_CUDA(hooks, cudaStreamIsCapturing(stream, &status));
  if (status == cudaStreamCaptureStatusNone) return moeplan_status_success;
  return MOEP_REFUSE(hooks, invalid_state,
                     "cannot measure a plan on a stream that is captured");
}
/* LCOV_EXCL_STOP */

static enum moeplan_status run(const struct measure* measure) {
  const struct moeplan_planner* planner = measure->plan->planner;
  const bool host = moep_device_is_host(&planner->device);
  if (!host) {
    MOEP_TRY(check_stream(&planner->hooks, measure->stream));
    MOEP_TRY(create_events(measure));
  }
  for (uint32_t repeat = 0; repeat < measure->repeats; repeat++) {
    MOEP_TRY(host ? run_on_host(measure, repeat)
                  : run_on_cuda(measure, repeat));
  }
  return moeplan_status_success;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y ? 1 : 0;
}

static enum moeplan_status check_arguments(const struct moeplan_plan* plan,
                                           uint32_t repeats, uint32_t capacity,
                                           const double* seconds_out) {
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  if (seconds_out == NULL || capacity < plan->node_count) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot measure %u nodes: seconds_out must not be NULL "
                       "and holds %u",
                       plan->node_count, capacity);
  }
  if (repeats == 0 || repeats > MAX_REPEATS) {
    return MOEP_REFUSE(hooks, invalid_argument,
                       "cannot measure with repeats %u: must be 1 to %d",
                       repeats, MAX_REPEATS);
  }
  if (plan->options.host_dispatch) {
    return MOEP_REFUSE(hooks, invalid_state,
                       "cannot measure a plan with host_dispatch: its nodes "
                       "are launched by expert");
  }
  return moeplan_status_success;
}

enum moeplan_status moeplan_measure_nodes(moeplan_plan_t plan,
                                          const struct moeplan_binding* binding,
                                          cudaStream_t stream, uint32_t repeats,
                                          double* seconds_out,
                                          uint32_t capacity) {
  if (plan == NULL) return moeplan_status_invalid_argument;
  const struct moeplan_hooks* hooks = &plan->planner->hooks;
  MOEP_TRY(check_arguments(plan, repeats, capacity, seconds_out));
  MOEP_TRY(moep_device_check_current(plan->planner));
  struct moeplan_binding checked;
  MOEP_TRY(moep_binding_read(plan, binding, &checked));
  const size_t samples = (size_t)plan->node_count * repeats;
  const size_t events = (size_t)plan->node_count + 1;
  double* memory = moep_allocate(
      hooks, samples * sizeof(double) + events * sizeof(cudaEvent_t));
  if (memory == NULL) return moeplan_status_out_of_memory;
  const struct measure measure = {
      .plan = plan,
      .binding = &checked,
      .stream = stream,
      .repeats = repeats,
      .samples = memory,
      .events = (cudaEvent_t*)(memory + samples),
  };
  for (size_t i = 0; i < events; i++) measure.events[i] = NULL;
  const enum moeplan_status status = run(&measure);
  for (uint32_t i = 0; status == moeplan_status_success && i < plan->node_count;
       i++) {
    double* own = measure.samples + (size_t)i * repeats;
    qsort(own, repeats, sizeof(*own), ascending);
    seconds_out[i] = own[repeats / 2];
  }
  for (size_t i = 0; i < events; i++) {
    if (measure.events[i] != NULL) cudaEventDestroy(measure.events[i]);
  }
  moep_release(hooks, memory);
  return status;
}
