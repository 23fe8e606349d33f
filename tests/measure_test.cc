// moeplan_measure_nodes on the host device: a time for each node, y as enqueue
// leaves it, and what it refuses.

#include <string>
#include <vector>

#include "tests/planning_binding.h"

namespace planning {
namespace {

TEST(Measure, GivesEachNodeItsTimeAndLeavesTheOutput) {
  for (moeplan_recipe recipe : {moeplan_recipe_auto, moeplan_recipe_prefill}) {
    moeplan_options options = Options();
    options.recipe = recipe;
    Bound bound(options);
    const uint32_t nodes = bound.plan.info().nodes;
    std::vector<double> seconds(nodes + 1, -1.0);
    ASSERT_EQ(moeplan_measure_nodes(bound.plan.get(), &bound.binding, nullptr,
                                    3, seconds.data(), nodes),
              moeplan_status_success);
    for (uint32_t i = 0; i < nodes; i++) {
      EXPECT_GE(seconds[i], 0.0);
      EXPECT_LT(seconds[i], 10.0);
    }
    EXPECT_EQ(seconds[nodes], -1.0);
    // All experts are elsewhere and the shared weights are zero.
    const auto* y = reinterpret_cast<const uint16_t*>(bound.at(Bound::kY));
    for (uint32_t i = 0; i < kRows * kHidden; i++) EXPECT_EQ(y[i], 0) << i;
  }
}

TEST(Measure, Refuses) {
  Bound bound;
  const uint32_t nodes = bound.plan.info().nodes;
  std::vector<double> seconds(nodes, -1.0);
  const auto measure = [&](const moeplan_binding* binding, uint32_t repeats,
                           double* out, uint32_t capacity) {
    return moeplan_measure_nodes(bound.plan.get(), binding, nullptr, repeats,
                                 out, capacity);
  };
  const moeplan_status bad = moeplan_status_invalid_argument;
  EXPECT_EQ(moeplan_measure_nodes(nullptr, &bound.binding, nullptr, 1,
                                  seconds.data(), nodes),
            bad);
  auto& hooks = bound.planner.hooks();
  const std::string text = std::to_string(nodes);
  EXPECT_TRUE(
      Refused(hooks, bad,
              "cannot measure " + text +
                  " nodes: seconds_out must not be NULL and holds " + text,
              [&] { return measure(&bound.binding, 1, nullptr, nodes); }));
  EXPECT_TRUE(
      Refused(hooks, bad,
              "cannot measure " + text +
                  " nodes: seconds_out must not be NULL and holds 0",
              [&] { return measure(&bound.binding, 1, seconds.data(), 0); }));
  EXPECT_TRUE(Refused(
      hooks, bad, "cannot measure with repeats 0: must be 1 to 1000",
      [&] { return measure(&bound.binding, 0, seconds.data(), nodes); }));
  EXPECT_TRUE(Refused(
      hooks, bad, "cannot measure with repeats 1001: must be 1 to 1000",
      [&] { return measure(&bound.binding, 1001, seconds.data(), nodes); }));
  EXPECT_TRUE(
      Refused(hooks, bad, "cannot bind a plan: binding must not be NULL",
              [&] { return measure(nullptr, 1, seconds.data(), nodes); }));
  EXPECT_EQ(seconds, std::vector<double>(nodes, -1.0));
  moeplan_options dispatch = Options();
  dispatch.host_dispatch = true;
  Bound other(dispatch);
  std::vector<double> more(other.plan.info().nodes);
  EXPECT_TRUE(Refused(
      other.planner.hooks(), moeplan_status_invalid_state,
      "cannot measure a plan with host_dispatch: its nodes are launched by "
      "expert",
      [&] {
        return moeplan_measure_nodes(other.plan.get(), &other.binding, nullptr,
                                     1, more.data(),
                                     static_cast<uint32_t>(more.size()));
      }));
}

}  // namespace
}  // namespace planning
