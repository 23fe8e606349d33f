// permute_x, grouped_up, grouped_down and combine of sm_90, one after another as the
// prefill recipe has them, give the host kernels' accumulators, h, slots and y.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/tile_order.h"
#include "tests/emulation/site.h"

namespace {

using emulation::Buffer;
using emulation::Experts;
using emulation::Launch;
using emulation::RandomRows;

// kAroundTile: experts of 1 token, and of about a half tile and a tile.
enum class Skew { kEven, kFewExperts, kUnfilled, kNothing, kAroundTile };

struct Case {
  uint32_t hidden, inter, experts, topk, rows, tile, blocks;
  Skew skew;
  // y as float32 with the shared expert's, rows further apart.
  bool shared = false;
};

// Everything that the four nodes read, and what the host and the emulated kernels
// write.
class Prefill {
 public:
  explicit Prefill(const Case& c)
      : c_(c),
        slots_(c.rows * c.topk),
        experts_(c.hidden, c.inter, c.experts, random_),
        stride_(c.hidden + (c.shared ? 24 : 0)),
        x_(RandomRows(c.rows, stride_, random_)),
        ffn_out_(c.rows * c.hidden),
        ids_(slots_),
        perm_(slots_),
        sorted_(slots_),
        offsets_(c.experts + 1, 0),
        route_(slots_) {
    live_ = c.skew == Skew::kNothing
                ? 0
                : static_cast<int32_t>(c.rows - c.rows / 8);
    for (size_t i = 0; i < ffn_out_.size(); i++) {
      ffn_out_[i] = static_cast<float>(random_() % 1000) / 256 - 2;
    }
    Route();
    Sort();
  }

  struct Outputs {
    Buffer<uint16_t> xp, h, slot_out, y;
    Buffer<float> up, down;
  };
  Outputs MakeOutputs() const {
    const size_t h = moep_padded_k(c_.hidden), i = moep_padded_k(c_.inter);
    return {Buffer<uint16_t>(c_.rows * h),
            Buffer<uint16_t>(slots_ * i),
            Buffer<uint16_t>(slots_ * h),
            Buffer<uint16_t>(c_.rows * stride_ * 2),
            Buffer<float>(slots_ * 2 * c_.inter),
            Buffer<float>(slots_ * c_.hidden)};
  }

  void Run(const Outputs& out, bool emulated) {
    const moep_launch launch = {
        {emulated ? c_.blocks : 1, 1}, 2, 0, emulation::kSharedBytes};
    moep_args args;
    args.permute_x = PermuteArgs(out);
    Launch(emulated ? moep_permute_x_bf16_sm90 : moep_permute_x_bf16_host, args,
           launch);
    args.grouped_up = GroupedArgs(out);
    Launch(emulated ? moep_grouped_up_nvfp4_sm90 : moep_grouped_up_nvfp4_host,
           args, launch);
    args.grouped_down = GroupedArgs(out);
    Launch(
        emulated ? moep_grouped_down_nvfp4_sm90 : moep_grouped_down_nvfp4_host,
        args, launch);
    args.combine = CombineArgs(out);
    Launch(emulated ? moep_combine_bf16_smxx : moep_combine_bf16_host, args,
           launch);
  }

  // h of the host in p order, of the device in tile order.
  size_t DifferentH(const Outputs& host, const Outputs& device) const {
    const uint32_t width = moep_padded_k(c_.inter);
    size_t different = 0;
    for (uint32_t e = 0; e < c_.experts; e++) {
      if (table()->experts[e].gate.weight == nullptr) continue;
      for (uint32_t at = offsets_[e]; at < offsets_[e + 1]; at++) {
        for (uint32_t p = 0; p < width; p++) {
          different +=
              host.h[size_t{at} * width + p] !=
              device.h[moep_tile_place(slots_, at, at - offsets_[e], p)];
        }
      }
    }
    return different;
  }

 private:
  const moep_site_table* table() const { return experts_.table(); }

  void Route() {
    for (uint32_t s = 0; s < slots_; s++) {
      const uint32_t row = s / c_.topk, j = s % c_.topk;
      const bool filled = row < static_cast<uint32_t>(live_) &&
                          (c_.skew != Skew::kUnfilled || random_() % 5 != 0);
      const uint32_t expert = c_.skew == Skew::kAroundTile ? AroundTile(row)
                              : c_.skew == Skew::kFewExperts
                                  ? j
                                  : (row * 7 + j * 3) % c_.experts;
      ids_[s] = filled ? static_cast<int32_t>(expert) : -1;
      route_[s] = static_cast<float>(random_() % 100) / 64;
    }
  }

  // Expert 2 is absent.
  uint32_t AroundTile(uint32_t row) const {
    const uint32_t tokens[] = {1,           c_.tile / 2 + 1, 0,
                               c_.tile - 1, c_.tile,         c_.tile + 1};
    uint32_t expert = 0;
    for (uint32_t before = tokens[0]; expert < 5 && before <= row;) {
      before += tokens[++expert];
    }
    return expert;
  }

  void Sort() {
    for (uint32_t s = 0; s < slots_; s++) {
      if (ids_[s] >= 0) offsets_[static_cast<size_t>(ids_[s]) + 1]++;
    }
    for (uint32_t e = 0; e < c_.experts; e++) offsets_[e + 1] += offsets_[e];
    std::vector<uint32_t> next(offsets_.get(), offsets_.get() + c_.experts);
    for (uint32_t s = 0; s < slots_; s++) {
      perm_[s] = -1;
      if (ids_[s] < 0) continue;
      const uint32_t at = next[static_cast<size_t>(ids_[s])]++;
      perm_[s] = static_cast<int32_t>(at);
      sorted_[at] = static_cast<int32_t>(s);
    }
  }

  moep_rows Rows() const { return {0, c_.rows, c_.rows, &live_}; }

  moep_permute_x_args PermuteArgs(const Outputs& out) const {
    moep_permute_x_args args = {};
    args.rows = Rows();
    args.x = {x_.get(), stride_};
    args.site = table();
    args.ids = ids_.get();
    args.expert_offsets = offsets_.get();
    args.token_to_perm = perm_.get();
    args.xp = out.xp.get();
    args.slot_x = out.slot_out.get();
    args.hidden = c_.hidden;
    args.slots = slots_;
    args.topk = c_.topk;
    return args;
  }

  moep_grouped_args GroupedArgs(const Outputs& out) const {
    moep_grouped_args args = {};
    args.site = table();
    args.expert_offsets = offsets_.get();
    args.sorted_slots = sorted_.get();
    args.xp = out.xp.get();
    args.slot_x = out.slot_out.get();
    args.h = out.h.get();
    args.slot_out = out.slot_out.get();
    args.expert_count = c_.experts;
    args.hidden = c_.hidden;
    args.inter = c_.inter;
    args.topk = c_.topk;
    args.slots = slots_;
    args.tile = c_.tile;
    args.limit = INFINITY;
    args.tap.expert_up = out.up.get();
    args.tap.expert_down = out.down.get();
    return args;
  }

  moep_combine_args CombineArgs(const Outputs& out) const {
    moep_combine_args args = {};
    args.rows = Rows();
    args.site = table();
    args.ids = ids_.get();
    args.weights = route_.get();
    args.token_to_perm = perm_.get();
    args.slot_out = out.slot_out.get();
    args.y = {out.y.get(), stride_, c_.shared ? 1u : 0u};
    if (c_.shared) args.ffn_out = ffn_out_.get();
    args.hidden = c_.hidden;
    args.topk = c_.topk;
    args.experts = c_.experts;
    return args;
  }

  const Case c_;
  const uint32_t slots_;
  std::mt19937 random_{7};
  Experts experts_;
  const uint32_t stride_;
  Buffer<uint16_t> x_;
  Buffer<float> ffn_out_;
  Buffer<int32_t> ids_, perm_, sorted_;
  Buffer<uint32_t> offsets_;
  Buffer<float> route_;
  int32_t live_;
};

class EmulatedPrefill : public testing::TestWithParam<Case> {};

TEST_P(EmulatedPrefill, GivesTheHostsBits) {
  Prefill prefill(GetParam());
  const Prefill::Outputs host = prefill.MakeOutputs();
  const Prefill::Outputs device = prefill.MakeOutputs();
  prefill.Run(host, false);
  prefill.Run(device, true);
  EXPECT_TRUE(host.up == device.up);
  EXPECT_EQ(prefill.DifferentH(host, device), 0u);
  EXPECT_TRUE(host.down == device.down);
  EXPECT_TRUE(host.y == device.y);
}

// Every tile; widths that are no multiple of 128 and 256; two segments in up and in
// down, of n256 three; experts with more tokens than a tile. Wide tiles: pairs of blocks
// with two and four tiles of weights, odd numbers of tiles or blocks, which make no
// pairs, units of one token, an absent expert, nothing at all. Two groups of slots in
// combine, two passes over a row in permute_x.
const Case kCases[] = {
    {128, 64, 5, 2, 11, 8, 2, Skew::kEven},
    {128, 64, 5, 2, 24, 16, 2, Skew::kUnfilled},
    {64, 64, 9, 4, 9, 32, 5, Skew::kEven},
    {320, 192, 5, 3, 40, 64, 3, Skew::kUnfilled},
    {320, 64, 3, 2, 70, 48, 2, Skew::kFewExperts},
    {320, 64, 3, 1, 60, 64, 2, Skew::kFewExperts},
    {2112, 64, 2, 1, 150, 80, 1, Skew::kFewExperts},
    {128, 64, 3, 1, 110, 96, 2, Skew::kFewExperts},
    {192, 64, 3, 2, 70, 128, 2, Skew::kFewExperts},
    {128, 128, 3, 1, 170, 128, 2, Skew::kFewExperts},
    {576, 320, 4, 1, 9, 96, 5, Skew::kEven},
    {512, 256, 4, 1, 5, 96, 4, Skew::kEven},
    {512, 256, 5, 2, 40, 96, 2, Skew::kEven},
    {512, 512, 3, 1, 30, 128, 6, Skew::kUnfilled},
    {512, 256, 3, 2, 20, 96, 2, Skew::kNothing},
    {8256, 64, 3, 9, 2, 8, 2, Skew::kEven, true},
    {512, 256, 2, 1, 41, 128, 3, Skew::kEven},
    {128, 64, 2, 1, 45, 128, 1, Skew::kFewExperts},
    {256, 64, 6, 1, 1026, 256, 2, Skew::kAroundTile},
    {320, 192, 1, 1, 293, 256, 3, Skew::kEven},
    {512, 256, 5, 2, 40, 256, 4, Skew::kEven},
    {192, 512, 3, 1, 30, 256, 6, Skew::kUnfilled},
    {256, 128, 3, 2, 20, 256, 2, Skew::kNothing},
    {4160, 64, 1, 1, 290, 256, 2, Skew::kEven},
    {64, 4160, 1, 1, 264, 256, 2, Skew::kEven},
    {2112, 64, 2, 1, 9, 8, 1, Skew::kEven},
    {2112, 64, 2, 1, 40, 64, 1, Skew::kFewExperts},
    {64, 2112, 2, 1, 10, 16, 1, Skew::kEven},
};

std::string Name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return "Hidden" + std::to_string(c.hidden) + "Inter" +
         std::to_string(c.inter) + "Tile" + std::to_string(c.tile) + "Rows" +
         std::to_string(c.rows);
}

INSTANTIATE_TEST_SUITE_P(, EmulatedPrefill, testing::ValuesIn(kCases), Name);

std::vector<Case> RandomCases() {
  std::mt19937 random(5);
  const auto up_to = [&](uint32_t most) {
    return static_cast<uint32_t>(random() % most) + 1;
  };
  std::vector<Case> cases;
  for (const uint32_t tile : {8u, 16u, 32u, 48u, 64u, 80u, 96u, 128u, 256u}) {
    Case c = {};
    c.hidden = 64 * up_to(8);
    c.inter = 64 * up_to(6);
    c.experts = up_to(7);
    c.topk = up_to(std::min(c.experts, 3u));
    c.rows = up_to(2 * tile);
    c.tile = tile;
    c.blocks = up_to(6);
    c.skew = random() % 2 == 0 ? Skew::kEven : Skew::kUnfilled;
    c.shared = random() % 2 == 0;
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedPrefill,
                         testing::ValuesIn(RandomCases()), Name);

}  // namespace
