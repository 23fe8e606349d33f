// Levers from the environment: each variable sets its field, a bad value leaves
// all of them as they were.

#include <cstdlib>

#include "tests/planning.h"

namespace planning {
namespace {

using Change = std::function<void(moeplan_options&)>;

#define SET(assignment) [](moeplan_options& o) { o.assignment; }

struct Variable {
  const char* name;
  const char* text;
  Change expected;
};

const Variable kVariables[] = {
    {"MOEPLAN_NO_ROW_BATCH", "1", SET(no_row_batch = true)},
    {"MOEPLAN_NO_ROW_BATCH", "0", SET(no_row_batch = false)},
    {"MOEPLAN_ROW_BATCH_MAX", "1", SET(row_batch_max = 1)},
    {"MOEPLAN_ROW_BATCH_MAX", "8", SET(row_batch_max = 8)},
    {"MOEPLAN_GROUPED", "0", SET(no_grouped = true)},
    {"MOEPLAN_GROUPED", "1", SET(no_grouped = false)},
    {"MOEPLAN_GROUPED_MIN_ROWS", "9", SET(grouped_min_rows = 9)},
    {"MOEPLAN_GROUPED_MIN_ROWS", "1048576", SET(grouped_min_rows = 1048576)},
    {"MOEPLAN_TILE", "base", SET(tile = "base")},
    {"MOEPLAN_RECIPE", "auto", SET(recipe = moeplan_recipe_auto)},
    {"MOEPLAN_RECIPE", "decode", SET(recipe = moeplan_recipe_decode)},
    {"MOEPLAN_RECIPE", "verify", SET(recipe = moeplan_recipe_verify)},
    {"MOEPLAN_RECIPE", "row_groups", SET(recipe = moeplan_recipe_row_groups)},
    {"MOEPLAN_RECIPE", "per_row", SET(recipe = moeplan_recipe_per_row)},
    {"MOEPLAN_RECIPE", "prefill", SET(recipe = moeplan_recipe_prefill)},
    {"MOEPLAN_RECIPE", "dense", SET(recipe = moeplan_recipe_dense)},
    {"MOEPLAN_HOST_DISPATCH", "1", SET(host_dispatch = true)},
    {"MOEPLAN_PROFILE", "0", SET(profile = false)},
    {"MOEPLAN_NUMERICS", "invariant",
     SET(numerics = moeplan_numerics_invariant)},
    {"MOEPLAN_CUBLAS", "0", SET(no_cublas = true)},
    {"MOEPLAN_PDL", "0", SET(no_pdl = true)},
    {"MOEPLAN_PDL", "1", SET(no_pdl = false)},
    {"MOEPLAN_SM_LIMIT", "66", SET(sm_limit = 66)},
    {"MOEPLAN_SM_LIMIT", "0000000000066", SET(sm_limit = 66)},
    {"MOEPLAN_SM_LIMIT", "1000000000", SET(sm_limit = 1000000000)},
    {"MOEPLAN_SM_LIMIT", "4294967295", SET(sm_limit = UINT32_MAX)},
};

// Every lever that a variable sets, as text.
std::string Levers(const moeplan_options& options) {
  std::string text;
  moep_lever lever;
  for (uint32_t i = 0; moep_lever_at(&options, i, &lever); i++) {
    text += std::string(lever.text) + "\n";
  }
  return text;
}

// One variable set for a scope, all others of the library unset.
class Environment {
 public:
  explicit Environment(const char* name = nullptr, const char* text = "") {
    Unset();
    if (name != nullptr) setenv(name, text, 1);
  }
  ~Environment() { Unset(); }

 private:
  static void Unset() {
    for (const Variable& variable : kVariables) unsetenv(variable.name);
  }
};

TEST(Environment, EachVariableSetsItsField) {
  Planner planner;
  for (const Variable& variable : kVariables) {
    const Environment environment(variable.name, variable.text);
    moeplan_options options = Options();
    EXPECT_EQ(moeplan_options_from_environment(planner.get(), &options),
              moeplan_status_success)
        << variable.name << "=" << variable.text;
    EXPECT_EQ(Levers(options), Levers(Options(variable.expected)))
        << variable.name << "=" << variable.text;
  }
}

TEST(Environment, AVariableOverridesTheFieldBothWays) {
  Planner planner;
  const auto levers_on = [](auto& o) {
    o.no_row_batch = o.no_grouped = o.no_pdl = true;
    o.recipe = moeplan_recipe_per_row;
  };
  const Environment environment("MOEPLAN_NO_ROW_BATCH", "0");
  setenv("MOEPLAN_GROUPED", "1", 1);
  setenv("MOEPLAN_PDL", "1", 1);
  setenv("MOEPLAN_RECIPE", "auto", 1);
  moeplan_options options = Options(levers_on);
  EXPECT_EQ(moeplan_options_from_environment(planner.get(), &options),
            moeplan_status_success);
  EXPECT_EQ(Levers(options), "");
}

TEST(Environment, UnsetVariablesLeaveFieldsAlone) {
  Planner planner;
  const Environment environment;
  moeplan_options options = Options([](auto& o) {
    o.recipe = moeplan_recipe_prefill;
    o.no_row_batch = o.no_grouped = o.no_cublas = o.no_pdl = true;
    o.row_batch_max = 3;
    o.grouped_min_rows = 20;
    o.tile = "n32";
    o.sm_limit = 5;
    o.y_type = moeplan_dtype_f32;
  });
  const std::string before = Levers(options);
  EXPECT_EQ(moeplan_options_from_environment(planner.get(), &options),
            moeplan_status_success);
  EXPECT_EQ(Levers(options), before);
}

TEST(Environment, ValuesThatDoNotParseAreRefused) {
  const struct {
    const char* name;
    const char* rule;
    std::vector<const char*> bad;
  } table[] = {
      {"MOEPLAN_NO_ROW_BATCH", "0 or 1", {"", "2", "yes", "-1", "1 ", "01x"}},
      {"MOEPLAN_ROW_BATCH_MAX",
       "1 to 8",
       {"", "0", "-1", "4.0", "9", "4294967297", "99999999999"}},
      {"MOEPLAN_GROUPED", "0 or 1", {"", "2", "off"}},
      {"MOEPLAN_GROUPED_MIN_ROWS",
       "9 to 1048576",
       {"", "0", "x9", "8", "1048577", "18446744073709551625"}},
      {"MOEPLAN_RECIPE", "a recipe's name", {"", "Decode", "1", "decode "}},
      {"MOEPLAN_HOST_DISPATCH", "0 or 1", {"", "3"}},
      {"MOEPLAN_PROFILE", "0 or 1", {"", "3"}},
      {"MOEPLAN_NUMERICS", "invariant or tiered", {"", "0", "TIERED"}},
      {"MOEPLAN_CUBLAS", "0 or 1", {"", "on"}},
      {"MOEPLAN_PDL", "0 or 1", {"", "false"}},
      {"MOEPLAN_SM_LIMIT", "1 or more", {"", "0", "-5", "all"}},
  };
  Planner planner;
  for (const auto& row : table) {
    for (const char* text : row.bad) {
      const Environment environment(row.name, text);
      moeplan_options options = Options(SET(row_batch_max = 5));
      EXPECT_TRUE(Refused(planner.hooks(), moeplan_status_invalid_argument,
                          std::string("cannot read ") + row.name + "=\"" +
                              text + "\": must be " + row.rule,
                          [&] {
                            return moeplan_options_from_environment(
                                planner.get(), &options);
                          }));
      EXPECT_EQ(Levers(options), "row_batch_max 5\n") << row.name;
    }
  }
}

TEST(Environment, ValuesThatNoPlanHonoursAreRefused) {
  const struct {
    const char *name, *text;
    moeplan_status status;
    const char* sentence;
  } table[] = {
      {"MOEPLAN_TILE", "n7", moeplan_status_invalid_argument,
       "cannot plan tile \"n7\": must be n8, n16, n32, n48, n64, n80, n96, "
       "n128, n256 or base"},
      {"MOEPLAN_PROFILE", "1", moeplan_status_unsupported_option,
       "cannot plan with profile: this build does not have it"},
  };
  Planner planner;
  for (const auto& row : table) {
    const Environment environment(row.name, row.text);
    moeplan_options options = Options(SET(row_batch_max = 5));
    EXPECT_TRUE(Refused(planner.hooks(), row.status, row.sentence, [&] {
      return moeplan_options_from_environment(planner.get(), &options);
    }));
    EXPECT_EQ(Levers(options), "row_batch_max 5\n") << row.name;
    EXPECT_FALSE(options.profile);
    EXPECT_EQ(options.numerics, moeplan_numerics_invariant);
  }
}

TEST(Environment, NothingElseReadsIt) {
  Planner planner;
  const Environment environment("MOEPLAN_RECIPE", "per_row");
  EXPECT_EQ(Plan(planner, 4).info().recipe, moeplan_recipe_verify);
}

TEST(Environment, NullsAndOtherSizesAreRefused) {
  Planner planner;
  moeplan_options options = Options();
  EXPECT_EQ(moeplan_options_from_environment(nullptr, &options),
            moeplan_status_invalid_argument);
  EXPECT_EQ(moeplan_options_from_environment(planner.get(), nullptr),
            moeplan_status_invalid_argument);
  options.struct_bytes = 0;
  EXPECT_EQ(moeplan_options_from_environment(planner.get(), &options),
            moeplan_status_invalid_argument);
}

}  // namespace
}  // namespace planning
