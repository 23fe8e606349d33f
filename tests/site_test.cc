// The site blob: what is refused and why, and where each address lands.

#include <math.h>

#include "tests/planning_site.h"

namespace planning {
namespace {

moeplan_config Local(uint32_t experts) {
  moeplan_config config = SmallConfig();
  config.local_experts = experts;
  return config;
}

// ---- contents ------------------------------------------------------------------

TEST(Site, BlobHoldsEachAddressByGlobalId) {
  Planner planner(Local(4));
  Site site;
  site.Drop(0);
  site.Drop(3);
  Blob blob;
  const size_t bytes = SizeOf(planner);
  ASSERT_EQ(moeplan_site_write(planner.get(), &site.site, blob.get(), bytes),
            moeplan_status_success);
  const moep_site_table& table = *blob.table();
  EXPECT_EQ(table.router, site.site.router);
  EXPECT_EQ(table.bias, site.site.router_bias);
  EXPECT_EQ(table.ffn.gate, site.site.shared.gate);
  EXPECT_EQ(table.ffn.up, site.site.shared.up);
  EXPECT_EQ(table.ffn.down, site.site.shared.down);
  EXPECT_EQ(table.ffn.down_pitch, 16u) << "0 stands for the width";
  for (uint32_t e = 0; e < Site::kExperts; e++) {
    const bool here = e != 0 && e != 3;
    const moep_nvfp4* parts[] = {&table.experts[e].gate, &table.experts[e].up,
                                 &table.experts[e].down};
    for (int part = 0; part < 3; part++) {
      EXPECT_EQ(parts[part]->weight, here ? site.weight[part][e] : nullptr);
      EXPECT_EQ(parts[part]->scale, here ? site.scale[part][e] : nullptr);
      EXPECT_EQ(parts[part]->epilogue,
                here ? site.scale2[part][e] * 67108864.0f : 0.0f)
          << "weight_scale_2 x 2^26";
    }
  }
  EXPECT_TRUE(blob.untouched(bytes)) << "written past its size";
}

// Tensor maps are made where there is a driver; their place is there anyway.
TEST(Site, BlobOfSm90HasRoomForMaps) {
  moep_device device = H200Device();
  device.plan_only = true;
  for (uint32_t sm : {80u, 90u, 100u, 120u}) {
    for (uint32_t width : {48u, 64u, 128u}) {
      device.sm = sm;
      moeplan_config config = SmallConfig();
      config.hidden_size = 64;
      config.moe_intermediate_size = width;
      Planner planner(config, device);
      Site site;
      Blob blob;
      const size_t bytes = SizeOf(planner);
      ASSERT_EQ(
          moeplan_site_write(planner.get(), &site.site, blob.get(), bytes),
          moeplan_status_success);
      EXPECT_TRUE(blob.untouched(bytes)) << sm << ", " << width;
      const moep_site_table* table = blob.table();
      const size_t plain = sizeof(*table) + 6 * sizeof(moep_expert);
      if (sm != 90 || width % 64 != 0) {
        EXPECT_EQ(table->maps, 0u) << sm << ", " << width;
        EXPECT_EQ(bytes, plain) << sm << ", " << width;
        continue;
      }
      EXPECT_EQ(table->maps % 128, 0u);
      EXPECT_GE(table->maps, plain);
      EXPECT_EQ(bytes, table->maps + 6 * 3 * size_t{128});
      const auto* maps = static_cast<const char*>(blob.get()) + table->maps;
      for (size_t i = 0; i < 6 * 3 * size_t{128}; i++) ASSERT_EQ(maps[i], 0);
    }
  }
}

TEST(Site, AnySubsetOfExpertsMayBeElsewhere) {
  for (uint32_t mask = 0; mask < 1u << Site::kExperts; mask++) {
    uint32_t here = 0;
    Site site;
    for (uint32_t e = 0; e < Site::kExperts; e++) {
      if (mask >> e & 1) {
        here++;
      } else {
        site.Drop(e);
      }
    }
    Planner planner(Local(here));
    ExpectAccepted(planner, site);
  }
}

TEST(Site, DenseBlobHoldsItsFfn) {
  Planner planner(DenseConfig(32, 48));
  Site site(true);
  site.site.dense.down_pitch = 96;
  Blob blob;
  const size_t bytes = SizeOf(planner);
  ASSERT_EQ(moeplan_site_write(planner.get(), &site.site, blob.get(), bytes),
            moeplan_status_success);
  EXPECT_EQ(blob.table()->ffn.gate, site.site.dense.gate);
  EXPECT_EQ(blob.table()->ffn.up, site.site.dense.up);
  EXPECT_EQ(blob.table()->ffn.down, site.site.dense.down);
  EXPECT_EQ(blob.table()->ffn.down_pitch, 96u);
  EXPECT_EQ(blob.table()->router, nullptr);
  EXPECT_TRUE(blob.untouched(bytes));
}

TEST(Site, ABiasMayBeMissing) {
  Planner planner(SmallConfig());
  Site site;
  site.site.router_bias = nullptr;
  ExpectAccepted(planner, site);
}

// ---- experts -------------------------------------------------------------------

TEST(Site, AnExpertIsNullTogether) {
  Planner planner(SmallConfig());
  const char* states[] = {"gate null, up set, down set",
                          "gate set, up null, down set",
                          "gate set, up set, down null"};
  for (int part = 0; part < 3; part++) {
    Site site;
    site.weight[part][5] = nullptr;
    ExpectRefused(planner, site, kInvalid,
                  std::string("cannot use expert 5 with ") + states[part] +
                      ": must be null together");
  }
}

TEST(Site, NonNullExpertsAreLocalExperts) {
  for (uint32_t local : {0u, 3u, 5u}) {
    Planner planner(Local(local));
    Site site;
    site.Drop(2);
    site.Drop(4);
    ExpectRefused(planner, site, kInvalid,
                  "cannot use a site with 4 non-null experts: local_experts "
                  "is " +
                      std::to_string(local));
  }
}

TEST(Site, TensorScalesAreFiniteNotNegativeAndBelow2To102) {
  Planner planner(SmallConfig());
  const float bad[] = {NAN, INFINITY, -1.0f, -1e-30f, 0x1p102f};
  static const char* const parts[] = {"gate", "up", "down"};
  for (int part = 0; part < 3; part++) {
    for (float scale : bad) {
      Site site;
      site.scale2[part][1] = scale;
      char value[32];
      std::snprintf(value, sizeof(value), "%g", (double)scale);
      ExpectRefused(planner, site, kInvalid,
                    std::string("cannot use expert 1 ") + parts[part] +
                        " weight_scale_2 " + value +
                        ": must be finite, 0 or more, below 2^102");
    }
    Site site;
    site.scale2[part][1] = nextafterf(0x1p102f, 0.0f);
    site.scale2[part][2] = 0.0f;
    ExpectAccepted(planner, site);
  }
}

TEST(Site, ANullBlockScaleIsAnInvalidSite) {
  Planner planner(SmallConfig());
  for (int part = 0; part < 3; part++) {
    Site site;
    site.scale[part][1] = nullptr;
    Blob blob;
    EXPECT_EQ(moeplan_site_write(planner.get(), &site.site, blob.get(),
                                 SizeOf(planner)),
              kInvalid);
    EXPECT_TRUE(blob.untouched());
  }
}

TEST(Site, ANullBlockScaleIsNamed) {
  Planner cuda(SmallConfig(), H200Device());
  Site site;
  site.scale[Site::kUp][4] = nullptr;
  ExpectRefused(cuda, site, kInvalid,
                "cannot use expert 4 up weight_scale NULL: must be set where "
                "weight is");
}

TEST(Site, TablesMustBeSet) {
  Planner planner(SmallConfig());
  static const char* const parts[] = {"gate", "up", "down"};
  for (int part = 0; part < 3; part++) {
    for (int table = 0; table < 3; table++) {
      Site site;
      moeplan_projection* projections[] = {&site.site.gate, &site.site.up,
                                           &site.site.down};
      if (table == 0) projections[part]->weight = nullptr;
      if (table == 1) projections[part]->weight_scale = nullptr;
      if (table == 2) projections[part]->weight_scale_2 = nullptr;
      ExpectRefused(planner, site, kInvalid,
                    std::string("cannot use ") + parts[part] +
                        " without its tables: weight, weight_scale and "
                        "weight_scale_2 must be set");
    }
  }
}

TEST(Site, ADenseSiteHasNeitherRouterNorExperts) {
  Planner planner(DenseConfig(32, 48));
  const Site routed;
  const auto refused = [&](const char* name, const void* address,
                           const std::function<void(moeplan_site&)>& set) {
    Site site(true);
    set(site.site);
    ExpectRefused(planner, site, kInvalid,
                  std::string("cannot use ") + name + " " + Text(address) +
                      ": the site is dense, so it must be NULL");
  };
  refused("router", routed.site.router,
          [&](auto& s) { s.router = routed.site.router; });
  refused("router_bias", routed.site.router_bias,
          [&](auto& s) { s.router_bias = routed.site.router_bias; });
  const struct {
    const char* name;
    moeplan_projection moeplan_site::*projection;
  } parts[] = {{"gate", &moeplan_site::gate},
               {"up", &moeplan_site::up},
               {"down", &moeplan_site::down}};
  for (const auto& part : parts) {
    const std::string name = part.name;
    const moeplan_projection& tables = routed.site.*part.projection;
    refused((name + ".weight").c_str(), tables.weight,
            [&](auto& s) { (s.*part.projection).weight = tables.weight; });
    refused((name + ".weight_scale").c_str(), tables.weight_scale,
            [&](auto& s) {
              (s.*part.projection).weight_scale = tables.weight_scale;
            });
    refused((name + ".weight_scale_2").c_str(), tables.weight_scale_2,
            [&](auto& s) {
              (s.*part.projection).weight_scale_2 = tables.weight_scale_2;
            });
  }
}

// ---- alignment -----------------------------------------------------------------

std::string NvfpSentence(const char* part, const void* weight,
                         const void* scale, int alignment) {
  return std::string("cannot use expert 2 ") + part + " weight " +
         Text(weight) + ", weight_scale " + Text(scale) +
         ": must be multiples of " + std::to_string(alignment) + " bytes";
}

TEST(Site, EveryAddressIsAMultipleOf16OnCuda) {
  Planner cuda(SmallConfig(), H200Device()), host(SmallConfig());
  static const char* const parts[] = {"gate", "up", "down"};
  for (int part = 0; part < 3; part++) {
    for (bool of_scale : {false, true}) {
      Site site;
      auto& addresses = of_scale ? site.scale : site.weight;
      addresses[part][2] = Address((uintptr_t)addresses[part][2] + 8);
      ExpectRefused(cuda, site, kMisaligned,
                    NvfpSentence(parts[part], site.weight[part][2],
                                 site.scale[part][2], 16));
      addresses[part][2] = Address((uintptr_t)addresses[part][2] + 1);
      ExpectAccepted(host, site); /* bytes */
    }
  }
  Site site;
  site.site.router = Address(0x4008);
  ExpectRefused(cuda, site, kMisaligned,
                "cannot use router 0x4008: must be a multiple of 16 bytes");
  site.site.router = Address(0x4002);
  ExpectAccepted(host, site);
  site.site.router = Address(0x4001);
  ExpectRefused(host, site, kMisaligned,
                "cannot use router 0x4001: must be a multiple of 2 bytes");
  Site biased;
  biased.site.router_bias = (const float*)Address(0x5004);
  ExpectRefused(cuda, biased, kMisaligned,
                "cannot use router_bias 0x5004: must be a multiple of 16 "
                "bytes");
  ExpectAccepted(host, biased);
  biased.site.router_bias = (const float*)Address(0x5002);
  ExpectRefused(host, biased, kMisaligned,
                "cannot use router_bias 0x5002: must be a multiple of 4 bytes");
}

// ---- the call ------------------------------------------------------------------

TEST(Site, MissingRouterBiasedProjectionsAndOtherSizesAreRefused) {
  Planner planner(SmallConfig());
  Site lost;
  lost.site.router = nullptr;
  ExpectRefused(planner, lost, kInvalid,
                "cannot use router NULL: the site needs it");
  Site biased;
  biased.site.projection_bias = Address(0x7000);
  ExpectRefused(planner, biased, moeplan_status_unsupported_config,
                "cannot use projection_bias 0x7000: must be NULL");
  Site old;
  old.site.struct_bytes -= 8;
  ExpectRefused(planner, old, moeplan_status_invalid_argument,
                "cannot read site: struct_bytes is " +
                    std::to_string(sizeof(moeplan_site) - 8) + ", must be " +
                    std::to_string(sizeof(moeplan_site)));
}

TEST(Site, BlobsThatDoNotFitAreRefused) {
  Planner planner(SmallConfig());
  const Site site;
  Blob blob;
  const size_t bytes = SizeOf(planner);
  const auto write = [&](moeplan_status status, const std::string& sentence,
                         const moeplan_site* from, void* to, size_t room) {
    EXPECT_TRUE(Refused(planner.hooks(), status, sentence, [&] {
      return moeplan_site_write(planner.get(), from, to, room);
    }));
    EXPECT_TRUE(blob.untouched()) << sentence;
  };
  write(moeplan_status_invalid_argument,
        "cannot write the site to " + std::to_string(bytes - 1) +
            " bytes: needs " + std::to_string(bytes),
        &site.site, blob.get(), bytes - 1);
  void* shifted = static_cast<char*>(blob.get()) + 4;
  write(kMisaligned,
        "cannot write the site to blob " + Text(shifted) +
            ": must be a multiple of 8 bytes",
        &site.site, shifted, bytes);
  write(moeplan_status_invalid_argument,
        "cannot write site (nil) to blob " + Text(blob.get()) +
            ": must not be NULL",
        nullptr, blob.get(), bytes);
  write(moeplan_status_invalid_argument,
        "cannot write site " + Text(&site.site) +
            " to blob (nil): must not be NULL",
        &site.site, nullptr, bytes);
  EXPECT_EQ(moeplan_site_write(nullptr, &site.site, blob.get(), bytes),
            moeplan_status_invalid_argument);
  size_t unused = 0;
  EXPECT_EQ(moeplan_site_size(nullptr, &unused),
            moeplan_status_invalid_argument);
  EXPECT_EQ(moeplan_site_size(planner.get(), nullptr),
            moeplan_status_invalid_argument);
}

}  // namespace
}  // namespace planning
