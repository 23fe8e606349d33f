// The public header alone, as C++17: it compiles, each INIT macro initializes
// its struct, and the functions have C linkage.

#include <moeplan.h>
// The header comes first: it needs nothing before it.
#include <gtest/gtest.h>

#include <type_traits>

namespace {

template <typename Struct>
void ExpectSized(const Struct& init) {
  static_assert(std::is_standard_layout_v<Struct> &&
                std::is_trivially_copyable_v<Struct>);
  EXPECT_EQ(init.struct_bytes, sizeof(Struct));
}

TEST(Header, InitMacrosWorkInCxx) {
  const moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  const moeplan_config config = MOEPLAN_CONFIG_INIT;
  const struct moeplan_device_info device = MOEPLAN_DEVICE_INFO_INIT;
  const moeplan_site site = MOEPLAN_SITE_INIT;
  const moeplan_options options = MOEPLAN_OPTIONS_INIT;
  const struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  const moeplan_binding binding = MOEPLAN_BINDING_INIT;
  ExpectSized(hooks);
  ExpectSized(config);
  ExpectSized(device);
  ExpectSized(site);
  ExpectSized(options);
  ExpectSized(info);
  ExpectSized(binding);
}

TEST(Header, FunctionsLink) {
  EXPECT_STREQ(moeplan_status_name(moeplan_status_success), "success");
  EXPECT_NE(moeplan_version_string(), nullptr);
}

}  // namespace
