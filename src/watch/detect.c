/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part that judges: each observation through the detector, its findings to the clients. Where a
 * history is kept, what the detector learned is kept beside it (HISTORY.detector.json) every ten minutes
 * and at the end, so that a restart of the monitor forgets nothing.
 */

#include "base/err.h"
#include "base/file.h"
#include "watch/watch_int.h"

#include <stdio.h>
#include <stdlib.h>

#define SAVE_NS    UINT64_C(600000000000)
#define STATE_MOST ((uint64_t)64 << 20) /* bytes */

struct judge {
    struct plim_detector *detector;
    char path[4096];   /* of what it learned; "": nowhere */
    uint64_t saved_ns; /* mono time of the newest saving */
    bool began;        /* the first observation was judged */
};

static enum plim_status detect_open(struct plim_watch *w, void **self, struct plim_err *err)
{
    (void)w;
    struct plim_detect_options options = {0};
    struct judge *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "out of memory for the detector");
    }
    enum plim_status st = plim_detector_new(&options, &j->detector, err);
    if (st != PLIM_OK) {
        free(j);
        return st;
    }
    *self = j;
    return PLIM_OK;
}

/* The part that keeps the history is open by the first observation, not before. */
static void restore(struct plim_watch *w, struct judge *j)
{
    struct plim_str text;
    struct plim_err err = {0};
    j->began = true;
    j->saved_ns = w->now.mono_ns;
    if (w->history == NULL || snprintf(j->path, sizeof(j->path), "%s.detector.json", w->history) >=
                                  (int)sizeof(j->path)) {
        j->path[0] = '\0';
        return;
    }
    if (plim_file_read(j->path, STATE_MOST, &text, NULL) != PLIM_OK) {
        return; /* the first time */
    }
    if (plim_detector_load(j->detector, text, &err) != PLIM_OK) {
        plim__watch_tell(w, "%s: %s; the detector begins anew", j->path, err.message);
    }
    free((void *)(uintptr_t)text.p);
}

static bool write_part(void *self, struct plim_str bytes)
{
    return plim_target_write(self, bytes, NULL) == PLIM_OK;
}

/* In pieces, so that the text of a large machine is never in memory as a whole. */
static void save(struct plim_watch *w, struct judge *j)
{
    struct plim_target target;
    struct plim_buf text = {.drain = write_part, .self = &target};
    struct plim_err err = {0};
    if (j->path[0] == '\0') {
        return;
    }
    enum plim_status st = plim_target_open(j->path, &target, &err);
    if (st == PLIM_OK) {
        plim_detector_save(j->detector, &text);
        plim_buf_flush(&text);
        if (text.failed) {
            plim_target_abort(&target);
            st = plim__fail(&err, PLIM_E_IO, "cannot write %s", j->path);
        } else {
            st = plim_target_commit(&target, &err);
        }
    }
    if (st != PLIM_OK) {
        plim__watch_tell(w, "what the detector learned was not saved: %s", err.message);
    }
    plim_buf_fini(&text);
}

static enum plim_status learn_time_left(struct plim_watch *w, const struct plim_detector *detector)
{
    w->left.n = 0;
    for (uint32_t i = 0; i < w->now.sample.devices.n; i++) {
        PLIM_TRY(plim_vec_push(&w->left, NULL, plim_detector_left(detector, i)));
    }
    return PLIM_OK;
}

static void detect_judge(struct plim_watch *w, void *self)
{
    struct judge *j = self;
    struct plim_err err = {0};
    if (!j->began) {
        restore(w, j);
    }
    enum plim_status st = plim_detector_step(j->detector, &w->now, &err);
    w->judged = st == PLIM_OK && learn_time_left(w, j->detector) == PLIM_OK;
    w->findings = plim_detector_findings(j->detector, &w->n_findings);
    if (st != PLIM_OK) {
        plim__watch_tell(w, "no findings: %s", err.message);
    }
}

static void detect_step(struct plim_watch *w, void *self)
{
    struct judge *j = self;
    if (j->began && w->now.mono_ns - j->saved_ns >= SAVE_NS) {
        j->saved_ns = w->now.mono_ns;
        save(w, j);
    }
}

static void detect_close(struct plim_watch *w, void *self)
{
    struct judge *j = self;
    if (j != NULL && j->began) {
        save(w, j);
    }
    w->judged = false;
    w->findings = NULL;
    w->n_findings = 0;
    if (j != NULL) {
        plim_detector_free(j->detector);
        free(j);
    }
}

const struct plim_watch_part plim__watch_detect = {.name = "detect",
                                                   .open = detect_open,
                                                   .judge = detect_judge,
                                                   .step = detect_step,
                                                   .close = detect_close};
