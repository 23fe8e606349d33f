// What the tests of the planning half share: configurations, device
// descriptions, a log that is kept, and owners of planners and plans.

#ifndef MOEPLAN_TESTS_PLANNING_H_
#define MOEPLAN_TESTS_PLANNING_H_

#include <gtest/gtest.h>
#include <moeplan.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

extern "C" {
#include "lib/options.h"
#include "lib/plan.h"
}

namespace planning {

// A value of an enum that may have no name, as a C caller could pass it.
template <typename Enum>
__attribute__((no_sanitize("enum"))) Enum EnumOf(int value) {
  static_assert(sizeof(Enum) == sizeof(int));
  Enum result;
  std::memcpy(&result, &value, sizeof(result));
  return result;
}

// ---- configurations and devices ----------------------------------------------

// A routed layer of GLM-5.3-Flash on one rank.
inline moeplan_config FlashConfig() {
  moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.hidden_size = 4096;
  config.moe_intermediate_size = 2048;
  config.n_routed_experts = 288;
  config.shared_local_intermediate = 2048;
  config.routed_scaling_factor = 2.5f;
  config.swiglu_limit = 10.0f;
  return config;
}

inline moeplan_config DenseConfig(uint32_t hidden = 4096,
                                  uint32_t width = 12288) {
  moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.kind = moeplan_site_dense;
  config.hidden_size = hidden;
  config.dense_local_intermediate = width;
  return config;
}

// Small enough to run: 6 experts, top-2, hidden 32, intermediates 16.
inline moeplan_config SmallConfig() {
  moeplan_config config = MOEPLAN_CONFIG_INIT;
  config.hidden_size = 32;
  config.moe_intermediate_size = 16;
  config.n_routed_experts = 6;
  config.num_experts_per_tok = 2;
  config.shared_local_intermediate = 16;
  config.max_rows = 64;
  return config;
}

inline moep_device HostDevice() {
  moep_device device{};
  std::strcpy(device.name, "host");
  device.ordinal = -1;
  device.sm_count = 1;
  return device;
}

// Plans and prints as an H200 would; nothing can run on it.
inline moep_device H200Device() {
  moep_device device{};
  std::strcpy(device.name, "cuda:0");
  std::strcpy(device.model, "NVIDIA H200");
  device.sm = 90;
  device.sm_count = 132;
  moep_device_rates(&device);
  return device;
}

inline moeplan_options Options(
    const std::function<void(moeplan_options&)>& change = nullptr) {
  moeplan_options options = MOEPLAN_OPTIONS_INIT;
  if (change) change(options);
  return options;
}

// ---- log ---------------------------------------------------------------------

struct Line {
  moeplan_log_level level;
  std::string text;
};

// Keeps every line, counts live allocations, and fails the n-th on demand.
class Hooks {
 public:
  moeplan_hooks get() {
    moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
    hooks.context = this;
    hooks.allocate = [](void* context, size_t bytes) {
      return static_cast<Hooks*>(context)->Allocate(bytes);
    };
    hooks.deallocate = [](void* context, void* pointer) {
      static_cast<Hooks*>(context)->live_--;
      std::free(pointer);
    };
    hooks.log = [](void* context, moeplan_log_level level, const char* text) {
      static_cast<Hooks*>(context)->lines_.push_back({level, text});
    };
    return hooks;
  }

  // Allocation number `n` from here on fails, once; 0: none does.
  void FailAllocation(int n) { countdown_ = n; }
  int live() const { return live_; }
  int allocations() const { return allocations_; }

  void Clear() { lines_.clear(); }
  std::vector<std::string> Lines(moeplan_log_level level) const {
    std::vector<std::string> texts;
    for (const Line& line : lines_) {
      if (line.level == level) texts.push_back(line.text);
    }
    return texts;
  }

 private:
  void* Allocate(size_t bytes) {
    allocations_++;
    if (countdown_ != 0 && --countdown_ == 0) return nullptr;
    live_++;
    return std::malloc(bytes);
  }

  std::vector<Line> lines_;
  int live_ = 0;
  int allocations_ = 0;
  int countdown_ = 0;
};

// `call` is refused with `status` and logs exactly one sentence, `sentence`.
inline testing::AssertionResult Refused(
    Hooks& hooks, moeplan_status status, const std::string& sentence,
    const std::function<moeplan_status()>& call) {
  hooks.Clear();
  const moeplan_status got = call();
  if (got != status) {
    return testing::AssertionFailure()
           << moeplan_status_name(got) << ", not "
           << moeplan_status_name(status) << "; wanted: " << sentence;
  }
  const std::vector<std::string> errors = hooks.Lines(moeplan_log_error);
  if (errors.size() != 1) {
    return testing::AssertionFailure()
           << errors.size() << " sentences, not 1; wanted: " << sentence;
  }
  if (errors[0] != sentence) {
    return testing::AssertionFailure()
           << "logged: " << errors[0] << "\nwanted: " << sentence;
  }
  return testing::AssertionSuccess();
}

// ---- owners ------------------------------------------------------------------

class Planner {
 public:
  explicit Planner(const moeplan_config& config = FlashConfig(),
                   const moep_device& device = HostDevice()) {
    const moeplan_hooks hooks = hooks_.get();
    const moeplan_status status =
        moep_planner_create(&config, &device, &hooks, &planner_);
    EXPECT_EQ(status, moeplan_status_success);
  }
  ~Planner() {
    moeplan_planner_destroy(planner_);
    EXPECT_EQ(hooks_.live(), 0) << "allocations left";
  }
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  moeplan_planner_t get() const { return planner_; }
  Hooks& hooks() { return hooks_; }

 private:
  Hooks hooks_;
  moeplan_planner_t planner_ = nullptr;
};

// A plan that must succeed; check with ok() before use.
class Plan {
 public:
  Plan(const Planner& planner, uint32_t rows,
       const moeplan_options& options = Options()) {
    const moeplan_status status =
        moeplan_plan_create(planner.get(), rows, &options, &plan_);
    EXPECT_EQ(status, moeplan_status_success) << rows << " rows";
    if (plan_ == nullptr) return;
    info_.struct_bytes = sizeof(info_);
    EXPECT_EQ(moeplan_plan_info(plan_, &info_), moeplan_status_success);
  }
  ~Plan() { moeplan_plan_destroy(plan_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  bool ok() const { return plan_ != nullptr; }
  moeplan_plan_t get() const { return plan_; }
  const moeplan_plan* operator->() const { return plan_; }
  const struct moeplan_plan_info& info() const { return info_; }

  std::string Print() const { return Text(moeplan_plan_print); }
  std::string PrintWorkspace() const { return Text(moeplan_workspace_print); }

 private:
  using PrintFn = moeplan_status (*)(moeplan_plan_t, moeplan_write_fn, void*);

  static int Append(void* context, const char* text, size_t bytes) {
    static_cast<std::string*>(context)->append(text, bytes);
    return 0;
  }
  std::string Text(PrintFn print) const {
    std::string text;
    EXPECT_EQ(print(plan_, Append, &text), moeplan_status_success);
    return text;
  }

  moeplan_plan_t plan_ = nullptr;
  struct moeplan_plan_info info_ = {};
};

}  // namespace planning

#endif  // MOEPLAN_TESTS_PLANNING_H_
