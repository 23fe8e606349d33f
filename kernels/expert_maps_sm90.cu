// The tensor maps of an expert's weights, for grouped_nvfp4_sm90.cu.

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/tensor_map.cuh"

namespace {

static_assert(alignof(CUtensorMap) == MOEP_MAP_ALIGNMENT, "a map's alignment");
static_assert(moep::kMapBoxBytes == MOEP_MAP_BOX_BYTES, "a box");
static_assert(sizeof(CUtensorMap) == sizeof(moep_tensor_map), "a map's bytes");

// weight: u8 [rows, k / 2].
cudaError_t make_map(const moep_nvfp4& matrix, uint32_t rows, uint32_t k,
                     moep_tensor_map* map_out) {
  const moep::MappedMatrix bytes = {
      matrix.weight, CU_TENSOR_MAP_DATA_TYPE_UINT8,     1, rows, k / 2,
      k / 2,         CU_TENSOR_MAP_L2_PROMOTION_L2_128B};
  CUtensorMap map;
  const cudaError_t error =
      moep::tensor_map_encode(&map, bytes, MOEP_MAP_BOX_ROWS);
  if (error == cudaSuccess) memcpy(map_out, &map, sizeof(map));
  return error;
}

}  // namespace

cudaError_t moep_expert_maps_sm90(const struct moep_expert* expert,
                                  uint32_t hidden, uint32_t inter,
                                  struct moep_expert_maps* maps_out) {
  cudaError_t error = make_map(expert->gate, inter, hidden, &maps_out->gate);
  if (error == cudaSuccess) {
    error = make_map(expert->up, inter, hidden, &maps_out->up);
  }
  if (error == cudaSuccess) {
    error = make_map(expert->down, hidden, inter, &maps_out->down);
  }
  return error;
}
