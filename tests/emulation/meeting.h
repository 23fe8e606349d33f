// Barriers of fibers.

#ifndef MOEPLAN_TESTS_EMULATION_MEETING_H_
#define MOEPLAN_TESTS_EMULATION_MEETING_H_

#include <cstdint>
#include <mutex>

#include "tests/emulation/device.h"
#include "tests/emulation/fibers.h"

namespace emulation {

// Where `count` threads wait for each other, again and again.
class Meeting {
 public:
  void Wait(uint32_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (++here_ < count) {
      others_.Wait(lock, "the others at a barrier");
      return;
    }
    here_ = 0;
    others_.WakeAll();
  }

 private:
  std::mutex mutex_;
  Waiters others_;
  uint32_t here_ = 0;
};

// The grid's: one thread of each block arrives, and waits for the phase to end.
class SplitMeeting {
 public:
  uint32_t Arrive(uint32_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t phase = phase_;
    if (++here_ == count) {
      here_ = 0;
      phase_++;
      others_.WakeAll();
    }
    return phase;
  }
  void Wait(uint32_t phase) {
    std::unique_lock<std::mutex> lock(mutex_);
    Require(phase == phase_ || phase + 1 == phase_, "a grid barrier's token");
    if (phase == phase_) others_.Wait(lock, "other blocks of the grid");
  }

 private:
  std::mutex mutex_;
  Waiters others_;
  uint32_t here_ = 0;
  uint32_t phase_ = 1;
};

}  // namespace emulation

#endif  // MOEPLAN_TESTS_EMULATION_MEETING_H_
