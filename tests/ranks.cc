#include "tests/ranks.h"

#include <cmath>
#include <cstring>

#include "tests/reference.h"

extern "C" {
#include "kernels/scalar.h"
}

namespace moeplan_test {

void AppendFfnTerms(const moeplan_ffn& ffn, uint32_t hidden, uint32_t width,
                    float limit, const uint16_t* x,
                    std::vector<double>* terms) {
  const size_t pitch = ffn.down_pitch == 0 ? width : ffn.down_pitch;
  const auto* gate = static_cast<const uint16_t*>(ffn.gate);
  const auto* up = static_cast<const uint16_t*>(ffn.up);
  const auto* down = static_cast<const uint16_t*>(ffn.down);
  const Vector values = Bf16Values(x, hidden);
  Vector h(width);
  for (size_t i = 0; i < width; i++) {
    double g = 0, u = 0;
    for (size_t k = 0; k < hidden; k++) {
      g += Bf16Value(gate[i * hidden + k]) * values[k];
      u += Bf16Value(up[i * hidden + k]) * values[k];
    }
    g = std::fmin(g, limit);
    u = std::fmax(std::fmin(u, limit), -limit);
    h[i] = std::fabs(g / (1 + std::exp(-g)) * u);
  }
  for (size_t c = 0; c < hidden; c++) {
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
      sum += std::fabs(Bf16Value(down[c * pitch + i])) * h[i];
    }
    terms->push_back(1.02 * sum);
  }
}

Terms TermsOf(const harness& whole, const harness_run& run,
              const harness_result& result) {
  const moeplan_config& c = whole.config;
  const bool dense = c.kind == moeplan_site_dense;
  const size_t hidden = c.hidden_size;
  const size_t topk = dense ? 0 : c.num_experts_per_tok;
  const uint32_t width =
      dense ? c.dense_local_intermediate : c.shared_local_intermediate;
  Terms terms;
  for (size_t r = 0; r < run.rows; r++) {
    for (size_t column = 0; column < hidden; column++) {
      double sum = 0;
      for (size_t j = r * topk; j < (r + 1) * topk; j++) {
        const auto id = static_cast<size_t>(result.ids[j]);
        const float scale =
            moep_epilogue_scale(whole.site.down.weight_scale_2[id]);
        const float out = moep_bf16_round(
            result.tap.expert_down[j * hidden + column] * scale);
        sum += std::fabs(double{result.weights[j]} * out);
      }
      terms.routed.push_back(sum);
    }
    AppendFfnTerms(dense ? whole.site.dense : whole.site.shared, c.hidden_size,
                   width, c.swiglu_limit,
                   whole.x + (run.first_row + r) * hidden, &terms.ffn);
  }
  return terms;
}

double RankBound(uint32_t topk, uint32_t ranks, uint32_t width, double routed,
                 double ffn) {
  const double segments = std::ceil(width / 2048.0);
  const double sums = 2.0 * topk + 2.0 * ranks;
  const double chain = 10.5 * width / 16 + segments;
  // What bounds a partial sum is itself rounded: one part in a thousand.
  return 0x1p-24 * 1.001 * (sums * (routed + ffn) + 2 * chain * ffn);
}

std::vector<float> SumOfRanks(const std::vector<Result>& ranks,
                              size_t elements) {
  std::vector<float> sum(elements, 0.0f), part(elements);
  for (const Result& rank : ranks) {
    std::memcpy(part.data(), rank->y, elements * sizeof(float));
    for (size_t i = 0; i < elements; i++) sum[i] += part[i];
  }
  return sum;
}

std::string SumDifference(const harness& whole, const harness_run& run,
                          const harness_result& result,
                          const std::vector<Result>& ranks) {
  const moeplan_config& c = whole.config;
  const bool dense = c.kind == moeplan_site_dense;
  const size_t elements = size_t{run.rows} * c.hidden_size;
  const Terms terms = TermsOf(whole, run, result);
  const std::vector<float> sum = SumOfRanks(ranks, elements);
  std::vector<float> y(elements);
  std::memcpy(y.data(), result.y, elements * sizeof(float));
  for (size_t i = 0; i < elements; i++) {
    const double bound = RankBound(
        dense ? 0 : c.num_experts_per_tok, static_cast<uint32_t>(ranks.size()),
        dense ? c.dense_local_intermediate : c.shared_local_intermediate,
        terms.routed[i], terms.ffn[i]);
    const double difference = std::fabs(double{sum[i]} - y[i]);
    if (difference <= bound) continue;
    return "row " + std::to_string(i / c.hidden_size) + ", column " +
           std::to_string(i % c.hidden_size) + ": " + std::to_string(sum[i]) +
           " is " + std::to_string(difference / bound) + " bounds from " +
           std::to_string(y[i]);
  }
  return "";
}

}  // namespace moeplan_test
