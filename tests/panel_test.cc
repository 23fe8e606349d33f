// Panels of the host device: the AVX2 version against the portable one, and
// both against a slow model written from docs/numerics.md.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/harness.h"

extern "C" {
#include "kernels/host/panel.h"
#include "kernels/host/step.h"
#include "kernels/scalar.h"
}

namespace {

constexpr int kAnyBits = -1;  // a spread: any finite bf16, subnormals included

// Bytes that end (or, shifted, nearly end) at a page nobody may read.
class Fenced {
 public:
  Fenced(size_t bytes, size_t shift) : bytes_(bytes + shift) {
    mapped_ = (bytes_ + 4095) / 4096 * 4096 + 4096;
    base_ = static_cast<uint8_t*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) abort();
    mprotect(base_ + mapped_ - 4096, 4096, PROT_NONE);
    data_ = base_ + mapped_ - 4096 - bytes_;
  }
  ~Fenced() { munmap(base_, mapped_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  uint8_t* data() { return data_; }

 private:
  size_t bytes_, mapped_;
  uint8_t *base_, *data_;
};

struct Shape {
  bool nvfp4;
  uint32_t n, k, rows;
  uint32_t segment_k = 2048;
  uint32_t pitch = 0;  // bf16, elements; 0: k
  int spread = 2;
  size_t shift = 0;  // of weight addresses, bytes
};

uint16_t RandomBf16(harness_random* random, int spread) {
  if (spread != kAnyBits) return harness_bf16(random, spread);
  const auto bits = static_cast<uint16_t>(harness_next(random));
  return (bits & 0x7F80) == 0x7F80 ? bits & 0x807F : bits;
}

// Random weights of one projection and rows of activations, both orders.
class Problem {
 public:
  Problem(const Shape& shape, uint64_t seed)
      : s(shape),
        weight_(Bytes(shape), shape.shift),
        scale_(shape.nvfp4 ? shape.n * (shape.k / 16) : 1, shape.shift) {
    harness_random random = {seed};
    for (size_t i = 0; i < Bytes(s); i += 2) {
      const auto bits = static_cast<uint16_t>(
          s.nvfp4 ? harness_next(&random) : RandomBf16(&random, s.spread));
      std::memcpy(weight_.data() + i, &bits, std::min<size_t>(2, Bytes(s) - i));
    }
    for (size_t i = 0; s.nvfp4 && i < s.n * (s.k / 16); i++) {
      const bool narrow = s.spread == 2;
      scale_.data()[i] =
          static_cast<uint8_t>(narrow ? 40 + harness_below(&random, 30)
                                      : harness_below(&random, 127));
    }
    natural_.resize(s.rows);
    p_.resize(s.rows);
    for (uint32_t r = 0; r < s.rows; r++) {
      for (uint32_t i = 0; i < s.k; i++) {
        natural_[r].push_back(RandomBf16(&random, s.spread));
      }
    }
    MakeP();
  }

  // After a change of natural rows.
  void MakeP() {
    for (uint32_t r = 0; r < s.rows; r++) {
      p_[r].assign(moep_padded_k(s.k), 0);
      for (uint32_t i = 0; i < s.k; i++) {
        p_[r][moep_p_from_k(i)] = natural_[r][i];
      }
    }
  }

  std::vector<uint16_t>& row(uint32_t r) { return natural_[r]; }
  uint8_t* weight() { return weight_.data(); }
  uint8_t* scale() { return scale_.data(); }

  moep_operand Operand() {
    if (!s.nvfp4) {
      return moep_operand_bf16(reinterpret_cast<uint16_t*>(weight()), s.n, s.k,
                               Pitch(s), s.segment_k);
    }
    const moep_nvfp4 matrix = {weight(), scale(), 1.0f, 0};
    return moep_operand_nvfp4(&matrix, s.n, s.k);
  }

  std::vector<const uint16_t*> Rows(moep_order order) const {
    std::vector<const uint16_t*> rows;
    for (const auto& row : order == moep_order_p ? p_ : natural_) {
      rows.push_back(row.data());
    }
    return rows;
  }

  const Shape s;

 private:
  static uint32_t Pitch(const Shape& s) { return s.pitch == 0 ? s.k : s.pitch; }
  static size_t Bytes(const Shape& s) {
    if (s.nvfp4) return static_cast<size_t>(s.n) * s.k / 2;
    return 2 * (static_cast<size_t>(s.n - 1) * Pitch(s) + s.k);
  }

  Fenced weight_, scale_;
  std::vector<std::vector<uint16_t>> natural_, p_;
};

// ---- docs/numerics.md, slowly --------------------------------------------------

// A total's bits. Uneasy: something infinite, NaN or subnormal on the way; zero:
// a sum was cut or cancelled to +0.
struct Slow {
  uint32_t bits;
  bool uneasy, zero;
};

// Weight (n, k) as the operand is defined: E2M1 x E4M3 x 2^-26, or itself.
uint16_t OperandAt(Problem& p, uint32_t n, uint32_t k) {
  static const double kE2m1[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  uint16_t bits = 0;
  if (!p.s.nvfp4) {
    const size_t pitch = p.s.pitch == 0 ? p.s.k : p.s.pitch;
    std::memcpy(&bits, p.weight() + 2 * (n * pitch + k), 2);
    return bits;
  }
  const uint32_t byte = p.weight()[(static_cast<size_t>(n) * p.s.k + k) / 2];
  const uint32_t code = k % 2 == 0 ? byte % 16 : byte / 16;
  const int scale = p.scale()[static_cast<size_t>(n) * (p.s.k / 16) + k / 16];
  const double e4m3 = scale < 8 ? std::ldexp(scale, -9)
                                : std::ldexp(8 + scale % 8, scale / 8 - 10);
  const auto value =
      static_cast<float>(std::ldexp(kE2m1[code % 8] * e4m3, -26));
  std::memcpy(&bits, reinterpret_cast<const char*>(&value) + 2, 2);
  return static_cast<uint16_t>(bits | (code >= 8 ? 0x8000 : 0));
}

// Block of 128, step s, place i -> k: p = 16 s + i in bits (j1 j0 h c t1 t0 b),
// k in bits (t1 t0 j1 j0 b h c).
uint32_t SlowK(bool nvfp4, uint32_t block, uint32_t step, uint32_t i) {
  const uint32_t p = 16 * step + i;
  if (!nvfp4) return 128 * block + p;
  const uint32_t j = p / 32, h = p / 16 % 2, c = p / 8 % 2, t = p / 2 % 4,
                 b = p % 2;
  return 128 * block + 32 * t + 8 * j + 4 * b + 2 * h + c;
}

Slow SlowTotal(Problem& p, uint32_t n, uint32_t r) {
  const std::vector<uint16_t>& x = p.row(r);
  const uint32_t blocks = (p.s.k + 127) / 128, cut = p.s.segment_k / 128;
  std::vector<float> segments;
  Slow slow = {0, false, false};
  for (uint32_t block = 0; block < blocks; block++) {
    if (block % cut == 0) segments.push_back(0.0f);
    for (uint32_t step = 0; step < 8; step++) {
      uint16_t a[16] = {}, b[16] = {};
      for (uint32_t i = 0; i < 16; i++) {
        const uint32_t k = SlowK(p.s.nvfp4, block, step, i);
        if (k >= p.s.k) continue;
        a[i] = OperandAt(p, n, k);
        b[i] = x[k];
        slow.uneasy |= (a[i] & 0x7F80) == 0x7F80 || (b[i] & 0x7F80) == 0x7F80;
      }
      float& sum = segments.back();
      sum = moep_step(&moep_step_sm90, a, b, sum);
      slow.zero |= moep_float_bits(sum) == 0;
      slow.uneasy |=
          std::fpclassify(sum) != FP_NORMAL && moep_float_bits(sum) != 0;
    }
  }
  float total = segments[0];
  for (size_t i = 1; i < segments.size(); i++) total = total + segments[i];
  slow.bits = std::isnan(total) ? 0x7FFFFFFF : moep_float_bits(total);
  return slow;
}

// ---- comparisons ---------------------------------------------------------------

std::string Name(const Shape& s, uint64_t seed) {
  return std::string(s.nvfp4 ? "nvfp4" : "bf16") + " n " + std::to_string(s.n) +
         ", k " + std::to_string(s.k) + ", rows " + std::to_string(s.rows) +
         ", spread " + std::to_string(s.spread) + ", shift " +
         std::to_string(s.shift) + ", seed " + std::to_string(seed);
}

using Totals = float[MOEP_PANEL_ROWS][MOEP_PANEL_N];

// All panels in both orders: AVX2 = portable where it does not flag, the whole =
// portable always, and p order = natural order. Returns the rows that AVX2 left.
uint32_t ExpectSameBits(Problem& p, const std::string& name) {
  const moep_operand a = p.Operand();
  uint32_t flagged = 0;
  for (uint32_t n0 = 0; n0 < p.s.n; n0 += MOEP_PANEL_N) {
    Totals first = {};
    for (moep_order order : {moep_order_natural, moep_order_p}) {
      if (!p.s.nvfp4 && order == moep_order_p) continue;
      const auto x = p.Rows(order);
      Totals portable = {}, vector = {}, whole = {};
      moep_panel_portable(&a, n0, x.data(), p.s.rows, order, portable);
      const uint32_t left =
          moep_panel_avx2(&a, n0, x.data(), p.s.rows, order, vector);
      moep_panel(&a, n0, x.data(), p.s.rows, order, whole);
      if (order == moep_order_natural) {
        std::memcpy(first, portable, sizeof(first));
      }
      for (uint32_t r = 0; r < p.s.rows; r++) {
        const uint32_t columns = std::min(8u, p.s.n - n0);
        EXPECT_EQ(std::memcmp(portable[r], first[r], 4 * columns), 0) << name;
        EXPECT_EQ(std::memcmp(whole[r], portable[r], 4 * columns), 0) << name;
        if ((left >> r & 1) != 0) continue;
        EXPECT_EQ(std::memcmp(vector[r], portable[r], 4 * columns), 0)
            << name << ", row " << r << " from column " << n0;
      }
      flagged |= left & ((1u << p.s.rows) - 1);
    }
  }
  return flagged;
}

bool HasAvx2() { return __builtin_cpu_supports("avx2"); }

// ---- AVX2 = portable -----------------------------------------------------------

constexpr uint32_t kWidths[] = {16,   32,   48,   112,  128,  144,  1920,
                                2048, 2064, 2176, 4112, 6144, 12288};

TEST(Panel, OrdinaryDataIsNeverLeftToThePortableVersion) {
  uint64_t seed = 1;
  for (bool nvfp4 : {false, true}) {
    for (uint32_t k : kWidths) {
      for (int spread : {2, 12}) {
        const Shape s = {nvfp4, 16, k, k > 4000 ? 2u : 5u, 2048, 0, spread};
        Problem p(s, ++seed);
        const uint32_t flagged = ExpectSameBits(p, Name(s, seed));
        ASSERT_TRUE(flagged == 0 || !HasAvx2()) << Name(s, seed);
      }
    }
  }
}

TEST(Panel, AnyBits) {
  uint64_t seed = 100;
  uint32_t left = 0, taken = 0;
  for (bool nvfp4 : {false, true}) {
    for (uint32_t k : {16u, 48u, 128u, 144u, 272u, 2064u}) {
      for (int i = 0; i < 6; i++) {
        const Shape s = {nvfp4, 8, k, 16, 2048, 0, kAnyBits};
        Problem p(s, ++seed);
        const uint32_t flagged = ExpectSameBits(p, Name(s, seed));
        left += __builtin_popcount(flagged);
        taken += s.rows - __builtin_popcount(flagged);
      }
    }
  }
  if (!HasAvx2()) return;
  EXPECT_GT(left, 100u);
  EXPECT_GT(taken, 50u);
}

TEST(Panel, ColumnsThatDoNotFillAPanel) {
  uint64_t seed = 200;
  for (bool nvfp4 : {false, true}) {
    for (uint32_t n : {1u, 2u, 7u, 9u, 15u, 17u, 65u}) {
      const Shape s = {nvfp4, n, 80, 3};
      Problem p(s, ++seed);
      ExpectSameBits(p, Name(s, seed));
    }
  }
}

TEST(Panel, EveryNumberOfRowsAndEveryAlignment) {
  for (uint32_t i = 0; i < MOEP_PANEL_ROWS; i++) {
    for (bool nvfp4 : {false, true}) {
      const Shape s = {nvfp4, 8, 176, i + 1, 2048, 0, 2, nvfp4 ? i : 2 * i};
      Problem p(s, 300 + i);
      ExpectSameBits(p, Name(s, 300 + i));
    }
  }
}

TEST(Panel, PitchLargerThanK) {
  for (uint32_t pitch : {88u, 128u, 1000u, 65536u}) {
    const Shape s = {false, 16, 80, 3, 2048, pitch};
    Problem p(s, 500 + pitch);
    ExpectSameBits(p, Name(s, 500 + pitch));
  }
}

// Eight rows of the widest pitch that a site accepts span more than 2^31 bytes.
TEST(Panel, PitchesBeyond2GiB) {
  for (uint64_t pitch : {uint64_t{1} << 28, uint64_t{0xFFFFFFF8}}) {
    const size_t bytes = 2 * (7 * pitch + 16);
    void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) GTEST_SKIP() << "no address space";
    auto* weight = static_cast<uint16_t*>(map);
    const std::vector<uint16_t> x(16, 0x3F80);
    for (uint64_t n = 0; n < 8; n++) {
      weight[n * pitch] = static_cast<uint16_t>(0x3F80 + 8 * n);
    }
    const moep_operand a = moep_operand_bf16(weight, 8, 16, pitch, 2048);
    const uint16_t* rows[] = {x.data()};
    Totals totals = {};
    moep_panel(&a, 0, rows, 1, moep_order_natural, totals);
    for (uint32_t n = 0; n < 8; n++) {
      EXPECT_EQ(totals[0][n], 1.0f + 0.0625f * static_cast<float>(n))
          << "pitch " << pitch;
    }
    munmap(map, bytes);
  }
}

// ---- the contract's text --------------------------------------------------------

// Every output by the slow model, and flags exactly where it is uneasy.
void ExpectContract(const Shape& s, uint64_t seed) {
  Problem p(s, seed);
  ExpectSameBits(p, Name(s, seed));
  const moep_operand a = p.Operand();
  const auto x = p.Rows(moep_order_natural);
  for (uint32_t n0 = 0; n0 < s.n; n0 += 8) {
    Totals totals = {}, unused = {};
    moep_panel(&a, n0, x.data(), s.rows, moep_order_natural, totals);
    const uint32_t left =
        moep_panel_avx2(&a, n0, x.data(), s.rows, moep_order_natural, unused);
    for (uint32_t r = 0; r < s.rows; r++) {
      bool must = false, may = false;
      for (uint32_t i = 0; i < 8 && n0 + i < s.n; i++) {
        const Slow slow = SlowTotal(p, n0 + i, r);
        must |= slow.uneasy;
        may |= slow.uneasy || slow.zero;
        ASSERT_EQ(moep_float_bits(totals[r][i]), slow.bits)
            << Name(s, seed) << ": output " << r << ", " << n0 + i;
      }
      const bool flagged = (left >> r & 1) != 0;
      ASSERT_TRUE(!HasAvx2() || (must ? flagged : may || !flagged))
          << Name(s, seed) << ": row " << r << " flagged " << flagged;
    }
  }
}

TEST(PanelContract, StepsSegmentsAndBias) {
  uint64_t seed = 600;
  for (int spread : {2, 12, kAnyBits}) {
    for (uint32_t k : {16u, 208u, 2048u, 2064u, 4240u}) {
      ExpectContract({true, 9, k, 2, 2048, 0, spread}, ++seed);
      ExpectContract({false, 9, k, 2, 2048, k + 24, spread}, ++seed);
      ExpectContract({false, 9, k, 2, 512, 0, spread}, ++seed);
    }
  }
}

TEST(PanelContract, ARowThatIsNotFiniteSpoilsNoOther) {
  for (uint16_t bad : {0x7FC0, 0xFF81, 0x7F80, 0xFF80}) {
    for (bool nvfp4 : {false, true}) {
      const Shape s = {nvfp4, 16, 2192, 6};
      Problem p(s, 700), clean(s, 700);
      for (uint32_t r : {1u, 4u}) p.row(r)[r * 500 + 7] = bad;
      p.MakeP();
      const uint32_t flagged = ExpectSameBits(p, Name(s, 700));
      EXPECT_TRUE(flagged == 0x12 || !HasAvx2()) << flagged;
      const moep_operand a = p.Operand(), b = clean.Operand();
      Totals spoiled = {}, whole = {};
      moep_panel(&a, 8, p.Rows(moep_order_natural).data(), 6,
                 moep_order_natural, spoiled);
      moep_panel(&b, 8, clean.Rows(moep_order_natural).data(), 6,
                 moep_order_natural, whole);
      for (uint32_t r : {0u, 2u, 3u, 5u}) {
        EXPECT_EQ(std::memcmp(spoiled[r], whole[r], sizeof(whole[r])), 0);
      }
      EXPECT_EQ(moep_float_bits(spoiled[4][3]), SlowTotal(p, 11, 4).bits);
    }
  }
}

}  // namespace
