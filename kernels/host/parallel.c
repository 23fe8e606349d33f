#define _POSIX_C_SOURCE 200809L

#include "kernels/host/parallel.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum {
  MAX_THREADS = 64,
  /* Below this a thread's start costs more than it saves (a step is ~12 ns). */
  STEPS_PER_THREAD = 16384,
};

struct job {
  moep_work_fn work;
  const void* context;
  uint32_t items;
  atomic_uint_least32_t next;
};

static void* run_items(void* argument) {
  struct job* job = argument;
  fenv_t saved;
  feholdexcept(&saved);
  fesetround(FE_TONEAREST);
#if defined(__x86_64__)
  /* Also flush-to-zero and denormals-are-zero, which fenv.h does not name. */
  const unsigned control = _mm_getcsr();
  _mm_setcsr(0x1F80);
#endif
  uint32_t item;
  while ((item = atomic_fetch_add(&job->next, 1)) < job->items) {
    job->work(job->context, item);
  }
#if defined(__x86_64__)
  _mm_setcsr(control);
#endif
  fesetenv(&saved);
  return NULL;
}

static uint32_t thread_count(uint32_t items, uint64_t steps, uint32_t threads) {
  if (threads == 0) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    threads = online > 0 ? (uint32_t)online : 1;
  }
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  if (threads > items) threads = items;
  const uint64_t useful = 1 + steps / STEPS_PER_THREAD;
  return useful < threads ? (uint32_t)useful : threads;
}

void moep_parallel(uint32_t items, uint64_t steps, uint32_t threads,
                   moep_work_fn work, const void* context) {
  struct job job = {.work = work, .context = context, .items = items};
  atomic_init(&job.next, 0);
  const uint32_t wanted = thread_count(items, steps, threads);
  pthread_t helpers[MAX_THREADS];
  uint32_t started = 0;
  while (started + 1 < wanted &&
         pthread_create(&helpers[started], NULL, run_items, &job) == 0) {
    started++;
  }
  run_items(&job);
  for (uint32_t i = 0; i < started; i++) pthread_join(helpers[i], NULL);
}
