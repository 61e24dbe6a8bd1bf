/* SPDX-License-Identifier: Apache-2.0 */
/* See fields.h. */

#include "serving/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define KEY_MAX 64 /* bytes of a key that this library looks for */

struct plim__node plim__node_of(const struct plim__config *c, json_t *object, const char *path,
                                const char *model_type)
{
    json_t *defaults = json_object_get(c->classes, model_type);
    return (struct plim__node){object, defaults, path, defaults != NULL ? model_type : ""};
}

enum plim_status plim__config_fail(struct plim__config *c, enum plim_status st,
                                   const struct plim__node *node, const char *key, const char *fmt,
                                   ...)
{
    if (c->st != PLIM_OK) {
        return c->st;
    }
    char text[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->st = plim__fail(c->err, st, "%s", text);
    plim__err_where(c->err, "%s: %s%s", c->name, node->path, key);
    return c->st;
}

/* Keep the sticky status of a step that fails only for want of memory. */
static void keep(struct plim__config *c, enum plim_status st)
{
    if (c->st == PLIM_OK) {
        c->st = st;
    }
}

void plim__note(struct plim__config *c, const char *fmt, ...)
{
    char text[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct plim_str copy;
    enum plim_status st = plim_arena_str(c->arena, plim_str_from(text), &copy, c->err);
    keep(c, st);
    if (st == PLIM_OK) {
        keep(c, plim_vec_push(&c->notes, c->err, copy.p));
    }
}

void plim__origin(struct plim__config *c, const char *field, const char *key,
                  enum plim_origin_kind kind, uint64_t value)
{
    for (size_t i = 0; i < c->origins.n; i++) {
        if (strcmp(c->origins.items[i].field, field) == 0) {
            return; /* the first word about a field holds; layers repeat the question */
        }
    }
    struct plim_str copy;
    enum plim_status st = plim_arena_str(c->arena, plim_str_from(key), &copy, c->err);
    keep(c, st);
    if (st == PLIM_OK) {
        keep(c,
             plim_vec_push(&c->origins, c->err, (struct plim_origin){field, copy.p, kind, value}));
    }
}

const char *plim__origin_of(const struct plim__config *c, const char *field)
{
    for (size_t i = 0; i < c->origins.n; i++) {
        if (strcmp(c->origins.items[i].field, field) == 0) {
            return c->origins.items[i].key;
        }
    }
    return "";
}

/* Copy the next word of *keys to `word`; false at the end. */
static bool next_key(const char **keys, char word[KEY_MAX])
{
    size_t n = strcspn(*keys, " ");
    if (n == 0) {
        return false;
    }
    size_t kept = n < KEY_MAX ? n : KEY_MAX - 1;
    memcpy(word, *keys, kept);
    word[kept] = '\0';
    *keys += n + strspn(*keys + n, " ");
    return true;
}

/* The first of `keys` in `object` that is not null; its name in `word`. */
static json_t *first_of(json_t *object, const char *keys, char word[KEY_MAX])
{
    while (object != NULL && next_key(&keys, word)) {
        json_t *value = json_object_get(object, word);
        if (value != NULL && !json_is_null(value)) {
            return value;
        }
    }
    return NULL;
}

/* The same in the object, then in the defaults of its class. */
static json_t *file_or_default(const struct plim__node *node, const char *keys, char word[KEY_MAX])
{
    json_t *value = first_of(node->object, keys, word);
    return value != NULL ? value : first_of(node->defaults, keys, word);
}

json_t *plim__get(struct plim__config *c, const struct plim__node *node, const char *keys,
                  const char **key)
{
    char word[KEY_MAX];
    json_t *value = first_of(node->object, keys, word);
    if (value != NULL && key != NULL) {
        struct plim_str copy;
        enum plim_status st = plim_arena_str(c->arena, plim_str_from(word), &copy, c->err);
        keep(c, st);
        *key = st == PLIM_OK ? copy.p : "";
    }
    return value;
}

bool plim__has(struct plim__config *c, const struct plim__node *node, const char *keys)
{
    return plim__get(c, node, keys, NULL) != NULL;
}

/* A JSON number that is whole and at most `max`. */
static uint32_t whole_number(struct plim__config *c, const struct plim__node *node, const char *key,
                             const json_t *value, uint32_t max)
{
    double real = json_is_real(value) ? json_real_value(value) : 0;
    json_int_t whole = json_is_integer(value) ? json_integer_value(value) : 0;
    bool integral = real >= floor(real) && real <= floor(real) && fabs(real) < 1e15;
    if (json_is_real(value) && integral) {
        whole = (json_int_t)real; /* 4096.0 */
    } else if (!json_is_integer(value)) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, key, "%s is not a whole number", key);
        return 0;
    }
    if (whole < 0 || whole > (json_int_t)max) {
        (void)plim__config_fail(c, PLIM_E_RANGE, node, key, "%s is %lld, which no model has", key,
                                (long long)whole);
        return 0;
    }
    return (uint32_t)whole;
}

/* Book where a value was found: in the file under `word`, or in the defaults of the class. */
static void book(struct plim__config *c, const struct plim__node *node, const char *field,
                 const char *word, bool in_file, uint64_t value)
{
    char key[KEY_MAX * 2];
    if (in_file) {
        snprintf(key, sizeof key, "%s%s", node->path, word);
    } else {
        snprintf(key, sizeof key, "default of %s (transformers 5.20.0)", node->class_name);
    }
    plim__origin(c, field, key, in_file ? PLIM_ORIGIN_FILE : PLIM_ORIGIN_DEFAULT, value);
}

/* The value of a field; of layer i of n when the file has an array. */
static uint32_t read_number(struct plim__config *c, const struct plim__node *node,
                            const char *field, const char *keys, uint32_t i, uint32_t n,
                            uint32_t max)
{
    char word[KEY_MAX];
    json_t *value = first_of(node->object, keys, word);
    bool in_file = value != NULL;
    if (!in_file) {
        value = first_of(node->defaults, keys, word);
    }
    if (value == NULL || c->st != PLIM_OK) {
        return 0;
    }
    if (json_is_array(value) && n > 0) {
        if (json_array_size(value) < n) {
            (void)plim__config_fail(c, PLIM_E_DATA, node, word, "%s has %zu values for %u layers",
                                    word, json_array_size(value), n);
            return 0;
        }
        value = json_array_get(value, i);
        if (json_is_null(value)) {
            return 0;
        }
    }
    uint32_t number = whole_number(c, node, word, value, max);
    book(c, node, field, word, in_file, number);
    return number;
}

uint32_t plim__u32_at(struct plim__config *c, const struct plim__node *node, const char *field,
                      const char *keys, uint32_t i, uint32_t n)
{
    return read_number(c, node, field, keys, i, n, PLIM_DIM_MAX);
}

uint32_t plim__u32(struct plim__config *c, const struct plim__node *node, const char *field,
                   const char *keys)
{
    return read_number(c, node, field, keys, 0, 0, PLIM_DIM_MAX);
}

uint32_t plim__tokens(struct plim__config *c, const struct plim__node *node, const char *field,
                      const char *keys)
{
    return read_number(c, node, field, keys, 0, 0, INT32_MAX);
}

uint32_t plim__need(struct plim__config *c, const struct plim__node *node, const char *field,
                    const char *keys)
{
    char word[KEY_MAX];
    uint32_t value = plim__u32(c, node, field, keys);
    if (value == 0 && c->st == PLIM_OK) {
        bool given = first_of(node->object, keys, word) != NULL;
        const char *first = keys;
        (void)(given || next_key(&first, word));
        (void)plim__config_fail(c, given ? PLIM_E_RANGE : PLIM_E_DATA, node, word,
                                given ? "%s is 0" : "%s is missing, and its class has no default",
                                word);
    }
    return value;
}

uint32_t plim__derived(struct plim__config *c, const struct plim__node *node, const char *key,
                       uint64_t value)
{
    if (value > PLIM__DERIVED_MAX) {
        (void)plim__config_fail(c, PLIM_E_RANGE, node, key,
                                "%s makes a size of %llu, which no model has", key,
                                (unsigned long long)value);
        return 0;
    }
    return (uint32_t)value;
}

bool plim__flag(struct plim__config *c, const struct plim__node *node, const char *keys,
                bool absent)
{
    char word[KEY_MAX];
    json_t *value = file_or_default(node, keys, word);
    if (value == NULL) {
        return absent;
    }
    if (json_is_boolean(value)) {
        return json_is_true(value);
    }
    if (json_is_integer(value) &&
        (json_integer_value(value) == 0 || json_integer_value(value) == 1)) {
        return json_integer_value(value) == 1;
    }
    (void)plim__config_fail(c, PLIM_E_DATA, node, word, "%s is neither true nor false", word);
    return absent;
}

bool plim__switch(struct plim__config *c, const struct plim__node *node, const char *rule)
{
    char word[KEY_MAX];
    while (rule != NULL && next_key(&rule, word)) {
        if (strcmp(word, "always") == 0) {
            return true;
        }
        bool negated = word[0] == '!';
        const char *key = negated ? word + 1 : word;
        bool known = plim__has(c, node, key) || json_object_get(node->defaults, key) != NULL;
        if (known) {
            return plim__flag(c, node, key, false) != negated;
        }
    }
    return false;
}

const char *plim__text(struct plim__config *c, const struct plim__node *node, const char *keys)
{
    char word[KEY_MAX];
    json_t *value = first_of(node->object, keys, word);
    if (value == NULL) {
        return NULL;
    }
    if (!json_is_string(value)) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, word, "%s is not a text", word);
        return NULL;
    }
    struct plim_str copy;
    enum plim_status st =
        plim_arena_str(c->arena, plim_str_from(json_string_value(value)), &copy, c->err);
    keep(c, st);
    return st == PLIM_OK ? copy.p : NULL;
}

double plim__real(struct plim__config *c, const struct plim__node *node, const char *keys,
                  double absent)
{
    char word[KEY_MAX];
    json_t *value = file_or_default(node, keys, word);
    if (value == NULL) {
        return absent;
    }
    if (!json_is_number(value)) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, word, "%s is not a number", word);
        return absent;
    }
    return json_number_value(value);
}

/* The value under the first of `keys` when it has the wanted kind. */
static json_t *typed(struct plim__config *c, const struct plim__node *node, const char *keys,
                     json_type type, const char *what)
{
    char word[KEY_MAX];
    json_t *value = first_of(node->object, keys, word);
    if (value != NULL && json_typeof(value) != type) {
        (void)plim__config_fail(c, PLIM_E_DATA, node, word, "%s is not %s", word, what);
        return NULL;
    }
    return value;
}

json_t *plim__child(struct plim__config *c, const struct plim__node *node, const char *keys)
{
    return typed(c, node, keys, JSON_OBJECT, "an object");
}

json_t *plim__list(struct plim__config *c, const struct plim__node *node, const char *keys)
{
    return typed(c, node, keys, JSON_ARRAY, "a list");
}
