// group, the kernel of decode and verify, gives the host kernel's logits, ids,
// accumulators and y.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/emulation/site.h"

namespace {

using emulation::Buffer;
using emulation::Experts;
using emulation::Launch;
using emulation::RandomRows;

struct Case {
  uint32_t hidden, inter, width, experts, topk, rows;
  int32_t live;
  bool routed;  // by the site's router; else ids from outside
  uint32_t blocks;
};

class Group {
 public:
  explicit Group(const Case& c)
      : c_(c),
        experts_(c.hidden, c.inter, c.experts, random_),
        router_(RandomRows(c.experts, c.hidden, random_)),
        gate_(RandomRows(c.width, c.hidden, random_)),
        up_(RandomRows(c.width, c.hidden, random_)),
        down_(RandomRows(c.hidden, c.width, random_)),
        x_(RandomRows(c.rows, c.hidden, random_)),
        bias_(c.experts),
        ids_(c.rows * c.topk),
        weights_(c.rows * c.topk) {
    moep_site_table* table = experts_.table();
    table->router = router_.get();
    table->bias = bias_.get();
    table->ffn = {gate_.get(), up_.get(), down_.get(), c.width};
    for (uint32_t e = 0; e < c.experts; e++) {
      bias_[e] = static_cast<float>(e % 7) / 16;
    }
    // Repeats, unfilled slots and, where it is absent, expert 2.
    for (uint32_t s = 0; s < c.rows * c.topk; s++) {
      ids_[s] = static_cast<int32_t>(random_() % (c.experts + 1)) - 1;
      weights_[s] = static_cast<float>(random_() % 100) / 64;
    }
  }

  struct Outputs {
    Buffer<float> logits, weights, up, down, ffn_up, ffn_down;
    Buffer<int32_t> ids;
    Buffer<uint16_t> h, ffn_h, y;
  };
  Outputs MakeOutputs() const {
    const size_t rows = c_.rows, slots = rows * c_.topk;
    return {Buffer<float>(rows * c_.experts),
            Buffer<float>(slots),
            Buffer<float>(slots * 2 * c_.inter),
            Buffer<float>(slots * c_.hidden),
            Buffer<float>(rows * 2 * c_.width),
            Buffer<float>(rows * c_.hidden),
            Buffer<int32_t>(slots),
            Buffer<uint16_t>(slots * moep_padded_k(c_.inter)),
            Buffer<uint16_t>(rows * c_.width),
            Buffer<uint16_t>(rows * c_.hidden)};
  }

  void Run(moep_launch_fn kernel, uint32_t shared_bytes, bool tapped,
           const Outputs& out) const {
    moep_args args;
    args.group = Args(out);
    if (!tapped) args.group.tap = {};
    const moep_launch launch = {{c_.blocks, 1}, 2, 0, shared_bytes};
    Launch(kernel, args, launch);
  }

 private:
  moep_group_args Args(const Outputs& out) const {
    moep_group_args args = {};
    moep_route_args& route = args.route;
    route.rows = {0, c_.rows, c_.rows, &c_.live};
    route.rule.experts = c_.experts;
    route.rule.topk = c_.topk;
    route.rule.scoring = moep_scoring_sigmoid;
    route.rule.norm_topk = true;
    route.rule.scale = 2.5f;
    route.site = experts_.table();
    route.logits = out.logits.get();
    route.external_ids = c_.routed ? nullptr : ids_.get();
    route.external_weights = c_.routed ? nullptr : weights_.get();
    route.ids = out.ids.get();
    route.weights = out.weights.get();
    args.x = {x_.get(), c_.hidden};
    args.h = out.h.get();
    args.ffn_h = out.ffn_h.get();
    args.y = {out.y.get(), c_.hidden, 0};
    args.hidden = c_.hidden;
    args.inter = c_.inter;
    args.width = c_.width;
    args.limit = INFINITY;
    args.tap = {c_.routed ? out.logits.get() : nullptr, out.up.get(),
                out.down.get(), out.ffn_up.get(), out.ffn_down.get()};
    return args;
  }

  const Case c_;
  std::mt19937 random_{11};
  Experts experts_;
  Buffer<uint16_t> router_, gate_, up_, down_, x_;
  Buffer<float> bias_;
  Buffer<int32_t> ids_;
  Buffer<float> weights_;
};

class EmulatedGroup : public testing::TestWithParam<Case> {};

TEST_P(EmulatedGroup, GivesTheHostsBits) {
  const Group group(GetParam());
  const Group::Outputs host = group.MakeOutputs();
  group.Run(moep_group_nvfp4_host, 0, true, host);
  // Few warps, whose rings wrap and some of which have several units; all that a block
  // can have, and h in shared memory.
  for (const uint32_t shared_bytes : {110u * 1024, emulation::kSharedBytes}) {
    SCOPED_TRACE(shared_bytes);
    const Group::Outputs device = group.MakeOutputs();
    group.Run(moep_group_nvfp4_smxx, shared_bytes, true, device);
    EXPECT_TRUE(host.logits == device.logits);
    EXPECT_TRUE(host.ids == device.ids);
    EXPECT_TRUE(host.weights == device.weights);
    EXPECT_TRUE(host.up == device.up);
    EXPECT_TRUE(host.down == device.down);
    EXPECT_TRUE(host.ffn_up == device.ffn_up);
    EXPECT_TRUE(host.ffn_down == device.ffn_down);
    EXPECT_TRUE(host.y == device.y);
    if (GetParam().routed) continue;
    // Where nothing is tapped it may be a kernel of its own.
    const Group::Outputs untapped = group.MakeOutputs();
    group.Run(moep_group_nvfp4_smxx, shared_bytes, false, untapped);
    EXPECT_TRUE(host.ids == untapped.ids);
    EXPECT_TRUE(host.weights == untapped.weights);
    EXPECT_TRUE(host.y == untapped.y);
  }
}

// Through the ring and, where a width is no multiple of 256, without it; one row, all
// of them, dead ones; two segments; with and without a shared expert; grids of one block
// and of several, more than there are tiles of down. The last ones, of multiples of 512,
// are bare where nothing is tapped.
const Case kCases[] = {
    {512, 256, 0, 6, 2, 1, 1, false, 1},  {256, 256, 32, 6, 3, 8, 8, true, 1},
    {256, 256, 0, 9, 4, 5, 3, false, 2},  {208, 80, 48, 6, 2, 3, 2, true, 1},
    {80, 208, 48, 6, 2, 3, 2, true, 6},   {256, 256, 32, 6, 3, 8, 8, true, 5},
    {2304, 256, 16, 4, 2, 2, 2, true, 2}, {256, 2304, 0, 3, 1, 5, 5, false, 1},
    {512, 512, 0, 6, 4, 2, 2, false, 1},  {1024, 512, 0, 5, 2, 3, 2, false, 1},
    {512, 512, 0, 6, 2, 4, 3, false, 3},  {512, 512, 0, 6, 2, 5, 0, false, 2},
};

std::string Name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return "Hidden" + std::to_string(c.hidden) + "Inter" +
         std::to_string(c.inter) + "Rows" + std::to_string(c.rows) + "Blocks" +
         std::to_string(c.blocks);
}

INSTANTIATE_TEST_SUITE_P(, EmulatedGroup, testing::ValuesIn(kCases), Name);

std::vector<Case> RandomCases() {
  std::mt19937 random(6);
  const auto up_to = [&](uint32_t most) {
    return static_cast<uint32_t>(random() % most) + 1;
  };
  std::vector<Case> cases;
  for (uint32_t i = 0; i < 12; i++) {
    const uint32_t unit = i % 3 == 0 ? 16 : i % 3 == 1 ? 256 : 512;
    const uint32_t most = unit == 16 ? 40 : 512 / unit;
    Case c = {};
    c.hidden = unit * up_to(most);
    c.inter = unit * up_to(most);
    c.width = unit == 512 ? 0 : 16 * (up_to(6) - 1);
    c.experts = up_to(9);
    c.topk = up_to(std::min(c.experts, 4u));
    c.rows = up_to(8);
    c.live = static_cast<int32_t>(up_to(c.rows));
    c.routed = unit != 512 && random() % 2 == 0;
    c.blocks = up_to(5);
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Random, EmulatedGroup,
                         testing::ValuesIn(RandomCases()), Name);

}  // namespace
