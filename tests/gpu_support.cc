#include "tests/gpu_support.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

const char* gpu_reason_to_skip(int sm) {
  static char reason[160];
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError(); /* not the next call's fault */
    std::snprintf(reason, sizeof(reason), "no GPU: %s",
                  error != cudaSuccess ? cudaGetErrorString(error)
                                       : "the driver shows none");
    return reason;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    return "the GPU does not tell what it is";
  }
  const int found = properties.major * 10 + properties.minor;
  if (found == sm) return nullptr;
  std::snprintf(reason, sizeof(reason),
                "the GPU is sm_%d and the contract on bits is measured on "
                "sm_%d",
                found, sm);
  return reason;
}

std::vector<uint8_t> gpu_case_read(const char* name) {
  const char* folder = std::getenv("MOEPLAN_CASES");
  const std::string path =
      std::string(folder != nullptr ? folder : "tests/cases") + "/" + name;
  std::ifstream file(path, std::ios::binary);
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

std::vector<uint16_t> gpu_random_bf16(size_t count, int center, uint64_t seed) {
  std::vector<uint16_t> numbers(count);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (uint16_t& number : numbers) {
    /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    const uint64_t bits = (state * 0x2545F4914F6CDD1Dull) >> 32;
    const int exponent = 127 + center - 12 + static_cast<int>((bits >> 8) % 25);
    number = static_cast<uint16_t>((bits & 0x80) << 8 | exponent << 7 |
                                   (bits & 0x7F));
  }
  return numbers;
}

/* ---- memory ---- */

DeviceMemory::DeviceMemory(bool on_host, size_t bytes, const void* data)
    : on_host_(on_host), bytes_(bytes) {
  const size_t size = (bytes + 255) / 256 * 256 + 256;
  if (on_host) {
    data_ = std::aligned_alloc(256, size);
  } else {
    EXPECT_EQ(cudaMalloc(&data_, size), cudaSuccess) << bytes << " bytes";
  }
  if (data != nullptr) write(data, bytes);
}

DeviceMemory::~DeviceMemory() {
  if (on_host_) {
    std::free(data_);
  } else {
    cudaFree(data_);
  }
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept {
  *this = std::move(other);
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(on_host_, other.on_host_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

void DeviceMemory::write(const void* data, size_t bytes) {
  if (on_host_) {
    std::memcpy(data_, data, bytes);
  } else {
    EXPECT_EQ(cudaMemcpy(data_, data, bytes, cudaMemcpyHostToDevice),
              cudaSuccess);
  }
}

void DeviceMemory::read(void* data, size_t bytes) const {
  if (on_host_) {
    std::memcpy(data, data_, bytes);
  } else {
    EXPECT_EQ(cudaMemcpy(data, data_, bytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
  }
}

void DeviceMemory::fill(int byte) {
  if (on_host_) {
    std::memset(data_, byte, bytes_);
  } else {
    EXPECT_EQ(cudaMemset(data_, byte, bytes_), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

/* ---- a dense site ---- */

dense_data::dense_data(const dense_shape& wanted, uint32_t wanted_rows,
                       uint64_t seed)
    : shape(wanted), rows(wanted_rows) {
  if (shape.down_pitch == 0) shape.down_pitch = shape.width;
  const size_t hidden = shape.hidden;
  gate = gpu_random_bf16(shape.width * hidden, shape.weight_center, 4 * seed);
  up = gpu_random_bf16(shape.width * hidden, shape.weight_center, 4 * seed + 1);
  down = gpu_random_bf16(hidden * shape.down_pitch, 0, 4 * seed + 2);
  x = gpu_random_bf16(rows * hidden, 0, 4 * seed + 3);
}

void dense_data::sprinkle_specials() {
  const uint16_t special[] = {0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x0001,
                              0x807F, 0x0000, 0x8000, 0x7F7F, 0xFF7F};
  const auto sprinkle = [&](std::vector<uint16_t>* tensor, size_t every) {
    for (size_t i = every / 2, n = 0; i < tensor->size(); i += every, n++) {
      (*tensor)[i] = special[n % 10];
    }
  };
  sprinkle(&gate, 8219);
  sprinkle(&up, 8087);
  sprinkle(&down, 1531);
  sprinkle(&x, 4093);
}

namespace {

void log_to_stderr(void*, enum moeplan_log_level level, const char* text) {
  if (level == moeplan_log_error) std::fprintf(stderr, "moeplan: %s\n", text);
}

DeviceMemory copy_of(bool on_host, const std::vector<uint16_t>& data) {
  return DeviceMemory(on_host, data.size() * sizeof(data[0]), data.data());
}

}  // namespace

DenseSite::DenseSite(const dense_data& data, const char* device,
                     enum moeplan_dtype y_type)
    : device_(device), y_type_(y_type), rows_(data.rows) {
  config_.kind = moeplan_site_dense;
  config_.hidden_size = data.shape.hidden;
  config_.dense_local_intermediate = data.shape.width;
  config_.swiglu_limit = data.shape.limit;
  config_.max_rows = data.rows;
  create_planner();
  if (planner_ != nullptr) create_site(data);
}

DenseSite::~DenseSite() { moeplan_planner_destroy(planner_); }

void DenseSite::create_planner() {
  moeplan_hooks hooks = MOEPLAN_HOOKS_INIT;
  hooks.log = log_to_stderr;
  EXPECT_EQ(
      moeplan_planner_create(&config_, device_.c_str(), &hooks, &planner_),
      moeplan_status_success)
      << device_;
}

void DenseSite::create_site(const dense_data& data) {
  gate_ = copy_of(on_host(), data.gate);
  up_ = copy_of(on_host(), data.up);
  down_ = copy_of(on_host(), data.down);
  x_ = copy_of(on_host(), data.x);
  y_ = DeviceMemory(on_host(), rows_ * y_row_bytes());

  moeplan_site site = MOEPLAN_SITE_INIT;
  site.dense = {gate_.as(), up_.as(), down_.as(), data.shape.down_pitch};
  size_t bytes = 0;
  EXPECT_EQ(moeplan_site_size(planner_, &bytes), moeplan_status_success);
  blob_.resize((bytes + 7) / 8);
  EXPECT_EQ(moeplan_site_write(planner_, &site, blob_.data(), bytes),
            moeplan_status_success);
  site_ = DeviceMemory(on_host(), bytes, blob_.data());

  size_t workspace_bytes = 0;
  moeplan_options options = MOEPLAN_OPTIONS_INIT;
  if (!on_host()) options.numerics = moeplan_numerics_tiered;
  EXPECT_EQ(moeplan_workspace_size(planner_, rows_, &options, &workspace_bytes),
            moeplan_status_success);
  workspace_ = DeviceMemory(on_host(), workspace_bytes);
  binding_.site = site_.as();
  binding_.host_site = blob_.data();
  binding_.x = x_.as();
  binding_.y = y_.as();
  binding_.workspace = workspace_.as();
  binding_.workspace_bytes = workspace_bytes;
}

moeplan_options DenseSite::options() const {
  moeplan_options options = MOEPLAN_OPTIONS_INIT;
  options.y_type = y_type_;
  return options;
}

size_t DenseSite::y_row_bytes() const {
  return size_t{config_.hidden_size} * (y_type_ == moeplan_dtype_f32 ? 4 : 2);
}

void DenseSite::poison() {
  y_.fill(0xFF);
  workspace_.fill(0xFF);
}

std::vector<uint8_t> DenseSite::y() const {
  std::vector<uint8_t> bytes(y_.bytes());
  y_.read(bytes.data(), bytes.size());
  return bytes;
}

void DenseSite::run(uint32_t rows, const moeplan_options* options,
                    const moeplan_binding* binding) {
  const moeplan_options own = this->options();
  poison();
  moeplan_plan_t plan = nullptr;
  ASSERT_MOEPLAN(moeplan_plan_create(
      planner_, rows, options != nullptr ? options : &own, &plan));
  EXPECT_EQ(
      moeplan_enqueue(plan, binding != nullptr ? binding : &binding_, nullptr),
      moeplan_status_success);
  if (!on_host()) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  moeplan_plan_destroy(plan);
}

std::string dense_difference(const std::vector<uint8_t>& y,
                             const std::vector<uint8_t>& expected,
                             size_t row_bytes, uint32_t rows) {
  for (size_t i = 0; i < y.size(); i++) {
    const bool live = i < rows * row_bytes;
    const uint8_t wanted = live ? expected[i] : 0xFF;
    if (y[i] == wanted) continue;
    char text[160];
    std::snprintf(text, sizeof(text),
                  "row %zu, byte %zu of %zu: 0x%02X instead of 0x%02X (%s)",
                  i / row_bytes, i % row_bytes, row_bytes, y[i], wanted,
                  live ? "the expected row" : "must stay untouched");
    return text;
  }
  return "";
}
