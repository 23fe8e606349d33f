// Parts that do not belong together: a blob and a plan of other sizes or of the
// other kind of site, a shard and a pitch. Each is refused with a sentence.

#include "tests/planning_binding.h"

namespace planning {
namespace {

// The sentence about a blob at this address.
std::string NotABlob(const void* blob) {
  return "cannot bind site " + Text(blob) +
         ": it is not a blob that moeplan_site_write wrote for this "
         "configuration";
}

// Write the blob of an empty site of `config` where `bound` expects its own.
void WriteBlobOf(const moeplan_config& config, Bound& bound,
                 const moep_device& device = HostDevice()) {
  Planner planner(config, device);
  const bool dense = config.kind == moeplan_site_dense;
  Site site(dense);
  if (!dense) {
    for (uint32_t e = 0; e < Site::kExperts; e++) site.Drop(e);
    if (config.shared_local_intermediate == 0) site.site.shared = {};
  }
  ASSERT_EQ(moeplan_site_write(planner.get(), &site.site,
                               bound.at(Bound::kSite), kSlotBytes),
            moeplan_status_success);
}

void ExpectBlobRefused(Bound& bound, const moeplan_config& config,
                       const moep_device& device = HostDevice()) {
  // The graph of the right blob is made first: ExpectRefused makes one too.
  WriteBlobOf(config, bound, device);
  const char* blob = bound.at(Bound::kSite);
  EXPECT_TRUE(Refused(
      bound.planner.hooks(), moeplan_status_invalid_site, NotABlob(blob), [&] {
        return moeplan_enqueue(bound.plan.get(), &bound.binding, nullptr);
      }));
  moeplan_graph_t graph = nullptr;
  EXPECT_TRUE(Refused(
      bound.planner.hooks(), moeplan_status_invalid_site, NotABlob(blob), [&] {
        return moeplan_graph_create(bound.plan.get(), &bound.binding, &graph);
      }));
  EXPECT_EQ(graph, nullptr);
}

moeplan_config Changed(const std::function<void(moeplan_config&)>& change) {
  moeplan_config config = Bound::Config();
  change(config);
  return config;
}

TEST(Mismatch, ABlobOfOtherSizesIsRefused) {
  for (const moeplan_config& other : {
           Changed([](auto& c) { c.hidden_size = 64; }),
           Changed([](auto& c) { c.moe_intermediate_size = 32; }),
           Changed([](auto& c) { c.n_routed_experts = 5; }),
           Changed([](auto& c) { c.shared_local_intermediate = 32; }),
           Changed([](auto& c) { c.shared_local_intermediate = 0; }),
       }) {
    Bound bound;
    ExpectBlobRefused(bound, other);
    if (HasFatalFailure()) return;
  }
}

TEST(Mismatch, ABlobWithTensorMapsIsRefusedOnTheHost) {
  const moeplan_config config = Changed([](auto& c) {
    c.hidden_size = 64;
    c.moe_intermediate_size = 64;
  });
  moep_device device = H200Device();
  device.plan_only = true;
  Bound bound(Options(), config);
  ExpectBlobRefused(bound, config, device);
}

TEST(Mismatch, ADenseBlobInARoutedPlanAndTheOtherWayIsRefused) {
  const moeplan_config dense = DenseConfig(kHidden, 16);
  Bound routed;
  ExpectBlobRefused(routed, dense);
  Bound other(Options(), dense);
  ExpectBlobRefused(other, Bound::Config());
}

TEST(Mismatch, ABlobOfTheSameSizesIsTaken) {
  Bound bound;
  WriteBlobOf(Bound::Config(), bound);
  EXPECT_TRUE(Accepted(bound, bound.binding));
}

// A shard of width 16 in rows of `pitch`.
moeplan_status WritePitch(Planner& planner, bool dense, uint32_t pitch,
                          Blob& blob) {
  Site site(dense);
  (dense ? site.site.dense : site.site.shared).down_pitch = pitch;
  return moeplan_site_write(planner.get(), &site.site, blob.get(),
                            SizeOf(planner));
}

TEST(Mismatch, APitchBelowTheShardsWidthIsRefused) {
  for (bool dense : {false, true}) {
    Planner planner(dense ? DenseConfig(kHidden, 16) : SmallConfig());
    for (uint32_t pitch : {8u, 12u, 20u, 0x80000000u, UINT32_MAX}) {
      Blob blob;
      EXPECT_TRUE(
          Refused(planner.hooks(), moeplan_status_invalid_site,
                  std::string("cannot use ") + (dense ? "dense" : "shared") +
                      ".down_pitch " + std::to_string(pitch) +
                      ": must be a multiple of 8, at least the width "
                      "16, below 2^31",
                  [&] { return WritePitch(planner, dense, pitch, blob); }));
      EXPECT_TRUE(blob.untouched()) << pitch;
    }
    for (uint32_t pitch : {0u, 16u, 24u, 4096u, 0x7FFFFFF8u}) {
      Blob blob;
      EXPECT_EQ(WritePitch(planner, dense, pitch, blob), moeplan_status_success)
          << pitch;
      EXPECT_EQ(blob.table()->ffn.down_pitch, pitch == 0 ? 16 : pitch);
    }
  }
}

}  // namespace
}  // namespace planning
