/* Stage 3: the caller's addresses, checked and laid out for the kernels. */

#include "lib/site.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/scalar.h"
#include "lib/check.h"

enum { CUDA_ALIGNMENT = 16 };

_Static_assert(MOEPLAN_SITE_ALIGNMENT == MOEP_MAP_ALIGNMENT, "of the blob");

/* The device's kernels that take tiles by name read weights by tensor maps. */
uint32_t moep_site_blob_maps(const struct moeplan_planner* planner) {
  const struct moep_dims* dims = &planner->dims;
  const bool mapped = dims->kind == moeplan_site_routed && dims->tiles &&
                      !moep_device_is_host(&planner->device);
  return mapped ? moep_site_maps(dims->experts) : 0;
}

size_t moep_site_blob_bytes(const struct moeplan_planner* planner) {
  const uint32_t experts = planner->dims.experts;
  return moep_site_blob_maps(planner) != 0 ? moep_site_mapped_bytes(experts)
                                           : moep_site_plain_bytes(experts);
}

/* What an address must be a multiple of; `element` is enough on the host. */
static size_t alignment_of(const struct moeplan_planner* planner,
                           size_t element) {
  return moep_device_is_host(&planner->device) ? element : CUDA_ALIGNMENT;
}

static enum moeplan_status check_address(const struct moeplan_planner* planner,
                                         const char* name, const void* address,
                                         size_t element) {
  const size_t alignment = alignment_of(planner, element);
  if (address == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use %s NULL: the site needs it", name);
  }
  if ((uintptr_t)address % alignment != 0) {
    return MOEP_REFUSE(&planner->hooks, misaligned_pointer,
                       "cannot use %s %p: must be a multiple of %zu bytes",
                       name, address, alignment);
  }
  return moeplan_status_success;
}

/* One bf16 FFN, wanted or not. */
static enum moeplan_status read_ffn(const struct moeplan_planner* planner,
                                    const char* name, bool wanted,
                                    const struct moeplan_ffn* ffn,
                                    struct moep_ffn* ffn_out) {
  const uint32_t width = planner->dims.width;
  if (!wanted) {
    if (ffn->gate == NULL && ffn->up == NULL && ffn->down == NULL) {
      return moeplan_status_success;
    }
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use %s weights: the configuration has none, so "
                       "gate, up and down must be NULL",
                       name);
  }
  const struct {
    const char* name;
    const void* address;
  } parts[] = {{"gate", ffn->gate}, {"up", ffn->up}, {"down", ffn->down}};
  for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
    if (parts[i].address == NULL) {
      return MOEP_REFUSE(&planner->hooks, invalid_site,
                         "cannot use %s.%s NULL: the configuration's width "
                         "is %u",
                         name, parts[i].name, width);
    }
    char part[16];
    snprintf(part, sizeof(part), "%s.%s", name, parts[i].name);
    MOEP_TRY(check_address(planner, part, parts[i].address, 2));
  }
  const uint32_t pitch = ffn->down_pitch == 0 ? width : ffn->down_pitch;
  if (pitch < width || pitch % 8 != 0 || pitch > (uint32_t)INT32_MAX) {
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use %s.down_pitch %u: must be a multiple of 8, "
                       "at least the width %u, below 2^31",
                       name, pitch, width);
  }
  *ffn_out = (struct moep_ffn){
      .gate = ffn->gate, .up = ffn->up, .down = ffn->down, .down_pitch = pitch};
  return moeplan_status_success;
}

static enum moeplan_status read_matrix(
    const struct moeplan_planner* planner, const char* name, uint32_t expert,
    const struct moeplan_projection* projection, struct moep_nvfp4* out) {
  const void* weight = projection->weight[expert];
  const void* scale = projection->weight_scale[expert];
  const size_t alignment = alignment_of(planner, 1);
  if (scale == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use expert %u %s weight_scale NULL: must be set "
                       "where weight is",
                       expert, name);
  }
  if ((uintptr_t)weight % alignment != 0 || (uintptr_t)scale % alignment != 0) {
    return MOEP_REFUSE(&planner->hooks, misaligned_pointer,
                       "cannot use expert %u %s weight %p, weight_scale %p: "
                       "must be multiples of %zu bytes",
                       expert, name, weight, scale, alignment);
  }
  const float epilogue =
      moep_epilogue_scale(projection->weight_scale_2[expert]);
  if (!(epilogue >= 0.0f) || isinf(epilogue)) {
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use expert %u %s weight_scale_2 %g: must be "
                       "finite, 0 or more, below 2^102",
                       expert, name,
                       (double)projection->weight_scale_2[expert]);
  }
  *out = (struct moep_nvfp4){
      .weight = weight, .scale = scale, .epilogue = epilogue};
  return moeplan_status_success;
}

/* One expert; `here_out` tells whether it is on this rank. */
static enum moeplan_status read_expert(const struct moeplan_planner* planner,
                                       const struct moeplan_site* site,
                                       uint32_t expert,
                                       struct moep_expert* expert_out,
                                       bool* here_out) {
  const bool gate = site->gate.weight[expert] != NULL;
  const bool up = site->up.weight[expert] != NULL;
  const bool down = site->down.weight[expert] != NULL;
  if (gate != up || gate != down) {
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use expert %u with gate %s, up %s, down %s: "
                       "must be null together",
                       expert, gate ? "set" : "null", up ? "set" : "null",
                       down ? "set" : "null");
  }
  *here_out = gate;
  memset(expert_out, 0, sizeof(*expert_out));
  if (!gate) return moeplan_status_success;
  MOEP_TRY(
      read_matrix(planner, "gate", expert, &site->gate, &expert_out->gate));
  MOEP_TRY(read_matrix(planner, "up", expert, &site->up, &expert_out->up));
  return read_matrix(planner, "down", expert, &site->down, &expert_out->down);
}

static enum moeplan_status check_tables(const struct moeplan_planner* planner,
                                        const struct moeplan_site* site) {
  const struct moeplan_projection* projections[] = {&site->gate, &site->up,
                                                    &site->down};
  static const char* const names[] = {"gate", "up", "down"};
  for (size_t i = 0; i < 3; i++) {
    if (projections[i]->weight == NULL ||
        projections[i]->weight_scale == NULL ||
        projections[i]->weight_scale_2 == NULL) {
      return MOEP_REFUSE(&planner->hooks, invalid_site,
                         "cannot use %s without its tables: weight, "
                         "weight_scale and weight_scale_2 must be set",
                         names[i]);
    }
  }
  return moeplan_status_success;
}

/* A dense site has neither router nor experts. */
static enum moeplan_status check_unrouted(const struct moeplan_planner* planner,
                                          const struct moeplan_site* site) {
  const struct {
    const char* name;
    const void* address;
  } unwanted[] = {
      {"router", site->router},
      {"router_bias", site->router_bias},
      {"gate.weight", site->gate.weight},
      {"gate.weight_scale", site->gate.weight_scale},
      {"gate.weight_scale_2", site->gate.weight_scale_2},
      {"up.weight", site->up.weight},
      {"up.weight_scale", site->up.weight_scale},
      {"up.weight_scale_2", site->up.weight_scale_2},
      {"down.weight", site->down.weight},
      {"down.weight_scale", site->down.weight_scale},
      {"down.weight_scale_2", site->down.weight_scale_2},
  };
  for (size_t i = 0; i < sizeof(unwanted) / sizeof(*unwanted); i++) {
    if (unwanted[i].address == NULL) continue;
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use %s %p: the site is dense, so it must be "
                       "NULL",
                       unwanted[i].name, unwanted[i].address);
  }
  return moeplan_status_success;
}

/* Check all routed experts; with `experts_out`, also write them. */
static enum moeplan_status read_experts(const struct moeplan_planner* planner,
                                        const struct moeplan_site* site,
                                        struct moep_expert* experts_out) {
  uint32_t here = 0;
  for (uint32_t e = 0; e < planner->dims.experts; e++) {
    struct moep_expert expert;
    bool is_here = false;
    MOEP_TRY(read_expert(planner, site, e, &expert, &is_here));
    here += is_here ? 1 : 0;
    if (experts_out != NULL) experts_out[e] = expert;
  }
  if (here != planner->dims.local_experts) {
    return MOEP_REFUSE(&planner->hooks, invalid_site,
                       "cannot use a site with %u non-null experts: "
                       "local_experts is %u",
                       here, planner->dims.local_experts);
  }
  return moeplan_status_success;
}

static enum moeplan_status check_site(const struct moeplan_planner* planner,
                                      const struct moeplan_site* site,
                                      struct moep_site_table* table) {
  const bool routed = planner->dims.kind == moeplan_site_routed;
  MOEP_CHECK_STRUCT(&planner->hooks, site);
  if (site->projection_bias != NULL) {
    return MOEP_REFUSE(&planner->hooks, unsupported_config,
                       "cannot use projection_bias %p: must be NULL",
                       site->projection_bias);
  }
  MOEP_TRY(read_ffn(planner, "shared", routed && planner->dims.width != 0,
                    &site->shared, &table->ffn));
  MOEP_TRY(read_ffn(planner, "dense", !routed, &site->dense, &table->ffn));
  if (!routed) return check_unrouted(planner, site);
  MOEP_TRY(check_address(planner, "router", site->router, 2));
  if (site->router_bias != NULL) {
    MOEP_TRY(check_address(planner, "router_bias", site->router_bias, 4));
  }
  MOEP_TRY(check_tables(planner, site));
  table->router = site->router;
  table->bias = site->router_bias;
  return read_experts(planner, site, NULL);
}

/* Tensor maps of a checked site's experts, to `maps`; NULL: only tried. */
struct mapping {
  const struct moeplan_planner* planner;
  const struct moeplan_site* site;
  struct moep_expert_maps* maps;
};

/* LCOV_EXCL_START: asks the driver */
static enum moeplan_status make_maps(void* context) {
  const struct mapping* mapping = context;
  const struct moeplan_planner* planner = mapping->planner;
  const struct moep_dims* dims = &planner->dims;
  for (uint32_t e = 0; e < dims->experts; e++) {
    struct moep_expert expert;
    bool is_here = false;
    MOEP_TRY(read_expert(planner, mapping->site, e, &expert, &is_here));
    if (!is_here) continue;
    struct moep_expert_maps made;
    const cudaError_t error =
        moep_expert_maps_sm90(&expert, dims->hidden, dims->inter, &made);
    if (error != cudaSuccess) {
      return MOEP_REFUSE(
          &planner->hooks, cuda_error,
          "cannot make tensor maps of expert %u's weights: %s (%d)", e,
          cudaGetErrorString(error), (int)error);
    }
    if (mapping->maps != NULL) mapping->maps[e] = made;
  }
  return moeplan_status_success;
}
/* LCOV_EXCL_STOP */

/* A device that need not be there has no driver to make maps, and runs nothing. */
static enum moeplan_status map_experts(const struct moeplan_planner* planner,
                                       const struct moeplan_site* site,
                                       struct moep_expert_maps* maps_out) {
  if (planner->device.plan_only) return moeplan_status_success;
  struct mapping mapping = {planner, site, maps_out};
  return moep_on_device(planner, make_maps, &mapping);
}

enum moeplan_status moeplan_site_size(moeplan_planner_t planner,
                                      size_t* bytes_out) {
  if (planner == NULL) return moeplan_status_invalid_argument;
  if (bytes_out == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot size a site: bytes_out must not be NULL");
  }
  *bytes_out = moep_site_blob_bytes(planner);
  return moeplan_status_success;
}

enum moeplan_status moeplan_site_write(moeplan_planner_t planner,
                                       const struct moeplan_site* site,
                                       void* blob, size_t blob_bytes) {
  if (planner == NULL) return moeplan_status_invalid_argument;
  if (site == NULL || blob == NULL) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot write site %p to blob %p: must not be NULL",
                       (const void*)site, blob);
  }
  if ((uintptr_t)blob % 8 != 0) {
    return MOEP_REFUSE(&planner->hooks, misaligned_pointer,
                       "cannot write the site to blob %p: must be a multiple "
                       "of 8 bytes",
                       blob);
  }
  const size_t wanted = moep_site_blob_bytes(planner);
  if (blob_bytes < wanted) {
    return MOEP_REFUSE(&planner->hooks, invalid_argument,
                       "cannot write the site to %zu bytes: needs %zu",
                       blob_bytes, wanted);
  }
  const struct moep_dims* dims = &planner->dims;
  struct moep_site_table table = {.magic = MOEP_SITE_MAGIC,
                                  .hidden = dims->hidden,
                                  .inter = dims->inter,
                                  .expert_count = dims->experts,
                                  .width = dims->width,
                                  .maps = moep_site_blob_maps(planner)};
  MOEP_TRY(check_site(planner, site, &table));
  /* Tried first: what fails writes nothing. */
  if (table.maps != 0) MOEP_TRY(map_experts(planner, site, NULL));
  memcpy(blob, &table, sizeof(table));
  if (planner->dims.kind != moeplan_site_routed) return moeplan_status_success;
  MOEP_TRY(
      read_experts(planner, site, ((struct moep_site_table*)blob)->experts));
  if (table.maps == 0) return moeplan_status_success;
  const size_t plain = moep_site_plain_bytes(dims->experts);
  memset((char*)blob + plain, 0, wanted - plain);
  return map_experts(planner, site, (void*)((char*)blob + table.maps));
}
