// Every check of a binding, by enqueue, graph_create and graph_update on the
// host: what is refused writes nothing.

#include "tests/planning_binding.h"

extern "C" {
#include "lib/binding.h"
}

namespace planning {
namespace {

void ExpectRefusedAfter(const Change& change, moeplan_status status,
                        const std::string& sentence) {
  Bound bound;
  bound.BindAll();
  moeplan_binding binding = bound.binding;
  change(binding);
  ExpectRefused(bound, binding, status, sentence);
}

#define SET(assignment) [](moeplan_binding& b) { b.assignment; }

// ---- NULL, alignment, strides ----------------------------------------------------

TEST(Binding, NullPointersAreRefused) {
  const auto status = moeplan_status_invalid_argument;
  ExpectRefusedAfter(SET(site = nullptr), status,
                     "cannot bind site: must not be NULL");
  ExpectRefusedAfter(SET(x = nullptr), status,
                     "cannot bind x: must not be NULL");
  ExpectRefusedAfter(SET(y = nullptr), status,
                     "cannot bind y: must not be NULL");
  ExpectRefusedAfter(SET(workspace = nullptr), status,
                     "cannot bind workspace: must not be NULL");
}

TEST(Binding, MisalignedPointersAreRefused) {
  const auto expect = [](const char* name, int alignment, auto member) {
    Bound bound;
    bound.BindAll();
    moeplan_binding binding = bound.binding;
    auto& pointer = member(binding);
    pointer = Shift(pointer, alignment / 2);
    ExpectRefused(bound, binding, moeplan_status_misaligned_pointer,
                  std::string("cannot bind ") + name + " " +
                      Text((const void*)pointer) + ": must be a multiple of " +
                      std::to_string(alignment) + " bytes");
  };
#define MEMBER(name) \
  [](moeplan_binding & b) -> auto& { return b.name; }
  expect("site", 16, MEMBER(site));
  expect("x", 16, MEMBER(x));
  expect("y", 16, MEMBER(y));
  expect("workspace", 256, MEMBER(workspace));
  expect("live_rows", 4, MEMBER(live_rows));
  expect("topk_ids", 4, MEMBER(topk_ids));
  expect("topk_weights", 4, MEMBER(topk_weights));
  expect("trace.ids", 4, MEMBER(trace.ids));
  expect("trace.weights", 4, MEMBER(trace.weights));
  expect("trace.cursor", 8, MEMBER(trace.cursor));
#undef MEMBER
}

// On CUDA a blob may hold tensor maps, which want more.
TEST(Binding, ACudaBlobIsAMultipleOf128) {
  Bound bound;
  moep_device device = H200Device();
  device.shared_bytes = 232448;
  Planner planner(Bound::Config(), device);
  Plan plan(planner, kRows);
  moeplan_binding binding = bound.binding, out;
  binding.workspace_bytes = plan.info().workspace_bytes;
  for (int shift : {0, 16, 64, 128}) {
    binding.site = bound.at(Bound::kSite) + shift;
    const auto read = [&] {
      return moep_binding_read(plan.get(), &binding, &out);
    };
    if (shift % 128 == 0) {
      EXPECT_EQ(read(), moeplan_status_success) << shift;
      continue;
    }
    EXPECT_TRUE(Refused(planner.hooks(), moeplan_status_misaligned_pointer,
                        "cannot bind site " + Text(binding.site) +
                            ": must be a multiple of 128 bytes",
                        read));
  }
}

TEST(Binding, StridesAreMultiplesOf8FromTheRowOn) {
  for (bool of_y : {false, true}) {
    const std::string name = of_y ? "y_stride" : "x_stride";
    const auto expect = [&](size_t stride, moeplan_status status,
                            const std::string& rule) {
      ExpectRefusedAfter(
          [&](auto& b) { (of_y ? b.y_stride : b.x_stride) = stride; }, status,
          "cannot bind " + name + " " + std::to_string(stride) + rule);
    };
    const auto bad = moeplan_status_invalid_argument;
    for (size_t stride : {1, 33, 36, 44}) {
      expect(stride, moeplan_status_misaligned_pointer,
             ": must be a multiple of 8 elements");
    }
    expect(8, bad, ": must be 32 (the row) to 4294967295");
    expect(24, bad, ": must be 32 (the row) to 4294967295");
    expect(size_t{1} << 32, bad, ": must be 32 (the row) to 4294967295");
    Bound bound;
    for (size_t stride : {0, 32, 40, 1024}) {
      moeplan_binding binding = bound.binding;
      (of_y ? binding.y_stride : binding.x_stride) = stride;
      EXPECT_TRUE(Accepted(bound, binding)) << name << " " << stride;
    }
  }
}

TEST(Binding, OtherStructSizesAreRefused) {
  ExpectRefusedAfter(SET(struct_bytes += 8), moeplan_status_invalid_argument,
                     "cannot read binding: struct_bytes is " +
                         std::to_string(sizeof(moeplan_binding) + 8) +
                         ", must be " +
                         std::to_string(sizeof(moeplan_binding)));
}

TEST(Binding, AWorkspaceOneByteShortIsRefused) {
  Bound bound;
  const size_t needed = bound.plan.info().workspace_bytes;
  moeplan_binding binding = bound.binding;
  EXPECT_TRUE(Accepted(bound, binding));
  binding.workspace_bytes = needed - 1;
  ExpectRefused(bound, binding, moeplan_status_workspace_too_small,
                "cannot bind a workspace of " + std::to_string(needed - 1) +
                    " bytes: the plan of 4 rows needs " +
                    std::to_string(needed));
}

// ---- external routing and trace ---------------------------------------------------

TEST(Binding, IdsAndWeightsGoTogether) {
  Bound bound;
  bound.BindAll();
  moeplan_binding binding = bound.binding;
  binding.topk_weights = nullptr;
  ExpectRefused(bound, binding, moeplan_status_invalid_argument,
                "cannot bind topk_ids " + Text(binding.topk_ids) +
                    ", topk_weights (nil): must be set together");
  binding = bound.binding;
  binding.topk_ids = nullptr;
  ExpectRefused(bound, binding, moeplan_status_invalid_argument,
                "cannot bind topk_ids (nil), topk_weights " +
                    Text(binding.topk_weights) + ": must be set together");
}

TEST(Binding, TheTraceGoesTogether) {
  const Change changes[] = {SET(trace.ids = nullptr),
                            SET(trace.weights = nullptr),
                            SET(trace.cursor = nullptr)};
  for (const Change& change : changes) {
    Bound bound;
    bound.BindAll();
    moeplan_binding binding = bound.binding;
    change(binding);
    ExpectRefused(bound, binding, moeplan_status_invalid_argument,
                  "cannot bind trace ids " + Text(binding.trace.ids) +
                      ", weights " + Text(binding.trace.weights) + ", cursor " +
                      Text(binding.trace.cursor) + ": must be set together");
  }
}

TEST(Binding, TheRingHoldsThePlansRows) {
  for (uint32_t rows : {0u, 3u}) {
    ExpectRefusedAfter([=](auto& b) { b.trace.capacity_rows = rows; },
                       moeplan_status_invalid_argument,
                       "cannot bind a trace ring of " + std::to_string(rows) +
                           " rows: the plan has 4");
  }
  Bound bound;
  bound.BindAll();
  EXPECT_TRUE(Accepted(bound, bound.binding));
}

TEST(Binding, ADenseSiteHasNoRouter) {
  const std::string sentence =
      "cannot bind topk_ids or a trace ring to a dense site: it has no router";
  for (bool trace : {false, true}) {
    Bound bound(Options(), DenseConfig(kHidden, 16));
    Bound routed;
    routed.BindAll();
    moeplan_binding binding = bound.binding;
    binding.live_rows = routed.binding.live_rows;
    EXPECT_TRUE(Accepted(bound, binding));
    if (trace) {
      binding.trace = routed.binding.trace;
    } else {
      binding.topk_ids = routed.binding.topk_ids;
      binding.topk_weights = routed.binding.topk_weights;
    }
    ExpectRefused(bound, binding, moeplan_status_invalid_argument, sentence);
  }
}

// ---- calls --------------------------------------------------------------------------

TEST(Binding, NullsOfTheCallsAreRefused) {
  Bound bound;
  Hooks& hooks = bound.planner.hooks();
  const auto bad = moeplan_status_invalid_argument;
  moeplan_graph_t graph = nullptr;
  EXPECT_EQ(moeplan_enqueue(nullptr, &bound.binding, nullptr), bad);
  EXPECT_EQ(moeplan_graph_create(nullptr, &bound.binding, &graph), bad);
  EXPECT_EQ(moeplan_graph_update(nullptr, &bound.binding), bad);
  EXPECT_EQ(moeplan_graph_replay(nullptr, nullptr), bad);
  EXPECT_TRUE(Refused(
      hooks, bad, "cannot create a graph: graph_out must not be NULL", [&] {
        return moeplan_graph_create(bound.plan.get(), &bound.binding, nullptr);
      }));
  const char* sentence = "cannot bind a plan: binding must not be NULL";
  EXPECT_TRUE(Refused(hooks, bad, sentence, [&] {
    return moeplan_enqueue(bound.plan.get(), nullptr, nullptr);
  }));
  EXPECT_TRUE(Refused(hooks, bad, sentence, [&] {
    return moeplan_graph_create(bound.plan.get(), nullptr, &graph);
  }));
  EXPECT_EQ(graph, nullptr);
  moeplan_graph_destroy(nullptr);
}

TEST(Binding, TheHostHasNoChildGraphs) {
  Bound bound;
  const auto parent = reinterpret_cast<cudaGraph_t>(0x10);
  cudaGraphNode_t node = nullptr;
  EXPECT_TRUE(Refused(bound.planner.hooks(), moeplan_status_unsupported_device,
                      "cannot add a child graph on the host device: it has no "
                      "CUDA graphs",
                      [&] {
                        return moeplan_graph_add_child(bound.plan.get(),
                                                       &bound.binding, parent,
                                                       nullptr, 0, &node);
                      }));
  EXPECT_TRUE(Refused(bound.planner.hooks(), moeplan_status_invalid_argument,
                      "cannot add a child graph: parent, node_out and 2 "
                      "dependencies must not be NULL",
                      [&] {
                        return moeplan_graph_add_child(bound.plan.get(),
                                                       &bound.binding, parent,
                                                       nullptr, 2, &node);
                      }));
  EXPECT_EQ(node, nullptr);
}

TEST(Binding, HostDispatchIsNotCaptured) {
  Bound bound(Options([](auto& o) { o.host_dispatch = true; }));
  moeplan_graph_t graph = nullptr;
  EXPECT_TRUE(Refused(bound.planner.hooks(), moeplan_status_invalid_state,
                      "cannot capture a plan with host_dispatch: it reads ids "
                      "back and runs by moeplan_enqueue only",
                      [&] {
                        return moeplan_graph_create(bound.plan.get(),
                                                    &bound.binding, &graph);
                      }));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(moeplan_enqueue(bound.plan.get(), &bound.binding, nullptr),
            moeplan_status_success);
}

}  // namespace
}  // namespace planning
