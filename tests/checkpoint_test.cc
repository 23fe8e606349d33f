// The tool's loader on the sites of good and bad checkpoints: every refusal is one
// sentence that names the file, the tensor, what was expected and what was found.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "tests/checkpoint_builder.h"

namespace checkpoint {
namespace {

TEST(Checkpoint, FindsEveryTensorWhereItLies) {
  const FileBuilder file;
  Loaded checkpoint(Write(file.Bytes()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
  ASSERT_EQ(2u, checkpoint->num_sites);
  EXPECT_EQ(5u, checkpoint->rows);
  const tool_site& dense = checkpoint->sites[0];
  const tool_site& routed = checkpoint->sites[1];
  EXPECT_STREQ("model.layers.0.mlp", dense.prefix);
  EXPECT_EQ(moeplan_site_dense, dense.config.kind);
  EXPECT_EQ(48u, dense.config.dense_local_intermediate);
  EXPECT_EQ(3u, dense.num_pieces);
  EXPECT_NE(nullptr, dense.reference);
  EXPECT_STREQ("model.layers.3.mlp", routed.prefix);
  EXPECT_EQ(moeplan_site_routed, routed.config.kind);
  EXPECT_EQ(32u, routed.config.hidden_size);
  EXPECT_EQ(16u, routed.config.shared_local_intermediate);
  EXPECT_EQ(2.5f, routed.config.routed_scaling_factor);
  EXPECT_EQ(10.0f, routed.config.swiglu_limit);
  EXPECT_EQ(5u + 6 * 3, routed.num_pieces);
  EXPECT_NE(nullptr, routed.ids);
  const auto data = [&](const std::string& name) {
    return checkpoint.Data(name);
  };
  EXPECT_EQ(data("model.layers.3.mlp.gate.weight"), routed.weights.router);
  EXPECT_EQ(data(Expert("gate_proj.weight")), routed.weights.gate.weight[1]);
  EXPECT_EQ(data(Expert("up_proj.weight_scale")),
            routed.weights.up.weight_scale[1]);
  EXPECT_EQ(data(Expert("down_proj.weight")), routed.weights.down.weight[1]);
  EXPECT_EQ(2.5f, routed.weights.down.weight_scale_2[2]);
}

TEST(Checkpoint, KeepsThreeScalesPerExpert) {
  FileBuilder file;
  file.SetFloat(Expert("gate_proj.weight_scale_2"), 1.0f);
  file.SetFloat(Expert("up_proj.weight_scale_2"), 10.0f);
  file.SetFloat(Expert("down_proj.weight_scale_2"), 0.0f);
  Loaded checkpoint(Write(file.Bytes()), "model.layers.3.mlp.");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
  ASSERT_EQ(1u, checkpoint->num_sites);
  EXPECT_EQ(1.0f, checkpoint->sites[0].weights.gate.weight_scale_2[1]);
  EXPECT_EQ(10.0f, checkpoint->sites[0].weights.up.weight_scale_2[1]);
  EXPECT_EQ(0.0f, checkpoint->sites[0].weights.down.weight_scale_2[1]);
}

TEST(Checkpoint, RefusesAnUnknownSite) {
  const FileBuilder file;
  ExpectRefusal(Write(file.Bytes()),
                {"model.layers.9.mlp", "expected", "model.layers.0.mlp"},
                "model.layers.9.mlp");
}

TEST(Checkpoint, RefusesAFileWithoutSites) {
  FileBuilder file;
  file.Remove("mlp");
  ExpectRefusal(file, {"expected the tensors of an MLP site", "found none"});
}

TEST(Checkpoint, RefusesAMissingShape) {
  FileBuilder file;
  file.shape = "";
  ExpectRefusal(file, {"\"case\"", "expected", "found no such"});
}

TEST(Checkpoint, RefusesAWrongShapeField) {
  FileBuilder file;
  file.shape = "{\\\"hidden_size\\\": -32}";
  ExpectRefusal(file, {"expected hidden_size", "found -32"});
  file.shape = "{\\\"hidden_size\\\": 32, \\\"hidden_size\\\": 64}";
  ExpectRefusal(file, {"expected", "duplicate", "hidden_size"});
  file.shape = "{\\\"hidden_size\\\": 32, \\\"scoring_func\\\": \\\"tanh\\\"}";
  ExpectRefusal(file, {"expected scoring_func", "found \"tanh\""});
}

TEST(Checkpoint, RefusesAWrongDtype) {
  for (const char* name : {"model.layers.3.mlp.experts.1.up_proj.weight_scale",
                           "model.layers.3.mlp.experts.1.up_proj.weight"}) {
    FileBuilder file;
    const std::string right = file.At(name).dtype;
    file.At(name).dtype = "I8";
    ExpectRefusal(file, {name, "expected " + right, "found I8"});
  }
}

TEST(Checkpoint, RefusesABf16CorrectionBias) {
  FileBuilder file;
  const char* name = "model.layers.3.mlp.gate.e_score_correction_bias";
  file.At(name).dtype = "BF16";
  file.At(name).data.resize(6);
  ExpectRefusal(file, {name, "expected F32 [3]", "found BF16 [3]"});
}

TEST(Checkpoint, RefusesAWrongShape) {
  FileBuilder file;
  const std::string name = Expert("down_proj.weight");
  file.At(name).shape = {8, 32};
  ExpectRefusal(file, {name, "expected U8 [32, 8]", "found U8 [8, 32]"});
}

TEST(Checkpoint, RefusesAWrongRank) {
  FileBuilder file;
  const std::string name = Expert("down_proj.weight");
  file.At(name).shape = {32, 8, 1};
  ExpectRefusal(file, {name, "expected U8 [32, 8]", "found U8 [32, 8, 1]"});
}

TEST(Checkpoint, RefusesWrongExpectations) {
  FileBuilder file;
  file.At("expect.router.ids").shape = {2, 5};
  ExpectRefusal(
      file, {"expect.router.ids", "expected I32 [5, 2]", "found I32 [2, 5]"});
  FileBuilder rows;
  rows.At("input.x").shape = {10, 16};
  ExpectRefusal(rows,
                {"input.x", "expected BF16 [10, 32]", "found BF16 [10, 16]"});
}

TEST(Checkpoint, RefusesAMissingTensor) {
  for (const char* name :
       {"model.layers.3.mlp.gate.weight",
        "model.layers.3.mlp.gate.e_score_correction_bias",
        "model.layers.3.mlp.shared_experts.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.3.mlp.experts.2.up_proj.weight_scale_2"}) {
    FileBuilder file;
    file.Remove(name);
    ExpectRefusal(file, {name, "expected", "found no tensor"});
  }
}

TEST(Checkpoint, RefusesAMissingExpert) {
  FileBuilder file;
  file.Remove(".experts.1.");
  ExpectRefusal(file, {Expert("gate_proj.weight"), "expected", "found no"});
}

TEST(Checkpoint, RefusesAnExpertTooMany) {
  FileBuilder file;
  file.AddExpert(3);
  ExpectRefusal(file, {"model.layers.3.mlp.experts.3.", "expected",
                       "n_routed_experts 3", "found"});
}

TEST(Checkpoint, RefusesASharedExpertThatTheShapeDenies) {
  FileBuilder file;
  const size_t at = file.shape.find("n_shared_experts");
  file.shape.replace(file.shape.find('1', at), 1, "0");
  ExpectRefusal(file, {"shared_experts", "expected no shared", "found one"});
}

TEST(Checkpoint, RefusesNanScaleCodes) {
  const std::string name = Expert("gate_proj.weight_scale");
  for (const char code : {'\x7F', '\xFF'}) {
    FileBuilder file;
    file.At(name).data[9] = code;
    ExpectRefusal(file, {name, "expected", code == '\x7F' ? "0x7F" : "0xFF",
                         "found", "a NaN", "byte 9"});
  }
}

TEST(Checkpoint, RefusesNegativeScaleCodes) {
  const std::string name = Expert("down_proj.weight_scale");
  for (const char code : {'\x80', '\x81', '\xFE'}) {
    FileBuilder file;
    file.At(name).data[31] = code;
    ExpectRefusal(file, {name, "expected", "found 0x", "negative", "byte 31"});
  }
}

TEST(Checkpoint, TakesTheExtremeScaleCodes) {
  FileBuilder file;
  file.At(Expert("down_proj.weight_scale")).data[0] = '\x7E';
  file.At(Expert("down_proj.weight_scale")).data[1] = '\x00';
  Loaded checkpoint(Write(file.Bytes()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
}

TEST(Checkpoint, RefusesTensorScalesThatAreNone) {
  const std::string name = Expert("up_proj.weight_scale_2");
  for (const float scale : {-0.5f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    FileBuilder file;
    file.SetFloat(name, scale);
    ExpectRefusal(file, {name, "expected a finite scale", "found"});
  }
}

}  // namespace
}  // namespace checkpoint
