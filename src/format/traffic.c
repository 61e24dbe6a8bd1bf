/* SPDX-License-Identifier: Apache-2.0 */
/* See traffic.h. Here: lines, what is made of their cells, and what is repaired. */

#include "format/traffic_internal.h"

#include "base/num.h"
#include "format/decode.h"

#include <inttypes.h>
#include <string.h>

#define TRIAL_ROWS 1000u /* when more than half of them are broken, it is no traffic */

const char *plim_traffic_layout_text(enum plim_traffic_layout layout)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_TRAFFIC_LAYOUT_MAP(PLIM__X)
#undef PLIM__X
    };
    return (size_t)layout < PLIM_COUNT_OF(texts) ? texts[layout] : "unknown";
}

/* ---- lines ----------------------------------------------------------------------------------------- */

/* The next line with something in it, without line ends; *more false at the end. */
static enum plim_status next_line(struct plim_traffic_reader *r, struct plim_str *line, bool *more,
                                  struct plim_err *err)
{
    struct plim_window *w = &r->window;
    for (;;) {
        if (w->at == w->end && !w->eof) {
            PLIM_TRY(plim__window_fill(w, err));
        }
        *more = w->at < w->end;
        if (!*more) {
            return PLIM_OK;
        }
        r->line++;
        const uint8_t *p = w->buf + w->at;
        const uint8_t *end = memchr(p, '\n', w->end - w->at);
        if (end) { /* the usual case, without a call */
            *line = (struct plim_str){(const char *)p, (size_t)(end - p)};
            w->at += line->n + 1;
        } else {
            struct plim_err failure = {0};
            enum plim_status st = plim__window_line(w, PLIM_TRAFFIC_LINE_MAX, line, &failure);
            if (st == PLIM_E_TRUNCATED && w->eof) { /* the last line has no end */
                *line = plim_buf_str(&w->spill);
            } else if (st != PLIM_OK) {
                plim__err_where(&failure, "line");
                plim__err_at(&failure, r->line);
                if (err) {
                    *err = failure;
                }
                return st;
            }
        }
        *line = plim_str_trim(*line);
        if (line->n > 0) {
            return PLIM_OK;
        }
    }
}

/* ---- one row ---------------------------------------------------------------------------------------- */

/* Note a repair, or with `strict` refuse the row. */
static enum plim_status repair(struct plim_traffic_reader *r, struct plim_traffic_repair *kind,
                               const char *what, struct plim_err *err)
{
    kind->n++;
    kind->first_line = kind->first_line > 0 ? kind->first_line : r->line;
    if (r->options.strict) {
        plim__fail(err, PLIM_E_DATA, "%s", what);
        plim__err_where(err, "line");
        plim__err_at(err, r->line);
        plim__err_hint(err, "without --strict such rows are repaired or left out, and counted");
        return PLIM_E_DATA;
    }
    return PLIM_OK;
}

/* What a count cell holds. */
enum count {
    ABSENT,
    GOOD,
    BAD,
    NEGATIVE,
    HUGE_COUNT,
};

static enum count count_of(struct plim_str cell, uint64_t most, uint32_t *value)
{
    int64_t v;
    if (plim_str_trim(cell).n == 0) {
        return ABSENT;
    }
    if (!plim__traffic_count(cell, &v)) {
        return BAD;
    }
    if (v < 0) {
        return NEGATIVE;
    }
    *value = (uint32_t)v;
    return (uint64_t)v > most ? HUGE_COUNT : GOOD;
}

/* All numbers of a row but its time; the worst that was met. */
static enum count take_counts(const struct plim_traffic_reader *r,
                              const struct plim__traffic_cells *cells, struct plim_arrival *out)
{
    uint32_t small[3] = {0};
    const struct {
        enum plim__traffic_column column;
        uint32_t *value;
        uint64_t most;
    } counts[] = {
        {PLIM__TRAFFIC_PROMPT, &out->prompt, PLIM_TRAFFIC_TOKENS_MAX},
        {PLIM__TRAFFIC_OUTPUT, &out->output, PLIM_TRAFFIC_TOKENS_MAX},
        {PLIM__TRAFFIC_TURN, &out->turn, UINT32_MAX},
        {PLIM__TRAFFIC_IMAGES, &small[0], UINT16_MAX},
        {PLIM__TRAFFIC_WIDTH, &small[1], UINT16_MAX},
        {PLIM__TRAFFIC_HEIGHT, &small[2], UINT16_MAX},
    };
    enum count worst = GOOD;
    for (size_t i = 0; i < PLIM_COUNT_OF(counts); i++) {
        enum count c = count_of(cells->cell[counts[i].column], counts[i].most, counts[i].value);
        bool needed = counts[i].column <= PLIM__TRAFFIC_OUTPUT && r->present[counts[i].column];
        c = c == ABSENT ? (needed ? BAD : GOOD) : c;
        worst = c > worst ? c : worst;
    }
    out->images = (uint16_t)small[0];
    out->width = (uint16_t)small[1];
    out->height = (uint16_t)small[2];
    if (out->width > 0 && out->images == 0 && !r->present[PLIM__TRAFFIC_IMAGES]) {
        out->images = 1;
    }
    return worst;
}

/* The number of the session: of its own name, of its parent chat, or a new one for a chat without. */
static enum plim_status take_session(struct plim_traffic_reader *r,
                                     const struct plim__traffic_cells *cells,
                                     struct plim_arrival *out, struct plim_err *err)
{
    struct plim_str name = cells->cell[PLIM__TRAFFIC_SESSION];
    struct plim_str chat = cells->cell[PLIM__TRAFFIC_CHAT];
    struct plim_str parent = cells->cell[PLIM__TRAFFIC_PARENT];
    out->session = PLIM_NO_ID;
    if (chat.n > 0) {
        uint64_t *known = parent.n > 0 && !plim_str_eq(parent, PLIM_STR("-1"))
                              ? plim_map_get(&r->chats, plim_hash_bytes(parent.p, parent.n) >> 1)
                              : NULL;
        out->session = known ? (uint32_t)*known : r->sessions++;
        return plim_map_put(&r->chats, plim_hash_bytes(chat.p, chat.n) >> 1, out->session, err);
    }
    if (name.n > 0) {
        PLIM_TRY(plim_intern_put(&r->names, name, &out->session, err));
        r->sessions = out->session >= r->sessions ? out->session + 1 : r->sessions;
    }
    return PLIM_OK;
}

static enum plim_status take_adapter(struct plim_traffic_reader *r, struct plim_str name,
                                     struct plim_arrival *out, struct plim_err *err)
{
    uint32_t id = 0;
    name = plim_str_trim(name);
    if (name.n == 0 || plim_str_eq(name, PLIM_STR("0"))) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_intern_put(&r->adapters, name, &id, err));
    out->adapter = (uint16_t)plim_min_u64((uint64_t)id + 1, UINT16_MAX);
    return PLIM_OK;
}

/* The time relative to the first row's; false: it is none. */
static bool take_time(struct plim_traffic_reader *r, struct plim_str cell, int64_t *ns)
{
    uint64_t unit = r->options.unit_ns > 0 ? r->options.unit_ns : r->unit_ns;
    *ns = 0;
    if (!r->present[PLIM__TRAFFIC_TIME]) {
        return true;
    }
    if (!plim__traffic_time(cell, unit, ns)) {
        return false;
    }
    if (!r->have_epoch) {
        r->epoch = *ns;
        r->have_epoch = true;
    }
    return !__builtin_sub_overflow(*ns, r->epoch, ns);
}

/* Tokens that are none, and time that goes back. */
static enum plim_status mend(struct plim_traffic_reader *r, struct plim_arrival *out, int64_t ns,
                             struct plim_err *err)
{
    if (r->have_last && ns < r->last) {
        PLIM_TRY(
            repair(r, &r->repairs.backwards, "the time lies before that of the row above", err));
    }
    if (out->prompt == 0 && out->images == 0) {
        PLIM_TRY(repair(r, &r->repairs.zero_prompts, "a prompt of 0 tokens", err));
        out->prompt = 1;
    }
    if (out->output == 0 && r->present[PLIM__TRAFFIC_OUTPUT]) {
        PLIM_TRY(repair(r, &r->repairs.zero_outputs, "an output of 0 tokens", err));
    }
    out->output = out->output > 0 ? out->output : 1;
    r->last = ns;
    r->have_last = true;
    return PLIM_OK;
}

/* Cells as an arrival; *kept false: the row is left out. */
static enum plim_status take_row(struct plim_traffic_reader *r,
                                 const struct plim__traffic_cells *cells, struct plim_arrival *out,
                                 bool *kept, struct plim_err *err)
{
    struct plim_traffic_repairs *rep = &r->repairs;
    int64_t ns;
    *kept = false;
    *out = (struct plim_arrival){.session = PLIM_NO_ID};
    switch (take_counts(r, cells, out)) {
    case NEGATIVE:
        return repair(r, &rep->negative, "a negative count", err);
    case HUGE_COUNT:
        return repair(r, &rep->huge, "a count beyond every model", err);
    case BAD:
        return repair(r, &rep->broken, "a count that is no whole number, or none", err);
    default:
        break;
    }
    if (!take_time(r, cells->cell[PLIM__TRAFFIC_TIME], &ns)) {
        return repair(r, &rep->broken, "a time that is neither a number nor a date", err);
    }
    if (r->layout == PLIM_TRAFFIC_BURSTGPT && out->output == 0) {
        return repair(r, &rep->failed, "a request that failed when it was recorded", err);
    }
    PLIM_TRY(mend(r, out, ns, err));
    PLIM_TRY(take_session(r, cells, out, err));
    PLIM_TRY(take_adapter(r, cells->cell[PLIM__TRAFFIC_ADAPTER], out, err));
    out->at_ns = ns > 0 ? (uint64_t)ns : 0;
    *kept = true;
    return PLIM_OK;
}

/* ---- the reader ------------------------------------------------------------------------------------- */

static struct plim_str without_mark(struct plim_str line)
{
    return plim_str_starts(line, PLIM_STR("\xef\xbb\xbf")) ? plim_str_skip(line, 3) : line;
}

static enum plim_status learn(struct plim_traffic_reader *r, struct plim_err *err)
{
    struct plim_str line;
    bool more, is_row = true;
    PLIM_TRY(next_line(r, &line, &more, err));
    if (!more) {
        plim__fail(err, PLIM_E_DATA, "no traffic: the file is empty");
        plim__err_hint(err, "a plain file begins with: time,prompt,output");
        return PLIM_E_DATA;
    }
    line = plim_str_trim(without_mark(line));
    r->json = line.n > 0 && line.p[0] == '{';
    enum plim_status st = r->json ? plim__traffic_json_first(r, line, err)
                                  : plim__traffic_csv_header(r, line, &is_row, err);
    if (st != PLIM_OK) {
        plim__err_where(err, "line");
        plim__err_at(err, r->line);
        return st;
    }
    r->first_waits = is_row;
    plim_buf_add(&r->first, line);
    return plim_buf_status(&r->first, err);
}

enum plim_status plim_traffic_open(struct plim_source *source,
                                   const struct plim_traffic_options *options,
                                   struct plim_traffic_reader **out, struct plim_err *err)
{
    struct plim_traffic_reader *r = calloc(1, sizeof *r);
    if (!r) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a traffic reader");
    }
    r->options = options ? *options : (struct plim_traffic_options){0};
    plim_intern_init(&r->names, 0);
    plim_intern_init(&r->adapters, 0);
    enum plim_status st = plim__window_init(&r->window, source, err);
    if (st == PLIM_OK) {
        st = learn(r, err);
    }
    if (st != PLIM_OK) {
        plim_traffic_close(r);
        return st;
    }
    *out = r;
    return PLIM_OK;
}

void plim_traffic_close(struct plim_traffic_reader *r)
{
    if (r) {
        plim__window_fini(&r->window);
        plim_buf_fini(&r->first);
        plim_buf_fini(&r->text);
        plim_vec_fini(&r->hashes);
        plim_intern_fini(&r->names);
        plim_intern_fini(&r->adapters);
        plim_map_fini(&r->chats);
        free(r);
    }
}

/* One line as an arrival, when it is one. */
static enum plim_status take_line(struct plim_traffic_reader *r, struct plim_str line,
                                  struct plim_arrival *out, bool *kept, struct plim_err *err)
{
    struct plim__traffic_cells cells;
    bool good = true;
    *kept = false;
    r->rows++;
    if (r->json) {
        PLIM_TRY(plim__traffic_json_cells(r, line, &cells, &good, err));
    } else {
        good = plim__traffic_csv_cells(r, line, &cells);
        PLIM_TRY(plim_buf_status(&r->text, err));
    }
    if (!good) {
        PLIM_TRY(repair(r, &r->repairs.broken,
                        r->json ? "not a JSON object" : "other columns than the header", err));
    } else {
        PLIM_TRY(take_row(r, &cells, out, kept, err));
    }
    r->good += *kept;
    if (r->rows == TRIAL_ROWS && r->repairs.broken.n > TRIAL_ROWS / 2) {
        plim__fail(err, PLIM_E_DATA, "no traffic: %" PRIu64 " of the first %u rows are broken",
                   r->repairs.broken.n, TRIAL_ROWS);
        plim__err_where(err, "line");
        plim__err_at(err, r->repairs.broken.first_line);
        return PLIM_E_DATA;
    }
    return PLIM_OK;
}

/* As plim_traffic_next(), with the time of the row in r->last. */
enum plim_status plim_traffic_next(struct plim_traffic_reader *r, struct plim_arrival *out,
                                   const uint64_t **hashes, bool *more, struct plim_err *err)
{
    struct plim_arrival arrival;
    bool kept = false;
    *more = r->options.most == 0 || r->good < r->options.most;
    while (*more && !kept) {
        struct plim_str line = plim_buf_str(&r->first);
        if (!r->first_waits) {
            PLIM_TRY(next_line(r, &line, more, err));
        }
        r->first_waits = false;
        if (*more) {
            PLIM_TRY(take_line(r, line, &arrival, &kept, err));
        }
    }
    if (*more) {
        arrival.n_hashes = r->hash_block > 0 ? (uint32_t)r->hashes.n : 0;
        *out = arrival;
        if (hashes) {
            *hashes = r->hashes.items;
        }
    }
    return PLIM_OK;
}

const struct plim_traffic_repairs *plim_traffic_repairs(const struct plim_traffic_reader *r)
{
    return &r->repairs;
}

enum plim_traffic_layout plim_traffic_layout(const struct plim_traffic_reader *r)
{
    return r->layout;
}

uint32_t plim_traffic_hash_block(const struct plim_traffic_reader *r)
{
    return r->hash_block;
}

bool plim_traffic_timed(const struct plim_traffic_reader *r)
{
    return r->present[PLIM__TRAFFIC_TIME];
}

/* ---- whole files ------------------------------------------------------------------------------------ */

static enum plim_status collect_all(struct plim_traffic_reader *r, struct plim_traffic *out,
                                    struct plim_err *err)
{
    struct plim_arrival a;
    const uint64_t *hashes = NULL;
    bool more = true;
    for (;;) {
        PLIM_TRY(plim_traffic_next(r, &a, &hashes, &more, err));
        if (!more) {
            break;
        }
        if (out->hashes.n + a.n_hashes > UINT32_MAX) {
            return plim__fail(err, PLIM_E_BUDGET, "more than 2^32 hashes");
        }
        a.at_ns = (uint64_t)r->last ^ (UINT64_C(1) << 63); /* order of signed times, as unsigned */
        a.first_hash = (uint32_t)out->hashes.n;
        PLIM_TRY(plim_vec_reserve(&out->hashes, a.n_hashes, err));
        if (a.n_hashes > 0) {
            memcpy(out->hashes.items + out->hashes.n, hashes, a.n_hashes * sizeof *hashes);
        }
        out->hashes.n += a.n_hashes;
        PLIM_TRY(plim_vec_push(&out->arrivals, err, a));
    }
    if (out->arrivals.n == 0) {
        return plim__fail(err, PLIM_E_DATA, "no traffic: no row could be used");
    }
    out->hash_block = r->hash_block;
    out->sessions = r->sessions;
    out->timed = plim_traffic_timed(r);
    return plim_traffic_settle(out, err);
}

enum plim_status plim_traffic_collect(struct plim_source *source,
                                      const struct plim_traffic_options *options,
                                      struct plim_traffic *out,
                                      struct plim_traffic_repairs *repairs,
                                      enum plim_traffic_layout *layout, struct plim_err *err)
{
    struct plim_traffic_reader *r;
    struct plim_traffic traffic = {0};
    PLIM_TRY(plim_traffic_open(source, options, &r, err));
    enum plim_status st = collect_all(r, &traffic, err);
    if (st == PLIM_OK) {
        *out = traffic;
        if (repairs) {
            *repairs = r->repairs;
        }
        if (layout) {
            *layout = r->layout;
        }
    } else {
        plim_traffic_fini(&traffic);
    }
    plim_traffic_close(r);
    return st;
}

/* A source that undoes the compression that the file's first bytes tell of; `below` when there is none. */
static enum plim_status decoded(struct plim_source *below, struct plim_source *out, bool *wrapped,
                                const char *path, struct plim_err *err)
{
    size_t n = strlen(path);
    *wrapped = true;
    if (n > 3 && strcmp(path + n - 3, ".gz") == 0) {
        return plim__decode_gzip(below, out, err);
    }
    if (n > 4 && strcmp(path + n - 4, ".zst") == 0) {
        return plim__decode_zstd(below, out, err);
    }
    if (n > 3 && strcmp(path + n - 3, ".xz") == 0) {
        return plim__decode_xz(below, out, err);
    }
    *wrapped = false;
    return PLIM_OK;
}

enum plim_status plim_traffic_read(const char *path, const struct plim_traffic_options *options,
                                   struct plim_traffic *out, struct plim_traffic_repairs *repairs,
                                   enum plim_traffic_layout *layout, struct plim_err *err)
{
    struct plim_source file, inner;
    bool wrapped;
    PLIM_TRY(plim_source_open(path, &file, err));
    enum plim_status st = decoded(&file, &inner, &wrapped, path, err);
    if (st == PLIM_OK) {
        st = plim_traffic_collect(wrapped ? &inner : &file, options, out, repairs, layout, err);
        if (wrapped) {
            plim_source_close(&inner);
        }
    }
    if (st != PLIM_OK && err) {
        bool placed = err->where[0] != '\0';
        plim__err_where(err, placed ? "%s: line" : "%s", file.name);
    }
    plim_source_close(&file);
    return st;
}
