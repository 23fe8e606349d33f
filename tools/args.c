#define _GNU_SOURCE

#include "tools/args.h"

#include <argp.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct parse {
  struct tool_args args;
  struct tool_error* error;
  enum tool_status status;
  int next; /* what argp looks at next: on its refusal, the one to blame */
};

enum { KEY_HELP = 'h', KEY_JSON = 0x100 };

#define COMMON_OPTIONS                                                         \
  {"checkpoint", 'c', "FILE", 0, "Safetensors file with the weights", 0},      \
      {"site",                                                                 \
       's',                                                                    \
       "PREFIX",                                                               \
       0,                                                                      \
       "One site, for example model.layers.3.mlp (default: all)",              \
       0},                                                                     \
      {"device", 'd', "DEVICE", 0, "host or cuda:N (default: host)", 0},       \
      {"verbose", 'v', 0, 0, "Print the library's warnings and decisions", 0}, \
  {                                                                            \
    "help", KEY_HELP, 0, 0, "Print this help", -1                              \
  }

static const struct argp_option run_options[] = {
    COMMON_OPTIONS,
    {"rows", 'r', "N,...", 0,
     "Row counts to plan for (default: 1,2,8 and the file's rows)", 0},
    {"json", KEY_JSON, 0, 0, "Print one JSON document, no table", 0},
    {NULL, 0, NULL, 0, NULL, 0}};

static const struct argp_option print_options[] = {
    COMMON_OPTIONS,
    {"rows", 'r', "N,...", 0, "Row counts to plan for (default: 1)", 0},
    {NULL, 0, NULL, 0, NULL, 0}};

static const struct argp_option top_options[] = {
    {"version", 'V', 0, 0, "Print the library's versions", 0},
    {"help", KEY_HELP, 0, 0, "Print this help", 0},
    {NULL, 0, NULL, 0, NULL, 0}};

/* A row count, or 0. */
static uint32_t parse_rows(const char* text, char** end_out) {
  *end_out = (char*)text;
  if (!isdigit((unsigned char)*text)) return 0;
  const unsigned long rows = strtoul(text, end_out, 10);
  return rows <= TOOL_MAX_ROWS ? (uint32_t)rows : 0;
}

static enum tool_status parse_row_list(const char* text, struct parse* parse) {
  struct tool_args* args = &parse->args;
  const char* at = text;
  size_t count = 0;
  for (;;) {
    char* end = NULL;
    const uint32_t rows = parse_rows(at, &end);
    if (rows == 0 || (*end != ',' && *end != '\0')) {
      return tool_refuse(parse->error,
                         "cannot use --rows %s: each row count is a whole "
                         "number, 1..%d, with commas between",
                         text, TOOL_MAX_ROWS);
    }
    if (count == TOOL_MAX_ROW_COUNTS) {
      return tool_refuse(parse->error,
                         "cannot use --rows %s: at most %d row counts", text,
                         TOOL_MAX_ROW_COUNTS);
    }
    args->rows[count] = rows;
    count++;
    if (*end == '\0') break;
    at = end + 1;
  }
  args->num_rows = count;
  return tool_ok;
}

static enum tool_status parse_device(const char* text, struct parse* parse) {
  const char* number = text + strlen("cuda:");
  const bool cuda = strncmp(text, "cuda:", strlen("cuda:")) == 0 &&
                    strlen(number) >= 1 && strlen(number) <= 4 &&
                    strspn(number, "0123456789") == strlen(number);
  if (!cuda && strcmp(text, "host") != 0) {
    return tool_refuse(parse->error,
                       "cannot use --device %s: host, or cuda:N with a number "
                       "N, is a device",
                       text);
  }
  parse->args.device = text;
  return tool_ok;
}

static error_t parse_option(int key, char* value, struct argp_state* state) {
  struct parse* parse = state->input;
  switch (key) {
    case 'c':
      parse->args.checkpoint = value;
      break;
    case 's':
      parse->args.site = value;
      break;
    case 'r':
      parse->status = parse_row_list(value, parse);
      break;
    case 'd':
      parse->status = parse_device(value, parse);
      break;
    case 'v':
      parse->args.verbose = true;
      break;
    case 'V':
      parse->args.command = tool_command_version;
      break;
    case KEY_JSON:
      parse->args.json = true;
      break;
    case KEY_HELP:
      parse->args.command = tool_command_help;
      break;
    case ARGP_KEY_ARG:
      parse->status = tool_refuse(
          parse->error, "cannot use argument %s: every value has an option",
          value);
      break;
    default:
      return ARGP_ERR_UNKNOWN;
  }
  parse->next = state->next;
  return parse->status == tool_ok ? 0 : EINVAL;
}

struct command {
  const char* word; /* argv[1]; NULL: none of the others */
  char* name;
  enum tool_command command;
  struct argp argp;
};

static const struct command commands[] = {
    {"run",
     "moeplan run",
     tool_command_run,
     {run_options, parse_option, NULL,
      "Plan every site of a checkpoint, replay each plan as a graph, compare "
      "with the outputs that the file expects, and print a table. Exit status "
      "1: a file, a device or a result is wrong; 2: an argument is.",
      NULL, NULL, NULL}},
    {"print",
     "moeplan print",
     tool_command_print,
     {print_options, parse_option, NULL,
      "Print the plans and workspaces of a checkpoint's sites.", NULL, NULL,
      NULL}},
    {NULL,
     "moeplan",
     tool_command_help,
     {top_options, parse_option, "run|print OPTION...",
      "Execution plans for the MLP of a GLM-5-class layer.\v"
      "`moeplan run --help` and `moeplan print --help` list their options. "
      "MOEPLAN_* variables set the plans' levers.",
      NULL, NULL, NULL}},
};

enum { NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command* find_command(const char* word) {
  size_t i = 0;
  while (i + 1 < NUM_COMMANDS && strcmp(commands[i].word, word) != 0) i++;
  return &commands[i];
}

static enum tool_status check_args(const struct tool_args* args,
                                   const struct command* command,
                                   const char* word, struct tool_error* error) {
  if (args->command == tool_command_help ||
      args->command == tool_command_version) {
    return tool_ok;
  }
  if (args->checkpoint == NULL) {
    return tool_refuse(error, "cannot %s without --checkpoint FILE: see %s %s",
                       word, command->name, "--help");
  }
  return tool_ok;
}

enum tool_status tool_args_parse(int argc, char** argv,
                                 struct tool_args* args_out,
                                 struct tool_error* error) {
  const char* word = argc >= 2 ? argv[1] : "";
  const struct command* command = find_command(word);
  if (command->word == NULL && word[0] != '-') {
    return tool_refuse(error,
                       "cannot run command \"%s\": run, print, --version and "
                       "--help are known",
                       word);
  }
  const int skipped = command->word == NULL ? 0 : 1;
  struct parse parse = {.args = {.command = command->command, .device = "host"},
                        .error = error,
                        .next = 1};
  /* Help and errors are the tool's: argp would print two lines and pick the
   * exit status. */
  const error_t result =
      argp_parse(&command->argp, argc - skipped, argv + skipped,
                 ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT, NULL, &parse);
  if (parse.status != tool_ok) return parse.status;
  if (result != 0) {
    const int at = parse.next + skipped;
    return tool_refuse(error,
                       "cannot use argument %s: the option is unknown, lacks "
                       "its value, or has one too many; see %s --help",
                       argv[at < argc ? at : argc - 1], command->name);
  }
  const enum tool_status status = check_args(&parse.args, command, word, error);
  if (status != tool_ok) return status;
  if (parse.args.command == tool_command_help) {
    argp_help(&command->argp, stdout, ARGP_HELP_STD_HELP, command->name);
  }
  *args_out = parse.args;
  return tool_ok;
}
