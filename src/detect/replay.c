/* SPDX-License-Identifier: Apache-2.0 */

/* See replay.h. */

#include "detect/replay.h"

#include "base/buf.h"
#include "device/sample_json.h"

#define CHUNK    (256u << 10)
#define LINE_MAX ((size_t)64 << 20)

/* Keep what the detector tells now: it forgets findings that ended long ago. */
static enum plim_status remember(const struct plim_detector *d, struct plim_replayed *out,
                                 struct plim_err *err)
{
    size_t n;
    const struct plim_finding *now = plim_detector_findings(d, &n);
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < out->findings.n && out->findings.items[at].id != now[i].id) {
            at++;
        }
        if (at == out->findings.n) {
            PLIM_TRY(plim_vec_push(&out->findings, err, now[i]));
        } else {
            out->findings.items[at] = now[i];
        }
    }
    return PLIM_OK;
}

static enum plim_status feed(struct plim_detector *d, struct plim_str line,
                             struct plim_replayed *out, struct plim_err *err)
{
    struct plim_observation *o = &out->last;
    uint64_t before = o->sample.time_ns;
    if (plim_str_trim(line).n == 0) {
        return PLIM_OK;
    }
    out->samples++;
    enum plim_status st = plim_sample_parse(line, &o->sample, err);
    if (st != PLIM_OK) {
        plim__err_where(err, "line %llu", (unsigned long long)out->samples);
        return st;
    }
    plim_sample_balance(&o->sample);
    bool later = out->samples > 1 && o->sample.time_ns > before;
    o->mono_ns += later ? o->sample.time_ns - before : 0;
    PLIM_TRY(plim_detector_step(d, o, err));
    return remember(d, out, err);
}

/* Feed the whole lines of the buffer, and keep what is left of it. */
static enum plim_status feed_lines(struct plim_detector *d, struct plim_buf *text,
                                   struct plim_replayed *out, struct plim_err *err)
{
    size_t begin = 0;
    const char *end;
    while ((end = memchr(text->p + begin, '\n', text->n - begin)) != NULL) {
        size_t n = (size_t)(end - text->p) - begin;
        PLIM_TRY(feed(d, (struct plim_str){text->p + begin, n}, out, err));
        begin += n + 1;
    }
    memmove(text->p, text->p + begin, text->n - begin);
    text->n -= begin;
    return text->n <= LINE_MAX ? PLIM_OK : plim__fail(err, PLIM_E_BUDGET, "a line is too long");
}

enum plim_status plim_detect_replay(struct plim_detector *d, struct plim_source *source,
                                    struct plim_replayed *out, struct plim_err *err)
{
    static const size_t chunk = CHUNK;
    struct plim_buf text = {0};
    char *part = malloc(chunk);
    enum plim_status st = part != NULL ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "out of memory");
    size_t got = 1;
    *out = (struct plim_replayed){0};
    while (st == PLIM_OK && got > 0) {
        PLIM_TRY_GOTO(st, source->read(source->self, part, chunk, &got, err), done);
        plim_buf_add(&text, (struct plim_str){part, got});
        PLIM_TRY_GOTO(st, plim_buf_status(&text, err), done);
        if (text.n > 0) {
            PLIM_TRY_GOTO(st, feed_lines(d, &text, out, err), done);
        }
    }
    if (st == PLIM_OK) {
        st = feed(d, plim_buf_str(&text), out, err);
    }
done:
    plim_buf_fini(&text);
    free(part);
    return st;
}

void plim_replayed_fini(struct plim_replayed *replayed)
{
    plim_sample_fini(&replayed->last.sample);
    plim_vec_fini(&replayed->findings);
}
