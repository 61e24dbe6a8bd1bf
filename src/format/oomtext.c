/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream side of the message reader: a window of BUFFER bytes moves over the input. Where an
 * anchor stands, the line around it goes to the builder; while the builder collects a message, every
 * line does. All else is only counted.
 */

#include "format/oomtext.h"

#include "format/oomtext_internal.h"

#include <stdlib.h>

#define BUFFER      (UINT32_C(1) << 20)
#define SMALL_INPUT (UINT32_C(64) << 10) /* so much is read line by line from start to end */
#define BEFORE      1024 /* bytes of an overlong line that are kept in front of an anchor */

struct stream {
    struct plim_source *source;
    struct plim_oom_scan *out;
    struct plim__oom_builder *builder;
    char *buf; /* owned, [BUFFER] */
    size_t n;  /* bytes in it */
    bool eof;
    bool utf16;     /* little endian, as Windows shells write; only ASCII is kept */
    bool odd;       /* half of a UTF-16 unit was left over */
    bool all_lines; /* a short paste: look at every line */
    const char *name;
    size_t head_n;
    char head[4096]; /* the first bytes of the text, to tell what it is when nothing is found */
};

/* UTF-16 text of n bytes at p, in place, as bytes; what is not ASCII becomes '?'. */
static size_t narrow(struct stream *s, char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++, s->odd = !s->odd) {
        if (!s->odd) {
            p[k++] = p[i];
        } else if (p[i] != 0 && k > 0) {
            p[k - 1] = '?';
        }
    }
    return k;
}

static enum plim_status fill(struct stream *s, struct plim_err *err)
{
    while (!s->eof && s->n < BUFFER) {
        size_t got = 0;
        PLIM_TRY(s->source->read(s->source->self, s->buf + s->n, BUFFER - s->n, &got, err));
        s->eof = got == 0;
        if (s->out->bytes == 0 && got >= 2 && memcmp(s->buf, "\xff\xfe", 2) == 0) {
            s->utf16 = true;
            memmove(s->buf, s->buf + 2, got - 2);
            got -= 2;
        }
        s->out->bytes += got;
        s->n += s->utf16 ? narrow(s, s->buf + s->n, got) : got;
    }
    return PLIM_OK;
}

/* Newlines among n bytes, eight at a time: a byte that equals '\n' leaves its high bit set. */
static uint64_t count_lines(const char *p, size_t n)
{
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f), newline = UINT64_C(0x0a0a0a0a0a0a0a0a);
    uint64_t lines = 0, word;
    for (; n >= sizeof(word); p += sizeof(word), n -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        word ^= newline;
        lines += (unsigned)__builtin_popcountll(~(((word & low) + low) | word | low));
    }
    for (; n > 0; p++, n--) {
        lines += *p == '\n';
    }
    return lines;
}

/*
 * Give the line that begins at `from` to the builder, and set *next behind it. It reaches at least
 * over `cover`. False when more input is needed to see its end.
 */
static enum plim_status take_line(struct stream *s, size_t from, size_t cover, size_t *next,
                                  struct plim_err *err)
{
    size_t search = cover > from ? cover : from;
    size_t limit = from + PLIM_OOM_LINE < s->n ? from + PLIM_OOM_LINE : s->n;
    const char *newline = search < limit ? memchr(s->buf + search, '\n', limit - search) : NULL;
    size_t end = newline ? (size_t)(newline - s->buf) : limit;
    *next = from;
    if (!newline && limit == s->n && !s->eof) {
        return PLIM_OK;
    }
    struct plim_str raw = {s->buf + from, end - from};
    PLIM_TRY(plim__oom_builder_line(s->builder, raw, s->out->lines + 1, err));
    *next = newline ? end + 1 : end;
    s->out->lines += count_lines(s->buf + from, *next - from);
    return PLIM_OK;
}

/* Line by line: an anchor that reaches into the next line takes that line along. */
static enum plim_status take_next(struct stream *s, size_t from, size_t *next, struct plim_err *err)
{
    const char *newline = memchr(s->buf + from, '\n', s->n - from);
    size_t end = newline ? (size_t)(newline - s->buf) : s->n;
    size_t stop = end + PLIM__OOM_ANCHOR < s->n ? end + PLIM__OOM_ANCHOR : s->n;
    size_t at = end > from + PLIM__OOM_ANCHOR ? end - PLIM__OOM_ANCHOR : from, n = 0, cover = from;
    struct plim_str text = {s->buf, stop};
    while (at < end && plim__oom_find(s->builder->heads, text, at, &at, &n) && at < end) {
        cover = at + n > end ? at + n : cover;
        at++;
    }
    return take_line(s, from, cover, next, err);
}

/* Where the line that holds `at` begins, but not before `from`. */
static size_t line_start(const char *buf, size_t from, size_t at)
{
    while (at > from && buf[at - 1] != '\n') {
        at--;
    }
    return at;
}

/* Work through the buffer; *used is what need not be kept. */
static enum plim_status scan_buffer(struct stream *s, size_t *used, struct plim_err *err)
{
    size_t p = 0, at, n, next;
    struct plim_str text = {s->buf, s->n};
    *used = 0;
    while (p < s->n) {
        if (s->all_lines || plim__oom_builder_wants_lines(s->builder)) {
            PLIM_TRY(take_next(s, p, &next, err));
        } else if (plim__oom_find(s->builder->skim, text, p, &at, &n)) {
            size_t from = at > p + BEFORE ? at - BEFORE : p;
            from = line_start(s->buf, from, at);
            s->out->lines += count_lines(s->buf + p, from - p);
            *used = p = from;
            PLIM_TRY(take_line(s, from, at + n, &next, err));
        } else {
            size_t keep = s->eof ? 0 : s->n - p < BEFORE ? s->n - p : BEFORE;
            s->out->lines += count_lines(s->buf + p, s->n - keep - p);
            *used = s->n - keep;
            return PLIM_OK;
        }
        if (next == p) {
            return PLIM_OK; /* the line's end is not here yet */
        }
        *used = p = next;
    }
    return PLIM_OK;
}

/* A message that a terminal broke inside a word: look at the text without its line ends. */
static enum plim_status scan_unwrapped(struct stream *s, struct plim_str text, struct plim_err *err)
{
    size_t n = 0;
    char *joined = malloc(text.n + 1);
    if (!joined) {
        return plim__fail(err, PLIM_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] != '\n' && text.p[i] != '\r') {
            joined[n++] = text.p[i];
        }
    }
    n = n < PLIM_OOM_LINE ? n : PLIM_OOM_LINE;
    size_t before = s->out->events.n;
    plim__oom_builder_close(s->builder);
    enum plim_status st = plim__oom_builder_line(s->builder, (struct plim_str){joined, n}, 1, err);
    plim__oom_builder_close(s->builder);
    free(joined);
    if (s->out->events.n > before && before > 0) {
        struct plim_oom_event found = s->out->events.items[s->out->events.n - 1];
        bool better = !plim__oom_vague(&found);
        s->out->events.items[0] = better ? found : s->out->events.items[0];
        s->out->events.n = better ? 1 : before;
    }
    return st;
}

/* Nothing was found, or nothing but general words. */
static bool found_little(const struct plim_oom_scan *scan)
{
    plim_vec_foreach (event, &scan->events) {
        if (!plim__oom_vague(event)) {
            return false;
        }
    }
    return true;
}

static enum plim_status scan_stream(struct stream *s, struct plim_err *err)
{
    size_t used = 0;
    PLIM_TRY(fill(s, err));
    s->head_n = s->n < sizeof(s->head) ? s->n : sizeof(s->head);
    memcpy(s->head, s->buf, s->head_n);
    struct plim_str head = {s->head, s->head_n};
    PLIM_TRY(plim__oom_input_check(head, true, s->name, err));
    s->all_lines = s->eof && s->n <= SMALL_INPUT;
    while (s->n > 0) {
        PLIM_TRY(scan_buffer(s, &used, err));
        if (s->all_lines && s->out->lines > 0 && found_little(s->out)) {
            PLIM_TRY(scan_unwrapped(s, (struct plim_str){s->buf, s->n}, err));
        }
        if (s->n > 0 && used == s->n && s->buf[s->n - 1] != '\n' && s->eof) {
            s->out->lines++; /* the last line has no end */
        }
        memmove(s->buf, s->buf + used, s->n - used);
        s->n -= used;
        if (s->eof) {
            break;
        }
        PLIM_TRY(fill(s, err));
    }
    PLIM_TRY(plim__oom_builder_end(s->builder, err));
    return plim__oom_input_check(head, s->out->events.n > 0, s->name, err);
}

static enum plim_status scan_source(struct stream *s, struct plim_source *source,
                                    struct plim_err *err)
{
    struct plim__oom_input input;
    PLIM_TRY(plim__oom_input_open(&input, source, err));
    s->source = input.source;
    enum plim_status st = scan_stream(s, err);
    plim__oom_input_close(&input);
    return st;
}

enum plim_status plim_oom_scan(struct plim_source *source, struct plim_oom_scan *out,
                               struct plim_err *err)
{
    *out = (struct plim_oom_scan){.first_time_ms = PLIM_OOM_NO_TIME};
    struct stream s = {.out = out, .name = source->name};
    enum plim_status st = PLIM_OK;
    s.builder = calloc(1, sizeof(*s.builder));
    s.buf = malloc(BUFFER);
    if (s.builder) {
        unsigned parts = 1U << PLIM_OOM_CLAUSE | 1U << PLIM_OOM_TABLE | 1U << PLIM_OOM_BESIDE;
        s.builder->out = out;
        s.builder->skim = plim__oom_finder_new(~parts, PLIM__OOM_ANCHOR_LEAST);
        s.builder->heads = plim__oom_finder_new(~parts, 0);
        s.builder->parts = plim__oom_finder_new(parts, 0);
    }
    if (!s.buf || !s.builder || !s.builder->skim || !s.builder->heads || !s.builder->parts) {
        st = plim__fail(err, PLIM_E_NOMEM, "out of memory");
    } else {
        st = scan_source(&s, source, err);
    }
    if (s.builder) {
        plim__oom_finder_free(s.builder->skim);
        plim__oom_finder_free(s.builder->heads);
        plim__oom_finder_free(s.builder->parts);
    }
    free(s.builder);
    free(s.buf);
    return st;
}

void plim_oom_scan_fini(struct plim_oom_scan *scan)
{
    plim_vec_fini(&scan->events);
}
