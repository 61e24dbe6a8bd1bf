/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reading the settings file by the table in config.h: sections find or make their struct, keys find their row,
 * values are converted into the row's field.
 */

#include "watch/config.h"

#include "base/bytes.h"
#include "base/ini.h"
#include "base/near.h"
#include "base/num.h"
#include "base/scalar.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_BUDGET (4u << 20) /* bytes of all settings: a file of a MiB is the most */
#define SECTIONS_MAX  256u       /* of one kind */
#define HELP_COLUMNS  78u        /* of the example file */

enum kind {
    TEXT,
    CHOICE,
    FLAG,
    WORDS,
    SIZE,
    DURATION,
    COUNT,
    REAL
};

struct row {
    const char *key;
    enum kind kind;
    const char *allowed; /* of a CHOICE */
    const char *initial; /* NULL: none */
    const char *example;
    const char *help;
    size_t offset; /* of the field */
};

struct section {
    const char *name;
    bool named;
    const char *about;
    const struct row *rows; /* [n_rows] */
    size_t n_rows;
    size_t size; /* bytes of its struct */
    size_t vec;  /* offset of its vector in struct plim_settings */
};

#define ROW(S, field, kind, key, allowed, initial, example, help)                                  \
    {key, kind, allowed, initial, example, help, offsetof(struct S, field)},
#define ROWS(section, named, about)                                                                \
    static const struct row rows_##section[] = {PLIM_SETTINGS_##section(ROW, plim_set_##section)}; \
    _Static_assert(PLIM_COUNT_OF(rows_##section) <= 64, "`said` is one word");
PLIM_SETTINGS_SECTION_MAP(ROWS)

#define SECTION(section, named, about)                                                             \
    {#section,                                                                                     \
     named,                                                                                        \
     about,                                                                                        \
     rows_##section,                                                                               \
     PLIM_COUNT_OF(rows_##section),                                                                \
     sizeof(struct plim_set_##section),                                                            \
     offsetof(struct plim_settings, section)},
static const struct section sections[] = {PLIM_SETTINGS_SECTION_MAP(SECTION)};

/* What every struct plim_set_<section> begins with, and every vector of them. */
struct head {
    const char *name;
    int line;
    uint64_t said;
};

/* A PLIM_VEC of any of them. */
struct vec {
    void *items;
    size_t n;
    size_t cap;
};

static struct vec get_vec(const struct plim_settings *s, const struct section *section)
{
    struct vec vec;
    memcpy(&vec, (const char *)s + section->vec, sizeof(vec));
    return vec;
}

static void put_vec(struct plim_settings *s, const struct section *section, const struct vec *vec)
{
    memcpy((char *)s + section->vec, vec, sizeof(*vec));
}

/* ---- values ---- */

static enum plim_status set_words(struct plim_arena *arena, const char *text,
                                  struct plim_set_words *out, struct plim_err *err)
{
    static const char between[] = " \t,";
    const char *own = NULL;
    void *items = NULL;
    size_t n = 0;
    PLIM_TRY(plim_arena_text(arena, text, &own, err));
    PLIM_TRY(plim_arena_array(arena, strlen(own) / 2 + 1, sizeof(*out->items), &items, err));
    out->items = items;
    for (char *word = (char *)(uintptr_t)own + strspn(own, between); *word != '\0'; n++) {
        char *end = word + strcspn(word, between);
        out->items[n] = word;
        word = end + strspn(end, between);
        *end = '\0';
    }
    out->n = n;
    return n > 0 ? PLIM_OK : plim__fail(err, PLIM_E_USAGE, "no word is given");
}

static enum plim_status set_value(struct plim_arena *arena, const struct row *row, const char *text,
                                  char *field, struct plim_err *err)
{
    void *to = field;
    struct plim_set_u64 *number = to;
    struct plim_set_real *real = to;
    switch (row->kind) {
    case TEXT:
        return plim_arena_text(arena, text, to, err);
    case WORDS:
        return set_words(arena, text, to, err);
    case CHOICE:
        if (plim_choice_offers(row->allowed, text)) {
            return plim_arena_text(arena, text, to, err);
        }
        return plim__fail(err, PLIM_E_USAGE, "'%.40s' is not one of %s", text, row->allowed);
    case FLAG:
        return plim_flag_parse(text, to)
                   ? PLIM_OK
                   : plim__fail(err, PLIM_E_USAGE, "'%.40s' is not yes or no", text);
    case SIZE:
        number->given =
            plim_bytes_parse(plim_str_from(text), &number->value, NULL, NULL) == PLIM_OK;
        return number->given ? PLIM_OK
                             : plim__fail(err, PLIM_E_USAGE,
                                          "'%.40s' is not a size such as 512MiB or 2GiB", text);
    case DURATION:
        number->given = plim_duration_parse(text, &number->value);
        return number->given ? PLIM_OK
                             : plim__fail(err, PLIM_E_USAGE,
                                          "'%.40s' is not a duration such as 90s or 5m", text);
    case COUNT:
        number->given = plim_count_parse(text, &number->value);
        return number->given ? PLIM_OK
                             : plim__fail(err, PLIM_E_USAGE, "'%.40s' is not a whole number", text);
    case REAL:
        real->given = plim_real_parse(text, &real->value);
        return real->given ? PLIM_OK
                           : plim__fail(err, PLIM_E_USAGE, "'%.40s' is not a number", text);
    }
    return plim__fail(err, PLIM_E_INTERNAL, "key '%s' has no kind", row->key);
}

/* ---- sections ---- */

static enum plim_status add_section(struct plim_settings *s, const struct section *section,
                                    const char *name, int line, char **out, struct plim_err *err)
{
    struct vec vec = get_vec(s, section);
    if (vec.n >= SECTIONS_MAX) {
        return plim__fail(err, PLIM_E_BUDGET, "more than %u sections [%s ...]", SECTIONS_MAX,
                          section->name);
    }
    if (vec.n == vec.cap) {
        PLIM_TRY(plim__vec_grow(&vec.items, &vec.cap, vec.n, 1, section->size, err));
        put_vec(s, section, &vec);
    }
    char *item = (char *)vec.items + vec.n * section->size;
    memset(item, 0, section->size);
    struct head head = {.line = line};
    PLIM_TRY(plim_arena_text(&s->arena, name, &head.name, err));
    memcpy(item, &head, sizeof(head));
    for (size_t i = 0; i < section->n_rows; i++) {
        const struct row *row = &section->rows[i];
        if (row->initial != NULL) {
            PLIM_TRY(set_value(&s->arena, row, row->initial, item + row->offset, err));
        }
    }
    vec.n++;
    put_vec(s, section, &vec);
    *out = item;
    return PLIM_OK;
}

static enum plim_status unknown_section(const char *word, struct plim_err *err)
{
    const char *best = NULL;
    unsigned least = PLIM_NEAR_MAX;
    for (size_t i = 0; i < PLIM_COUNT_OF(sections); i++) {
        unsigned d = plim_near(word, sections[i].name);
        if (d < least) {
            least = d;
            best = sections[i].name;
        }
    }
    plim__err_set(err, PLIM_E_USAGE, "unknown section [%.40s]", word);
    if (best != NULL) {
        plim__err_hint(err, "did you mean [%s]?", best);
    } else {
        plim__err_hint(err, "sections are [watch], [engine NAME], [log NAME], [alert NAME], "
                            "[notify NAME] and [peer NAME]");
    }
    return PLIM_E_USAGE;
}

/* The kind of section that "notify pager" is, and the name in it. */
static enum plim_status section_kind(const char *words, const struct section **out,
                                     const char **name, struct plim_err *err)
{
    size_t n = strcspn(words, " \t");
    char word[64] = "";
    memcpy(word, words, n < sizeof(word) ? n : sizeof(word) - 1);
    *name = words + n + strspn(words + n, " \t");
    for (size_t i = 0; i < PLIM_COUNT_OF(sections); i++) {
        if (strcmp(sections[i].name, word) != 0) {
            continue;
        }
        *out = &sections[i];
        if (sections[i].named == (**name != '\0')) {
            return PLIM_OK;
        }
        return plim__fail(err, PLIM_E_USAGE,
                          sections[i].named ? "section [%s NAME] needs a name"
                                            : "section [%s] has no name",
                          word);
    }
    return n == 0 ? plim__fail(err, PLIM_E_USAGE, "a key before the first [section]")
                  : unknown_section(word, err);
}

static enum plim_status find_section(struct plim_settings *s, const struct section *section,
                                     const char *name, int line, char **out, struct plim_err *err)
{
    struct vec vec = get_vec(s, section);
    for (size_t i = 0; i < vec.n; i++) {
        struct head head;
        *out = (char *)vec.items + i * section->size;
        memcpy(&head, *out, sizeof(head));
        if (strcmp(head.name, name) == 0) {
            head.line = head.line ? head.line : line;
            memcpy(*out, &head, sizeof(head));
            return PLIM_OK;
        }
    }
    return add_section(s, section, name, line, out, err);
}

static enum plim_status find_row(const struct section *section, const char *key, size_t *out,
                                 struct plim_err *err)
{
    const char *best = NULL;
    unsigned least = PLIM_NEAR_MAX;
    for (size_t i = 0; i < section->n_rows; i++) {
        if (strcmp(section->rows[i].key, key) == 0) {
            *out = i;
            return PLIM_OK;
        }
        unsigned d = plim_near(key, section->rows[i].key);
        if (d < least) {
            least = d;
            best = section->rows[i].key;
        }
    }
    plim__err_set(err, PLIM_E_USAGE, "unknown key '%.40s' in [%s]", key, section->name);
    if (best != NULL) {
        plim__err_hint(err, "did you mean '%s'?", best);
    } else {
        plim__err_hint(err, "'plimsoll watch --example-settings' shows all keys");
    }
    return PLIM_E_USAGE;
}

static enum plim_status take(void *user, const char *words, const char *key, const char *value,
                             int line, struct plim_err *err)
{
    struct plim_settings *s = user;
    const struct section *section = NULL;
    const char *name = NULL;
    char *item = NULL;
    size_t i = 0;
    struct head head;
    PLIM_TRY(section_kind(words, &section, &name, err));
    PLIM_TRY(find_section(s, section, name, line, &item, err));
    PLIM_TRY(find_row(section, key, &i, err));
    memcpy(&head, item, sizeof(head));
    if ((head.said >> i & 1) != 0) {
        return plim__fail(err, PLIM_E_USAGE, "key '%s' a second time in this section", key);
    }
    head.said |= UINT64_C(1) << i;
    memcpy(item, &head, sizeof(head));
    return set_value(&s->arena, &section->rows[i], value, item + section->rows[i].offset, err);
}

enum plim_status plim_settings_read(const char *path, struct plim_settings **out,
                                    struct plim_err *err)
{
    struct plim_settings *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the settings");
    }
    char *watch = NULL;
    plim_arena_init(&s->arena, MEMORY_BUDGET);
    enum plim_status st = add_section(s, &sections[0], "", 0, &watch, err);
    if (st == PLIM_OK && path != NULL) {
        st = plim_arena_text(&s->arena, path, &s->path, err);
        st = st == PLIM_OK ? plim_ini_read(path, take, s, err) : st;
    }
    if (st != PLIM_OK) {
        plim_settings_free(s);
        return st;
    }
    *out = s;
    return PLIM_OK;
}

void plim_settings_free(struct plim_settings *s)
{
    if (s == NULL) {
        return;
    }
#define FREE(section, named, about) plim_vec_fini(&s->section);
    PLIM_SETTINGS_SECTION_MAP(FREE)
#undef FREE
    plim_arena_fini(&s->arena);
    free(s);
}

void plim__settings_where(const struct plim_settings *s, int line, const char *name,
                          struct plim_err *err)
{
    if (s->path != NULL && line > 0) {
        plim__err_where(err, "%.50s:%d%s%.30s", s->path, line, name[0] ? " " : "", name);
    }
}

/* ---- the example ---- */

static void put_comment(struct plim_buf *out, const char *text)
{
    while (*text != '\0') {
        size_t n = strlen(text);
        if (n > HELP_COLUMNS - 2) {
            n = HELP_COLUMNS - 2;
            while (n > 1 && text[n] != ' ') {
                n--;
            }
        }
        plim_buf_printf(out, "# %.*s\n", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

void plim_settings_example(struct plim_buf *out)
{
    put_comment(out,
                "Settings of plimsoll watch: see plimsoll-watch(1). What is commented out is an "
                "example, or the default where there is one. 'plimsoll watch --check-settings "
                "--settings FILE' checks a file; SIGHUP makes the monitor read it again.");
    for (size_t i = 0; i < PLIM_COUNT_OF(sections); i++) {
        const struct section *section = &sections[i];
        plim_buf_char(out, '\n');
        put_comment(out, section->about);
        plim_buf_printf(out, section->named ? "#[%s NAME]\n" : "[%s]\n", section->name);
        for (size_t k = 0; k < section->n_rows; k++) {
            const struct row *row = &section->rows[k];
            plim_buf_char(out, '\n');
            put_comment(out, row->help);
            if (row->allowed != NULL) {
                plim_buf_printf(out, "# One of %s.\n", row->allowed);
            }
            plim_buf_printf(out, "#%s = %s\n", row->key,
                            row->initial ? row->initial : row->example);
        }
    }
}
