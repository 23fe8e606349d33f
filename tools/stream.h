/* Two kernels of the benchmark: write random words, and read memory as fast as the
 * GPU can. */

#ifndef MOEPLAN_TOOLS_STREAM_H_
#define MOEPLAN_TOOLS_STREAM_H_

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/random_words.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Words first_word, first_word + 1, ... of a kind. `to` and `bytes` are multiples
 * of 16. */
cudaError_t tool_stream_fill(void* to, size_t bytes, enum tool_words kind,
                             uint64_t first_word, cudaStream_t stream);

/* Read each byte once. `from` and `bytes` are multiples of 16; `blocks` is twice
 * the number of SMs; `sink` gets a word that depends on every byte read, with
 * probability 2^-32 for each thread. */
cudaError_t tool_stream_read(const void* from, size_t bytes, uint32_t blocks,
                             uint32_t* sink, cudaStream_t stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* MOEPLAN_TOOLS_STREAM_H_ */
