// Levers: bad values and unsupported ones are refused, accepted ones change the
// plan, and the log names what is not default.

#include "tests/planning.h"

namespace planning {
namespace {

using Change = std::function<void(moeplan_options&)>;

#define SET(assignment) [](moeplan_options& o) { o.assignment; }

// ---- refusals ----------------------------------------------------------------

void ExpectRefused(const Change& change, moeplan_status status,
                   const std::string& sentence) {
  Planner planner;
  const moeplan_options options = Options(change);
  const auto untouched = reinterpret_cast<moeplan_plan_t>(0x5A5A);
  moeplan_plan_t plan = untouched;
  EXPECT_TRUE(Refused(planner.hooks(), status, sentence, [&] {
    return moeplan_plan_create(planner.get(), 4, &options, &plan);
  }));
  EXPECT_EQ(plan, untouched) << sentence;
  size_t bytes = 77;
  EXPECT_TRUE(Refused(planner.hooks(), status, sentence, [&] {
    return moeplan_workspace_size(planner.get(), 4, &options, &bytes);
  }));
  EXPECT_EQ(bytes, 77u) << sentence;
}

TEST(Options, BadValuesAreRefused) {
  const auto bad = moeplan_status_invalid_argument;
  ExpectRefused(SET(recipe = EnumOf<moeplan_recipe>(7)), bad,
                "cannot plan recipe 7: must be 0 (auto) to 6");
  ExpectRefused(SET(recipe = EnumOf<moeplan_recipe>(-1)), bad,
                "cannot plan recipe -1: must be 0 (auto) to 6");
  ExpectRefused(SET(row_batch_max = 9), bad,
                "cannot plan row_batch_max 9: must be 1 to 8");
  for (uint32_t rows : {1u, 8u, 1048577u}) {
    ExpectRefused([=](auto& o) { o.grouped_min_rows = rows; }, bad,
                  "cannot plan grouped_min_rows " + std::to_string(rows) +
                      ": must be 9 to 1048576");
  }
  for (const char* tile : {"", "n7", "n8 ", "N8", "8", "wide"}) {
    ExpectRefused(
        [=](auto& o) { o.tile = tile; }, bad,
        std::string("cannot plan tile \"") + tile +
            "\": must be n8, n16, n32, n48, n64, n80, n96, n128, n256 or base");
  }
  for (int type : {2, 3, 4, 5, -1}) {
    ExpectRefused(
        [=](auto& o) { o.y_type = EnumOf<moeplan_dtype>(type); }, bad,
        "cannot plan y_type " + std::to_string(type) + ": must be bf16 or f32");
  }
  ExpectRefused(SET(numerics = EnumOf<moeplan_numerics>(2)), bad,
                "cannot plan numerics 2, y_mode 0: must be 0 or 1");
  ExpectRefused(SET(y_mode = EnumOf<moeplan_y_mode>(2)), bad,
                "cannot plan numerics 0, y_mode 2: must be 0 or 1");
  ExpectRefused(SET(struct_bytes -= 8), bad,
                "cannot read options: struct_bytes is " +
                    std::to_string(sizeof(moeplan_options) - 8) + ", must be " +
                    std::to_string(sizeof(moeplan_options)));
}

TEST(Options, WhatNoBuildHonoursIsRefused) {
  const auto refused = [](const Change& change, const std::string& name) {
    ExpectRefused(change, moeplan_status_unsupported_option,
                  "cannot plan with " + name + ": this build does not have it");
  };
  refused(SET(profile = true), "profile");
  refused(SET(y_mode = moeplan_y_add), "y_mode add");
  refused(SET(measure = true), "measure");
  refused(SET(wisdom_only = true), "wisdom_only");
}

// ---- each accepted lever does something ---------------------------------------

// The plan's text without the lines that only repeat the levers.
std::string Decisions(const Plan& plan) {
  std::string kept;
  std::string text = plan.Print();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    const std::string line = text.substr(begin, end - begin);
    if (line.rfind("lever ", 0) != 0) kept += line;
    begin = end;
  }
  return kept;
}

struct Effect {
  const char* lever; /* as printed */
  Change change;
  uint32_t rows;
};

TEST(Options, EachLeverIsPrintedAndChangesThePlan) {
  const Effect effects[] = {
      {"recipe per_row", SET(recipe = moeplan_recipe_per_row), 4},
      {"no_row_batch 1", SET(no_row_batch = true), 4},
      {"row_batch_max 3", SET(row_batch_max = 3), 8},
      {"no_grouped 1", SET(no_grouped = true), 17},
      {"grouped_min_rows 32", SET(grouped_min_rows = 32), 20},
      {"tile n64", SET(tile = "n64"), 256},
      {"tile base", SET(tile = "base"), 256},
      {"host_dispatch 1", SET(host_dispatch = true), 4},
      {"y_type f32", SET(y_type = moeplan_dtype_f32), 4},
  };
  Planner planner;
  for (const Effect& effect : effects) {
    const Plan usual(planner, effect.rows);
    const Plan changed(planner, effect.rows, Options(effect.change));
    const std::string line = std::string("lever ") + effect.lever + "\n";
    EXPECT_NE(changed.Print().find(line), std::string::npos) << effect.lever;
    EXPECT_EQ(usual.Print().find("lever "), std::string::npos);
    EXPECT_NE(Decisions(changed), Decisions(usual)) << effect.lever;
  }
}

TEST(Options, NoPdlClearsItOnEveryNode) {
  Planner planner(DenseConfig(), H200Device());
  const Plan usual(planner, 40);
  const Plan changed(planner, 40, Options(SET(no_pdl = true)));
  for (uint32_t i = 0; i < usual->node_count; i++) {
    EXPECT_EQ(usual->nodes[i].launch.pdl, 1u);
    EXPECT_EQ(changed->nodes[i].launch.pdl, 0u);
  }
  EXPECT_NE(Decisions(changed), Decisions(usual));
  EXPECT_NE(changed.Print().find("lever no_pdl 1\n"), std::string::npos);
}

TEST(Options, PdlNeedsSm90) {
  for (uint32_t sm : {80u, 89u, 90u, 100u, 120u}) {
    moep_device device = H200Device();
    device.sm = sm;
    Planner planner(DenseConfig(), device);
    const Plan plan(planner, 40);
    for (uint32_t i = 0; i < plan->node_count; i++) {
      EXPECT_EQ(plan->nodes[i].launch.pdl, sm >= 90 ? 1u : 0u) << "sm_" << sm;
    }
  }
}

TEST(Options, SmLimitReachesEveryHostNode) {
  Planner planner;
  const Plan plan(planner, 40, Options(SET(sm_limit = 3)));
  for (uint32_t i = 0; i < plan->node_count; i++) {
    EXPECT_EQ(plan->nodes[i].launch.threads, 3u) << i;
  }
  EXPECT_NE(plan.Print().find("lever sm_limit 3\n"), std::string::npos);
}

// The header: "SMs a node may fill". Honoured or refused, never ignored.
TEST(Options, SmLimitIsHonouredOrRefusedOnCuda) {
  Planner planner(DenseConfig(), H200Device());
  const Plan usual(planner, 40);
  const moeplan_options options = Options(SET(sm_limit = 1));
  moeplan_plan_t plan = nullptr;
  const moeplan_status status =
      moeplan_plan_create(planner.get(), 40, &options, &plan);
  if (status == moeplan_status_success) {
    for (uint32_t i = 0; i < plan->node_count; i++) {
      EXPECT_NE(std::memcmp(&plan->nodes[i].launch, &usual->nodes[i].launch,
                            sizeof(moep_launch)),
                0)
          << "node " << i << " is launched as without the limit";
    }
  } else {
    EXPECT_EQ(status, moeplan_status_unsupported_option);
  }
  moeplan_plan_destroy(plan);
}

uint64_t Blocks(const moep_node& node) {
  return uint64_t{node.launch.grid[0]} * node.launch.grid[1];
}

// 4 blocks of the dense kernels count as an SM's.
TEST(Options, SmLimitCapsTheBlocksOfEveryCudaNode) {
  Planner planner(DenseConfig(), H200Device());
  for (uint32_t rows : {1u, 8u, 40u, 4096u, 16384u}) {
    const Plan usual(planner, rows);
    for (uint32_t limit : {1u, 2u, 3u, 7u, 66u, 131u}) {
      const Plan plan(planner, rows,
                      Options([=](auto& o) { o.sm_limit = limit; }));
      for (uint32_t i = 0; i < plan->node_count; i++) {
        EXPECT_GE(Blocks(plan->nodes[i]), 1u) << rows << ", " << limit;
        EXPECT_LE(Blocks(plan->nodes[i]), 4u * limit) << rows << ", " << limit;
        EXPECT_LE(Blocks(plan->nodes[i]), Blocks(usual->nodes[i]));
        EXPECT_EQ(plan->nodes[i].bytes, usual->nodes[i].bytes);
      }
    }
  }
}

TEST(Options, SmLimitOfTheWholeDeviceIsNone) {
  Planner planner(DenseConfig(), H200Device());
  const Plan usual(planner, 40);
  for (uint32_t limit : {132u, 133u, UINT32_MAX}) {
    const Plan plan(planner, 40, Options([=](auto& o) { o.sm_limit = limit; }));
    EXPECT_EQ(Decisions(plan), Decisions(usual)) << limit;
  }
}

TEST(Options, NoCublasIsPrinted) { /* without TIERED it may do no more */
  Planner planner;
  const Plan plan(planner, 40, Options(SET(no_cublas = true)));
  EXPECT_NE(plan.Print().find("lever no_cublas 1\n"), std::string::npos);
}

TEST(Options, AreNotKept) {
  Planner planner;
  std::string tile = "n64";
  moeplan_options options = Options();
  options.tile = tile.c_str();
  const Plan plan(planner, 256, options);
  tile.assign("???");
  EXPECT_STREQ(plan.info().tile, "n64");
  EXPECT_NE(plan.Print().find("lever tile n64\n"), std::string::npos);
}

// ---- log ---------------------------------------------------------------------

TEST(Log, EveryPlanWarnsOfEachLever) {
  Planner planner;
  for (int i = 0; i < 2; i++) {
    planner.hooks().Clear();
    const Plan plan(planner, 12, Options([](auto& o) {
                      o.no_grouped = true;
                      o.row_batch_max = 4;
                      o.y_type = moeplan_dtype_f32;
                    }));
    const std::vector<std::string> expected = {
        "plan of 12 rows: row_batch_max 4 (MOEPLAN_ROW_BATCH_MAX)",
        "plan of 12 rows: no_grouped 1 (MOEPLAN_GROUPED)",
        "plan of 12 rows: y_type f32 (y_type)"};
    EXPECT_EQ(planner.hooks().Lines(moeplan_log_warning), expected);
  }
}

TEST(Log, EachKindOfPlanIsAnnouncedOnce) {
  Planner planner;
  const auto announcements = [&](uint32_t rows, const Change& change) {
    planner.hooks().Clear();
    const Plan plan(planner, rows, Options(change));
    return planner.hooks().Lines(moeplan_log_info).size();
  };
  EXPECT_EQ(announcements(4, nullptr), 1u);
  EXPECT_EQ(announcements(4, nullptr), 0u);
  EXPECT_EQ(announcements(5, nullptr), 1u) << "other rows";
  EXPECT_EQ(announcements(4, SET(no_row_batch = true)), 1u) << "other recipe";
  EXPECT_EQ(announcements(4, SET(row_batch_max = 2)), 1u) << "other groups";
  EXPECT_EQ(announcements(256, nullptr), 1u);
  EXPECT_EQ(announcements(256, SET(tile = "n64")), 1u) << "other tile";
  EXPECT_EQ(announcements(256, SET(tile = "n64")), 0u);
  EXPECT_EQ(announcements(4, SET(no_cublas = true)), 0u) << "same kind";
  Planner other;
  other.hooks().Clear();
  const Plan plan(other, 4);
  EXPECT_EQ(other.hooks().Lines(moeplan_log_info).size(), 1u)
      << "once per planner";
}

TEST(Log, AnnouncementsNameALeverThatUndoesThem) {
  Planner planner;
  for (uint32_t rows : {2u, 8u, 9u, 256u}) {
    planner.hooks().Clear();
    const Plan plan(planner, rows);
    const auto lines = planner.hooks().Lines(moeplan_log_info);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find(plan.info().recipe_name), std::string::npos);
    EXPECT_NE(lines[0].find("MOEPLAN_"), std::string::npos) << lines[0];
    const bool prefill = plan.info().recipe == moeplan_recipe_prefill;
    EXPECT_EQ(lines[0].find("MOEPLAN_GROUPED") != std::string::npos, prefill);
    EXPECT_EQ(lines[0].find("MOEPLAN_NO_ROW_BATCH") != std::string::npos,
              !prefill);
  }
}

// A dense site has one recipe: no lever chooses another.
TEST(Log, DenseAnnouncementsNameNoLever) {
  Planner planner(DenseConfig());
  planner.hooks().Clear();
  const Plan plan(planner, 4);
  const auto lines = planner.hooks().Lines(moeplan_log_info);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("MOEPLAN_"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace planning
