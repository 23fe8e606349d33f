// Numerics TIERED on a GPU, dense sites: rows up to 8 keep INVARIANT's bits, wider
// plans lie within the accuracy bar, every way of running gives the same bits, and
// nothing is left to load when the caller captures.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/gpu_memory.h"
#include "tests/harness.h"
#include "tests/reference.h"

extern "C" {
#include "kernels/kernels.h"
}

namespace moeplan_test {

namespace {

constexpr uint32_t kRows = 100;

// Why cuBLASLt cannot be used, or NULL.
const char* ReasonToSkip() {
  const char* reason = gpu_reason_to_skip(90);
  size_t version = 0;
  if (reason != nullptr) return reason;
  return moeplan_cublaslt_version(&version) == moeplan_status_success
             ? nullptr
             : "no libcublasLt.so.13";
}

#define NEEDS_CUBLASLT()                           \
  do {                                             \
    const char* reason = ReasonToSkip();           \
    if (reason != nullptr) GTEST_SKIP() << reason; \
  } while (0)

// Weights and rows of a size that keeps every value near 1.
dense_data DataOf(const dense_shape& shape, uint64_t seed) {
  dense_data data(shape, kRows, seed);
  harness_random random = {seed};
  for (auto* part : {&data.gate, &data.up, &data.down}) {
    for (uint16_t& value : *part) value = harness_bf16(&random, 2) - (5 << 7);
  }
  for (uint16_t& value : data.x) value = harness_bf16(&random, 2);
  return data;
}

constexpr dense_shape kShape = {1040, 2880, 3008, 10.0f, 0};

class TieredGpu : public testing::Test {
 protected:
  void SetUp() override { NEEDS_CUBLASLT(); }

  static moeplan_options Tiered(const DenseSite& site) {
    moeplan_options options = site.options();
    options.numerics = moeplan_numerics_tiered;
    return options;
  }

  // Relative L2 of `rows` rows of y against the formula in double precision.
  double Error(const DenseSite& site, uint32_t rows) {
    const moeplan_site weights = [&] {
      moeplan_site s = MOEPLAN_SITE_INIT;
      s.dense = {data_.gate.data(), data_.up.data(), data_.down.data(),
                 data_.shape.down_pitch};
      return s;
    }();
    const Reference reference(site.config(), weights);
    const size_t hidden = data_.shape.hidden;
    const std::vector<uint8_t> bytes = site.y();
    Vector y, wanted;
    for (uint32_t r = 0; r < rows; r++) {
      const Vector row =
          reference.Dense(Bf16Values(&data_.x[r * hidden], hidden));
      wanted.insert(wanted.end(), row.begin(), row.end());
    }
    for (size_t i = 0; i < rows * hidden; i++) {
      float f32 = 0;
      uint16_t bf16 = 0;
      if (site.y_row_bytes() == hidden * 4) {
        std::memcpy(&f32, &bytes[i * 4], 4);
      } else {
        std::memcpy(&bf16, &bytes[i * 2], 2);
        f32 = static_cast<float>(Bf16Value(bf16));
      }
      y.push_back(f32);
    }
    return RelativeL2(y, wanted);
  }

  const dense_data data_ = DataOf(kShape, 61);
};

// First in its process: the caller's own capture, in the strictest mode, is the
// first call of all.
TEST_F(TieredGpu, NothingIsLeftToLoadAtTheFirstCapture) {
  DenseSite site(data_, "cuda:0", moeplan_dtype_bf16);
  const moeplan_options options = Tiered(site);
  moeplan_plan_t plan = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_MOEPLAN(moeplan_plan_create(site.planner(), kRows, &options, &plan));
  site.poison();
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_MOEPLAN(moeplan_enqueue(plan, &site.binding(), stream));
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_LE(Error(site, kRows), 0.0040);
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamDestroy(stream));
  moeplan_plan_destroy(plan);
}

TEST_F(TieredGpu, RowsUpTo8KeepTheirBitsAndWiderOnesTheAccuracy) {
  for (moeplan_dtype type : {moeplan_dtype_bf16, moeplan_dtype_f32}) {
    DenseSite site(data_, "cuda:0", type);
    const moeplan_options options = Tiered(site);
    moeplan_options off = options;
    off.no_cublas = true;
    for (uint32_t rows : {1u, 2u, 7u, 8u, 9u, 10u, 16u, 17u, 64u, kRows}) {
      site.run(rows);
      const std::vector<uint8_t> invariant = site.y();
      EXPECT_LE(Error(site, rows), 0.0040) << "INVARIANT, " << rows;
      site.run(rows, &options);
      EXPECT_LE(Error(site, rows), 0.0040) << "TIERED, " << rows;
      const std::string difference =
          dense_difference(site.y(), invariant, site.y_row_bytes(), rows);
      if (rows <= 8) {
        EXPECT_EQ(difference, "") << rows;
      }
      // Whatever the numbers, nothing past the last row is touched.
      EXPECT_EQ(difference.find("must stay untouched"), std::string::npos);
      site.run(rows, &off);
      EXPECT_EQ(dense_difference(site.y(), invariant, site.y_row_bytes(), rows),
                "")
          << "no_cublas, " << rows;
    }
  }
}

TEST_F(TieredGpu, EveryWayOfRunningGivesTheSameBits) {
  DenseSite site(data_, "cuda:0", moeplan_dtype_bf16);
  const moeplan_options options = Tiered(site);
  site.run(kRows, &options);
  const std::vector<uint8_t> expected = site.y();
  moeplan_plan_t plan = nullptr;
  moeplan_graph_t graph = nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_MOEPLAN(moeplan_plan_create(site.planner(), kRows, &options, &plan));
  ASSERT_MOEPLAN(moeplan_graph_create(plan, &site.binding(), &graph));
  moeplan_plan_destroy(plan);  // the graph has its own
  const auto same = [&] {
    return dense_difference(site.y(), expected, site.y_row_bytes(), kRows);
  };
  for (int i = 0; i < 100; i++) {
    site.poison();
    ASSERT_MOEPLAN(moeplan_graph_replay(graph, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    ASSERT_EQ(same(), "") << "replay " << i;
  }
  DeviceMemory other(false, expected.size());
  moeplan_binding moved = site.binding();
  moved.y = other.as();
  ASSERT_MOEPLAN(moeplan_graph_update(graph, &moved));
  other.fill(0xFF);
  ASSERT_MOEPLAN(moeplan_graph_replay(graph, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  std::vector<uint8_t> y(expected.size());
  other.read(y.data(), y.size());
  EXPECT_EQ(dense_difference(y, expected, site.y_row_bytes(), kRows), "");
  moeplan_graph_destroy(graph);
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(TieredGpu, YMayBeXAndStridesAreHonoured) {
  const size_t hidden = kShape.hidden, wide = hidden + 24;
  DenseSite site(data_, "cuda:0", moeplan_dtype_bf16);
  const moeplan_options options = Tiered(site);
  site.run(kRows, &options);
  const std::vector<uint8_t> expected = site.y();
  std::vector<uint16_t> spread(kRows * wide, 0xFFFF);
  for (size_t r = 0; r < kRows; r++) {
    std::copy_n(&data_.x[r * hidden], hidden, &spread[r * wide]);
  }
  DeviceMemory both(false, spread.size() * 2, spread.data());
  moeplan_binding binding = site.binding();
  binding.x = binding.y = both.as();
  binding.x_stride = binding.y_stride = wide;
  site.run(kRows, &options, &binding);
  std::vector<uint8_t> bytes(both.bytes());
  both.read(bytes.data(), bytes.size());
  for (size_t i = 0; i < bytes.size(); i++) {
    const size_t row = i / (2 * wide), at = i % (2 * wide);
    const uint8_t wanted =
        at < 2 * hidden ? expected[row * 2 * hidden + at] : 0xFF;
    ASSERT_EQ(bytes[i], wanted) << "row " << row << ", byte " << at;
  }
}

TEST_F(TieredGpu, AnSmLimitKeepsTheAccuracy) {
  DenseSite site(data_, "cuda:0", moeplan_dtype_bf16);
  moeplan_options options = Tiered(site);
  for (uint32_t limit : {2u, 66u, 131u, 132u, UINT32_MAX}) {
    options.sm_limit = limit;
    site.run(64, &options);
    EXPECT_LE(Error(site, 64), 0.0040) << limit;
  }
}

// Rows that are numbers are not touched by one that is none.
TEST_F(TieredGpu, ANaNStaysInItsRow) {
  dense_data data = data_;
  data.x[3 * kShape.hidden + 5] = 0x7FC1;
  DenseSite site(data, "cuda:0", moeplan_dtype_f32);
  DenseSite plain(data_, "cuda:0", moeplan_dtype_f32);
  const moeplan_options options = Tiered(site);
  site.run(kRows, &options);
  plain.run(kRows, &options);
  const std::vector<uint8_t> a = site.y(), b = plain.y();
  const size_t row = site.y_row_bytes();
  for (size_t r = 0; r < kRows; r++) {
    EXPECT_EQ(std::memcmp(&a[r * row], &b[r * row], row) == 0, r != 3) << r;
  }
}

// Shapes and row counts that cuBLASLt meets with other algorithms, some of which
// clear their scratch memory first.
TEST_F(TieredGpu, WideShapesRunInTheirFirstCapture) {
  dense_data data({4096, 12288, 0, 10.0f, 0}, 16, 62);
  harness_random random = {62};
  for (auto* part : {&data.gate, &data.up, &data.down}) {
    for (uint16_t& value : *part) value = harness_bf16(&random, 2) - (6 << 7);
  }
  for (uint16_t& value : data.x) value = harness_bf16(&random, 2);
  data.rows = 4096;
  data.x.resize(size_t{4096} * 4096);
  for (size_t r = 16; r < 4096; r++) {
    std::copy_n(&data.x[r % 16 * 4096], 4096, &data.x[r * 4096]);
  }
  DenseSite site(data, "cuda:0", moeplan_dtype_bf16);
  site.run(16);
  const std::vector<uint8_t> narrow = site.y();
  const auto value = [](const std::vector<uint8_t>& y, size_t i) {
    uint16_t bits;
    std::memcpy(&bits, &y[2 * i], 2);
    return Bf16Value(bits);
  };
  for (uint32_t rows : {9u, 64u, 256u, 1000u, 1024u, 4096u}) {
    const moeplan_options options = Tiered(site);
    site.run(rows, &options);
    const std::vector<uint8_t> y = site.y();
    Vector got, wanted;
    for (size_t i = 0; i < size_t{rows} * 4096; i++) {
      got.push_back(value(y, i));
      wanted.push_back(value(narrow, i % (16 * 4096)));
    }
    // Two answers, each within 0.0040 of the exact one.
    EXPECT_LE(RelativeL2(got, wanted), 0.0080) << rows;
  }
}

// The kernel has the bits of its host twin.
TEST_F(TieredGpu, SwigluHasTheHostsBits) {
  constexpr uint32_t kWidth = 4112, kCount = 21;
  std::vector<uint16_t> gate(kCount * kWidth), up(gate.size());
  for (size_t i = 0; i < gate.size(); i++) {
    gate[i] = static_cast<uint16_t>(i);
    up[i] = static_cast<uint16_t>(40503 * i + 7);
  }
  for (int32_t live : {0, 5, 21, 40}) {
    std::vector<uint16_t> expected(gate.size(), 0x5A5A);
    DeviceMemory d_gate(false, gate.size() * 2, gate.data());
    DeviceMemory d_up(false, up.size() * 2, up.data());
    DeviceMemory d_h(false, gate.size() * 2, expected.data());
    DeviceMemory d_live(false, sizeof(live), &live);
    union moep_args args = {};
    args.swiglu = {{0, kCount, kCount, &live},
                   gate.data(),
                   up.data(),
                   expected.data(),
                   kWidth,
                   10.0f};
    const moep_launch launch = {{7, 1}, 0, 0, 0};
    ASSERT_CUDA(moep_swiglu_bf16_host(&args, &launch, nullptr));
    args.swiglu = {{0, kCount, kCount, d_live.as<int32_t>()},
                   d_gate.as<uint16_t>(),
                   d_up.as<uint16_t>(),
                   d_h.as<uint16_t>(),
                   kWidth,
                   10.0f};
    ASSERT_CUDA(moep_swiglu_bf16_smxx(&args, &launch, nullptr));
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<uint16_t> h(gate.size());
    d_h.read(h.data(), h.size() * 2);
    EXPECT_EQ(h, expected) << "live " << live;
  }
}

}  // namespace

}  // namespace moeplan_test
