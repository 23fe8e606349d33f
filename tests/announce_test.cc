// The lever that an announcement names undoes what was decided.

#include "tests/planning.h"

namespace planning {
namespace {

using Change = std::function<void(moeplan_options&)>;

#define SET(assignment) [](moeplan_options& o) { o.assignment; }

// What a planner says of its first plan of this kind.
std::string Announcement(const moeplan_config& config, uint32_t rows,
                         const Change& change) {
  Planner planner(config);
  planner.hooks().Clear();
  const Plan plan(planner, rows, Options(change));
  const auto lines = planner.hooks().Lines(moeplan_log_info);
  EXPECT_EQ(lines.size(), 1u);
  return lines.empty() ? "" : lines[0];
}

// A group of 2 rows is the widest.
moeplan_config TopkOf32() {
  moeplan_config config = FlashConfig();
  config.num_experts_per_tok = 32;
  return config;
}

TEST(Announce, SentencesAreWholeOnes) {
  EXPECT_EQ(Announcement(FlashConfig(), 4, nullptr),
            "plan of 4 rows: recipe verify, 1 nodes, 1 groups, tile n8; "
            "MOEPLAN_NO_ROW_BATCH chooses another");
  EXPECT_EQ(Announcement(DenseConfig(), 4, nullptr),
            "plan of 4 rows: recipe dense, 2 nodes, 1 groups, tile -; "
            "no lever chooses another");
}

TEST(Announce, TheLeverIsTheDecisions) {
  const moeplan_config flash = FlashConfig(), wide = TopkOf32();
  const struct {
    const char* recipe;
    const char* lever;
    const moeplan_config& config;
    uint32_t rows;
    Change change;
  } table[] = {
      {"decode", "MOEPLAN_RECIPE", flash, 1, nullptr},
      {"decode", "MOEPLAN_RECIPE", flash, 1, SET(no_row_batch = true)},
      {"verify", "MOEPLAN_NO_ROW_BATCH", flash, 2, nullptr},
      {"verify", "MOEPLAN_NO_ROW_BATCH", flash, 8, nullptr},
      {"row_groups", "MOEPLAN_NO_ROW_BATCH", flash, 8, SET(row_batch_max = 4)},
      {"row_groups", "MOEPLAN_NO_ROW_BATCH", flash, 17, SET(no_grouped = true)},
      {"per_row", "MOEPLAN_NO_ROW_BATCH", flash, 4, SET(no_row_batch = true)},
      {"per_row", "MOEPLAN_ROW_BATCH_MAX", flash, 4, SET(row_batch_max = 1)},
      {"per_row", "MOEPLAN_ROW_BATCH_MAX", flash, 3, SET(row_batch_max = 2)},
      {"per_row", "MOEPLAN_RECIPE", wide, 3, nullptr}, /* 2 + 1 rows */
      {"per_row", "MOEPLAN_RECIPE", wide, 3, SET(row_batch_max = 1)},
      {"per_row", "MOEPLAN_GROUPED", wide, 9, SET(no_grouped = true)},
      {"per_row", "MOEPLAN_GROUPED_MIN_ROWS", wide, 9,
       SET(grouped_min_rows = 99)},
      {"prefill", "MOEPLAN_GROUPED", flash, 9, nullptr},
      {"prefill", "MOEPLAN_GROUPED", flash, 256, SET(tile = "n64")},
      {"prefill", "MOEPLAN_HOST_DISPATCH", flash, 4, SET(host_dispatch = true)},
      {"prefill", "MOEPLAN_HOST_DISPATCH", flash, 99,
       SET(host_dispatch = true)},
      {"prefill", "MOEPLAN_RECIPE", flash, 4,
       SET(recipe = moeplan_recipe_prefill)},
      {"verify", "MOEPLAN_RECIPE", flash, 4,
       SET(recipe = moeplan_recipe_verify)},
      {"per_row", "MOEPLAN_RECIPE", flash, 4,
       SET(recipe = moeplan_recipe_per_row)},
  };
  for (const auto& row : table) {
    const std::string line = Announcement(row.config, row.rows, row.change);
    EXPECT_NE(line.find(std::string("recipe ") + row.recipe + ","),
              std::string::npos)
        << line;
    EXPECT_NE(line.find(std::string("; ") + row.lever + " chooses another"),
              std::string::npos)
        << line << "\nwanted " << row.lever;
  }
}

TEST(Announce, ADenseSiteHasNoLever) {
  for (const Change& change :
       {Change(nullptr), Change(SET(recipe = moeplan_recipe_dense)),
        Change(SET(no_row_batch = true)), Change(SET(tile = "n64"))}) {
    const std::string line = Announcement(DenseConfig(), 12, change);
    EXPECT_NE(line.find("; no lever chooses another"), std::string::npos)
        << line;
    EXPECT_EQ(line.find("MOEPLAN_"), std::string::npos) << line;
  }
}

// ---- for every combination of levers --------------------------------------------

// Everything that the variable can say instead, the rest as it is.
std::vector<moeplan_options> Alternatives(const moeplan_options& options,
                                          const std::string& variable) {
  std::vector<moeplan_options> others;
  const auto add = [&](const Change& change) {
    others.push_back(options);
    change(others.back());
  };
  if (variable == "MOEPLAN_RECIPE") {
    for (int i = 0; i < moeplan_recipe_dense; i++) {
      add([=](auto& o) { o.recipe = EnumOf<moeplan_recipe>(i); });
    }
  } else if (variable == "MOEPLAN_NO_ROW_BATCH") {
    add([](auto& o) { o.no_row_batch = !o.no_row_batch; });
  } else if (variable == "MOEPLAN_GROUPED") {
    add([](auto& o) { o.no_grouped = !o.no_grouped; });
  } else if (variable == "MOEPLAN_HOST_DISPATCH") {
    add([](auto& o) { o.host_dispatch = !o.host_dispatch; });
  } else if (variable == "MOEPLAN_ROW_BATCH_MAX") {
    for (uint32_t n = 1; n <= 8; n++) {
      add([=](auto& o) { o.row_batch_max = n; });
    }
  } else if (variable == "MOEPLAN_GROUPED_MIN_ROWS") {
    add(SET(grouped_min_rows = 9));
  }
  return others;
}

// A plan of another recipe, or one that is no longer dispatched by the host.
bool Undoes(const moep_dims& dims, uint32_t rows,
            const moeplan_options& options, const std::string& variable) {
  const moeplan_recipe chosen = moep_recipe_choose(&dims, rows, &options);
  for (const moeplan_options& other : Alternatives(options, variable)) {
    if (moep_recipe_choose(&dims, rows, &other) != chosen ||
        other.host_dispatch != options.host_dispatch) {
      return true;
    }
  }
  return false;
}

TEST(Announce, TheLeverUndoesTheDecisionWhateverTheOthersSay) {
  for (const moeplan_config& config : {FlashConfig(), TopkOf32()}) {
    Planner planner(config);
    const moep_dims& dims = planner.get()->dims;
    for (uint32_t rows = 1; rows <= 20; rows++) {
      for (uint32_t levers = 0; levers < 8; levers++) {
        for (uint32_t cap = 0; cap <= 8; cap++) {
          for (uint32_t from : {0u, 9u, 12u, 64u}) {
            const moeplan_options options = Options([=](auto& o) {
              o.no_row_batch = (levers & 1) != 0;
              o.no_grouped = (levers & 2) != 0;
              o.host_dispatch = (levers & 4) != 0;
              o.row_batch_max = cap;
              o.grouped_min_rows = from;
            });
            const char* variable = moep_recipe_lever(&dims, rows, &options);
            ASSERT_NE(variable, nullptr);
            EXPECT_TRUE(Undoes(dims, rows, options, variable))
                << variable << " at " << rows << " rows, levers " << levers
                << ", cap " << cap << ", grouped from " << from;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace planning
