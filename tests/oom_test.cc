// The n-th allocation fails, for every n: out_of_memory, nothing leaks, outputs
// keep their values. And what never allocates.

#include "tests/planning_binding.h"

namespace planning {
namespace {

constexpr uint32_t kCounts[] = {1, 2, 4};

template <typename Handle>
Handle Untouched() {
  return reinterpret_cast<Handle>(0x5A5A);
}

// One call with a handle as its output: on failure the handle stays untouched
// and one sentence is logged.
template <typename Handle>
moeplan_status Make(Hooks& log, Handle* made,
                    const std::function<moeplan_status(Handle*)>& call) {
  Handle handle = Untouched<Handle>();
  log.Clear();
  const moeplan_status status = call(&handle);
  if (status == moeplan_status_success) {
    *made = handle;
  } else {
    EXPECT_EQ(handle, Untouched<Handle>());
    const auto errors = log.Lines(moeplan_log_error);
    EXPECT_EQ(errors.size(), 1u);
    for (const std::string& error : errors) {
      EXPECT_EQ(error.rfind("cannot allocate ", 0), 0u) << error;
    }
  }
  return status;
}

// The life of a plan up to the first failure; everything made is destroyed.
moeplan_status Live(Hooks& log, const moeplan_binding& binding) {
  const moeplan_config config = Bound::Config();
  const moeplan_hooks hooks = log.get();
  moeplan_planner_t planner = nullptr;
  moeplan_plan_t plan = nullptr;
  moeplan_graph_t graph = nullptr;
  moeplan_set_t set = nullptr;
  moeplan_status status = Make<moeplan_planner_t>(log, &planner, [&](auto out) {
    return moeplan_planner_create(&config, "host", &hooks, out);
  });
  if (status == moeplan_status_success) {
    status = Make<moeplan_plan_t>(log, &plan, [&](auto out) {
      return moeplan_plan_create(planner, kRows, nullptr, out);
    });
  }
  if (status == moeplan_status_success) {
    status = Make<moeplan_graph_t>(log, &graph, [&](auto out) {
      return moeplan_graph_create(plan, &binding, out);
    });
  }
  if (status == moeplan_status_success) {
    status = Make<moeplan_set_t>(log, &set, [&](auto out) {
      return moeplan_set_create(planner, &binding, kCounts, 3, nullptr, out);
    });
  }
  moeplan_set_destroy(set);
  moeplan_graph_destroy(graph);
  moeplan_plan_destroy(plan);
  moeplan_planner_destroy(planner);
  return status;
}

TEST(OutOfMemory, EveryAllocationMayFail) {
  Bound bound;
  Hooks counting;
  ASSERT_EQ(Live(counting, bound.binding), moeplan_status_success);
  EXPECT_EQ(counting.live(), 0);
  /* planner; plan, announcement; graph, its plan, its calls; the same a row
   * count, but announced once; the set */
  EXPECT_EQ(counting.allocations(), 1 + 2 + 3 + 1 + 3 * (1 + 3) + 2);
  for (int n = 1; n <= counting.allocations(); n++) {
    Hooks failing;
    failing.FailAllocation(n);
    EXPECT_EQ(Live(failing, bound.binding), moeplan_status_out_of_memory) << n;
    EXPECT_EQ(failing.live(), 0) << "leak after allocation " << n;
  }
}

TEST(OutOfMemory, APlannerGoesOnAfterwards) {
  Planner planner;
  for (int n = 1; n <= 2; n++) {
    moeplan_plan_t plan = nullptr;
    planner.hooks().FailAllocation(n);
    EXPECT_EQ(moeplan_plan_create(planner.get(), 4, nullptr, &plan),
              moeplan_status_out_of_memory);
  }
  planner.hooks().Clear();
  const Plan plan(planner, 4);
  EXPECT_EQ(planner.hooks().Lines(moeplan_log_info).size(), 1u)
      << "announced by the plan that came to be";
}

TEST(Allocations, OnlyCreateCallsMakeThem) {
  Bound bound;
  moeplan_graph_t graph = nullptr;
  ASSERT_EQ(moeplan_graph_create(bound.plan.get(), &bound.binding, &graph),
            moeplan_status_success);
  const int before = bound.planner.hooks().allocations();
  size_t bytes = 0;
  moeplan_options options = Options();
  EXPECT_EQ(moeplan_site_size(bound.planner.get(), &bytes), 0);
  EXPECT_EQ(moeplan_workspace_size(bound.planner.get(), 4, nullptr, &bytes), 0);
  EXPECT_EQ(moeplan_options_from_environment(bound.planner.get(), &options), 0);
  EXPECT_NE(bound.plan.Print(), bound.plan.PrintWorkspace());
  EXPECT_EQ(moeplan_enqueue(bound.plan.get(), &bound.binding, nullptr), 0);
  EXPECT_EQ(moeplan_graph_update(graph, &bound.binding), 0);
  EXPECT_EQ(moeplan_graph_replay(graph, nullptr), 0);
  EXPECT_EQ(bound.planner.hooks().allocations(), before);
  moeplan_graph_destroy(graph);
}

// ---- sets ----------------------------------------------------------------------

void ExpectSetRefused(const std::vector<uint32_t>& counts,
                      const std::string& sentence) {
  Bound bound;
  moeplan_set_t set = Untouched<moeplan_set_t>();
  const int live = bound.planner.hooks().live();
  EXPECT_TRUE(Refused(
      bound.planner.hooks(), moeplan_status_invalid_argument, sentence, [&] {
        return moeplan_set_create(bound.planner.get(), &bound.binding,
                                  counts.data(), counts.size(), nullptr, &set);
      }));
  EXPECT_EQ(set, Untouched<moeplan_set_t>());
  EXPECT_LE(bound.planner.hooks().live(), live + 1) << "an announcement";
}

TEST(Set, RowCountsAscendWithinThePlanners) {
  ExpectSetRefused({2, 2},
                   "cannot create a set with 2 rows after 2: row counts must "
                   "ascend");
  ExpectSetRefused({1, 4, 2},
                   "cannot create a set with 2 rows after 4: row counts must "
                   "ascend");
  ExpectSetRefused({0, 1}, "cannot plan 0 rows: must be 1 to max_rows 64");
  ExpectSetRefused({1, 65}, "cannot plan 65 rows: must be 1 to max_rows 64");
  std::vector<uint32_t> many(65);
  for (uint32_t i = 0; i < 65; i++) many[i] = i + 1;
  ExpectSetRefused(many,
                   "cannot create a set of 65 row counts: must be 1 to "
                   "max_rows 64");
}

TEST(Set, NullsAndNoCountsAreRefused) {
  Bound bound;
  Hooks& hooks = bound.planner.hooks();
  const moeplan_planner_t planner = bound.planner.get();
  moeplan_set_t set = nullptr;
  const auto refused = [&](const char* sentence, const moeplan_binding* binding,
                           const uint32_t* counts, size_t n,
                           moeplan_set_t* out) {
    return Refused(hooks, moeplan_status_invalid_argument, sentence, [=] {
      return moeplan_set_create(planner, binding, counts, n, nullptr, out);
    });
  };
  const char* nulls =
      "cannot create a set: binding, row_counts and set_out must not be NULL";
  EXPECT_TRUE(refused(nulls, nullptr, kCounts, 3, &set));
  EXPECT_TRUE(refused(nulls, &bound.binding, nullptr, 3, &set));
  EXPECT_TRUE(refused(nulls, &bound.binding, kCounts, 3, nullptr));
  EXPECT_TRUE(
      refused("cannot create a set of 0 row counts: must be 1 to "
              "max_rows 64",
              &bound.binding, kCounts, 0, &set));
  EXPECT_EQ(
      moeplan_set_create(nullptr, &bound.binding, kCounts, 3, nullptr, &set),
      moeplan_status_invalid_argument);
  EXPECT_EQ(moeplan_set_replay(nullptr, 1, nullptr),
            moeplan_status_invalid_argument);
  EXPECT_EQ(set, nullptr);
  moeplan_set_destroy(nullptr);
}

TEST(Set, ReplayPicksTheExactGraphOrTheNextLargerWithLiveRows) {
  Bound bound;
  Hooks& hooks = bound.planner.hooks();
  for (bool live : {false, true}) {
    moeplan_binding binding = bound.binding;
    auto* live_rows = reinterpret_cast<int32_t*>(bound.at(Bound::kLive));
    if (live) binding.live_rows = live_rows;
    moeplan_set_t set = nullptr;
    ASSERT_EQ(moeplan_set_create(bound.planner.get(), &binding, kCounts, 3,
                                 nullptr, &set),
              moeplan_status_success);
    for (uint32_t rows : {1u, 2u, 3u, 4u}) {
      *live_rows = static_cast<int32_t>(rows);
      const moeplan_status expected = live || rows != 3
                                          ? moeplan_status_success
                                          : moeplan_status_invalid_argument;
      EXPECT_EQ(moeplan_set_replay(set, rows, nullptr), expected) << rows;
    }
    const std::string rule =
        live ? " or more" : ", and without live_rows only exact counts do";
    for (uint32_t rows : {0u, 5u}) {
      EXPECT_TRUE(
          Refused(hooks, moeplan_status_invalid_argument,
                  "cannot replay " + std::to_string(rows) +
                      " rows: no graph of the set has that many" + rule,
                  [&] { return moeplan_set_replay(set, rows, nullptr); }));
    }
    moeplan_set_destroy(set);
  }
}

}  // namespace
}  // namespace planning
