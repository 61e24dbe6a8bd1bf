/* SPDX-License-Identifier: Apache-2.0 */

/* Numbers in an engine's log, and what is learned from them. See calibration.h. */

#include "serving/calibration.h"

#include "base/jsonw.h"
#include "base/num.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

/* ---- the log ---------------------------------------------------------------------------------------- */

enum unit {
    UNIT_ONE,
    UNIT_GIB,
    UNIT_TOOK /* GiB, behind the seconds it took */
};

/* X: the words in front of a number, the field it fills, its unit. */
static const struct sentence {
    const char *before;
    size_t offset;
    enum unit unit;
} sentences[] = {
    {"Model loading took ", offsetof(struct plim_engine_log, weights_bytes), UNIT_GIB},
    {"Available KV cache memory: ", offsetof(struct plim_engine_log, available_kv_bytes), UNIT_GIB},
    {"GPU KV cache size: ", offsetof(struct plim_engine_log, kv_tokens), UNIT_ONE},
    {"tokens per request: ", offsetof(struct plim_engine_log, concurrency), UNIT_ONE},
    {"Graph capturing finished in ", offsetof(struct plim_engine_log, graph_bytes), UNIT_TOOK},
    {" GiB (actual), ", offsetof(struct plim_engine_log, graph_estimate_bytes), UNIT_GIB},
    {"Initial free memory ", offsetof(struct plim_engine_log, free_bytes), UNIT_GIB},
    {"Free memory on device cuda:0 (", offsetof(struct plim_engine_log, free_bytes), UNIT_GIB},
    {"Free memory on device (", offsetof(struct plim_engine_log, free_bytes), UNIT_GIB},
    {"Actual usage is ", offsetof(struct plim_engine_log, consumed_bytes), UNIT_GIB},
    {"(weights + non-torch), ", offsetof(struct plim_engine_log, peak_bytes), UNIT_GIB},
    {"Estimated CUDA graph memory: ", offsetof(struct plim_engine_log, graph_estimate_bytes),
     UNIT_GIB},
    {"num_gpu_blocks=\"", offsetof(struct plim_engine_log, num_blocks), UNIT_ONE},
    {"kv_cache_size_tokens=\"", offsetof(struct plim_engine_log, kv_tokens), UNIT_ONE},
    {"kv_cache_max_concurrency=\"", offsetof(struct plim_engine_log, concurrency), UNIT_ONE},
};

/* A number with commas and a fraction at the front of `text`; PLIM_ENGINE_UNKNOWN when there is none. */
static double number_at(struct plim_str text)
{
    char digits[40];
    size_t n = 0, i = 0;
    bool dot = false;
    for (; i < text.n && n + 1 < sizeof digits; i++) {
        char c = text.p[i];
        if ((c >= '0' && c <= '9') || (c == '.' && !dot)) {
            dot = dot || c == '.';
            digits[n++] = c;
        } else if (c != ',') {
            break;
        }
    }
    digits[n] = '\0';
    if (n == 0 || digits[0] == '.') {
        return PLIM_ENGINE_UNKNOWN;
    }
    double value = strtod(digits, NULL);
    return isfinite(value) && value < 1e15 ? value : PLIM_ENGINE_UNKNOWN;
}

static const char *find(const char *p, size_t n, const char *what)
{
    return memmem(p, n, what, strlen(what));
}

/* "4 secs, took 0.58 GiB" */
static double behind_seconds(struct plim_str rest)
{
    const char *took = find(rest.p, rest.n < 60 ? rest.n : 60, "took ");
    if (took == NULL) {
        return PLIM_ENGINE_UNKNOWN;
    }
    size_t at = (size_t)(took - rest.p) + 5;
    return number_at((struct plim_str){rest.p + at, rest.n - at});
}

static void take(struct plim_engine_log *out, const struct sentence *s, struct plim_str rest)
{
    double value = s->unit == UNIT_TOOK ? behind_seconds(rest) : number_at(rest);
    if (value >= 0) {
        value = s->unit == UNIT_ONE ? value : value * GIB;
        memcpy((char *)out + s->offset, &value, sizeof value);
    }
}

void plim_engine_log_read(struct plim_str text, struct plim_engine_log *out)
{
#define PLIM__X(field, words, bytes) .field = PLIM_ENGINE_UNKNOWN,
    *out = (struct plim_engine_log){PLIM_ENGINE_LOG_MAP(PLIM__X).rounding_bytes = 0.005 * GIB};
#undef PLIM__X
    for (size_t i = 0; i < PLIM_COUNT_OF(sentences); i++) {
        const struct sentence *s = &sentences[i];
        size_t at = 0, n = strlen(s->before);
        for (;;) {
            const char *hit = find(text.p + at, text.n - at, s->before);
            if (hit == NULL) {
                break;
            }
            at = (size_t)(hit - text.p) + n;
            take(out, s, (struct plim_str){text.p + at, text.n - at});
        }
    }
}

/* ---- what was learned -------------------------------------------------------------------------------- */

static enum plim_status read_one(struct plim_arena *arena, const json_t *item,
                                 struct plim_calibration *c, struct plim_err *err)
{
    const char *card = json_string_value(json_object_get(item, "card"));
    const char *engine = json_string_value(json_object_get(item, "engine"));
    json_int_t samples = json_integer_value(json_object_get(item, "samples"));
    json_int_t spread = json_integer_value(json_object_get(item, "spread_bytes"));
    json_int_t outside = json_integer_value(json_object_get(item, "outside_bytes"));
    if (card == NULL || engine == NULL || samples < 1 || samples > UINT32_MAX || spread < 0) {
        return plim__fail(err, PLIM_E_DATA, "a calibration lacks card, engine or samples");
    }
    if (outside < -PLIM_AMOUNT_MAX || outside > PLIM_AMOUNT_MAX || spread > PLIM_AMOUNT_MAX) {
        return plim__fail(err, PLIM_E_DATA, "a calibration is of more than any machine holds");
    }
    *c = (struct plim_calibration){
        .card = plim_arena_sayf(arena, "%s", card),
        .engine = plim_arena_sayf(arena, "%s", engine),
        .outside_bytes = outside,
        .spread_bytes = (uint64_t)spread,
        .samples = (uint32_t)samples,
    };
    return plim_arena_status(arena, err);
}

enum plim_status plim_calibrations_read(struct plim_arena *arena, struct plim_str text,
                                        struct plim_calibrations *out, struct plim_err *err)
{
    json_t *root = json_loadb(text.p, text.n, 0, NULL);
    const json_t *list = json_object_get(root, "calibrations");
    struct plim_calibrations all = {0};
    if (!json_is_array(list) || json_array_size(list) > 1000) {
        json_decref(root);
        return plim__fail(err, PLIM_E_DATA, "not a file of calibrations");
    }
    void *items;
    enum plim_status st =
        plim_arena_array(arena, json_array_size(list), sizeof *all.items, &items, err);
    for (size_t i = 0; st == PLIM_OK && i < json_array_size(list); i++) {
        all.items = items;
        st = read_one(arena, json_array_get(list, i), &all.items[all.n], err);
        all.n++;
    }
    json_decref(root);
    if (st == PLIM_OK) {
        *out = all;
    }
    return st;
}

void plim_calibrations_write(const struct plim_calibrations *all, struct plim_buf *out)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, false);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.calibration/1");
    plim_jsonw_key(&w, "calibrations");
    plim_jsonw_array(&w);
    for (size_t i = 0; i < all->n; i++) {
        const struct plim_calibration *c = &all->items[i];
        plim_jsonw_object(&w);
        plim_jsonw_kv_text(&w, "card", c->card);
        plim_jsonw_kv_text(&w, "engine", c->engine);
        plim_jsonw_kv_i64(&w, "outside_bytes", c->outside_bytes);
        plim_jsonw_kv_u64(&w, "spread_bytes", c->spread_bytes);
        plim_jsonw_kv_u64(&w, "samples", c->samples);
        plim_jsonw_end(&w);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
}

const struct plim_calibration *plim_calibrations_find(const struct plim_calibrations *all,
                                                      const char *card, const char *engine)
{
    for (size_t i = 0; i < all->n; i++) {
        if (strcmp(all->items[i].card, card) == 0 && strcmp(all->items[i].engine, engine) == 0) {
            return &all->items[i];
        }
    }
    return NULL;
}

static uint64_t distance(int64_t a, int64_t b)
{
    return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

enum plim_status plim_calibrations_learn(struct plim_arena *arena, struct plim_calibrations *all,
                                         const char *card, const char *engine,
                                         int64_t outside_bytes, struct plim_err *err)
{
    if (outside_bytes < -PLIM_AMOUNT_MAX || outside_bytes > PLIM_AMOUNT_MAX) {
        return plim__fail(err, PLIM_E_DATA,
                          "the engine reports more memory than any machine holds");
    }
    for (size_t i = 0; i < all->n; i++) {
        struct plim_calibration *c = &all->items[i];
        if (strcmp(c->card, card) == 0 && strcmp(c->engine, engine) == 0) {
            int64_t before = c->outside_bytes;
            c->samples += c->samples < UINT32_MAX;
            c->outside_bytes += (outside_bytes - before) / (int64_t)c->samples;
            uint64_t moved = distance(before, c->outside_bytes);
            uint64_t spread =
                plim_max_u64(c->spread_bytes + moved, distance(outside_bytes, c->outside_bytes));
            c->spread_bytes = plim_min_u64(spread, PLIM_AMOUNT_MAX);
            return PLIM_OK;
        }
    }
    void *items;
    PLIM_TRY(plim_arena_array(arena, all->n + 1, sizeof *all->items, &items, err));
    if (all->n > 0) {
        memcpy(items, all->items, all->n * sizeof *all->items);
    }
    all->items = items;
    all->items[all->n++] = (struct plim_calibration){
        .card = plim_arena_sayf(arena, "%s", card),
        .engine = plim_arena_sayf(arena, "%s", engine),
        .outside_bytes = outside_bytes,
        .samples = 1,
    };
    return plim_arena_status(arena, err);
}
