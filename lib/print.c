/* Stage 5: a plan and its workspace as text, stable across runs. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/options.h"
#include "lib/plan.h"

enum { MAX_LINE_BYTES = 256 };

/* Where lines go; the first refusal of the sink ends the printing. */
struct sink {
  moeplan_write_fn write;
  void* context;
  bool stopped;
};

__attribute__((format(printf, 2, 3))) static void print_line(struct sink* sink,
                                                             const char* format,
                                                             ...) {
  if (sink->stopped) return;
  char line[MAX_LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  const size_t bytes =
      (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1;
  sink->stopped = sink->write(sink->context, line, bytes) != 0;
}

static void print_places(struct sink* sink, const char* label,
                         uint32_t places) {
  static const char* const names[] = {
#define PLACE_NAME(name, type, outer, inner) #name,
      MOEP_BUFFER_MAP(PLACE_NAME)
#undef PLACE_NAME
          "x",
      "y",
  };
  print_line(sink, " %s", label);
  const char* separator = " ";
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
    if ((places >> i & 1) == 0) continue;
    print_line(sink, "%s%s", separator, names[i]);
    separator = ",";
  }
}

static void print_floor(struct sink* sink, double seconds) {
  if (seconds == 0.0) {
    print_line(sink, " %9s", "-");
  } else {
    print_line(sink, " %9.2f", seconds * 1e6);
  }
}

static void print_node(struct sink* sink, const struct moeplan_plan* plan,
                       uint32_t index) {
  const struct moep_node* node = &plan->nodes[index];
  char grid[32], rows[32];
  if (node->matmul != MOEP_MATMUL_COUNT) {
    snprintf(grid, sizeof(grid), "-");
  } else {
    snprintf(grid, sizeof(grid), "%ux%u", node->launch.grid[0],
             node->launch.grid[1]);
  }
  snprintf(rows, sizeof(rows), "%u+%u", node->row_begin, node->row_count);
  print_line(sink, "%4u %-30s %-9s %-4s %-11s %12" PRIu64 " %14" PRIu64, index,
             node->kernel->name, rows, plan->tile->name, grid, node->bytes,
             node->flop);
  print_floor(sink, moep_node_floor(&plan->planner->device, node));
  print_line(sink, " %s", node->launch.pdl != 0 ? "pdl" : "-  ");
  print_places(sink, "reads", node->step->reads);
  print_places(sink, "writes", node->step->writes);
  print_line(sink, "\n");
}

static void print_matmuls(struct sink* sink, const struct moeplan_plan* plan) {
  static const char* const names[MOEP_MATMUL_COUNT] = {"logits", "gate, up",
                                                       "down"};
  for (size_t i = 0; i < MOEP_MATMUL_COUNT; i++) {
    const struct moep_matmul* matmul = &plan->matmuls[i];
    char text[MOEP_MATMUL_TEXT_BYTES];
    if (matmul->rows == 0) continue;
    moep_matmul_text(plan->planner, matmul, text);
    print_line(sink, "matmul %s: rows %u n %u k %u bf16 to %s, %s\n", names[i],
               matmul->rows, matmul->n, matmul->k,
               matmul->out_f32 ? "f32" : "bf16", text);
  }
}

static enum moeplan_status sink_open(moeplan_plan_t plan,
                                     moeplan_write_fn write, void* context,
                                     struct sink* sink_out) {
  if (plan == NULL) return moeplan_status_invalid_argument;
  if (write == NULL) {
    return MOEP_REFUSE(&plan->planner->hooks, invalid_argument,
                       "cannot print a plan: write must not be NULL");
  }
  *sink_out = (struct sink){.write = write, .context = context};
  return moeplan_status_success;
}

static enum moeplan_status sink_close(const struct moeplan_plan* plan,
                                      const struct sink* sink) {
  if (!sink->stopped) return moeplan_status_success;
  return MOEP_REFUSE(&plan->planner->hooks, invalid_state,
                     "cannot print a plan: the writer stopped it");
}

enum moeplan_status moeplan_plan_print(moeplan_plan_t plan,
                                       moeplan_write_fn write, void* context) {
  struct sink sink;
  MOEP_TRY(sink_open(plan, write, context, &sink));
  print_line(&sink,
             "plan rows %u recipe %s groups %u tile %s nodes %u device %s "
             "workspace %zu\n",
             plan->rows, plan->recipe->name, plan->parts, plan->tile->name,
             plan->node_count, plan->planner->device.name,
             plan->layout.total_bytes);
  struct moep_lever lever;
  for (uint32_t i = 0; moep_lever_at(&plan->options, i, &lever); i++) {
    print_line(&sink, "lever %s\n", lever.text);
  }
  print_line(&sink, "%4s %-30s %-9s %-4s %-11s %12s %14s %9s %s\n", "node",
             "kernel", "rows", "tile", "grid", "bytes", "flop", "floor_us",
             "pdl");
  for (uint32_t i = 0; i < plan->node_count; i++) print_node(&sink, plan, i);
  print_matmuls(&sink, plan);
  return sink_close(plan, &sink);
}

enum moeplan_status moeplan_workspace_print(moeplan_plan_t plan,
                                            moeplan_write_fn write,
                                            void* context) {
  struct sink sink;
  MOEP_TRY(sink_open(plan, write, context, &sink));
  print_line(&sink, "workspace rows %u bytes %zu\n", plan->rows,
             plan->layout.total_bytes);
  print_line(&sink, "%-15s %-4s %-15s %12s %12s\n", "buffer", "type", "shape",
             "offset", "bytes");
  for (int i = 0; i < MOEP_BUFFER_COUNT; i++) {
    const struct moep_extent* extent = &plan->layout.buffers[i];
    if (extent->bytes == 0) continue;
    char shape[48];
    snprintf(shape, sizeof(shape), "%" PRIu64 "x%" PRIu64, extent->shape[0],
             extent->shape[1]);
    print_line(&sink, "%-15s %-4s %-15s %12zu %12zu\n", extent->name,
               extent->type, shape, extent->offset, extent->bytes);
  }
  return sink_close(plan, &sink);
}
