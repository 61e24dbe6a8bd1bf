/* SPDX-License-Identifier: Apache-2.0 */
/* See judge_input.h. */

#include "cli/judge_input.h"
#include "cli/reading.h"

#include "diagnose/facts.h"
#include "format/snapshot_read.h"

static struct plim_amount given(struct plim_opt_u64 option)
{
    return option.given ? plim_amount(option.value, PLIM_HOW_GIVEN)
                        : plim_amount(0, PLIM_HOW_UNKNOWN);
}

static struct plim_diagnose_options options_from(const struct plim_judge_words *words)
{
    return (struct plim_diagnose_options){
        .facts.total = given(words->device_memory),
        .facts.external = given(words->external),
        .facts.cap = given(words->cap),
        .device = words->device.given && words->device.value < PLIM_NO_ID
                      ? (uint32_t)words->device.value
                      : PLIM_NO_ID,
        .moment = plim_cli_is(words->at, "peak")  ? PLIM_MOMENT_PEAK
                  : plim_cli_is(words->at, "end") ? PLIM_MOMENT_END
                                                  : PLIM_MOMENT_AUTO,
        .no_replay = words->no_replay,
        .rows = words->rows.given && words->rows.value < 100000 ? (uint32_t)words->rows.value : 0,
    };
}

/* The message that belongs to the snapshot: what it says of the device's side. */
static enum plim_status add_message(const char *path, struct plim_facts *facts,
                                    struct plim_err *err)
{
    struct plim_source source;
    struct plim_oom_scan scan;
    struct plim_message message = {0};
    PLIM_TRY(plim_source_open(path, &source, err));
    enum plim_status st = plim_oom_scan(&source, &scan, err);
    if (st == PLIM_OK) {
        st = plim_message_judge(&scan, &message, err);
        st = st == PLIM_OK ? plim_facts_add_message(facts, &scan, &message, err) : st;
        plim_message_fini(&message);
    }
    plim_oom_scan_fini(&scan);
    plim_source_close(&source);
    return st;
}

enum plim_status plim_judge_input(const char *path, const struct plim_judge_words *words,
                                  struct plim_judged *out, struct plim_err *err)
{
    struct plim_read_limits limits = PLIM_READ_LIMITS(words);
    struct plim_diagnose_options options = options_from(words);
    out->other = options;
    if (words->oom_text) {
        PLIM_TRY(add_message(words->oom_text, &options.facts, err));
    }
    PLIM_TRY(plim_snapshot_read_file(path, &limits, &out->snapshot, err));
    enum plim_status st = plim_diagnose(&out->snapshot, &options, &out->diagnosis, err);
    if (st != PLIM_OK) {
        plim_snapshot_fini(&out->snapshot);
    }
    return st;
}

void plim_judged_fini(struct plim_judged *judged)
{
    plim_diagnosis_fini(&judged->diagnosis);
    plim_snapshot_fini(&judged->snapshot);
}

const char *plim_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
