/* SPDX-License-Identifier: Apache-2.0 */
/* See captured.h. */

#include "diagnose/captured.h"

enum plim_status plim__captured_facts(const struct plim_snapshot *snapshot,
                                      struct plim_diagnosis *d, struct plim_err *err)
{
    if (snapshot->capture == PLIM_NO_ID) {
        return PLIM_OK;
    }
    struct plim_str text = plim_intern_str(&snapshot->strings, snapshot->capture);
    enum plim_status st = plim_capture_read(text, &d->arena, &d->capture, err);
    if (st != PLIM_OK) {
        return st == PLIM_E_NOMEM ? st : PLIM_OK;
    }
    uint64_t total = plim_capture_total(&d->capture, d->device), limit = d->capture.limit;
    if (!plim_known(d->facts.total) && total > 0) {
        d->facts.total = plim_amount(total, PLIM_HOW_MEASURED);
    }
    bool capped = d->capture.failure && d->capture.device == d->device && limit > 0;
    if (!plim_known(d->facts.cap) && capped && limit < total) {
        d->facts.cap = plim_amount(limit, PLIM_HOW_MEASURED);
    }
    return PLIM_OK;
}

enum plim_status plim__captured_work(const struct plim_snapshot *snapshot, struct plim_diagnosis *d,
                                     struct plim_err *err)
{
    const struct plim_trace *trace = &snapshot->devices.items[d->device].trace;
    if (!d->failure.happened) {
        return PLIM_OK;
    }
    if (d->capture.failure && d->capture.device == d->device) {
        d->failure.tags = d->capture.tags;
        return PLIM_OK;
    }
    uint32_t note = d->failure.event < trace->events.n ? trace->events.items[d->failure.event].note
                                                       : PLIM_NO_ID;
    if (note >= snapshot->notes.n || snapshot->notes.items[note].user_metadata == PLIM_NO_ID) {
        return PLIM_OK;
    }
    struct plim_str text =
        plim_intern_str(&snapshot->strings, snapshot->notes.items[note].user_metadata);
    enum plim_status st = plim_tags_read(text, &d->arena, &d->failure.tags, err);
    return st == PLIM_E_NOMEM ? st : PLIM_OK; /* a program's own text is no note of ours */
}

const char *plim__work_text(const struct plim_tags *tags, struct plim_arena *arena)
{
    const char *text = NULL;
    for (uint32_t i = 0; i < tags->n; i++) {
        text = plim_arena_sayf(arena, "%s%s%s %s", text != NULL ? text : "",
                               text != NULL ? ", " : "", tags->items[i].name, tags->items[i].text);
    }
    return text;
}

void plim__name_work(struct plim_diagnosis *d)
{
    const char *work = plim__work_text(&d->failure.tags, &d->arena);
    if (work != NULL) {
        d->set.verdict.summary = plim_arena_sayf(&d->arena, "%s The program was at work on %s.",
                                                 d->set.verdict.summary, work);
    }
}
