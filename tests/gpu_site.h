// A routed site of the harness on the GPU: its tensors uploaded, its plans run
// between guards on poisoned memory, and a harness_result of each run, so that
// rows of the GPU and of the host are compared by the same function.

#ifndef MOEPLAN_TESTS_GPU_SITE_H_
#define MOEPLAN_TESTS_GPU_SITE_H_

#include <map>
#include <string>
#include <vector>

#include "tests/gpu_memory.h"
#include "tests/harness_cc.h"

/* Leave the test with the reason unless a GPU is here, of any kind. */
#define MOEP_NEEDS_GPU()                                                 \
  do {                                                                   \
    const char* moep_reason = moeplan_test::routed_gpu_reason_to_skip(); \
    if (moep_reason != nullptr) GTEST_SKIP() << moep_reason;             \
  } while (0)

namespace moeplan_test {

// Why no routed plan can run here, or NULL.
const char* routed_gpu_reason_to_skip();

enum class GpuWay {
  kEnqueue,
  kGraph,    // created, replayed twice
  kChild,    // a node of the caller's graph
  kCapture,  // enqueued into the caller's capture
  kTap,      // enqueue, with accumulators
};

const char* gpu_way_name(GpuWay way);

class GpuSite {
 public:
  // Upload what the host site holds now. A failure is a test failure.
  explicit GpuSite(Site& host);
  ~GpuSite();
  GpuSite(const GpuSite&) = delete;
  GpuSite& operator=(const GpuSite&) = delete;

  Site& host() { return host_; }
  const harness& parts() { return *host_.get(); }
  moeplan_planner_t planner() const { return planner_; }
  cudaStream_t stream() const { return stream_; }
  const void* blob() const { return blob_.device<void>(blob_piece_); }
  const void* host_blob() const { return host_blob_.data(); }
  std::string log() const { return log_; }
  // "512x256, 16 experts, top 8, shared 64, spread 2, seed 3".
  std::string name();

  // Rows that a verify plan takes.
  uint32_t VerifyCap();

  Result Run(const harness_run& run, GpuWay way);

  // Row `row` of x alone, with accumulators: from the host on sm_90, whose bits
  // it gives, else from this GPU's decode plan.
  const harness_result* Alone(uint32_t row);

  // "" when `result` is what `run` must give: status, guards, the trace, each
  // live row that of Alone (or the same row of `expected`), no other touched.
  std::string Difference(const harness_run& run, const harness_result& result,
                         const harness_result* expected = nullptr);

  // Give expert `e` other addresses: its bytes move, the old ones become NaN,
  // the blob is written again where it is. Not with distinct_experts.
  void MoveExpert(uint32_t e);

  // Experts of the host site came or went: upload those that came, write the
  // blob again where it is. Their number is config.local_experts still.
  void TakeExperts();

  bool WeightsIntact();

 private:
  static void Log(void* context, moeplan_log_level level, const char* text);
  void AddTensor(const void* data, size_t bytes);
  size_t DownBytes();
  void AddTensors();
  const void* Device(const void* data) const;
  moeplan_projection Projection(const moeplan_projection& from, int index);
  void WriteSite();
  void WriteBlob();
  std::string DeadRows(const harness_run& run, const harness_result& result,
                       uint32_t live);

  Site& host_;
  std::string log_;
  cudaStream_t stream_ = nullptr;
  moeplan_planner_t planner_ = nullptr;
  GpuMemory weights_, blob_;
  std::map<const void*, size_t> pieces_;  // by host address
  std::vector<const void*> weight_[3], scale_[3];
  std::vector<DeviceMemory> moved_;
  moeplan_site site_ = MOEPLAN_SITE_INIT;
  std::vector<uint64_t> host_blob_;
  size_t blob_piece_ = 0;
  bool host_bits_ = false;
  std::map<uint32_t, Result> alone_;
};

}  // namespace moeplan_test

#endif  // MOEPLAN_TESTS_GPU_SITE_H_
