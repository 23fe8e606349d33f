// The workspace: nothing overlaps, one number answers every question about its
// size, it never shrinks with rows, and it stays under the bound of the design.

#include "tests/planning.h"

namespace planning {
namespace {

using Wide = unsigned __int128;

moep_dims Dims(const moeplan_config& config) {
  moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  moep_dims dims = {};
  EXPECT_EQ(moep_dims_read(&config, &hooks, &dims), moeplan_status_success);
  return dims;
}

moeplan_config Routed(uint32_t hidden, uint32_t inter, uint32_t experts,
                      uint32_t topk, uint32_t shared) {
  moeplan_config config = FlashConfig();
  config.hidden_size = hidden;
  config.moe_intermediate_size = inter;
  config.n_routed_experts = experts;
  config.num_experts_per_tok = topk;
  config.shared_local_intermediate = shared;
  config.max_rows = MOEP_MAX_ROWS;
  return config;
}

std::vector<moeplan_config> Shapes() {
  moeplan_config dense = DenseConfig();
  dense.max_rows = MOEP_MAX_ROWS;
  moeplan_config narrow = DenseConfig(16, 16);
  narrow.max_rows = MOEP_MAX_ROWS;
  return {Routed(4096, 2048, 288, 8, 2048),
          Routed(4096, 2048, 288, 8, 0),
          Routed(16, 16, 1, 1, 16),
          Routed(160, 208, 63, 9, 464),
          Routed(2880, 1408, 257, 32, 96),
          Routed(65536, 16, 1024, 32, 65536),
          Routed(16, 65536, 32, 32, 0),
          dense,
          narrow};
}

std::string Name(const moep_dims& d, uint32_t rows) {
  return "H " + std::to_string(d.hidden) + " I " + std::to_string(d.inter) +
         " E " + std::to_string(d.experts) + " k " + std::to_string(d.topk) +
         " W " + std::to_string(d.width) + " rows " + std::to_string(rows);
}

template <typename Check>
void ForEveryLayout(const Check& check) {
  for (const moeplan_config& config : Shapes()) {
    const moep_dims dims = Dims(config);
    for (uint32_t rows = 1; rows <= 70; rows++) check(dims, rows);
    for (uint32_t rows :
         {127u, 128u, 129u, 1000u, 4096u, 16384u, 1048575u, 1048576u}) {
      check(dims, rows);
    }
  }
}

moep_layout LayoutOf(const moep_dims& dims, uint32_t rows,
                     moeplan_numerics numerics = moeplan_numerics_invariant) {
  moep_layout layout;
  moep_layout_compute(&dims, rows, numerics, &layout);
  return layout;
}

TEST(Layout, BuffersAreAlignedAndApart) {
  ForEveryLayout([](const moep_dims& dims, uint32_t rows) {
    const moep_layout layout = LayoutOf(dims, rows, moeplan_numerics_tiered);
    ASSERT_EQ(layout.total_bytes % 256, 0u) << Name(dims, rows);
    for (int i = 0; i < MOEP_BUFFER_COUNT; i++) {
      const moep_extent& a = layout.buffers[i];
      ASSERT_EQ(a.offset % 256, 0u) << a.name << " " << Name(dims, rows);
      ASSERT_LE(a.offset + a.bytes, layout.total_bytes) << a.name;
      for (int j = i + 1; j < MOEP_BUFFER_COUNT; j++) {
        const moep_extent& b = layout.buffers[j];
        ASSERT_TRUE(a.bytes == 0 || b.bytes == 0 ||
                    a.offset + a.bytes <= b.offset ||
                    b.offset + b.bytes <= a.offset)
            << a.name << " and " << b.name << " overlap, " << Name(dims, rows);
      }
    }
  });
}

TEST(Layout, TotalNeverDecreasesWithRows) {
  size_t previous = 0;
  uint32_t previous_rows = 0;
  ForEveryLayout([&](const moep_dims& dims, uint32_t rows) {
    const size_t total =
        LayoutOf(dims, rows, moeplan_numerics_tiered).total_bytes;
    const bool grows = rows > previous_rows; /* else the next shape begins */
    ASSERT_TRUE(!grows || total >= previous) << Name(dims, rows);
    previous = total;
    previous_rows = rows;
  });
}

size_t BytesOfType(const std::string& type) {
  EXPECT_TRUE(type == "bf16" || type == "f32" || type == "i32" ||
              type == "u32" || type == "u8")
      << type;
  return type == "bf16" ? 2 : type == "u8" ? 1 : 4;
}

// 2^20 rows x top-32 x width 65536 does not wrap anywhere.
TEST(Layout, SizesAre64Bit) {
  ForEveryLayout([](const moep_dims& dims, uint32_t rows) {
    const moep_layout layout = LayoutOf(dims, rows, moeplan_numerics_tiered);
    Wide sum = 0;
    for (const moep_extent& buffer : layout.buffers) {
      const Wide bytes =
          Wide{buffer.shape[0]} * buffer.shape[1] * BytesOfType(buffer.type);
      ASSERT_TRUE(bytes == buffer.bytes) << buffer.name << Name(dims, rows);
      sum += (bytes + 255) / 256 * 256;
    }
    ASSERT_TRUE(sum == layout.total_bytes) << Name(dims, rows);
  });
}

TEST(Layout, TheLargestSlotBuffersHold64BitShapes) {
  const moep_dims dims = Dims(Routed(65536, 65536, 1024, 32, 65536));
  const moep_layout layout = LayoutOf(dims, 1u << 20);
  EXPECT_EQ(layout.buffers[moep_buffer_expert_h].bytes, size_t{1} << 42);
  EXPECT_EQ(layout.buffers[moep_buffer_slot_out].bytes, size_t{1} << 42);
  EXPECT_EQ(layout.buffers[moep_buffer_ffn_h].bytes, size_t{1} << 37);
  EXPECT_EQ(layout.buffers[moep_buffer_ffn_out].bytes, size_t{1} << 38);
  EXPECT_EQ(layout.buffers[moep_buffer_logits].bytes, size_t{1} << 32);
}

// The design: three activation buffers of max(rows x widest intermediate, rows x
// top_k x moe_intermediate) bf16, logits, ids, weights, slot outputs, shared
// output, union, sort arrays, offsets; and x in p order.
Wide Bound(const moep_dims& d, uint32_t rows) {
  const auto padded = [](Wide k) { return (k + 127) / 128 * 128; };
  const Wide R = rows, S = R * d.topk, H = d.hidden, E = d.experts;
  const Wide I = padded(d.inter);
  const Wide widest = I > d.width ? I : Wide{d.width};
  const Wide activation = 2 * (R * widest > S * I ? R * widest : S * I);
  Wide bound = 3 * activation + Wide{256} * MOEP_BUFFER_COUNT;
  if (d.kind == moeplan_site_dense) return bound;
  bound += 4 * R * E;                    // logits
  bound += 4 * S + 4 * S;                // ids, weights
  bound += 2 * S * H + 4 * R * H;        // slot outputs, shared output
  bound += 4 * ((S + 1023) / 1024) * E;  // sort: counts
  bound += 4 * S + 4 * S + 4 * (E + 1);  // sort: both ways, offsets
  return bound + 2 * R * padded(H);      // x in p order
}

TEST(Layout, StaysUnderTheDesignsBound) {
  ForEveryLayout([](const moep_dims& dims, uint32_t rows) {
    const Wide bound = Bound(dims, rows);
    ASSERT_TRUE(LayoutOf(dims, rows).total_bytes <= bound) << Name(dims, rows);
    ASSERT_TRUE(LayoutOf(dims, rows, moeplan_numerics_tiered).total_bytes <=
                bound + MOEP_MATMUL_WORK_BYTES)
        << Name(dims, rows) << ", TIERED";
  });
}

// TIERED adds to plans of more than 8 rows alone.
TEST(Layout, TieredAddsItsBuffersAbove8Rows) {
  for (const moeplan_config& config : Shapes()) {
    const moep_dims dims = Dims(config);
    for (uint32_t rows : {1u, 8u, 9u, 64u}) {
      const size_t more =
          LayoutOf(dims, rows, moeplan_numerics_tiered).total_bytes -
          LayoutOf(dims, rows).total_bytes;
      const size_t up = (size_t{2} * rows * dims.width + 255) / 256 * 256;
      EXPECT_EQ(more, rows <= 8 ? 0 : up + MOEP_MATMUL_WORK_BYTES)
          << Name(dims, rows);
    }
  }
}

TEST(Layout, ASiteHasOnlyTheBuffersItNeeds) {
  const moep_layout dense = LayoutOf(Dims(DenseConfig()), 8);
  for (int i = 0; i < MOEP_BUFFER_COUNT; i++) {
    EXPECT_EQ(dense.buffers[i].bytes != 0, i == moep_buffer_ffn_h)
        << dense.buffers[i].name;
  }
  const moep_layout lone = LayoutOf(Dims(Routed(64, 32, 8, 2, 0)), 8);
  for (int i = 0; i < MOEP_BUFFER_COUNT; i++) {
    EXPECT_EQ(lone.buffers[i].bytes == 0,
              i == moep_buffer_ffn_h || i == moep_buffer_ffn_out ||
                  i == moep_buffer_ffn_up || i == moep_buffer_matmul_work)
        << lone.buffers[i].name;
  }
}

// ---- the size query, the layout and the plan agree -----------------------------

size_t SizeOf(const Planner& planner, uint32_t rows,
              const moeplan_options* options = nullptr) {
  size_t bytes = 0;
  EXPECT_EQ(moeplan_workspace_size(planner.get(), rows, options, &bytes),
            moeplan_status_success);
  return bytes;
}

TEST(WorkspaceSize, IsTheLayoutsTotalAndThePlans) {
  for (const moeplan_config& config : Shapes()) {
    Planner planner(config);
    for (uint32_t rows : {1u, 2u, 8u, 9u, 64u, 4096u}) {
      const size_t bytes = SizeOf(planner, rows);
      EXPECT_EQ(bytes, LayoutOf(Dims(config), rows).total_bytes) << rows;
      EXPECT_EQ(bytes, Plan(planner, rows).info().workspace_bytes) << rows;
    }
  }
}

TEST(WorkspaceSize, CoversEveryRecipeTileAndLeverUpToItsRows) {
  using Change = std::function<void(moeplan_options&)>;
  std::vector<Change> levers = {
      [](auto&) {},
      [](auto& o) { o.no_row_batch = o.no_grouped = true; },
      [](auto& o) { o.no_grouped = true; },
      [](auto& o) { o.host_dispatch = true; },
      [](auto& o) { o.y_type = moeplan_dtype_f32; },
      [](auto& o) { o.no_pdl = o.no_cublas = true; },
      [](auto& o) { o.sm_limit = 2; },
      [](auto& o) { o.grouped_min_rows = 64; },
  };
  for (uint32_t cap = 1; cap <= 8; cap++) {
    levers.push_back([=](auto& o) {
      o.row_batch_max = cap;
      o.no_grouped = true;
    });
  }
  for (const char* tile : {"n8", "n16", "n32", "n48", "n64", "n80", "n96",
                           "n128", "n256", "base"}) {
    levers.push_back([=](auto& o) {
      o.tile = tile;
      o.recipe = moeplan_recipe_prefill;
    });
  }
  for (int recipe = moeplan_recipe_row_groups; recipe <= moeplan_recipe_per_row;
       recipe++) {
    levers.push_back(
        [=](auto& o) { o.recipe = EnumOf<moeplan_recipe>(recipe); });
  }
  Planner planner;
  const uint32_t max_rows = 100;
  const size_t size = SizeOf(planner, max_rows);
  for (const Change& lever : levers) {
    const moeplan_options options = Options(lever);
    EXPECT_EQ(SizeOf(planner, max_rows, &options), size);
    for (uint32_t rows : {1u, 2u, 7u, 8u, 9u, 17u, 63u, 99u, 100u}) {
      ASSERT_LE(Plan(planner, rows, options).info().workspace_bytes, size)
          << rows << " rows\n"
          << Plan(planner, rows, options).Print();
    }
  }
}

}  // namespace
}  // namespace planning
