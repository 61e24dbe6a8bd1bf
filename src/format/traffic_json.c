/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines of traffic: one flat object for each arrival; what is nested and unknown is skipped. */

#include "format/traffic_internal.h"

#include <jansson.h>
#include <stdio.h>

#define NO_TEXT SIZE_MAX

/* The shortest decimal that reads back as the same number: what the file most probably says. */
static void put_real(struct plim_buf *out, double value)
{
    char text[40];
    int digits = 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (strtod(text, NULL) != value && digits++ < 17);
    plim_buf_text(out, text);
}

/* The value as text at the end of r->text; false for null, arrays and objects. */
static bool put_text(struct plim_traffic_reader *r, const json_t *value)
{
    if (json_is_integer(value)) {
        plim_buf_printf(&r->text, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        put_real(&r->text, json_real_value(value));
    } else if (json_is_string(value)) {
        plim_buf_add(&r->text,
                     (struct plim_str){json_string_value(value), json_string_length(value)});
    } else {
        return false;
    }
    return true;
}

/* The hashes of an array of integers or texts; *good false for anything else. */
static enum plim_status put_hashes(struct plim_traffic_reader *r, const json_t *value, bool *good,
                                   struct plim_err *err)
{
    size_t n = json_array_size(value); /* 0 for what is no array */
    *good = json_is_array(value) || json_is_null(value);
    PLIM_TRY(plim_vec_reserve(&r->hashes, n, err));
    for (size_t i = 0; i < n && *good; i++) {
        const json_t *item = json_array_get(value, i);
        uint64_t hash = (uint64_t)json_integer_value(item);
        if (json_is_string(item)) {
            hash = plim_hash_bytes(json_string_value(item), json_string_length(item));
        }
        *good = json_is_integer(item) || json_is_string(item);
        r->hashes.items[r->hashes.n++] = hash;
    }
    return PLIM_OK;
}

static enum plim_status take_object(struct plim_traffic_reader *r, json_t *object,
                                    struct plim__traffic_cells *out, bool *good,
                                    struct plim_err *err)
{
    size_t at[PLIM__TRAFFIC_COLUMNS];
    const char *key;
    json_t *value;
    memset(at, 0xff, sizeof at);
    *good = true;
    json_object_foreach(object, key, value)
    {
        uint64_t unit = 0;
        enum plim__traffic_column column = plim__traffic_column(plim_str_from(key), &unit);
        if (column == PLIM__TRAFFIC_HASHES) {
            PLIM_TRY(put_hashes(r, value, good, err));
        } else if (column < PLIM__TRAFFIC_COLUMNS && at[column] == NO_TEXT) {
            size_t from = r->text.n;
            at[column] = put_text(r, value) ? from : NO_TEXT;
            out->cell[column].n = r->text.n - from;
        }
        if (!*good) {
            return PLIM_OK;
        }
    }
    for (size_t c = 0; c < PLIM__TRAFFIC_COLUMNS; c++) {
        out->cell[c].p = at[c] == NO_TEXT ? NULL : plim_buf_str(&r->text).p + at[c];
    }
    return plim_buf_status(&r->text, err);
}

enum plim_status plim__traffic_json_cells(struct plim_traffic_reader *r, struct plim_str line,
                                          struct plim__traffic_cells *out, bool *good,
                                          struct plim_err *err)
{
    json_error_t error;
    json_t *object = json_loadb(line.p, line.n, 0, &error);
    *out = (struct plim__traffic_cells){0};
    *good = false;
    r->hashes.n = 0;
    plim_buf_reset(&r->text);
    if (!object && json_error_code(&error) == json_error_out_of_memory) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a line of %zu bytes", line.n);
    }
    enum plim_status st = PLIM_OK;
    if (json_is_object(object)) {
        st = take_object(r, object, out, good, err);
    }
    json_decref(object);
    return st;
}

/* Which of the known layouts an object with these keys belongs to. */
static void learn_layout(struct plim_traffic_reader *r, const json_t *object)
{
    const char *key;
    json_t *value;
    r->unit_ns = 1000000000;
    json_object_foreach((json_t *)object, key, value)
    {
        uint64_t unit = 0;
        enum plim__traffic_column column = plim__traffic_column(plim_str_from(key), &unit);
        if (column < PLIM__TRAFFIC_COLUMNS) {
            r->present[column] = true;
        }
        r->unit_ns = column == PLIM__TRAFFIC_TIME && unit > 0 ? unit : r->unit_ns;
    }
    bool exact = json_object_get(object, "timestamp") && json_object_get(object, "input_length") &&
                 json_object_get(object, "output_length");
    if (exact && r->present[PLIM__TRAFFIC_CHAT]) {
        r->layout = PLIM_TRAFFIC_BAILIAN;
        r->hash_block = r->present[PLIM__TRAFFIC_HASHES] ? 16 : 0;
    } else if (exact) {
        r->layout = PLIM_TRAFFIC_MOONCAKE;
        r->unit_ns = 1000000;
        r->hash_block = r->present[PLIM__TRAFFIC_HASHES] ? 512 : 0;
    }
    const json_t *block = json_object_get(object, "hash_block_tokens");
    json_int_t tokens = json_integer_value(block);
    if (tokens > 0 && tokens <= (json_int_t)PLIM_TRAFFIC_TOKENS_MAX) {
        r->hash_block = (uint32_t)tokens;
    }
}

enum plim_status plim__traffic_json_first(struct plim_traffic_reader *r, struct plim_str line,
                                          struct plim_err *err)
{
    json_error_t error;
    json_t *object = json_loadb(line.p, line.n, 0, &error);
    if (json_is_object(object)) {
        learn_layout(r, object);
    }
    json_decref(object);
    bool tokens = r->present[PLIM__TRAFFIC_PROMPT] && r->present[PLIM__TRAFFIC_OUTPUT];
    if (!tokens && !r->present[PLIM__TRAFFIC_IMAGES] && !r->present[PLIM__TRAFFIC_WIDTH]) {
        plim__fail(err, PLIM_E_DATA, "%s",
                   object ? "no keys for prompt and output tokens in the first object"
                          : "the first line is no JSON object");
        plim__err_hint(err, "a plain line is {\"time\": 1.5, \"prompt\": 900, \"output\": 120}");
        return PLIM_E_DATA;
    }
    return PLIM_OK;
}
