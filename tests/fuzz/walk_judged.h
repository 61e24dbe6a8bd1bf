/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WALK_JUDGED_H
#define PLIM_WALK_JUDGED_H

/*
 * What `diagnose`, `replay` and `tune` go on to do with a snapshot that was read. Whatever it holds, there is an
 * answer, or an error that says something.
 */

#include "diagnose/diagnose.h"
#include "replay/driver.h"
#include "replay/repair.h"
#include "replay/tune.h"
#include "report/diagnosis.h"
#include "report/replay.h"

#include "walk_snapshot.h"

#define WALK_EVENTS 2000u /* longer traces are only read */

static inline void walk_diagnosis(const struct plim_snapshot *s)
{
    struct plim_diagnose_options options = {.device = PLIM_NO_ID};
    struct plim_text_style style = {.unicode = true, .width = 80};
    struct plim_diagnosis d;
    struct plim_err err;
    plim_err_clear(&err);
    if (plim_diagnose(s, &options, &d, &err) != PLIM_OK) {
        DEMAND(err.message[0] != '\0');
        return;
    }
    struct plim_buf out = {0};
    struct plim_jsonw w;
    plim_text_diagnosis(&out, s, &d, &style);
    plim_markdown_diagnosis(&out, s, &d);
    plim_jsonw_init(&w, &out, false);
    plim_json_diagnosis(&w, s, &d);
    plim_buf_fini(&out);
    plim_diagnosis_fini(&d);
}

static inline void walk_replay(const struct plim_requests *q, enum plim_level level,
                               struct plim_err *err)
{
    struct plim_conf conf = q->conf;
    struct plim_replay_result result;
    struct plim_replay_setup setup = {
        .conf = &conf, .capacity = plim_replay_capacity(q), .scale = 1, .go_on = true};
    enum plim_status st = level == PLIM_LEVEL_BLOCKS ? plim_replay(q, &setup, &result, err)
                                                     : plim_replay_driver(q, &setup, &result, err);
    if (st == PLIM_OK) {
        struct plim_replay_view view = {.requests = q,
                                        .setup = &setup,
                                        .result = &result,
                                        .conf = "",
                                        .capacity_by = "unknown"};
        struct plim_text_style style = {.unicode = true, .width = 80};
        struct plim_arena arena;
        struct plim_buf out = {0};
        plim_arena_init(&arena, 1 << 20);
        plim_text_replay(&out, &view, &arena, &style);
        plim_arena_fini(&arena);
        plim_buf_fini(&out);
    }
    DEMAND(st == PLIM_OK || err->message[0] != '\0');
}

static inline void walk_tune(const struct plim_requests *q, struct plim_err *err)
{
    struct plim_tune tune;
    struct plim_tune_options options = {.version = q->conf.version,
                                        .capacity = plim_replay_capacity(q),
                                        .scale = 1,
                                        .threads = 1,
                                        .most = 12};
    if (plim_tune(q, &options, &tune, err) == PLIM_OK) {
        plim_tune_fini(&tune);
    } else {
        DEMAND(err->message[0] != '\0');
    }
}

/* `choice`: bits that say whether the slow part is gone through too. */
static inline void walk_judged(const struct plim_snapshot *s, uint64_t choice)
{
    struct plim_requests q;
    struct plim_err err;
    plim_err_clear(&err);
    for (size_t i = 0; i < s->devices.n; i++) {
        if (s->devices.items[i].trace.events.n > WALK_EVENTS) {
            return;
        }
    }
    walk_diagnosis(s);
    if (s->devices.n == 0 ||
        plim_requests_build(s, plim_requests_busiest(s), NULL, &q, &err) != PLIM_OK) {
        return;
    }
    if (plim_requests_repair(&q, 0, 0, NULL, &err) == PLIM_OK) {
        walk_replay(&q, s->level, &err);
        if (choice % 16 == 0 && s->level == PLIM_LEVEL_BLOCKS) {
            walk_tune(&q, &err);
        }
    }
    plim_requests_fini(&q);
}

#endif
