// Threads that take turns on one thread of the host: each runs until it waits, so that a
// thousand of them cost little and every run is the same. TSan sees them as threads: what
// they do not order by Release and Acquire is a race, whoever ran first.

#ifndef MOEPLAN_TESTS_EMULATION_FIBERS_H_
#define MOEPLAN_TESTS_EMULATION_FIBERS_H_

#include <cstdint>
#include <functional>

namespace emulation {

struct Fiber;

// Runs body(0) .. body(count - 1), `group` of them at first; the next group begins only
// when nobody before it can go on. Where nobody can, or all turn in circles, that is a
// failure that says who waits for what.
void RunFibers(uint32_t count, uint32_t group,
               const std::function<void(uint32_t)>& body);

// Of the fiber that runs; whether one does.
uint32_t FiberIndex();
bool InFiber();

// Others' turn, for loops that wait for memory to change.
void Yield();

// Those who wait for something. Orders nothing.
class Waiters {
 public:
  void Wait(const char* what);
  void WakeAll();

 private:
  Fiber* first_ = nullptr;
};

// For TSan: what a fiber did before it releases a place is there for who acquires the
// place later.
void Release(const void* place);
void Acquire(const void* place);

// While one lives, TSan does not see what the fiber does: for data of the emulation.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

}  // namespace emulation

#endif  // MOEPLAN_TESTS_EMULATION_FIBERS_H_
