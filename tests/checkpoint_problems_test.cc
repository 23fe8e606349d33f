// A loader that goes on after a fault, and one that says how far it is.

#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <string>

#include "tests/checkpoint_builder.h"

namespace checkpoint {
namespace {

TEST(Problems, AGoodFileHasNone) {
  EXPECT_EQ(Strings{}, Problems(Write(FileBuilder().Bytes())));
}

TEST(Problems, AreListedToTheLast) {
  FileBuilder file;
  file.At(Expert("gate_proj.weight_scale")).data[5] = '\xFF';
  file.At(Expert("up_proj.weight")).dtype = "I8";
  file.SetFloat(Expert("down_proj.weight_scale_2"), -1.0f);
  file.Remove("shared_experts.down_proj");
  file.At("model.layers.0.mlp.up_proj.weight").shape = {32, 48};
  file.At("expect.router.ids").shape = {2, 5};
  file.AddExpert(3);
  const Strings lines = Problems(Write(file.Bytes()));
  const Strings expected[] = {
      {"layers.0.mlp.up_proj.weight", "found BF16 [32, 48]"},
      {"experts.3.", "expected experts below"},
      {"shared_experts.down_proj.weight", "found no tensor"},
      {Expert("gate_proj.weight_scale"), "a NaN, at byte 5"},
      {Expert("up_proj.weight"), "found I8"},
      {Expert("down_proj.weight_scale_2"), "found -1"},
      {"expect.router.ids", "found I32 [2, 5]"},
  };
  size_t found = 0;
  for (const Strings& parts : expected) {
    bool known = false;
    for (const std::string& line : lines) {
      known = known || (line.find(parts[0]) != std::string::npos &&
                        line.find(parts[1]) != std::string::npos);
    }
    EXPECT_TRUE(known) << parts[0] << ": " << parts[1];
    found += known;
  }
  // The surplus expert has nine tensors, the rest one line each.
  EXPECT_EQ(found - 1 + 9, lines.size());
}

TEST(Problems, AMissingExpertIsOneLine) {
  FileBuilder file;
  file.Remove(".experts.1.");
  const Strings lines = Problems(Write(file.Bytes()));
  ASSERT_EQ(1u, lines.size());
  ExpectSentence(lines[0], {Expert("gate_proj.weight"), "expected 3 experts",
                            "found no tensor of this one"});
}

TEST(Problems, AreCappedAndCounted) {
  FileBuilder file;
  for (int e = 3; e < 200; e++) file.AddExpert(e);
  tool_problems problems = {nullptr, 0, 0};
  {
    Loaded loaded(Write(file.Bytes()), nullptr, nullptr, &problems);
    EXPECT_TRUE(loaded.ok()) << loaded.error();
  }
  EXPECT_EQ(1000u, problems.count);
  EXPECT_EQ(197u * 9 - 1000, problems.left_out);
  tool_problems_free(&problems);
}

TEST(Problems, AFileThatIsNoneIsTheLast) {
  const Strings lines = Problems(Write("short"));
  ASSERT_EQ(1u, lines.size());
  ExpectSentence(lines[0], {"expected at least 8 bytes"});
}

// ---- progress ------------------------------------------------------------------

// What a terminal gets from a load whose progress starts after `delay_ms`.
std::string OnATerminal(uint32_t delay_ms) {
  int terminal = -1, screen = -1;
  EXPECT_EQ(0, openpty(&screen, &terminal, nullptr, nullptr, nullptr));
  const std::string path = Write(FileBuilder().Bytes());
  tool_progress progress;
  tool_progress_open(&progress, terminal, delay_ms);
  const tool_load load = {path.c_str(), nullptr, nullptr, nullptr, &progress};
  tool_checkpoint checkpoint;
  auto error = std::make_unique<tool_error>();
  EXPECT_EQ(tool_ok, tool_checkpoint_open(&load, &checkpoint, error.get()));
  tool_checkpoint_close(&checkpoint);
  EXPECT_EQ(3u * (16 * 2 + 16 * 2 + 32), progress.bytes);
  tool_progress_close(&progress);
  EXPECT_EQ(3, write(terminal, "end", 3));
  std::string text;
  while (text.find("end") == std::string::npos) {
    char bytes[512];
    const ssize_t got = read(screen, bytes, sizeof(bytes));
    if (got <= 0) break;
    text.append(bytes, static_cast<size_t>(got));
  }
  close(terminal);
  close(screen);
  return text;
}

TEST(Progress, IsDrawnAndCleared) {
  const std::string text = OnATerminal(0);
  EXPECT_EQ(0u, text.find("\rloading: site 1 of 2, 0.00 GiB checked")) << text;
  EXPECT_NE(std::string::npos, text.find("\r\033[Kend")) << text;
}

TEST(Progress, ShortLoadsShowNone) { EXPECT_EQ("end", OnATerminal(60000)); }

TEST(Progress, IsSilentWhereThereIsNoTerminal) {
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  tool_progress progress;
  tool_progress_open(&progress, ends[1], 0);
  tool_progress_site(&progress, 1, 2);
  tool_progress_add(&progress, 1 << 20);
  tool_progress_close(&progress);
  close(ends[1]);
  char byte;
  EXPECT_EQ(0, read(ends[0], &byte, 1));
  close(ends[0]);
}

}  // namespace
}  // namespace checkpoint
