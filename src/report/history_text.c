/* SPDX-License-Identifier: Apache-2.0 */

/* History for people: a line for each series, with what it was and how it went. And as CSV. */

#include "report/history_int.h"

#include "base/bytes.h"
#include "base/scalar.h"

#include <stdio.h>

#define NUMBER_TEXT 32
#define SPARK_LEAST 10u
#define LINE_FIXED  62u /* columns of a line besides the drawing */

static bool is_bytes(const char *figure)
{
    size_t n = strlen(figure);
    return n > 6 && strcmp(figure + n - 6, "_bytes") == 0;
}

static const char *number(char buf[NUMBER_TEXT], const char *figure, double v)
{
    char bytes[PLIM_BYTES_TEXT];
    if (is_bytes(figure) && v >= 0 && v < 18446744073709551615.0) {
        (void)snprintf(buf, NUMBER_TEXT, "%s", plim_bytes_format(bytes, (uint64_t)v));
    } else {
        (void)snprintf(buf, NUMBER_TEXT, "%.6g", v);
    }
    return buf;
}

/* Texts of the file may be hostile: no control characters reach the terminal. */
static void put_clean(struct plim_buf *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        plim_buf_char(out, (unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : *p);
    }
}

static void put_label(struct plim_buf *out, const json_t *labels, const char *key,
                      const char *before)
{
    const json_t *v = json_object_get(labels, key);
    if (json_is_string(v)) {
        plim_buf_text(out, before);
        put_clean(out, json_string_value(v));
    } else if (json_is_integer(v)) {
        plim_buf_printf(out, "%s%lld", before, (long long)json_integer_value(v));
    }
}

/* "device 0, NVIDIA H100, GPU-8f2a" */
static void put_subject(struct plim_buf *out, const struct plim_store_subject *s)
{
    json_t *labels = json_loads(s->labels, 0, NULL);
    put_clean(out, s->kind);
    if (strcmp(s->kind, "device") == 0) {
        put_label(out, labels, "device", " ");
        put_label(out, labels, "name", ", ");
        put_label(out, labels, "uuid", ", ");
    } else if (strcmp(s->kind, "process") == 0) {
        put_label(out, labels, "pid", " ");
        put_label(out, labels, "name", " ");
        put_label(out, labels, "device", " on device ");
        put_label(out, labels, "unit", ", ");
        put_label(out, labels, "container", ", ");
    } else if (s->key[0] != '\0') {
        plim_buf_char(out, ' ');
        put_clean(out, s->key);
        put_label(out, labels, "model", ", ");
    }
    json_decref(labels);
}

static void text_begin(struct plim__history *h)
{
    char from[PLIM_TIME_TEXT], to[PLIM_TIME_TEXT];
    const struct plim_history_request *r = h->request;
    put_clean(h->out, r->path);
    plim_buf_printf(h->out, ", %.19sZ to ", plim_time_format(from, r->from_ns));
    if (r->to_ns != 0) {
        plim_buf_printf(h->out, "%.19sZ\n", plim_time_format(to, r->to_ns));
    } else {
        plim_buf_text(h->out, "now\n");
    }
}

/* How the mean went from the first bin to the last: a column for each of `width` equal stretches of time. */
static void put_spark(struct plim__history *h, const struct plim_store_answer *a, size_t width)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {"_", "_", ".", "-", "-", "=", "*", "#"};
    const char *const *level = h->request->style.unicode ? blocks : plain;
    const struct plim_store_bin *bins = a->bins.items;
    uint64_t begin = bins[0].time_ns, span = bins[a->bins.n - 1].time_ns + a->step_ns - begin;
    uint64_t column = span / width > a->step_ns ? span / width + 1 : a->step_ns;
    double low = bins[0].mean, high = bins[0].mean;
    for (size_t i = 0; i < a->bins.n; i++) {
        low = bins[i].mean < low ? bins[i].mean : low;
        high = bins[i].mean > high ? bins[i].mean : high;
    }
    size_t i = 0;
    for (size_t c = 0; c < width; c++) {
        double top = 0;
        bool there = false;
        for (; i < a->bins.n && bins[i].time_ns < begin + (c + 1) * column; i++) {
            top = !there || bins[i].mean > top ? bins[i].mean : top;
            there = true;
        }
        double share = high > low ? (top - low) / (high - low) : 0;
        plim_buf_text(h->out, there ? level[(size_t)(share * 7.0)] : " ");
    }
}

static void text_series(struct plim__history *h, const struct plim_store_subject *s,
                        const char *figure, const struct plim_store_answer *a)
{
    char least[NUMBER_TEXT], most[NUMBER_TEXT], mean[NUMBER_TEXT], last[NUMBER_TEXT];
    double min = a->bins.items[0].min, max = a->bins.items[0].max, sum = 0, n = 0;
    plim_vec_foreach (bin, &a->bins) {
        min = bin->min < min ? bin->min : min;
        max = bin->max > max ? bin->max : max;
        sum += bin->mean * (double)bin->n;
        n += (double)bin->n;
    }
    if (h->subject != s->key) {
        plim_buf_char(h->out, '\n');
        put_subject(h->out, s);
        plim_buf_char(h->out, '\n');
        h->subject = s->key;
    }
    plim_buf_text(h->out, "  ");
    put_clean(h->out, figure);
    plim_buf_repeat(h->out, " ", strlen(figure) < 18 ? 18 - strlen(figure) : 0);
    plim_buf_char(h->out, ' ');
    unsigned width = h->request->style.width != 0 ? h->request->style.width : 80;
    put_spark(h, a, width > LINE_FIXED + SPARK_LEAST ? width - LINE_FIXED : SPARK_LEAST);
    plim_buf_printf(h->out, " %s to %s, mean %s, last %s\n", number(least, figure, min),
                    number(most, figure, max), number(mean, figure, sum / n),
                    number(last, figure, a->bins.items[a->bins.n - 1].last));
    if (a->complete_from_ns > a->bins.items[0].time_ns + a->step_ns) {
        char from[PLIM_TIME_TEXT];
        plim_buf_printf(h->out, "  %18s coarser before %.19sZ\n", "",
                        plim_time_format(from, a->complete_from_ns));
    }
}

static void text_subject(struct plim__history *h, const struct plim_store_subject *s)
{
    char from[PLIM_TIME_TEXT], to[PLIM_TIME_TEXT];
    plim_buf_printf(h->out, "%.19sZ to %.19sZ  ", plim_time_format(from, s->first_ns),
                    plim_time_format(to, s->last_ns));
    put_subject(h->out, s);
    plim_buf_char(h->out, '\n');
}

static void text_event(struct plim__history *h, const struct plim_store_event *event,
                       const struct plim_store_subject *s)
{
    char when[PLIM_TIME_TEXT];
    json_t *data = json_loads(event->json, 0, NULL);
    plim_buf_printf(h->out, "%.19sZ  ", plim_time_format(when, event->time_ns));
    put_clean(h->out, event->kind);
    if (s != NULL) {
        plim_buf_text(h->out, "  ");
        put_subject(h->out, s);
    }
    put_label(h->out, data, "class", "  ");
    put_label(h->out, data, "severity", ", ");
    put_label(h->out, data, "summary", ": ");
    put_label(h->out, data, "text", "  ");
    put_label(h->out, data, "value", " ");
    plim_buf_char(h->out, '\n');
    json_decref(data);
}

static void text_end(struct plim__history *h)
{
    static const char *const nothing[] = {"no series", "no subjects", "no events", "no findings"};
    if (h->pieces == 0) {
        plim_buf_printf(h->out, "%s in this time\n", nothing[h->request->what]);
    }
}

const struct plim__history_form plim__history_text = {text_begin, text_subject, text_series,
                                                      text_event, text_end};

/* ---- CSV ---- */

static void csv_text(struct plim_buf *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        plim_buf_text(out, text);
        return;
    }
    plim_buf_char(out, '"');
    for (const char *p = text; *p != '\0'; p++) {
        plim_buf_text(out, *p == '"' ? "\"" : "");
        plim_buf_char(out, *p);
    }
    plim_buf_char(out, '"');
}

static void csv_begin(struct plim__history *h)
{
    static const char *const heads[] = {
        "time,kind,key,figure,n,min,mean,max,last\n",
        "kind,key,first,last,labels\n",
        "time,event,kind,key,data\n",
        "time,event,kind,key,data\n",
    };
    plim_buf_text(h->out, heads[h->request->what]);
}

static void csv_series(struct plim__history *h, const struct plim_store_subject *s,
                       const char *figure, const struct plim_store_answer *a)
{
    char when[PLIM_TIME_TEXT];
    plim_vec_foreach (bin, &a->bins) {
        plim_buf_printf(h->out, "%s,", plim_time_format(when, bin->time_ns));
        csv_text(h->out, s->kind);
        plim_buf_char(h->out, ',');
        csv_text(h->out, s->key);
        plim_buf_char(h->out, ',');
        csv_text(h->out, figure);
        plim_buf_printf(h->out, ",%llu,%.17g,%.17g,%.17g,%.17g\n", (unsigned long long)bin->n,
                        bin->min, bin->mean, bin->max, bin->last);
    }
}

static void csv_subject(struct plim__history *h, const struct plim_store_subject *s)
{
    char first[PLIM_TIME_TEXT], last[PLIM_TIME_TEXT];
    csv_text(h->out, s->kind);
    plim_buf_char(h->out, ',');
    csv_text(h->out, s->key);
    plim_buf_printf(h->out, ",%s,%s,", plim_time_format(first, s->first_ns),
                    plim_time_format(last, s->last_ns));
    csv_text(h->out, s->labels);
    plim_buf_char(h->out, '\n');
}

static void csv_event(struct plim__history *h, const struct plim_store_event *event,
                      const struct plim_store_subject *s)
{
    char when[PLIM_TIME_TEXT];
    plim_buf_printf(h->out, "%s,", plim_time_format(when, event->time_ns));
    csv_text(h->out, event->kind);
    plim_buf_char(h->out, ',');
    csv_text(h->out, s != NULL ? s->kind : "");
    plim_buf_char(h->out, ',');
    csv_text(h->out, s != NULL ? s->key : "");
    plim_buf_char(h->out, ',');
    csv_text(h->out, event->json);
    plim_buf_char(h->out, '\n');
}

static void csv_end(struct plim__history *h)
{
    (void)h;
}

const struct plim__history_form plim__history_csv = {csv_begin, csv_subject, csv_series, csv_event,
                                                     csv_end};
