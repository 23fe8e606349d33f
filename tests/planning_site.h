// A site of made-up addresses, a poisoned blob for it, and what the writing of
// one must give.

#ifndef MOEPLAN_TESTS_PLANNING_SITE_H_
#define MOEPLAN_TESTS_PLANNING_SITE_H_

#include <cstdio>

#include "tests/planning.h"

namespace planning {

// An address that nothing reads.
inline const void* Address(uintptr_t value) {
  return reinterpret_cast<const void*>(value);
}

inline std::string Text(const void* address) {
  char text[32];
  std::snprintf(text, sizeof(text), "%p", address);
  return text;
}

// A site of 6 experts with made-up addresses, each 16-byte aligned.
class Site {
 public:
  enum Part { kGate, kUp, kDown };
  static constexpr uint32_t kExperts = 6;

  explicit Site(bool dense = false) {
    if (dense) {
      site.dense = {Address(0x1000), Address(0x2000), Address(0x3000), 0};
      return;
    }
    site.router = Address(0x4000);
    site.router_bias = static_cast<const float*>(Address(0x5000));
    site.shared = {Address(0x1000), Address(0x2000), Address(0x3000), 0};
    for (uint32_t e = 0; e < kExperts; e++) {
      for (int part = 0; part < 3; part++) {
        weight[part][e] = Address(0x100000 * (e + 1) + 0x10000 * part);
        scale[part][e] = Address(0x100000 * (e + 1) + 0x10000 * part + 0x800);
        scale2[part][e] = 0.5f + static_cast<float>(3 * e + part);
      }
    }
    moeplan_projection* projections[] = {&site.gate, &site.up, &site.down};
    for (int part = 0; part < 3; part++) {
      *projections[part] = {weight[part], scale[part], scale2[part]};
    }
  }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  void Drop(uint32_t expert) {
    for (auto& addresses : weight) addresses[expert] = nullptr;
  }

  moeplan_site site = MOEPLAN_SITE_INIT;
  const void* weight[3][kExperts] = {};
  const void* scale[3][kExperts] = {};
  float scale2[3][kExperts] = {};
};

// A blob with room to spare, poisoned.
class Blob {
 public:
  Blob() { std::memset(bytes_, 0xA5, sizeof(bytes_)); }
  void* get() { return bytes_; }
  bool untouched(size_t from = 0) const {
    for (size_t i = from; i < sizeof(bytes_); i++) {
      if (bytes_[i] != 0xA5) return false;
    }
    return true;
  }
  const moep_site_table* table() const {
    return reinterpret_cast<const moep_site_table*>(bytes_);
  }

 private:
  alignas(16) unsigned char bytes_[4096];
};

inline size_t SizeOf(const Planner& planner) {
  size_t bytes = 0;
  EXPECT_EQ(moeplan_site_size(planner.get(), &bytes), moeplan_status_success);
  return bytes;
}

inline void ExpectRefused(Planner& planner, const Site& site,
                          moeplan_status status, const std::string& sentence) {
  Blob blob;
  EXPECT_TRUE(Refused(planner.hooks(), status, sentence, [&] {
    return moeplan_site_write(planner.get(), &site.site, blob.get(),
                              SizeOf(planner));
  }));
  EXPECT_TRUE(blob.untouched()) << sentence;
}

inline void ExpectAccepted(Planner& planner, const Site& site) {
  Blob blob;
  EXPECT_EQ(moeplan_site_write(planner.get(), &site.site, blob.get(),
                               SizeOf(planner)),
            moeplan_status_success);
}

constexpr auto kInvalid = moeplan_status_invalid_site;
constexpr auto kMisaligned = moeplan_status_misaligned_pointer;

}  // namespace planning

#endif  // MOEPLAN_TESTS_PLANNING_SITE_H_
