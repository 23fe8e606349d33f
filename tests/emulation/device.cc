#include "tests/emulation/device.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/emulation/fibers.h"
#include "tests/emulation/meeting.h"

extern "C" {
#include "kernels/host/step.h"
}

dim3 gridDim, blockDim;

namespace emulation {
namespace {

constexpr uint32_t kWarps = 32;

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

// An mbarrier and the bulk copies that complete on it.
struct Barrier {
  uint32_t arrivals, pending, phase = 0;
  int64_t bytes = 0;
  std::vector<PendingCopy> copies;
  Waiters waiters;
  std::mutex mutex;  // for all of it

  void Expect(uint32_t more_bytes) {
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
};

struct Product {
  float* d;
  uint32_t n;
  Operands a;  // the compiler keeps registers until a wgmma has read them
  uint64_t b;
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

// The blocks at work: a cluster, or a cooperative grid.
std::vector<std::unique_ptr<Block>> team;
std::vector<State> states;
Meeting team_meeting;
std::unique_ptr<SplitMeeting> grid_meeting;

State& Mine() { return states[FiberIndex()]; }
Block& Own() { return *Mine().own; }
uint32_t WarpIndex() { return Mine().thread.x / 32; }
uint32_t LaneIndex() { return Mine().thread.x % 32; }

void Perform(const PendingCopy& copy) {
  std::memcpy(Self().shared + copy.to, copy.from, copy.bytes);
}

uint16_t Half(uint32_t word, uint32_t which) {
  return static_cast<uint16_t>(word >> (16 * which));
}

}  // namespace

const Thread& Self() { return Mine(); }

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "emulation: %s (block %u, thread %u)\n", what,
               blockIdx.x, threadIdx.x);
  std::abort();
}

static void RunThread(const std::function<void()>& body) {
  body();
  State& mine = Mine();
  for (const auto& group : mine.copy_groups) {
    Require(group.empty(), "a thread leaves copies behind");
  }
  Require(mine.copies.empty() && mine.products.empty() && mine.groups.empty(),
          "a thread leaves work behind");
  mine.own->running.fetch_sub(1, std::memory_order_relaxed);
}

static void PrepareBlock(uint32_t index, uint32_t first) {
  Block& block = *team[index];
  for (auto& barrier : block.barriers) barrier.reset();
  std::memset(block.memory, 0xFF, kSharedBytes);
  block.running = blockDim.x;
  for (uint32_t i = 0; i < blockDim.x; i++) {
    State state = {};
    state.thread = {i, 0, 0};
    state.block = {first + index, 0, 0};
    state.shared = block.memory;
    state.own = &block;
    states.push_back(state);
  }
}

void Launch(uint32_t blocks, uint32_t threads, uint32_t together,
            const std::function<void()>& body) {
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  Require(threads % 32 == 0 && threads <= kWarps * 32, "a block's threads");
  Require(together != 0 && blocks % together == 0, "a grid of clusters");
  team.clear();
  for (uint32_t i = 0; i < together; i++) {
    team.push_back(std::make_unique<Block>());
  }
  for (uint32_t first = 0; first < blocks; first += together) {
    grid_meeting = std::make_unique<SplitMeeting>();
    states.clear();
    for (uint32_t i = 0; i < together; i++) PrepareBlock(i, first);
    RunFibers(together * threads, threads, [&](uint32_t) { RunThread(body); });
    for (const auto& block : team) {
      for (const auto& barrier : block->barriers) {
        Require(barrier == nullptr || barrier->copies.empty(),
                "a block leaves copies behind");
      }
    }
  }
}

void SyncCluster() {
  team_meeting.Wait(static_cast<uint32_t>(team.size()) * blockDim.x);
}
void SyncThreads() { Own().all.Wait(blockDim.x); }
void SyncWarp() { Own().warp[WarpIndex()].Wait(32); }
void NamedBarrier(uint32_t name, uint32_t threads) {
  Require(name < 16, "a named barrier's number");
  Own().named[name].Wait(threads);
}

uint32_t GridArrive() {
  Require(team.size() == gridDim.x, "a cooperative grid");
  SyncThreads();
  return threadIdx.x == 0 ? grid_meeting->Arrive(gridDim.x) : 0;
}

void GridWait(uint32_t token) {
  if (threadIdx.x == 0) grid_meeting->Wait(token);
  SyncThreads();
}

uint32_t Shuffle(uint32_t value, uint32_t from) {
  return OfAllLanes(value)[from];
}

std::array<uint32_t, 32> OfAllLanes(uint32_t value) {
  uint32_t* lanes = Own().shuffled[WarpIndex()];
  lanes[LaneIndex()] = value;
  SyncWarp();
  std::array<uint32_t, 32> all;
  std::copy_n(lanes, 32, all.begin());
  SyncWarp();
  return all;
}

void BarrierInit(uint32_t address, uint32_t arrivals) {
  Require(address % 8 == 0 && address < kSharedBytes, "a barrier's address");
  auto barrier = std::make_unique<Barrier>();
  barrier->arrivals = barrier->pending = arrivals;
  Own().barriers[address / 8] = std::move(barrier);
}

static void Expect(Barrier& barrier, uint32_t bytes) {
  std::lock_guard<std::mutex> lock(barrier.mutex);
  barrier.Expect(bytes);
}

void BarrierArrive(uint32_t address) { Expect(Own().At(address), 0); }

void BarrierArriveAt(uint32_t rank, uint32_t address) {
  Require(rank < team.size(), "a block of the cluster");
  Expect(team[rank]->At(address), 0);
}

void BarrierExpect(uint32_t address, uint32_t bytes) {
  Expect(Own().At(address), bytes);
}

void BarrierWait(uint32_t address, uint32_t parity) {
  Barrier& barrier = Own().At(address);
  std::unique_lock<std::mutex> lock(barrier.mutex);
  const auto ended = [&] {
    for (const PendingCopy& copy : barrier.copies) {
      Perform(copy);
      barrier.bytes -= copy.bytes;
    }
    if (!barrier.copies.empty()) barrier.Advance();
    barrier.copies.clear();
    return barrier.phase != parity;
  };
  while (!ended()) barrier.waiters.Wait(lock, "a phase of an mbarrier");
}

void Copy(uint32_t to, const void* from, uint32_t bytes) {
  Mine().copies.push_back({to, from, bytes});
}

void CopyBulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
              uint32_t blocks) {
  Require(blocks != 0 && blocks >> team.size() == 0, "blocks of the cluster");
  for (uint32_t rank = 0; rank < team.size(); rank++) {
    if ((blocks >> rank & 1) == 0) continue;
    Barrier& target = team[rank]->At(barrier);
    std::lock_guard<std::mutex> lock(target.mutex);
    target.copies.push_back({to, from, bytes});
    target.waiters.WakeAll();
  }
}

uint32_t OwnBit() { return 1u << blockIdx.x % team.size(); }

void CommitCopies() {
  State& mine = Mine();
  mine.copy_groups.push_back(mine.copies);
  mine.copies.clear();
}

void WaitCopies(size_t pending) {
  auto& groups = Mine().copy_groups;
  while (groups.size() > pending) {
    for (const PendingCopy& copy : groups.front()) Perform(copy);
    groups.pop_front();
  }
}

void FinishCopies() {
  CommitCopies();
  WaitCopies(0);
}

void Wgmma(float* d, uint32_t n, const uint32_t* a, uint64_t b) {
  Mine().products.push_back({d, n, {{a[0], a[1], a[2], a[3]}}, b});
}

void WgmmaCommit() {
  State& mine = Mine();
  mine.groups.push_back(mine.products);
  mine.products.clear();
}

// Rows g and g + 8 of a warp's a, of which each lane has brought its part.
static void TakeRows(uint16_t (&row)[2][16]) {
  const uint32_t g = LaneIndex() / 4;
  const Operands* warp = Own().operands[WarpIndex()];
  for (uint32_t r = 0; r < 2; r++) {
    for (uint32_t k = 0; k < 16; k++) {
      row[r][k] = Half(warp[g * 4 + k % 8 / 2].word[r + k / 8 * 2], k % 2);
    }
  }
}

static void BringOperands(const uint32_t* a) {
  std::memcpy(Own().operands[WarpIndex()][LaneIndex()].word, a,
              sizeof(Operands));
}

void Mma(float* d, const uint32_t* a, const uint32_t* b) {
  const uint32_t lane = LaneIndex();
  Columns* warp = Own().columns[WarpIndex()];
  BringOperands(a);
  std::memcpy(warp[lane].word, b, sizeof(Columns));
  SyncWarp();
  uint16_t row[2][16], column[16];
  TakeRows(row);
  for (uint32_t c = 0; c < 2; c++) {
    for (uint32_t k = 0; k < 16; k++) {
      column[k] =
          Half(warp[(lane % 4 * 2 + c) * 4 + k % 8 / 2].word[k / 8], k % 2);
    }
    for (uint32_t r = 0; r < 2; r++) {
      float& sum = d[2 * r + c];
      sum = moep_step(&moep_step_sm90, row[r], column, sum);
    }
  }
  SyncWarp();
}

static void Multiply(float* d, uint32_t n, const uint32_t* a, uint64_t b) {
  const uint32_t t = LaneIndex() % 4;
  BringOperands(a);
  SyncWarp();
  Require(b >> 62 == 1 && (b >> 32 & 0x3FFF) == 64, "a tile's descriptor");
  const uint32_t tile = static_cast<uint32_t>(b & 0x3FFF) << 4;
  uint16_t row[2][16];
  TakeRows(row);
  for (uint32_t i = 0; i < n / 4; i++) {
    const uint32_t column = i / 2 * 8 + 2 * t + i % 2;
    uint16_t other[16];
    for (uint32_t k = 0; k < 16; k++) {
      const uint32_t at = tile + column * 128 + k * 2;
      std::memcpy(&other[k], Self().shared + (at ^ (at >> 7 & 7) << 4), 2);
    }
    for (uint32_t r = 0; r < 2; r++) {
      float& sum = d[i / 2 * 4 + 2 * r + i % 2];
      sum = moep_step(&moep_step_sm90, row[r], other, sum);
    }
  }
  SyncWarp();
}

void WgmmaWait(size_t pending) {
  auto& groups = Mine().groups;
  while (groups.size() > pending) {
    for (const Product& p : groups.front()) Multiply(p.d, p.n, p.a.word, p.b);
    groups.pop_front();
  }
}

}  // namespace emulation
