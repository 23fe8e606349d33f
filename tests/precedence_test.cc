// Which recipe, how many groups and how many nodes a row count gets under which
// levers: tables written out by hand from the design.

#include "tests/planning.h"

namespace planning {
namespace {

using Change = std::function<void(moeplan_options&)>;

struct Row {
  uint32_t topk;
  uint32_t rows;
  moeplan_recipe recipe;
  uint32_t groups;
  uint32_t nodes;
};

constexpr auto kDecode = moeplan_recipe_decode;
constexpr auto kVerify = moeplan_recipe_verify;
constexpr auto kGroups = moeplan_recipe_row_groups;
constexpr auto kPerRow = moeplan_recipe_per_row;
constexpr auto kPrefill = moeplan_recipe_prefill;

void ExpectPlans(const Change& change, std::initializer_list<Row> table) {
  for (const Row& row : table) {
    SCOPED_TRACE(testing::Message() << row.rows << " rows, top-" << row.topk);
    moeplan_config config = FlashConfig();
    config.num_experts_per_tok = row.topk;
    config.max_rows = MOEP_MAX_ROWS;
    Planner planner(config);
    const Plan plan(planner, row.rows, Options(change));
    if (!plan.ok()) continue;
    EXPECT_EQ(plan.info().recipe, row.recipe) << plan.info().recipe_name;
    EXPECT_EQ(plan.info().groups, row.groups);
    EXPECT_EQ(plan.info().nodes, row.nodes);
    EXPECT_EQ(plan.info().rows, row.rows);
    EXPECT_STREQ(plan.info().recipe_name, moep_recipe_name(row.recipe));
  }
}

#define SET(assignment) [](moeplan_options& o) { o.assignment; }

TEST(Precedence, WithoutLeversRowsChoose) {
  ExpectPlans(nullptr, {
                           {8, 1, kDecode, 1, 1},
                           {8, 2, kVerify, 1, 1},
                           {8, 8, kVerify, 1, 1},
                           {8, 9, kPrefill, 1, 11},
                           {8, 16, kPrefill, 1, 11},
                           {8, 16384, kPrefill, 1, 11},
                           {8, 1048576, kPrefill, 1, 11},
                       });
}

TEST(Precedence, AGroupHasAtMost64Ids) {
  ExpectPlans(SET(no_grouped = true),
              {
                  /* cap 8 of 16 */
                  {4, 8, kVerify, 1, 1},
                  {4, 9, kGroups, 2, 2},
                  {4, 17, kGroups, 3, 3},
                  /* cap 8 */
                  {8, 8, kVerify, 1, 1},
                  {8, 9, kGroups, 2, 2},
                  {8, 16, kGroups, 2, 2},
                  {8, 64, kGroups, 8, 8},
                  /* cap 7 */
                  {9, 7, kVerify, 1, 1},
                  {9, 8, kGroups, 2, 2},
                  {9, 15, kGroups, 3, 3},
                  /* cap 4 */
                  {16, 1, kDecode, 1, 1},
                  {16, 4, kVerify, 1, 1},
                  {16, 5, kGroups, 2, 2},
                  {16, 9, kGroups, 3, 3},
                  /* cap 2: an odd count has a group of 1 */
                  {32, 2, kVerify, 1, 1},
                  {32, 3, kPerRow, 3, 3},
                  {32, 4, kGroups, 2, 2},
                  {32, 5, kPerRow, 5, 5},
              });
  ExpectPlans(nullptr, {{9, 8, kGroups, 2, 2},
                        {16, 8, kGroups, 2, 2},
                        {32, 7, kPerRow, 7, 7},
                        {32, 9, kPrefill, 1, 11}});
}

TEST(Precedence, ASmallerCapMayForceGroupsOfOne) {
  ExpectPlans(SET(row_batch_max = 1), {{8, 1, kDecode, 1, 1},
                                       {8, 2, kPerRow, 2, 2},
                                       {8, 8, kPerRow, 8, 8},
                                       {8, 9, kPrefill, 1, 11}});
  ExpectPlans(SET(row_batch_max = 2), {{8, 2, kVerify, 1, 1},
                                       {8, 3, kPerRow, 3, 3},
                                       {8, 4, kGroups, 2, 2},
                                       {8, 7, kPerRow, 7, 7},
                                       {8, 8, kGroups, 4, 4}});
  ExpectPlans(SET(row_batch_max = 3), {{8, 3, kVerify, 1, 1},
                                       {8, 4, kGroups, 2, 2},
                                       {8, 7, kGroups, 3, 3},
                                       {8, 8, kGroups, 3, 3}});
  /* A cap above floor(64 / top_k) changes nothing. */
  ExpectPlans(
      SET(row_batch_max = 8),
      {{16, 4, kVerify, 1, 1}, {16, 5, kGroups, 2, 2}, {9, 8, kGroups, 2, 2}});
}

TEST(Precedence, GroupedStartsAtItsMinimum) {
  ExpectPlans(SET(grouped_min_rows = 32), {{8, 8, kVerify, 1, 1},
                                           {8, 9, kGroups, 2, 2},
                                           {8, 31, kGroups, 4, 4},
                                           {8, 32, kPrefill, 1, 11}});
  ExpectPlans(SET(grouped_min_rows = 9),
              {{8, 8, kVerify, 1, 1}, {8, 9, kPrefill, 1, 11}});
}

TEST(Precedence, UnionOffTouchesOnlyTheUnion) {
  ExpectPlans(SET(no_row_batch = true), {{8, 1, kDecode, 1, 1},
                                         {8, 2, kPerRow, 2, 2},
                                         {8, 8, kPerRow, 8, 8},
                                         {8, 9, kPrefill, 1, 11},
                                         {8, 64, kPrefill, 1, 11}});
  ExpectPlans(
      [](auto& o) {
        o.no_row_batch = true;
        o.no_grouped = true;
      },
      {{8, 1, kDecode, 1, 1}, {8, 9, kPerRow, 9, 9}});
}

TEST(Precedence, HostDispatchComesBeforeTheRowLevers) {
  ExpectPlans(
      [](auto& o) {
        o.host_dispatch = true;
        o.no_grouped = true;
        o.no_row_batch = true;
      },
      {{8, 1, kPrefill, 1, 11}, {8, 4, kPrefill, 1, 11}});
}

TEST(Precedence, AForcedRecipeComesFirst) {
  ExpectPlans(SET(recipe = moeplan_recipe_decode), {{8, 1, kDecode, 1, 1}});
  ExpectPlans(SET(recipe = moeplan_recipe_verify),
              {{8, 1, kVerify, 1, 1}, {8, 8, kVerify, 1, 1}});
  ExpectPlans(SET(recipe = moeplan_recipe_row_groups),
              {{8, 1, kGroups, 1, 1},
               {8, 8, kGroups, 1, 1},
               {8, 300, kGroups, 38, 38},
               {32, 3, kGroups, 2, 2}});
  ExpectPlans(SET(recipe = moeplan_recipe_per_row),
              {{8, 1, kPerRow, 1, 1}, {8, 300, kPerRow, 300, 300}});
  ExpectPlans(
      [](auto& o) {
        o.recipe = moeplan_recipe_prefill;
        o.no_grouped = true;
        o.grouped_min_rows = 64;
      },
      {{8, 1, kPrefill, 1, 11}, {8, 20, kPrefill, 1, 11}});
  ExpectPlans(
      [](auto& o) {
        o.recipe = moeplan_recipe_prefill;
        o.host_dispatch = true;
      },
      {{8, 4, kPrefill, 1, 11}});
}

TEST(Precedence, WithoutASharedExpertPrefillHasTwoNodesLess) {
  moeplan_config config = FlashConfig();
  config.shared_local_intermediate = 0;
  Planner planner(config);
  EXPECT_EQ(Plan(planner, 1).info().nodes, 1u);
  EXPECT_EQ(Plan(planner, 8).info().nodes, 1u);
  EXPECT_EQ(Plan(planner, 64).info().nodes, 9u);
}

TEST(Precedence, DenseHasOneRecipe) {
  Planner planner(DenseConfig());
  for (uint32_t rows : {1u, 2u, 8u, 9u, 4096u}) {
    for (const Change& change : {Change(), Change(SET(no_row_batch = true)),
                                 Change(SET(no_grouped = true)),
                                 Change(SET(recipe = moeplan_recipe_dense))}) {
      const Plan plan(planner, rows, Options(change));
      EXPECT_EQ(plan.info().recipe, moeplan_recipe_dense) << rows;
      EXPECT_EQ(plan.info().groups, 1u);
      EXPECT_EQ(plan.info().nodes, 2u);
    }
  }
}

// The narrowest tile of at least mean + 2.5 sqrt(mean) rows an expert, n256 from a
// mean above 128; at 288 experts and top-8 the mean is rows / 36.
TEST(Precedence, TheTileFollowsTheMeanRowsOfAnExpert) {
  const struct {
    uint32_t rows;
    const char* tile;
  } table[] = {{1, "n8"},      {8, "n8"},      {9, "n8"},      {108, "n8"},
               {144, "n16"},   {256, "n16"},   {288, "n16"},   {360, "n32"},
               {720, "n32"},   {1080, "n48"},  {1440, "n64"},  {1800, "n80"},
               {2592, "n96"},  {2880, "n128"}, {3600, "n128"}, {4096, "n128"},
               {4608, "n128"}, {4609, "n256"}, {8192, "n256"}, {16384, "n256"}};
  Planner planner;
  for (const auto& row : table) {
    EXPECT_STREQ(Plan(planner, row.rows).info().tile, row.tile) << row.rows;
  }
}

// ---- refusals ----------------------------------------------------------------

void ExpectRefused(const moeplan_config& config, uint32_t rows,
                   const Change& change, moeplan_status status,
                   const char* sentence) {
  Planner planner(config);
  const moeplan_options options = Options(change);
  const auto untouched = reinterpret_cast<moeplan_plan_t>(0x5A5A);
  moeplan_plan_t plan = untouched;
  EXPECT_TRUE(Refused(planner.hooks(), status, sentence, [&] {
    return moeplan_plan_create(planner.get(), rows, &options, &plan);
  }));
  EXPECT_EQ(plan, untouched) << sentence;
  EXPECT_TRUE(planner.hooks().Lines(moeplan_log_info).empty()) << sentence;
}

TEST(Precedence, ForcedRecipesThatDoNotFitAreRefused) {
  const auto status = moeplan_status_unsupported_option;
  ExpectRefused(FlashConfig(), 2, SET(recipe = moeplan_recipe_decode), status,
                "cannot plan recipe decode for 2 rows: must be 1");
  ExpectRefused(FlashConfig(), 9, SET(recipe = moeplan_recipe_verify), status,
                "cannot plan recipe verify for 9 rows: at most 8");
  ExpectRefused(
      FlashConfig(), 4,
      [](auto& o) {
        o.recipe = moeplan_recipe_verify;
        o.row_batch_max = 3;
      },
      status, "cannot plan recipe verify for 4 rows: at most 3");
  moeplan_config top16 = FlashConfig();
  top16.num_experts_per_tok = 16;
  ExpectRefused(top16, 5, SET(recipe = moeplan_recipe_verify), status,
                "cannot plan recipe verify for 5 rows: at most 4");
  ExpectRefused(FlashConfig(), 4, SET(recipe = moeplan_recipe_dense), status,
                "cannot plan recipe dense for a routed site: it is for dense "
                "sites");
  ExpectRefused(DenseConfig(), 4, SET(recipe = moeplan_recipe_prefill), status,
                "cannot plan recipe prefill for a dense site: it is for routed "
                "sites");
  ExpectRefused(
      FlashConfig(), 4,
      [](auto& o) {
        o.recipe = moeplan_recipe_per_row;
        o.host_dispatch = true;
      },
      status,
      "cannot plan host_dispatch with recipe per_row: it runs the prefill "
      "recipe's steps");
  ExpectRefused(DenseConfig(), 4, SET(host_dispatch = true), status,
                "cannot plan host_dispatch with recipe dense: it runs the "
                "prefill recipe's steps");
}

TEST(Precedence, RowsOutsideThePlannersAreRefused) {
  moeplan_config config = FlashConfig();
  config.max_rows = 100;
  ExpectRefused(config, 0, nullptr, moeplan_status_invalid_argument,
                "cannot plan 0 rows: must be 1 to max_rows 100");
  ExpectRefused(config, 101, nullptr, moeplan_status_invalid_argument,
                "cannot plan 101 rows: must be 1 to max_rows 100");
  Planner planner(config);
  EXPECT_EQ(Plan(planner, 100).info().rows, 100u);
  for (uint32_t rows : {0u, 101u}) {
    size_t bytes = 77;
    EXPECT_TRUE(Refused(planner.hooks(), moeplan_status_invalid_argument,
                        "cannot plan " + std::to_string(rows) +
                            " rows: must be 1 to max_rows 100",
                        [&] {
                          return moeplan_workspace_size(planner.get(), rows,
                                                        nullptr, &bytes);
                        }));
    EXPECT_EQ(bytes, 77u);
  }
}

TEST(Precedence, MoreThan65536NodesAreRefused) {
  moeplan_config config = FlashConfig();
  config.max_rows = 70000;
  ExpectRefused(config, 65537, SET(recipe = moeplan_recipe_per_row),
                moeplan_status_unsupported_option,
                "cannot plan 65537 rows by recipe per_row: 65537 nodes, at "
                "most 65536");
  Planner planner(config);
  const Plan plan(planner, 65536,
                  Options(SET(recipe = moeplan_recipe_per_row)));
  EXPECT_EQ(plan.info().nodes, 65536u);
}

TEST(Precedence, AMissingKernelIsRefused) {
  moep_device old = H200Device();
  old.sm = 75;
  Planner dense(DenseConfig(), old);
  moeplan_plan_t plan = nullptr;
  EXPECT_TRUE(Refused(
      dense.hooks(), moeplan_status_unsupported_device,
      "cannot plan recipe dense on cuda:0: no kernel for "
      "ffn_up on sm_75",
      [&] { return moeplan_plan_create(dense.get(), 4, nullptr, &plan); }));
  EXPECT_EQ(plan, nullptr);
}

TEST(Plan, NullsAreRefused) {
  Planner planner;
  moeplan_plan_t plan = nullptr;
  size_t bytes = 77;
  EXPECT_EQ(moeplan_plan_create(nullptr, 4, nullptr, &plan),
            moeplan_status_invalid_argument);
  EXPECT_TRUE(Refused(
      planner.hooks(), moeplan_status_invalid_argument,
      "cannot create a plan: plan_out must not be NULL",
      [&] { return moeplan_plan_create(planner.get(), 4, nullptr, nullptr); }));
  EXPECT_EQ(moeplan_workspace_size(nullptr, 4, nullptr, &bytes),
            moeplan_status_invalid_argument);
  EXPECT_EQ(moeplan_workspace_size(planner.get(), 4, nullptr, nullptr),
            moeplan_status_invalid_argument);
  struct moeplan_plan_info info = {};
  info.struct_bytes = sizeof(info) - 8;
  EXPECT_EQ(moeplan_plan_info(nullptr, &info), moeplan_status_invalid_argument);
  const Plan made(planner, 4);
  EXPECT_EQ(moeplan_plan_info(made.get(), nullptr),
            moeplan_status_invalid_argument);
  EXPECT_EQ(moeplan_plan_info(made.get(), &info),
            moeplan_status_invalid_argument);
  EXPECT_EQ(info.rows, 0u);
  moeplan_plan_destroy(nullptr);
  moeplan_planner_destroy(nullptr);
}

}  // namespace
}  // namespace planning
