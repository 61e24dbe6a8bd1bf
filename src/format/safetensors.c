/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The header is JSON of a known shape with perhaps a hundred thousand entries, so it is read by a scanner
 * made for that shape: no tree, positions in errors, unknown keys skipped.
 */

#include "format/safetensors.h"

#include "base/num.h"
#include "base/vec.h"
#include "format/window.h"

#include <inttypes.h>
#include <jansson.h>

#define DEPTH_MAX 16
#define INDEX_MAX (UINT64_C(64) << 20) /* bytes */

struct scanner {
    const char *begin;
    const char *p;
    const char *end;
    struct plim_arena *arena;
    struct plim_err *err;
};

static enum plim_status bad(struct scanner *s, const char *what)
{
    (void)plim__fail(s->err, s->p < s->end ? PLIM_E_DATA : PLIM_E_TRUNCATED, "%s", what);
    plim__err_where(s->err, "safetensors header: byte");
    plim__err_at(s->err, (uint64_t)(s->p - s->begin));
    return s->p < s->end ? PLIM_E_DATA : PLIM_E_TRUNCATED;
}

static void skip_blanks(struct scanner *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) {
        s->p++;
    }
}

/* Consume `c` when it comes next. */
static bool eat(struct scanner *s, char c)
{
    skip_blanks(s);
    if (s->p < s->end && *s->p == c) {
        s->p++;
        return true;
    }
    return false;
}

/* A string with its escapes left as they are: names of tensors have none. */
static enum plim_status scan_string(struct scanner *s, struct plim_str *out)
{
    if (!eat(s, '"')) {
        return bad(s, "a text is missing");
    }
    const char *begin = s->p;
    while (s->p < s->end && *s->p != '"') {
        s->p += *s->p == '\\' && s->end - s->p > 1 ? 2 : 1;
    }
    if (s->p >= s->end) {
        s->p = s->end;
        return bad(s, "a text does not end");
    }
    *out = (struct plim_str){begin, (size_t)(s->p - begin)};
    s->p++;
    return PLIM_OK;
}

static enum plim_status scan_number(struct scanner *s, uint64_t *out)
{
    skip_blanks(s);
    uint64_t n = 0;
    const char *begin = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') {
        if (plim_mul_overflows(n, 10, &n) || plim_add_overflows(n, (uint64_t)(*s->p - '0'), &n)) {
            return bad(s, "a number is beyond 64 bits");
        }
        s->p++;
    }
    if (s->p == begin || (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E'))) {
        return bad(s, "not a number without sign and fraction");
    }
    *out = n;
    return PLIM_OK;
}

/* A list of at most `max` numbers. */
static enum plim_status scan_numbers(struct scanner *s, uint64_t *out, uint32_t max, uint32_t *n)
{
    *n = 0;
    if (!eat(s, '[')) {
        return bad(s, "a list is missing");
    }
    if (eat(s, ']')) {
        return PLIM_OK;
    }
    do {
        if (*n == max) {
            return bad(s, "a list is too long");
        }
        PLIM_TRY(scan_number(s, &out[(*n)++]));
    } while (eat(s, ','));
    return eat(s, ']') ? PLIM_OK : bad(s, "a list does not end");
}

/* Any value that nobody asks for. */
static enum plim_status skip_value(struct scanner *s)
{
    int depth = 0;
    struct plim_str text;
    do {
        skip_blanks(s);
        if (s->p >= s->end) {
            return bad(s, "a value is missing");
        }
        if (*s->p == '"') {
            PLIM_TRY(scan_string(s, &text));
            continue;
        }
        if (*s->p == '{' || *s->p == '[') {
            if (++depth > DEPTH_MAX) {
                return bad(s, "values are nested too deeply");
            }
        } else if (*s->p == '}' || *s->p == ']') {
            depth--;
        }
        if (depth < 0) {
            return bad(s, "a value is missing");
        }
        s->p++;
    } while (depth > 0 || (s->p < s->end && *s->p != ',' && *s->p != '}' && *s->p != ']'));
    return PLIM_OK;
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} */
static enum plim_status scan_tensor(struct scanner *s, struct plim_tensor *t)
{
    uint64_t ends[2] = {0, 0};
    uint32_t n_ends = 0;
    bool typed = false;
    bool shaped = false;
    if (!eat(s, '{')) {
        return bad(s, "a tensor is no object");
    }
    do {
        struct plim_str key;
        PLIM_TRY(scan_string(s, &key));
        if (!eat(s, ':')) {
            return bad(s, "':' is missing");
        }
        if (plim_str_eq(key, PLIM_STR("dtype"))) {
            struct plim_str text;
            PLIM_TRY(scan_string(s, &text));
            t->dtype = plim_dtype_from(text);
            typed = true;
            if (t->dtype == PLIM_DTYPE_UNKNOWN) {
                return bad(s, "unknown element type");
            }
        } else if (plim_str_eq(key, PLIM_STR("shape"))) {
            PLIM_TRY(scan_numbers(s, t->dims, PLIM_TENSOR_DIMS, &t->n_dims));
            shaped = true;
        } else if (plim_str_eq(key, PLIM_STR("data_offsets"))) {
            PLIM_TRY(scan_numbers(s, ends, 2, &n_ends));
        } else {
            PLIM_TRY(skip_value(s));
        }
    } while (eat(s, ','));
    if (!eat(s, '}')) {
        return bad(s, "a tensor does not end");
    }
    if (!typed || !shaped || n_ends != 2) {
        return bad(s, "a tensor lacks dtype, shape or data_offsets");
    }
    PLIM_TRY(plim__tensor_size(t, s->err));
    t->offset = ends[0];
    if (ends[1] < ends[0] || ends[1] - ends[0] != t->bytes) {
        return bad(s, "data_offsets contradict dtype and shape");
    }
    return PLIM_OK;
}

typedef PLIM_VEC(struct plim_tensor) tensor_vec;

/* "name": a tensor, or the metadata, which nobody needs. */
static enum plim_status scan_entry(struct scanner *s, tensor_vec *list)
{
    struct plim_str name;
    struct plim_tensor t = {0};
    PLIM_TRY(scan_string(s, &name));
    if (!eat(s, ':')) {
        return bad(s, "':' is missing");
    }
    if (plim_str_eq(name, PLIM_STR("__metadata__"))) {
        return skip_value(s);
    }
    PLIM_TRY(plim_arena_str(s->arena, name, &t.name, s->err));
    PLIM_TRY(scan_tensor(s, &t));
    return plim_vec_push(list, s->err, t);
}

static enum plim_status scan_header(struct scanner *s, tensor_vec *list)
{
    if (!eat(s, '{')) {
        return bad(s, "the header is no JSON object");
    }
    bool empty = eat(s, '}');
    if (!empty) {
        do {
            PLIM_TRY(scan_entry(s, list));
        } while (eat(s, ','));
    }
    if (!empty && !eat(s, '}')) {
        return bad(s, "the header does not end");
    }
    skip_blanks(s);
    return s->p == s->end ? PLIM_OK : bad(s, "something follows the header's object");
}

static enum plim_status header_text(struct plim_window *w, uint64_t file_bytes,
                                    struct plim_str *text, struct plim_err *err)
{
    struct plim_str size;
    uint64_t n = 0;
    PLIM_TRY(plim__window_take(w, 8, &size, err));
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | (uint8_t)size.p[i];
    }
    if (n > PLIM_SAFETENSORS_HEADER_MAX) {
        (void)plim__fail(err, PLIM_E_RANGE, "a header of %" PRIu64 " bytes: no safetensors file",
                         n);
        plim__err_hint(err, "the first eight bytes are the header's size, at most 100 MB");
        return PLIM_E_RANGE;
    }
    if (file_bytes != 0 && n > file_bytes - 8) {
        return plim__fail(err, PLIM_E_TRUNCATED,
                          "the header has %" PRIu64 " bytes, the file %" PRIu64, n, file_bytes);
    }
    return plim__window_take(w, n, text, err);
}

static enum plim_status read_table(struct plim_arena *arena, struct plim_window *w,
                                   uint64_t file_bytes, tensor_vec *list, struct plim_tensors *out,
                                   struct plim_err *err)
{
    struct plim_str text;
    PLIM_TRY(header_text(w, file_bytes, &text, err));
    struct scanner s = {text.p, text.p, text.p + text.n, arena, err};
    PLIM_TRY(scan_header(&s, list));
    void *items = NULL;
    PLIM_TRY(plim_arena_array(arena, list->n, sizeof *list->items, &items, err));
    *out = (struct plim_tensors){.items = items, .n = list->n, .header_bytes = 8 + text.n};
    for (size_t i = 0; i < list->n; i++) {
        out->items[i] = list->items[i];
        out->bytes = plim_add_sat(out->bytes, list->items[i].bytes);
    }
    uint64_t data = file_bytes != 0 ? file_bytes - out->header_bytes : UINT64_MAX;
    return plim__tensors_check(arena, out, data, false, err);
}

enum plim_status plim_safetensors_read(struct plim_arena *arena, struct plim_source *source,
                                       struct plim_tensors *out, struct plim_err *err)
{
    struct plim_window w;
    struct plim_tensors table;
    tensor_vec list = {0};
    PLIM_TRY(plim__window_init(&w, source, err));
    enum plim_status st = read_table(arena, &w, source->size, &list, &table, err);
    plim_vec_fini(&list);
    plim__window_fini(&w);
    if (st == PLIM_OK) {
        *out = table;
    }
    return st;
}

/* ---- the index */

static bool stays_in_folder(const char *name)
{
    return name[0] != '\0' && name[0] != '/' && strstr(name, "..") == NULL;
}

static enum plim_status collect_shards(struct plim_arena *arena, json_t *map,
                                       struct plim_safetensors_index *out, struct plim_err *err)
{
    const char *key;
    json_t *value;
    void *names = NULL;
    json_t *seen = json_object(); /* names met so far */
    enum plim_status st = seen == NULL ? plim__fail(err, PLIM_E_NOMEM, "no memory for the index")
                                       : plim_arena_array(arena, json_object_size(map) + 1,
                                                          sizeof(const char *), &names, err);
    *out = (struct plim_safetensors_index){.shards = names, .n_tensors = json_object_size(map)};
    json_object_foreach(map, key, value)
    {
        const char *shard = json_string_value(value);
        struct plim_str copy;
        if (st != PLIM_OK) {
            break;
        }
        if (shard == NULL || !stays_in_folder(shard)) {
            st = plim__fail(err, PLIM_E_DATA, "tensor %.100s is in no file of this folder", key);
        } else if (json_object_get(seen, shard) == NULL) {
            st = plim_arena_str(arena, plim_str_from(shard), &copy, err);
            if (st == PLIM_OK) {
                out->shards[out->n_shards++] = copy.p;
                st = json_object_set_new(seen, shard, json_true()) == 0
                         ? PLIM_OK
                         : plim__fail(err, PLIM_E_NOMEM, "no memory for the index");
            }
        }
    }
    json_decref(seen);
    return st;
}

enum plim_status plim_safetensors_index_read(struct plim_arena *arena, struct plim_str text,
                                             struct plim_safetensors_index *out,
                                             struct plim_err *err)
{
    json_error_t at;
    struct plim_safetensors_index index;
    if (text.n > INDEX_MAX) {
        return plim__fail(err, PLIM_E_BUDGET, "an index of %zu bytes is too large", text.n);
    }
    json_t *root = json_loadb(text.p, text.n, 0, &at);
    json_t *map = json_object_get(root, "weight_map");
    enum plim_status st = PLIM_OK;
    if (!json_is_object(map)) {
        st = plim__fail(err, PLIM_E_DATA,
                        root == NULL ? "not JSON: %s" : "no weight_map in the index%s",
                        root == NULL ? at.text : "");
        plim__err_where(err, "index: line");
        plim__err_at(err, root == NULL && at.line > 0 ? (uint64_t)at.line : 1);
    } else {
        st = collect_shards(arena, map, &index, err);
    }
    if (st == PLIM_OK) {
        json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
        double size = json_number_value(total); /* some files have a float */
        index.total_size = json_is_integer(total) && json_integer_value(total) > 0
                               ? (uint64_t)json_integer_value(total)
                           : size > 0 && size < 1e18 ? (uint64_t)size
                                                     : 0;
        *out = index;
    }
    json_decref(root);
    return st;
}
