// Whole sites at many rows, at skewed routings and with offsets past 4 GiB: each
// row is still that of its own plan of one row.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/harness_cc.h"

namespace {

using moeplan_test::Options;
using moeplan_test::Result;
using moeplan_test::Site;

const moeplan_recipe kRecipes[] = {moeplan_recipe_auto, moeplan_recipe_prefill,
                                   moeplan_recipe_row_groups,
                                   moeplan_recipe_per_row};

// ---- many rows -------------------------------------------------------------------

// 1000 rows and more fill the second and third tile of the sort.
TEST(ManyRows, EveryRecipeEqualsRowsAlone) {
  Site site(harness_of(harness_config(32, 16, 12, 2, 16), 21, 1100));
  for (uint32_t rows : {71u, 128u, 257u, 512u, 513u, 1000u, 1100u}) {
    for (moeplan_recipe recipe : kRecipes) {
      const moeplan_options options = Options().Recipe(recipe);
      harness_run run = harness_rows(1100 - rows, rows);
      run.options = &options;
      const Result result = site.Run(run);
      ASSERT_EQ(result->status, moeplan_status_success) << site.log();
      EXPECT_TRUE(result->guards_intact);
      EXPECT_EQ(result->traced, rows);
      for (uint32_t r = 0; r < rows; r++) {
        ASSERT_EQ(harness_row_difference(site.get(), result.get(), r,
                                         site.Alone(run.first_row + r), 0),
                  nullptr)
            << "row " << r << " of " << rows << ", recipe " << recipe;
      }
    }
  }
}

TEST(ManyRows, DenseEqualsRowsAlone) {
  Site site(harness_of(harness_dense_config(32, 48), 22, 1100));
  for (uint32_t rows : {71u, 257u, 1100u}) {
    const Result result = site.Run(harness_rows(1100 - rows, rows));
    ASSERT_EQ(result->status, moeplan_status_success) << site.log();
    for (uint32_t r = 0; r < rows; r++) {
      ASSERT_EQ(harness_row_difference(site.get(), result.get(), r,
                                       site.Alone(1100 - rows + r), 0),
                nullptr)
          << "row " << r << " of " << rows;
    }
  }
}

// ---- skews -----------------------------------------------------------------------

// Routing from outside, the same for every plan.
struct Routing {
  uint32_t topk;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  Routing(uint32_t rows, uint32_t k,
          const std::function<int32_t(uint32_t, uint32_t)>& id)
      : topk(k) {
    harness_random random = {rows};
    for (uint32_t r = 0; r < rows; r++) {
      for (uint32_t j = 0; j < k; j++) {
        ids.push_back(id(r, j));
        weights.push_back(0x1p-9f *
                          static_cast<float>(harness_below(&random, 900)));
      }
    }
  }
  harness_run Rows(uint32_t first, uint32_t rows) const {
    harness_run run = harness_rows(first, rows);
    run.topk_ids = ids.data() + size_t{first} * topk;
    run.topk_weights = weights.data() + size_t{first} * topk;
    return run;
  }
};

void ExpectEveryRecipe(Site& site, uint32_t rows, const Routing& routing) {
  std::vector<Result> alone;
  for (uint32_t r = 0; r < rows; r++) {
    alone.push_back(site.Run(routing.Rows(r, 1)));
    ASSERT_EQ(alone[r]->status, moeplan_status_success) << site.log();
  }
  std::vector<moeplan_options> all;
  for (auto recipe : kRecipes) all.push_back(Options().Recipe(recipe));
  all.push_back(Options().HostDispatch());
  for (const char* tile : {"n8", "n64", "n128", "n256"}) {
    all.push_back(Options().Recipe(moeplan_recipe_prefill).Tile(tile));
  }
  for (const moeplan_options& options : all) {
    harness_run run = routing.Rows(0, rows);
    run.options = &options;
    const Result result = site.Run(run);
    ASSERT_EQ(result->status, moeplan_status_success) << site.log();
    EXPECT_TRUE(result->guards_intact);
    ASSERT_EQ(0, std::memcmp(result->ids, routing.ids.data(),
                             routing.ids.size() * sizeof(int32_t)));
    for (uint32_t r = 0; r < rows; r++) {
      ASSERT_EQ(harness_row_difference(site.get(), result.get(), r,
                                       alone[r].get(), 0),
                nullptr)
          << "row " << r << " of " << rows << ", option "
          << &options - all.data();
    }
  }
}

TEST(Skew, OneExpertTakesEveryRow) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 23, 300));
  for (uint32_t rows : {9u, 64u, 300u}) {
    // Somewhere in the row; the other slots are unfilled.
    const Routing routing(
        rows, 8, [](uint32_t r, uint32_t j) { return j == r % 8 ? 17 : -1; });
    ExpectEveryRecipe(site, rows, routing);
    if (HasFatalFailure()) return;
  }
}

TEST(Skew, OneExpertTakesEverySlot) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 24, 300));
  for (uint32_t rows : {9u, 64u, 300u}) {
    const Routing routing(rows, 8, [](uint32_t, uint32_t) { return 23; });
    ExpectEveryRecipe(site, rows, routing);
    if (HasFatalFailure()) return;
  }
}

TEST(Skew, EightExpertsTakeEveryRow) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 25, 300));
  for (uint32_t rows : {9u, 64u, 300u}) {
    const Routing routing(rows, 8, [](uint32_t r, uint32_t j) {
      return static_cast<int32_t>((r + j) % 8 * 3);
    });
    ExpectEveryRecipe(site, rows, routing);
    if (HasFatalFailure()) return;
  }
}

TEST(Skew, EveryExpertTakesOneSlot) {
  for (uint32_t rows : {9u, 64u, 300u}) {
    const uint32_t experts = 2 * rows;
    Site site(harness_of(harness_config(32, 16, experts, 2, 16), 26, rows));
    // 7 divides none of the counts: each expert once.
    const Routing routing(rows, 2, [=](uint32_t r, uint32_t j) {
      return static_cast<int32_t>((2 * r + j) * 7 % experts);
    });
    ExpectEveryRecipe(site, rows, routing);
    if (HasFatalFailure()) return;
  }
}

// ---- a binding of the test's own -------------------------------------------------

// A plan on poisoned memory, bound by hand.
class Bound {
 public:
  Bound(Site& site, uint32_t rows, const moeplan_options& options)
      : site_(site), rows_(rows) {
    EXPECT_EQ(moeplan_plan_create(site.get()->planner, rows, &options, &plan_),
              moeplan_status_success)
        << site.log();
    struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
    EXPECT_EQ(moeplan_plan_info(plan_, &info), moeplan_status_success);
    y_ = Poison<uint16_t>(y_count() * 2);
    binding.site = site.get()->blob;
    binding.x = site.get()->x;
    binding.y = y_;
    binding.workspace = Poison<uint8_t>(info.workspace_bytes);
    binding.workspace_bytes = info.workspace_bytes;
    if (topk() == 0) return;
    binding.trace = {Poison<int32_t>(rows * topk() * 4),
                     Poison<float>(rows * topk() * 4), &cursor_, rows};
  }
  ~Bound() { moeplan_plan_destroy(plan_); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  moeplan_status Enqueue() { return moeplan_enqueue(plan_, &binding, nullptr); }
  moeplan_status Replay() {
    moeplan_graph_t graph = nullptr;
    const moeplan_status status = moeplan_graph_create(plan_, &binding, &graph);
    if (status != moeplan_status_success) return status;
    const moeplan_status replayed = moeplan_graph_replay(graph, nullptr);
    moeplan_graph_destroy(graph);
    return replayed;
  }

  uint64_t traced() const { return cursor_; }
  bool Untouched() const {
    for (size_t i = 0; i < y_count(); i++) {
      if (y_[i] != 0xFFFF) return false;
    }
    for (size_t i = 0; i < rows_ * topk(); i++) {
      if (binding.trace.ids[i] != -1) return false;
    }
    return true;
  }

  moeplan_binding binding = MOEPLAN_BINDING_INIT;

 private:
  size_t topk() const {
    const bool dense = site_.get()->config.kind == moeplan_site_dense;
    return dense ? 0 : site_.topk();
  }
  size_t y_count() const {
    return size_t{rows_} * site_.get()->config.hidden_size;
  }
  template <typename T>
  T* Poison(size_t bytes) {
    return static_cast<T*>(
        std::memset(harness_allocate(site_.get(), bytes), 0xFF, bytes));
  }

  Site& site_;
  uint32_t rows_;
  moeplan_plan_t plan_ = nullptr;
  uint16_t* y_ = nullptr;
  uint64_t cursor_ = 0;
};

// ---- negative live_rows ----------------------------------------------------------

TEST(NegativeLiveRows, AreNoneAtEveryRecipe) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 27, 12));
  for (uint32_t rows : {1u, 7u, 12u}) {
    for (moeplan_recipe recipe : kRecipes) {
      for (int32_t live : {-1, -5, -12, INT32_MIN}) {
        for (bool graph : {false, true}) {
          Bound bound(site, rows, Options().Recipe(recipe));
          bound.binding.live_rows = &live;
          ASSERT_EQ(graph ? bound.Replay() : bound.Enqueue(),
                    moeplan_status_success);
          EXPECT_TRUE(bound.Untouched())
              << rows << " rows, recipe " << recipe << ", live " << live;
          EXPECT_EQ(bound.traced(), 0u);
        }
      }
    }
  }
}

TEST(NegativeLiveRows, AreNoneOnADenseSite) {
  Site site(harness_of(harness_dense_config(96, 48), 28, 12));
  for (uint32_t rows : {1u, 7u, 12u}) {
    for (int32_t live : {-1, -12, INT32_MIN}) {
      Bound bound(site, rows, Options());
      bound.binding.live_rows = &live;
      ASSERT_EQ(bound.Enqueue(), moeplan_status_success);
      EXPECT_TRUE(bound.Untouched()) << rows << " rows, live " << live;
    }
  }
}

// ---- offsets past 4 GiB ----------------------------------------------------------

// Zeros without pages, until they are written.
class Sparse {
 public:
  explicit Sparse(size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Sparse() {
    if (ok()) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  template <typename T>
  T* at(size_t index) const {
    return static_cast<T*>(data_) + index;
  }

 private:
  size_t bytes_;
  void* data_;
};

constexpr size_t kGiB = size_t{1} << 30;

// Odd experts' tensors lie 5 GiB and more behind those of even ones.
TEST(FarOffsets, ExpertsFarApart) {
  Site near(harness_of(harness_config(96, 48, 4, 2, 32), 29, 12));
  Site far(harness_of(harness_config(96, 48, 4, 2, 32), 29, 12));
  const Sparse memory(21 * kGiB);
  if (!memory.ok()) GTEST_SKIP() << "no address space for 21 GiB";
  harness* h = far.get();
  const size_t weight_bytes = 96 * 48 / 2, scale_bytes = 96 * 48 / 16;
  int part = 0;
  for (moeplan_projection* p : {&h->site.gate, &h->site.up, &h->site.down}) {
    // The harness owns these arrays.
    auto** weight = const_cast<const void**>(p->weight);
    auto** scale = const_cast<const void**>(p->weight_scale);
    for (size_t e = 0; e < 4; e++) {
      auto* to =
          memory.at<uint8_t>(5 * kGiB * e + static_cast<size_t>(part) * 16384);
      std::memcpy(to, weight[e], weight_bytes);
      std::memcpy(to + 8192, scale[e], scale_bytes);
      // What an address of 32 bits would find is not there any more.
      std::memset(const_cast<void*>(weight[e]), 0x77, weight_bytes);
      weight[e] = to;
      scale[e] = to + 8192;
    }
    part++;
  }
  ASSERT_EQ(harness_write_site(h), moeplan_status_success) << far.log();
  for (moeplan_recipe recipe : kRecipes) {
    const moeplan_options options = Options().Recipe(recipe);
    harness_run run = harness_rows(0, 12);
    run.options = &options;
    const Result result = far.Run(run);
    ASSERT_EQ(result->status, moeplan_status_success) << far.log();
    for (uint32_t r = 0; r < 12; r++) {
      ASSERT_EQ(harness_row_difference(h, result.get(), r, near.Alone(r), 0),
                nullptr)
          << "row " << r << ", recipe " << recipe;
    }
  }
}

// Rows of x and y more than 1 GiB apart: row 9 begins past 9 GiB.
void ExpectFarRows(Site& site) {
  constexpr size_t kStride = (kGiB + 64) / 2;
  constexpr uint32_t kRows = 10;
  const size_t hidden = site.get()->config.hidden_size;
  const Sparse x(11 * kGiB), y(11 * kGiB);
  if (!x.ok() || !y.ok()) GTEST_SKIP() << "no address space for 22 GiB";
  for (uint32_t r = 0; r < kRows; r++) {
    std::memcpy(x.at<uint16_t>(r * kStride), site.get()->x + r * hidden,
                hidden * 2);
  }
  const bool dense = site.get()->config.kind == moeplan_site_dense;
  for (moeplan_recipe recipe : kRecipes) {
    if (dense && recipe != moeplan_recipe_auto) continue;
    Bound bound(site, kRows, Options().Recipe(recipe));
    bound.binding.x = x.at<uint16_t>(0);
    bound.binding.y = y.at<uint16_t>(0);
    bound.binding.x_stride = bound.binding.y_stride = kStride;
    ASSERT_EQ(bound.Enqueue(), moeplan_status_success) << site.log();
    for (uint32_t r = 0; r < kRows; r++) {
      ASSERT_EQ(0, std::memcmp(y.at<uint16_t>(r * kStride), site.Alone(r)->y,
                               hidden * 2))
          << "row " << r << ", recipe " << recipe;
      std::memset(y.at<uint16_t>(r * kStride), 0xFF, hidden * 2);
    }
  }
}

TEST(FarOffsets, RowsFarApart) {
  Site site(harness_of(harness_config(96, 48, 24, 8, 32), 30, 10));
  ExpectFarRows(site);
}

TEST(FarOffsets, DenseRowsFarApart) {
  Site site(harness_of(harness_dense_config(96, 48), 31, 10));
  ExpectFarRows(site);
}

// down's rows of a dense site so far apart that the last begins past 4 GiB. The
// host's vector code takes the first pitch and leaves the second one.
TEST(FarOffsets, PitchOfDown) {
  for (size_t pitch_bytes : {kGiB / 4 + 64, kGiB / 2 + 64}) {
    Site site(harness_of(harness_dense_config(32, 48), 32, 10));
    const size_t pitch = pitch_bytes / 2;
    const Sparse down(32 * pitch_bytes);
    if (!down.ok()) GTEST_SKIP() << "no address space for 17 GiB";
    for (uint32_t r = 0; r < 10; r++) site.Alone(r);
    moeplan_ffn& ffn = site.get()->site.dense;
    for (size_t n = 0; n < 32; n++) {
      std::memcpy(down.at<uint16_t>(n * pitch),
                  static_cast<const uint16_t*>(ffn.down) + n * 48, 48 * 2);
    }
    ffn.down = down.at<uint16_t>(0);
    ffn.down_pitch = static_cast<uint32_t>(pitch);
    ASSERT_EQ(harness_write_site(site.get()), moeplan_status_success)
        << site.log();
    const Result result = site.Run(harness_rows(0, 10));
    ASSERT_EQ(result->status, moeplan_status_success) << site.log();
    for (uint32_t r = 0; r < 10; r++) {
      ASSERT_EQ(
          harness_row_difference(site.get(), result.get(), r, site.Alone(r), 0),
          nullptr)
          << "row " << r << ", pitch " << pitch;
    }
  }
}

}  // namespace
