/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_OOMTEXT_INTERNAL_H
#define PLIM_FORMAT_OOMTEXT_INTERNAL_H

/* What the files of the message reader share: table, matcher, search, line cleaning. */

#include "format/oomtext.h"

/** plim__oom_rows() - the table of grammars; static. */
const struct plim_oom_row *plim__oom_rows(size_t *n);

/* ---- oomtext_match.c ---- */

#define PLIM__OOM_CAPTURES     12
#define PLIM__OOM_ANCHOR       40 /* longest anchor kept; the pattern itself is whole */
#define PLIM__OOM_ANCHOR_LEAST 7  /* shorter ones are not looked for in a large log */

/* A row, prepared for searching. */
struct plim__oom_grammar {
    const struct plim_oom_row *row;
    const char *rest;              /* pattern from the anchor on */
    const char *lead;              /* "{field:type}" read backwards, or NULL */
    bool at_line_start;            /* the pattern begins with ^ */
    unsigned char n;               /* bytes of anchor */
    char anchor[PLIM__OOM_ANCHOR]; /* lower case, blanks as ' ' */
};

struct plim__oom_capture {
    enum plim_oom_field field;
    struct plim_oom_value value; /* line is not set here */
};

struct plim__oom_match {
    size_t start; /* in the text, leading field included */
    size_t end;
    size_t captures;
    struct plim__oom_capture capture[PLIM__OOM_CAPTURES];
};

/** plim__oom_prepare() - find the anchor of a row. False when the pattern is malformed. */
bool plim__oom_prepare(const struct plim_oom_row *row, struct plim__oom_grammar *out);

/** plim__oom_match() - does the grammar match with its anchor at text[at]? Cost: bounded steps. */
bool plim__oom_match(const struct plim__oom_grammar *grammar, struct plim_str text, size_t at,
                     struct plim__oom_match *out);

/* Lower case; newline, tab and carriage return as a blank. */
static inline char plim__oom_fold(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : (c == '\n' || c == '\t' || c == '\r') ? ' ' : c;
}

/* ---- oomtext_number.c ---- */

enum plim__oom_type {
    PLIM__OOM_SIZE,
    PLIM__OOM_BYTES,
    PLIM__OOM_INT,
    PLIM__OOM_REAL,
    PLIM__OOM_MIB,
    PLIM__OOM_GIB,
    PLIM__OOM_SHAPE,
};

/** plim__oom_number() - read a number of the type at the start of s; bytes used, 0 when none. */
size_t plim__oom_number(struct plim_str s, enum plim__oom_type type, struct plim_oom_value *out);

/* ---- oomtext_find.c ---- */

struct plim__oom_finder; /* the anchors of a set of rows, ready for one pass over text */

/**
 * plim__oom_finder_new() - @roles: bit set of 1 << enum plim_oom_role; @least: shortest anchor that is
 * taken, bytes. Owned, NULL when out of memory.
 */
struct plim__oom_finder *plim__oom_finder_new(unsigned roles, size_t least);

/** plim__oom_finder_of() - the same for another table of rows, which is borrowed for its life. */
struct plim__oom_finder *plim__oom_finder_of(const struct plim_oom_row *rows, size_t n,
                                             unsigned roles, size_t least);
void plim__oom_finder_free(struct plim__oom_finder *finder);

/**
 * plim__oom_find() - the first place at or behind `from` where an anchor stands.
 * @at, @n: its offset and length. Returns false when there is none; the last bytes of text may then
 * hold the beginning of an anchor.
 */
bool plim__oom_find(const struct plim__oom_finder *finder, struct plim_str text, size_t from,
                    size_t *at, size_t *n);

/**
 * plim__oom_find_each() - call visit(ctx, grammar, match) for every row that matches in the text, in
 * order of the anchors.
 */
void plim__oom_find_each(const struct plim__oom_finder *finder, struct plim_str text,
                         void (*visit)(void *ctx, const struct plim_oom_row *row,
                                       const struct plim__oom_match *match),
                         void *ctx);

/* ---- oomtext_line.c ---- */

struct plim__oom_prefix {
    size_t n;        /* bytes in front of the message proper */
    int64_t time_ms; /* since 1970, or since a made-up year or day when the log does not say */
    int64_t rank;    /* -1 = not named */
    int64_t pid;     /* -1 = not named */
};

/**
 * plim__oom_clean() - one raw line without colours, carriage returns, NULs and JSON escapes.
 * @out: at least n bytes. Returns the bytes written; *control counts bytes that no log holds.
 */
size_t plim__oom_clean(struct plim_str raw, char *out, uint64_t *control);

/** plim__oom_prefix() - what a logger put in front of a clean line. */
struct plim__oom_prefix plim__oom_prefix(struct plim_str line);

/* ---- oomtext_event.c ---- */

#define PLIM__OOM_HITS         32 /* matches looked at on one line */
#define PLIM__OOM_WRAP_COLUMNS 60 /* shorter lines were not cut by a terminal's width */
#define PLIM__OOM_SPAN_LINES   40 /* lines behind a failure that can belong to its message */
#define PLIM__OOM_TABLE_LINES  60 /* lines below a header that are read one by one */

struct plim__oom_hit {
    const struct plim_oom_row *row;
    struct plim__oom_match match;
};

struct plim__oom_hits {
    size_t n;
    struct plim__oom_hit hit[PLIM__OOM_HITS];
};

/* Puts events together from lines. */
struct plim__oom_builder {
    struct plim_oom_scan *out;            /* borrowed */
    struct plim__oom_finder *skim;        /* owned: as heads, without the short anchors */
    struct plim__oom_finder *heads;       /* owned: every role but clauses and table rows */
    struct plim__oom_finder *parts;       /* owned: clauses and table rows */
    bool open;                            /* the last event still collects lines */
    const struct plim_oom_row *opened_by; /* the row that opened it */
    uint64_t failure_line;                /* latest failure line of the open event */
    bool failing;                         /* the present line holds a failure */
    unsigned table_left;                  /* lines still to be read below a header */
    bool held[PLIM_OOM_MEANING_COUNT];    /* seen by a session row, so it holds everywhere */
    size_t before_n;
    char before[512]; /* the line before, when it is long enough to have been wrapped */
    size_t text_n;
    size_t text_column;       /* of the first byte of text on its line */
    char text[PLIM_OOM_TEXT]; /* message of the open event, lines joined by '\n' */
    struct plim__oom_hits hits;
    char clean[PLIM_OOM_LINE + 1];
    size_t line_n;
    char line[PLIM_OOM_LINE + 2]; /* prefix, '\n', message proper */
};

/** plim__oom_builder_line() - one raw line. @number: from 1. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__oom_builder_line(struct plim__oom_builder *b,
                                                      struct plim_str raw, uint64_t number,
                                                      struct plim_err *err);

/** plim__oom_builder_close() - end the open event, if there is one. */
void plim__oom_builder_close(struct plim__oom_builder *b);

/** plim__oom_builder_end() - the input is at its end: close what is open, spread session facts.
 * Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__oom_builder_end(struct plim__oom_builder *b,
                                                     struct plim_err *err);

/** plim__oom_builder_wants_lines() - every line is wanted now, with or without an anchor. */
bool plim__oom_builder_wants_lines(const struct plim__oom_builder *b);

/* ---- oomtext_message.c ---- */

/** plim__oom_set_field() - keep a value; an earlier one is kept unless `replace`. */
void plim__oom_set_field(struct plim_oom_facts *facts, enum plim_oom_field field,
                         const struct plim_oom_value *value, uint64_t line, bool replace);

/** plim__oom_add_process() - keep a process once. */
void plim__oom_add_process(struct plim_oom_facts *facts, uint64_t pid, uint64_t bytes, bool listed);

/** plim__oom_set_captures() - all captures of a match; a process goes together with its pid. */
void plim__oom_set_captures(struct plim_oom_facts *facts, const struct plim__oom_match *match,
                            uint64_t line, bool replace);

/** plim__oom_covered() - hit i lies inside another one, which says more. */
bool plim__oom_covered(const struct plim__oom_hits *hits, size_t i);

/** plim__oom_weigh() - let the row give the event its meaning when it weighs more. */
void plim__oom_weigh(struct plim_oom_event *event, const struct plim_oom_row *row);

/** plim__oom_vague() - nothing but general words was found. */
bool plim__oom_vague(const struct plim_oom_event *event);

/** plim__oom_read_message() - the figures of an event from the builder's collected text. */
void plim__oom_read_message(struct plim__oom_builder *b, struct plim_oom_event *event);

/* ---- oomtext_input.c ---- */

/* A raw source with its wrapping taken off. Stays where it is between open and close. */
struct plim__oom_input {
    struct plim_source *raw;    /* borrowed */
    struct plim_source replay;  /* head, then raw */
    struct plim_source decoder; /* owned when `source` points to it */
    struct plim_source *source; /* the plain text */
    size_t at, n;               /* in head */
    char head[4096];
};

/** plim__oom_input_open() - gzip, zstd and xz are undone. Errors: those of source and decoder. */
PLIM_MUST_USE enum plim_status plim__oom_input_open(struct plim__oom_input *in,
                                                    struct plim_source *raw, struct plim_err *err);
void plim__oom_input_close(struct plim__oom_input *in);

/**
 * plim__oom_input_check() - is an input with these first bytes worth reading?
 * @found: messages were found in it, so that stray control bytes do not matter.
 * Errors: PLIM_E_DATA with the offset of the first byte that is no text, and what it is instead.
 */
PLIM_MUST_USE enum plim_status plim__oom_input_check(struct plim_str head, bool found,
                                                     const char *name, struct plim_err *err);

#endif
