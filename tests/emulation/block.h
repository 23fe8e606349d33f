// What the emulation keeps of a block and of a thread.

#ifndef MOEPLAN_TESTS_EMULATION_BLOCK_H_
#define MOEPLAN_TESTS_EMULATION_BLOCK_H_

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "tests/emulation/device.h"
#include "tests/emulation/fibers.h"
#include "tests/emulation/meeting.h"

namespace emulation {

constexpr uint32_t kWarps = 32, kMaxCluster = 16;

struct Operands {
  uint32_t word[4];
};

// b of an mma, as Operands its a.
struct Columns {
  uint32_t word[2];
};

struct PendingCopy {
  uint32_t to;
  const void* from;
  uint32_t bytes;
};

// An mbarrier and the bulk copies that complete on it; what it orders has places.
struct Barrier {
  uint32_t arrivals, pending, phase = 0;
  int64_t bytes = 0;
  std::deque<PendingCopy> copies;
  Waiters waiters;
  char arrived[2], issued;  // by phase

  void Expect(uint32_t more_bytes) {
    Unseen unseen;
    Require(pending > 0, "more arrivals than the barrier has");
    bytes += more_bytes;
    pending--;
    Advance();
  }
  void Advance() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = arrivals;
    waiters.WakeAll();
  }
  uint32_t Phase() const {
    Unseen unseen;
    return phase;
  }
  void Issue(const PendingCopy& copy) {
    Release(&issued);
    Unseen unseen;
    copies.push_back(copy);
    waiters.WakeAll();
  }
  // The next copy, if there is one.
  bool Take(PendingCopy* copy) {
    Unseen unseen;
    if (copies.empty()) return false;
    *copy = copies.front();
    copies.pop_front();
    return true;
  }
  void End(const PendingCopy& copy) {
    Unseen unseen;
    bytes -= copy.bytes;
    if (copies.empty()) Advance();
  }
  void WaitForChange() {
    Unseen unseen;
    waiters.Wait("a phase of an mbarrier");
  }
};

struct Product {
  float* d;
  uint32_t n;
  Operands a;  // the compiler keeps registers until a wgmma has read them
  uint64_t b;
  uint32_t sum;  // of b's tile, which may be read from the issue on
};

struct Block {
  alignas(1024) uint8_t memory[kSharedBytes];
  Meeting all, warp[kWarps], named[16];
  uint32_t shuffled[kWarps][32];
  Operands operands[kWarps][32];
  Columns columns[kWarps][32];
  std::unique_ptr<Barrier> barriers[kSharedBytes / 8];
  std::atomic<uint32_t> running;  // threads

  Barrier& At(uint32_t address) {
    Require(running.load(std::memory_order_relaxed) != 0,
            "a block that has ended");
    Require(address % 8 == 0 && address < kSharedBytes, "a barrier's address");
    Barrier* barrier = barriers[address / 8].get();
    Require(barrier != nullptr, "a barrier that is not initialised");
    return *barrier;
  }
};

// What is one thread's alone.
struct State : Thread {
  Block* own;
  std::vector<PendingCopy> copies;
  std::deque<std::vector<PendingCopy>> copy_groups;
  std::vector<Product> products;
  std::deque<std::vector<Product>> groups;
};

// Of the fiber that runs.
State& Mine();
inline Block& Own() { return *Mine().own; }
inline uint32_t WarpIndex() { return Mine().thread.x / 32; }
inline uint32_t LaneIndex() { return Mine().thread.x % 32; }

// Lanes exchange values, which orders no memory.
inline void MeetWarp() { Own().warp[WarpIndex()].WaitUnordered(32); }

}  // namespace emulation

#endif  // MOEPLAN_TESTS_EMULATION_BLOCK_H_
