#define _GNU_SOURCE

#include "tools/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/regular_file.h"

/* The format's own limit on the header, which bounds the parser's memory. */
enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 100000000 };

static const struct {
  const char* name;
  uint32_t bits;
} dtypes[tool_dtype_count] = {
#define DTYPE_ROW(name, text, bits) [tool_dtype_##name] = {text, bits},
    TOOL_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

const char* tool_dtype_name(enum tool_dtype dtype) {
  return dtypes[dtype].name;
}

uint32_t tool_dtype_bits(enum tool_dtype dtype) { return dtypes[dtype].bits; }

const char* tool_shape_text(const uint64_t* shape, uint32_t rank,
                            char text[TOOL_SHAPE_TEXT]) {
  /* 8 extents of at most 20 digits, each with ", ": 178 bytes. */
  size_t used = (size_t)snprintf(text, TOOL_SHAPE_TEXT, "[");
  for (uint32_t i = 0; i < rank; i++) {
    used += (size_t)snprintf(text + used, TOOL_SHAPE_TEXT - used, "%s%" PRIu64,
                             i == 0 ? "" : ", ", shape[i]);
  }
  snprintf(text + used, TOOL_SHAPE_TEXT - used, "]");
  return text;
}

static enum tool_status map_file(const char* path,
                                 struct tool_safetensors* file,
                                 struct tool_error* error) {
  uint64_t bytes = 0;
  enum tool_status status =
      tool_file_open(path, &file->descriptor, &bytes, error);
  if (status != tool_ok || bytes < LENGTH_BYTES) {
    file->map_bytes = bytes; /* parse_header says that it is too short */
    return status;
  }
  void* map =
      mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file->descriptor, 0);
  if (map == MAP_FAILED) {
    return tool_fail(
        error, "cannot load %s: expected to map %" PRIu64 " bytes, found: %s",
        path, bytes, strerror(errno));
  }
  file->map = map;
  file->map_bytes = bytes;
  return tool_ok;
}

/* Parse the JSON and return it with the length of what lies before the data. */
static enum tool_status parse_header(const struct tool_safetensors* file,
                                     json_t** header_out,
                                     uint64_t* data_start_out,
                                     struct tool_error* error) {
  if (file->map_bytes < LENGTH_BYTES) {
    return tool_fail(error,
                     "cannot load %s: expected at least %d bytes for the "
                     "header's length, found %" PRIu64 " bytes",
                     file->path, LENGTH_BYTES, file->map_bytes);
  }
  uint64_t length = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
    length = length << 8 | file->map[i];
  }
  const uint64_t rest = file->map_bytes - LENGTH_BYTES;
  const uint64_t most = rest < MAX_HEADER_BYTES ? rest : MAX_HEADER_BYTES;
  if (length > most) {
    return tool_fail(error,
                     "cannot load %s: expected a header of at most %" PRIu64
                     " bytes, found a length of %" PRIu64,
                     file->path, most, length);
  }
  json_error_t fault;
  json_t* header = json_loadb((const char*)file->map + LENGTH_BYTES,
                              (size_t)length, JSON_REJECT_DUPLICATES, &fault);
  if (header == NULL) {
    return tool_fail(
        error,
        "cannot load %s: expected a header in JSON, found %s (byte "
        "%d of the header)",
        file->path, fault.text, fault.position);
  }
  if (!json_is_object(header)) {
    json_decref(header);
    return tool_fail(error,
                     "cannot load %s: expected a JSON object as header, found "
                     "another JSON value",
                     file->path);
  }
  *header_out = header;
  *data_start_out = LENGTH_BYTES + length;
  return tool_ok;
}

static bool dtype_find(const char* text, enum tool_dtype* dtype_out) {
  for (int i = 0; text != NULL && i < tool_dtype_count; i++) {
    if (strcmp(text, dtypes[i].name) != 0) continue;
    *dtype_out = (enum tool_dtype)i;
    return true;
  }
  return false;
}

/* An array of at most `capacity` integers, 0 or more. */
static bool read_extents(const json_t* array, uint32_t capacity,
                         uint64_t* extents, uint32_t* count_out) {
  if (!json_is_array(array) || json_array_size(array) > capacity) return false;
  const uint32_t count = (uint32_t)json_array_size(array);
  for (uint32_t i = 0; i < count; i++) {
    const json_t* extent = json_array_get(array, i);
    if (!json_is_integer(extent) || json_integer_value(extent) < 0) {
      return false;
    }
    extents[i] = (uint64_t)json_integer_value(extent);
  }
  *count_out = count;
  return true;
}

/* Bytes of the tensor's elements; false: not a whole number below 2^64. */
static bool tensor_bytes(const struct tool_tensor* tensor,
                         uint64_t* bytes_out) {
  uint64_t bits = dtypes[tensor->dtype].bits;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (__builtin_mul_overflow(bits, tensor->shape[i], &bits)) return false;
  }
  if (bits % 8 != 0) return false;
  *bytes_out = bits / 8;
  return true;
}

static enum tool_status read_tensor(const struct tool_safetensors* file,
                                    uint64_t data_start, const char* name,
                                    const json_t* entry,
                                    struct tool_tensor* tensor_out,
                                    struct tool_error* error) {
  struct tool_tensor tensor = {.name = name};
  const char* dtype = json_string_value(json_object_get(entry, "dtype"));
  if (!dtype_find(dtype, &tensor.dtype)) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected a known dtype, found "
                     "%s",
                     file->path, name, dtype == NULL ? "no text" : dtype);
  }
  if (!read_extents(json_object_get(entry, "shape"), TOOL_MAX_RANK,
                    tensor.shape, &tensor.rank)) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected a shape of at most "
                     "%d extents, each 0 or more, found something else",
                     file->path, name, TOOL_MAX_RANK);
  }
  uint64_t offsets[2];
  uint32_t num_offsets = 0;
  if (!read_extents(json_object_get(entry, "data_offsets"), 2, offsets,
                    &num_offsets) ||
      num_offsets != 2) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected two data_offsets, "
                     "each 0 or more, found something else",
                     file->path, name);
  }
  const uint64_t data_bytes = file->map_bytes - data_start;
  if (offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected ascending offsets "
                     "within the file's %" PRIu64
                     " bytes of data, found [%" PRIu64 ", %" PRIu64 "]",
                     file->path, name, data_bytes, offsets[0], offsets[1]);
  }
  uint64_t bytes = 0;
  if (!tensor_bytes(&tensor, &bytes) || bytes != offsets[1] - offsets[0]) {
    char shape[TOOL_SHAPE_TEXT];
    return tool_fail(error,
                     "cannot load %s: tensor %s: expected the bytes of %s %s, "
                     "found %" PRIu64 " bytes at [%" PRIu64 ", %" PRIu64 "]",
                     file->path, name, dtype,
                     tool_shape_text(tensor.shape, tensor.rank, shape),
                     offsets[1] - offsets[0], offsets[0], offsets[1]);
  }
  tensor.data = file->map + data_start + offsets[0];
  tensor.bytes = bytes;
  *tensor_out = tensor;
  return tool_ok;
}

/* Names outlive the header's JSON, which takes a kilobyte per tensor. */
static enum tool_status copy_names(struct tool_safetensors* file,
                                   struct tool_error* error) {
  size_t bytes = 0;
  for (size_t i = 0; i < file->num_tensors; i++) {
    bytes += strlen(file->tensors[i].name) + 1;
  }
  file->names = malloc(bytes + 1);
  if (file->names == NULL) {
    return tool_fail(error, "cannot load %s: out of memory for %zu bytes of %s",
                     file->path, bytes, "names");
  }
  char* at = file->names;
  for (size_t i = 0; i < file->num_tensors; i++) {
    const size_t length = strlen(file->tensors[i].name) + 1;
    memcpy(at, file->tensors[i].name, length);
    file->tensors[i].name = at;
    at += length;
  }
  return tool_ok;
}

static enum tool_status read_tensors(struct tool_safetensors* file,
                                     json_t* header, uint64_t data_start,
                                     struct tool_problems* problems,
                                     struct tool_error* error) {
  const size_t capacity = json_object_size(header);
  file->tensors = calloc(capacity + 1, sizeof(*file->tensors));
  if (file->tensors == NULL) {
    return tool_fail(error, "cannot load %s: out of memory for %zu tensors",
                     file->path, capacity);
  }
  const char* name = NULL;
  json_t* entry = NULL;
  json_object_foreach(header, name, entry) {
    if (strcmp(name, "__metadata__") == 0) continue;
    enum tool_status status =
        read_tensor(file, data_start, name, entry,
                    &file->tensors[file->num_tensors], error);
    if (status == tool_ok) {
      file->num_tensors++;
      continue;
    }
    status = tool_problems_take(problems, status, error);
    if (status != tool_ok) return status;
  }
  return copy_names(file, error);
}

static int compare_places(const void* left, const void* right) {
  const struct tool_tensor* a = left;
  const struct tool_tensor* b = right;
  if (a->data != b->data) return a->data < b->data ? -1 : 1;
  return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_names(const void* left, const void* right) {
  const struct tool_tensor* a = left;
  const struct tool_tensor* b = right;
  return strcmp(a->name, b->name);
}

/* An empty tensor overlaps nothing, wherever it lies. */
static enum tool_status check_overlap(struct tool_safetensors* file,
                                      struct tool_problems* problems,
                                      struct tool_error* error) {
  qsort(file->tensors, file->num_tensors, sizeof(*file->tensors),
        compare_places);
  const struct tool_tensor* last = NULL;
  for (size_t i = 0; i < file->num_tensors; i++) {
    const struct tool_tensor* tensor = &file->tensors[i];
    if (tensor->bytes == 0) continue;
    if (last != NULL && tensor->data < last->data + last->bytes) {
      const enum tool_status status = tool_problems_take(
          problems,
          tool_fail(error,
                    "cannot load %s: tensor %s: expected bytes of its own, "
                    "found an overlap with tensor %s",
                    file->path, tensor->name, last->name),
          error);
      if (status != tool_ok) return status;
    }
    if (last == NULL ||
        tensor->data + tensor->bytes > last->data + last->bytes) {
      last = tensor;
    }
  }
  return tool_ok;
}

/* Everything after the map. */
static enum tool_status read_file(struct tool_safetensors* file,
                                  struct tool_problems* problems,
                                  struct tool_error* error) {
  uint64_t data_start = 0;
  json_t* header = NULL;
  enum tool_status status = parse_header(file, &header, &data_start, error);
  if (status != tool_ok) return status;
  file->metadata = json_incref(json_object_get(header, "__metadata__"));
  status = read_tensors(file, header, data_start, problems, error);
  json_decref(header);
  if (status == tool_ok) status = check_overlap(file, problems, error);
  if (status != tool_ok) return status;
  qsort(file->tensors, file->num_tensors, sizeof(*file->tensors),
        compare_names);
  return tool_ok;
}

/* Give the file to the caller, or close it. */
static enum tool_status finish(enum tool_status status,
                               struct tool_safetensors* file,
                               struct tool_safetensors* file_out) {
  if (status != tool_ok) {
    tool_safetensors_close(file);
    return status;
  }
  *file_out = *file;
  for (size_t i = 0; i < file_out->num_tensors; i++) {
    file_out->tensors[i].file = file_out;
  }
  return tool_ok;
}

enum tool_status tool_safetensors_open(const char* path,
                                       struct tool_problems* problems,
                                       struct tool_safetensors* file_out,
                                       struct tool_error* error) {
  struct tool_safetensors file = {.path = path, .descriptor = -1};
  enum tool_status status = map_file(path, &file, error);
  if (status == tool_ok) status = read_file(&file, problems, error);
  return finish(status, &file, file_out);
}

enum tool_status tool_safetensors_read(const char* path, const void* bytes,
                                       uint64_t size,
                                       struct tool_problems* problems,
                                       struct tool_safetensors* file_out,
                                       struct tool_error* error) {
  struct tool_safetensors file = {
      .path = path, .map = bytes, .map_bytes = size, .descriptor = -1};
  return finish(read_file(&file, problems, error), &file, file_out);
}

void tool_safetensors_close(struct tool_safetensors* file) {
  free(file->tensors);
  free(file->names);
  json_decref(file->metadata);
  if (file->descriptor >= 0) {
    if (file->map != NULL) munmap((void*)file->map, (size_t)file->map_bytes);
    close(file->descriptor);
  }
  *file = (struct tool_safetensors){.path = file->path, .descriptor = -1};
}

enum tool_status tool_tensor_check(const struct tool_tensor* tensor,
                                   struct tool_error* error) {
  const struct tool_safetensors* file = tensor->file;
  if (file->descriptor < 0) return tool_ok;
  struct stat about;
  if (fstat(file->descriptor, &about) == 0 &&
      (uint64_t)about.st_size >= file->map_bytes) {
    return tool_ok;
  }
  return tool_fail(error,
                   "cannot load %s: tensor %s: expected the file to keep its "
                   "%" PRIu64 " bytes, found it shorter while it was read",
                   file->path, tensor->name, file->map_bytes);
}

const struct tool_tensor* tool_safetensors_find(
    const struct tool_safetensors* file, const char* name) {
  const struct tool_tensor key = {.name = name};
  return bsearch(&key, file->tensors, file->num_tensors, sizeof(key),
                 compare_names);
}

const char* tool_safetensors_metadata(const struct tool_safetensors* file,
                                      const char* key) {
  return json_string_value(json_object_get(file->metadata, key));
}
