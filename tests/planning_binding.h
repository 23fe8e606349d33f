// A small plan with a binding whose every piece lies in one poisoned arena, and
// what its refusal means.

#ifndef MOEPLAN_TESTS_PLANNING_BINDING_H_
#define MOEPLAN_TESTS_PLANNING_BINDING_H_

#include "tests/planning_site.h"

namespace planning {

constexpr uint32_t kRows = 4, kHidden = 32;
constexpr size_t kSlotBytes = 32768; /* room for each piece of the arena */

// A plan of 4 rows with every pointer of a binding in one poisoned arena. The
// experts are all elsewhere, the shared weights are zero: y is zero.
class Bound {
 public:
  enum Piece {
    kWorkspace,
    kY,
    kIds,
    kWeights,
    kCursor,
    kX,
    kSite,
    kLive,
    kTopkIds,
    kTopkWeights,
    kFfn,
    kPieces
  };

  explicit Bound(const moeplan_options& options = Options(),
                 const moeplan_config& config = Config())
      : planner(config),
        plan(planner, kRows, options),
        bytes_(kPieces * kSlotBytes + 256, 0xA5) {
    const bool routed = config.kind == moeplan_site_routed;
    std::memset(at(kFfn), 0, kSlotBytes);
    std::memset(at(kX), 0, kSlotBytes);
    Site site(!routed);
    for (uint32_t e = 0; e < Site::kExperts; e++) site.Drop(e);
    site.site.router = routed ? at(kFfn) : nullptr;
    site.site.router_bias = nullptr;
    (routed ? site.site.shared : site.site.dense) = {at(kFfn), at(kFfn),
                                                     at(kFfn), 0};
    EXPECT_EQ(
        moeplan_site_write(planner.get(), &site.site, at(kSite), kSlotBytes),
        moeplan_status_success);
    binding.site = at(kSite);
    binding.x = at(kX);
    binding.y = at(kY);
    binding.workspace = at(kWorkspace);
    binding.workspace_bytes = plan.info().workspace_bytes;
    EXPECT_LE(binding.workspace_bytes, kSlotBytes);
  }

  static moeplan_config Config() {
    moeplan_config config = SmallConfig();
    config.local_experts = 0;
    return config;
  }

  // 256-byte aligned.
  char* at(Piece piece) {
    const auto base = reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<char*>((base + 255) / 256 * 256) +
           piece * kSlotBytes;
  }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

  // Everything that may be bound, bound.
  void BindAll() {
    binding.live_rows = reinterpret_cast<int32_t*>(at(kLive));
    binding.topk_ids = reinterpret_cast<int32_t*>(at(kTopkIds));
    binding.topk_weights = reinterpret_cast<float*>(at(kTopkWeights));
    binding.trace = {reinterpret_cast<int32_t*>(at(kIds)),
                     reinterpret_cast<float*>(at(kWeights)),
                     reinterpret_cast<uint64_t*>(at(kCursor)), kRows};
  }

  Planner planner;
  Plan plan;
  moeplan_binding binding = MOEPLAN_BINDING_INIT;

 private:
  std::vector<unsigned char> bytes_;
};

// Refused by all three calls; no byte of the arena changes.
inline void ExpectRefused(Bound& bound, const moeplan_binding& binding,
                          moeplan_status status, const std::string& sentence) {
  const std::vector<unsigned char> before = bound.bytes();
  EXPECT_TRUE(Refused(bound.planner.hooks(), status, sentence, [&] {
    return moeplan_enqueue(bound.plan.get(), &binding, nullptr);
  }));
  const auto untouched = reinterpret_cast<moeplan_graph_t>(0x5A5A);
  moeplan_graph_t graph = untouched;
  EXPECT_TRUE(Refused(bound.planner.hooks(), status, sentence, [&] {
    return moeplan_graph_create(bound.plan.get(), &binding, &graph);
  }));
  EXPECT_EQ(graph, untouched) << sentence;
  moeplan_graph_t good = nullptr;
  ASSERT_EQ(moeplan_graph_create(bound.plan.get(), &bound.binding, &good),
            moeplan_status_success);
  EXPECT_TRUE(Refused(bound.planner.hooks(), status, sentence,
                      [&] { return moeplan_graph_update(good, &binding); }));
  moeplan_graph_destroy(good);
  EXPECT_TRUE(bound.bytes() == before)
      << "written although refused: " << sentence;
}

inline bool Accepted(const Bound& bound, const moeplan_binding& binding) {
  moeplan_graph_t graph = nullptr;
  const moeplan_status status =
      moeplan_graph_create(bound.plan.get(), &binding, &graph);
  moeplan_graph_destroy(graph);
  return status == moeplan_status_success;
}

using Change = std::function<void(moeplan_binding&)>;

template <typename T>
T* Shift(T* pointer, ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) +
                              static_cast<uintptr_t>(bytes));
}

}  // namespace planning

#endif  // MOEPLAN_TESTS_PLANNING_BINDING_H_
