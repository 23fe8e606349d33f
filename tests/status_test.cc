// Statuses are pinned, each has its own name and sentence, and the INIT macros
// leave everything at its default.

#include <limits.h>

#include <set>

#include "tests/planning.h"

namespace planning {
namespace {

struct Pinned {
  moeplan_status status;
  int value;
  const char* name;
};

// By hand: a number here never changes.
const Pinned kStatuses[] = {
    {moeplan_status_success, 0, "success"},
    {moeplan_status_invalid_argument, 1, "invalid_argument"},
    {moeplan_status_invalid_config, 2, "invalid_config"},
    {moeplan_status_invalid_state, 3, "invalid_state"},
    {moeplan_status_invalid_site, 4, "invalid_site"},
    {moeplan_status_unsupported_config, 10, "unsupported_config"},
    {moeplan_status_unsupported_device, 11, "unsupported_device"},
    {moeplan_status_unsupported_option, 12, "unsupported_option"},
    {moeplan_status_workspace_too_small, 20, "workspace_too_small"},
    {moeplan_status_misaligned_pointer, 21, "misaligned_pointer"},
    {moeplan_status_out_of_memory, 22, "out_of_memory"},
    {moeplan_status_overlapping_memory, 23, "overlapping_memory"},
    {moeplan_status_cuda_error, 30, "cuda_error"},
    {moeplan_status_cublas_error, 31, "cublas_error"},
    {moeplan_status_no_wisdom, 40, "no_wisdom"},
    {moeplan_status_bad_wisdom, 41, "bad_wisdom"},
    {moeplan_status_internal_error, 99, "internal_error"},
};

TEST(Status, ValuesAndNamesArePinned) {
  for (const Pinned& pinned : kStatuses) {
    EXPECT_EQ(pinned.status, pinned.value) << pinned.name;
    EXPECT_STREQ(moeplan_status_name(pinned.status), pinned.name);
  }
}

TEST(Status, ThePinnedOnesAreAllThereAre) {
  size_t known = 0;
#define COUNT(name, value, text) known++;
  MOEPLAN_STATUS_MAP(COUNT)
#undef COUNT
  EXPECT_EQ(known, sizeof(kStatuses) / sizeof(*kStatuses));
}

TEST(Status, EachHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (const Pinned& pinned : kStatuses) {
    const std::string sentence = moeplan_status_string(pinned.status);
    EXPECT_TRUE(sentences.insert(sentence).second) << sentence;
    EXPECT_EQ(sentence == pinned.name, pinned.value == 0) << pinned.name;
  }
}

TEST(Status, UnknownValuesAreSafe) {
  for (int value : {-1, 5, 13, 24, 32, 42, 98, 100, INT_MAX, INT_MIN}) {
    const auto status = EnumOf<moeplan_status>(value);
    EXPECT_STREQ(moeplan_status_name(status), "unknown") << value;
    EXPECT_STREQ(moeplan_status_string(status),
                 "a status that this build does not know")
        << value;
  }
}

TEST(Version, TextIsTheMacros) {
  EXPECT_EQ(moeplan_version_string(),
            std::to_string(MOEPLAN_VERSION_MAJOR) + "." +
                std::to_string(MOEPLAN_VERSION_MINOR) + "." +
                std::to_string(MOEPLAN_VERSION_PATCH));
}

// Static, so that the padding is zero too.
template <typename Struct>
bool IsZeroBeyondItsSize(const Struct& init) {
  static Struct zero;
  zero.struct_bytes = sizeof(Struct);
  return std::memcmp(&init, &zero, sizeof(Struct)) == 0;
}

TEST(Init, OptionsAreZeroLevers) {
  static const moeplan_options options = MOEPLAN_OPTIONS_INIT;
  EXPECT_TRUE(IsZeroBeyondItsSize(options));
  moep_lever lever;
  EXPECT_FALSE(moep_lever_at(&options, 0, &lever));
}

TEST(Init, HooksSiteAndBindingAreZero) {
  static const moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  static const moeplan_site site = MOEPLAN_SITE_INIT;
  static const moeplan_binding binding = MOEPLAN_BINDING_INIT;
  EXPECT_TRUE(IsZeroBeyondItsSize(hooks));
  EXPECT_TRUE(IsZeroBeyondItsSize(site));
  EXPECT_TRUE(IsZeroBeyondItsSize(binding));
}

TEST(Init, ConfigHoldsTheDocumentedDefaults) {
  const moeplan_config config = MOEPLAN_CONFIG_INIT;
  EXPECT_EQ(config.struct_bytes, sizeof(config));
  EXPECT_EQ(config.kind, moeplan_site_routed);
  EXPECT_EQ(config.hidden_size, 0u);
  EXPECT_EQ(config.num_experts_per_tok, 8u);
  EXPECT_EQ(config.local_experts, MOEPLAN_ALL_EXPERTS);
  EXPECT_EQ(config.n_group, 1u);
  EXPECT_EQ(config.topk_group, 1u);
  EXPECT_EQ(config.scoring, moeplan_scoring_sigmoid);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_FALSE(config.router_bf16_ladder);
  EXPECT_EQ(config.routed_scaling_factor, 1.0f);
  EXPECT_EQ(config.swiglu_limit, MOEPLAN_NO_SWIGLU_LIMIT);
  EXPECT_EQ(config.expert_dtype, moeplan_dtype_nvfp4);
  EXPECT_EQ(config.expert_group_size, 16u);
  EXPECT_EQ(config.router_dtype, moeplan_dtype_bf16);
  EXPECT_EQ(config.max_rows, 16384u);
}

}  // namespace
}  // namespace planning
