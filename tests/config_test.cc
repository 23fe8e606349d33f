// Each rule of a configuration: accepted at its limit, refused past it with a
// status and a sentence that holds the value and the rule.

#include <math.h>

#include "tests/planning.h"

namespace planning {
namespace {

using Change = std::function<void(moeplan_config&)>;

struct Refusal {
  Change change;
  moeplan_status status;
  const char* sentence;
};

const auto kUntouched = reinterpret_cast<moeplan_planner_t>(0x5A5A);

void ExpectRefused(const moeplan_config& base, const Refusal& refusal) {
  moeplan_config config = base;
  refusal.change(config);
  Hooks log;
  const moeplan_hooks hooks = log.get();
  moeplan_planner_t planner = kUntouched;
  EXPECT_TRUE(Refused(log, refusal.status, refusal.sentence, [&] {
    return moeplan_planner_create(&config, "host", &hooks, &planner);
  }));
  EXPECT_EQ(planner, kUntouched) << refusal.sentence;
  EXPECT_EQ(log.live(), 0) << refusal.sentence;
  EXPECT_EQ(moeplan_config_check(&config), refusal.status) << refusal.sentence;
}

void ExpectAccepted(const moeplan_config& base, const char* what,
                    const Change& change) {
  moeplan_config config = base;
  change(config);
  Hooks log;
  const moeplan_hooks hooks = log.get();
  moeplan_planner_t planner = nullptr;
  EXPECT_EQ(moeplan_planner_create(&config, "host", &hooks, &planner),
            moeplan_status_success)
      << what;
  EXPECT_TRUE(log.Lines(moeplan_log_error).empty()) << what;
  EXPECT_EQ(moeplan_config_check(&config), moeplan_status_success) << what;
  moeplan_planner_destroy(planner);
}

#define SET(assignment) [](moeplan_config& c) { c.assignment; }
#define ACCEPT(base, assignment) \
  ExpectAccepted(base, #assignment, SET(assignment))

TEST(Config, WidthsAreAcceptedAtTheirLimits) {
  for (uint32_t width : {16u, 4112u, 65536u}) {
    const std::string what = std::to_string(width);
    ExpectAccepted(FlashConfig(), what.c_str(),
                   [=](auto& c) { c.hidden_size = width; });
    ExpectAccepted(FlashConfig(), what.c_str(),
                   [=](auto& c) { c.moe_intermediate_size = width; });
    ExpectAccepted(FlashConfig(), what.c_str(),
                   [=](auto& c) { c.shared_local_intermediate = width; });
    ExpectAccepted(DenseConfig(), what.c_str(),
                   [=](auto& c) { c.dense_local_intermediate = width; });
  }
  ACCEPT(FlashConfig(), shared_local_intermediate = 0);
}

TEST(Config, WidthsAreRefusedPastTheirLimits) {
  const std::string rule = ": must be a multiple of 16 from 16 to 65536";
  for (uint32_t width : {0u, 8u, 24u, 4095u, 65537u, 65552u, 0xFFFFFFF0u}) {
    const auto refuse = [&](const moeplan_config& base, const char* name,
                            const Change& change) {
      const std::string sentence = std::string("cannot plan ") + name + " " +
                                   std::to_string(width) + rule;
      ExpectRefused(base,
                    {change, moeplan_status_invalid_config, sentence.c_str()});
    };
    refuse(FlashConfig(), "hidden_size",
           [=](auto& c) { c.hidden_size = width; });
    refuse(DenseConfig(), "hidden_size",
           [=](auto& c) { c.hidden_size = width; });
    refuse(FlashConfig(), "moe_intermediate_size",
           [=](auto& c) { c.moe_intermediate_size = width; });
    refuse(DenseConfig(), "dense_local_intermediate",
           [=](auto& c) { c.dense_local_intermediate = width; });
    if (width == 0) continue; /* no shared expert here */
    refuse(FlashConfig(), "shared_local_intermediate",
           [=](auto& c) { c.shared_local_intermediate = width; });
  }
}

TEST(Config, CountsAreAcceptedAtTheirLimits) {
  ACCEPT(FlashConfig(), n_routed_experts = 1024);
  ACCEPT(FlashConfig(), n_routed_experts = c.num_experts_per_tok);
  ACCEPT(FlashConfig(), num_experts_per_tok = c.n_routed_experts = 1);
  ACCEPT(FlashConfig(), num_experts_per_tok = 32);
  ACCEPT(FlashConfig(), num_experts_per_tok = c.n_routed_experts = 32);
  ACCEPT(FlashConfig(), local_experts = 0);
  ACCEPT(FlashConfig(), local_experts = c.n_routed_experts);
  ACCEPT(FlashConfig(), max_rows = 1);
  ACCEPT(FlashConfig(), max_rows = 1048576);
  ACCEPT(DenseConfig(), max_rows = 1048576);
}

TEST(Config, CountsAreRefusedPastTheirLimits) {
  const Refusal refusals[] = {
      {SET(n_routed_experts = 0), moeplan_status_invalid_config,
       "cannot plan n_routed_experts 0: must be 1 to 1024"},
      {SET(n_routed_experts = 1025), moeplan_status_invalid_config,
       "cannot plan n_routed_experts 1025: must be 1 to 1024"},
      {SET(num_experts_per_tok = 0), moeplan_status_invalid_config,
       "cannot plan num_experts_per_tok 0: must be 1 to min(288 experts, 32)"},
      {SET(num_experts_per_tok = 33), moeplan_status_invalid_config,
       "cannot plan num_experts_per_tok 33: must be 1 to min(288 experts, "
       "32)"},
      {SET(n_routed_experts = 7), moeplan_status_invalid_config,
       "cannot plan num_experts_per_tok 8: must be 1 to min(7 experts, 32)"},
      {SET(local_experts = 289), moeplan_status_invalid_config,
       "cannot plan local_experts 289: the site has 288 experts"},
      {SET(max_rows = 0), moeplan_status_invalid_config,
       "cannot plan max_rows 0: must be 1 to 1048576"},
      {SET(max_rows = 1048577), moeplan_status_invalid_config,
       "cannot plan max_rows 1048577: must be 1 to 1048576"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(FlashConfig(), refusal);
}

TEST(Config, ExpertGroupsAreRefused) {
  const Refusal refusals[] = {
      {SET(n_group = 2), moeplan_status_unsupported_config,
       "cannot plan n_group 2, topk_group 1: expert groups must be 1 and 1"},
      {SET(n_group = 0), moeplan_status_unsupported_config,
       "cannot plan n_group 0, topk_group 1: expert groups must be 1 and 1"},
      {SET(topk_group = 4), moeplan_status_unsupported_config,
       "cannot plan n_group 1, topk_group 4: expert groups must be 1 and 1"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(FlashConfig(), refusal);
}

TEST(Config, OtherDtypesAreRefused) {
  for (int dtype : {0, 1, 3, 4, 5, -1}) {
    const std::string sentence = "cannot plan expert_dtype " +
                                 std::to_string(dtype) + ": must be nvfp4 (2)";
    ExpectRefused(
        FlashConfig(),
        {[=](auto& c) { c.expert_dtype = EnumOf<moeplan_dtype>(dtype); },
         moeplan_status_unsupported_config, sentence.c_str()});
  }
  for (int dtype : {1, 2, 3, 4, 5, -1}) {
    const std::string sentence = "cannot plan router_dtype " +
                                 std::to_string(dtype) + ": must be bf16 (0)";
    ExpectRefused(
        FlashConfig(),
        {[=](auto& c) { c.router_dtype = EnumOf<moeplan_dtype>(dtype); },
         moeplan_status_unsupported_config, sentence.c_str()});
  }
  for (uint32_t size : {0u, 8u, 32u}) {
    const std::string sentence = "cannot plan expert_group_size " +
                                 std::to_string(size) + ": must be 16";
    ExpectRefused(FlashConfig(),
                  {[=](auto& c) { c.expert_group_size = size; },
                   moeplan_status_unsupported_config, sentence.c_str()});
  }
}

TEST(Config, UnknownKindsAndScoringsAreRefused) {
  ExpectRefused(
      FlashConfig(),
      {SET(kind = EnumOf<moeplan_site_kind>(2)), moeplan_status_invalid_config,
       "cannot plan site kind 2: must be routed or dense"});
  ExpectRefused(
      FlashConfig(),
      {SET(scoring = EnumOf<moeplan_scoring>(2)), moeplan_status_invalid_config,
       "cannot plan scoring 2: must be sigmoid or softmax"});
  ACCEPT(FlashConfig(), scoring = moeplan_scoring_softmax);
}

TEST(Config, ScaleMustBeFinite) {
  ACCEPT(FlashConfig(), routed_scaling_factor = 0.0f);
  ACCEPT(FlashConfig(), routed_scaling_factor = -1.0f);
  ACCEPT(FlashConfig(), routed_scaling_factor = 3.4e38f);
  const Refusal refusals[] = {
      {SET(routed_scaling_factor = NAN), moeplan_status_invalid_config,
       "cannot plan routed_scaling_factor nan: must be finite"},
      {SET(routed_scaling_factor = INFINITY), moeplan_status_invalid_config,
       "cannot plan routed_scaling_factor inf: must be finite"},
      {SET(routed_scaling_factor = -INFINITY), moeplan_status_invalid_config,
       "cannot plan routed_scaling_factor -inf: must be finite"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(FlashConfig(), refusal);
}

TEST(Config, LimitMustBeAboveZeroOrNone) {
  const Refusal refusals[] = {
      {SET(swiglu_limit = 0.0f), moeplan_status_invalid_config,
       "cannot plan swiglu_limit 0: must be above 0, or "
       "MOEPLAN_NO_SWIGLU_LIMIT"},
      {SET(swiglu_limit = -7.0f), moeplan_status_invalid_config,
       "cannot plan swiglu_limit -7: must be above 0, or "
       "MOEPLAN_NO_SWIGLU_LIMIT"},
      {SET(swiglu_limit = -INFINITY), moeplan_status_invalid_config,
       "cannot plan swiglu_limit -inf: must be above 0, or "
       "MOEPLAN_NO_SWIGLU_LIMIT"},
      {SET(swiglu_limit = NAN), moeplan_status_invalid_config,
       "cannot plan swiglu_limit nan: must be above 0, or "
       "MOEPLAN_NO_SWIGLU_LIMIT"},
  };
  for (const moeplan_config& base : {FlashConfig(), DenseConfig()}) {
    ACCEPT(base, swiglu_limit = 1e-38f);
    ACCEPT(base, swiglu_limit = MOEPLAN_NO_SWIGLU_LIMIT);
    for (const Refusal& refusal : refusals) ExpectRefused(base, refusal);
  }
}

TEST(Config, RoutedAndDenseDoNotMix) {
  ExpectRefused(
      FlashConfig(),
      {SET(dense_local_intermediate = 64), moeplan_status_invalid_config,
       "cannot plan dense_local_intermediate 64 of a routed site: "
       "must be 0"});
  const Refusal refusals[] = {
      {SET(n_routed_experts = 288), moeplan_status_invalid_config,
       "cannot plan a dense site with 288 routed experts, intermediates 0 "
       "routed, 0 shared: must be 0"},
      {SET(moe_intermediate_size = 48), moeplan_status_invalid_config,
       "cannot plan a dense site with 0 routed experts, intermediates 48 "
       "routed, 0 shared: must be 0"},
      {SET(shared_local_intermediate = 32), moeplan_status_invalid_config,
       "cannot plan a dense site with 0 routed experts, intermediates 0 "
       "routed, 32 shared: must be 0"},
  };
  for (const Refusal& refusal : refusals) ExpectRefused(DenseConfig(), refusal);
}

TEST(Config, OtherStructSizesAreRefused) {
  const std::string wanted = std::to_string(sizeof(moeplan_config));
  for (size_t bytes :
       {size_t{0}, sizeof(moeplan_config) - 8, sizeof(moeplan_config) + 8}) {
    const std::string sentence = "cannot read config: struct_bytes is " +
                                 std::to_string(bytes) + ", must be " + wanted;
    ExpectRefused(FlashConfig(),
                  {[=](auto& c) { c.struct_bytes = bytes; },
                   moeplan_status_invalid_argument, sentence.c_str()});
  }
}

TEST(Config, NullIsRefused) {
  const moeplan_config config = FlashConfig();
  EXPECT_EQ(moeplan_config_check(nullptr), moeplan_status_invalid_argument);
  Hooks log;
  const moeplan_hooks hooks = log.get();
  moeplan_planner_t planner = kUntouched;
  const char* sentence =
      "cannot create a planner: config, device and planner_out must not be "
      "NULL";
  const auto create = [&](const moeplan_config* c, const char* device,
                          moeplan_planner_t* out) {
    return Refused(log, moeplan_status_invalid_argument, sentence, [=] {
      return moeplan_planner_create(c, device, &hooks, out);
    });
  };
  EXPECT_TRUE(create(nullptr, "host", &planner));
  EXPECT_TRUE(create(&config, nullptr, &planner));
  EXPECT_TRUE(create(&config, "host", nullptr));
  EXPECT_EQ(planner, kUntouched);
}

TEST(Device, OtherNamesAreRefused) {
  const moeplan_config config = FlashConfig();
  Hooks log;
  const moeplan_hooks hooks = log.get();
  for (const char* name :
       {"", "cpu", "Host", "host ", "cuda", "cuda:", "cuda:x", "cuda:-1",
        "cuda:1x", "cuda:1000", "cuda: 0", "plan:", "plan:x"}) {
    moeplan_planner_t planner = kUntouched;
    log.Clear();
    EXPECT_EQ(moeplan_planner_create(&config, name, &hooks, &planner),
              moeplan_status_invalid_argument);
    const auto errors = log.Lines(moeplan_log_error);
    ASSERT_EQ(errors.size(), 1u) << name;
    const std::string begin =
        std::string("cannot use device \"") + name + "\": must be \"host\"";
    EXPECT_EQ(errors[0].rfind(begin, 0), 0u) << errors[0];
    EXPECT_EQ(planner, kUntouched) << name;
  }
}

TEST(Hooks, UnevenAllocatorsAndSizesAreRefused) {
  const moeplan_config config = FlashConfig();
  Hooks log;
  const std::function<void(moeplan_hooks&)> changes[] = {
      [](moeplan_hooks& h) { h.allocate = nullptr; },
      [](moeplan_hooks& h) { h.deallocate = nullptr; },
      [](moeplan_hooks& h) { h.struct_bytes = 0; },
      [](moeplan_hooks& h) { h.struct_bytes += 8; },
  };
  for (const auto& change : changes) {
    moeplan_hooks hooks = log.get();
    change(hooks);
    moeplan_planner_t planner = kUntouched;
    EXPECT_EQ(moeplan_planner_create(&config, "host", &hooks, &planner),
              moeplan_status_invalid_argument);
    EXPECT_EQ(planner, kUntouched);
  }
}

TEST(Hooks, DefaultsAreMallocAndSilence) {
  const moeplan_config config = FlashConfig();
  const moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  for (const moeplan_hooks* given : {&hooks, (const moeplan_hooks*)nullptr}) {
    moeplan_planner_t planner = nullptr;
    ASSERT_EQ(moeplan_planner_create(&config, "host", given, &planner),
              moeplan_status_success);
    moeplan_plan_t plan = nullptr;
    EXPECT_EQ(moeplan_plan_create(planner, 0, nullptr, &plan),
              moeplan_status_invalid_argument);
    moeplan_planner_destroy(planner);
  }
}

}  // namespace
}  // namespace planning
