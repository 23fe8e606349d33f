/* A safetensors file, mapped and checked. Knows tensors, not what they mean.
 *
 *   u64 header length n | n bytes of JSON | data
 *   {"__metadata__": {key: string},
 *    name: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
 *
 * The data is never read here: the memory beyond the map is one struct and the
 * name of each tensor.
 *
 * A file that is truncated while it is mapped cannot be read past its new end:
 * the kernel sends SIGBUS. tool_tensor_check looks at the size again before
 * a tensor is read, which leaves the time that reading it takes; for that the
 * program has a handler that says one sentence (main.c). */

#ifndef MOEPLAN_TOOLS_SAFETENSORS_H_
#define MOEPLAN_TOOLS_SAFETENSORS_H_

#include <stddef.h>
#include <stdint.h>

#include "tools/problems.h"
#include "tools/tool_error.h"

/* X(name, text in the header, bits of an element) */
#define TOOL_DTYPE_MAP(X)  \
  X(bool, "BOOL", 8)       \
  X(f4, "F4", 4)           \
  X(f6_e2m3, "F6_E2M3", 6) \
  X(f6_e3m2, "F6_E3M2", 6) \
  X(u8, "U8", 8)           \
  X(i8, "I8", 8)           \
  X(f8_e5m2, "F8_E5M2", 8) \
  X(f8_e4m3, "F8_E4M3", 8) \
  X(f8_e8m0, "F8_E8M0", 8) \
  X(i16, "I16", 16)        \
  X(u16, "U16", 16)        \
  X(f16, "F16", 16)        \
  X(bf16, "BF16", 16)      \
  X(i32, "I32", 32)        \
  X(u32, "U32", 32)        \
  X(f32, "F32", 32)        \
  X(c64, "C64", 64)        \
  X(f64, "F64", 64)        \
  X(i64, "I64", 64)        \
  X(u64, "U64", 64)

enum tool_dtype {
#define TOOL_DTYPE_ENUM(name, text, bits) tool_dtype_##name,
  TOOL_DTYPE_MAP(TOOL_DTYPE_ENUM)
#undef TOOL_DTYPE_ENUM
      tool_dtype_count
};

const char* tool_dtype_name(enum tool_dtype dtype); /* "BF16" */
uint32_t tool_dtype_bits(enum tool_dtype dtype);

enum { TOOL_MAX_RANK = 8, TOOL_SHAPE_TEXT = 192 };

struct tool_safetensors;

struct tool_tensor {
  const char* name;                    /* owned by the file */
  const struct tool_safetensors* file; /* where it lies */
  enum tool_dtype dtype;
  uint32_t rank;
  uint64_t shape[TOOL_MAX_RANK];
  const uint8_t* data; /* in the map, aligned to nothing */
  uint64_t bytes;
};

struct json_t;

/* Must not move while it is open: its tensors point to it. */
struct tool_safetensors {
  const char* path; /* the caller's string */
  const uint8_t* map;
  uint64_t map_bytes;
  int descriptor; /* -1: bytes in the caller's memory */
  struct json_t* metadata;
  char* names;
  struct tool_tensor* tensors; /* ascending by name */
  size_t num_tensors;
};

/* Map the file at `path`, which must outlive the result, and check all of the
 * header: lengths, dtypes, offsets within the file, bytes == shape x dtype, no
 * overlap, no name twice. Unused bytes between tensors are allowed. With a list
 * of `problems` (or NULL) faulty tensors are left out and listed. */
enum tool_status tool_safetensors_open(const char* path,
                                       struct tool_problems* problems,
                                       struct tool_safetensors* file_out,
                                       struct tool_error* error);

/* The same over bytes in memory, which must outlive the result. */
enum tool_status tool_safetensors_read(const char* path, const void* bytes,
                                       uint64_t size,
                                       struct tool_problems* problems,
                                       struct tool_safetensors* file_out,
                                       struct tool_error* error);
void tool_safetensors_close(struct tool_safetensors* file);

/* Is the file still long enough for the tensor's bytes? Ask before each read. */
enum tool_status tool_tensor_check(const struct tool_tensor* tensor,
                                   struct tool_error* error);

/* NULL if there is none. */
const struct tool_tensor* tool_safetensors_find(
    const struct tool_safetensors* file, const char* name);
const char* tool_safetensors_metadata(const struct tool_safetensors* file,
                                      const char* key);

/* "[2, 3]". Returns `text`. */
const char* tool_shape_text(const uint64_t* shape, uint32_t rank,
                            char text[TOOL_SHAPE_TEXT]);

#endif /* MOEPLAN_TOOLS_SAFETENSORS_H_ */
