#include "tests/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moeplan_test {
namespace {

// E2M1: sign, two exponent bits with bias 1, one mantissa bit.
constexpr double kE2m1[16] = {0.0, 0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

// E4M3 without its sign: exponent bias 7, no infinities, code 127 is NaN.
double E4m3Value(uint32_t code) {
  if (code == 127) return std::nan("");
  const int exponent = static_cast<int>(code >> 3);
  const int mantissa = static_cast<int>(code & 7);
  return exponent == 0 ? std::ldexp(mantissa, -9)
                       : std::ldexp(8 + mantissa, exponent - 10);
}

const Vector& E4m3Table() {
  static const Vector table = [] {
    Vector values(128);
    for (uint32_t code = 0; code < 128; code++) values[code] = E4m3Value(code);
    return values;
  }();
  return table;
}

const Vector& Bf16Table() {
  static const Vector table = [] {
    Vector values(65536);
    for (uint32_t bits = 0; bits < 65536; bits++) {
      const int exponent = static_cast<int>(bits >> 7 & 255);
      const int mantissa = static_cast<int>(bits & 127);
      double value = exponent == 0 ? std::ldexp(mantissa, -133)
                                   : std::ldexp(128 + mantissa, exponent - 134);
      if (exponent == 255) {
        value = mantissa == 0 ? HUGE_VAL : std::nan("");
      }
      values[bits] = (bits & 0x8000) != 0 ? -value : value;
    }
    return values;
  }();
  return table;
}

// matrix [rows, columns] bf16, rows `pitch` apart, times v.
Vector ProjectBf16(const void* matrix, uint32_t rows, size_t pitch,
                   const Vector& v) {
  const Vector& table = Bf16Table();
  const auto* weights = static_cast<const uint16_t*>(matrix);
  Vector out(rows);
  for (uint32_t n = 0; n < rows; n++) {
    const uint16_t* row = weights + n * pitch;
    double sum = 0.0;
    for (size_t k = 0; k < v.size(); k++) sum += table[row[k]] * v[k];
    out[n] = sum;
  }
  return out;
}

}  // namespace

double Bf16Value(uint16_t bits) { return Bf16Table()[bits]; }

Vector Bf16Values(const uint16_t* bits, size_t count) {
  Vector values(count);
  for (size_t i = 0; i < count; i++) values[i] = Bf16Value(bits[i]);
  return values;
}

double RelativeL2(const Vector& a, const Vector& b) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < b.size(); i++) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

double MaxRelative(const Vector& a, const Vector& b) {
  double largest = 0.0, worst = 0.0;
  for (double value : b) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < b.size(); i++) {
    if (std::fabs(b[i]) <= 0x1p-8 * largest) continue;
    worst = std::max(worst, std::fabs(a[i] - b[i]) / std::fabs(b[i]));
  }
  return worst;
}

Vector Reference::Scores(const Vector& x) const {
  Vector s = ProjectBf16(site_.router, config_.n_routed_experts, x.size(), x);
  if (config_.scoring == moeplan_scoring_sigmoid) {
    for (double& value : s) value = 1.0 / (1.0 + std::exp(-value));
    return s;
  }
  const double maximum = *std::max_element(s.begin(), s.end());
  double sum = 0.0;
  for (double& value : s) sum += value = std::exp(value - maximum);
  for (double& value : s) value /= sum;
  return s;
}

Vector Reference::Keys(const Vector& x) const {
  Vector keys = Scores(x);
  if (site_.router_bias == nullptr) return keys;
  for (size_t e = 0; e < keys.size(); e++) {
    keys[e] += static_cast<double>(site_.router_bias[e]);
  }
  return keys;
}

std::vector<int32_t> Reference::Pick(const Vector& x) const {
  const Vector keys = Keys(x);
  std::vector<int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)];
  });
  order.resize(config_.num_experts_per_tok);
  return order;
}

Vector Reference::Weights(const Vector& x, const int32_t* ids) const {
  const Vector s = Scores(x);
  Vector weights(config_.num_experts_per_tok);
  double sum = 1e-20;
  for (size_t j = 0; j < weights.size(); j++) {
    weights[j] = s[static_cast<size_t>(ids[j])];
    sum += weights[j];
  }
  for (double& weight : weights) {
    if (config_.norm_topk_prob) weight /= sum;
    weight *= static_cast<double>(config_.routed_scaling_factor);
  }
  return weights;
}

Vector Reference::Project(const moeplan_projection& projection, int32_t expert,
                          uint32_t rows, const Vector& v) const {
  const Vector& e4m3 = E4m3Table();
  const size_t columns = v.size();
  const auto* weight = static_cast<const uint8_t*>(projection.weight[expert]);
  const auto* scale =
      static_cast<const uint8_t*>(projection.weight_scale[expert]);
  Vector out(rows);
  for (size_t n = 0; n < rows; n++) {
    double total = 0.0;
    for (size_t group = 0; group < columns / 16; group++) {
      const uint8_t* bytes = weight + (n * columns + 16 * group) / 2;
      double sum = 0.0;
      for (size_t i = 0; i < 8; i++) {
        sum += kE2m1[bytes[i] & 15] * v[16 * group + 2 * i];
        sum += kE2m1[bytes[i] >> 4] * v[16 * group + 2 * i + 1];
      }
      total += sum * e4m3[scale[n * (columns / 16) + group]];
    }
    out[n] = total * static_cast<double>(projection.weight_scale_2[expert]);
  }
  return out;
}

Vector Reference::Swiglu(const Vector& gate, const Vector& up) const {
  const auto limit = static_cast<double>(config_.swiglu_limit);
  Vector h(gate.size());
  for (size_t i = 0; i < h.size(); i++) {
    const double g = std::min(gate[i], limit);
    const double u = std::max(std::min(up[i], limit), -limit);
    h[i] = g / (1.0 + std::exp(-g)) * u;
  }
  return h;
}

Vector Reference::Expert(int32_t expert, const Vector& x) const {
  const uint32_t inter = config_.moe_intermediate_size;
  return Project(site_.down, expert, config_.hidden_size,
                 Swiglu(Project(site_.gate, expert, inter, x),
                        Project(site_.up, expert, inter, x)));
}

Vector Reference::Ffn(const moeplan_ffn& ffn, uint32_t width,
                      const Vector& x) const {
  const size_t pitch = ffn.down_pitch == 0 ? width : ffn.down_pitch;
  return ProjectBf16(ffn.down, config_.hidden_size, pitch,
                     Swiglu(ProjectBf16(ffn.gate, width, x.size(), x),
                            ProjectBf16(ffn.up, width, x.size(), x)));
}

Vector Reference::Shared(const Vector& x) const {
  if (config_.shared_local_intermediate == 0) return {};
  return Ffn(site_.shared, config_.shared_local_intermediate, x);
}

Vector Reference::Dense(const Vector& x) const {
  return Ffn(site_.dense, config_.dense_local_intermediate, x);
}

Vector Reference::Y(const Vector& x, const int32_t* ids,
                    const Vector& weights) const {
  Vector y = Shared(x);
  y.resize(config_.hidden_size, 0.0);
  for (size_t j = 0; j < config_.num_experts_per_tok; j++) {
    const int32_t id = ids[j];
    if (id < 0 || id >= static_cast<int32_t>(config_.n_routed_experts) ||
        site_.gate.weight[id] == nullptr) {
      continue;
    }
    const Vector out = Expert(id, x);
    for (size_t n = 0; n < y.size(); n++) y[n] += weights[j] * out[n];
  }
  return y;
}

Vector Reference::Y(const Vector& x, const int32_t* ids) const {
  return Y(x, ids, Weights(x, ids));
}

}  // namespace moeplan_test
