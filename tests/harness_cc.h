// The harness with owners: a site that closes itself, results that free
// themselves, and options by name.

#ifndef MOEPLAN_TESTS_HARNESS_CC_H_
#define MOEPLAN_TESTS_HARNESS_CC_H_

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/harness.h"

namespace moeplan_test {

struct ResultDeleter {
  void operator()(harness_result* result) const {
    harness_result_free(result);
    delete result;
  }
};
using Result = std::unique_ptr<harness_result, ResultDeleter>;

class Options {
 public:
  Options() : options_(MOEPLAN_OPTIONS_INIT) {}
  Options& Recipe(moeplan_recipe recipe) {
    options_.recipe = recipe;
    return *this;
  }
  Options& Tile(const char* tile) {
    options_.tile = tile;
    return *this;
  }
  Options& NoGrouped() {
    options_.no_grouped = true;
    return *this;
  }
  Options& RowBatchMax(uint32_t cap) {
    options_.row_batch_max = cap;
    return *this;
  }
  Options& HostDispatch() {
    options_.host_dispatch = true;
    return *this;
  }
  Options& SmLimit(uint32_t threads) {
    options_.sm_limit = threads;
    return *this;
  }
  Options& Float32() {
    options_.y_type = moeplan_dtype_f32;
    return *this;
  }
  operator moeplan_options() const { return options_; }

 private:
  moeplan_options options_;
};

class Site {
 public:
  explicit Site(const harness& h) : harness_(new harness(h)) {
    harness_open(harness_.get());
  }
  // One rank of a whole site, which outlives it.
  Site(const Site& whole, uint32_t rank, uint32_t ranks)
      : harness_(new harness()) {
    harness_open_rank(harness_.get(), whole.harness_.get(), rank, ranks);
  }
  ~Site() { harness_close(harness_.get()); }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  harness* get() { return harness_.get(); }
  std::string log() const { return harness_->log; }
  uint32_t topk() const { return harness_->config.num_experts_per_tok; }

  Result Run(const harness_run& run) {
    return Result(new harness_result(harness_run_plan(harness_.get(), &run)));
  }

  // Row `row` of x in a plan of its own, with accumulators.
  const harness_result* Alone(uint32_t row) {
    Result& result = alone_[row];
    if (result == nullptr) result = Run(harness_rows(row, 1));
    return result.get();
  }

 private:
  std::unique_ptr<harness> harness_;
  std::map<uint32_t, Result> alone_;
};

}  // namespace moeplan_test

#endif  // MOEPLAN_TESTS_HARNESS_CC_H_
