// Plans and workspaces as text equal the files of tests/golden/plan. After a
// change that is meant, tests/update_golden.sh writes them anew.

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/planning.h"

namespace planning {
namespace {

using Change = std::function<void(moeplan_options&)>;

struct Golden {
  const char* name;
  moeplan_config config;
  moep_device device;
  uint32_t rows;
  Change change;
};

#define SET(assignment) [](moeplan_options& o) { o.assignment; }

std::vector<Golden> Goldens() {
  const moeplan_config flash = FlashConfig(), dense = DenseConfig();
  const moep_device host = HostDevice(), h200 = H200Device();
  return {
      {"flash-1", flash, host, 1, nullptr},
      {"flash-4", flash, host, 4, nullptr},
      {"flash-8", flash, host, 8, nullptr},
      {"flash-9", flash, host, 9, nullptr},
      {"flash-17-no_grouped", flash, host, 17, SET(no_grouped = true)},
      {"flash-256", flash, host, 256, nullptr},
      {"flash-3-per_row", flash, host, 3, SET(recipe = moeplan_recipe_per_row)},
      {"flash-40-levers", flash, host, 40,
       [](moeplan_options& o) {
         o.recipe = moeplan_recipe_prefill;
         o.no_row_batch = o.no_grouped = o.host_dispatch = true;
         o.row_batch_max = 4;
         o.grouped_min_rows = 12;
         o.tile = "base";
         o.no_cublas = o.no_pdl = true;
         o.sm_limit = 2;
         o.y_type = moeplan_dtype_f32;
       }},
      {"flash-9-h200", flash, h200, 9, nullptr},
      {"flash-256-h200-base", flash, h200, 256, SET(tile = "base")},
      {"dense-1-host", dense, host, 1, nullptr},
      {"dense-40-host", dense, host, 40, nullptr},
      {"dense-1-h200", dense, h200, 1, nullptr},
      {"dense-40-h200", dense, h200, 40, nullptr},
      {"dense-40-h200-no_pdl", dense, h200, 40, SET(no_pdl = true)},
  };
}

std::string Folder() {
  const char* update = std::getenv("MOEPLAN_UPDATE_GOLDEN");
  return update != nullptr ? update : "tests/golden/plan";
}

TEST(Print, PlansAndWorkspacesAreTheGoldenOnes) {
  for (const Golden& golden : Goldens()) {
    Planner planner(golden.config, golden.device);
    const Plan plan(planner, golden.rows, Options(golden.change));
    ASSERT_TRUE(plan.ok()) << golden.name;
    const std::string text = plan.Print() + "\n" + plan.PrintWorkspace();
    const std::string path = Folder() + "/" + golden.name + ".txt";
    if (std::getenv("MOEPLAN_UPDATE_GOLDEN") != nullptr) {
      std::ofstream file(path);
      file << text;
      ASSERT_TRUE(file.good()) << path;
      continue;
    }
    std::ifstream file(path);
    ASSERT_TRUE(file.good()) << path << " is missing: tests/update_golden.sh";
    std::stringstream expected;
    expected << file.rdbuf();
    EXPECT_EQ(text, expected.str()) << path;
  }
}

TEST(Print, TwiceIsTheSame) {
  Planner planner;
  const Plan plan(planner, 17, Options(SET(no_grouped = true)));
  EXPECT_EQ(plan.Print(), plan.Print());
  EXPECT_EQ(plan.PrintWorkspace(), plan.PrintWorkspace());
  const Plan again(planner, 17, Options(SET(no_grouped = true)));
  EXPECT_EQ(plan.Print(), again.Print());
}

// Takes `room` writes, stops at the next, and must not be called after that.
struct Stopper {
  int room;
  int writes = 0;
  static int Write(void* context, const char*, size_t) {
    auto* stopper = static_cast<Stopper*>(context);
    stopper->writes++;
    return stopper->room-- > 0 ? 0 : 1;
  }
};

TEST(Print, AStoppingWriterEndsIt) {
  Planner planner;
  const Plan plan(planner, 4, Options(SET(sm_limit = 2)));
  for (const auto print : {moeplan_plan_print, moeplan_workspace_print}) {
    Stopper endless{1 << 20};
    EXPECT_EQ(print(plan.get(), Stopper::Write, &endless),
              moeplan_status_success);
    EXPECT_GT(endless.writes, 2);
    for (int room = 0; room < endless.writes; room++) {
      Stopper stopper{room};
      EXPECT_TRUE(Refused(planner.hooks(), moeplan_status_invalid_state,
                          "cannot print a plan: the writer stopped it", [&] {
                            return print(plan.get(), Stopper::Write, &stopper);
                          }));
      EXPECT_EQ(stopper.writes, room + 1) << "called after it stopped";
    }
  }
}

TEST(Print, NullsAreRefused) {
  Planner planner;
  const Plan plan(planner, 4);
  Stopper endless{1 << 20};
  for (const auto print : {moeplan_plan_print, moeplan_workspace_print}) {
    EXPECT_TRUE(Refused(planner.hooks(), moeplan_status_invalid_argument,
                        "cannot print a plan: write must not be NULL",
                        [&] { return print(plan.get(), nullptr, nullptr); }));
    EXPECT_EQ(print(nullptr, Stopper::Write, &endless),
              moeplan_status_invalid_argument);
  }
  EXPECT_EQ(endless.writes, 0);
}

// ---- the numbers that the text shows -------------------------------------------

// Weights of 8 experts in NVFP4 (9 bytes per 16), shared and router in bf16.
TEST(Info, BytesAtOneRowAreTheWeightsAndLittleMore) {
  Planner planner;
  const double routed = 8 * 3 * 4096.0 * 2048 * 9 / 16;
  const double shared = 3 * 4096.0 * 2048 * 2, router = 288 * 4096.0 * 2;
  const double weights = routed + shared + router;
  const auto bytes = static_cast<double>(Plan(planner, 1).info().bytes);
  EXPECT_GE(bytes, weights);
  EXPECT_LE(bytes, weights * 1.01);
}

TEST(Info, FlopOfARowIsTwicePerWeightItMeets) {
  Planner planner;
  const double weights =
      8 * 3 * 4096.0 * 2048 + 3 * 4096.0 * 2048 + 288 * 4096.0;
  for (uint32_t rows : {1u, 8u, 256u}) {
    const auto flop = static_cast<double>(Plan(planner, rows).info().flop);
    EXPECT_GE(flop, 2 * weights * rows) << rows;
    EXPECT_LE(flop, 2 * weights * rows * 1.01) << rows;
  }
}

TEST(Info, FloorIsTheSlowerOfBytesAndFlopAndZeroWhereNoRateIsKnown) {
  Planner h200(DenseConfig(), H200Device()), host(DenseConfig());
  EXPECT_EQ(Plan(host, 1).info().floor_seconds, 0.0);
  const Plan narrow(h200, 1), wide(h200, 8192);
  EXPECT_NEAR(narrow.info().floor_seconds,
              static_cast<double>(narrow.info().bytes) / 4.54e12, 1e-12);
  EXPECT_NEAR(wide.info().floor_seconds,
              static_cast<double>(wide.info().flop) / 811e12, 1e-12);
}

}  // namespace
}  // namespace planning
