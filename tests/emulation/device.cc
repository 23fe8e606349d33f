#include "tests/emulation/device.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

extern "C" {
#include "kernels/host/step.h"
}

thread_local uint3 threadIdx, blockIdx;
dim3 gridDim, blockDim;

namespace emulation {
namespace {

constexpr uint32_t kWarps = 32;
constexpr auto kPatience = std::chrono::seconds(120);
// By which a cluster's second block begins after the first.
constexpr auto kLate = std::chrono::milliseconds(100);

// Where `count` threads wait for each other, again and again.
class Meeting {
 public:
  void Wait(uint32_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t round = round_;
    if (++here_ == count) {
      here_ = 0;
      round_++;
      all_.notify_all();
      return;
    }
    Require(all_.wait_for(lock, kPatience, [&] { return round_ != round; }),
            "threads wait for others that do not come");
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  uint32_t here_ = 0;
  uint64_t round_ = 0;
};

struct Barrier {
  bool initialised;
  uint32_t arrivals, pending, phase;
  int64_t bytes;
};

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

struct Product {
  float* d;
  uint32_t n;
  Operands a;  // the compiler keeps registers until a wgmma has read them
  uint64_t b;
};

thread_local std::vector<PendingCopy> copies;
thread_local std::deque<std::vector<PendingCopy>> copy_groups;
thread_local std::vector<Product> products;
thread_local std::deque<std::vector<Product>> groups;

struct Block {
  alignas(1024) uint8_t memory[kSharedBytes];
  Meeting all, warp[kWarps], named[16];
  uint32_t shuffled[kWarps][32];
  Operands operands[kWarps][32];
  Columns columns[kWarps][32];
  bool running;
  // Under the mutex, here and below.
  Barrier barriers[kSharedBytes / 8];
  std::map<uint32_t, std::vector<PendingCopy>> bulk_copies;  // by barrier
  std::mutex mutex;
  std::condition_variable changed;

  Barrier& At(uint32_t address) {
    Require(running, "a block that has ended, or has not begun");
    Require(address % 8 == 0 && address < kSharedBytes, "a barrier's address");
    Barrier& barrier = barriers[address / 8];
    Require(barrier.initialised, "a barrier that is not initialised");
    return barrier;
  }
  void Expect(uint32_t address, uint32_t bytes) {
    Barrier& barrier = At(address);
    Require(barrier.pending > 0, "more arrivals than the barrier has");
    barrier.bytes += bytes;
    barrier.pending--;
    Advance(barrier);
  }
  void Advance(Barrier& barrier) {
    if (barrier.pending != 0 || barrier.bytes != 0) return;
    barrier.phase ^= 1;
    barrier.pending = barrier.arrivals;
    changed.notify_all();
  }
};

Block cluster[kMaxCluster];
uint32_t cluster_blocks;
Meeting cluster_meeting;
thread_local Block* own;

void Perform(const PendingCopy& copy) {
  std::memcpy(shared + copy.to, copy.from, copy.bytes);
}

uint16_t Half(uint32_t word, uint32_t which) {
  return static_cast<uint16_t>(word >> (16 * which));
}

}  // namespace

thread_local uint8_t* shared;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "emulation: %s (block %u, thread %u)\n", what,
               blockIdx.x, threadIdx.x);
  std::abort();
}

static void RunBlock(uint32_t index, Block* block,
                     const std::function<void()>& body) {
  std::vector<std::thread> all;
  for (uint32_t i = 0; i < blockDim.x; i++) {
    all.emplace_back([index, block, i, &body] {
      blockIdx = uint3{index, 0, 0};
      threadIdx = uint3{i, 0, 0};
      own = block;
      shared = block->memory;
      if (block != cluster) std::this_thread::sleep_for(kLate);
      body();
      for (const auto& group : copy_groups) {
        Require(group.empty(), "a thread leaves copies behind");
      }
      Require(copies.empty() && products.empty() && groups.empty(),
              "a thread leaves work behind");
    });
  }
  for (std::thread& one : all) one.join();
  std::lock_guard<std::mutex> lock(block->mutex);
  block->running = false;
  for (const auto& copies_of : block->bulk_copies) {
    Require(copies_of.second.empty(), "a block leaves copies behind");
  }
}

void Launch(uint32_t blocks, uint32_t threads, uint32_t blocks_of_cluster,
            const std::function<void()>& body) {
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  cluster_blocks = blocks_of_cluster;
  Require(threads % 32 == 0 && threads <= kWarps * 32, "a block's threads");
  Require(cluster_blocks <= kMaxCluster && blocks % cluster_blocks == 0,
          "a grid of clusters");
  for (uint32_t first = 0; first < blocks; first += cluster_blocks) {
    std::vector<std::thread> running;
    for (uint32_t i = 0; i < cluster_blocks; i++) {
      for (Barrier& barrier : cluster[i].barriers) barrier.initialised = false;
      std::memset(cluster[i].memory, 0xFF, kSharedBytes);
      cluster[i].running = true;
    }
    for (uint32_t i = 0; i < cluster_blocks; i++) {
      running.emplace_back(RunBlock, first + i, &cluster[i], body);
    }
    for (std::thread& one : running) one.join();
  }
}

void SyncCluster() { cluster_meeting.Wait(cluster_blocks * blockDim.x); }
void SyncThreads() { own->all.Wait(blockDim.x); }
void SyncWarp() { own->warp[threadIdx.x / 32].Wait(32); }
void NamedBarrier(uint32_t name, uint32_t threads) {
  Require(name < 16, "a named barrier's number");
  own->named[name].Wait(threads);
}

uint32_t Shuffle(uint32_t value, uint32_t from) {
  uint32_t* lanes = own->shuffled[threadIdx.x / 32];
  lanes[threadIdx.x % 32] = value;
  SyncWarp();
  const uint32_t taken = lanes[from];
  SyncWarp();
  return taken;
}

std::array<uint32_t, 32> OfAllLanes(uint32_t value) {
  uint32_t* lanes = own->shuffled[threadIdx.x / 32];
  lanes[threadIdx.x % 32] = value;
  SyncWarp();
  std::array<uint32_t, 32> all;
  std::copy_n(lanes, 32, all.begin());
  SyncWarp();
  return all;
}

void BarrierInit(uint32_t address, uint32_t arrivals) {
  std::lock_guard<std::mutex> lock(own->mutex);
  Require(address % 8 == 0 && address < kSharedBytes, "a barrier's address");
  own->barriers[address / 8] = {true, arrivals, arrivals, 0, 0};
}

void BarrierArrive(uint32_t address) { BarrierExpect(address, 0); }

void BarrierArriveAt(uint32_t rank, uint32_t address) {
  Require(rank < cluster_blocks, "a block of the cluster");
  std::lock_guard<std::mutex> lock(cluster[rank].mutex);
  cluster[rank].Expect(address, 0);
}

void BarrierExpect(uint32_t address, uint32_t bytes) {
  std::lock_guard<std::mutex> lock(own->mutex);
  own->Expect(address, bytes);
}

void BarrierWait(uint32_t address, uint32_t parity) {
  std::unique_lock<std::mutex> lock(own->mutex);
  Barrier& barrier = own->At(address);
  std::vector<PendingCopy>& bulk = own->bulk_copies[address];
  const auto ended = [&] {
    for (const PendingCopy& copy : bulk) {
      Perform(copy);
      barrier.bytes -= copy.bytes;
    }
    if (!bulk.empty()) own->Advance(barrier);
    bulk.clear();
    return barrier.phase != parity;
  };
  Require(own->changed.wait_for(lock, kPatience, ended),
          "a phase that does not end");
}

void Copy(uint32_t to, const void* from, uint32_t bytes) {
  copies.push_back({to, from, bytes});
}

void CopyBulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
              uint32_t blocks) {
  Require(blocks != 0 && blocks >> cluster_blocks == 0,
          "blocks of the cluster");
  for (uint32_t rank = 0; rank < cluster_blocks; rank++) {
    if ((blocks >> rank & 1) == 0) continue;
    Block& block = cluster[rank];
    std::lock_guard<std::mutex> lock(block.mutex);
    block.At(barrier);
    block.bulk_copies[barrier].push_back({to, from, bytes});
    block.changed.notify_all();
  }
}

uint32_t OwnBit() { return 1u << (own - cluster); }

void CommitCopies() {
  copy_groups.push_back(copies);
  copies.clear();
}

void WaitCopies(size_t pending) {
  while (copy_groups.size() > pending) {
    for (const PendingCopy& copy : copy_groups.front()) Perform(copy);
    copy_groups.pop_front();
  }
}

void FinishCopies() {
  CommitCopies();
  WaitCopies(0);
}

void Wgmma(float* d, uint32_t n, const uint32_t* a, uint64_t b) {
  products.push_back({d, n, {{a[0], a[1], a[2], a[3]}}, b});
}

void WgmmaCommit() {
  groups.push_back(products);
  products.clear();
}

// Rows g and g + 8 of a warp's a, of which each lane has brought its part.
static void TakeRows(uint16_t (&row)[2][16]) {
  const uint32_t g = threadIdx.x % 32 / 4;
  const Operands* warp = own->operands[threadIdx.x / 32];
  for (uint32_t r = 0; r < 2; r++) {
    for (uint32_t k = 0; k < 16; k++) {
      row[r][k] = Half(warp[g * 4 + k % 8 / 2].word[r + k / 8 * 2], k % 2);
    }
  }
}

static void BringOperands(const uint32_t* a) {
  std::memcpy(own->operands[threadIdx.x / 32][threadIdx.x % 32].word, a,
              sizeof(Operands));
}

void Mma(float* d, const uint32_t* a, const uint32_t* b) {
  const uint32_t lane = threadIdx.x % 32;
  Columns* warp = own->columns[threadIdx.x / 32];
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
  const uint32_t t = threadIdx.x % 4;
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
      std::memcpy(&other[k], shared + (at ^ (at >> 7 & 7) << 4), 2);
    }
    for (uint32_t r = 0; r < 2; r++) {
      float& sum = d[i / 2 * 4 + 2 * r + i % 2];
      sum = moep_step(&moep_step_sm90, row[r], other, sum);
    }
  }
  SyncWarp();
}

void WgmmaWait(size_t pending) {
  while (groups.size() > pending) {
    for (const Product& p : groups.front()) Multiply(p.d, p.n, p.a.word, p.b);
    groups.pop_front();
  }
}

}  // namespace emulation
