// The tool's loader against good and bad files: every refusal is one sentence
// that names the file, the tensor, what was expected and what was found.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "tools/checkpoint.h"
#include "tools/safetensors.h"
}

namespace {

using Strings = std::vector<std::string>;

constexpr char kShape[] =
    "{\\\"hidden_size\\\": 32, \\\"moe_intermediate_size\\\": 16, "
    "\\\"n_routed_experts\\\": 3, \\\"num_experts_per_tok\\\": 2, "
    "\\\"intermediate_size\\\": 48, \\\"n_shared_experts\\\": 1, "
    "\\\"routed_scaling_factor\\\": 2.5, \\\"swiglu_limit\\\": 10.0, "
    "\\\"norm_topk_prob\\\": true}";

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int> shape;
  std::string data;
  std::string offsets;  // "" for the true ones
};

// Bytes of a file with three experts, a shared expert and a dense site.
class FileBuilder {
 public:
  FileBuilder() {
    Add("model.layers.0.mlp.gate_proj.weight", "BF16", {48, 32});
    Add("model.layers.0.mlp.up_proj.weight", "BF16", {48, 32});
    Add("model.layers.0.mlp.down_proj.weight", "BF16", {32, 48});
    Add("model.layers.3.mlp.gate.weight", "BF16", {3, 32});
    Add("model.layers.3.mlp.gate.e_score_correction_bias", "F32", {3});
    Add("model.layers.3.mlp.shared_experts.gate_proj.weight", "BF16", {16, 32});
    Add("model.layers.3.mlp.shared_experts.up_proj.weight", "BF16", {16, 32});
    Add("model.layers.3.mlp.shared_experts.down_proj.weight", "BF16", {32, 16});
    for (int e = 0; e < 3; e++) AddExpert(e);
    Add("input.x", "BF16", {5, 32});
    Add("expect.router.ids", "I32", {5, 2});
    Add("expect.moe.ref_f32", "F32", {5, 32});
    Add("expect.dense.ref_f32", "F32", {5, 32});
  }

  void AddExpert(int e) {
    const std::string at = "model.layers.3.mlp.experts." + std::to_string(e);
    for (const char* name : {".gate_proj", ".up_proj", ".down_proj"}) {
      const bool down = std::strcmp(name, ".down_proj") == 0;
      const int n = down ? 32 : 16;
      const int k = down ? 16 : 32;
      Add(at + name + ".weight", "U8", {n, k / 2});
      Add(at + name + ".weight_scale", "F8_E4M3", {n, k / 16});
      Add(at + name + ".weight_scale_2", "F32", {});
      SetFloat(at + name + ".weight_scale_2", 0.5f + static_cast<float>(e));
    }
  }

  void Add(const std::string& name, const std::string& dtype,
           std::vector<int> shape) {
    size_t bytes = dtype == "F32" || dtype == "I32" ? 4 : 1;
    if (dtype == "BF16") bytes = 2;
    for (int extent : shape) bytes *= static_cast<size_t>(extent);
    entries.push_back(
        {name, dtype, std::move(shape), std::string(bytes, 1), ""});
  }

  Entry& At(const std::string& name) {
    for (Entry& entry : entries) {
      if (entry.name == name) return entry;
    }
    ADD_FAILURE() << "no entry " << name;
    return entries[0];
  }

  void Remove(const std::string& part) {
    std::vector<Entry> kept;
    for (const Entry& entry : entries) {
      if (entry.name.find(part) == std::string::npos) kept.push_back(entry);
    }
    entries = kept;
  }

  void SetFloat(const std::string& name, float value) {
    std::memcpy(At(name).data.data(), &value, sizeof(value));
  }

  std::string Header() const {
    std::string header = "{";
    if (!shape.empty()) {
      header += "\"__metadata__\": {\"case\": \"" + shape + "\"}, ";
    }
    size_t at = 0;
    for (const Entry& entry : entries) {
      if (&entry != &entries[0]) header += ", ";
      header += "\"" + entry.name + "\": {\"dtype\": \"" + entry.dtype +
                "\", \"shape\": [";
      for (size_t i = 0; i < entry.shape.size(); i++) {
        header += (i == 0 ? "" : ", ") + std::to_string(entry.shape[i]);
      }
      const std::string truth =
          std::to_string(at) + ", " + std::to_string(at + entry.data.size());
      header += "], \"data_offsets\": [" +
                (entry.offsets.empty() ? truth : entry.offsets) + "]}";
      at += entry.data.size();
    }
    header += extra + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return header;
  }

  static std::string WithLength(const std::string& header, uint64_t length) {
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; i++) {
      bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
    }
    return bytes + header;
  }

  std::string Bytes() const {
    const std::string header = Header();
    std::string bytes = WithLength(header, header.size());
    for (const Entry& entry : entries) bytes += entry.data;
    return bytes;
  }

  std::vector<Entry> entries;
  std::string shape = kShape;
  std::string extra;  // before the header's last brace
};

std::string TempPath() {
  const char* folder = std::getenv("TEST_TMPDIR");
  const testing::TestInfo* test =
      testing::UnitTest::GetInstance()->current_test_info();
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" +
         test->test_suite_name() + "." + test->name() + ".safetensors";
}

std::string Write(const std::string& bytes) {
  const std::string path = TempPath();
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// Expects a refusal whose sentence has the path and all of `parts`.
void ExpectRefusal(const std::string& path, const Strings& parts,
                   const char* site = nullptr) {
  auto error = std::make_unique<tool_error>();
  tool_checkpoint untouched;
  std::memset(&untouched, 0x5A, sizeof(untouched));
  tool_checkpoint checkpoint = untouched;
  ASSERT_EQ(tool_failed,
            tool_checkpoint_open(path.c_str(), site, &checkpoint, error.get()));
  EXPECT_EQ(0, std::memcmp(&untouched, &checkpoint, sizeof(checkpoint)));
  const std::string sentence = error->text;
  EXPECT_EQ(0u, sentence.rfind("cannot ", 0)) << sentence;
  EXPECT_EQ(std::string::npos, sentence.find('\n')) << sentence;
  for (const std::string& part : parts) {
    EXPECT_NE(std::string::npos, sentence.find(part))
        << "expected \"" << part << "\" in: " << sentence;
  }
  EXPECT_NE(std::string::npos, sentence.find(path)) << sentence;
}

void ExpectRefusal(const FileBuilder& file, const Strings& parts) {
  ExpectRefusal(Write(file.Bytes()), parts);
}

constexpr char kExpert[] = "model.layers.3.mlp.experts.1.";

std::string Expert(const std::string& rest) { return kExpert + rest; }

TEST(Checkpoint, FindsEveryTensorWhereItLies) {
  const FileBuilder file;
  const std::string path = Write(file.Bytes());
  tool_error error = {""};
  tool_checkpoint checkpoint;
  ASSERT_EQ(tool_ok,
            tool_checkpoint_open(path.c_str(), nullptr, &checkpoint, &error))
      << error.text;
  ASSERT_EQ(2u, checkpoint.num_sites);
  EXPECT_EQ(5u, checkpoint.rows);
  const tool_site& dense = checkpoint.sites[0];
  const tool_site& routed = checkpoint.sites[1];
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
  const auto data = [&](const std::string& name) -> const void* {
    return tool_safetensors_find(&checkpoint.file, name.c_str())->data;
  };
  EXPECT_EQ(data("model.layers.3.mlp.gate.weight"), routed.weights.router);
  EXPECT_EQ(data(Expert("gate_proj.weight")), routed.weights.gate.weight[1]);
  EXPECT_EQ(data(Expert("up_proj.weight_scale")),
            routed.weights.up.weight_scale[1]);
  EXPECT_EQ(data(Expert("down_proj.weight")), routed.weights.down.weight[1]);
  EXPECT_EQ(2.5f, routed.weights.down.weight_scale_2[2]);
  tool_checkpoint_close(&checkpoint);
}

TEST(Checkpoint, KeepsThreeScalesPerExpert) {
  FileBuilder file;
  file.SetFloat(Expert("gate_proj.weight_scale_2"), 1.0f);
  file.SetFloat(Expert("up_proj.weight_scale_2"), 10.0f);
  file.SetFloat(Expert("down_proj.weight_scale_2"), 0.0f);
  const std::string path = Write(file.Bytes());
  tool_error error = {""};
  tool_checkpoint checkpoint;
  ASSERT_EQ(tool_ok, tool_checkpoint_open(path.c_str(), "model.layers.3.mlp.",
                                          &checkpoint, &error))
      << error.text;
  ASSERT_EQ(1u, checkpoint.num_sites);
  EXPECT_EQ(1.0f, checkpoint.sites[0].weights.gate.weight_scale_2[1]);
  EXPECT_EQ(10.0f, checkpoint.sites[0].weights.up.weight_scale_2[1]);
  EXPECT_EQ(0.0f, checkpoint.sites[0].weights.down.weight_scale_2[1]);
  tool_checkpoint_close(&checkpoint);
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
  const std::string path = Write(file.Bytes());
  tool_error error = {""};
  tool_checkpoint checkpoint;
  ASSERT_EQ(tool_ok,
            tool_checkpoint_open(path.c_str(), nullptr, &checkpoint, &error))
      << error.text;
  tool_checkpoint_close(&checkpoint);
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

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string bytes = FileBuilder().Bytes();
  for (size_t kept : {size_t{0}, size_t{7}, size_t{8}, size_t{100},
                      bytes.size() / 2, bytes.size() - 1}) {
    SCOPED_TRACE(kept);
    ExpectRefusal(Write(bytes.substr(0, kept)), {"expected", "found"});
  }
  ExpectRefusal(Write(bytes.substr(0, bytes.size() - 1)),
                {"expect.dense.ref_f32", "expected ascending offsets"});
}

TEST(Safetensors, RefusesAnEmptyFile) {
  ExpectRefusal(Write(""), {"expected at least 8 bytes", "found 0 bytes"});
}

TEST(Safetensors, RefusesADirectory) {
  const std::string path = TempPath();
  mkdir(path.c_str(), 0700);
  ExpectRefusal(path, {"expected a file", "found a directory"});
}

TEST(Safetensors, RefusesAMissingFile) {
  ExpectRefusal(TempPath() + ".none", {"expected a readable file", "found"});
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFile) {
  const std::string header = FileBuilder().Header();
  const std::string length = std::to_string(header.size() + 1);
  ExpectRefusal(
      Write(FileBuilder::WithLength(header, header.size() + 1)),
      {"expected a header of at most", "found a length of " + length});
}

TEST(Safetensors, RefusesAHugeHeader) {
  for (const uint64_t length :
       {UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63}) {
    ExpectRefusal(Write(FileBuilder::WithLength("{}", length)),
                  {"expected a header of at most 2 bytes",
                   "found a length of " + std::to_string(length)});
  }
}

TEST(Safetensors, RefusesAHeaderAboveTheFormatsLimit) {
  const std::string path = Write(FileBuilder::WithLength("{}", 100000001));
  ASSERT_EQ(0, truncate(path.c_str(), 200000000));  // a hole, no bytes
  ExpectRefusal(path, {"at most 100000000 bytes", "of 100000001"});
}

TEST(Safetensors, RefusesWhatIsNoJsonObject) {
  for (const char* header : {"{]      ", "        ", "[1, 2]  ", "{} {}   "}) {
    ExpectRefusal(Write(FileBuilder::WithLength(header, 8)),
                  {"expected a", "header", "found"});
  }
}

TEST(Safetensors, RefusesDuplicateKeys) {
  FileBuilder file;
  file.extra =
      ", \"input.x\": {\"dtype\": \"U8\", \"shape\": [0], "
      "\"data_offsets\": [0, 0]}";
  ExpectRefusal(file, {"expected", "found duplicate object key", "input.x"});
}

TEST(Safetensors, RefusesOverlappingTensors) {
  FileBuilder file;
  file.At("model.layers.0.mlp.up_proj.weight").offsets = "3071, 6143";
  ExpectRefusal(file, {"model.layers.0.mlp.up_proj.weight",
                       "model.layers.0.mlp.gate_proj.weight", "expected",
                       "found an overlap"});
}

TEST(Safetensors, RefusesATensorInsideAnother) {
  FileBuilder file;
  file.extra =
      ", \"inner\": {\"dtype\": \"U8\", \"shape\": [1], "
      "\"data_offsets\": [100, 101]}";
  ExpectRefusal(file, {"inner", "expected", "found an overlap"});
}

TEST(Safetensors, TakesAnEmptyTensorAnywhere) {
  FileBuilder file;
  file.extra =
      ", \"inner\": {\"dtype\": \"U8\", \"shape\": [0], "
      "\"data_offsets\": [100, 100]}";
  const std::string path = Write(file.Bytes());
  tool_error error = {""};
  tool_safetensors opened;
  ASSERT_EQ(tool_ok, tool_safetensors_open(path.c_str(), &opened, &error))
      << error.text;
  EXPECT_EQ(0u, tool_safetensors_find(&opened, "inner")->bytes);
  EXPECT_EQ(nullptr, tool_safetensors_find(&opened, "none"));
  tool_safetensors_close(&opened);
}

TEST(Safetensors, RefusesOffsetsOutOfTheFile) {
  for (const char* offsets : {"0, 99999999", "9223372036854775807, 1", "6, 0",
                              "9223372036854770000, 9223372036854775807"}) {
    FileBuilder file;
    file.At("input.x").offsets = offsets;
    ExpectRefusal(file, {"input.x", "expected ascending offsets", "found"});
  }
}

TEST(Safetensors, RefusesOffsetsThatAreNotTwoNumbers) {
  for (const char* offsets :
       {"-1, 319", "0", "0, 1, 2", "0.5, 1", "\"0\", 1", ""}) {
    FileBuilder file;
    file.At("input.x").offsets = std::string(offsets) + " ";
    ExpectRefusal(file, {"input.x", "expected two data_offsets", "found"});
  }
}

TEST(Safetensors, RefusesNumbersBeyond64Bits) {
  FileBuilder file;
  file.At("input.x").offsets = "0, 99999999999999999999999";
  ExpectRefusal(file, {"expected a header in JSON", "found too big integer"});
}

TEST(Safetensors, RefusesANegativeExtent) {
  FileBuilder file;
  file.At("input.x").shape = {-5, -32};
  ExpectRefusal(file, {"input.x", "expected a shape", "found"});
}

TEST(Safetensors, RefusesARankAboveEight) {
  FileBuilder file;
  file.At("input.x").shape = {5, 32, 1, 1, 1, 1, 1, 1, 1};
  ExpectRefusal(file, {"input.x", "expected a shape of at most 8", "found"});
}

TEST(Safetensors, RefusesBytesThatDoNotFitTheShape) {
  FileBuilder file;
  file.At("input.x").shape = {6, 32};
  ExpectRefusal(file, {"input.x", "expected the bytes of BF16 [6, 32]",
                       "found 320 bytes"});
}

TEST(Safetensors, RefusesAShapeWhoseProductWrapsAround) {
  FileBuilder file;
  // 2^62 x 4 x 16 bits is 0 modulo 2^64.
  file.extra =
      ", \"wrap\": {\"dtype\": \"BF16\", \"shape\": "
      "[4611686018427387904, 4], \"data_offsets\": [0, 0]}";
  ExpectRefusal(file, {"wrap", "expected the bytes of", "found 0 bytes"});
}

TEST(Safetensors, RefusesAnUnknownDtype) {
  FileBuilder file;
  file.At("input.x").dtype = "BF17";
  ExpectRefusal(file, {"input.x", "expected a known dtype", "found BF17"});
}

TEST(Safetensors, RefusesAnEntryThatIsNoObject) {
  FileBuilder file;
  file.extra = ", \"odd\": 7";
  ExpectRefusal(file, {"odd", "expected a known dtype", "found no text"});
}

TEST(Safetensors, SentenceStaysOneLine) {
  FileBuilder file;
  file.extra = ", \"two\\nlines\\u001b[31m\": 7";
  ExpectRefusal(file, {"two?lines?[31m", "expected", "found"});
}

}  // namespace
