/* SPDX-License-Identifier: Apache-2.0 */

/*
 * --quantization of a checkpoint that is not quantized: the engine converts each layer's linear weights while it
 * loads them. Embeddings and the output matrix stay as they are. Layers are converted one by one, so that the
 * unconverted model is never whole on the card. Source: vllm 0.33.0 config/quantization.py (shorthands),
 * model_executor/layers/quantization/online/.
 */

#include "serving/vllm_run.h"

#include <string.h>

static const struct {
    const char *word;
    uint32_t rows, inputs; /* that share a scale; inputs UINT32_MAX: one a tensor, 0: one a row */
} methods[] = {
    {"fp8", 0, UINT32_MAX},
    {"fp8_per_tensor", 0, UINT32_MAX},
    {"fp8_per_block", 128, 128},
    {"fp8_per_channel", 0, 0},
};

static const char *asked(const struct plim_geometry *g, const struct plim_vllm_flags *flags)
{
    const struct plim_vllm_flag *f = plim_vllm_flag(flags, "quantization");
    bool plain = g->quant.n_schemes == 0 && strcmp(g->quant.method, "none") == 0;
    return f != NULL && plain ? f->value : NULL;
}

static size_t method_of(const char *word)
{
    size_t i = 0;
    while (i < PLIM_COUNT_OF(methods) && strcmp(methods[i].word, word) != 0) {
        i++;
    }
    return i;
}

enum plim_status plim__vllm_converted(struct plim_arena *arena, const struct plim_geometry *g,
                                      const struct plim_vllm_flags *flags,
                                      const struct plim_geometry **out, struct plim_err *err)
{
    const char *word = asked(g, flags);
    size_t i = word != NULL ? method_of(word) : PLIM_COUNT_OF(methods);
    void *copy, *scheme;
    *out = g;
    if (i == PLIM_COUNT_OF(methods)) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_arena_alloc(arena, sizeof(struct plim_geometry), &copy, err));
    PLIM_TRY(plim_arena_alloc(arena, sizeof(struct plim_quant_scheme), &scheme, err));
    struct plim_geometry *converted = copy;
    struct plim_quant_scheme *s = scheme;
    *s = (struct plim_quant_scheme){.kind = PLIM_QUANT_FP8,
                                    .bits = 8,
                                    .block_rows = methods[i].rows,
                                    .group = methods[i].inputs};
    *converted = *g;
    converted->quant.method = "fp8";
    converted->quant.schemes = s;
    converted->quant.n_schemes = 1;
    *out = converted;
    return PLIM_OK;
}

const char *plim__vllm_unconverted(const struct plim_geometry *g,
                                   const struct plim_vllm_flags *flags)
{
    const char *word = asked(g, flags);
    return word != NULL && method_of(word) == PLIM_COUNT_OF(methods) ? word : NULL;
}
