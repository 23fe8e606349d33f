#define _GNU_SOURCE

#include "tools/args.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

struct parse {
  struct tool_args args;
  struct tool_error* error;
  enum tool_status status;
  int next; /* what argp looks at next: on its refusal, the one to blame */
};

enum {
  KEY_HELP = 'h',
  KEY_JSON = 0x100,
  KEY_CONFIG,
  KEY_PRESET,
  KEY_KIND,
  KEY_PLAN_DEVICE,
  KEY_PARALLEL_DEVICE,
};

/* clang-format off */
#define HELP_OPTION {"help", KEY_HELP, 0, 0, "Print this help", -1}
#define JSON_OPTION \
  {"json", KEY_JSON, 0, 0, "Print one JSON document, no table", 0}
#define VERBOSE_OPTION \
  {"verbose", 'v', 0, 0, "Print the library's warnings and decisions", 0}
#define CONFIG_OPTION                                                        \
  {"config", KEY_CONFIG, "FILE", 0,                                          \
   "The model's config.json (default: the file's metadata, or config.json " \
   "beside it)", 0}
#define CHECKPOINT_OPTION                                                    \
  {"checkpoint", 'c', "PATH", 0,                                             \
   "Safetensors file, model.safetensors.index.json, or the folder of one", 0}
#define SITE_OPTION                                                          \
  {"site", 's', "PREFIX", 0,                                                 \
   "One site, for example model.layers.3.mlp (default: all)", 0}
#define DEVICE_OPTION \
  {"device", 'd', "DEVICE", 0, "host or cuda:N (default: host)", 0}
#define MODEL_OPTIONS                                                       \
  {"preset", KEY_PRESET, "NAME", 0, "A model by name; \"list\" lists them", 0}, \
  {"config", KEY_CONFIG, "FILE", 0, "A model by its config.json", 0}
#define KIND_OPTION                                                          \
  {"site", KEY_KIND, "KIND", 0, "routed or dense (default: what there is)", 0}
#define END_OPTION {NULL, 0, NULL, 0, NULL, 0}
/* clang-format on */

static const struct argp_option run_options[] = {
    CHECKPOINT_OPTION,
    CONFIG_OPTION,
    SITE_OPTION,
    DEVICE_OPTION,
    {"rows", 'r', "N,...", 0,
     "Row counts to plan for (default: 1,2,8 and the file's rows)", 0},
    JSON_OPTION,
    VERBOSE_OPTION,
    HELP_OPTION,
    END_OPTION};

static const struct argp_option print_options[] = {
    CHECKPOINT_OPTION,
    CONFIG_OPTION,
    SITE_OPTION,
    DEVICE_OPTION,
    {"rows", 'r', "N,...", 0, "Row counts to plan for (default: 1)", 0},
    VERBOSE_OPTION,
    HELP_OPTION,
    END_OPTION};

static const struct argp_option inspect_options[] = {
    CONFIG_OPTION, SITE_OPTION, JSON_OPTION, HELP_OPTION, END_OPTION};

static const struct argp_option plan_options[] = {
    MODEL_OPTIONS,
    KIND_OPTION,
    {"device", KEY_PLAN_DEVICE, "DEVICE", 0,
     "h200, h100, gb10, host, or cuda:N, which must be there (default: h200)",
     0},
    {"rows", 'r', "N,...", 0, "Row counts to plan for (default: 1,8,64,1024)",
     0},
    VERBOSE_OPTION,
    HELP_OPTION,
    END_OPTION};

static const struct argp_option bench_options[] = {
    MODEL_OPTIONS,  TOOL_BENCH_OPTIONS, KIND_OPTION, JSON_OPTION,
    VERBOSE_OPTION, HELP_OPTION,        END_OPTION};

static const struct argp_option parallel_options[] = {
    MODEL_OPTIONS,
    TOOL_SIZES_OPTIONS,
    TOOL_PARALLEL_OPTIONS,
    KIND_OPTION,
    {"device", KEY_PARALLEL_DEVICE, "DEVICE", 0,
     "cuda (default), or host: ranks one after another, nothing is timed", 0},
    JSON_OPTION,
    VERBOSE_OPTION,
    HELP_OPTION,
    END_OPTION};

static const struct argp_option top_options[] = {
    {"version", 'V', 0, 0, "Print the library's versions", 0},
    {"help", KEY_HELP, 0, 0, "Print this help", 0},
    {NULL, 0, NULL, 0, NULL, 0}};

static enum tool_status parse_parallel_device(const char* text,
                                              struct parse* parse) {
  if (strcmp(text, "cuda") != 0 && strcmp(text, "host") != 0) {
    return tool_refuse(
        parse->error,
        "cannot use --device %s: cuda (rank r on GPU r) and host "
        "are known",
        text);
  }
  parse->args.device = text;
  return tool_ok;
}

/* A word without an option: inspect's path. */
static enum tool_status parse_word(char* word, struct parse* parse) {
  if (parse->args.command == tool_command_inspect &&
      parse->args.checkpoint == NULL) {
    parse->args.checkpoint = word;
    return tool_ok;
  }
  return tool_refuse(parse->error,
                     "cannot use argument %s: every value has an option", word);
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
      parse->status = tool_parse_row_list(value, &parse->args, parse->error);
      break;
    case 'd':
      parse->status = tool_parse_device(value, &parse->args, parse->error);
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
    case KEY_CONFIG:
      parse->args.config = value;
      break;
    case KEY_PRESET:
      parse->args.preset = value;
      break;
    case KEY_KIND:
      parse->status = tool_parse_kind(value, &parse->args, parse->error);
      break;
    case KEY_PLAN_DEVICE:
      parse->status = tool_parse_plan_device(value, &parse->args, parse->error);
      break;
    case KEY_PARALLEL_DEVICE:
      parse->status = parse_parallel_device(value, parse);
      break;
    case ARGP_KEY_ARG:
      parse->status = parse_word(value, parse);
      break;
    default:
      if (tool_bench_option(key, value, &parse->args.bench, &parse->status,
                            parse->error) == ARGP_ERR_UNKNOWN &&
          tool_parallel_option(key, value, &parse->args.parallel,
                               &parse->status,
                               parse->error) == ARGP_ERR_UNKNOWN) {
        return ARGP_ERR_UNKNOWN;
      }
  }
  parse->next = state->next;
  return parse->status == tool_ok ? 0 : EINVAL;
}

struct command {
  const char* word; /* argv[1]; NULL: none of the others */
  char* name;
  enum tool_command command;
  const char* device; /* --device's default */
  struct argp argp;
};

static const struct command commands[] = {
    {"run",
     "moeplan run",
     tool_command_run,
     "host",
     {run_options, parse_option, NULL,
      "Plan every site of a checkpoint, replay each plan as a graph, compare "
      "with the outputs that the file expects, and print a table. Exit status "
      "1: a file, a device or a result is wrong; 2: an argument is.",
      NULL, NULL, NULL}},
    {"print",
     "moeplan print",
     tool_command_print,
     "host",
     {print_options, parse_option, NULL,
      "Print the plans and workspaces of a checkpoint's sites.", NULL, NULL,
      NULL}},
    {"inspect",
     "moeplan inspect",
     tool_command_inspect,
     "host",
     {inspect_options, parse_option, "PATH",
      "List the sites of a checkpoint, their tensors and scales, and all that "
      "is wrong with it. Exit status 1: something is.",
      NULL, NULL, NULL}},
    {"plan",
     "moeplan plan",
     tool_command_plan,
     "plan:h200",
     {plan_options, parse_option, NULL,
      "Print a model's plans, workspaces and predicted floors, without its "
      "weights and without the device.",
      NULL, NULL, NULL}},
    {"bench",
     "moeplan bench",
     tool_command_bench,
     "cuda:0",
     {bench_options, parse_option, NULL,
      "Time a site's plans over random weights, and what the bytes that they "
      "must read take at this machine's streaming bandwidth.",
      NULL, NULL, NULL}},
    {"parallel",
     "moeplan parallel",
     tool_command_parallel,
     "cuda",
     {parallel_options, parse_option, NULL,
      "Spread a site of random weights over ranks, one a GPU, add their "
      "outputs "
      "up by NCCL in the graph of the plan, compare with the whole site on one "
      "GPU, and time both. NCCL is opened at run time: by the loader's search "
      "path, or MOEPLAN_NCCL=PATH.",
      NULL, NULL, NULL}},
    {NULL,
     "moeplan",
     tool_command_help,
     "host",
     {top_options, parse_option,
      "run|print|inspect|plan|bench|parallel OPTION...",
      "Execution plans for the MLP of a GLM-5-class layer.\v"
      "`moeplan run --help` lists the options of run, and so on. MOEPLAN_* "
      "variables set the plans' levers; MOEPLAN_ROUTE_TRACE=1 makes run print "
      "where each row went.",
      NULL, NULL, NULL}},
};

enum { NUM_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command* find_command(const char* word) {
  size_t i = 0;
  while (i + 1 < NUM_COMMANDS && strcmp(commands[i].word, word) != 0) i++;
  return &commands[i];
}

/* The site of --numerics is fixed: what would change it is refused. */
static enum tool_status check_numerics(const struct tool_args* args,
                                       struct tool_error* error) {
  const struct tool_bench_args* given = &args->bench;
  if (args->preset == NULL && args->config == NULL && args->kind == NULL &&
      args->num_rows == 0 && given->hidden == 0 && given->intermediate == 0 &&
      given->experts == 0 && given->topk == 0 && given->shared == 0 &&
      given->routing == tool_routing_router && given->sets == 0 &&
      given->seconds == 0.0 && given->plot == NULL && !given->nodes) {
    return tool_ok;
  }
  return tool_refuse(error,
                     "cannot use --numerics with other options than --device, "
                     "--json and --verbose: its site is fixed");
}

static enum tool_status check_args(const struct tool_args* args,
                                   const struct command* command,
                                   struct tool_error* error) {
  const char* needed = NULL;
  switch (args->command) {
    case tool_command_help:
    case tool_command_version:
      return tool_ok;
    case tool_command_run:
    case tool_command_print:
      if (args->checkpoint == NULL) needed = "without --checkpoint PATH";
      break;
    case tool_command_inspect:
      if (args->checkpoint == NULL) needed = "without a PATH";
      break;
    case tool_command_plan:
      if ((args->preset == NULL) == (args->config == NULL)) {
        needed = "but with one of --preset NAME and --config FILE";
      }
      break;
    case tool_command_bench:
      if (args->bench.numerics) return check_numerics(args, error);
      __attribute__((fallthrough));
    case tool_command_parallel:
      if ((args->preset != NULL) + (args->config != NULL) +
              (args->bench.hidden != 0) !=
          1) {
        needed = "but with one of --preset NAME, --config FILE and --hidden H";
      }
      break;
  }
  if (needed == NULL) return tool_ok;
  return tool_refuse(error, "cannot %s %s: see %s --help", command->word,
                     needed, command->name);
}

/* The levers are the library's to read; this one is the tool's. */
static enum tool_status read_environment(struct tool_args* args,
                                         struct tool_error* error) {
  const char* text = getenv("MOEPLAN_ROUTE_TRACE");
  if (text == NULL || strcmp(text, "") == 0 || strcmp(text, "0") == 0) {
    return tool_ok;
  }
  args->route_trace = true;
  if (strcmp(text, "1") == 0) return tool_ok;
  return tool_refuse(error, "cannot use MOEPLAN_ROUTE_TRACE=%s: must be 0 or 1",
                     text);
}

enum tool_status tool_args_parse(int argc, char** argv,
                                 struct tool_args* args_out,
                                 struct tool_error* error) {
  const char* word = argc >= 2 ? argv[1] : "";
  const struct command* command = find_command(word);
  if (command->word == NULL && word[0] != '-') {
    return tool_refuse(error,
                       "cannot run command \"%s\": run, print, inspect, plan, "
                       "bench, parallel, --version and --help are known",
                       word);
  }
  const int skipped = command->word == NULL ? 0 : 1;
  struct parse parse = {
      .args = {.command = command->command, .device = command->device},
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
  enum tool_status status = check_args(&parse.args, command, error);
  if (status == tool_ok && parse.args.command == tool_command_run) {
    status = read_environment(&parse.args, error);
  }
  if (status != tool_ok) return status;
  if (parse.args.command == tool_command_help) {
    argp_help(&command->argp, stdout, ARGP_HELP_STD_HELP, command->name);
  }
  *args_out = parse.args;
  return tool_ok;
}
