// One tensor-core step at the lower end of the range, on the GPU and in the
// host's model: sums that truncate to a zero keep their sign, or not.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/contract_probe.h"
#include "tests/gpu_support.h"

extern "C" {
#include "kernels/host/step.h"
}

namespace {

// bf16 of 2^exponent, or of the subnormal 2^exponent below 2^-126.
uint16_t PowerOfTwo(int exponent, bool negative) {
  const int bits =
      exponent >= -126 ? (exponent + 127) << 7 : 1 << (exponent + 133);
  return static_cast<uint16_t>(bits | (negative ? 0x8000 : 0));
}

moep_probe_step StepFrom(float c) {
  moep_probe_step step = {};
  step.c = c;
  return step;
}

// Product `k` of the step is +-2^exponent, -266 <= exponent <= 0.
void SetProduct(moep_probe_step* step, int k, int exponent, bool negative) {
  const int a = exponent / 2;
  step->a[k] = PowerOfTwo(a, negative);
  step->b[k] = PowerOfTwo(exponent - a, false);
}

// The GPU's bits are those of the model, in every output of every step.
void ExpectModel(std::vector<moep_probe_step> steps) {
  const auto count = static_cast<uint32_t>(steps.size());
  for (moep_probe_order order : {moep_probe_natural, moep_probe_ring}) {
    std::vector<float> d(size_t{count} * 128);
    ASSERT_CUDA(moep_probe_steps(steps.data(), count, order, d.data()));
    uint32_t wrong = 0;
    std::string first;
    for (size_t i = 0; i < d.size(); i++) {
      const moep_probe_step& step = steps[i / 128];
      const float model = moep_step(&moep_step_sm90, step.a, step.b, step.c);
      if (moep_float_bits(d[i]) == moep_float_bits(model)) continue;
      if (wrong++ != 0) continue;
      char text[200];
      std::snprintf(text, sizeof(text),
                    "step %zu (a[0] 0x%04X, b[0] 0x%04X, a[1] 0x%04X, b[1] "
                    "0x%04X, c 0x%08X): GPU 0x%08X, model 0x%08X",
                    i / 128, step.a[0], step.b[0], step.a[1], step.b[1],
                    moep_float_bits(step.c), moep_float_bits(d[i]),
                    moep_float_bits(model));
      first = text;
    }
    EXPECT_EQ(wrong, 0u) << first << ", first of " << wrong << " of "
                         << d.size() << ", order " << order;
  }
}

// A lone product, down to 2^-266, from either zero.
TEST(RoutedStepGpu, OneProductBelowTheLeastFloat) {
  MOEP_NEEDS_SM90();
  std::vector<moep_probe_step> steps;
  for (int exponent = -140; exponent >= -266; exponent--) {
    for (bool negative : {false, true}) {
      for (float c : {0.0f, -0.0f}) {
        steps.push_back(StepFrom(c));
        SetProduct(&steps.back(), 0, exponent, negative);
      }
    }
  }
  ExpectModel(steps);
}

// -2^-160, the case that named this file.
TEST(RoutedStepGpu, ANegativeSumBelowTheLeastFloatIsTheModelsZero) {
  MOEP_NEEDS_SM90();
  moep_probe_step step = StepFrom(0.0f);
  SetProduct(&step, 0, -160, true);
  ExpectModel({step});
}

// Two products that nearly or wholly cancel, the rest below 2^-149.
TEST(RoutedStepGpu, WhatIsLeftOfACancellation) {
  MOEP_NEEDS_SM90();
  std::vector<moep_probe_step> steps;
  for (int large = -100; large >= -165; large -= 5) {
    for (int apart = 0; apart <= 30; apart++) {
      for (bool negative : {false, true}) {
        steps.push_back(StepFrom(0.0f));
        SetProduct(&steps.back(), 0, large, negative);
        SetProduct(&steps.back(), 1, large, !negative);
        SetProduct(&steps.back(), 2, large - apart, negative);
      }
    }
  }
  ExpectModel(steps);
}

// The accumulator takes all but a remainder of either sign away.
TEST(RoutedStepGpu, AccumulatorAgainstAProduct) {
  MOEP_NEEDS_SM90();
  std::vector<moep_probe_step> steps;
  for (uint32_t bits : {1u, 2u, 3u, 0x7FFFFFu, 0x800000u, 0x800001u}) {
    for (int exponent = -120; exponent >= -180; exponent--) {
      for (uint32_t sign : {0u, 0x80000000u}) {
        for (bool negative : {false, true}) {
          steps.push_back(StepFrom(moep_float_from_bits(bits | sign)));
          SetProduct(&steps.back(), 0, exponent, negative);
          SetProduct(&steps.back(), 1, -149, sign == 0);
        }
      }
    }
  }
  ExpectModel(steps);
}

// Sixteen random small products, significands and all.
TEST(RoutedStepGpu, RandomSumsAroundTheLeastFloat) {
  MOEP_NEEDS_SM90();
  std::vector<moep_probe_step> steps;
  uint64_t state = 1;
  const auto next = [&state] { return moep_probe_mix(state++); };
  for (int i = 0; i < 4096; i++) {
    steps.push_back(StepFrom(0.0f));
    const int center = static_cast<int>(next() % 16);
    for (int k = 0; k < 16; k++) {
      const uint64_t bits = next();
      const uint64_t a = 48 + bits % 8, b = 42 + center + (bits >> 8) % 8;
      steps.back().a[k] = static_cast<uint16_t>(a << 7 | (bits >> 16 & 0x807F));
      steps.back().b[k] = static_cast<uint16_t>(b << 7 | (bits >> 32 & 0x807F));
    }
  }
  ExpectModel(steps);
}

}  // namespace
