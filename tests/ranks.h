// The ranks of one site: each computes a partial y over its experts and its
// columns of the shared or dense expert, and the caller adds them in float32.
// How far that sum may lie from the whole site's y.

#ifndef MOEPLAN_TESTS_RANKS_H_
#define MOEPLAN_TESTS_RANKS_H_

#include <string>
#include <vector>

#include "tests/harness_cc.h"

namespace moeplan_test {

// Sums of absolute terms, each [rows, H].
struct Terms {
  std::vector<double> routed;  // of slots: |w[j] bf16(mlp(expert j))|
  std::vector<double> ffn;     // of the shared or dense expert: |down h|
};

// The terms of the ffn for one row of x, in double precision with 2 % to spare
// for the contract's roundings of h; appended to `terms`.
void AppendFfnTerms(const moeplan_ffn& ffn, uint32_t hidden, uint32_t width,
                    float limit, const uint16_t* x, std::vector<double>* terms);

// The terms of a whole site's run with accumulators.
Terms TermsOf(const harness& whole, const harness_run& run,
              const harness_result& result);

// Most that two float32 answers, the whole's and the sum of `ranks` partial
// ones, may differ by. With u = 2^-24:
// - each of the at most k fused multiply-adds of a slot rounds a partial sum, at
//   most the sum of the terms: k u on either side;
// - so does adding the shared part, once in the whole and once on each rank, and
//   the n - 1 additions of the ranks: 2 n u;
// - one step of 16 columns drops less than 2^-25 of its largest term from each
//   of 17 terms, and less than 2^-23 of the sum (numerics.md): 10.5 u of the
//   ffn's terms, for width / 16 steps on either side;
// - a segment more is one more addition, on either side.
double RankBound(uint32_t topk, uint32_t ranks, uint32_t width, double routed,
                 double ffn);

// Row-major [rows, H] float32, added in the order of the ranks.
std::vector<float> SumOfRanks(const std::vector<Result>& ranks,
                              size_t elements);

// "" when the sum lies within RankBound of the whole's y everywhere, else where
// it does not.
std::string SumDifference(const harness& whole, const harness_run& run,
                          const harness_result& result,
                          const std::vector<Result>& ranks);

}  // namespace moeplan_test

#endif  // MOEPLAN_TESTS_RANKS_H_
