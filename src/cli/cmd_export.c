/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll export SNAPSHOT: the same memory in the forms of other programs. */

#include "base/file.h"
#include "cli/reading.h"
#include "cli/verbs.h"
#include "format/snapshot_read.h"
#include "report/export.h"

/* The device whose trace is longest; the first when there are no traces. */
static uint32_t busiest(const struct plim_snapshot *s)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->devices.n; i++) {
        if (s->devices.items[i].trace.events.n > s->devices.items[best].trace.events.n) {
            best = i;
        }
    }
    return best;
}

static enum plim_status write_export(const struct plim_opts_export *opts,
                                     const struct plim_snapshot *s, struct plim_buf *out,
                                     struct plim_err *err)
{
    bool one_device = opts->device.given || opts->from.given || opts->until.given ||
                      plim_cli_is(opts->format, "perfetto") || plim_cli_is(opts->format, "folded");
    struct plim_export_window window = {.device = PLIM_NO_ID, .until = SIZE_MAX};
    if (one_device) {
        window.device = opts->device.given ? (uint32_t)opts->device.value : busiest(s);
        window.from = opts->from.given ? opts->from.value : 0;
        window.until = opts->until.given ? opts->until.value : SIZE_MAX;
    }
    if (plim_cli_is(opts->format, "perfetto")) {
        return plim_export_perfetto(out, s, &window, err);
    }
    if (plim_cli_is(opts->format, "folded")) {
        return plim_export_folded(out, s, &window, err);
    }
    if (plim_cli_is(opts->format, "sqlite")) {
        return plim_export_sqlite(out, s, &window, err);
    }
    return plim_export_pickle(out, s, &window, err);
}

struct sink {
    struct plim_target target;
    struct plim_err *err;
    enum plim_status status; /* of the last write */
};

static bool pass_on(void *self, struct plim_str bytes)
{
    struct sink *sink = self;
    sink->status = plim_target_write(&sink->target, bytes, sink->err);
    return sink->status == PLIM_OK;
}

/* Written as it is made: an export may be larger than the memory that is left. */
static enum plim_status send_export(const struct plim_opts_export *opts,
                                    const struct plim_snapshot *s, struct plim_err *err)
{
    struct sink sink = {.err = err, .status = PLIM_OK};
    struct plim_buf out = {.drain = pass_on, .self = &sink};
    PLIM_TRY(plim_target_open(opts->output ? opts->output : "-", &sink.target, err));
    enum plim_status st = write_export(opts, s, &out, err);
    if (st == PLIM_OK) {
        plim_buf_flush(&out);
        st = plim_buf_status(&out, sink.status == PLIM_OK ? err : NULL);
    }
    plim_buf_fini(&out);
    st = sink.status == PLIM_OK ? st : sink.status;
    if (st != PLIM_OK) {
        plim_target_abort(&sink.target);
        return st;
    }
    return plim_target_commit(&sink.target, err);
}

enum plim_status plim_cmd_export(struct plim_cli *cli, const struct plim_opts_export *opts,
                                 struct plim_err *err)
{
    struct plim_snapshot snapshot;
    struct plim_read_limits limits = PLIM_READ_LIMITS(opts);
    PLIM_TRY(plim_snapshot_read_file(cli->args[0], &limits, &snapshot, err));
    enum plim_status st = send_export(opts, &snapshot, err);
    cli->sent = true;
    plim_snapshot_fini(&snapshot);
    return st;
}
