#define _GNU_SOURCE

#include "tools/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char* kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "something that is no file";
}

enum tool_status tool_file_open(const char* path, int* descriptor_out,
                                uint64_t* bytes_out, struct tool_error* error) {
  struct stat about;
  /* O_NONBLOCK: opening a pipe would wait for its writer. */
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 || fstat(descriptor, &about) != 0) {
    const enum tool_status status =
        tool_fail(error, "cannot load %s: expected a readable file, found: %s",
                  path, strerror(errno));
    if (descriptor >= 0) close(descriptor);
    return status;
  }
  if (!S_ISREG(about.st_mode)) {
    close(descriptor);
    return tool_fail(error, "cannot load %s: expected a file, found %s", path,
                     kind_of_file(about.st_mode));
  }
  *descriptor_out = descriptor;
  *bytes_out = (uint64_t)about.st_size;
  return tool_ok;
}

enum tool_status tool_file_read(const char* path, uint64_t max_bytes,
                                char** text_out, size_t* bytes_out,
                                struct tool_error* error) {
  int descriptor = -1;
  uint64_t bytes = 0;
  enum tool_status status = tool_file_open(path, &descriptor, &bytes, error);
  if (status != tool_ok) return status;
  char* text = NULL;
  if (bytes > max_bytes) {
    status = tool_fail(error,
                       "cannot load %s: expected at most %" PRIu64
                       " bytes, found %" PRIu64,
                       path, max_bytes, bytes);
    goto close_descriptor;
  }
  text = malloc((size_t)bytes + 1);
  if (text == NULL) {
    status =
        tool_fail(error, "cannot load %s: out of memory for %" PRIu64 " %s",
                  path, bytes, "bytes");
    goto close_descriptor;
  }
  size_t have = 0;
  while (have < bytes) {
    const ssize_t got = read(descriptor, text + have, (size_t)bytes - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      status =
          tool_fail(error, "cannot load %s: expected to read it, found: %s",
                    path, strerror(errno));
      goto close_descriptor;
    }
    if (got == 0) break; /* shorter now than a moment ago */
    have += (size_t)got;
  }
  text[have] = '\0';
  *text_out = text;
  *bytes_out = have;
  text = NULL; /* handed over */
close_descriptor:
  free(text);
  close(descriptor);
  return status;
}

enum tool_status tool_json_parse(const char* text, size_t bytes,
                                 const char* source, json_t** object_out,
                                 struct tool_error* error) {
  json_error_t fault;
  json_t* object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &fault);
  if (json_is_object(object)) {
    *object_out = object;
    return tool_ok;
  }
  json_decref(object);
  return tool_fail(error, "cannot load %s: expected a JSON object, found %s",
                   source, object == NULL ? fault.text : "another JSON value");
}

enum tool_status tool_file_read_json(const char* path, uint64_t max_bytes,
                                     json_t** object_out,
                                     struct tool_error* error) {
  char* text = NULL;
  size_t bytes = 0;
  enum tool_status status =
      tool_file_read(path, max_bytes, &text, &bytes, error);
  if (status != tool_ok) return status;
  status = tool_json_parse(text, bytes, path, object_out, error);
  free(text);
  return status;
}
