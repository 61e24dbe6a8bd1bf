/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WALK_PLAN_H
#define PLIM_WALK_PLAN_H

/*
 * What `plan` goes on to do with a model that was read: a start of an engine, what would help, the report.
 * Whatever the model, there is an answer, or an error that says something.
 */

#include "base/num.h"
#include "report/plan.h"
#include "serving/model.h"

#include <stdlib.h>

#define WALK_LAYERS                                                                                \
    24u /* a plan plays a start some twenty times: models with more layers take too long */

static inline void walk_demand(bool holds)
{
    if (!holds) {
        abort();
    }
}

static inline void walk_report(const struct plim_plan *plan)
{
    struct plim_plan_compared compared = {0};
    struct plim_text_style style = {.unicode = true, .width = 80};
    struct plim_buf out = {0};
    struct plim_jsonw w;
    plim_text_plan(&out, plan, &compared, &style);
    plim_jsonw_init(&w, &out, false);
    plim_json_plan(&w, plan, &compared);
    plim_buf_fini(&out);
}

/* One plan on a card of 24 GB, with all questions asked. */
static inline void walk_plan(struct plim_arena *arena, struct plim_plan_request *request)
{
    struct plim_plan plan;
    struct plim_err err;
    plim_err_clear(&err);
    request->model = "model";
    request->engine_version = "";
    request->settings = "";
    request->want_context = request->want_batch = true;
    request->want_gpu = request->want_replicas = true;
    if (request->geometry->n_layers > WALK_LAYERS ||
        plim_card_find("l4-24gb", &request->card, NULL) != PLIM_OK) {
        return;
    }
    if (plim_plan_make(arena, request, &plan, &err) == PLIM_OK) {
        walk_report(&plan);
    } else {
        walk_demand(err.message[0] != '\0');
    }
}

/* The plan of one engine, with flags or without, as `choice` says. */
static inline void walk_engines(struct plim_arena *arena, const struct plim_geometry *g,
                                const struct plim_model *file, uint64_t choice)
{
    static const char *const split[] = {"--tp-size", "2",           "--tensor-parallel-size",
                                        "2",         "--num-shard", "2"};
    static const char *const lean[] = {"--max-model-len",    "auto", "--n-gpu-layers", "1",
                                       "--max-total-tokens", "512"};
    struct plim_plan_request request = {
        .engine = (enum plim_engine)(choice % (PLIM_ENGINE_OLLAMA + 1)),
        .geometry = g,
        .file = file,
        .traffic = {.prompt = 900, .output = 90, .rate = 3},
        .words = choice & 32 ? split : lean,
        .n_words = choice & 64 ? PLIM_COUNT_OF(split) : 0,
    };
    walk_plan(arena, &request);
}

#endif
