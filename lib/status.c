#include "lib/moeplan.h"

#define TO_TEXT(x) #x
#define VERSION_TEXT(a, b, c) TO_TEXT(a) "." TO_TEXT(b) "." TO_TEXT(c)

const char* moeplan_version_string(void) {
  return VERSION_TEXT(MOEPLAN_VERSION_MAJOR, MOEPLAN_VERSION_MINOR,
                      MOEPLAN_VERSION_PATCH);
}

const char* moeplan_status_name(enum moeplan_status status) {
  switch (status) {
#define STATUS_NAME(name, value, text) \
  case moeplan_status_##name:          \
    return #name;
    MOEPLAN_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
  }
  return "unknown";
}

const char* moeplan_status_string(enum moeplan_status status) {
  switch (status) {
#define STATUS_TEXT(name, value, text) \
  case moeplan_status_##name:          \
    return text;
    MOEPLAN_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
  }
  return "a status that this build does not know";
}
