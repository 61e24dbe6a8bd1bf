/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lines of Prometheus' text formats.
 *
 *   name {label="value",...} number [time] [# exemplar]
 *
 * A line is taken apart in place: escapes in label values get shorter when they are undone.
 */

#include "observe/engine_text.h"

#include <math.h>
#include <stdlib.h>

/* What is left of a line. */
struct cursor {
    char *at, *end;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && is_blank(*c->at)) {
        c->at++;
    }
}

static bool take(struct cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at < c->end && *c->at == wanted) {
        c->at++;
        return true;
    }
    return false;
}

/* A name as metrics and labels have it; empty when there is none. */
static struct plim_str take_name(struct cursor *c)
{
    char *from = c->at;
    while (c->at < c->end &&
           ((*c->at >= 'a' && *c->at <= 'z') || (*c->at >= 'A' && *c->at <= 'Z') || *c->at == '_' ||
            *c->at == ':' || (c->at > from && *c->at >= '0' && *c->at <= '9'))) {
        c->at++;
    }
    return (struct plim_str){from, (size_t)(c->at - from)};
}

/* A text in quotes, behind the opening one, with \\, \" and \n undone in place. */
static bool take_quoted(struct cursor *c, struct plim_str *out)
{
    char *from = c->at, *to = c->at;
    while (c->at < c->end && *c->at != '"') {
        char byte = *c->at++;
        if (byte == '\\' && c->at < c->end) {
            byte = *c->at++;
            byte = (char)(byte == 'n' ? '\n' : byte);
        }
        *to++ = byte;
    }
    if (c->at == c->end) {
        return false;
    }
    c->at++;
    *out = (struct plim_str){from, (size_t)(to - from)};
    return true;
}

/* One part between the braces: name="value", or the metric's own name in quotes. */
static bool take_label(struct cursor *c, struct plim_engine_sample *sample)
{
    struct plim_engine_label label;
    skip_blanks(c);
    if (c->at < c->end && *c->at == '"') {
        c->at++;
        if (!take_quoted(c, &label.name)) {
            return false;
        }
    } else {
        label.name = take_name(c);
    }
    if (!take(c, '=')) {
        bool own = sample->name.n == 0 && label.name.n > 0;
        sample->name = own ? label.name : sample->name;
        return own;
    }
    if (label.name.n == 0 || !take(c, '"') || !take_quoted(c, &label.value)) {
        return false;
    }
    if (sample->labels < PLIM_ENGINE_TEXT_LABELS) {
        sample->label[sample->labels++] = label;
    }
    return true;
}

static bool take_labels(struct cursor *c, struct plim_engine_sample *sample)
{
    while (!take(c, '}')) {
        if (!take_label(c, sample)) {
            return false;
        }
        if (!take(c, ',')) {
            return take(c, '}');
        }
    }
    return true;
}

/* The number: strtod() knows NaN, Inf and exponents. Hexadecimal, which it knows too, is not of the format. */
static bool take_number(struct cursor *c, double *out)
{
    char word[64];
    skip_blanks(c);
    char *from = c->at;
    while (c->at < c->end && !is_blank(*c->at)) {
        c->at++;
    }
    size_t n = (size_t)(c->at - from);
    if (n == 0 || n >= sizeof(word) || memchr(from, 'x', n) || memchr(from, 'X', n)) {
        return false;
    }
    memcpy(word, from, n);
    word[n] = '\0';
    char *end = NULL;
    *out = strtod(word, &end);
    return end == word + n;
}

static bool take_sample(struct cursor *c, struct plim_engine_sample *sample)
{
    sample->labels = 0;
    sample->name = take_name(c);
    bool named = sample->name.n > 0;
    if (take(c, '{') ? !take_labels(c, sample) : !named) {
        return false;
    }
    return sample->name.n > 0 && take_number(c, &sample->value);
}

static void read_line(struct plim_engine_text *text)
{
    struct cursor c = {text->line, text->line + text->n};
    while (c.end > c.at && (c.end[-1] == '\r' || is_blank(c.end[-1]))) {
        c.end--;
    }
    skip_blanks(&c);
    if (c.at == c.end || *c.at == '#') {
        return;
    }
    if (take_sample(&c, &text->sample)) {
        text->samples++;
        text->visit(text->self, &text->sample);
    } else {
        text->bad++;
    }
}

void plim_engine_text_init(struct plim_engine_text *text,
                           void (*visit)(void *self, const struct plim_engine_sample *sample),
                           void *self)
{
    text->visit = visit;
    text->self = self;
    text->samples = text->bad = 0;
    text->skipping = false;
    text->n = 0;
}

static void end_line(struct plim_engine_text *text)
{
    if (!text->skipping) {
        read_line(text);
    }
    text->skipping = false;
    text->n = 0;
}

void plim_engine_text_feed(struct plim_engine_text *text, struct plim_str bytes)
{
    while (bytes.n > 0) {
        const char *newline = memchr(bytes.p, '\n', bytes.n);
        size_t n = newline ? (size_t)(newline - bytes.p) : bytes.n;
        if (!text->skipping && n > sizeof(text->line) - text->n) {
            text->skipping = true;
            text->bad++;
        }
        if (!text->skipping) {
            memcpy(text->line + text->n, bytes.p, n);
            text->n += n;
        }
        bytes = plim_str_skip(bytes, n);
        if (newline) {
            end_line(text);
            bytes = plim_str_skip(bytes, 1);
        }
    }
}

void plim_engine_text_end(struct plim_engine_text *text, bool whole)
{
    if (whole) {
        end_line(text);
    }
}

struct plim_str plim_engine_label(const struct plim_engine_sample *sample, struct plim_str name)
{
    for (size_t i = 0; i < sample->labels; i++) {
        if (plim_str_eq(sample->label[i].name, name)) {
            return sample->label[i].value;
        }
    }
    return PLIM_STR("");
}
