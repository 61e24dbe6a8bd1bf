/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writing metrics: heads, labels, numbers, and which form a client wants. See metrics.h.
 *
 * Forms: Prometheus text 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats) and OpenMetrics
 * 1.0 (its specification). They differ here in the names of heads (without _total and _info in
 * OpenMetrics), in types (`info` is a gauge of the text form), in `# UNIT`, and in `# EOF`. `_created`
 * is optional and left out: scrapers that keep it take it for a metric of its own.
 */

#include "report/metrics.h"

#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

const char *plim_metrics_content_type(enum plim_metrics_form form)
{
    static const char *const types[] = {
#define PLIM__X(name, type) type,
        PLIM_METRICS_FORM_MAP(PLIM__X)
#undef PLIM__X
    };
    return types[form];
}

/* ---- Accept ---- */

/* The text before `end`, and what follows it, trimmed. */
static struct plim_str part(struct plim_str *rest, char end)
{
    const char *at = rest->n > 0 ? memchr(rest->p, end, rest->n) : NULL;
    size_t n = at != NULL ? (size_t)(at - rest->p) : rest->n;
    struct plim_str head = {rest->p, n};
    *rest = plim_str_skip(*rest, n + (at != NULL));
    return plim_str_trim(head);
}

static bool is(struct plim_str s, const char *word)
{
    return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0;
}

/* A weight: "0" to "1" with at most three decimals; anything else counts as 0. */
static double weight(struct plim_str s)
{
    char text[8] = "";
    char *end;
    if (s.n == 0 || s.n > 5 || s.p[0] < '0' || s.p[0] > '1') {
        return 0;
    }
    memcpy(text, s.p, s.n);
    double q = strtod(text, &end);
    return *end == '\0' && q >= 0 && q <= 1 ? q : 0;
}

/* What one range of the header says. @version: of the type, "" for none. */
struct range {
    struct plim_str type, version;
    double q;
};

static struct range parse_range(struct plim_str text)
{
    struct range r = {.type = part(&text, ';'), .q = 1};
    while (text.n > 0) {
        struct plim_str value = part(&text, ';');
        struct plim_str name = part(&value, '=');
        if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"') {
            value = (struct plim_str){value.p + 1, value.n - 2};
        }
        if (is(name, "q")) {
            r.q = weight(value);
        } else if (is(name, "version")) {
            r.version = value;
        }
    }
    return r;
}

enum plim_metrics_form plim_metrics_choose(struct plim_str accept)
{
    double open = 0, text = -1, all = -1, any = -1; /* -1: not named */
    while (accept.n > 0) {
        struct range r = parse_range(part(&accept, ','));
        if (is(r.type, "application/openmetrics-text")) {
            bool ours = r.version.n == 0 || is(r.version, "1.0.0") || is(r.version, "0.0.1");
            open = ours ? fmax(open, r.q) : open;
        } else if (is(r.type, "text/plain")) {
            bool ours = r.version.n == 0 || is(r.version, "0.0.4");
            text = ours ? fmax(text, r.q) : text;
        } else if (is(r.type, "text/*")) {
            all = fmax(all, r.q);
        } else if (is(r.type, "*/*")) {
            any = fmax(any, r.q);
        }
    }
    text = text >= 0 ? text : all >= 0 ? all : any >= 0 ? any : 0;
    return open > 0 && open >= text ? PLIM_METRICS_OPENMETRICS : PLIM_METRICS_TEXT;
}

/* ---- rows ---- */

static const char *suffix(const struct plim_metric *m)
{
    return m->type == PLIM_METRIC_COUNTER ? "_total" : m->type == PLIM_METRIC_INFO ? "_info" : "";
}

static void name(struct plim__scrape *x, const char *end)
{
    plim_buf_text(x->out, "plimsoll_");
    plim_buf_text(x->out, x->metric->name);
    plim_buf_text(x->out, end);
}

/* The unit that a name ends in, or NULL. */
static const char *unit_of(const char *metric)
{
    static const char *const units[] = {
        "bytes_per_second", "bytes", "seconds", "ratio", "watts", "hertz", "celsius", "tokens"};
    for (size_t i = 0; i < PLIM_COUNT_OF(units); i++) {
        size_t n = strlen(units[i]), all = strlen(metric);
        if (all > n && metric[all - n - 1] == '_' && strcmp(metric + all - n, units[i]) == 0) {
            return units[i];
        }
    }
    return NULL;
}

/* Helps hold no backslash and no line feed, and in OpenMetrics quotation marks need an escape. */
static void head(struct plim__scrape *x)
{
    static const char *const types[] = {"gauge", "counter", "info"};
    const struct plim_metric *m = x->metric;
    bool open = x->form == PLIM_METRICS_OPENMETRICS;
    const char *end = open ? "" : suffix(m);
    bool info = m->type == PLIM_METRIC_INFO && !open;
    plim_buf_text(x->out, "# HELP ");
    name(x, end);
    plim_buf_char(x->out, ' ');
    for (const char *p = m->help; *p != '\0'; p++) {
        plim_buf_text(x->out, open && *p == '"' ? "\\" : "");
        plim_buf_char(x->out, *p);
    }
    plim_buf_text(x->out, "\n# TYPE ");
    name(x, end);
    plim_buf_char(x->out, ' ');
    plim_buf_text(x->out, info ? "gauge" : types[m->type]);
    plim_buf_char(x->out, '\n');
    const char *unit = unit_of(m->name);
    if (open && unit != NULL) {
        plim_buf_text(x->out, "# UNIT ");
        name(x, "");
        plim_buf_char(x->out, ' ');
        plim_buf_text(x->out, unit);
        plim_buf_char(x->out, '\n');
    }
}

bool plim__row(struct plim__scrape *x)
{
    if (x->rows == PLIM_METRICS_ROWS) {
        x->dropped++;
        return false;
    }
    if (x->rows++ == 0) {
        head(x);
    }
    name(x, suffix(x->metric));
    x->labelled = false;
    return true;
}

/* Bytes of one well-formed character at p; 0 for none. Source: RFC 3629, section 4. */
static size_t character(const unsigned char *p)
{
    size_t n = p[0] < 0x80                    ? 1
               : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
               : p[0] >= 0xe0 && p[0] <= 0xef ? 3
               : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                              : 0;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf) {
            return 0;
        }
    }
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool beyond = (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

/* A label's value: cut, escaped, and always UTF-8. */
static void label_text(struct plim_buf *out, const char *value)
{
    const unsigned char *p = (const unsigned char *)value;
    for (size_t room = PLIM_METRICS_LABEL; *p != '\0';) {
        size_t n = character(p);
        if ((n != 0 ? n : 3) > room) {
            return;
        }
        room -= n != 0 ? n : 3;
        if (n == 0) {
            plim_buf_text(out, "\xef\xbf\xbd");
        } else if (*p == '\\' || *p == '"') {
            plim_buf_char(out, '\\');
            plim_buf_char(out, (char)*p);
        } else if (*p == '\n') {
            plim_buf_text(out, "\\n");
        } else {
            plim_buf_add(out, (struct plim_str){(const char *)p, n});
        }
        p += n != 0 ? n : 1;
    }
}

static void label_name(struct plim__scrape *x, const char *name)
{
    plim_buf_char(x->out, x->labelled ? ',' : '{');
    plim_buf_text(x->out, name);
    plim_buf_text(x->out, "=\"");
    x->labelled = true;
}

void plim__label(struct plim__scrape *x, const char *name, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        label_name(x, name);
        label_text(x->out, value);
        plim_buf_char(x->out, '"');
    }
}

void plim__label_u64(struct plim__scrape *x, const char *name, uint64_t value)
{
    label_name(x, name);
    plim_buf_u64(x->out, value);
    plim_buf_char(x->out, '"');
}

static void end_labels(struct plim__scrape *x)
{
    plim_buf_text(x->out, x->labelled ? "} " : " ");
}

void plim__value_real(struct plim__scrape *x, double v)
{
    end_labels(x);
    if (v >= 0 && v < PLIM_EXACT_MAX && v == floor(v)) {
        plim_buf_u64(x->out, (uint64_t)v);
    } else {
        plim_buf_real(x->out, v);
    }
    plim_buf_char(x->out, '\n');
}

void plim__value(struct plim__scrape *x, uint64_t v)
{
    if (x->metric->scale != 0) {
        plim__value_real(x, (double)v * x->metric->scale);
        return;
    }
    end_labels(x);
    plim_buf_u64(x->out, v);
    plim_buf_char(x->out, '\n');
}

void plim_metrics_write(struct plim_buf *out, const struct plim_state *state,
                        enum plim_metrics_form form)
{
    size_t n;
    const struct plim_metric *table = plim__metrics(&n);
    struct plim__scrape x = {.out = out, .state = state, .form = form};
    for (size_t i = 0; i < n; i++) {
        x.metric = &table[i];
        x.rows = 0;
        table[i].rows(&x);
    }
    if (form == PLIM_METRICS_OPENMETRICS) {
        plim_buf_text(out, "# EOF\n");
    }
}

/* ---- the document ---- */

void plim_metrics_document(struct plim_buf *out)
{
    static const char *const types[] = {"gauge", "counter", "info"};
    size_t n;
    const struct plim_metric *table = plim__metrics(&n);
    plim_buf_text(out, "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < n; i++) {
        plim_buf_printf(out, "| `plimsoll_%s%s` | %s | %s | %s |\n", table[i].name,
                        suffix(&table[i]), types[table[i].type], table[i].labels, table[i].help);
    }
}
