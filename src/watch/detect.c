/* SPDX-License-Identifier: Apache-2.0 */

/* The part that judges: each observation through the detector, its findings to the clients. */

#include "watch/watch_int.h"

static enum plim_status detect_open(struct plim_watch *w, void **self, struct plim_err *err)
{
    (void)w;
    struct plim_detect_options options = {0};
    struct plim_detector *detector = NULL;
    PLIM_TRY(plim_detector_new(&options, &detector, err));
    *self = detector;
    return PLIM_OK;
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
    struct plim_detector *detector = self;
    struct plim_err err = {0};
    enum plim_status st = plim_detector_step(detector, &w->now, &err);
    w->judged = st == PLIM_OK && learn_time_left(w, detector) == PLIM_OK;
    w->findings = plim_detector_findings(detector, &w->n_findings);
    if (st != PLIM_OK) {
        plim__watch_tell(w, "no findings: %s", err.message);
    }
}

static void detect_close(struct plim_watch *w, void *self)
{
    w->judged = false;
    w->findings = NULL;
    w->n_findings = 0;
    plim_detector_free(self);
}

const struct plim_watch_part plim__watch_detect = {
    .name = "detect", .open = detect_open, .judge = detect_judge, .close = detect_close};
