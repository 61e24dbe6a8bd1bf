/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stored bytes of a weight: which scheme packs it, and what that scheme stores for a matrix.
 * Scales of compressed-tensors are counted as engines keep them (fp32); its files hold some in the model's
 * type. Sources: vllm 0.33.0 model_executor/layers/quantization, compressed-tensors 0.17.0, AutoGPTQ and
 * AutoAWQ file layouts, bitsandbytes functional.py (blocks of 64, scales in blocks of 256).
 */

#include "serving/weights_int.h"

#include "base/num.h"

#include <fnmatch.h>
#include <regex.h>
#include <stdio.h>

/* ---- which weights a scheme packs */

/* Python's "\d" and "\w" where POSIX has classes; other escapes are the same. */
static void posix_of(const char *python, char *out, size_t n)
{
    size_t used = 0;
    out[used++] = '^'; /* patterns match from the beginning */
    for (const char *p = python; *p != '\0' && used + 16 < n; p++) {
        bool digit = p[0] == '\\' && p[1] == 'd';
        bool word = p[0] == '\\' && p[1] == 'w';
        if (digit || word) {
            used += (size_t)snprintf(out + used, n - used, "%s", digit ? "[0-9]" : "[A-Za-z0-9_]");
            p++;
        } else if (p[0] == '(' && p[1] == '?' && p[2] == ':') {
            out[used++] = '(';
            p += 2;
        } else {
            out[used++] = *p;
        }
    }
    out[used] = '\0';
}

static bool matches_expression(const char *expression, const char *name)
{
    char pattern[512];
    regex_t compiled;
    posix_of(expression, pattern, sizeof pattern);
    if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0) {
        return false;
    }
    bool found = regexec(&compiled, name, 0, NULL, 0) == 0;
    regfree(&compiled);
    return found;
}

/* A plain pattern names whole components: "gate" is in "mlp.gate", not in "mlp.gate_proj". */
static bool matches_components(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    for (const char *at = n > 0 ? strstr(name, pattern) : NULL; at != NULL;
         at = strstr(at + 1, pattern)) {
        bool begins = at == name || at[-1] == '.';
        bool ends = at[n] == '\0' || at[n] == '.';
        if (begins && ends) {
            return true;
        }
    }
    return false;
}

static bool matches(const char *pattern, const char *name)
{
    if (strncmp(pattern, "re:", 3) == 0) {
        return matches_expression(pattern + 3, name);
    }
    if (strpbrk(pattern, "*?[") != NULL) {
        return fnmatch(pattern, name, 0) == 0;
    }
    return matches_components(pattern, name);
}

/* The module's full name as in checkpoints, without "model." when the pattern has none. */
static void full_name(const struct plim_weight *w, char *out, size_t n)
{
    if (w->layer == PLIM_NO_LAYER) {
        snprintf(out, n, "%s", w->name);
    } else {
        snprintf(out, n, "model.layers.%u.%s", w->layer, w->name);
    }
}

static bool excluded(const struct plim_quant *q, const char *name)
{
    for (uint32_t i = 0; i < q->n_excluded; i++) {
        if (matches(q->excluded[i], name)) {
            return true;
        }
    }
    return false;
}

/* "Linear" and empty lists take every linear layer; others name modules. */
static bool targets(const struct plim_quant_scheme *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_targets; i++) {
        if (strcmp(s->targets[i], "Linear") == 0 || matches(s->targets[i], name)) {
            return true;
        }
    }
    return s->n_targets == 0;
}

/* Output matrix and vision encoder: only methods that replace every linear layer touch them. */
static bool reaches(const struct plim_quant *q, const struct plim_weight *w)
{
    bool every = strncmp(q->method, "compressed", 10) == 0;
    if (w->part == PLIM_PART_HEAD) {
        return every;
    }
    return w->part != PLIM_PART_VISION || every || strcmp(q->method, "bitsandbytes") == 0;
}

const struct plim_quant_scheme *plim__scheme_of(const struct plim_geometry *g,
                                                const struct plim_weight *w)
{
    const struct plim_quant *q = &g->quant;
    char name[160];
    if (!w->linear || q->n_schemes == 0 || !reaches(q, w)) {
        return NULL;
    }
    full_name(w, name, sizeof name);
    if (excluded(q, name)) {
        return NULL;
    }
    for (uint32_t i = 0; i < q->n_schemes; i++) {
        if (targets(&q->schemes[i], name)) {
            return &q->schemes[i];
        }
    }
    return NULL;
}

/* ---- what a scheme stores */

struct tally {
    uint64_t *by_dtype; /* nullable */
    uint64_t copies;
    uint64_t bytes;
};

static void add(struct tally *t, enum plim_dtype dtype, uint64_t bytes)
{
    uint64_t all = 0;
    if (plim_mul_overflows(bytes, t->copies, &all)) {
        all = UINT64_MAX;
    }
    t->bytes = plim_add_sat(t->bytes, all);
    if (t->by_dtype != NULL) {
        t->by_dtype[dtype] = plim_add_sat(t->by_dtype[dtype], all);
    }
}

static uint64_t up(uint64_t n, uint64_t unit)
{
    return n / unit + (n % unit != 0 ? 1 : 0);
}

/* Scales of fp32: for blocks, for each row, or for the tensor. */
static uint64_t scales(const struct plim_quant_scheme *s, const struct plim_weight *w)
{
    if (s->group == UINT32_MAX) {
        return w->piece ? 0 : 1;
    }
    uint64_t across = s->group == 0 ? 1 : up(w->cols, s->group);
    return up(w->rows, s->block_rows != 0 ? s->block_rows : 1) * across;
}

static void add_plain_scales(struct tally *t, const struct plim_quant_scheme *s,
                             const struct plim_weight *w)
{
    add(t, PLIM_DTYPE_F32, 4 * scales(s, w));
    add(t, PLIM_DTYPE_F32, s->act_static && !w->piece ? 4 : 0);
}

/* Integers of `bits` in 32-bit words along one dimension, a scale a group, zero points, the order of inputs. */
static void add_grouped(struct tally *t, const struct plim_quant_scheme *s,
                        const struct plim_weight *w, bool index)
{
    uint64_t groups = s->group == 0 || s->group == UINT32_MAX ? 1 : up(w->cols, s->group);
    add(t, PLIM_DTYPE_I32, up(w->cols * s->bits, 32) * 4 * w->rows);
    add(t, w->dtype, groups * w->rows * 2);
    add(t, PLIM_DTYPE_I32, s->zero_point ? groups * up(w->rows * s->bits, 32) * 4 : 0);
    add(t, PLIM_DTYPE_I32, index && !w->piece ? 4 * w->cols : 0);
}

static void add_nf4(struct tally *t, const struct plim_quant_scheme *s, uint64_t n)
{
    uint64_t blocks = up(n, 64);
    add(t, PLIM_DTYPE_U8, up(n, 2));
    if (s->double_quant) {
        add(t, PLIM_DTYPE_U8, blocks);
        add(t, PLIM_DTYPE_F32, 4 * up(blocks, 256));
    } else {
        add(t, PLIM_DTYPE_F32, 4 * blocks);
    }
}

static void add_packed(struct tally *t, const struct plim_quant_scheme *s,
                       const struct plim_weight *w)
{
    uint64_t n = w->rows * w->cols;
    switch (s->kind) {
    case PLIM_QUANT_FP8:
        add(t, PLIM_DTYPE_F8_E4M3, n);
        add_plain_scales(t, s, w);
        break;
    case PLIM_QUANT_INT8:
        add(t, PLIM_DTYPE_I8, n);
        add_plain_scales(t, s, w);
        break;
    case PLIM_QUANT_GPTQ:
        add_grouped(t, s, w, true);
        break;
    case PLIM_QUANT_AWQ:
        add_grouped(t, s, w, false);
        break;
    case PLIM_QUANT_PACK:
        add_grouped(t, s, w, s->act_order);
        break;
    case PLIM_QUANT_MXFP4:
        add(t, PLIM_DTYPE_U8, w->rows * (up(w->cols, 2) + up(w->cols, 32)));
        break;
    case PLIM_QUANT_MXFP8:
        add(t, PLIM_DTYPE_F8_E4M3, n);
        add(t, PLIM_DTYPE_U8, w->rows * up(w->cols, 32));
        break;
    case PLIM_QUANT_NVFP4:
        add(t, PLIM_DTYPE_U8, w->rows * up(w->cols, 2));
        add(t, PLIM_DTYPE_F8_E4M3, w->rows * up(w->cols, 16));
        add(t, PLIM_DTYPE_F32, w->piece ? 0 : s->act_static ? 8 : 4);
        break;
    case PLIM_QUANT_NF4:
        add_nf4(t, s, n);
        break;
    case PLIM_QUANT_LLM_INT8:
        add(t, PLIM_DTYPE_I8, n);
        add(t, PLIM_DTYPE_F32, 4 * w->rows);
        break;
    case PLIM_QUANT_NONE:
    case PLIM_QUANT_GGUF:
    case PLIM_QUANT_OTHER:
    case PLIM_QUANT_COUNT:
        break;
    }
}

uint64_t plim_weight_bytes(const struct plim_geometry *g, const struct plim_weight *w,
                           uint64_t *by_dtype)
{
    struct tally t = {.by_dtype = by_dtype, .copies = w->copies};
    const struct plim_quant_scheme *scheme = plim__scheme_of(g, w);
    if (scheme != NULL) {
        add_packed(&t, scheme, w);
        return t.bytes;
    }
    uint64_t n = 0;
    uint64_t bytes = 0;
    if (plim_mul_overflows(w->rows, w->cols, &n) || !plim_dtype_bytes(w->dtype, n, &bytes)) {
        bytes = UINT64_MAX;
    }
    add(&t, w->dtype, bytes);
    return t.bytes;
}
