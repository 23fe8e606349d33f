/* Plan one dense site for 1 and for 8 rows on the host device, replay both, and
 * see that a row's bits do not depend on how many rows run beside it. */

#include <moeplan.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 64, WIDTH = 128, ROWS = 8 };

/* bf16 numbers between -1/8 and 1/8, the same ones each time. */
static void fill(uint16_t* out, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    out[i] = (uint16_t)((seed >> 31 << 15) | (0x3C00 + ((seed >> 16) & 0x1FF)));
  }
}

static enum moeplan_status run(moeplan_planner_t planner, uint32_t rows,
                               struct moeplan_binding* binding) {
  moeplan_plan_t plan = NULL;
  moeplan_graph_t graph = NULL;
  enum moeplan_status status = moeplan_plan_create(planner, rows, NULL, &plan);
  if (status != moeplan_status_success) goto done;
  status = moeplan_graph_create(plan, binding, &graph);
  if (status != moeplan_status_success) goto done;
  status = moeplan_graph_replay(graph, NULL); /* as often as x changes */
done:
  moeplan_graph_destroy(graph);
  moeplan_plan_destroy(plan);
  return status;
}

int main(void) {
  static _Alignas(256) uint16_t gate[WIDTH * HIDDEN], up[WIDTH * HIDDEN];
  static _Alignas(256) uint16_t down[HIDDEN * WIDTH], x[ROWS * HIDDEN];
  static _Alignas(256) uint16_t y1[ROWS * HIDDEN], y8[ROWS * HIDDEN];
  fill(gate, sizeof(gate) / sizeof(*gate), 1);
  fill(up, sizeof(up) / sizeof(*up), 2);
  fill(down, sizeof(down) / sizeof(*down), 3);
  fill(x, sizeof(x) / sizeof(*x), 4);
  struct moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.kind = moeplan_site_dense;
  config.hidden_size = HIDDEN;
  config.dense_local_intermediate = WIDTH;
  config.max_rows = ROWS;
  struct moeplan_site site = MOEPLAN_SITE_INIT;
  site.dense = (struct moeplan_ffn){gate, up, down, 0};
  struct moeplan_binding binding = MOEPLAN_BINDING_INIT;
  moeplan_planner_t planner = NULL;
  void* blob = NULL;
  size_t bytes = 0;

  enum moeplan_status status =
      moeplan_planner_create(&config, "host", NULL, &planner);
  if (status != moeplan_status_success) goto done;
  status = moeplan_site_size(planner, &bytes);
  if (status != moeplan_status_success) goto done;
  blob = aligned_alloc(256, (bytes + 255) / 256 * 256);
  status = moeplan_site_write(planner, &site, blob, bytes);
  if (status != moeplan_status_success) goto done;
  status = moeplan_workspace_size(planner, ROWS, NULL, &bytes);
  if (status != moeplan_status_success) goto done;
  binding.workspace_bytes = bytes;
  binding.workspace = aligned_alloc(256, (bytes + 255) / 256 * 256);
  binding.site = blob;
  binding.x = x;
  binding.y = y1;
  status = run(planner, 1, &binding);
  if (status != moeplan_status_success) goto done;
  binding.y = y8;
  status = run(planner, ROWS, &binding);
done:;
  const bool same = status == moeplan_status_success &&
                    memcmp(y1, y8, HIDDEN * sizeof(y1[0])) == 0;
  printf("%s; row 0 alone and among %d: %s bits\n",
         moeplan_status_string(status), ROWS, same ? "the same" : "other");
  moeplan_planner_destroy(planner);
  free(binding.workspace);
  free(blob);
  return same ? 0 : 1;
}
