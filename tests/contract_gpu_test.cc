/* The arithmetic under the contract on bits: what this GPU computes, the host
 * computes with the same source. */

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/contract_probe.h"
#include "tests/gpu_support.h"

namespace {

/* ---- scalars, by hashes ---- */

struct Probe {
  enum moep_probe probe;
  const char* name;
  uint32_t log2;
  uint32_t (*value)(uint64_t index); /* on the host */
};

/* Unpacking is compared with the code table, not with itself. */
uint32_t unpacked_by_table(uint64_t word) {
  static const std::vector<uint16_t> table = [] {
    std::vector<uint16_t> codes(16);
    for (uint32_t code = 0; code < 16; code++) {
      codes[code] = moep_bf16_from_float(moep_e2m1_to_float(code) * 0x1p-126f);
    }
    return codes;
  }();
  uint64_t pair[4];
  for (uint32_t i = 0; i < 4; i++) {
    pair[i] = table[word >> 4 * i & 15] |
              static_cast<uint64_t>(table[word >> (4 * i + 16) & 15]) << 16;
  }
  return static_cast<uint32_t>(moep_probe_mix(pair[0] | pair[1] << 32) +
                               3 * moep_probe_mix(pair[2] | pair[3] << 32));
}

template <moep_probe probe>
uint32_t host_value(uint64_t index) {
  if (probe == moep_probe_unpack_e2m1) return unpacked_by_table(index);
  return moep_probe_value(probe, index);
}

template <moep_probe probe>
uint64_t host_hash(uint64_t begin, uint32_t indexes) {
  uint64_t sum = 0;
  for (uint64_t i = begin; i < begin + indexes; i++) {
    sum += moep_probe_term(i, host_value<probe>(i));
  }
  return sum;
}

using HostHash = uint64_t (*)(uint64_t begin, uint32_t indexes);

constexpr Probe kProbes[] = {
#define PROBE(name, log2) \
  {moep_probe_##name, #name, log2, host_value<moep_probe_##name>},
    MOEP_PROBE_MAP(PROBE)
#undef PROBE
};

constexpr HostHash kHostHash[] = {
#define HOST_HASH(name, log2) host_hash<moep_probe_##name>,
    MOEP_PROBE_MAP(HOST_HASH)
#undef HOST_HASH
};

std::vector<uint64_t> host_hashes(const Probe& probe, uint32_t blocks,
                                  uint32_t indexes) {
  std::vector<uint64_t> hashes(blocks);
  std::atomic<uint32_t> next{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < std::thread::hardware_concurrency(); i++) {
    threads.emplace_back([&] {
      for (uint32_t block = next++; block < blocks; block = next++) {
        hashes[block] = kHostHash[probe.probe](
            static_cast<uint64_t>(block) * MOEP_PROBE_BLOCK, indexes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return hashes;
}

/* The first index of a block whose values differ, in words. */
std::string first_difference(const Probe& probe, uint64_t begin,
                             uint32_t indexes) {
  std::vector<uint32_t> values(indexes);
  const cudaError_t error =
      moep_probe_values(probe.probe, begin, indexes, values.data());
  if (error != cudaSuccess) return cudaGetErrorString(error);
  for (uint32_t i = 0; i < indexes; i++) {
    const uint32_t host = probe.value(begin + i);
    if (host == values[i]) continue;
    char text[120];
    std::snprintf(text, sizeof(text), "%s(0x%llX): GPU 0x%08X, host 0x%08X",
                  probe.name, static_cast<unsigned long long>(begin + i),
                  values[i], host);
    return text;
  }
  return "hashes differ, values do not";
}

class ContractScalar : public testing::TestWithParam<Probe> {};

TEST_P(ContractScalar, HasTheHostsBits) {
  MOEP_NEEDS_SM90();
  const Probe& probe = GetParam();
  const uint64_t total = uint64_t{1} << probe.log2;
  const uint32_t indexes = static_cast<uint32_t>(
      total < MOEP_PROBE_BLOCK ? total : uint64_t{MOEP_PROBE_BLOCK});
  const uint32_t blocks = static_cast<uint32_t>(total / indexes);
  std::vector<uint64_t> gpu(blocks);
  ASSERT_CUDA(moep_probe_hash(probe.probe, 0, blocks, indexes, gpu.data()));
  const std::vector<uint64_t> host = host_hashes(probe, blocks, indexes);
  for (uint32_t block = 0; block < blocks; block++) {
    ASSERT_EQ(gpu[block], host[block]) << first_difference(
        probe, static_cast<uint64_t>(block) * MOEP_PROBE_BLOCK, indexes);
  }
}

INSTANTIATE_TEST_SUITE_P(, ContractScalar, testing::ValuesIn(kProbes),
                         [](const testing::TestParamInfo<Probe>& info) {
                           return std::string(info.param.name);
                         });

/* ---- weights ---- */

TEST(ContractUnpack, EveryPairOfCodesIsThatOfTheTable) {
  for (uint32_t i = 0; i < 4; i++) {
    for (uint32_t codes = 0; codes < 256; codes++) {
      for (uint32_t filler : {0u, 0xFFFFFFFFu, 0x89ABCDEFu}) {
        const uint32_t keep = ~(0x000F000Fu << 4 * i);
        const uint32_t word = (filler & keep) | (codes & 15) << 4 * i |
                              (codes >> 4) << (4 * i + 16);
        ASSERT_EQ(moep_probe_value(moep_probe_unpack_e2m1, word),
                  unpacked_by_table(word))
            << std::hex << word;
      }
    }
  }
}

TEST(ContractProducts, ArePackedExactlyAndAsOnTheHost) {
  MOEP_NEEDS_SM90();
  static moep_probe_product_table gpu;
  ASSERT_CUDA(moep_probe_products(&gpu));
  for (uint32_t w = 0; w < 16; w++) {
    for (uint32_t s = 0; s < 127; s++) {
      const float product = moep_e2m1_to_float(w) * moep_block_scale(s);
      const uint16_t bits = moep_bf16_from_float(product);
      ASSERT_EQ(static_cast<double>(moep_bf16_to_float(bits)),
                static_cast<double>(moep_e2m1_to_float(w)) *
                    static_cast<double>(moep_e4m3_to_float(s)) * 0x1p-26)
          << "code " << w << ", scale " << s << ": not exact";
      ASSERT_EQ(gpu.plain_mul[w][s], bits) << "code " << w << ", scale " << s;
      ASSERT_EQ(gpu.plain_fma[w][s], bits) << "code " << w << ", scale " << s;
      ASSERT_EQ(gpu.unpacked_mul[w][s], bits)
          << "code " << w << ", scale " << s;
      ASSERT_EQ(gpu.unpacked_fma[w][s], bits)
          << "code " << w << ", scale " << s;
    }
  }
}

/* ---- the tensor core ---- */

/* The records of a case file. */
template <typename Record>
std::vector<Record> records(const char* name) {
  const std::vector<uint8_t> bytes = gpu_case_read(name);
  EXPECT_FALSE(bytes.empty()) << name << " is missing";
  EXPECT_EQ(bytes.size() % sizeof(Record), 0u) << name;
  std::vector<Record> read(bytes.size() / sizeof(Record));
  if (!read.empty()) {
    std::memcpy(read.data(), bytes.data(), read.size() * sizeof(Record));
  }
  return read;
}

class ContractMma : public testing::TestWithParam<moep_probe_order> {};

TEST_P(ContractMma, SingleStepsAreThoseOfTheFile) {
  MOEP_NEEDS_SM90();
  const auto steps = records<moep_probe_step>("mma_step_sm90.bin");
  ASSERT_EQ(steps.size(), 5632u);
  std::vector<float> d(steps.size() * 128);
  ASSERT_CUDA(moep_probe_steps(
      steps.data(), static_cast<uint32_t>(steps.size()), GetParam(), d.data()));
  for (size_t i = 0; i < d.size(); i++) {
    ASSERT_EQ(moep_float_bits(d[i]), moep_float_bits(steps[i / 128].d))
        << "step " << i / 128 << ", output " << i % 128;
  }
}

TEST_P(ContractMma, ChainsAreThoseOfTheFile) {
  MOEP_NEEDS_SM90();
  const auto chains = records<moep_probe_chain>("mma_chain_sm90.bin");
  ASSERT_EQ(chains.size(), 4u);
  std::vector<float> d(chains.size() * 512);
  ASSERT_CUDA(moep_probe_chains(chains.data(),
                                static_cast<uint32_t>(chains.size()),
                                GetParam(), d.data()));
  for (size_t i = 0; i < d.size(); i++) {
    const float expected = chains[i / 512].d[i % 512 / 8][i % 8];
    ASSERT_EQ(moep_float_bits(d[i]), moep_float_bits(expected))
        << "chain " << i / 512 << ", output " << i % 512;
  }
}

std::string OrderName(const testing::TestParamInfo<moep_probe_order>& info) {
  static const char* const names[] = {"Natural", "Ring"};
  return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(, ContractMma,
                         testing::Values(moep_probe_natural, moep_probe_ring),
                         OrderName);

/* ---- copies ---- */

TEST(ContractPolicy, TheConstantIsWhatCreatepolicyMakes) {
  MOEP_NEEDS_SM90();
  uint64_t policies[2] = {};
  ASSERT_CUDA(moep_probe_policies(policies));
  EXPECT_NE(policies[1], 0u);
  EXPECT_EQ(policies[0], policies[1]);
}

}  // namespace
