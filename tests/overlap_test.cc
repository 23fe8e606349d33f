// What a run writes may touch nothing else that is bound; y may be x.

#include "tests/planning_binding.h"

namespace planning {
namespace {

struct Pointer {
  const char* name;
  Bound::Piece piece;
  void (*set)(moeplan_binding&, void*);
};

#define POINTER(name, piece)                                       \
  {                                                                \
#name, Bound::piece,                                           \
        [](moeplan_binding & b,                                    \
           void* p) { b.name = static_cast<decltype(b.name)>(p); } \
  }

// The device writes these.
const Pointer kWritten[] = {
    POINTER(workspace, kWorkspace), POINTER(y, kY),
    POINTER(trace.ids, kIds),       POINTER(trace.weights, kWeights),
    POINTER(trace.cursor, kCursor),
};

const Pointer kRead[] = {
    POINTER(x, kX),
    POINTER(site, kSite),
    POINTER(live_rows, kLive),
    POINTER(topk_ids, kTopkIds),
    POINTER(topk_weights, kTopkWeights),
};

// `moved` put where `other` begins; x beside y's start, where y == x is not.
void ExpectOverlap(const Pointer& other, const Pointer& moved) {
  Bound bound;
  bound.BindAll();
  moeplan_binding binding = bound.binding;
  const bool x_on_y =
      std::string(other.name) == "y" && std::string(moved.name) == "x";
  moved.set(binding, bound.at(other.piece) + (x_on_y ? 16 : 0));
  moeplan_graph_t graph = nullptr;
  bound.planner.hooks().Clear();
  EXPECT_EQ(moeplan_graph_create(bound.plan.get(), &binding, &graph),
            moeplan_status_overlapping_memory)
      << moved.name << " on " << other.name;
  moeplan_graph_destroy(graph);
  const auto errors = bound.planner.hooks().Lines(moeplan_log_error);
  ASSERT_EQ(errors.size(), 1u) << moved.name << " on " << other.name;
  for (const char* name : {other.name, moved.name}) {
    EXPECT_NE(errors[0].find(name), std::string::npos) << errors[0];
  }
}

TEST(Overlap, NothingWrittenTouchesAnythingElse) {
  for (const Pointer& written : kWritten) {
    for (const Pointer& other : kWritten) {
      if (written.piece < other.piece) ExpectOverlap(written, other);
    }
    if (written.piece == Bound::kCursor) continue; /* below */
    for (const Pointer& other : kRead) ExpectOverlap(written, other);
  }
}

// A run moves the cursor: it is written too.
TEST(Overlap, TheTraceCursorTouchesNothingElse) {
  for (const Pointer& other : kRead) ExpectOverlap(kWritten[4], other);
}

TEST(Overlap, RefusalsWriteNothing) {
  Bound bound;
  moeplan_binding binding = bound.binding;
  binding.y = bound.at(Bound::kWorkspace);
  ExpectRefused(bound, binding, moeplan_status_overlapping_memory,
                "cannot bind workspace and y: they overlap (only y == x in "
                "bf16 with equal strides may)");
}

TEST(Overlap, TouchingIsAllowedAndOneRowIsNot) {
  Bound bound;
  char* workspace = bound.at(Bound::kWorkspace);
  const size_t bytes = bound.plan.info().workspace_bytes;
  moeplan_binding binding = bound.binding;
  binding.y = workspace + bytes;
  EXPECT_TRUE(Accepted(bound, binding));
  binding.y = workspace + bytes - 16;
  EXPECT_FALSE(Accepted(bound, binding));
  binding = bound.binding;
  binding.y = bound.at(Bound::kX) + kRows * kHidden * 2;
  EXPECT_TRUE(Accepted(bound, binding)) << "y right behind x";
  binding.x_stride = kHidden + 8;
  EXPECT_FALSE(Accepted(bound, binding)) << "x reaches further";
}

// The caller gives away all of it, also what this plan does not use.
TEST(Overlap, TheWholeWorkspaceIsTheWorkspace) {
  Bound bound;
  const size_t needed = bound.plan.info().workspace_bytes;
  moeplan_binding binding = bound.binding;
  binding.workspace_bytes = needed + 512;
  binding.y = bound.at(Bound::kWorkspace) + needed + 496;
  ExpectRefused(bound, binding, moeplan_status_overlapping_memory,
                "cannot bind workspace and y: they overlap (only y == x in "
                "bf16 with equal strides may)");
  binding.y = bound.at(Bound::kWorkspace) + needed + 512;
  EXPECT_TRUE(Accepted(bound, binding));
  binding.workspace_bytes = SIZE_MAX; /* past the last address */
  EXPECT_FALSE(Accepted(bound, binding));
}

TEST(Overlap, YMayBeXInBf16WithEqualStrides) {
  Bound bound;
  moeplan_binding binding = bound.binding;
  binding.y = bound.at(Bound::kX);
  EXPECT_TRUE(Accepted(bound, binding));
  binding.x_stride = kHidden;
  EXPECT_TRUE(Accepted(bound, binding)) << "0 stands for the row";
  binding.x_stride = binding.y_stride = kHidden + 8;
  EXPECT_TRUE(Accepted(bound, binding));
  const std::string sentence =
      "cannot bind y and x: they overlap (only y == x in bf16 with equal "
      "strides may)";
  const auto status = moeplan_status_overlapping_memory;
  binding.x_stride = kHidden + 16;
  ExpectRefused(bound, binding, status, sentence);
  binding = bound.binding;
  binding.y = bound.at(Bound::kX) + kHidden * 2;
  ExpectRefused(bound, binding, status, sentence);

  Bound f32(Options([](auto& o) { o.y_type = moeplan_dtype_f32; }));
  binding = f32.binding;
  binding.y = f32.at(Bound::kX);
  ExpectRefused(f32, binding, status, sentence);
}

TEST(Overlap, Float32RowsAreTwiceAsLong) {
  Bound bf16, f32(Options([](auto&o) { o.y_type = moeplan_dtype_f32; }));
  for (Bound* bound : {&bf16, &f32}) {
    moeplan_binding binding = bound->binding;
    binding.x = bound->at(Bound::kY) + kRows * kHidden * 2;
    EXPECT_EQ(Accepted(*bound, binding), bound == &bf16);
    binding.x = bound->at(Bound::kY) + kRows * kHidden * 4;
    EXPECT_TRUE(Accepted(*bound, binding));
  }
}

// y == x excuses that pair only: whatever else starts there is still refused.
TEST(Overlap, InPlaceExcusesOnlyXAndY) {
  std::vector<Pointer> others(std::begin(kWritten), std::end(kWritten));
  others.insert(others.end(), std::begin(kRead), std::end(kRead));
  for (const Pointer& other : others) {
    if (other.piece == Bound::kX || other.piece == Bound::kY) continue;
    Bound bound;
    bound.BindAll();
    moeplan_binding binding = bound.binding;
    binding.y = bound.at(other.piece);
    binding.x = binding.y;
    EXPECT_FALSE(Accepted(bound, binding)) << other.name;
  }
}

}  // namespace
}  // namespace planning
