// What the loader's tests share: a builder of checkpoint files with one thing
// wrong, or nothing, and expectations about the sentences of refusals.

#ifndef MOEPLAN_TESTS_CHECKPOINT_BUILDER_H_
#define MOEPLAN_TESTS_CHECKPOINT_BUILDER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "tools/checkpoint.h"
}

namespace checkpoint {

using Strings = std::vector<std::string>;

inline constexpr char kShape[] =
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

  // The same weights by compressed-tensors names. Powers of two have exact
  // inverses.
  void Compress() {
    for (Entry& entry : entries) {
      const std::string from[] = {".weight", ".weight_scale_2"};
      const std::string to[] = {".weight_packed", ".weight_global_scale"};
      if (entry.name.find(".experts.") == std::string::npos) continue;
      for (int i = 0; i < 2; i++) {
        const size_t at = entry.name.size() - from[i].size();
        if (entry.name.compare(at, from[i].size(), from[i]) != 0) continue;
        entry.name = entry.name.substr(0, at) + to[i];
        if (i == 1) entry.shape = {1};
        if (i == 1) SetFloat(entry.name, 256.0f);
      }
    }
  }

  // The tensors whose index has this remainder modulo `parts`.
  FileBuilder Part(size_t part, size_t parts) const {
    FileBuilder result = *this;
    result.entries.clear();
    result.shape = "";
    for (size_t i = part; i < entries.size(); i += parts) {
      result.entries.push_back(entries[i]);
    }
    return result;
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

// A path of this test alone.
inline std::string TempPath(const std::string& end = ".safetensors") {
  const char* folder = std::getenv("TEST_TMPDIR");
  const testing::TestInfo* test =
      testing::UnitTest::GetInstance()->current_test_info();
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" +
         test->test_suite_name() + "." + test->name() + end;
}

inline void WriteTo(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string Write(const std::string& bytes) {
  const std::string path = TempPath();
  WriteTo(path, bytes);
  return path;
}

// An empty folder of this test alone, with a slash at the end.
inline std::string TempFolder() {
  const std::string path = TempPath("");
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path + "/";
}

// Owns a checkpoint that loads, or says why it does not.
class Loaded {
 public:
  explicit Loaded(const std::string& path, const char* site = nullptr,
                  const char* config = nullptr,
                  tool_problems* problems = nullptr) {
    const tool_load load = {path.c_str(), site, config, problems, nullptr};
    status_ = tool_checkpoint_open(&load, &checkpoint_, error_.get());
  }
  ~Loaded() {
    if (status_ == tool_ok) tool_checkpoint_close(&checkpoint_);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  bool ok() const { return status_ == tool_ok; }
  std::string error() const { return error_->text; }
  tool_checkpoint* operator->() { return &checkpoint_; }
  const void* Data(const std::string& name) {
    const tool_tensor* tensor = nullptr;
    tool_files_find(&checkpoint_.files, name.c_str(), &tensor, error_.get());
    return tensor == nullptr ? nullptr : tensor->data;
  }

 private:
  std::unique_ptr<tool_error> error_ = std::make_unique<tool_error>();
  tool_checkpoint checkpoint_;
  tool_status status_;
};

// The sentences of a checkpoint that is looked at to the end.
inline Strings Problems(const std::string& path, const char* config = nullptr) {
  tool_problems problems = {nullptr, 0, 0};
  Strings lines;
  {
    Loaded loaded(path, nullptr, config, &problems);
    if (!loaded.ok()) lines.push_back(loaded.error());
  }
  lines.insert(lines.begin(), problems.lines, problems.lines + problems.count);
  tool_problems_free(&problems);
  return lines;
}

inline void ExpectSentence(const std::string& sentence, const Strings& parts) {
  EXPECT_EQ(0u, sentence.rfind("cannot ", 0)) << sentence;
  EXPECT_EQ(std::string::npos, sentence.find('\n')) << sentence;
  for (const std::string& part : parts) {
    EXPECT_NE(std::string::npos, sentence.find(part))
        << "expected \"" << part << "\" in: " << sentence;
  }
}

// Expects a refusal whose sentence has `named` (the path, "": that of the
// checkpoint) and all of `parts`, and which leaves the output alone.
inline void ExpectRefusal(const std::string& path, const Strings& parts,
                          const char* site = nullptr,
                          const char* config = nullptr,
                          const std::string& named = "") {
  auto error = std::make_unique<tool_error>();
  tool_checkpoint untouched;
  std::memset(&untouched, 0x5A, sizeof(untouched));
  tool_checkpoint checkpoint = untouched;
  const tool_load load = {path.c_str(), site, config, nullptr, nullptr};
  ASSERT_EQ(tool_failed, tool_checkpoint_open(&load, &checkpoint, error.get()));
  EXPECT_EQ(0, std::memcmp(&untouched, &checkpoint, sizeof(checkpoint)));
  ExpectSentence(error->text, parts);
  ExpectSentence(error->text, {named.empty() ? path : named});
}

inline void ExpectRefusal(const FileBuilder& file, const Strings& parts) {
  ExpectRefusal(Write(file.Bytes()), parts);
}

inline constexpr char kExpert[] = "model.layers.3.mlp.experts.1.";

inline std::string Expert(const std::string& rest) { return kExpert + rest; }

}  // namespace checkpoint

#endif  // MOEPLAN_TESTS_CHECKPOINT_BUILDER_H_
