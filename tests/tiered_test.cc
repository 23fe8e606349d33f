// Numerics TIERED without a GPU: what the plans for one are made of, what they
// ask of a binding, and that the host device keeps INVARIANT's bits.

#include <cmath>

#include "tests/harness_cc.h"
#include "tests/planning_site.h"

extern "C" {
#include "kernels/scalar.h"
#include "lib/binding.h"
}

namespace planning {
namespace {

moeplan_options Tiered(
    const std::function<void(moeplan_options&)>& change = nullptr) {
  moeplan_options options = Options(change);
  options.numerics = moeplan_numerics_tiered;
  return options;
}

std::vector<std::string> KernelsOf(const Plan& plan) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < plan->node_count; i++) {
    names.push_back(plan->nodes[i].kernel->name);
  }
  return names;
}

/* ---- which nodes are cuBLASLt's ---- */

TEST(Tiered, PlansOfMoreThan8RowsGiveDenseProjectionsToCublasLt) {
  Planner planner(DenseConfig(), H200Device());
  const std::vector<std::string> wide = {
      "cublasLt_gate", "cublasLt_up", "moep_swiglu_bf16_smxx", "cublasLt_down"};
  for (uint32_t rows : {1u, 2u, 8u, 9u, 100u, 4096u}) {
    const Plan invariant(planner, rows), tiered(planner, rows, Tiered());
    if (rows <= 8) {
      EXPECT_EQ(KernelsOf(tiered), KernelsOf(invariant)) << rows;
    } else {
      EXPECT_EQ(KernelsOf(tiered), wide) << rows;
      EXPECT_EQ(tiered->recipe->id, moeplan_recipe_dense);
    }
    const Plan off(planner, rows, Tiered([](auto& o) { o.no_cublas = true; }));
    EXPECT_EQ(KernelsOf(off), KernelsOf(invariant)) << rows;
  }
}

TEST(Tiered, ThePlansTextNamesModeAndMultiplications) {
  Planner planner(DenseConfig(), H200Device());
  const std::string bf16 = Plan(planner, 9, Tiered()).Print();
  EXPECT_NE(bf16.find("lever numerics tiered\n"), std::string::npos);
  EXPECT_NE(bf16.find("matmul gate, up: rows 9 n 12288 k 4096 bf16 to bf16, "
                      "algo -\n"),
            std::string::npos)
      << bf16;
  EXPECT_NE(bf16.find("matmul down: rows 9 n 4096 k 12288 bf16 to bf16, algo "
                      "-\n"),
            std::string::npos);
  const auto f32 = Tiered([](auto& o) { o.y_type = moeplan_dtype_f32; });
  EXPECT_NE(Plan(planner, 9, f32)
                .Print()
                .find("matmul down: rows 9 n 4096 k 12288 bf16 to f32"),
            std::string::npos);
  EXPECT_EQ(Plan(planner, 8, Tiered()).Print().find("matmul"),
            std::string::npos);
  EXPECT_EQ(Plan(planner, 9).Print().find("matmul"), std::string::npos);
}

TEST(Tiered, FloorsAreThoseOfTheSameWork) {
  Planner planner(DenseConfig(), H200Device());
  const uint64_t flop = Plan(planner, 4096).info().flop;
  EXPECT_EQ(Plan(planner, 4096, Tiered()).info().flop, flop);
}

/* ---- what they ask of a binding ---- */

// A binding of made-up addresses, with a blob that is one.
class TieredBinding {
 public:
  explicit TieredBinding(uint32_t rows, const moeplan_options& options)
      : planner(DenseConfig(64, 32), H200Device()),
        plan(planner, rows, options) {
    Site site(true);
    EXPECT_EQ(moeplan_site_write(planner.get(), &site.site, blob.get(),
                                 SizeOf(planner)),
              moeplan_status_success);
    binding.site = Address(0x10000);
    binding.x = Address(0x20000);
    binding.y = const_cast<void*>(Address(0x40000));
    binding.workspace = const_cast<void*>(Address(0x10000000));
    binding.workspace_bytes = plan.info().workspace_bytes;
    binding.host_site = blob.get();
  }
  moeplan_status Read(const moeplan_binding& from) {
    moeplan_binding checked;
    return moep_binding_read(plan.get(), &from, &checked);
  }

  Planner planner;
  Plan plan;
  Blob blob;
  moeplan_binding binding = MOEPLAN_BINDING_INIT;
};

TEST(Tiered, WantsTheBlobInHostMemory) {
  TieredBinding wide(9, Tiered());
  EXPECT_EQ(wide.Read(wide.binding), moeplan_status_success);
  moeplan_binding without = wide.binding;
  without.host_site = nullptr;
  EXPECT_TRUE(Refused(
      wide.planner.hooks(), moeplan_status_invalid_argument,
      "cannot bind host_site (nil): a TIERED plan of 9 rows takes addresses "
      "from the blob in host memory, as moeplan_site_write wrote it for this "
      "configuration",
      [&] { return wide.Read(without); }));
  Blob poison;
  without.host_site = poison.get();
  EXPECT_TRUE(Refused(
      wide.planner.hooks(), moeplan_status_invalid_argument,
      "cannot bind host_site " + Text(poison.get()) +
          ": a TIERED plan of 9 rows takes addresses from the blob in host "
          "memory, as moeplan_site_write wrote it for this configuration",
      [&] { return wide.Read(without); }));
  without.host_site = static_cast<char*>(wide.blob.get()) + 4;
  EXPECT_TRUE(Refused(wide.planner.hooks(), moeplan_status_misaligned_pointer,
                      "cannot bind host_site " + Text(without.host_site) +
                          ": must be a multiple of 8 bytes",
                      [&] { return wide.Read(without); }));
  TieredBinding narrow(8, Tiered());
  TieredBinding off(9, Tiered([](auto& o) { o.no_cublas = true; }));
  TieredBinding invariant(9, Options());
  for (TieredBinding* other : {&narrow, &off, &invariant}) {
    moeplan_binding binding = other->binding;
    binding.host_site = nullptr;
    EXPECT_EQ(other->Read(binding), moeplan_status_success);
  }
}

TEST(Tiered, ADenseSiteRefusesLiveRows) {
  TieredBinding wide(9, Tiered()), narrow(8, Tiered());
  moeplan_binding binding = wide.binding;
  binding.live_rows = static_cast<const int32_t*>(Address(0x8000));
  EXPECT_TRUE(Refused(wide.planner.hooks(), moeplan_status_unsupported_option,
                      "cannot bind live_rows to a dense TIERED plan of 9 rows: "
                      "cuBLASLt writes every row of y",
                      [&] { return wide.Read(binding); }));
  binding = narrow.binding;
  binding.live_rows = static_cast<const int32_t*>(Address(0x8000));
  EXPECT_EQ(narrow.Read(binding), moeplan_status_success);
}

/* ---- the host device ---- */

TEST(Tiered, TheHostDeviceKeepsItsBits) {
  using moeplan_test::Result;
  const harness sites[] = {
      harness_of(harness_config(96, 48, 24, 8, 32), 51, 24),
      harness_of(harness_dense_config(80, 208), 52, 24)};
  const moeplan_options options = Tiered();
  for (const harness& h : sites) {
    moeplan_test::Site site(h);
    for (uint32_t rows : {1u, 8u, 9u, 24u}) {
      harness_run run = harness_rows(0, rows);
      run.options = &options;
      const Result tiered = site.Run(run);
      ASSERT_EQ(tiered->status, moeplan_status_success) << site.log();
      for (uint32_t r = 0; r < rows; r++) {
        EXPECT_EQ(harness_row_difference(site.get(), tiered.get(), r,
                                         site.Alone(r), 0),
                  nullptr)
            << rows << " rows, row " << r;
      }
    }
  }
}

// The SwiGLU that follows cuBLASLt is the one inside the fused kernels: on every
// gate, with ups of all kinds, in place and for the live rows alone.
TEST(Tiered, SwigluOfTheHostIsTheContracts) {
  constexpr uint32_t kWidth = 4096, kRows = 16;
  std::vector<uint16_t> gate(kRows * kWidth), up(gate.size()), h(gate.size());
  for (size_t i = 0; i < gate.size(); i++) {
    gate[i] = static_cast<uint16_t>(i);
    up[i] = static_cast<uint16_t>(40503 * i + 7);
  }
  for (float limit : {10.0f, INFINITY}) {
    for (int32_t live : {0, 5, 16, 40}) {
      std::vector<uint16_t> in_place = gate;
      std::fill(h.begin(), h.end(), 0x5A5A);
      for (uint16_t* out : {h.data(), in_place.data()}) {
        union moep_args args = {};
        args.swiglu = {{0, kRows, kRows, &live},
                       out == h.data() ? gate.data() : out,
                       up.data(),
                       out,
                       kWidth,
                       limit};
        const moep_launch launch = {};
        ASSERT_EQ(moep_swiglu_bf16_host(&args, &launch, nullptr), cudaSuccess);
      }
      const size_t end =
          std::min<size_t>(static_cast<size_t>(live), kRows) * kWidth;
      for (size_t i = 0; i < h.size(); i++) {
        const uint16_t wanted = moep_bf16_from_float(moep_swiglu(
            moep_bf16_to_float(gate[i]), moep_bf16_to_float(up[i]), limit));
        ASSERT_EQ(h[i], i < end ? wanted : 0x5A5A) << i;
        ASSERT_EQ(in_place[i], i < end ? wanted : gate[i]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace planning
