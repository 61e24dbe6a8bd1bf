/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the library makes of configurations, as one line of JSON for each line of standard input. A line is a
 * JSON object: {"config": {...}, "placement": {"tp": 1, ...}, "kv": "auto", "assume": "..."}.
 * Used by the tests that compare with published numbers and with the classes of transformers.
 */

#include "base/buf.h"
#include "base/jsonw.h"
#include "serving/kv.h"
#include "serving/weights.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t number(json_t *object, const char *key, uint32_t absent)
{
    json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (uint32_t)json_integer_value(value) : absent;
}

static struct plim_placement placement(json_t *o)
{
    return (struct plim_placement){.tp = number(o, "tp", 1),
                                   .pp = number(o, "pp", 1),
                                   .pp_rank = number(o, "pp_rank", 0),
                                   .ep = number(o, "ep", 1),
                                   .dcp = number(o, "dcp", 1),
                                   .vocab_pad = number(o, "vocab_pad", 1),
                                   .mtp = json_is_true(json_object_get(o, "mtp")),
                                   .no_vision = json_is_true(json_object_get(o, "no_vision"))};
}

static void write_parts(struct plim_jsonw *w, const struct plim_weight_sum *sum)
{
    plim_jsonw_kv_u64(w, "parameters", sum->parameters);
    plim_jsonw_kv_u64(w, "active_parameters", sum->active_parameters);
    plim_jsonw_kv_u64(w, "weight_bytes", sum->bytes);
    plim_jsonw_key(w, "parts");
    plim_jsonw_object(w);
    for (int i = 0; i < PLIM_PART_COUNT; i++) {
        plim_jsonw_kv_u64(w, plim_part_text((enum plim_part)i), sum->part_parameters[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "dtypes");
    plim_jsonw_object(w);
    for (int i = 0; i < PLIM_DTYPE_COUNT; i++) {
        if (sum->dtype_bytes[i] != 0) {
            plim_jsonw_kv_u64(w, plim_dtype_text((enum plim_dtype)i), sum->dtype_bytes[i]);
        }
    }
    plim_jsonw_end(w);
}

static void write_kv(struct plim_jsonw *w, const struct plim_kv_list *list)
{
    struct plim_kv_sum sum;
    uint64_t kinds[PLIM_KV_CROSS + 1] = {0};
    uint64_t counts[PLIM_KV_CROSS + 1] = {0};
    plim_kv_sum(list, &sum);
    for (size_t i = 0; i < list->n; i++) {
        const struct plim_kv_layer *l = &list->items[i];
        counts[l->kind]++;
        kinds[l->kind] +=
            l->kind == PLIM_KV_STATE || l->kind == PLIM_KV_CROSS ? l->state_bytes : l->token_bytes;
    }
    plim_jsonw_kv_u64(w, "kv_layers", list->n);
    plim_jsonw_kv_u64(w, "full_layers", counts[PLIM_KV_FULL] + counts[PLIM_KV_MLA]);
    plim_jsonw_kv_u64(w, "window_layers", counts[PLIM_KV_SLIDING] + counts[PLIM_KV_CHUNKED]);
    plim_jsonw_kv_u64(w, "state_layers", counts[PLIM_KV_STATE]);
    plim_jsonw_kv_u64(w, "token_bytes", sum.token_bytes);
    plim_jsonw_kv_u64(w, "windowed_token_bytes", sum.windowed_token_bytes);
    plim_jsonw_kv_u64(w, "window_cap_bytes", sum.window_cap_bytes);
    plim_jsonw_kv_u64(w, "state_bytes", sum.state_bytes);
    plim_jsonw_kv_u64(w, "index_bytes", kinds[PLIM_KV_INDEX]);
    plim_jsonw_kv_u64(w, "cross_bytes", kinds[PLIM_KV_CROSS]);
    plim_jsonw_kv_u64(w, "sequence_8192", plim_kv_sequence_bytes(list, 1, 8192));
}

static void write_origins(struct plim_jsonw *w, const struct plim_geometry *g)
{
    static const char *const kinds[] = {"file", "rule", "default", "assumed"};
    plim_jsonw_key(w, "origins");
    plim_jsonw_object(w);
    for (uint32_t i = 0; i < g->n_origins; i++) {
        plim_jsonw_key(w, g->origins[i].field);
        plim_jsonw_array(w);
        plim_jsonw_text(w, kinds[g->origins[i].kind]);
        plim_jsonw_text(w, g->origins[i].key);
        plim_jsonw_u64(w, g->origins[i].value);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "notes");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < g->n_notes; i++) {
        plim_jsonw_text(w, g->notes[i]);
    }
    plim_jsonw_end(w);
}

static void write_error(struct plim_jsonw *w, const struct plim_err *err)
{
    plim_jsonw_kv_text(w, "error", plim_status_name(err->status));
    plim_jsonw_kv_text(w, "message", err->message);
    plim_jsonw_kv_text(w, "where", err->where);
    plim_jsonw_kv_text(w, "hint", err->hint);
}

static enum plim_status answer(struct plim_arena *arena, json_t *ask, struct plim_jsonw *w,
                               struct plim_err *err)
{
    struct plim_geometry g;
    struct plim_weight_sum sum;
    struct plim_kv_list list;
    struct plim_kv_options kv = {0};
    const char *format = json_string_value(json_object_get(ask, "kv"));
    struct plim_geometry_options opts = {.assume =
                                             json_string_value(json_object_get(ask, "assume"))};
    struct plim_placement at = placement(json_object_get(ask, "placement"));
    char *text = json_dumps(json_object_get(ask, "config"), 0);
    struct plim_str config = plim_str_from(text != NULL ? text : "");
    enum plim_status st = plim_geometry_from_config(arena, config, "config.json", &opts, &g, err);
    free(text);
    PLIM_TRY(st);
    if (format != NULL && !plim_kv_format_from(plim_str_from(format), &kv.k)) {
        return plim__fail(err, PLIM_E_USAGE, "unknown format %s", format);
    }
    PLIM_TRY(plim_kv_layers(arena, &g, &at, &kv, &list, err));
    write_kv(w, &list);
    plim_jsonw_kv_text(w, "family", g.family);
    plim_jsonw_kv_u64(w, "ropes", g.n_ropes);
    plim_jsonw_kv_u64(w, "mtp", g.n_mtp);
    write_origins(w, &g);
    PLIM_TRY(plim_weights_sum(arena, &g, &at, &sum, err));
    write_parts(w, &sum);
    return PLIM_OK;
}

static void answer_line(const char *line)
{
    struct plim_arena arena;
    struct plim_err err;
    struct plim_buf out = {0};
    struct plim_jsonw w;
    json_t *ask = json_loads(line, 0, NULL);
    plim_err_clear(&err);
    plim_arena_init(&arena, UINT64_C(256) << 20);
    plim_jsonw_init(&w, &out, true);
    plim_jsonw_object(&w);
    if (answer(&arena, ask, &w, &err) != PLIM_OK) {
        write_error(&w, &err);
    }
    plim_jsonw_end(&w);
    fwrite(out.p, 1, out.n, stdout);
    plim_buf_fini(&out);
    plim_arena_fini(&arena);
    json_decref(ask);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        answer_line(line);
    }
    free(line);
    return 0;
}
