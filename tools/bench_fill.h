/* Random words into memory of a device, made there. */

#ifndef MOEPLAN_TOOLS_BENCH_FILL_H_
#define MOEPLAN_TOOLS_BENCH_FILL_H_

#include "tools/device_memory.h"
#include "tools/random_words.h"
#include "tools/tool_error.h"

/* The words from first_word on. `to` and `bytes` are multiples of 16. On CUDA it
 * is not waited for. */
enum tool_status tool_bench_fill(const struct tool_memory* memory, void* to,
                                 size_t bytes, enum tool_words kind,
                                 uint64_t first_word, struct tool_error* error);

#endif /* MOEPLAN_TOOLS_BENCH_FILL_H_ */
