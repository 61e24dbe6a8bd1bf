/* SPDX-License-Identifier: Apache-2.0 */
/* See capture.h. */

#include "format/capture.h"

#include "base/num.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>

#define SCHEMA "plimsoll.drop/1"

/* A copy of at most PLIM_TAG_BYTES, cut between characters of UTF-8, without control characters. */
static const char *clean(struct plim_arena *arena, const char *text, size_t n)
{
    char copy[PLIM_TAG_BYTES];
    size_t cut = n > PLIM_TAG_BYTES ? PLIM_TAG_BYTES : n;
    while (cut < n && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80) {
        cut--;
    }
    for (size_t i = 0; i < cut; i++) {
        copy[i] = iscntrl((unsigned char)text[i]) ? ' ' : text[i];
    }
    return plim_arena_sayf(arena, "%.*s", (int)cut, copy);
}

static bool take_count(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(object, key);
    bool good = json_is_integer(v) && json_integer_value(v) >= 0;
    if (good) {
        *out = (uint64_t)json_integer_value(v);
    }
    return good;
}

/* The value as text, or NULL for what is no single value. */
static const char *text_of(const json_t *v, struct plim_arena *arena)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return clean(arena, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
        return plim_arena_sayf(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    case JSON_REAL:
        return plim_arena_sayf(arena, "%g", json_real_value(v));
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
    case JSON_OBJECT:
    case JSON_ARRAY:
        break;
    }
    return NULL;
}

static bool has_tag(const struct plim_tags *tags, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < tags->n && !found; i++) {
        found = strcmp(tags->items[i].name, name) == 0;
    }
    return found;
}

/* The single values of an object, and those of the objects in it; the first of a name counts. */
static void add_tags(json_t *object, bool inner, struct plim_arena *arena, struct plim_tags *out)
{
    const char *key;
    json_t *v;
    json_object_foreach(object, key, v)
    {
        const char *text = text_of(v, arena);
        if (json_is_object(v) && !inner) {
            add_tags(v, true, arena, out);
        } else if (text != NULL && out->n < PLIM_CAPTURE_TAGS) {
            const char *name = clean(arena, key, strlen(key));
            if (!has_tag(out, name)) {
                out->items[out->n++] = (struct plim_tag){name, text, json_is_integer(v)};
            }
        }
    }
}

static void take_devices(const json_t *list, struct plim_capture *out)
{
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        struct plim_capture_device row;
        if (out->n_devices < PLIM_CAPTURE_DEVICES && take_count(v, "index", &row.index) &&
            take_count(v, "total_bytes", &row.total) && row.total > 0) {
            out->devices[out->n_devices++] = row;
        }
    }
}

static enum plim_status parse(struct plim_str text, json_t **out, struct plim_err *err)
{
    json_error_t why;
    json_t *root = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL && json_error_code(&why) == json_error_out_of_memory) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the facts of a snapshot");
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return plim__fail(err, PLIM_E_DATA, "no JSON object");
    }
    *out = root;
    return PLIM_OK;
}

enum plim_status plim_tags_read(struct plim_str text, struct plim_arena *arena,
                                struct plim_tags *out, struct plim_err *err)
{
    json_t *root;
    struct plim_tags tags = {.n = 0};
    PLIM_TRY(parse(text, &root, err));
    add_tags(root, false, arena, &tags);
    json_decref(root);
    PLIM_TRY(plim_arena_status(arena, err));
    *out = tags;
    return PLIM_OK;
}

enum plim_status plim_capture_read(struct plim_str text, struct plim_arena *arena,
                                   struct plim_capture *out, struct plim_err *err)
{
    json_t *root;
    struct plim_capture c = {.failure = false};
    PLIM_TRY(parse(text, &root, err));
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (schema == NULL || strcmp(schema, SCHEMA) != 0) {
        json_decref(root);
        return plim__fail(err, PLIM_E_DATA, "the facts are not of the schema " SCHEMA);
    }
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const json_t *torch = json_object_get(json_object_get(root, "versions"), "torch");
    uint64_t total;
    c.failure = kind != NULL && strcmp(kind, "oom") == 0 && take_count(root, "device", &c.device);
    c.torch = json_is_string(torch)
                  ? clean(arena, json_string_value(torch), json_string_length(torch))
                  : NULL;
    (void)take_count(root, "limit_bytes", &c.limit);
    add_tags(json_object_get(root, "tags"), false, arena, &c.tags);
    if (c.failure && take_count(root, "device_total_bytes", &total)) {
        c.devices[c.n_devices++] = (struct plim_capture_device){c.device, total};
    }
    take_devices(json_object_get(root, "devices"), &c);
    json_decref(root);
    PLIM_TRY(plim_arena_status(arena, err));
    *out = c;
    return PLIM_OK;
}

uint64_t plim_capture_total(const struct plim_capture *capture, uint64_t device)
{
    for (uint32_t i = 0; i < capture->n_devices; i++) {
        if (capture->devices[i].index == device) {
            return capture->devices[i].total;
        }
    }
    return 0;
}
