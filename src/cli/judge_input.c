/* SPDX-License-Identifier: Apache-2.0 */
/* See judge_input.h. */

#include "cli/judge_input.h"
#include "cli/reading.h"

#include "diagnose/facts.h"
#include "format/snapshot_read.h"
#include "format/trace_build.h"
#include "incident/bundle.h"

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

/* The message that belongs to the snapshot: what it says of the device's side. Text that tells of
 * no failure is an error when it `must` be one. Closes the source. */
static enum plim_status add_message(struct plim_source *source, bool must, struct plim_facts *facts,
                                    struct plim_err *err)
{
    struct plim_oom_scan scan;
    struct plim_message message = {0};
    enum plim_status st = plim_oom_scan(source, &scan, err);
    if (st == PLIM_OK) {
        st = plim_message_judge(&scan, &message, err);
        if (st == PLIM_OK && (must || message.primary != SIZE_MAX)) {
            st = plim_facts_add_message(facts, &scan, &message, err);
        }
        plim_message_fini(&message);
    }
    plim_oom_scan_fini(&scan);
    plim_source_close(source);
    return st;
}

static enum plim_status add_message_file(const char *path, struct plim_facts *facts,
                                         struct plim_err *err)
{
    struct plim_source source;
    PLIM_TRY(plim_source_open(path, &source, err));
    return add_message(&source, true, facts, err);
}

/* What a trace knows of the outside, into the snapshot. */
static enum plim_status add_trace_file(const char *path, const struct plim_read_limits *limits,
                                       struct plim_snapshot *snapshot, struct plim_err *err)
{
    struct plim_source source;
    PLIM_TRY(plim_source_open(path, &source, err));
    enum plim_status st = plim_trace_read_beside(&source, limits, snapshot, err);
    if (st != PLIM_OK && err && !err->where[0]) {
        plim__err_where(err, "%s", source.name);
    }
    plim_source_close(&source);
    return st;
}

/* An incident: its first snapshot, with its message and what its manifest says of the device. */
static enum plim_status read_bundle(const struct plim_bundle *bundle,
                                    const struct plim_read_limits *limits, struct plim_facts *facts,
                                    struct plim_snapshot *out, struct plim_err *err)
{
    struct plim_source source;
    if (bundle->snapshot == NULL) {
        enum plim_status st =
            plim__fail(err, PLIM_E_NOTFOUND, "the incident '%.150s' has no snapshot", bundle->path);
        plim__err_hint(err, "plimsoll incident shows what is in it");
        return st;
    }
    if (bundle->device_known && !plim_known(facts->total)) {
        facts->total = plim_amount(bundle->device_total, PLIM_HOW_MEASURED);
        facts->free = plim_amount(bundle->device_free, PLIM_HOW_MEASURED);
    }
    enum plim_status st = plim_bundle_source(bundle->path, "message.txt", &source, err);
    if (st == PLIM_OK) {
        st = add_message(&source, false, facts, err);
    }
    if (st != PLIM_OK && st != PLIM_E_NOTFOUND) {
        return st;
    }
    PLIM_TRY(plim_bundle_source(bundle->path, bundle->snapshot, &source, err));
    st = plim_snapshot_read(&source, limits, out, err);
    plim_source_close(&source);
    if (st == PLIM_OK && bundle->trace != NULL &&
        plim_bundle_source(bundle->path, bundle->trace, &source, NULL) == PLIM_OK) {
        /* a trace that says nothing of this process takes nothing from the snapshot */
        enum plim_status ignored = plim_trace_read_beside(&source, limits, out, NULL);
        (void)ignored;
        plim_source_close(&source);
    }
    return st;
}

/* A snapshot, or an incident with one in it. */
static enum plim_status read_input(const char *path, const struct plim_read_limits *limits,
                                   struct plim_facts *facts, struct plim_snapshot *out,
                                   struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_bundle bundle;
    if (!plim_bundle_is(path)) {
        return plim_snapshot_read_file(path, limits, out, err);
    }
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_bundle_open(path, &arena, &bundle, err);
    if (st == PLIM_OK) {
        st = read_bundle(&bundle, limits, facts, out, err);
        plim_bundle_fini(&bundle);
    }
    plim_arena_fini(&arena);
    return st;
}

enum plim_status plim_judge_input(const char *path, const struct plim_judge_words *words,
                                  struct plim_judged *out, struct plim_err *err)
{
    struct plim_read_limits limits = PLIM_READ_LIMITS(words);
    struct plim_diagnose_options options = options_from(words);
    PLIM_TRY(plim_check_device_memory(words->device_memory, err));
    out->other = options;
    if (words->oom_text) {
        PLIM_TRY(add_message_file(words->oom_text, &options.facts, err));
    }
    PLIM_TRY(read_input(path, &limits, &options.facts, &out->snapshot, err));
    enum plim_status st = PLIM_OK;
    if (words->trace) {
        st = add_trace_file(words->trace, &limits, &out->snapshot, err);
    }
    st = st == PLIM_OK ? plim_diagnose(&out->snapshot, &options, &out->diagnosis, err) : st;
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
