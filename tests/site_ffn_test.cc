// The shared and the dense weights of a site: all there or none, aligned, with a
// pitch that fits.

#include "tests/planning_site.h"

namespace planning {
namespace {

const void** FfnPart(moeplan_ffn& ffn, int part) {
  const void** parts[] = {&ffn.gate, &ffn.up, &ffn.down};
  return parts[part];
}

TEST(SiteFfn, PartsAreAllThere) {
  static const char* const parts[] = {"gate", "up", "down"};
  Planner routed(SmallConfig()), dense(DenseConfig(32, 48));
  for (int part = 0; part < 3; part++) {
    Site site;
    *FfnPart(site.site.shared, part) = nullptr;
    ExpectRefused(routed, site, kInvalid,
                  std::string("cannot use shared.") + parts[part] +
                      " NULL: the configuration's width is 16");
    Site other(true);
    *FfnPart(other.site.dense, part) = nullptr;
    ExpectRefused(dense, other, kInvalid,
                  std::string("cannot use dense.") + parts[part] +
                      " NULL: the configuration's width is 48");
  }
}

TEST(SiteFfn, PartsAreNullWhereTheConfigurationHasNone) {
  moeplan_config config = SmallConfig();
  config.shared_local_intermediate = 0;
  Planner lone(config), dense(DenseConfig(32, 48)), routed(SmallConfig());
  const std::string rule =
      " weights: the configuration has none, so gate, up and down must be NULL";
  for (int part = 0; part < 3; part++) {
    Site site;
    site.site.shared = {nullptr, nullptr, nullptr, 0};
    ExpectAccepted(lone, site);
    *FfnPart(site.site.shared, part) = Address(0x1000);
    ExpectRefused(lone, site, kInvalid, "cannot use shared" + rule);
    Site with_dense;
    *FfnPart(with_dense.site.dense, part) = Address(0x1000);
    ExpectRefused(routed, with_dense, kInvalid, "cannot use dense" + rule);
    Site with_shared(true);
    *FfnPart(with_shared.site.shared, part) = Address(0x1000);
    ExpectRefused(dense, with_shared, kInvalid, "cannot use shared" + rule);
  }
}

TEST(SiteFfn, PitchIsAMultipleOf8AtLeastTheWidth) {
  Planner planner(SmallConfig());
  for (uint32_t pitch : {8u, 15u, 17u, 20u, 1u << 31}) {
    Site site;
    site.site.shared.down_pitch = pitch;
    ExpectRefused(planner, site, kInvalid,
                  "cannot use shared.down_pitch " + std::to_string(pitch) +
                      ": must be a multiple of 8, at least the width 16, below "
                      "2^31");
  }
  for (uint32_t pitch : {0u, 16u, 24u, 4096u}) {
    Site site;
    site.site.shared.down_pitch = pitch;
    ExpectAccepted(planner, site);
  }
}

TEST(SiteFfn, AMisalignedPartIsNamed) {
  static const char* const parts[] = {"gate", "up", "down"};
  Planner cuda(SmallConfig(), H200Device()), host(SmallConfig());
  for (int part = 0; part < 3; part++) {
    Site site;
    *FfnPart(site.site.shared, part) = Address(0x1008);
    ExpectRefused(cuda, site, kMisaligned,
                  std::string("cannot use shared.") + parts[part] +
                      " 0x1008: must be a multiple of 16 bytes");
    ExpectAccepted(host, site);
  }
}

}  // namespace
}  // namespace planning
