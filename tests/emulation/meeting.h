// Barriers of fibers.

#ifndef MOEPLAN_TESTS_EMULATION_MEETING_H_
#define MOEPLAN_TESTS_EMULATION_MEETING_H_

#include <cstdint>

#include "tests/emulation/device.h"
#include "tests/emulation/fibers.h"

namespace emulation {

// Where `count` threads wait for each other, again and again. A round has a place of its
// own to release, so that who comes back late acquires nothing of the next round.
class Meeting {
 public:
  void Wait(uint32_t count) {
    const char* place = Place();
    Release(place);
    WaitUnordered(count);
    Acquire(place);
  }

  // Who comes back need not see what the others wrote.
  void WaitUnordered(uint32_t count) {
    Unseen unseen;
    if (++here_ < count) {
      others_.Wait("the others at a barrier");
      return;
    }
    here_ = 0;
    round_++;
    others_.WakeAll();
  }

 private:
  const char* Place() const {
    Unseen unseen;
    return places_ + round_ % 2;
  }

  Waiters others_;
  uint32_t here_ = 0;
  uint32_t round_ = 0;
  char places_[2];
};

// The grid's: one thread of each block arrives, and waits for the phase to end.
class SplitMeeting {
 public:
  uint32_t Arrive(uint32_t count) {
    const uint32_t phase = Phase();
    Release(places_ + phase % 2);
    Unseen unseen;
    if (++here_ == count) {
      here_ = 0;
      phase_++;
      others_.WakeAll();
    }
    return phase;
  }
  void Wait(uint32_t phase) {
    {
      Unseen unseen;
      Require(phase == phase_ || phase + 1 == phase_, "a grid barrier's token");
      if (phase == phase_) others_.Wait("other blocks of the grid");
    }
    Acquire(places_ + phase % 2);
  }

 private:
  uint32_t Phase() const {
    Unseen unseen;
    return phase_;
  }

  Waiters others_;
  uint32_t here_ = 0;
  uint32_t phase_ = 1;
  char places_[2];
};

}  // namespace emulation

#endif  // MOEPLAN_TESTS_EMULATION_MEETING_H_
