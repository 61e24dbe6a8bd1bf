/* SPDX-License-Identifier: Apache-2.0 */
/* Summary of a recording; see record.h. */

#include "report/record.h"

#include "base/bytes.h"

#include <stdio.h>

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void add_size(struct plim_buf *out, int64_t bytes)
{
    char text[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "%10s", plim_bytes_format(text, bytes < 0 ? 0 : (uint64_t)bytes));
}

/* The owners at the peak, most bytes first. */
static void add_owners(struct plim_buf *out, const struct plim_record_sums *s)
{
    bool shown[PLIM_OWNERS] = {false};
    for (;;) {
        unsigned best = PLIM_OWNERS;
        for (unsigned i = 0; i < PLIM_OWNERS; i++) {
            if (!shown[i] && s->at_peak[i] > 0 &&
                (best == PLIM_OWNERS || s->at_peak[i] > s->at_peak[best])) {
                best = i;
            }
        }
        if (best == PLIM_OWNERS) {
            return;
        }
        shown[best] = true;
        plim_buf_text(out, "  ");
        add_size(out, s->at_peak[best]);
        plim_buf_printf(out, "  %3.0f %%  %s\n", 100.0 * (double)s->at_peak[best] / (double)s->peak,
                        plim_owner_text(best));
    }
}

static void add_device(struct plim_buf *out, unsigned device, const struct plim_record_sums *s)
{
    char peak[PLIM_BYTES_TEXT], total[PLIM_BYTES_TEXT], end[PLIM_BYTES_TEXT];
    char name[24] = "device not known";
    if (device < PLIM_SHM_DEVICES - 1) {
        (void)snprintf(name, sizeof(name), "device %u", device);
    }
    plim_buf_printf(out, "%s: peak %s", name, plim_bytes_format(peak, (uint64_t)s->peak));
    if (s->total != 0) {
        plim_buf_printf(out, " of %s", plim_bytes_format(total, s->total));
    }
    plim_buf_printf(out, " by the calls seen, %s at the end\n",
                    plim_bytes_format(end, s->sum < 0 ? 0 : (uint64_t)s->sum));
    add_owners(out, s);
    if (s->refused > 0) {
        plim_buf_printf(out, "  the driver refused %llu request%s for lack of memory\n",
                        (unsigned long long)s->refused, plural(s->refused));
    }
}

static void add_trouble(struct plim_buf *out, const struct plim_record_tally *t)
{
    const struct {
        uint64_t n;
        const char *text;
    } rows[] = {
        {t->lost, "events lost: a ring was full (--ring)"},
        {t->unwritten, "events lost: the disk was full"},
        {t->over_limit, "events not written: behind a limit of the recording"},
        {t->unreadable, "times the events of a process could not be read"},
        {t->alive, "processes go on and are no longer recorded (--follow)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].n > 0) {
            plim_buf_printf(out, "%llu %s\n", (unsigned long long)rows[i].n, rows[i].text);
        }
    }
}

void plim_text_record(struct plim_buf *out, const struct plim_record_setup *setup,
                      const struct plim_record_result *result)
{
    const struct plim_record_tally *t = &result->tally;
    char bytes[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "plimsoll: recorded %llu event%s of %llu process%s in %.1f s: %s, %s\n",
                    (unsigned long long)t->events, plural(t->events),
                    (unsigned long long)t->processes, t->processes == 1 ? "" : "es",
                    (double)result->wall_ns / 1e9, setup->trace,
                    plim_bytes_format(bytes, result->trace_bytes));
    if (t->processes == 0) {
        plim_buf_text(out, "the program made no call to CUDA that could be seen\n");
    }
    for (unsigned i = 0; i < PLIM_SHM_DEVICES; i++) {
        if (t->device[i].peak > 0 || t->device[i].refused > 0) {
            add_device(out, i, &t->device[i]);
        }
    }
    add_trouble(out, t);
}
