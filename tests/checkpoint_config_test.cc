// config.json: the names by which models say their shape.

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/checkpoint_builder.h"

namespace checkpoint {
namespace {

tool_shape Parse(const std::string& text) {
  tool_shape shape;
  std::memset(&shape, 0x5A, sizeof(shape));
  auto error = std::make_unique<tool_error>();
  EXPECT_EQ(tool_ok, tool_shape_parse(text.data(), text.size(), "config.json",
                                      &shape, error.get()))
      << error->text;
  return shape;
}

void ExpectBadConfig(const std::string& text, const Strings& parts) {
  tool_shape shape;
  auto error = std::make_unique<tool_error>();
  ASSERT_EQ(tool_failed, tool_shape_parse(text.data(), text.size(),
                                          "config.json", &shape, error.get()));
  ExpectSentence(error->text, parts);
}

moeplan_config Routed(const tool_shape& shape) {
  moeplan_config config;
  tool_shape_config(&shape, moeplan_site_routed, &config);
  return config;
}

// The fields of GLM-4.5-Air's file that matter, and some that do not.
constexpr char kGlm[] = R"({
  "architectures": ["Glm4MoeForCausalLM"], "first_k_dense_replace": 1,
  "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 10944,
  "model_type": "glm4_moe", "moe_intermediate_size": 1408, "n_group": 1,
  "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
  "num_experts_per_tok": 8, "num_hidden_layers": 46, "rope_scaling": null,
  "routed_scaling_factor": 1.0, "topk_group": 1, "eos_token_id": [1, 2]})";

TEST(Config, ReadsGlm) {
  const tool_shape shape = Parse(kGlm);
  EXPECT_EQ(1u, shape.first_k_dense_replace);
  EXPECT_EQ(46u, shape.num_hidden_layers);
  EXPECT_EQ(10944u, shape.intermediate_size);
  EXPECT_EQ(nullptr, shape.difference);
  const moeplan_config config = Routed(shape);
  EXPECT_EQ(4096u, config.hidden_size);
  EXPECT_EQ(128u, config.n_routed_experts);
  EXPECT_EQ(1408u, config.moe_intermediate_size);
  EXPECT_EQ(1408u, config.shared_local_intermediate);
  EXPECT_EQ(8u, config.num_experts_per_tok);
  EXPECT_EQ(moeplan_scoring_sigmoid, config.scoring);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_TRUE(std::isinf(config.swiglu_limit));
}

TEST(Config, ReadsDeepSeek) {
  const moeplan_config config = Routed(Parse(R"({"hidden_size": 7168,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8,
    "topk_group": 4, "moe_intermediate_size": 2048, "n_shared_experts": 2,
    "scoring_func": "softmax", "norm_topk_prob": false, "swiglu_limit": 7.5,
    "routed_scaling_factor": 2.5})"));
  EXPECT_EQ(8u, config.n_group);
  EXPECT_EQ(4u, config.topk_group);
  EXPECT_EQ(4096u, config.shared_local_intermediate);
  EXPECT_EQ(moeplan_scoring_softmax, config.scoring);
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_EQ(7.5f, config.swiglu_limit);
  EXPECT_EQ(2.5f, config.routed_scaling_factor);
}

constexpr char kQwen[] = R"("hidden_size": 2048, "model_type": "qwen3_moe",
  "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 48)";

TEST(Config, ReadsQwen) {
  const moeplan_config config =
      Routed(Parse(std::string("{\"norm_topk_prob\": true, ") + kQwen + "}"));
  EXPECT_EQ(128u, config.n_routed_experts);
  EXPECT_EQ(768u, config.moe_intermediate_size);
  EXPECT_EQ(0u, config.shared_local_intermediate);
  EXPECT_EQ(moeplan_scoring_softmax, config.scoring);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_EQ(1.0f, config.routed_scaling_factor);
  // Not normalized where the file does not say so, as in transformers.
  EXPECT_FALSE(Routed(Parse(std::string("{") + kQwen + "}")).norm_topk_prob);
}

TEST(Config, ReadsGptOss) {
  const std::string text = R"({"model_type": "gpt_oss", "hidden_size": 2880,
    "intermediate_size": 2880, "num_local_experts": 32, "swiglu_limit": 7.0,
    "experts_per_token": 4, "num_experts_per_tok": 4, "hidden_act": "silu"})";
  const tool_shape shape = Parse(text);
  EXPECT_EQ(32u, shape.n_routed_experts);
  EXPECT_EQ(2880u, shape.moe_intermediate_size);
  EXPECT_EQ(0u, shape.intermediate_size);
  EXPECT_EQ(4u, shape.num_experts_per_tok);
  EXPECT_EQ(moeplan_scoring_softmax, shape.scoring);
  ASSERT_NE(nullptr, shape.difference);
  // Its sizes can be planned, its weights not run.
  FileBuilder file;
  file.shape = "";
  const std::string config = TempPath(".json");
  WriteTo(config, text);
  ExpectRefusal(Write(file.Bytes()), {"found another: gpt-oss"}, nullptr,
                config.c_str());
}

TEST(Config, LooksIntoTextConfig) {
  const tool_shape shape =
      Parse(std::string("{\"model_type\": \"kimi_k25\", \"text_config\": ") +
            kGlm + "}");
  EXPECT_EQ(4096u, shape.hidden_size);
  EXPECT_EQ(128u, shape.n_routed_experts);
}

TEST(Config, NullIsAsGoodAsAbsent) {
  const tool_shape shape = Parse(
      R"({"hidden_size": 32, "n_routed_experts": null, "n_group": null,
          "swiglu_limit": null, "first_k_dense_replace": null})");
  EXPECT_EQ(0u, shape.n_routed_experts);
  EXPECT_EQ(1u, shape.n_group);
  EXPECT_TRUE(std::isinf(shape.swiglu_limit));
  EXPECT_EQ(TOOL_NO_DENSE_RULE, shape.first_k_dense_replace);
}

TEST(Config, RefusesWhatTheLibraryDoesNotCompute) {
  ExpectBadConfig(
      std::string("{\"shared_expert_intermediate_size\": 512, ") + kQwen + "}",
      {"config.json", "expected shared_expert_intermediate_size", "found 512"});
  ExpectBadConfig("{\"hidden_size\": 32, \"hidden_act\": \"gelu\"}",
                  {"expected hidden_act to be \"silu\"", "found \"gelu\""});
}

TEST(Config, RefusesFieldsThatAreNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"\"n_routed_experts\": -1", "n_routed_experts"},
      {"\"n_routed_experts\": 1048577", "n_routed_experts"},
      {"\"num_experts\": \"many\"", "num_experts"},
      {"\"norm_topk_prob\": 1", "norm_topk_prob"},
      {"\"routed_scaling_factor\": \"2\"", "routed_scaling_factor"},
      {"\"scoring_func\": \"tanh\"", "scoring_func"},
  };
  for (const auto& [field, name] : cases) {
    ExpectBadConfig(std::string("{\"hidden_size\": 32, ") + field + "}",
                    {"config.json", "expected", name, "found"});
  }
  ExpectBadConfig("{}", {"expected hidden_size", "found nothing"});
  ExpectBadConfig("", {"expected a JSON object"});
  ExpectBadConfig("[7]", {"found another JSON value"});
  ExpectBadConfig("{\"hidden_size\": 1, \"hidden_size\": 2}", {"duplicate"});
  ExpectBadConfig("{\"hidden_size\": NaN}", {"expected a JSON object"});
}

// ---- which one counts --------------------------------------------------------

std::string ConfigText(const char* scale) {
  return std::string(
             "{\"hidden_size\": 32, \"moe_intermediate_size\": 16, "
             "\"n_routed_experts\": 3, \"num_experts_per_tok\": 2, "
             "\"intermediate_size\": 48, \"n_shared_experts\": 1, "
             "\"routed_scaling_factor\": ") +
         scale + "}";
}

float ScaleOf(const std::string& path, const char* config) {
  Loaded loaded(path, nullptr, config);
  EXPECT_TRUE(loaded.ok()) << loaded.error();
  return loaded.ok() ? loaded->sites[1].config.routed_scaling_factor : -1.0f;
}

TEST(Config, NamedThenMetadataThenBesideTheFile) {
  const std::string folder = TempFolder();
  FileBuilder file;
  WriteTo(folder + "a.safetensors", file.Bytes());
  file.shape = "";
  WriteTo(folder + "b.safetensors", file.Bytes());
  WriteTo(folder + "config.json", ConfigText("4.0"));
  WriteTo(folder + "other.json", ConfigText("8.0"));
  const std::string other = folder + "other.json";
  EXPECT_EQ(2.5f, ScaleOf(folder + "a.safetensors", nullptr));
  EXPECT_EQ(4.0f, ScaleOf(folder + "b.safetensors", nullptr));
  EXPECT_EQ(8.0f, ScaleOf(folder + "a.safetensors", other.c_str()));
  EXPECT_EQ(8.0f, ScaleOf(folder + "b.safetensors", other.c_str()));
}

TEST(Config, RefusesFilesThatAreNone) {
  FileBuilder file;
  file.shape = "";
  const std::string path = Write(file.Bytes());
  const std::string folder = TempFolder();
  ExpectRefusal(path, {"found a directory"}, nullptr, folder.c_str(), folder);
  const std::string none = folder + "none.json";
  ExpectRefusal(path, {"No such file"}, nullptr, none.c_str(), none);
  const std::string huge = folder + "huge.json";
  WriteTo(huge, "{}");
  std::filesystem::resize_file(huge, (16 << 20) + 1);
  ExpectRefusal(path, {"expected at most 16777216 bytes", "found 16777217"},
                nullptr, huge.c_str(), huge);
}

TEST(Config, RefusesExpertsBeyondTheLibrarys) {
  for (const char* count : {"0", "1025", "1048576"}) {
    FileBuilder file;
    const size_t at = file.shape.find("n_routed_experts") + 20;
    file.shape.replace(file.shape.find('3', at), 1, count);
    ExpectRefusal(file, {"model.layers.3.mlp", "expected 1..1024 experts",
                         std::string("with ") + count});
  }
}

}  // namespace
}  // namespace checkpoint
