#include "tests/gpu_site.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/gpu_site_run.h"

namespace moeplan_test {

const char* routed_gpu_reason_to_skip() {
  int count = 0;
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  return found ? nullptr : gpu_reason_to_skip(90);
}

const char* gpu_way_name(GpuWay way) {
  static const char* const names[] = {"enqueue", "graph", "child", "capture",
                                      "tap"};
  return names[static_cast<int>(way)];
}

void GpuSite::Log(void* context, moeplan_log_level level, const char* text) {
  if (level != moeplan_log_error) return;
  static_cast<GpuSite*>(context)->log_ += std::string(text) + "\n";
}

GpuSite::GpuSite(Site& host)
    : host_(host), host_bits_(gpu_reason_to_skip(90) == nullptr) {
  moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  hooks.context = this;
  hooks.log = Log;
  EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  EXPECT_MOEPLAN(
      moeplan_planner_create(&parts().config, "cuda:0", &hooks, &planner_))
      << log_ << name();
  if (planner_ == nullptr) return;
  AddTensors();
  weights_.Upload();
  WriteSite();
  WriteBlob();
}

GpuSite::~GpuSite() {
  alone_.clear();
  moeplan_planner_destroy(planner_);
  if (stream_ != nullptr) EXPECT_CUDA(cudaStreamDestroy(stream_));
}

void GpuSite::AddTensor(const void* data, size_t bytes) {
  if (data == nullptr || pieces_.count(data) != 0) return;
  pieces_[data] = weights_.AddConstant(data, bytes);
}

// From the first column of the first row to the last of the last.
size_t GpuSite::DownBytes() {
  const size_t width = parts().config.shared_local_intermediate;
  const size_t pitch = parts().site.shared.down_pitch;
  if (width == 0 || pitch == 0) return width * parts().config.hidden_size * 2;
  return ((parts().config.hidden_size - 1) * pitch + width) * 2;
}

void GpuSite::AddTensors() {
  const moeplan_config& c = parts().config;
  const moeplan_site& s = parts().site;
  const size_t hidden = c.hidden_size, experts = c.n_routed_experts;
  const size_t width_bytes = c.shared_local_intermediate * hidden * 2;
  const size_t weight_bytes = c.moe_intermediate_size * hidden / 2;
  AddTensor(s.router, experts * hidden * 2);
  AddTensor(s.router_bias, experts * sizeof(float));
  AddTensor(s.shared.gate, width_bytes);
  AddTensor(s.shared.up, width_bytes);
  AddTensor(s.shared.down, DownBytes());
  for (const moeplan_projection* p : {&s.gate, &s.up, &s.down}) {
    for (size_t e = 0; e < experts; e++) {
      AddTensor(p->weight[e], weight_bytes);
      AddTensor(p->weight_scale[e], weight_bytes / 8);
    }
  }
}

const void* GpuSite::Device(const void* data) const {
  return data == nullptr ? nullptr : weights_.device<void>(pieces_.at(data));
}

moeplan_projection GpuSite::Projection(const moeplan_projection& from,
                                       int index) {
  const uint32_t experts = parts().config.n_routed_experts;
  for (uint32_t e = 0; e < experts; e++) {
    weight_[index].push_back(Device(from.weight[e]));
    scale_[index].push_back(Device(from.weight_scale[e]));
  }
  return {weight_[index].data(), scale_[index].data(), from.weight_scale_2};
}

void GpuSite::WriteSite() {
  const moeplan_site& s = parts().site;
  site_.router = Device(s.router);
  site_.router_bias = static_cast<const float*>(Device(s.router_bias));
  site_.gate = Projection(s.gate, 0);
  site_.up = Projection(s.up, 1);
  site_.down = Projection(s.down, 2);
  site_.shared = {Device(s.shared.gate), Device(s.shared.up),
                  Device(s.shared.down), s.shared.down_pitch};
}

void GpuSite::WriteBlob() {
  size_t bytes = 0;
  EXPECT_MOEPLAN(moeplan_site_size(planner_, &bytes));
  host_blob_.resize((bytes + 7) / 8);
  EXPECT_MOEPLAN(moeplan_site_write(planner_, &site_, host_blob_.data(), bytes))
      << log_ << name();
  // A thread that has no context yet writes the same.
  std::vector<uint64_t> again(host_blob_.size());
  std::thread([&] {
    EXPECT_MOEPLAN(moeplan_site_write(planner_, &site_, again.data(), bytes))
        << log_ << name();
  }).join();
  EXPECT_EQ(again, host_blob_) << name();
  if (blob_piece_ != 0) {
    blob_.Write(blob_piece_, host_blob_.data(), bytes);
    return;
  }
  blob_piece_ = blob_.AddConstant(host_blob_.data(), bytes);
  blob_.Upload();
}

void GpuSite::MoveExpert(uint32_t e) {
  const moeplan_config& c = parts().config;
  const size_t weight_bytes =
      size_t{c.moe_intermediate_size} * c.hidden_size / 2;
  for (int i = 0; i < 3; i++) {
    for (const void** at : {&weight_[i][e], &scale_[i][e]}) {
      const size_t bytes =
          at == &weight_[i][e] ? weight_bytes : weight_bytes / 8;
      DeviceMemory to(false, bytes);
      EXPECT_CUDA(cudaMemcpy(to.as(), *at, bytes, cudaMemcpyDeviceToDevice));
      EXPECT_CUDA(cudaMemset(const_cast<void*>(*at), 0xFF, bytes));
      *at = to.as();
      moved_.push_back(std::move(to));
    }
  }
  EXPECT_CUDA(cudaDeviceSynchronize());
  WriteBlob();
}

void GpuSite::TakeExperts() {
  const moeplan_site& s = parts().site;
  const size_t weight_bytes = size_t{parts().config.moe_intermediate_size} *
                              parts().config.hidden_size / 2;
  const moeplan_projection* const projections[] = {&s.gate, &s.up, &s.down};
  for (int i = 0; i < 3; i++) {
    for (uint32_t e = 0; e < parts().config.n_routed_experts; e++) {
      const struct {
        const void* from;
        const void** to;
        size_t bytes;
      } moves[] = {
          {projections[i]->weight[e], &weight_[i][e], weight_bytes},
          {projections[i]->weight_scale[e], &scale_[i][e], weight_bytes / 8}};
      for (const auto& move : moves) {
        if ((move.from == nullptr) == (*move.to == nullptr)) continue;
        *move.to = nullptr;
        if (move.from == nullptr) continue;
        moved_.emplace_back(false, move.bytes, move.from);
        *move.to = moved_.back().as();
      }
    }
  }
  WriteBlob();
}

bool GpuSite::WeightsIntact() {
  weights_.Download();
  blob_.Download();
  return weights_.Intact() && blob_.Intact();
}

std::string GpuSite::name() {
  const moeplan_config& c = parts().config;
  char text[160];
  std::snprintf(text, sizeof(text),
                "%ux%u, %u experts, top %u, shared %u, spread %d, seed %llu",
                c.hidden_size, c.moe_intermediate_size, c.n_routed_experts,
                c.num_experts_per_tok, c.shared_local_intermediate,
                parts().spread, static_cast<unsigned long long>(parts().seed));
  return text;
}

uint32_t GpuSite::VerifyCap() {
  const uint32_t wanted = std::min(8u, 64 / host_.topk());
  const moeplan_options options = Options().Recipe(moeplan_recipe_verify);
  for (uint32_t rows = wanted; rows > 1; rows--) {
    moeplan_plan_t plan = nullptr;
    if (moeplan_plan_create(planner_, rows, &options, &plan) ==
        moeplan_status_success) {
      moeplan_plan_destroy(plan);
      return rows;
    }
  }
  return 1;
}

Result GpuSite::Run(const harness_run& run, GpuWay way) {
  GpuRun once(*this, run, way == GpuWay::kTap);
  once.Launch(way);
  return once.Read();
}

const harness_result* GpuSite::Alone(uint32_t row) {
  if (host_bits_) return host_.Alone(row);
  Result& result = alone_[row];
  if (result == nullptr) result = Run(harness_rows(row, 1), GpuWay::kTap);
  return result.get();
}

// Whatever belongs to rows past `live` still holds the poison.
std::string GpuSite::DeadRows(const harness_run& run,
                              const harness_result& result, uint32_t live) {
  const moeplan_config& c = parts().config;
  const struct {
    const char* name;
    const void* data;
    size_t row_bytes;
  } members[] = {
      {"y", result.y, size_t{c.hidden_size} * result.y_bytes},
      {"traced ids", result.ids, size_t{c.num_experts_per_tok} * 4},
      {"traced weights", result.weights, size_t{c.num_experts_per_tok} * 4},
      {"logits", result.tap.logits, result.tap_bytes[0]},
      {"expert_up", result.tap.expert_up, result.tap_bytes[1]},
      {"expert_down", result.tap.expert_down, result.tap_bytes[2]},
      {"ffn_up", result.tap.ffn_up, result.tap_bytes[3]},
      {"ffn_down", result.tap.ffn_down, result.tap_bytes[4]},
  };
  for (const auto& member : members) {
    const auto* bytes = static_cast<const uint8_t*>(member.data);
    for (size_t i = live * member.row_bytes;
         bytes != nullptr && i < run.rows * member.row_bytes; i++) {
      if (bytes[i] == run.poison) continue;
      return std::string(member.name) + " of dead row " +
             std::to_string(i / member.row_bytes) + " was written";
    }
  }
  return "";
}

std::string GpuSite::Difference(const harness_run& run,
                                const harness_result& result,
                                const harness_result* expected) {
  const std::string where = " (" + std::to_string(run.rows) + " rows from " +
                            std::to_string(run.first_row) + ", live_rows " +
                            std::to_string(run.live_rows) + "; " + name() + ")";
  if (result.status != moeplan_status_success) {
    return moeplan_status_name(result.status) + where + log_;
  }
  if (!result.guards_intact) return "an input or a guard was written" + where;
  const uint32_t live =
      run.live_rows == -1 ? run.rows : moep_live_rows(&run.live_rows, run.rows);
  for (uint32_t r = 0; r < live; r++) {
    const harness_result* other =
        expected != nullptr ? expected : Alone(run.first_row + r);
    const char* difference = harness_row_difference(
        &parts(), &result, r, other, expected != nullptr ? r : 0);
    if (difference == nullptr) continue;
    return "row " + std::to_string(r) + " differs in " + difference + where;
  }
  const std::string dead = DeadRows(run, result, live);
  if (!dead.empty()) return dead + where;
  if (result.traced != live) {
    return "traced " + std::to_string(result.traced) + " rows" + where;
  }
  return "";
}

}  // namespace moeplan_test
