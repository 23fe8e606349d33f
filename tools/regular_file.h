/* Files that are files: a directory, a pipe or a device is refused before
 * anything is read from it, and opening one does not wait for a writer. */

#ifndef MOEPLAN_TOOLS_REGULAR_FILE_H_
#define MOEPLAN_TOOLS_REGULAR_FILE_H_

#include <stddef.h>
#include <stdint.h>

#include "tools/tool_error.h"

/* Open for reading. The caller closes the descriptor. */
enum tool_status tool_file_open(const char* path, int* descriptor_out,
                                uint64_t* bytes_out, struct tool_error* error);

/* All of a small file, with a zero at the end. The caller frees the text. */
enum tool_status tool_file_read(const char* path, uint64_t max_bytes,
                                char** text_out, size_t* bytes_out,
                                struct tool_error* error);

/* Open, JSON, an object, no key twice. The caller gives up the reference. */
struct json_t;
enum tool_status tool_file_read_json(const char* path, uint64_t max_bytes,
                                     struct json_t** object_out,
                                     struct tool_error* error);

/* The same from text; `source` names it after "cannot load". */
enum tool_status tool_json_parse(const char* text, size_t bytes,
                                 const char* source, struct json_t** object_out,
                                 struct tool_error* error);

#endif /* MOEPLAN_TOOLS_REGULAR_FILE_H_ */
