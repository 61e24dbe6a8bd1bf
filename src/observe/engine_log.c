/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lines of an engine's log. A search for the fixed words of all rows at once skips everything else; what is found
 * is cleaned, matched and counted. A second search, for the words of failures, hands a piece of the log to the
 * reader of out-of-memory messages.
 */

#include "observe/engine_log.h"

#include "base/clock.h"
#include "base/num.h"
#include "format/oomtext_internal.h"
#include "observe/printable.h"

#include <stdio.h>
#include <stdlib.h>

#define FAILURES    16                    /* most that wait to be taken */
#define AGAIN_NS    UINT64_C(10000000000) /* within so long the same failure is an echo */
#define LEAST_WORDS 6                     /* bytes of the shortest fixed words of a row */

enum count {
    COUNT_EACH,
    COUNT_PIECE,
    COUNT_START
};

struct meaning {
    enum plim_engine_kind kind;
    enum count count;
};

/* Two arrays from one table: patterns for the matcher, and what they mean. */
#define LOG(kind, count, pattern, versions)                                                        \
    {versions, PLIM_OOM_FAMILY_ANY, PLIM_OOM_SESSION, PLIM_OOM_MEANS_NOTHING, pattern},
static const struct plim_oom_row rows[] = {
#include "observe/engine_log_rows.def"
};
#undef LOG
#define LOG(kind, count, pattern, versions) {PLIM_ENGINE_KIND_##kind, COUNT_##count},
static const struct meaning meanings[] = {
#include "observe/engine_log_rows.def"
};
#undef LOG

struct plim_engine_log {
    struct plim__oom_finder *lines, *failures; /* owned */
    struct plim_engine_told told;
    struct plim__log_key keys[PLIM_ENGINE_LOG_KEYS];
    size_t n_keys;
    struct plim_happening failed[FAILURES];
    size_t n_failed;
    struct plim_happening last; /* failure, taken or not */
    bool skipping;              /* the rest of a line that is too long */
    size_t n;                   /* bytes in `rest` */
    char rest[PLIM_OOM_LINE];   /* the beginning of a line whose end has not come yet */
    char clean[PLIM_OOM_LINE + 1];
};

/* ---- counting ---- */

static const struct {
    enum plim_oom_field field;
    enum plim_component component;
} components[] = {
    {PLIM_OOM_WEIGHTS, PLIM_COMPONENT_WEIGHTS}, {PLIM_OOM_KV_AVAILABLE, PLIM_COMPONENT_KV_CACHE},
    {PLIM_OOM_GRAPH, PLIM_COMPONENT_GRAPHS},    {PLIM_OOM_ACTIVATION, PLIM_COMPONENT_ACTIVATIONS},
    {PLIM_OOM_NON_TORCH, PLIM_COMPONENT_OTHER},
};

/* The entry of a process or device; what comes beyond the budget shares the last one. */
static struct plim__log_key *key_of(struct plim_engine_log *log, const char *name)
{
    for (size_t i = 0; i < log->n_keys; i++) {
        if (strcmp(log->keys[i].name, name) == 0) {
            return &log->keys[i];
        }
    }
    if (log->n_keys < PLIM_ENGINE_LOG_KEYS) {
        struct plim__log_key *key = &log->keys[log->n_keys++];
        *key = (struct plim__log_key){0};
        (void)snprintf(key->name, sizeof(key->name), "%s", name);
    }
    return &log->keys[log->n_keys - 1];
}

static void add_up(struct plim__log_key *key, enum plim_component component, uint64_t bytes,
                   bool piece)
{
    uint64_t before = (key->valid >> component & 1) != 0 ? key->bytes[component] : 0;
    key->bytes[component] = piece ? plim_add_sat(before, bytes) : plim_max_u64(before, bytes);
    key->valid |= UINT64_C(1) << component;
}

/* The figures of one line: first its own sums, then into the books. */
static void count_line(struct plim_engine_log *log, struct plim__log_key *key,
                       const struct plim__oom_match *match, bool piece)
{
    uint64_t sum[PLIM_COMPONENTS] = {0}, seen = 0;
    for (size_t i = 0; i < match->captures; i++) {
        const struct plim__oom_capture *c = &match->capture[i];
        for (size_t k = 0; k < PLIM_COUNT_OF(components); k++) {
            if (c->field == components[k].field) {
                sum[components[k].component] =
                    plim_add_sat(sum[components[k].component], c->value.n);
                seen |= UINT64_C(1) << components[k].component;
            }
        }
        if (c->field == PLIM_OOM_KV_TOKENS) {
            log->told.kv_tokens = c->value.n;
        } else if (c->field == PLIM_OOM_MODEL_LEN) {
            log->told.max_context = c->value.n;
        } else if (c->field == PLIM_OOM_PLAN) {
            key->graph_plan = c->value.n;
        }
    }
    for (unsigned component = 0; component < PLIM_COMPONENTS; component++) {
        if ((seen >> component & 1) != 0) {
            add_up(key, (enum plim_component)component, sum[component], piece);
        }
    }
}

/* ---- one line ---- */

/* The word that ends before `end`, blanks between them skipped. */
static struct plim_str word_before(struct plim_str text, size_t end)
{
    while (end > 0 && text.p[end - 1] == ' ') {
        end--;
    }
    size_t from = end;
    while (from > 0 && text.p[from - 1] != ' ') {
        from--;
    }
    return (struct plim_str){text.p + from, end - from};
}

/* The device of "CUDA0 model buffer size = ..." or "CUDA0 buffer size = ...". */
static struct plim_str device_word(struct plim_str line)
{
    static const char *const kinds[] = {"model", "KV", "RS", "compute", "output"};
    size_t at = plim_str_find(line, PLIM_STR(" buffer size"));
    if (at == SIZE_MAX) {
        return PLIM_STR("");
    }
    struct plim_str word = word_before(line, at);
    for (size_t i = 0; i < PLIM_COUNT_OF(kinds); i++) {
        if (plim_str_eq(word, plim_str_from(kinds[i]))) {
            return word_before(line, (size_t)(word.p - line.p));
        }
    }
    return word;
}

static bool in_host_memory(struct plim_str device)
{
    static const struct plim_str host = {"_Host", 5}, mapped = {"_Mapped", 7};
    bool ends =
        (device.n > host.n && plim_str_eq(plim_str_skip(device, device.n - host.n), host)) ||
        (device.n > mapped.n && plim_str_eq(plim_str_skip(device, device.n - mapped.n), mapped));
    return ends || device.n == 0 || plim_str_starts(device, PLIM_STR("CPU")) ||
           plim_str_starts(device, PLIM_STR("AMX")) || plim_str_starts(device, PLIM_STR("BLAS"));
}

struct visit {
    struct plim_engine_log *log;
    struct plim_str line;
    struct plim__oom_prefix prefix;
};

static void start_anew(struct plim_engine_log *log, enum plim_engine_kind kind)
{
    log->n_keys = 0;
    log->told = (struct plim_engine_told){.kind = kind};
}

static void take_row(void *ctx, const struct plim_oom_row *row, const struct plim__oom_match *match)
{
    struct visit *v = ctx;
    struct plim_engine_log *log = v->log;
    const struct meaning *meaning = &meanings[row - rows];
    char name[32] = "";
    if (meaning->count == COUNT_START) {
        start_anew(log, meaning->kind);
        return;
    }
    log->told.kind = meaning->kind;
    if (meaning->count == COUNT_PIECE) {
        struct plim_str device = device_word(v->line);
        if (in_host_memory(device)) {
            return;
        }
        plim_printable(name, sizeof(name), device);
    } else if (v->prefix.pid >= 0) {
        (void)snprintf(name, sizeof(name), "%lld", (long long)v->prefix.pid);
    } else if (v->prefix.rank >= 0) {
        (void)snprintf(name, sizeof(name), "rank %lld", (long long)v->prefix.rank);
    }
    if (v->prefix.pid > 0 && v->prefix.pid <= UINT32_MAX && match->captures > 0 &&
        match->capture[0].field == PLIM_OOM_WEIGHTS) {
        log->told.pid = (uint32_t)v->prefix.pid;
    }
    count_line(log, key_of(log, name), match, meaning->count == COUNT_PIECE);
}

static void take_line(struct plim_engine_log *log, struct plim_str raw)
{
    uint64_t control = 0;
    size_t n = plim__oom_clean(raw, log->clean, &control);
    struct visit v = {.log = log, .line = {log->clean, n}};
    v.prefix = plim__oom_prefix(v.line);
    plim__oom_find_each(log->lines, v.line, take_row, &v);
}

/* ---- failures ---- */

/* Refused for want of device memory; engines' own budgets at the start included. */
static bool is_refusal(const struct plim_oom_event *event)
{
    enum plim_oom_meaning m = event->meaning;
    return (m >= PLIM_OOM_MEANS_TORCH_OOM && m <= PLIM_OOM_MEANS_GENERIC_OOM &&
            m != PLIM_OOM_MEANS_TF_WARNING && m != PLIM_OOM_MEANS_TRT_TACTIC &&
            m != PLIM_OOM_MEANS_SETTINGS_CONFLICT && m != PLIM_OOM_MEANS_OLLAMA_HOST) ||
           m == PLIM_OOM_MEANS_DEVICE_GROWTH;
}

/* One failure is told by several processes, one after the other: what follows soon, with the same size or none, is
 * its echo. */
static void add_failure(struct plim_engine_log *log, const struct plim_oom_event *event)
{
    const struct plim_oom_value *request = &event->facts.field[PLIM_OOM_REQUEST];
    struct plim_happening h = {
        .kind = PLIM_HAPPENED_OOM,
        .time_ns = plim_wall_ns(),
        .device = PLIM_NO_DEVICE,
        .pid = event->pid > 0 && event->pid <= UINT32_MAX ? (uint32_t)event->pid : 0,
        .value = request->set ? request->n : 0};
    bool echo = log->last.time_ns != 0 && h.time_ns - log->last.time_ns < AGAIN_NS &&
                (h.value == 0 || h.value == log->last.value);
    plim_printable(h.text, sizeof(h.text), plim_str_from(event->excerpt));
    if (!echo && log->n_failed < FAILURES) {
        log->failed[log->n_failed++] = h;
        log->last = h;
    }
}

static enum plim_status find_failures(struct plim_engine_log *log, struct plim_str text,
                                      struct plim_err *err)
{
    size_t at = 0, n = 0;
    if (!plim__oom_find(log->failures, text, 0, &at, &n)) {
        return PLIM_OK;
    }
    while (at > 0 && text.p[at - 1] != '\n') {
        at--;
    }
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, plim_str_skip(text, at));
    struct plim_oom_scan scan;
    enum plim_status st = plim_oom_scan(&source, &scan, err);
    if (st == PLIM_OK) {
        plim_vec_foreach (event, &scan.events) {
            if (is_refusal(event)) {
                add_failure(log, event);
            }
        }
    }
    plim_oom_scan_fini(&scan);
    return st == PLIM_E_NOMEM ? st : PLIM_OK;
}

/* ---- bytes ---- */

/* Whole lines. */
static enum plim_status take_text(struct plim_engine_log *log, struct plim_str text, bool live,
                                  struct plim_err *err)
{
    size_t at = 0, n = 0;
    while (plim__oom_find(log->lines, text, at, &at, &n)) {
        size_t from = at, end = at;
        while (from > 0 && text.p[from - 1] != '\n') {
            from--;
        }
        while (end < text.n && text.p[end] != '\n') {
            end++;
        }
        if (end - from <= PLIM_OOM_LINE) {
            take_line(log, (struct plim_str){text.p + from, end - from});
        }
        at = end;
    }
    return live ? find_failures(log, text, err) : PLIM_OK;
}

/* The beginning of the line that a piece of the log ends with is kept for the next one. */
static void keep_rest(struct plim_engine_log *log, struct plim_str rest)
{
    if (log->skipping || rest.n > sizeof(log->rest) - log->n) {
        log->skipping = true;
        log->n = 0;
        return;
    }
    memcpy(log->rest + log->n, rest.p, rest.n);
    log->n += rest.n;
}

enum plim_status plim_engine_log_feed(struct plim_engine_log *log, struct plim_str bytes, bool live,
                                      struct plim_err *err)
{
    const char *newline = bytes.n > 0 ? memchr(bytes.p, '\n', bytes.n) : NULL;
    if (newline == NULL) {
        keep_rest(log, bytes);
        return PLIM_OK;
    }
    if (log->n > 0 || log->skipping) {
        size_t n = (size_t)(newline - bytes.p);
        keep_rest(log, (struct plim_str){bytes.p, n});
        if (!log->skipping) {
            PLIM_TRY(take_text(log, (struct plim_str){log->rest, log->n}, live, err));
        }
        log->skipping = false;
        log->n = 0;
        bytes = plim_str_skip(bytes, n + 1);
    }
    size_t end = bytes.n;
    while (end > 0 && bytes.p[end - 1] != '\n') {
        end--;
    }
    enum plim_status st = take_text(log, (struct plim_str){bytes.p, end}, live, err);
    keep_rest(log, plim_str_skip(bytes, end));
    return st;
}

struct plim_engine_log *plim_engine_log_new(void)
{
    struct plim_engine_log *log = calloc(1, sizeof(*log));
    if (log == NULL) {
        return NULL;
    }
    log->lines =
        plim__oom_finder_of(rows, PLIM_COUNT_OF(rows), 1u << PLIM_OOM_SESSION, LEAST_WORDS);
    log->failures = plim__oom_finder_new(1u << PLIM_OOM_FAILURE, PLIM__OOM_ANCHOR_LEAST);
    if (log->lines == NULL || log->failures == NULL) {
        plim_engine_log_free(log);
        return NULL;
    }
    return log;
}

void plim_engine_log_free(struct plim_engine_log *log)
{
    if (log != NULL) {
        plim__oom_finder_free(log->lines);
        plim__oom_finder_free(log->failures);
        free(log);
    }
}

/* For each component the fullest device. What is kept for graphs is no activation. */
struct plim_engine_told plim_engine_log_told(const struct plim_engine_log *log)
{
    struct plim_engine_told told = log->told;
    for (size_t i = 0; i < log->n_keys; i++) {
        const struct plim__log_key *key = &log->keys[i];
        for (unsigned c = 0; c < PLIM_COMPONENTS; c++) {
            uint64_t bytes = key->bytes[c];
            if (c == PLIM_COMPONENT_ACTIVATIONS) {
                bytes = plim_sub_sat(bytes, key->graph_plan);
            }
            told.component[c] = plim_max_u64(told.component[c], bytes);
        }
        told.component_valid |= key->valid;
    }
    return told;
}

bool plim_engine_log_take(struct plim_engine_log *log, struct plim_happening *out)
{
    if (log->n_failed == 0) {
        return false;
    }
    *out = log->failed[0];
    log->n_failed--;
    memmove(log->failed, log->failed + 1, log->n_failed * sizeof(log->failed[0]));
    return true;
}
