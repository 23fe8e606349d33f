// Planners for devices that need not be there: "plan:NAME".

#include <cstring>

#include "tests/planning.h"

namespace planning {
namespace {

// A planner by the public door.
class Described {
 public:
  Described(const moeplan_config& config, const char* device) {
    const moeplan_hooks hooks = log.get();
    status = moeplan_planner_create(&config, device, &hooks, &planner);
  }
  ~Described() { moeplan_planner_destroy(planner); }
  struct moeplan_device_info Info() {
    struct moeplan_device_info info = MOEPLAN_DEVICE_INFO_INIT;
    EXPECT_EQ(moeplan_status_success, moeplan_device_info(planner, &info));
    return info;
  }

  Hooks log;
  moeplan_planner_t planner = nullptr;
  moeplan_status status;
};

TEST(PlanDevice, EachIsDescribed) {
  const struct {
    const char* name;
    uint32_t sm, sm_count;
    double bytes, flop;
    bool datasheet;
  } rows[] = {
      {"plan:h200", 90, 132, 4.54e12, 811e12, false},
      {"plan:h100", 90, 132, 3.35e12, 989e12, true},
      {"plan:gb10", 121, 48, 273e9, 0.0, true},
  };
  for (const auto& row : rows) {
    Described described(FlashConfig(), row.name);
    ASSERT_EQ(moeplan_status_success, described.status) << row.name;
    const struct moeplan_device_info info = described.Info();
    EXPECT_STREQ(row.name, info.name);
    EXPECT_EQ(row.sm, info.sm);
    EXPECT_EQ(row.sm_count, info.sm_count);
    EXPECT_EQ(row.bytes, info.bytes_per_second);
    EXPECT_EQ(row.flop, info.flop_per_second);
    EXPECT_EQ(row.datasheet, info.datasheet);
    EXPECT_TRUE(info.plan_only);
  }
}

// By kernels/group_memory.h: 9 KB, a row's 2 H + 64 bytes each, and 8 warps' rings
// of 9 KB or a ring beside H / 512 partial sums of 512 bytes.
TEST(PlanDevice, TheWidestGroupFollowsFromSharedMemory) {
  const struct {
    const char* device;
    uint32_t hidden, groups;  // of 8 rows; 0: refused
  } rows[] = {
      {"plan:h200", 6144, 1},  {"plan:h200", 16384, 2}, {"plan:h200", 65536, 8},
      {"plan:gb10", 1024, 1},  {"plan:gb10", 6144, 8},  {"plan:gb10", 9088, 8},
      {"plan:gb10", 16384, 0},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(testing::Message() << row.device << " " << row.hidden);
    moeplan_config config = FlashConfig();
    config.hidden_size = row.hidden;
    config.shared_local_intermediate = 0;
    Described described(config, row.device);
    ASSERT_EQ(moeplan_status_success, described.status);
    moeplan_options options = MOEPLAN_OPTIONS_INIT;
    options.no_grouped = true;
    moeplan_plan_t plan = nullptr;
    const moeplan_status status =
        moeplan_plan_create(described.planner, 8, &options, &plan);
    if (row.groups == 0) {
      EXPECT_EQ(moeplan_status_unsupported_device, status);
      const auto errors = described.log.Lines(moeplan_log_error);
      ASSERT_EQ(1u, errors.size());
      EXPECT_NE(errors[0].find("does not fit its 101376 bytes"),
                std::string::npos)
          << errors[0];
      continue;
    }
    ASSERT_EQ(moeplan_status_success, status);
    struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
    EXPECT_EQ(moeplan_status_success, moeplan_plan_info(plan, &info));
    EXPECT_EQ(row.groups, info.groups);
    moeplan_plan_destroy(plan);
  }
}

TEST(PlanDevice, TheHostHasNoRates) {
  Described described(FlashConfig(), "host");
  const struct moeplan_device_info info = described.Info();
  EXPECT_STREQ("host", info.name);
  EXPECT_STREQ("", info.model);
  EXPECT_EQ(0.0, info.bytes_per_second);
  EXPECT_FALSE(info.plan_only);
}

TEST(PlanDevice, OtherNamesAreRefused) {
  const moeplan_config config = FlashConfig();
  for (const char* name : {"plan:", "plan:H200", "plan:h200 ", "plan:b200"}) {
    Hooks log;
    const moeplan_hooks hooks = log.get();
    moeplan_planner_t planner = nullptr;
    EXPECT_TRUE(Refused(
        log, moeplan_status_invalid_argument,
        std::string("cannot use device \"") + name +
            "\": must be \"host\" or \"cuda:N\", or \"plan:\" with "
            "h200, h100 or gb10",
        [&] {
          return moeplan_planner_create(&config, name, &hooks, &planner);
        }));
    EXPECT_EQ(nullptr, planner);
  }
}

TEST(PlanDevice, PlansAsTheDeviceWould) {
  Planner there(DenseConfig(), H200Device());
  for (uint32_t rows : {1u, 40u, 8192u}) {
    Described described(DenseConfig(), "plan:h200");
    moeplan_plan_t plan = nullptr;
    ASSERT_EQ(moeplan_status_success,
              moeplan_plan_create(described.planner, rows, nullptr, &plan));
    struct moeplan_plan_info info = {};
    info.struct_bytes = sizeof(info);
    ASSERT_EQ(moeplan_status_success, moeplan_plan_info(plan, &info));
    const struct moeplan_plan_info wanted = Plan(there, rows).info();
    EXPECT_EQ(wanted.floor_seconds, info.floor_seconds);
    EXPECT_EQ(wanted.bytes, info.bytes);
    EXPECT_EQ(wanted.workspace_bytes, info.workspace_bytes);
    moeplan_plan_destroy(plan);
  }
}

// A rate that is not known is no bound, and no division by zero.
TEST(PlanDevice, FloorIsTheBytesWhereNoFlopRateIsKnown) {
  Described described(DenseConfig(), "plan:gb10");
  moeplan_plan_t plan = nullptr;
  ASSERT_EQ(moeplan_status_success,
            moeplan_plan_create(described.planner, 8192, nullptr, &plan));
  struct moeplan_plan_info info = {};
  info.struct_bytes = sizeof(info);
  ASSERT_EQ(moeplan_status_success, moeplan_plan_info(plan, &info));
  EXPECT_NEAR(static_cast<double>(info.bytes) / 273e9, info.floor_seconds,
              1e-9);
  moeplan_plan_destroy(plan);
}

TEST(PlanDevice, RunsNothing) {
  Described described(DenseConfig(), "plan:h200");
  moeplan_plan_t plan = nullptr;
  ASSERT_EQ(moeplan_status_success,
            moeplan_plan_create(described.planner, 1, nullptr, &plan));
  const std::string sentence =
      "cannot run a plan of plan:h200: it describes a device, to plan and "
      "print only";
  const moeplan_binding binding = MOEPLAN_BINDING_INIT;
  moeplan_graph_t graph = nullptr;
  moeplan_set_t set = nullptr;
  const uint32_t rows = 1;
  int place = 0;
  cudaGraphNode_t node = nullptr;
  const auto parent = reinterpret_cast<cudaGraph_t>(&place);
  const std::function<moeplan_status()> calls[] = {
      [&] { return moeplan_enqueue(plan, &binding, nullptr); },
      [&] { return moeplan_graph_create(plan, &binding, &graph); },
      [&] {
        return moeplan_graph_add_child(plan, &binding, parent, nullptr, 0,
                                       &node);
      },
      [&] {
        return moeplan_set_create(described.planner, &binding, &rows, 1,
                                  nullptr, &set);
      },
  };
  for (const auto& call : calls) {
    EXPECT_TRUE(Refused(described.log, moeplan_status_unsupported_device,
                        sentence, call));
  }
  EXPECT_EQ(nullptr, graph);
  EXPECT_EQ(nullptr, set);
  EXPECT_EQ(nullptr, node);
  moeplan_plan_destroy(plan);
}

TEST(PlanDevice, InfoRefusesNullsAndOtherSizes) {
  Described described(FlashConfig(), "host");
  struct moeplan_device_info info = MOEPLAN_DEVICE_INFO_INIT;
  EXPECT_EQ(moeplan_status_invalid_argument,
            moeplan_device_info(nullptr, &info));
  EXPECT_EQ(moeplan_status_invalid_argument,
            moeplan_device_info(described.planner, nullptr));
  info.struct_bytes--;
  EXPECT_EQ(moeplan_status_invalid_argument,
            moeplan_device_info(described.planner, &info));
}

}  // namespace
}  // namespace planning
