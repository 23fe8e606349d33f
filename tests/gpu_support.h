/* What the tests that need a GPU share: why one cannot run here, the case
 * files, random bf16 numbers, and one dense site with its rows on a device. */

#ifndef MOEPLAN_TESTS_GPU_SUPPORT_H_
#define MOEPLAN_TESTS_GPU_SUPPORT_H_

#include <moeplan.h>

#include <string>
#include <vector>

/* Why a test cannot run: no GPU, or another one than `sm` (90 for sm_90). NULL
 * when it can. */
const char* gpu_reason_to_skip(int sm);

/* Leave the test with the reason unless an sm_90 GPU is here. */
#define MOEP_NEEDS_SM90()                                    \
  do {                                                       \
    const char* moep_reason = gpu_reason_to_skip(90);        \
    if (moep_reason != nullptr) GTEST_SKIP() << moep_reason; \
  } while (0)

#define ASSERT_CUDA(call)                                   \
  do {                                                      \
    const cudaError_t moep_error = (call);                  \
    ASSERT_EQ(moep_error, cudaSuccess)                      \
        << #call << ": " << cudaGetErrorString(moep_error); \
  } while (0)

#define ASSERT_MOEPLAN(call) ASSERT_EQ((call), moeplan_status_success) << #call

/* A file of tests/cases, or of the folder MOEPLAN_CASES. Empty if missing. */
std::vector<uint8_t> gpu_case_read(const char* name);

/* `count` bf16 numbers of both signs, exponents center - 12 .. center + 12. */
std::vector<uint16_t> gpu_random_bf16(size_t count, int center, uint64_t seed);

/* Memory of the device, or of the host, filled from `data`. */
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(bool on_host, size_t bytes, const void* data = nullptr);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  void write(const void* data, size_t bytes);
  void read(void* data, size_t bytes) const;
  void fill(int byte); /* waits */

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  bool on_host_ = true;
  size_t bytes_ = 0;
  void* data_ = nullptr;
};

struct dense_shape {
  uint32_t hidden;
  uint32_t width;
  uint32_t down_pitch; /* 0: width */
  float limit;
  int weight_center; /* of gate's and up's exponents */
};

/* The random weights and rows of a shape, the same for every device. */
struct dense_data {
  dense_data(const dense_shape& shape, uint32_t rows, uint64_t seed);
  /* Infinities, NaN, subnormals and zeros here and there in every tensor. */
  void sprinkle_specials();
  dense_shape shape;
  uint32_t rows;
  std::vector<uint16_t> gate, up, down, x;
};

/* A dense site on "host" or "cuda:0" by the public interface: planner, site,
 * workspace and y for all rows. A failure to build it is a test failure. */
class DenseSite {
 public:
  DenseSite(const dense_data& data, const char* device,
            enum moeplan_dtype y_type);
  ~DenseSite();
  DenseSite(const DenseSite&) = delete;
  DenseSite& operator=(const DenseSite&) = delete;

  moeplan_planner_t planner() const { return planner_; }
  const moeplan_config& config() const { return config_; }
  /* x, y and workspace as they were made; change a copy at will. On a GPU they
   * are enough for TIERED too. */
  const moeplan_binding& binding() const { return binding_; }
  moeplan_options options() const;

  /* All bytes of y and the workspace 0xFF: NaN wherever it is read. */
  void poison();
  /* Every byte of y. */
  std::vector<uint8_t> y() const;
  size_t y_row_bytes() const;

  /* Poison, make a plan, enqueue it, wait. NULL: the site's own. */
  void run(uint32_t rows, const moeplan_options* options = nullptr,
           const moeplan_binding* binding = nullptr);

 private:
  bool on_host() const { return device_ == "host"; }
  void create_planner();
  void create_site(const dense_data& data);

  std::string device_;
  enum moeplan_dtype y_type_;
  uint32_t rows_;
  moeplan_config config_ = MOEPLAN_CONFIG_INIT;
  moeplan_planner_t planner_ = nullptr;
  DeviceMemory gate_, up_, down_, x_, y_, site_, workspace_;
  std::vector<uint64_t> blob_; /* the site in host memory */
  moeplan_binding binding_ = MOEPLAN_BINDING_INIT;
};

/* Empty when the first `rows` rows of y are those of `expected` and all later
 * bytes still 0xFF; else which byte of which row differs. */
std::string dense_difference(const std::vector<uint8_t>& y,
                             const std::vector<uint8_t>& expected,
                             size_t row_bytes, uint32_t rows);

#endif /* MOEPLAN_TESTS_GPU_SUPPORT_H_ */
