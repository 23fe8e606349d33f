#define _GNU_SOURCE

#include "tools/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A terminal that takes nothing is no reason to fail a load. */
static void put(const struct tool_progress* progress, const char* text) {
  const ssize_t ignored = write(progress->descriptor, text, strlen(text));
  (void)ignored;
}

void tool_progress_open(struct tool_progress* progress, int descriptor,
                        uint32_t delay_ms) {
  *progress = (struct tool_progress){
      .descriptor = isatty(descriptor) == 1 ? descriptor : -1,
      .next = now_seconds() + 1e-3 * delay_ms};
}

static void draw(struct tool_progress* progress) {
  if (progress == NULL || progress->descriptor < 0) return;
  const double now = now_seconds();
  if (now < progress->next) return;
  char line[128];
  snprintf(line, sizeof(line), "\rloading: site %zu of %zu, %.2f GiB checked",
           progress->site, progress->num_sites,
           (double)progress->bytes / (1 << 30));
  put(progress, line);
  progress->drawn = 1;
  progress->next = now + 1e-3 * TOOL_PROGRESS_STEP_MS;
}

void tool_progress_site(struct tool_progress* progress, size_t site,
                        size_t num_sites) {
  if (progress == NULL) return;
  progress->site = site;
  progress->num_sites = num_sites;
  draw(progress);
}

void tool_progress_add(struct tool_progress* progress, uint64_t bytes) {
  if (progress == NULL) return;
  progress->bytes += bytes;
  draw(progress);
}

void tool_progress_close(struct tool_progress* progress) {
  if (progress->drawn) put(progress, "\r\033[K");
  progress->drawn = 0;
  progress->descriptor = -1;
}
