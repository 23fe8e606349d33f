// One plan of a GpuSite with its buffers: what GpuSite::Run does in one go, step
// by step.

#ifndef MOEPLAN_TESTS_GPU_SITE_RUN_H_
#define MOEPLAN_TESTS_GPU_SITE_RUN_H_

#include "tests/gpu_site.h"

namespace moeplan_test {

// A plan and its buffers, as the harness_run asks: `options` and the routing it
// points to must outlive this. Any live_rows but -1 is stored as it is; dead
// rows of x hold the poison.
class GpuRun {
 public:
  GpuRun(GpuSite& site, const harness_run& run, bool tap);
  ~GpuRun();
  GpuRun(const GpuRun&) = delete;
  GpuRun& operator=(const GpuRun&) = delete;

  moeplan_plan_t plan() const { return plan_; }
  const moeplan_binding& binding() const { return binding_; }
  const harness_run& run() const { return run_; }

  void Launch(GpuWay way);
  void SetLiveRows(int32_t live);  // of a run that has live rows
  void Reset() { memory_.Upload(); }
  // What the device memory holds now; waits.
  Result Read();

 private:
  void AddRows();
  void AddTap();
  void Bind(size_t workspace_bytes);
  moeplan_status LaunchGraph();
  moeplan_status LaunchChild();
  moeplan_status LaunchCapture();
  moeplan_status LaunchTap();
  void LaunchCallers(cudaGraph_t graph);
  uint32_t live() const;

  GpuSite& site_;
  harness_run run_;
  bool tap_;
  moeplan_status status_ = moeplan_status_success;
  moeplan_plan_t plan_ = nullptr;
  GpuMemory memory_;
  size_t x_ = 0, y_ = 0, ids_ = 0, weights_ = 0, cursor_ = 0, live_ = 0;
  size_t workspace_ = 0, external_ids_ = 0, external_weights_ = 0;
  size_t taps_[5] = {}, tap_bytes_[5] = {};
  uint32_t y_bytes_ = 2;
  moeplan_binding binding_ = MOEPLAN_BINDING_INIT;
};

}  // namespace moeplan_test

#endif  // MOEPLAN_TESTS_GPU_SITE_RUN_H_
