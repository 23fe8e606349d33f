// Threads that take turns on one thread of the host: each runs until it waits, so that a
// thousand of them cost little and every run is the same. TSan sees them as threads: what
// their own mutexes do not order is a race, whoever ran first.

#ifndef MOEPLAN_TESTS_EMULATION_FIBERS_H_
#define MOEPLAN_TESTS_EMULATION_FIBERS_H_

#include <cstdint>
#include <functional>
#include <mutex>

namespace emulation {

struct Fiber;

// Runs body(0) .. body(count - 1), `group` of them at first; the next group begins only
// when nobody before it can go on. Where nobody can, or all turn in circles, that is a
// failure that says who waits for what. Whoever runs holds no mutex when it waits.
void RunFibers(uint32_t count, uint32_t group,
               const std::function<void(uint32_t)>& body);

// Of the fiber that runs.
uint32_t FiberIndex();

// Others' turn, for loops that wait for memory to change.
void Yield();

// Those who wait for something, under the mutex that guards it.
class Waiters {
 public:
  void Wait(std::unique_lock<std::mutex>& lock, const char* what);
  void WakeAll();

 private:
  Fiber* first_ = nullptr;
};

}  // namespace emulation

#endif  // MOEPLAN_TESTS_EMULATION_FIBERS_H_
