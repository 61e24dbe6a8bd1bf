/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matcher of the pattern language described at struct plim_oom_row: a small backtracking
 * interpreter that walks pattern and text together. Steps are counted, so that no text can make one
 * match cost more than STEPS_MOST.
 */

#include "format/oomtext_internal.h"

#include "base/num.h"

#define STEPS_MOST    20000
#define STAR_MOST     200 /* most bytes a '*' skips */
#define BACKWARD_MOST 40  /* most bytes a leading field takes */
#define SPECIALS      "{}[]<>|*~#^$"

struct run {
    struct plim_str text;
    struct plim__oom_match *match;
    size_t end; /* where the whole pattern ended */
    unsigned steps;
};

static const char *const field_words[] = {
#define PLIM__X(name, word, meaning) word,
    PLIM_OOM_FIELD_MAP(PLIM__X)
#undef PLIM__X
};

static const char *const type_words[] = {
    [PLIM__OOM_SIZE] = "size",   [PLIM__OOM_BYTES] = "bytes", [PLIM__OOM_INT] = "int",
    [PLIM__OOM_REAL] = "real",   [PLIM__OOM_MIB] = "mib",     [PLIM__OOM_GIB] = "gib",
    [PLIM__OOM_SHAPE] = "shape",
};

static bool is_blank(char c)
{
    return plim__oom_fold(c) == ' ';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Index of the word that ends at `stop` in the list, or n. */
static size_t word_index(const char *const *words, size_t n, const char *p, const char *stop)
{
    size_t len = (size_t)(stop - p);
    for (size_t i = 0; i < n; i++) {
        if (strlen(words[i]) == len && memcmp(words[i], p, len) == 0) {
            return i;
        }
    }
    return n;
}

/* "{field:type}" at p: what it says, and the pattern behind it; NULL when malformed. */
static const char *parse_field(const char *p, enum plim_oom_field *field, enum plim__oom_type *type)
{
    const char *colon = strchr(p, ':'), *close = strchr(p, '}');
    if (!colon || !close || colon > close) {
        return NULL;
    }
    size_t f = word_index(field_words, PLIM_COUNT_OF(field_words), p + 1, colon);
    size_t t = word_index(type_words, PLIM_COUNT_OF(type_words), colon + 1, close);
    if (f == PLIM_COUNT_OF(field_words) || t == PLIM_COUNT_OF(type_words)) {
        return NULL;
    }
    *field = (enum plim_oom_field)f;
    *type = (enum plim__oom_type)t;
    return close + 1;
}

static void capture(struct plim__oom_match *match, enum plim_oom_field field,
                    const struct plim_oom_value *value)
{
    if (match->captures < PLIM__OOM_CAPTURES) {
        match->capture[match->captures++] = (struct plim__oom_capture){field, *value};
    }
}

/* Pattern behind the bracket that closes the one at p ('[' or '<'); the end when unbalanced. */
static const char *behind_group(const char *p)
{
    char open = *p, close = open == '[' ? ']' : '>';
    int depth = 0;
    for (; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        } else if (*p == open) {
            depth++;
        } else if (*p == close && --depth == 0) {
            return p + 1;
        }
    }
    return p;
}

static bool walk(struct run *run, const char *p, const char *stop, size_t at);

/* [..]: with what is inside, or without. */
static bool walk_optional(struct run *run, const char *p, const char *stop, size_t at)
{
    const char *behind = behind_group(p);
    size_t captures = run->match->captures;
    size_t end = run->end;
    if (walk(run, p + 1, behind - 1, at) && walk(run, behind, stop, run->end)) {
        return true;
    }
    run->match->captures = captures;
    run->end = end;
    return walk(run, behind, stop, at);
}

/* <a|b>: the first alternative with which the rest matches. */
static bool walk_choice(struct run *run, const char *p, const char *stop, size_t at)
{
    const char *behind = behind_group(p), *from = p + 1;
    size_t captures = run->match->captures;
    for (const char *q = from; q < behind; q++) {
        if (*q == '\\' && q + 1 < behind) {
            q++;
        } else if (*q == '|' || q == behind - 1) {
            if (walk(run, from, q, at) && walk(run, behind, stop, run->end)) {
                return true;
            }
            run->match->captures = captures;
            from = q + 1;
        }
    }
    return false;
}

static bool walk_star(struct run *run, const char *p, const char *stop, size_t at)
{
    size_t captures = run->match->captures;
    for (size_t skip = 0; skip <= STAR_MOST && at + skip <= run->text.n; skip++) {
        if (walk(run, p + 1, stop, at + skip)) {
            return true;
        }
        run->match->captures = captures;
    }
    return false;
}

static bool walk_field(struct run *run, const char *p, const char *stop, size_t at)
{
    enum plim_oom_field field;
    enum plim__oom_type type;
    struct plim_oom_value value;
    const char *behind = parse_field(p, &field, &type);
    size_t n = behind ? plim__oom_number(plim_str_skip(run->text, at), type, &value) : 0;
    if (n == 0) {
        return false;
    }
    capture(run->match, field, &value);
    return walk(run, behind, stop, at + n);
}

/* One plain element (not a group) at p: advance *at behind it, or false. */
static bool step(const struct run *run, char c, size_t *at)
{
    struct plim_str text = run->text;
    size_t i = *at;
    switch (c) {
    case ' ':
        for (; i < text.n && is_blank(text.p[i]); i++) {
        }
        break;
    case '#':
        for (; i < text.n && is_digit(text.p[i]); i++) {
        }
        break;
    case '~':
        for (; i < text.n && (is_blank(text.p[i]) || strchr("\"'`:=,()|\\", text.p[i])); i++) {
        }
        *at = i;
        return true;
    case '^':
        return i == 0 || text.p[i - 1] == '\n';
    case '$':
        for (; i < text.n && text.p[i] == ' '; i++) {
        }
        return i == text.n || text.p[i] == '\n';
    default:
        return false;
    }
    bool moved = i > *at;
    *at = i;
    return moved;
}

/* Match pattern [p, stop) at text[at]; on success run->end is where it ended. */
static bool walk(struct run *run, const char *p, const char *stop, size_t at)
{
    while (p < stop) {
        if (++run->steps > STEPS_MOST) {
            return false;
        }
        switch (*p) {
        case '[':
            return walk_optional(run, p, stop, at);
        case '<':
            return walk_choice(run, p, stop, at);
        case '*':
            return walk_star(run, p, stop, at);
        case '{':
            return walk_field(run, p, stop, at);
        case ' ':
        case '#':
        case '~':
        case '^':
        case '$':
            if (!step(run, *p, &at)) {
                return false;
            }
            break;
        default:
            p += *p == '\\' && p + 1 < stop;
            if (at >= run->text.n || plim__oom_fold(run->text.p[at]) != plim__oom_fold(*p)) {
                return false;
            }
            at++;
        }
        p++;
    }
    run->end = at;
    return true;
}

bool plim__oom_prepare(const struct plim_oom_row *row, struct plim__oom_grammar *out)
{
    const char *p = row->pattern;
    *out = (struct plim__oom_grammar){.row = row};
    if (*p == '^') {
        /* The line end in front belongs to the anchor: it makes it longer, so rarer. */
        out->at_line_start = true;
        out->anchor[out->n++] = ' ';
        p++;
    }
    if (*p == '{') {
        enum plim_oom_field field;
        enum plim__oom_type type;
        out->lead = p;
        p = parse_field(p, &field, &type);
        if (!p) {
            return false;
        }
    }
    out->rest = p;
    for (; *p && !strchr(SPECIALS, *p) && out->n < PLIM__OOM_ANCHOR; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        }
        out->anchor[out->n++] = plim__oom_fold(*p);
    }
    return out->n >= 3;
}

/* The field in front of the anchor: the nearest number that ends exactly there. */
static bool match_lead(const struct plim__oom_grammar *grammar, struct plim_str text, size_t at,
                       struct plim__oom_match *out)
{
    enum plim_oom_field field;
    enum plim__oom_type type;
    struct plim_oom_value value;
    if (!parse_field(grammar->lead, &field, &type)) {
        return false;
    }
    size_t stop = at;
    while (stop > 0 && at - stop < BACKWARD_MOST && is_blank(text.p[stop - 1])) {
        stop--;
    }
    for (size_t i = stop; i > 0 && stop - i < BACKWARD_MOST; i--) {
        bool begins = is_digit(text.p[i - 1]) &&
                      (i == 1 || !(is_digit(text.p[i - 2]) || strchr(".,", text.p[i - 2])));
        if (begins) {
            struct plim_str number = {text.p + i - 1, stop - (i - 1)};
            if (plim__oom_number(number, type, &value) != number.n) {
                return false;
            }
            out->start = i - 1;
            capture(out, field, &value);
            return true;
        }
    }
    return false;
}

bool plim__oom_match(const struct plim__oom_grammar *grammar, struct plim_str text, size_t at,
                     struct plim__oom_match *out)
{
    *out = (struct plim__oom_match){.start = at};
    if (grammar->at_line_start && text.p[at++] != '\n') {
        return false;
    }
    if (grammar->lead && !match_lead(grammar, text, at, out)) {
        return false;
    }
    struct run run = {.text = text, .match = out};
    if (!walk(&run, grammar->rest, grammar->rest + strlen(grammar->rest), at)) {
        return false;
    }
    out->end = run.end;
    return true;
}
