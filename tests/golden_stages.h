// What the golden files of tests/golden/cases hold: a line per stage of a case,
// "routed.logits 0123456789abcdef", the hash over the bytes of all its rows in
// row order. Host and GPU are held to the same files.

#ifndef MOEPLAN_TESTS_GOLDEN_STAGES_H_
#define MOEPLAN_TESTS_GOLDEN_STAGES_H_

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "tests/checkpoint_builder.h"
#include "tests/harness_cc.h"

namespace golden {

inline constexpr const char* kCases[] = {"glm53_tiny", "glm53_288",
                                         "glm53_noren"};

// FNV-1a, 64 bits.
class Hash {
 public:
  void Add(const void* data, size_t bytes) {
    const auto* byte = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < bytes; i++) {
      value_ = (value_ ^ byte[i]) * 0x100000001B3u;
    }
  }
  std::string text() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx",
                  static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

// In the order of the files. Accumulators are float32 before any rounding.
enum Stage {
  kLogits,      // [E]
  kIds,         // [k], slot order
  kWeights,     // [k]
  kExpertUp,    // accumulators [k, 2, I]
  kExpertDown,  // accumulators [k, H]
  kFfnUp,       // accumulators [2, W]
  kFfnDown,     // accumulators [H]
  kH,           // [k, I] bf16, natural order
  kSlots,       // [k, H] bf16, each slot's rounded down output
  kY,           // [H] bf16
  kStages,
};

inline constexpr const char* kStageNames[kStages] = {
    "logits", "ids",      "weights", "expert_up", "expert_down",
    "ffn_up", "ffn_down", "h",       "slots",     "y"};

// The stages of one site, fed in row order.
class Stages {
 public:
  void Add(Stage stage, const void* data, size_t bytes) {
    if (bytes != 0) hashes_[stage].Add(data, bytes);
  }

  // All rows of a run with accumulators; a dense site has no routing.
  void Add(const moeplan_config& config, const harness_result& result) {
    const struct {
      Stage stage;
      const void* data;
      size_t row_bytes;
    } parts[] = {
        {kLogits, result.tap.logits, result.tap_bytes[0]},
        {kIds, result.ids, size_t{config.num_experts_per_tok} * 4},
        {kWeights, result.weights, size_t{config.num_experts_per_tok} * 4},
        {kExpertUp, result.tap.expert_up, result.tap_bytes[1]},
        {kExpertDown, result.tap.expert_down, result.tap_bytes[2]},
        {kFfnUp, result.tap.ffn_up, result.tap_bytes[3]},
        {kFfnDown, result.tap.ffn_down, result.tap_bytes[4]},
        {kY, result.y, size_t{config.hidden_size} * result.y_bytes},
    };
    const bool dense = config.kind == moeplan_site_dense;
    for (const auto& part : parts) {
      if (dense && (part.stage == kIds || part.stage == kWeights)) continue;
      Add(part.stage, part.data, result.rows * part.row_bytes);
    }
  }

  // "name" -> hash, of the stages that were fed.
  std::map<std::string, std::string> Named(const std::string& site) const {
    std::map<std::string, std::string> named;
    for (const auto& [stage, hash] : hashes_) {
      named[site + "." + kStageNames[stage]] = hash.text();
    }
    return named;
  }

  // The lines of a file.
  std::string Lines(const std::string& site) const {
    std::string lines;
    for (const auto& [stage, hash] : hashes_) {
      lines += site + "." + kStageNames[stage] + " " + hash.text() + "\n";
    }
    return lines;
  }

 private:
  std::map<Stage, Hash> hashes_;
};

// The lines of a case's file by their names; empty if it is missing.
inline std::map<std::string, std::string> ReadFile(const std::string& name) {
  std::map<std::string, std::string> lines;
  std::ifstream file("tests/golden/cases/" + name + ".txt");
  std::string stage, hash;
  while (file >> stage >> hash) lines[stage] = hash;
  return lines;
}

// Holds every stage that was fed to the case's file.
inline void ExpectGolden(const std::string& name, const std::string& site,
                         const Stages& stages, const std::string& what) {
  const std::map<std::string, std::string> expected = ReadFile(name);
  ASSERT_FALSE(expected.empty())
      << name << ".txt is missing: tests/update_golden_cases.sh";
  const std::map<std::string, std::string> named = stages.Named(site);
  EXPECT_FALSE(named.empty());
  for (const auto& [stage, hash] : named) {
    const auto found = expected.find(stage);
    ASSERT_NE(found, expected.end()) << stage << " is not in " << name;
    EXPECT_EQ(found->second, hash) << name << ", " << stage << ", " << what;
  }
}

inline std::string CasePath(const std::string& name) {
  const char* folder = std::getenv("MOEPLAN_CASES");
  return std::string(folder != nullptr ? folder : "tests/cases") + "/" + name +
         ".safetensors";
}

// One site of a case file, with its weights and rows, on the host.
class CaseSite {
 public:
  CaseSite(const std::string& name, moeplan_site_kind kind)
      : loaded_(CasePath(name)) {
    if (!loaded_.ok()) {
      ADD_FAILURE() << loaded_.error();
      return;
    }
    for (size_t i = 0; i < loaded_->num_sites; i++) {
      if (loaded_->sites[i].config.kind == kind) Open(loaded_->sites[i]);
    }
    EXPECT_TRUE(ok()) << name << " lacks the site";
  }

  bool ok() const { return site_ != nullptr; }
  uint32_t rows() { return loaded_->rows; }
  const moeplan_config& config() { return parts()->config; }
  harness* parts() { return site_->get(); }
  moeplan_test::Site& site() { return *site_; }

 private:
  // The harness makes a site of this shape at random; then it gets these bytes.
  void Open(const tool_site& from) {
    site_ = std::make_unique<moeplan_test::Site>(
        harness_of(from.config, 1, loaded_->rows));
    parts()->site = from.weights;
    std::memcpy(parts()->x, loaded_->x->data, loaded_->x->bytes);
    EXPECT_EQ(harness_write_site(parts()), moeplan_status_success)
        << site_->log();
  }

  checkpoint::Loaded loaded_;
  std::unique_ptr<moeplan_test::Site> site_;
};

}  // namespace golden

#endif  // MOEPLAN_TESTS_GOLDEN_STAGES_H_
