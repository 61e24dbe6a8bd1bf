/* SPDX-License-Identifier: Apache-2.0 */

/* What is true of every geometry, whatever file it came from. */

#include "serving/geometry.h"

#include "base/num.h"

static const char *const mixer_texts[PLIM_MIXER_COUNT] = {
#define PLIM__X(name, text, meaning) text,
    PLIM_MIXER_MAP(PLIM__X)
#undef PLIM__X
};

const char *plim_mixer_text(enum plim_mixer mixer)
{
    return (unsigned)mixer < PLIM_MIXER_COUNT ? mixer_texts[mixer] : "unknown";
}

static const char *const quant_texts[PLIM_QUANT_COUNT] = {
#define PLIM__X(name, text) text,
    PLIM_QUANT_MAP(PLIM__X)
#undef PLIM__X
};

const char *plim_quant_text(enum plim_quant_kind kind)
{
    return (unsigned)kind < PLIM_QUANT_COUNT ? quant_texts[kind] : "unknown";
}

bool plim_layer_is_attention(const struct plim_layer *layer)
{
    return layer->mixer == PLIM_MIXER_FULL || layer->mixer == PLIM_MIXER_SLIDING ||
           layer->mixer == PLIM_MIXER_CHUNKED || layer->mixer == PLIM_MIXER_MLA;
}

void plim_stage_layers(uint32_t n_layers, uint32_t pp, uint32_t pp_rank, uint32_t *first,
                       uint32_t *end)
{
    uint32_t share = n_layers / pp;
    uint32_t rest = n_layers % pp;
    uint32_t begin = 0;
    for (uint32_t r = 0; r <= pp_rank; r++) {
        /* one more for each of the `rest` stages before the last; rest < pp, so there are as many */
        bool more = rest > 0 && r + 1 < pp && r + 1 + rest >= pp;
        *first = begin;
        begin += share + (more ? 1 : 0);
    }
    *end = begin;
}
