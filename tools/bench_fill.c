#include "tools/bench_fill.h"

#include "tools/stream.h"

enum tool_status tool_bench_fill(const struct tool_memory* memory, void* to,
                                 size_t bytes, enum tool_words kind,
                                 uint64_t first_word,
                                 struct tool_error* error) {
  if (memory->stream != NULL) {
    return tool_cuda_try(
        tool_stream_fill(to, bytes, kind, first_word, memory->stream),
        "fill memory of the GPU", error);
  }
  uint32_t* words = to;
  for (size_t i = 0; i < bytes / sizeof(*words); i++) {
    words[i] = tool_random_word(kind, first_word + i);
  }
  return tool_ok;
}
