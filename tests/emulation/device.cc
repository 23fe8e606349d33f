#include "tests/emulation/device.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/emulation/block.h"

dim3 gridDim, blockDim;

namespace emulation {
namespace {

// The blocks at work: a cluster, or a cooperative grid.
std::vector<std::unique_ptr<Block>> team;
std::vector<State> states;
Meeting team_meeting;
std::unique_ptr<SplitMeeting> grid_meeting;

// From its issue on a copy may write.
void Poison(uint8_t* memory, const PendingCopy& copy) {
  std::memset(memory + copy.to, 0xFF, copy.bytes);
}

void Perform(const PendingCopy& copy) {
  std::memcpy(Self().shared + copy.to, copy.from, copy.bytes);
}

}  // namespace

State& Mine() { return states[FiberIndex()]; }
const Thread& Self() { return Mine(); }

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "emulation: %s\n", what);
  if (InFiber()) {
    std::fprintf(stderr, "  in block %u, thread %u\n", blockIdx.x, threadIdx.x);
  }
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

static uint32_t ClusterSize() {
  Require(team.size() <= kMaxCluster, "a cluster");
  return static_cast<uint32_t>(team.size());
}

void SyncCluster() { team_meeting.Wait(ClusterSize() * blockDim.x); }
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
  Unseen unseen;
  uint32_t* lanes = Own().shuffled[WarpIndex()];
  lanes[LaneIndex()] = value;
  MeetWarp();
  std::array<uint32_t, 32> all;
  std::copy_n(lanes, 32, all.begin());
  MeetWarp();
  return all;
}

void BarrierInit(uint32_t address, uint32_t arrivals) {
  Require(address % 8 == 0 && address < kSharedBytes, "a barrier's address");
  auto& barrier = Own().barriers[address / 8];
  Require(barrier == nullptr, "a barrier that is initialised twice");
  barrier = std::make_unique<Barrier>();
  barrier->arrivals = barrier->pending = arrivals;
}

static void Expect(Barrier& barrier, uint32_t bytes) {
  Release(barrier.arrived + barrier.Phase());
  barrier.Expect(bytes);
}

void BarrierArrive(uint32_t address) { Expect(Own().At(address), 0); }

void BarrierArriveAt(uint32_t rank, uint32_t address) {
  Require(rank < ClusterSize(), "a block of the cluster");
  Expect(team[rank]->At(address), 0);
}

void BarrierExpect(uint32_t address, uint32_t bytes) {
  Expect(Own().At(address), bytes);
}

void BarrierWait(uint32_t address, uint32_t parity) {
  Barrier& barrier = Own().At(address);
  PendingCopy copy;
  while (barrier.Phase() == parity) {
    if (!barrier.Take(&copy)) {
      barrier.WaitForChange();
      continue;
    }
    Acquire(&barrier.issued);
    Perform(copy);
    Release(barrier.arrived + parity);
    barrier.End(copy);
  }
  Acquire(barrier.arrived + parity);
}

void Copy(uint32_t to, const void* from, uint32_t bytes) {
  const PendingCopy copy = {to, from, bytes};
  Poison(Self().shared, copy);
  Mine().copies.push_back(copy);
}

void CopyBulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
              uint32_t blocks) {
  Require(blocks != 0 && blocks >> ClusterSize() == 0, "blocks of the cluster");
  for (uint32_t rank = 0; rank < ClusterSize(); rank++) {
    if ((blocks >> rank & 1) == 0) continue;
    const PendingCopy copy = {to, from, bytes};
    Barrier& target = team[rank]->At(barrier);
    Poison(team[rank]->memory, copy);
    target.Issue(copy);
  }
}

uint32_t OwnBit() { return 1u << blockIdx.x % ClusterSize(); }

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

}  // namespace emulation
