// Expert and tensor parallel on one GPU, its ranks one after another: each rank
// gives the host device's bits, and the float32 sum is the whole site's y within
// rounding.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "tests/gpu_site_run.h"
#include "tests/ranks.h"

namespace moeplan_test {

namespace {

harness_run RowsOf(uint32_t rows, const moeplan_options* options) {
  harness_run run = harness_rows(1, rows);
  run.options = options;
  return run;
}

// Each rank alone on the GPU by every way of running, against the same rank on
// the host device; then the sum against the whole site on the GPU.
void ExpectRanks(const harness& h, uint32_t ranks,
                 std::initializer_list<uint32_t> row_counts) {
  Site host(h);
  GpuSite whole(host);
  std::vector<std::unique_ptr<Site>> hosts;
  std::vector<std::unique_ptr<GpuSite>> gpus;
  for (uint32_t rank = 0; rank < ranks; rank++) {
    hosts.push_back(std::make_unique<Site>(host, rank, ranks));
    gpus.push_back(std::make_unique<GpuSite>(*hosts.back()));
  }
  for (uint32_t rows : row_counts) {
    const moeplan_options options = Options().NoGrouped().Float32();
    const harness_run run = RowsOf(rows, &options);
    const Result full = whole.Run(run, GpuWay::kTap);
    ASSERT_EQ(full->status, moeplan_status_success) << whole.log();
    for (GpuWay way : {GpuWay::kTap, GpuWay::kGraph, GpuWay::kCapture}) {
      std::vector<Result> parts;
      for (uint32_t rank = 0; rank < ranks; rank++) {
        const Result expected = hosts[rank]->Run(run);
        parts.push_back(gpus[rank]->Run(run, way));
        ASSERT_EQ(gpus[rank]->Difference(run, *parts.back(), expected.get()),
                  "")
            << "rank " << rank << " of " << ranks << ", " << gpu_way_name(way);
      }
      ASSERT_EQ(SumDifference(*host.get(), run, *full, parts), "")
          << ranks << " ranks, " << rows << " rows";
    }
  }
  for (const auto& gpu : gpus) EXPECT_TRUE(gpu->WeightsIntact());
}

/* ---- routed sites ---- */

TEST(RanksGpu, SumIsTheWholeSite) {
  MOEP_NEEDS_SM90();
  for (uint32_t ranks : {1u, 2u, 4u, 8u}) {
    ExpectRanks(harness_of(harness_config(512, 256, 24, 8, 256), 41, 24), ranks,
                {1, 2, 8, 20});
    if (HasFatalFailure()) return;
  }
}

TEST(RanksGpu, SumIsTheWholeSiteOfOddWidths) {
  MOEP_NEEDS_SM90();
  for (uint32_t ranks : {2u, 8u}) {
    ExpectRanks(harness_of(harness_config(528, 208, 30, 6, 112), 42, 24), ranks,
                {1, 8});
    if (HasFatalFailure()) return;
  }
}

// 6 experts and 3 shards on 8 ranks.
TEST(RanksGpu, RanksMayBeEmpty) {
  MOEP_NEEDS_SM90();
  ExpectRanks(harness_of(harness_config(256, 64, 6, 4, 48), 43, 24), 8,
              {1, 8, 20});
}

TEST(RanksGpu, SumIsTheWholeSiteWithoutASharedExpert) {
  MOEP_NEEDS_SM90();
  ExpectRanks(harness_of(harness_config(256, 208, 288, 8, 0), 44, 24), 4,
              {1, 8});
}

/* ---- moving an expert ---- */

// Two ranks swap experts by rewriting their blobs; their graphs stay.
TEST(RanksGpu, ExpertsMoveBetweenRanksUnderTheirGraphs) {
  MOEP_NEEDS_SM90();
  constexpr uint32_t kExperts = 24;
  Site host(harness_of(harness_config(256, 128, kExperts, 8, 64), 45, 24));
  Site hosts[2] = {{host, 0, 2}, {host, 1, 2}};
  GpuSite whole(host), first(hosts[0]), second(hosts[1]);
  const moeplan_options options = Options().NoGrouped().Float32();
  const harness_run run = RowsOf(8, &options);
  const Result full = whole.Run(run, GpuWay::kTap);
  GpuSite* const gpus[2] = {&first, &second};
  GpuRun runs[2] = {{first, run, false}, {second, run, false}};
  moeplan_graph_t graphs[2] = {};
  for (int i = 0; i < 2; i++) {
    ASSERT_MOEPLAN(
        moeplan_graph_create(runs[i].plan(), &runs[i].binding(), &graphs[i]));
  }
  for (uint32_t e = 0; e < kExperts / 2; e++) {
    harness_move_expert(hosts[0].get(), hosts[1].get(), e);
    harness_move_expert(hosts[1].get(), hosts[0].get(), kExperts - 1 - e);
    std::vector<Result> parts;
    for (int i = 0; i < 2; i++) {
      ASSERT_MOEPLAN(harness_write_site(hosts[i].get()));
      gpus[i]->TakeExperts();
      runs[i].Reset();
      ASSERT_MOEPLAN(moeplan_graph_replay(graphs[i], gpus[i]->stream()));
      parts.push_back(runs[i].Read());
      const Result expected = hosts[i].Run(run);
      ASSERT_EQ(gpus[i]->Difference(run, *parts.back(), expected.get()), "")
          << "rank " << i << ", expert " << e;
    }
    ASSERT_EQ(SumDifference(*host.get(), run, *full, parts), "")
        << "expert " << e;
  }
  for (moeplan_graph_t graph : graphs) moeplan_graph_destroy(graph);
}

/* ---- dense sites ---- */

// One rank's columns of the whole, with the whole's width as pitch.
dense_data ShardOf(const dense_data& whole, uint32_t rank, uint32_t ranks) {
  const dense_shape& shape = whole.shape;
  const uint32_t units = shape.width / 16;
  const size_t begin = 16 * size_t{harness_rank_begin(units, rank, ranks)};
  const size_t end = 16 * size_t{harness_rank_begin(units, rank + 1, ranks)};
  const auto rows = [&](const std::vector<uint16_t>& from) {
    return std::vector<uint16_t>(
        from.begin() + static_cast<ptrdiff_t>(begin * shape.hidden),
        from.begin() + static_cast<ptrdiff_t>(end * shape.hidden));
  };
  dense_data shard = whole;
  shard.shape.width = static_cast<uint32_t>(end - begin);
  shard.shape.down_pitch = shape.width;
  shard.gate = rows(whole.gate);
  shard.up = rows(whole.up);
  shard.down.assign(whole.down.begin() + static_cast<ptrdiff_t>(begin),
                    whole.down.end());
  return shard;
}

std::vector<float> Floats(const std::vector<uint8_t>& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

TEST(RanksGpu, SumIsTheDenseSite) {
  MOEP_NEEDS_SM90();
  constexpr uint32_t kRows = 20, kHidden = 512, kWidth = 4240;
  const dense_data data({kHidden, kWidth, 0, 10.0f, -8}, kRows, 46);
  DenseSite whole(data, "cuda:0", moeplan_dtype_f32);
  const moeplan_ffn ffn = {data.gate.data(), data.up.data(), data.down.data(),
                           0};
  std::vector<double> terms;
  for (size_t r = 0; r < kRows; r++) {
    AppendFfnTerms(ffn, kHidden, kWidth, 10.0f, &data.x[r * kHidden], &terms);
  }
  for (uint32_t rows : {1u, 8u, kRows}) {
    whole.run(rows);
    const std::vector<float> y = Floats(whole.y());
    for (uint32_t ranks : {2u, 4u, 8u}) {
      std::vector<float> sum(rows * kHidden, 0.0f);
      for (uint32_t rank = 0; rank < ranks; rank++) {
        const dense_data shard = ShardOf(data, rank, ranks);
        DenseSite gpu(shard, "cuda:0", moeplan_dtype_f32);
        DenseSite host(shard, "host", moeplan_dtype_f32);
        gpu.run(rows);
        host.run(rows);
        ASSERT_EQ(dense_difference(gpu.y(), host.y(), gpu.y_row_bytes(), rows),
                  "")
            << "rank " << rank << " of " << ranks;
        const std::vector<float> part = Floats(gpu.y());
        for (size_t i = 0; i < sum.size(); i++) sum[i] += part[i];
      }
      for (size_t i = 0; i < sum.size(); i++) {
        ASSERT_LE(std::fabs(double{sum[i]} - y[i]),
                  RankBound(0, ranks, kWidth, 0.0, terms[i]))
            << ranks << " ranks, " << rows << " rows, element " << i;
      }
    }
  }
}

}  // namespace

}  // namespace moeplan_test
