// The loader on arbitrary bytes: a safetensors file from memory, first as run
// loads it, then as inspect does. What begins with '{' is taken for a config.json
// and an index instead. Every address that a site is given is read, so that
// AddressSanitizer sees one outside the file.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "tools/checkpoint.h"
}

namespace {

// Keeps reads from being left out.
volatile unsigned sum;

void Require(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "checkpoint_fuzz: not so: %s\n", text);
  std::abort();
}

void ReadAll(const tool_tensor* tensor) {
  if (tensor == nullptr) return;
  for (uint64_t i = 0; i < tensor->bytes; i++) sum = sum + tensor->data[i];
}

void LookAt(tool_checkpoint* checkpoint) {
  for (size_t i = 0; i < checkpoint->num_sites; i++) {
    const tool_site& site = checkpoint->sites[i];
    for (size_t j = 0; j < site.num_pieces; j++) ReadAll(site.pieces[j].tensor);
    ReadAll(site.reference);
    ReadAll(site.ids);
    Require(site.range.code_max <= 0x7E, "codes are scales");
    Require(site.range.num_scales == 0 || site.range.scale_min >= 0.0f,
            "scales are 0 or more");
  }
  ReadAll(checkpoint->x);
}

void CheckSentence(tool_status status, const tool_error& error) {
  Require((status == tool_ok) == (error.text[0] == '\0'),
          "a failure has a sentence, a success none");
  Require(status == tool_ok || std::strncmp(error.text, "cannot ", 7) == 0,
          "a sentence begins with cannot");
  Require(std::strchr(error.text, '\n') == nullptr, "it is one line");
}

void LoadFile(const uint8_t* bytes, size_t size, tool_problems* problems) {
  static tool_error error;
  error.text[0] = '\0';
  const tool_load load = {"fuzz", nullptr, nullptr, problems, nullptr};
  tool_checkpoint checkpoint;
  const tool_status status =
      tool_checkpoint_read(&load, bytes, size, &checkpoint, &error);
  CheckSentence(status, error);
  if (status != tool_ok) return;
  LookAt(&checkpoint);
  tool_checkpoint_close(&checkpoint);
}

void LoadJson(const uint8_t* bytes, size_t size) {
  static tool_error error;
  error.text[0] = '\0';
  tool_shape shape;
  CheckSentence(tool_shape_parse(reinterpret_cast<const char*>(bytes), size,
                                 "fuzz", &shape, &error),
                error);
  // An index has to be a file whose name ends in .json.
  char path[64];
  std::snprintf(path, sizeof(path), "/dev/shm/checkpoint_fuzz.%d.json",
                static_cast<int>(getpid()));
  const int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  Require(descriptor >= 0, "/dev/shm takes a file");
  Require(write(descriptor, bytes, size) == static_cast<ssize_t>(size),
          "it is written");
  close(descriptor);
  for (int i = 0; i < 2; i++) {
    tool_problems problems = {nullptr, 0, 0};
    tool_files files;
    error.text[0] = '\0';
    tool_status status =
        tool_files_open(path, i == 0 ? nullptr : &problems, &files, &error);
    if (status == tool_ok) {
      status = tool_files_open_all(&files, &error);
      tool_files_close(&files);
    }
    CheckSentence(status, error);
    tool_problems_free(&problems);
  }
  unlink(path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == '{') {
    LoadJson(data, size);
    return 0;
  }
  // A copy of exactly this size: reading past its end is seen.
  const std::vector<uint8_t> bytes(data, data + size);
  LoadFile(bytes.data(), bytes.size(), nullptr);
  tool_problems problems = {nullptr, 0, 0};
  LoadFile(bytes.data(), bytes.size(), &problems);
  tool_problems_free(&problems);
  return 0;
}
