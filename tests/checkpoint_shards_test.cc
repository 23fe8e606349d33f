// Checkpoints of several files: model.safetensors.index.json and its shards.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>

#include "tests/checkpoint_builder.h"

namespace checkpoint {
namespace {

constexpr char kConfig[] =
    "{\"hidden_size\": 32, \"moe_intermediate_size\": 16, "
    "\"n_routed_experts\": 3, \"num_experts_per_tok\": 2, "
    "\"intermediate_size\": 48, \"n_shared_experts\": 1}";
constexpr char kIndex[] = "model.safetensors.index.json";

// A folder with the builder's tensors in three shards, its index and config.
class Shards {
 public:
  Shards() : folder(TempFolder()) {
    for (size_t i = 0; i < 3; i++) {
      parts.push_back(whole.Part(i, 3));
      for (const Entry& entry : parts[i].entries) map[entry.name] = Name(i);
    }
  }

  static std::string Name(size_t i) {
    return "model-0000" + std::to_string(i + 1) + "-of-00003.safetensors";
  }

  std::string Index() const {
    std::string text = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
    for (const auto& [name, shard] : map) {
      text +=
          (text.back() == '{' ? "\"" : ", \"") + name + "\": \"" + shard + "\"";
    }
    return text + "}}";
  }

  // Returns the folder.
  std::string Write() const {
    for (size_t i = 0; i < parts.size(); i++) {
      WriteTo(folder + Name(i), parts[i].Bytes());
    }
    WriteTo(folder + kIndex, Index());
    WriteTo(folder + "config.json", kConfig);
    return folder;
  }

  FileBuilder whole;
  std::vector<FileBuilder> parts;
  std::map<std::string, std::string> map;
  std::string folder;
};

TEST(Shards, GiveTheSitesOfTheWholeFile) {
  const Shards shards;
  const std::string folder = shards.Write();
  for (const std::string& path : {folder, folder + kIndex}) {
    Loaded loaded(path);
    ASSERT_TRUE(loaded.ok()) << loaded.error();
    ASSERT_EQ(2u, loaded->num_sites);
    EXPECT_EQ(3u, loaded->files.num_shards);
    EXPECT_EQ(5u, loaded->rows);
    EXPECT_EQ(5u + 6 * 3, loaded->sites[1].num_pieces);
    EXPECT_EQ(loaded.Data(Expert("up_proj.weight")),
              loaded->sites[1].weights.up.weight[1]);
    EXPECT_EQ(1.5f, loaded->sites[1].weights.up.weight_scale_2[1]);
    EXPECT_NE(nullptr, loaded->sites[0].reference);
  }
}

TEST(Shards, AFolderMayHoldOneFile) {
  const std::string folder = TempFolder();
  WriteTo(folder + "model.safetensors", FileBuilder().Bytes());
  Loaded loaded(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  EXPECT_EQ(2u, loaded->num_sites);
}

TEST(Shards, AreMappedWhenTheyAreNeeded) {
  Shards shards;
  // The dense site into a shard of its own.
  shards.parts[2] = FileBuilder();
  shards.parts[2].Remove("layers.3");
  shards.parts[2].Remove("input");
  shards.parts[2].Remove("expect");
  shards.parts[2].shape = "";
  FileBuilder rest;
  rest.Remove("layers.0");
  rest.shape = "";
  shards.map.clear();
  for (size_t i = 0; i < 2; i++) {
    shards.parts[i] = rest.Part(i, 2);
    for (const Entry& e : shards.parts[i].entries) {
      shards.map[e.name] = Shards::Name(i);
    }
  }
  for (const Entry& e : shards.parts[2].entries) {
    shards.map[e.name] = Shards::Name(2);
  }
  Loaded loaded(shards.Write(), "model.layers.3.mlp");
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  for (size_t i = 0; i < 3; i++) {
    const tool_shard& shard = loaded->files.shards[i];
    const bool dense =
        std::string(shard.path).find("00003-of") != std::string::npos;
    EXPECT_EQ(!dense, shard.opened) << shard.path;
  }
}

TEST(Shards, RefusesAMissingShard) {
  const Shards shards;
  const std::string folder = shards.Write();
  ASSERT_EQ(0, unlink((folder + Shards::Name(1)).c_str()));
  ExpectRefusal(folder, {"tensor ", "expected its shard " + Shards::Name(1),
                         "found: No such file"});
}

TEST(Shards, RefusesATensorThatItsShardLacks) {
  Shards shards;
  const std::string name = Expert("up_proj.weight");
  for (FileBuilder& part : shards.parts) part.Remove(name);
  shards.map[name] = Shards::Name(1);
  // Removing "up_proj.weight" removes its scales too: put those back nowhere.
  for (auto it = shards.map.begin(); it != shards.map.end();) {
    it = it->first != name && it->first.find(name) == 0 ? shards.map.erase(it)
                                                        : std::next(it);
  }
  const std::string folder = shards.Write();
  ExpectRefusal(folder,
                {name, "expected it in this shard, as weight_map says",
                 "found no tensor"},
                nullptr, nullptr, folder + Shards::Name(1));
}

TEST(Shards, RefusesATensorInTwoShards) {
  Shards shards;
  const std::string name = "model.layers.3.mlp.gate.weight";
  shards.parts[0].Remove(name);
  shards.parts[0].Add(name, "BF16", {3, 32});
  shards.parts[1].Add(name, "BF16", {3, 32});
  shards.map[name] = Shards::Name(0);
  shards.parts[2].Remove(name);
  const std::string folder = shards.Write();
  ExpectRefusal(
      folder,
      {name, "expected it in ", Shards::Name(0), "found it in this shard too"},
      nullptr, nullptr, folder + Shards::Name(1));
}

TEST(Shards, TensorsThatTheIndexDoesNotNameAreNobodys) {
  Shards shards;
  shards.parts[0].Add("model.norm.weight", "BF16", {32});
  Loaded loaded(shards.Write());
  EXPECT_TRUE(loaded.ok()) << loaded.error();
}

TEST(Shards, RefusesPathsOutOfTheFolder) {
  const std::string name = "model.layers.3.mlp.gate.weight";
  for (const char* shard :
       {"../x", "../model-00001-of-00003.safetensors", "/etc/passwd",
        "sub/x.safetensors", "..", ".", ""}) {
    Shards shards;
    shards.map[name] = shard;
    ExpectRefusal(shards.Write(),
                  {name, "expected the name of a file beside the index",
                   std::string("found ") + shard});
  }
}

TEST(Shards, RefusesBadIndexes) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected a JSON object"},
      {"[]", "found another JSON value"},
      {"{}", "\"weight_map\", found none"},
      {"{\"weight_map\": []}", "\"weight_map\", found another value"},
      {"{\"weight_map\": {\"model.layers.0.mlp.up_proj.weight\": 7}}",
       "found no text"},
      {"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "duplicate"},
      {"{\"weight_map\": {}}", "found none among 0 tensors"},
  };
  for (const auto& [text, part] : cases) {
    const Shards shards;
    const std::string folder = shards.Write();
    WriteTo(folder + kIndex, text);
    ExpectRefusal(folder, {"expected", part}, nullptr, nullptr,
                  folder + kIndex);
  }
}

TEST(Shards, RefusesTooManyOfThem) {
  Shards shards;
  for (int i = 0; i < 4200; i++) {
    const std::string name = "s" + std::to_string(i);
    shards.map["t" + name] = name;
    WriteTo(shards.folder + name, "");
  }
  ExpectRefusal(shards.Write(), {"expected at most 4096 shards", "found"});
}

TEST(Shards, RefusesAShardThatIsNoFile) {
  const Shards shards;
  const std::string folder = shards.Write();
  const std::string shard = folder + Shards::Name(2);
  unlink(shard.c_str());
  ASSERT_EQ(0, mkfifo(shard.c_str(), 0600));
  ExpectRefusal(folder, {"found a pipe"}, nullptr, nullptr, shard);
}

// Not a line for each tensor that the shard should hold.
TEST(Shards, AMissingShardIsOneProblem) {
  const Shards shards;
  const std::string folder = shards.Write();
  ASSERT_EQ(0, unlink((folder + Shards::Name(1)).c_str()));
  const Strings lines = Problems(folder);
  ASSERT_EQ(1u, lines.size());
  ExpectSentence(lines[0], {"expected its shard " + Shards::Name(1)});
}

// Whoever wants all problems has every shard looked at, needed or not.
TEST(Shards, AShardThatNoSiteNeedsIsLookedAtForProblems) {
  Shards shards;
  shards.map["model.norm.weight"] = "norm.safetensors";
  WriteTo(shards.folder + "norm.safetensors", "short");
  const std::string folder = shards.Write();
  EXPECT_TRUE(Loaded(folder).ok());
  const Strings lines = Problems(folder);
  ASSERT_EQ(1u, lines.size());
  ExpectSentence(lines[0], {"norm.safetensors", "expected at least 8 bytes"});
}

TEST(Shards, AListOfProblemsNamesEachOnce) {
  Shards shards;
  shards.parts[1].Add("model.layers.3.mlp.gate.weight", "BF16", {3, 32});
  shards.map["model.layers.9.mlp.up_proj.weight"] = "../x";
  shards.map["model.extra"] = Shards::Name(0);
  const std::string folder = shards.Write();
  const Strings lines = Problems(folder);
  size_t twice = 0, absent = 0, outside = 0;
  for (const std::string& line : lines) {
    twice += line.find("in this shard too") != std::string::npos;
    absent += line.find("tensor model.extra: expected it") != std::string::npos;
    outside += line.find("found ../x") != std::string::npos;
  }
  EXPECT_EQ(1u, outside);
  EXPECT_EQ(1u, absent);
  EXPECT_EQ(1u, twice);
  EXPECT_EQ(3u, lines.size());
}

}  // namespace
}  // namespace checkpoint
