// What the recipe tables and the kernel table promise, derived from the tables:
// nothing is read before it is written, y comes last, every row is covered once.

#include <regex>
#include <set>

#include "tests/planning.h"

namespace planning {
namespace {

// ---- plans of every recipe -----------------------------------------------------

moeplan_config WithoutShared() {
  moeplan_config config = FlashConfig();
  config.shared_local_intermediate = 0;
  return config;
}

// All routed experts on other ranks.
moeplan_config WithoutExperts() {
  moeplan_config config = FlashConfig();
  config.local_experts = 0;
  return config;
}

// A plan of each recipe for several row counts, with and without shared expert.
template <typename Check>
void ForEveryPlan(const Check& check) {
  for (const moeplan_config& config :
       {FlashConfig(), WithoutShared(), WithoutExperts(), DenseConfig()}) {
    Planner planner(config);
    for (size_t i = 0; i < moep_recipe_count; i++) {
      const moep_recipe& recipe = *moep_recipes[i];
      if (recipe.kind != config.kind) continue;
      for (uint32_t rows : {1u, 2u, 5u, 8u, 9u, 17u, 64u}) {
        if (recipe.id == moeplan_recipe_decode && rows != 1) continue;
        if (recipe.id == moeplan_recipe_verify && rows > 8) continue;
        SCOPED_TRACE(testing::Message()
                     << recipe.name << ", " << rows << " rows, width "
                     << config.shared_local_intermediate << ", "
                     << config.local_experts << " local experts");
        const Plan plan(planner, rows,
                        Options([&](auto& o) { o.recipe = recipe.id; }));
        ASSERT_TRUE(plan.ok());
        check(plan);
      }
    }
  }
}

// The nodes that share a range of rows, in order.
std::map<std::pair<uint32_t, uint32_t>, std::vector<const moep_node*>> Parts(
    const Plan& plan) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<const moep_node*>> parts;
  for (uint32_t i = 0; i < plan->node_count; i++) {
    const moep_node& node = plan->nodes[i];
    parts[{node.row_begin, node.row_count}].push_back(&node);
  }
  return parts;
}

TEST(Recipe, NothingIsReadBeforeItIsWritten) {
  ForEveryPlan([](const Plan& plan) {
    uint32_t absent = 0; /* what this site does not have */
    for (int i = 0; i < MOEP_BUFFER_COUNT; i++) {
      if (plan->layout.buffers[i].bytes == 0) absent |= 1u << i;
    }
    for (const auto& part : Parts(plan)) {
      uint32_t written = MOEP_X | absent;
      for (const moep_node* node : part.second) {
        EXPECT_EQ(node->step->reads & ~written, 0u)
            << moep_op_name(node->step->op) << " reads what no step wrote";
        written |= node->step->writes;
      }
    }
  });
}

// So that y may be x. A node that is a part of its own keeps the order itself: the
// tests that run plans in place see it.
TEST(Recipe, YIsWrittenLastAndXNotReadAfterwards) {
  ForEveryPlan([](const Plan& plan) {
    for (const auto& part : Parts(plan)) {
      const auto& nodes = part.second;
      for (const moep_node* node : nodes) {
        const bool last = node == nodes.back();
        EXPECT_EQ((node->step->writes & MOEP_Y) != 0, last)
            << moep_op_name(node->step->op);
        EXPECT_EQ(node->step->writes & MOEP_X, 0u);
        EXPECT_EQ(node->step->reads & MOEP_Y, 0u);
        EXPECT_FALSE(last && nodes.size() > 1 &&
                     (node->step->reads & MOEP_X) != 0)
            << moep_op_name(node->step->op);
      }
    }
  });
}

// A part reads no x that an earlier part has overwritten: its rows are its own,
// and its nodes stand together.
TEST(Recipe, PartsFollowEachOther) {
  ForEveryPlan([](const Plan& plan) {
    uint32_t next = 0, index = 0;
    for (const auto& part : Parts(plan)) {
      EXPECT_EQ(part.first.first, next);
      next += part.first.second;
      for (const moep_node* node : part.second) {
        EXPECT_EQ(node, &plan->nodes[index++]);
      }
    }
    EXPECT_EQ(next, plan->rows);
    EXPECT_EQ(index, plan->node_count);
  });
}

TEST(Recipe, EachOperationCoversEveryRowOnce) {
  ForEveryPlan([](const Plan& plan) {
    std::map<int, std::vector<int>> covered;
    for (uint32_t i = 0; i < plan->node_count; i++) {
      const moep_node& node = plan->nodes[i];
      std::vector<int>& rows = covered[node.step->op];
      rows.resize(plan->rows);
      ASSERT_GE(node.row_count, 1u);
      ASSERT_LE(node.row_begin + node.row_count, plan->rows);
      for (uint32_t r = 0; r < node.row_count; r++) rows[node.row_begin + r]++;
    }
    const std::vector<int> once(plan->rows, 1);
    for (const auto& operation : covered) {
      EXPECT_EQ(operation.second, once)
          << moep_op_name(static_cast<moep_op>(operation.first));
    }
  });
}

TEST(Recipe, NodesHaveAKernelOfTheirOperation) {
  ForEveryPlan([](const Plan& plan) {
    for (uint32_t i = 0; i < plan->node_count; i++) {
      const moep_node& node = plan->nodes[i];
      EXPECT_EQ(node.kernel->op, node.step->op) << node.kernel->name;
      EXPECT_GT(node.bytes, 0u) << node.kernel->name;
      EXPECT_EQ(node.launch.pdl, 0u) << "the host has none";
    }
  });
}

// A grid of 0 blocks cannot be launched, also where no expert is local.
TEST(Recipe, NodesHaveAGridWhateverIsLocal) {
  ForEveryPlan([](const Plan& plan) {
    std::string empty;
    for (uint32_t i = 0; i < plan->node_count; i++) {
      const moep_node& node = plan->nodes[i];
      if (node.launch.grid[0] >= 1 && node.launch.grid[1] >= 1) continue;
      empty += std::string(" ") + node.kernel->name;
    }
    EXPECT_EQ(empty, "") << "no blocks";
  });
}

// ---- tables --------------------------------------------------------------------

// Every recipe, and the TIERED forms.
std::vector<const moep_recipe*> AllTables() {
  std::vector<const moep_recipe*> tables;
  for (size_t i = 0; i < moep_recipe_count; i++) {
    tables.push_back(moep_recipes[i]);
    const moep_recipe* tiered = moep_recipe_find_tiered(moep_recipes[i]->id);
    if (tiered != nullptr) tables.push_back(tiered);
  }
  return tables;
}

TEST(Recipe, EveryBufferIsWrittenAndRead) {
  uint32_t reads = MOEP_BUF(matmul_work), writes = 0; /* read by its writer */
  for (const moep_recipe* table : AllTables()) {
    for (size_t s = 0; s < table->step_count; s++) {
      reads |= table->steps[s].reads;
      writes |= table->steps[s].writes;
    }
  }
  static const char* const names[] = {
#define NAME(name, type, outer, inner) #name,
      MOEP_BUFFER_MAP(NAME)
#undef NAME
  };
  for (int i = 0; i < MOEP_BUFFER_COUNT; i++) {
    EXPECT_TRUE(writes >> i & 1) << names[i] << " is written by no recipe";
    EXPECT_TRUE(reads >> i & 1) << names[i] << " is read by no recipe";
  }
}

TEST(Recipe, TableHoldsEachRecipeOnceByItsName) {
  EXPECT_EQ(moep_recipe_count, size_t{moeplan_recipe_dense});
  std::set<int> ids;
  for (size_t i = 0; i < moep_recipe_count; i++) {
    const moep_recipe& recipe = *moep_recipes[i];
    EXPECT_TRUE(ids.insert(recipe.id).second) << recipe.name;
    EXPECT_EQ(moep_recipe_find(recipe.id), &recipe);
    EXPECT_STREQ(recipe.name, moep_recipe_name(recipe.id));
    EXPECT_EQ(recipe.kind == moeplan_site_dense,
              recipe.id == moeplan_recipe_dense);
  }
  EXPECT_EQ(moep_recipe_find(moeplan_recipe_auto), nullptr);
  EXPECT_EQ(moep_recipe_find(EnumOf<moeplan_recipe>(7)), nullptr);
}

TEST(Recipe, EveryOperationIsUsed) {
  std::set<int> used;
  for (const moep_recipe* table : AllTables()) {
    for (size_t s = 0; s < table->step_count; s++) {
      used.insert(table->steps[s].op);
    }
  }
  EXPECT_EQ(used.size(), size_t{MOEP_OP_COUNT});
}

TEST(Recipe, TieredFormsAreOfTheSameRecipe) {
  size_t forms = 0;
  for (size_t i = 0; i < moep_recipe_count; i++) {
    const moep_recipe& recipe = *moep_recipes[i];
    const moep_recipe* tiered = moep_recipe_find_tiered(recipe.id);
    if (tiered == nullptr) continue;
    forms++;
    EXPECT_EQ(tiered->id, recipe.id);
    EXPECT_STREQ(tiered->name, recipe.name);
    EXPECT_EQ(tiered->kind, recipe.kind);
    EXPECT_EQ(tiered->split, moep_split_whole);
  }
  EXPECT_EQ(forms, 2u) << "prefill and dense";
}

// At most 4 nodes at one row, and as many for a group of rows.
TEST(Recipe, DecodeAndVerifyHaveAtMostFourSteps) {
  for (moeplan_recipe id : {moeplan_recipe_decode, moeplan_recipe_verify}) {
    EXPECT_LE(moep_recipe_find(id)->step_count, 4u);
  }
}

TEST(Kernels, NamesAreUniqueAndOfTheirOperation) {
  std::set<std::string> names;
  for (size_t i = 0; i < moep_kernel_count; i++) {
    const moep_kernel& kernel = moep_kernels[i];
    const std::regex form(std::string("moep_") + moep_op_name(kernel.op) +
                          "_(bf16|f32|i32|nvfp4)_(host|smxx|sm[0-9]+a?)");
    EXPECT_TRUE(std::regex_match(kernel.name, form)) << kernel.name;
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    const std::string arch = std::strrchr(kernel.name, '_') + 1;
    EXPECT_EQ(kernel.min_sm == 0, arch == "host") << kernel.name;
    EXPECT_EQ(kernel.load == nullptr, arch == "host") << kernel.name;
    EXPECT_NE(kernel.launch, nullptr) << kernel.name;
  }
}

TEST(Kernels, EveryOperationHasAHostKernel) {
  const moep_device host = HostDevice();
  std::set<std::string> names;
  for (int op = 0; op < MOEP_OP_COUNT; op++) {
    const char* name = moep_op_name(static_cast<moep_op>(op));
    EXPECT_TRUE(names.insert(name).second) << name;
    // The host device has no TIERED plans.
    if (moep_matmul_of(static_cast<moep_op>(op)) != MOEP_MATMUL_COUNT) continue;
    const moep_kernel_use use = {1, 16, false};
    const moep_kernel* kernel =
        moep_kernel_find(&host, static_cast<moep_op>(op), &use);
    ASSERT_NE(kernel, nullptr) << name;
    EXPECT_EQ(kernel->op, op) << name;
    EXPECT_EQ(kernel->min_sm, 0u) << name;
  }
}

TEST(Kernels, ANodeTakesTheLastThatFitsAndTheBaseTileTheFirst) {
  for (uint32_t sm : {75u, 80u, 90u, 100u, 120u}) {
    moep_device device = H200Device();
    device.sm = sm;
    for (const moep_kernel_use& use :
         std::initializer_list<moep_kernel_use>{{1, 1u << 12, false},
                                                {8, 16, false},
                                                {9, 16, false},
                                                {9, 64, false},
                                                {9, 1u << 12, false},
                                                {4096, 1u << 12, true}}) {
      for (int op = 0; op < MOEP_OP_COUNT; op++) {
        const moep_kernel* expected = nullptr;
        for (size_t i = 0; i < moep_kernel_count; i++) {
          const moep_kernel& kernel = moep_kernels[i];
          if (kernel.op == op && kernel.min_sm != 0 && kernel.min_sm <= sm &&
              sm <= kernel.max_sm && kernel.min_rows <= use.rows &&
              use.widths % kernel.multiple == 0 &&
              (expected == nullptr || !use.base)) {
            expected = &kernel;
          }
        }
        EXPECT_EQ(moep_kernel_find(&device, static_cast<moep_op>(op), &use),
                  expected)
            << moep_op_name(static_cast<moep_op>(op)) << " on sm_" << sm
            << ", rows " << use.rows << ", widths " << use.widths;
      }
    }
  }
}

}  // namespace
}  // namespace planning
