/* The public header alone, as strict C11: it compiles, each INIT macro
 * initializes its struct, and the archive links. */

#include <moeplan.h>

int main(void) {
  const struct moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  const struct moeplan_config config = MOEPLAN_CONFIG_INIT;
  const struct moeplan_device_info device = MOEPLAN_DEVICE_INFO_INIT;
  const struct moeplan_site site = MOEPLAN_SITE_INIT;
  const struct moeplan_options options = MOEPLAN_OPTIONS_INIT;
  const struct moeplan_plan_info info = MOEPLAN_PLAN_INFO_INIT;
  const struct moeplan_binding binding = MOEPLAN_BINDING_INIT;
  const bool sized = hooks.struct_bytes == sizeof(hooks) &&
                     config.struct_bytes == sizeof(config) &&
                     device.struct_bytes == sizeof(device) &&
                     site.struct_bytes == sizeof(site) &&
                     options.struct_bytes == sizeof(options) &&
                     info.struct_bytes == sizeof(info) &&
                     binding.struct_bytes == sizeof(binding);
  /* All zeros plans nothing. */
  const bool refused =
      moeplan_config_check(&config) == moeplan_status_invalid_config;
  return sized && refused ? 0 : 1;
}
