/* SPDX-License-Identifier: Apache-2.0 */

/* What the samples before the failure tell: who held how much of each device, and how that changed.
 * */

#include "incident/last_seconds.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/num.h"
#include "device/sample_json.h"
#include "incident/assembly.h"
#include "report/markdown.h"

#define SAMPLES_BYTES (UINT64_C(64) << 20)
#define ROWS          16u

enum plim_status plim__last_seconds_read(const char *path, uint64_t until_ns,
                                         struct plim_last_seconds *out, struct plim_err *err)
{
    struct plim_str text;
    struct plim_sample sample = {0};
    enum plim_status st = PLIM_OK;
    *out = (struct plim_last_seconds){0};
    if (plim_file_read(path, SAMPLES_BYTES, &text, NULL) != PLIM_OK) {
        return PLIM_OK;
    }
    for (struct plim_str rest = text; rest.n > 0 && st == PLIM_OK;) {
        const char *end = memchr(rest.p, '\n', rest.n);
        struct plim_str line = {rest.p, end != NULL ? (size_t)(end - rest.p) : rest.n};
        rest = plim_str_skip(rest, line.n + 1);
        st = plim_sample_parse(line, &sample, err);
        if (st == PLIM_E_DATA || st == PLIM_E_BUDGET) {
            st = PLIM_OK; /* a torn line, or one of something else */
            continue;
        }
        bool late = out->n > 0 && sample.time_ns > until_ns && until_ns != 0;
        if (st == PLIM_OK && !late) {
            struct plim_sample *into = out->n == 0 ? &out->first : &out->last;
            struct plim_sample before = *into;
            plim_sample_balance(&sample);
            *into = sample;
            sample = before;
            out->n++;
        }
    }
    plim_sample_fini(&sample);
    free((void *)(uintptr_t)text.p);
    return st;
}

void plim__last_seconds_fini(struct plim_last_seconds *s)
{
    plim_sample_fini(&s->first);
    plim_sample_fini(&s->last);
}

const struct plim_sample *plim__last_sample(const struct plim_last_seconds *s)
{
    return s->n == 0 ? NULL : s->n == 1 ? &s->first : &s->last;
}

/* Whether a process is one of the program's: it dropped something, it is the program, or a child of
 * these. */
static bool is_ours(const struct plim_assembly *a, const struct plim_sample *sample, uint32_t pid,
                    unsigned depth)
{
    if ((int)pid == a->pieces.owner.pid) {
        return true;
    }
    plim_vec_foreach (drop, &a->pieces.drops) {
        if (drop->pid == (int)pid) {
            return true;
        }
    }
    const struct plim_process_facts *p = plim_sample_process(sample, pid);
    return p != NULL && p->ppid > 1 && depth > 0 && is_ours(a, sample, p->ppid, depth - 1);
}

struct plim_holders plim__holders(const struct plim_assembly *a, const struct plim_sample *sample,
                                  uint32_t device)
{
    struct plim_holders h = {0};
    plim_vec_foreach (use, &sample->uses) {
        if (use->device == device) {
            uint64_t *sum = is_ours(a, sample, use->pid, 8) ? &h.ours : &h.others;
            *sum = plim_add_sat(*sum, use->counted);
        }
    }
    h.known = plim_sample_unknown(sample, device, &h.unknown);
    return h;
}

static void cell(struct plim_buf *out, bool known, uint64_t bytes)
{
    char text[PLIM_BYTES_TEXT];
    plim_buf_printf(out, " %s |", known ? plim_bytes_format(text, bytes) : "");
}

static void row(const struct plim_assembly *a, struct plim_buf *out,
                const struct plim_last_seconds *s, const struct plim_sample *last, uint32_t i)
{
    const struct plim_device_sample *d = &last->devices.items[i];
    const struct plim_device_sample *before =
        i < s->first.devices.n ? &s->first.devices.items[i] : NULL;
    struct plim_holders h = plim__holders(a, last, i);
    plim_buf_printf(out, "| %u ", i);
    plim_markdown_escape(out, d->name);
    if (d->state != PLIM_DEVICE_OK) {
        plim_buf_printf(out, " (%s)", plim_device_state_text(d->state));
    }
    plim_buf_text(out, " |");
    cell(out, plim_has_figure(d, PLIM_FIGURE_TOTAL), d->figure[PLIM_FIGURE_TOTAL]);
    cell(out, before != NULL && plim_has_figure(before, PLIM_FIGURE_USED),
         before != NULL ? before->figure[PLIM_FIGURE_USED] : 0);
    cell(out, plim_has_figure(d, PLIM_FIGURE_USED), d->figure[PLIM_FIGURE_USED]);
    cell(out, h.known, h.ours);
    cell(out, h.known, h.others);
    cell(out, h.known, h.unknown);
    if (plim_has_figure(d, PLIM_FIGURE_XIDS) && d->figure[PLIM_FIGURE_XIDS] > 0) {
        plim_buf_printf(out, " Xid %llu |", (unsigned long long)d->figure[PLIM_FIGURE_LAST_XID]);
    }
    plim_buf_char(out, '\n');
}

void plim__last_seconds_markdown(const struct plim_assembly *a, struct plim_buf *out,
                                 const struct plim_last_seconds *s)
{
    const struct plim_sample *last = plim__last_sample(s);
    if (last == NULL || last->devices.n == 0) {
        return;
    }
    uint64_t span = last->time_ns > s->first.time_ns ? last->time_ns - s->first.time_ns : 0;
    plim_buf_printf(out,
                    "\n### The last seconds\n\n"
                    "| device | total | used %llu s before | used | by the program | by others | "
                    "nobody's |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
                    (unsigned long long)((span + UINT64_C(500000000)) / UINT64_C(1000000000)));
    for (uint32_t i = 0; i < last->devices.n && i < ROWS; i++) {
        row(a, out, s, last, i);
    }
}
