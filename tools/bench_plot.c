/* Time and floor over the row counts, as SVG. Row counts stand side by side; the
 * bar of a time goes from its 10th to its 90th percentile. */

#define _GNU_SOURCE

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench_report.h"

enum {
  WIDTH = 720,
  HEIGHT = 440,
  LEFT = 70,
  RIGHT = 700,
  TOP = 60,
  BOTTOM = 390,
};

struct drawing {
  const struct tool_bench_report* report;
  FILE* out;
  double top_us; /* at TOP */
  double step_us;
};

static double x_of(const struct drawing* drawing, size_t i) {
  const double pitch =
      (double)(RIGHT - LEFT) / (double)drawing->report->num_results;
  return LEFT + pitch * ((double)i + 0.5);
}

static double y_of(const struct drawing* drawing, double seconds) {
  return BOTTOM - (BOTTOM - TOP) * seconds * 1e6 / drawing->top_us;
}

/* Steps of 1, 2 or 5 times a power of ten, at most eight of them. */
static void scale_axis(struct drawing* drawing) {
  double most = 1e-3;
  for (size_t i = 0; i < drawing->report->num_results; i++) {
    const struct tool_bench_result* result = &drawing->report->results[i];
    most = fmax(most, 1e6 * fmax(result->time.p90, result->floor_seconds));
  }
  static const double factors[] = {1.0, 2.0, 5.0, 10.0};
  const double power = pow(10.0, floor(log10(most / 8.0)));
  size_t i = 0;
  while (i < 3 && factors[i] * power * 8.0 < most) i++;
  drawing->step_us = factors[i] * power;
  drawing->top_us = ceil(most / drawing->step_us) * drawing->step_us;
}

static void draw_axes(const struct drawing* drawing) {
  const struct tool_bench_report* report = drawing->report;
  FILE* out = drawing->out;
  const int lines = (int)round(drawing->top_us / drawing->step_us);
  for (int line = 0; line <= lines; line++) {
    const double us = line * drawing->step_us;
    const double y = y_of(drawing, us * 1e-6);
    fprintf(out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" "
            "stroke=\"#ddd\"/>\n<text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%g</text>\n",
            LEFT, y, RIGHT, y, LEFT - 6, y + 4.0, us);
  }
  for (size_t i = 0; i < report->num_results; i++) {
    fprintf(out,
            "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%" PRIu32
            "</text>\n",
            x_of(drawing, i), BOTTOM + 18, report->results[i].info.rows);
  }
  fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">rows</text>\n",
          (LEFT + RIGHT) / 2, BOTTOM + 38);
  fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">us</text>\n",
          LEFT - 6, TOP - 14);
}

static double time_of(const struct tool_bench_result* result) {
  return result->time.median;
}

static double floor_of(const struct tool_bench_result* result) {
  return result->floor_seconds;
}

static void draw_line(const struct drawing* drawing, const char* color,
                      double (*seconds_of)(const struct tool_bench_result*)) {
  const struct tool_bench_report* report = drawing->report;
  FILE* out = drawing->out;
  fprintf(out,
          "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
          color);
  for (size_t i = 0; i < report->num_results; i++) {
    fprintf(out, "%.1f,%.1f ", x_of(drawing, i),
            y_of(drawing, seconds_of(&report->results[i])));
  }
  fputs("\"/>\n", out);
  for (size_t i = 0; i < report->num_results; i++) {
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
            x_of(drawing, i), y_of(drawing, seconds_of(&report->results[i])),
            color);
  }
}

static void draw_spreads(const struct drawing* drawing) {
  const struct tool_bench_report* report = drawing->report;
  FILE* out = drawing->out;
  for (size_t i = 0; i < report->num_results; i++) {
    const struct tool_bench_result* result = &report->results[i];
    const double x = x_of(drawing, i);
    const double top = y_of(drawing, result->time.p90);
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
            "stroke=\"#1f5fa8\" stroke-width=\"8\" opacity=\"0.3\"/>\n",
            x, y_of(drawing, result->time.p10), x, top);
    fprintf(out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.1f us, "
            "%.2f x floor</text>\n",
            x, top - 10.0, result->time.median * 1e6,
            result->time.median / result->floor_seconds);
  }
}

static void draw(const struct drawing* drawing) {
  const struct tool_bench_run* run = drawing->report->run;
  const struct tool_machine* machine = run->machine;
  const struct moeplan_config* config = run->config;
  const bool dense = config->kind == moeplan_site_dense;
  FILE* out = drawing->out;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" font-size=\"12\">\n"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
          WIDTH, HEIGHT);
  fprintf(
      out,
      "<text x=\"%d\" y=\"20\" font-size=\"14\">hidden %" PRIu32
      ", width %" PRIu32,
      LEFT, config->hidden_size,
      dense ? config->dense_local_intermediate : config->moe_intermediate_size);
  if (!dense) {
    fprintf(out,
            ", %" PRIu32 " experts, top-%" PRIu32 ", shared %" PRIu32
            ", routing %s",
            config->n_routed_experts, config->num_experts_per_tok,
            config->shared_local_intermediate,
            tool_routing_names[run->args->bench.routing]);
  }
  fprintf(out, "</text>\n<text x=\"%d\" y=\"36\" fill=\"#555\">%s, %s: ", LEFT,
          machine->gpu[0] == '\0' ? run->args->device : machine->gpu,
          machine->date);
  fprintf(out,
          "<tspan fill=\"#1f5fa8\">time of a replay</tspan>, <tspan "
          "fill=\"#c0392b\">floor at %.4g GB/s</tspan></text>\n",
          machine->bytes_per_second * 1e-9);
  draw_axes(drawing);
  draw_line(drawing, "#c0392b", floor_of);
  draw_line(drawing, "#1f5fa8", time_of);
  draw_spreads(drawing);
  fputs("</svg>\n", out);
}

enum tool_status tool_bench_plot(const struct tool_bench_report* report,
                                 struct tool_error* error) {
  const char* path = report->run->args->bench.plot;
  struct drawing drawing = {.report = report, .out = fopen(path, "w")};
  if (drawing.out == NULL) {
    return tool_fail(error, "cannot write --plot %s: %s", path,
                     strerror(errno));
  }
  scale_axis(&drawing);
  draw(&drawing);
  const bool written = ferror(drawing.out) == 0;
  if (fclose(drawing.out) == 0 && written) return tool_ok;
  return tool_fail(error, "cannot write --plot %s: %s", path, strerror(errno));
}
