// The names of compressed-tensors beside ModelOpt's.

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/checkpoint_builder.h"

namespace checkpoint {
namespace {

TEST(CompressedTensors, GivesTheSameSite) {
  FileBuilder file;
  file.Compress();
  Loaded loaded(Write(file.Bytes()), "model.layers.3.mlp");
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  const tool_site& site = loaded->sites[0];
  EXPECT_STREQ("compressed-tensors", site.naming->name);
  EXPECT_EQ(5u + 6 * 3, site.num_pieces);
  EXPECT_EQ(loaded.Data(Expert("gate_proj.weight_packed")),
            site.weights.gate.weight[1]);
  EXPECT_EQ(loaded.Data(Expert("down_proj.weight_scale")),
            site.weights.down.weight_scale[1]);
}

TEST(CompressedTensors, GlobalScaleIsAnInverseInFloat32) {
  FileBuilder file;
  file.Compress();
  const float stored[] = {256.0f, 3.0f, 12345.678f};
  const char* names[] = {"gate_proj", "up_proj", "down_proj"};
  for (int i = 0; i < 3; i++) {
    file.SetFloat(Expert(names[i]) + ".weight_global_scale", stored[i]);
  }
  Loaded loaded(Write(file.Bytes()), "model.layers.3.mlp");
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  const moeplan_site& weights = loaded->sites[0].weights;
  EXPECT_EQ(1.0f / 256.0f, weights.gate.weight_scale_2[1]);
  EXPECT_EQ(1.0f / 3.0f, weights.up.weight_scale_2[1]);
  EXPECT_EQ(1.0f / 12345.678f, weights.down.weight_scale_2[1]);
}

TEST(CompressedTensors, RefusesScalesWithoutAnInverse) {
  const std::string name = Expert("up_proj.weight_global_scale");
  for (const float scale :
       {0.0f, -0.0f, -2.0f, 1e-45f, std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    FileBuilder file;
    file.Compress();
    file.SetFloat(name, scale);
    ExpectRefusal(file, {name, "expected a finite scale, above 0", "found"});
  }
}

TEST(CompressedTensors, RefusesAMissingTensorByItsOwnName) {
  for (const char* name : {"gate_proj.weight_packed", "up_proj.weight_scale",
                           "down_proj.weight_global_scale"}) {
    FileBuilder file;
    file.Compress();
    file.Remove(Expert(name));
    ExpectRefusal(file, {Expert(name), "expected", "found no tensor"});
  }
}

TEST(Naming, RefusesTwoNamingsInOneSite) {
  FileBuilder file;
  file.Add(Expert("up_proj.weight_packed"), "U8", {16, 16});
  ExpectRefusal(file, {"model.layers.3.mlp", "expected",
                       "by compressed-tensors", "found", "by ModelOpt"});
}

// Each site for itself: a checkpoint may be put together from two.
TEST(Naming, IsASitesOwn) {
  FileBuilder file;
  FileBuilder other;
  other.Compress();
  for (Entry& entry : other.entries) {
    const size_t at = entry.name.find("layers.3.");
    if (at == std::string::npos) continue;
    entry.name.replace(at, 9, "layers.4.");
    file.entries.push_back(entry);
  }
  Loaded loaded(Write(file.Bytes()));
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  ASSERT_EQ(3u, loaded->num_sites);
  EXPECT_STREQ("ModelOpt", loaded->sites[1].naming->name);
  EXPECT_STREQ("compressed-tensors", loaded->sites[2].naming->name);
  EXPECT_EQ(1.0f / 256.0f, loaded->sites[2].weights.up.weight_scale_2[0]);
}

TEST(Scales, RangesCoverEveryExpert) {
  FileBuilder file;
  file.At(Expert("down_proj.weight_scale")).data[7] = '\x7E';
  file.At(Expert("gate_proj.weight_scale")).data[3] = '\x00';
  file.SetFloat("model.layers.3.mlp.experts.2.down_proj.weight_scale_2", 9.0f);
  Loaded loaded(Write(file.Bytes()), "model.layers.3.mlp");
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  const tool_scale_range& range = loaded->sites[0].range;
  EXPECT_EQ(0x00, range.code_min);
  EXPECT_EQ(0x7E, range.code_max);
  EXPECT_EQ(3u * (16 * 2 + 16 * 2 + 32), range.num_codes);
  EXPECT_EQ(0.5f, range.scale_min);
  EXPECT_EQ(9.0f, range.scale_max);
  EXPECT_EQ(9u, range.num_scales);
}

TEST(Scales, E4m3ValuesAreExact) {
  EXPECT_EQ(0.0f, tool_e4m3_value(0x00));
  EXPECT_EQ(0x1p-9f, tool_e4m3_value(0x01));
  EXPECT_EQ(0x7p-9f, tool_e4m3_value(0x07));
  EXPECT_EQ(0x1p-6f, tool_e4m3_value(0x08));
  EXPECT_EQ(1.0f, tool_e4m3_value(0x38));
  EXPECT_EQ(448.0f, tool_e4m3_value(0x7E));
}

}  // namespace
}  // namespace checkpoint
