// mma.sync and wgmma by the host's model of a step.

#include "tests/emulation/block.h"

extern "C" {
#include "kernels/host/step.h"
}

namespace emulation {
namespace {

uint16_t Half(uint32_t word, uint32_t which) {
  return static_cast<uint16_t>(word >> (16 * which));
}

void BringRows(const uint32_t* a) {
  std::memcpy(Own().operands[WarpIndex()][LaneIndex()].word, a,
              sizeof(Operands));
}

// Rows g and g + 8 of a warp's a, of which each lane has brought its part.
void TakeRows(uint16_t (&row)[2][16]) {
  const Operands* warp = Own().operands[WarpIndex()];
  for (uint32_t r = 0; r < 2; r++) {
    for (uint32_t k = 0; k < 16; k++) {
      const uint32_t lane = LaneIndex() / 4 * 4 + k % 8 / 2;
      row[r][k] = Half(warp[lane].word[r + k / 8 * 2], k % 2);
    }
  }
}

void BringColumns(const uint32_t* b) {
  std::memcpy(Own().columns[WarpIndex()][LaneIndex()].word, b, sizeof(Columns));
}

// Columns 2t and 2t + 1 of a warp's b.
void TakeColumns(uint16_t (&column)[2][16]) {
  const Columns* warp = Own().columns[WarpIndex()];
  for (uint32_t c = 0; c < 2; c++) {
    for (uint32_t k = 0; k < 16; k++) {
      const uint32_t lane = (LaneIndex() % 4 * 2 + c) * 4 + k % 8 / 2;
      column[c][k] = Half(warp[lane].word[k / 8], k % 2);
    }
  }
}

// k = 0 .. 15 of this lane's column i of b, a tile in shared memory.
void TakeColumn(uint64_t b, uint32_t i, uint16_t (&column)[16]) {
  const uint32_t tile = static_cast<uint32_t>(b & 0x3FFF) << 4;
  const uint32_t index = i / 2 * 8 + LaneIndex() % 4 * 2 + i % 2;
  for (uint32_t k = 0; k < 16; k++) {
    const uint32_t at = tile + index * 128 + k * 2;
    std::memcpy(&column[k], Self().shared + (at ^ (at >> 7 & 7) << 4), 2);
  }
}

uint32_t SumOfColumns(uint64_t b, uint32_t n) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < n / 4; i++) {
    uint16_t column[16];
    TakeColumn(b, i, column);
    for (const uint16_t value : column) sum = sum * 31 + value;
  }
  return sum;
}

void Multiply(const Product& p) {
  uint16_t row[2][16];
  {
    Unseen unseen;
    BringRows(p.a.word);
    MeetWarp();
    TakeRows(row);
    MeetWarp();
  }
  for (uint32_t i = 0; i < p.n / 4; i++) {
    uint16_t column[16];
    TakeColumn(p.b, i, column);
    for (uint32_t r = 0; r < 2; r++) {
      float& sum = p.d[i / 2 * 4 + 2 * r + i % 2];
      sum = moep_step(&moep_step_sm90, row[r], column, sum);
    }
  }
  Require(SumOfColumns(p.b, p.n) == p.sum, "a tile that changes under a wgmma");
}

}  // namespace

void Mma(float* d, const uint32_t* a, const uint32_t* b) {
  uint16_t row[2][16], column[2][16];
  {
    Unseen unseen;
    BringRows(a);
    BringColumns(b);
    MeetWarp();
    TakeRows(row);
    TakeColumns(column);
    MeetWarp();
  }
  for (uint32_t i = 0; i < 4; i++) {
    d[i] = moep_step(&moep_step_sm90, row[i / 2], column[i % 2], d[i]);
  }
}

void Wgmma(float* d, uint32_t n, const uint32_t* a, uint64_t b) {
  Require(b >> 62 == 1 && (b >> 32 & 0x3FFF) == 64, "a tile's descriptor");
  Mine().products.push_back(
      {d, n, {{a[0], a[1], a[2], a[3]}}, b, SumOfColumns(b, n)});
}

void WgmmaCommit() {
  State& mine = Mine();
  mine.groups.push_back(mine.products);
  mine.products.clear();
}

void WgmmaWait(size_t pending) {
  auto& groups = Mine().groups;
  while (groups.size() > pending) {
    for (const Product& p : groups.front()) Multiply(p);
    groups.pop_front();
  }
}

}  // namespace emulation
