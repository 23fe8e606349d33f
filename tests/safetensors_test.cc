// One safetensors file: what of its header is taken, and what is refused.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "tests/checkpoint_builder.h"

namespace checkpoint {
namespace {

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
  ExpectRefusal(path, {"expected model.safetensors.index.json",
                       "found a directory with neither"});
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
  ASSERT_EQ(tool_ok,
            tool_safetensors_open(path.c_str(), nullptr, &opened, &error))
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

TEST(Safetensors, RefusesAPipeWithoutWaiting) {
  const std::string path = TempPath(".fifo");
  unlink(path.c_str());
  ASSERT_EQ(0, mkfifo(path.c_str(), 0600));
  ExpectRefusal(path, {"expected a file", "found a pipe"});
  ExpectRefusal(Write(FileBuilder().Bytes()),
                {"expected a file", "found a pipe"}, nullptr, path.c_str(),
                path);
}

TEST(Safetensors, RefusesADevice) {
  ExpectRefusal("/dev/null",
                {"expected a file", "found something that is no file"});
}

TEST(Safetensors, RefusesAnUnreadableFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const std::string path = Write(FileBuilder().Bytes());
  ASSERT_EQ(0, chmod(path.c_str(), 0));
  ExpectRefusal(path, {"expected a readable file", "Permission denied"});
}

// A link to itself cannot be opened, by root neither.
TEST(Safetensors, RefusesWhatCannotBeOpened) {
  const std::string path = TempPath(".loop");
  unlink(path.c_str());
  ASSERT_EQ(0, symlink(path.c_str(), path.c_str()));
  ExpectRefusal(path, {"expected a readable file", "found: Too many levels"});
}

TEST(Safetensors, SeesThatAMappedFileBecameShorter) {
  const std::string path = Write(FileBuilder().Bytes());
  tool_error error = {""};
  tool_safetensors file;
  ASSERT_EQ(tool_ok,
            tool_safetensors_open(path.c_str(), nullptr, &file, &error));
  const tool_tensor* x = tool_safetensors_find(&file, "input.x");
  EXPECT_EQ(tool_ok, tool_tensor_check(x, &error));
  ASSERT_EQ(0, truncate(path.c_str(), 100));
  EXPECT_EQ(tool_failed, tool_tensor_check(x, &error));
  ExpectSentence(error.text, {path, "input.x", "expected the file to keep its",
                              "found it shorter"});
  tool_safetensors_close(&file);
}

TEST(Safetensors, AListOfProblemsKeepsTheOtherTensors) {
  FileBuilder file;
  file.At("input.x").dtype = "BF17";
  file.At("model.layers.0.mlp.up_proj.weight").offsets = "0, 99999999";
  file.At("model.layers.3.mlp.gate.weight").shape = {-3, 32};
  const std::string path = Write(file.Bytes());
  tool_error error = {""};
  tool_problems problems = {nullptr, 0, 0};
  tool_safetensors opened;
  ASSERT_EQ(tool_ok,
            tool_safetensors_open(path.c_str(), &problems, &opened, &error));
  EXPECT_EQ(file.entries.size() - 3, opened.num_tensors);
  ASSERT_EQ(3u, problems.count);
  ExpectSentence(problems.lines[0], {path, "up_proj.weight", "ascending"});
  ExpectSentence(problems.lines[1], {path, "gate.weight", "a shape"});
  ExpectSentence(problems.lines[2], {path, "input.x", "found BF17"});
  tool_problems_free(&problems);
  tool_safetensors_close(&opened);
}

}  // namespace
}  // namespace checkpoint
