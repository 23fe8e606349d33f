// The tensor maps of the experts' weights, for grouped_nvfp4_sm90.cu.

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/tensor_map.cuh"

namespace {

// weight: u8 [rows, k / 2].
cudaError_t make_map(const moep_nvfp4& matrix, uint32_t rows, uint32_t k,
                     moep_tensor_map* map_out) {
  const moep::MappedMatrix bytes = {
      matrix.weight, CU_TENSOR_MAP_DATA_TYPE_UINT8,     1, rows, k / 2,
      k / 2,         CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
  CUtensorMap map;
  static_assert(sizeof(map) == sizeof(*map_out), "a map's bytes");
  const cudaError_t error = moep::tensor_map_encode(&map, bytes, 128);
  if (error == cudaSuccess) memcpy(map_out, &map, sizeof(map));
  return error;
}

}  // namespace

cudaError_t moep_expert_maps_sm90(const struct moep_site_table* table,
                                  struct moep_expert_maps* maps_out) {
  cudaError_t error = cudaSuccess;
  for (uint32_t e = 0; e < table->expert_count && error == cudaSuccess; e++) {
    const moep_expert& expert = table->experts[e];
    moep_expert_maps* maps = maps_out + e;
    memset(maps, 0, sizeof(*maps));
    if (expert.gate.weight == nullptr) continue;
    error = make_map(expert.gate, table->inter, table->hidden, &maps->gate);
    if (error != cudaSuccess) break;
    error = make_map(expert.up, table->inter, table->hidden, &maps->up);
    if (error != cudaSuccess) break;
    error = make_map(expert.down, table->hidden, table->inter, &maps->down);
  }
  return error;
}
