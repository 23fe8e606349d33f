// The formula of moeplan.h in double precision: weights dequantised exactly by
// tables of its own, nothing rounded anywhere. What a plan computes lies within
// the contract's roundings of it.

#ifndef MOEPLAN_TESTS_REFERENCE_H_
#define MOEPLAN_TESTS_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "lib/moeplan.h"

namespace moeplan_test {

using Vector = std::vector<double>;

// A bf16 number; any bits.
double Bf16Value(uint16_t bits);
Vector Bf16Values(const uint16_t* bits, size_t count);

// |a - b| / |b| in the 2-norm.
double RelativeL2(const Vector& a, const Vector& b);

// max |a - b| / |b| over elements with |b| above 2^-8 of the largest.
double MaxRelative(const Vector& a, const Vector& b);

// The formula of one site. Borrows the configuration, the site and the weights
// it points to (host memory), and reads them at each call.
class Reference {
 public:
  Reference(const moeplan_config& config, const moeplan_site& site)
      : config_(config), site_(site) {}

  // s[e] and s[e] + bias[e] of one row.
  Vector Scores(const Vector& x) const;
  Vector Keys(const Vector& x) const;

  // The k experts with the largest keys; ties to the lower id.
  std::vector<int32_t> Pick(const Vector& x) const;

  // The weights of these experts: normalised and scaled as configured.
  Vector Weights(const Vector& x, const int32_t* ids) const;

  // One NVFP4 projection [rows, columns] of one expert, times v.
  Vector Project(const moeplan_projection& projection, int32_t expert,
                 uint32_t rows, const Vector& v) const;
  Vector Expert(int32_t expert, const Vector& x) const;
  Vector Shared(const Vector& x) const;  // empty if there is none

  // y with these experts and weights; ids outside and null experts add nothing.
  Vector Y(const Vector& x, const int32_t* ids, const Vector& weights) const;
  Vector Y(const Vector& x, const int32_t* ids) const;
  Vector Dense(const Vector& x) const;

 private:
  Vector Swiglu(const Vector& gate, const Vector& up) const;
  Vector Ffn(const moeplan_ffn& ffn, uint32_t width, const Vector& x) const;

  const moeplan_config& config_;
  const moeplan_site& site_;
};

}  // namespace moeplan_test

#endif  // MOEPLAN_TESTS_REFERENCE_H_
