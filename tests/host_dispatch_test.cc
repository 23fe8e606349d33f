// Ids from outside in a plan with host_dispatch: graphs skip what is out of range,
// host dispatch reports it.

#include <algorithm>
#include <string>

#include "tests/planning_binding.h"

namespace planning {
namespace {

TEST(HostDispatch, RefusesAnIdPastTheExpertsInALiveRow) {
  Bound bound(Options([](auto& o) { o.host_dispatch = true; }));
  const moeplan_config config = Bound::Config();
  const uint32_t topk = config.num_experts_per_tok;
  const auto experts = static_cast<int32_t>(config.n_routed_experts);
  auto* ids = reinterpret_cast<int32_t*>(bound.at(Bound::kTopkIds));
  auto* live = reinterpret_cast<int32_t*>(bound.at(Bound::kLive));
  bound.binding.topk_ids = ids;
  bound.binding.topk_weights =
      reinterpret_cast<float*>(bound.at(Bound::kTopkWeights));
  const auto run = [&] {
    return moeplan_enqueue(bound.plan.get(), &bound.binding, nullptr);
  };
  std::fill_n(ids, kRows * topk, -1);
  EXPECT_EQ(run(), moeplan_status_success);
  ids[0] = INT32_MIN;
  ids[1] = experts - 1;
  EXPECT_EQ(run(), moeplan_status_success);
  const uint32_t slot = 2 * topk + 1;
  for (int32_t id : {experts, INT32_MAX}) {
    ids[slot] = id;
    EXPECT_TRUE(Refused(bound.planner.hooks(), moeplan_status_invalid_argument,
                        "cannot dispatch expert " + std::to_string(id) +
                            " of slot " + std::to_string(slot) +
                            ": the site has " + std::to_string(experts) +
                            " experts",
                        run));
  }
  bound.binding.live_rows = live;
  *live = 2;
  EXPECT_EQ(run(), moeplan_status_success);
  *live = 3;
  EXPECT_EQ(run(), moeplan_status_invalid_argument);
}

}  // namespace
}  // namespace planning
