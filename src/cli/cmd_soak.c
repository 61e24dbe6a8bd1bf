/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll soak [MODEL]: hours of traffic through a server's memory, under one setting or several. */

#include "base/file.h"
#include "base/num.h"
#include "cli/moving_input.h"
#include "cli/soak_input.h"
#include "report/html.h"

static enum plim_status write_html(struct plim_cli *cli, const char *path,
                                   const struct plim_soak_view *view, struct plim_err *err)
{
    const struct plim_html_part part = {plim_html_soak, view};
    const struct plim_html_options options = {.source = view->model, .part = &part};
    struct plim_buf page = {0};
    if (!path) {
        return PLIM_OK;
    }
    enum plim_status st = plim_html_plain(&page, "Soak", &options, err);
    if (st == PLIM_OK && strcmp(path, "-") == 0) {
        plim_buf_reset(&cli->out);
        plim_buf_add(&cli->out, plim_buf_str(&page));
    } else if (st == PLIM_OK) {
        st = plim_file_replace(path, plim_buf_str(&page), err);
    }
    plim_buf_fini(&page);
    return st;
}

static void write_answer(struct plim_cli *cli, const char *format,
                         const struct plim_soak_view *view)
{
    if (plim_cli_is(format, "json")) {
        struct plim_jsonw w;
        plim_jsonw_init(&w, &cli->out, false);
        plim_json_soak(&w, view);
    } else {
        struct plim_text_style style = {.color = cli->color, .unicode = true, .width = cli->width};
        plim_text_soak(&cli->out, view, &style);
    }
}

/* Whether some setting holds in every seed. */
static bool holds(const struct plim_soak_plan *plan, const struct plim_soak_result *results)
{
    for (size_t i = 0; i < plan->n_confs; i++) {
        size_t good = 0;
        for (size_t s = 0; s < plan->n_seeds; s++) {
            const struct plim_soak_result *r = &results[i * plan->n_seeds + s];
            good += r->started && !r->failed;
        }
        if (good == plan->n_seeds) {
            return true;
        }
    }
    return false;
}

static enum plim_bucket bucket_of(const char *word)
{
    enum plim_bucket b = PLIM_BUCKET_PROMPT;
    while (b + 1 < PLIM_BUCKET_COUNT && !plim_cli_is(word, plim_bucket_text(b))) {
        b = (enum plim_bucket)(b + 1);
    }
    return b;
}

/* The sizes of blocks that the traffic needs; with edges that were proposed, under these. */
static enum plim_status choose_blocks(struct plim_cli *cli, const struct plim_soak_input *in,
                                      const struct plim_bucket_choice *buckets,
                                      struct plim_blocks_choice **out, struct plim_err *err)
{
    struct plim_soak_setup setup = in->plan.setup;
    struct plim_server server = *setup.server;
    void *p;
    if (buckets) {
        *plim_bucket_edges(&server, buckets->bucket) = buckets->policies[buckets->proposed].edges;
    }
    setup.server = &server;
    setup.conf = &in->confs[0];
    PLIM_TRY(plim_arena_alloc(&cli->arena, sizeof(struct plim_blocks_choice), &p, err));
    PLIM_TRY(plim_blocks_choose(&setup, p, err));
    *out = p;
    return PLIM_OK;
}

static enum plim_status write_sizes(struct plim_cli *cli, const char *path,
                                    const struct plim_soak_input *in, struct plim_soak_view *view,
                                    struct plim_err *err)
{
    struct plim_blocks_choice *blocks;
    struct plim_buf text = {0};
    PLIM_TRY(choose_blocks(cli, in, view->buckets, &blocks, err));
    plim_blocks_file(&text, blocks);
    enum plim_status st = plim_buf_status(&text, err);
    if (st == PLIM_OK) {
        st = plim_file_replace(path, plim_buf_str(&text), err);
    }
    plim_buf_fini(&text);
    view->blocks = blocks;
    view->sizes_file = path;
    return st;
}

/* What else was asked for: edges, a split point; under the first setting and seed. */
static enum plim_status choose(struct plim_cli *cli, const struct plim_opts_soak *opts,
                               const struct plim_soak_input *in, struct plim_soak_view *view,
                               struct plim_err *err)
{
    struct plim_soak_setup setup = in->plan.setup;
    void *p;
    setup.conf = &in->confs[0];
    setup.moving = in->plan.n_confs == 1 ? in->plan.moving : NULL;
    if (opts->buckets) {
        double v[3];
        if (!plim_soak_numbers(opts->cost, v) || v[0] < 0 || v[1] < 0 || v[2] < 0) {
            return plim__fail(err, PLIM_E_USAGE, "--cost is three weights, such as 1:1:0.1");
        }
        struct plim_bucket_weights w = {v[0], v[1], v[2]};
        PLIM_TRY(plim_arena_alloc(&cli->arena, sizeof(struct plim_bucket_choice), &p, err));
        PLIM_TRY(plim_buckets_choose(&setup, bucket_of(opts->buckets), &w, p, err));
        view->buckets = p;
    }
    if (opts->write_sizes) {
        PLIM_TRY(write_sizes(cli, opts->write_sizes, in, view, err));
    }
    if (opts->route) {
        PLIM_TRY(plim_arena_alloc(&cli->arena, sizeof(struct plim_route_choice), &p, err));
        PLIM_TRY(plim_route_choose(&setup, p, err));
        view->routes = p;
    }
    if (opts->gate) {
        struct plim_door_terms terms = {
            .first_ns = opts->first_token.value,
            .token_ns = opts->token_time.value,
            .max_tokens = (uint32_t)plim_min_u64(opts->max_tokens.value, UINT32_MAX / 4),
        };
        PLIM_TRY(
            plim_arena_array(&cli->arena, PLIM_DOOR_ROWS, sizeof(struct plim_door_row), &p, err));
        PLIM_TRY(plim_doors_compare(&setup, &terms, p, err));
        view->doors = p;
    }
    return PLIM_OK;
}

static enum plim_status soak(struct plim_cli *cli, const struct plim_opts_soak *opts,
                             struct plim_soak_input *in, struct plim_err *err)
{
    struct plim_flow_facts facts;
    void *results;
    struct plim_blocks_choice *blocks = NULL;
    PLIM_TRY(plim_flow_measure(&in->flow, &facts, err));
    if (plim_moving_needs_sizes(in->plan.moving)) {
        PLIM_TRY(choose_blocks(cli, in, NULL, &blocks, err));
        in->plan.moving = &blocks->options;
    }
    PLIM_TRY(plim_arena_array(&cli->arena, in->plan.n_confs * in->plan.n_seeds,
                              sizeof(struct plim_soak_result), &results, err));
    PLIM_TRY(plim_soak_all(&in->plan, results, err));
    struct plim_soak_view view = {
        .model = cli->n_args > 0 ? cli->args[0] : NULL,
        .plan = &in->plan,
        .results = results,
        .conf_texts = in->conf_texts,
        .facts = &facts,
        .traffic = in->names,
        .n_traffic = in->n_sources,
        .blocks = blocks,
    };
    PLIM_TRY(choose(cli, opts, in, &view, err));
    write_answer(cli, opts->format, &view);
    cli->exit_code = opts->check && !holds(&in->plan, results) ? 1 : 0;
    return write_html(cli, opts->html, &view, err);
}

enum plim_status plim_cmd_soak(struct plim_cli *cli, const struct plim_opts_soak *opts,
                               struct plim_err *err)
{
    struct plim_soak_input in;
    enum plim_status st = plim_soak_input(cli, opts, &in, err);
    if (st == PLIM_OK) {
        st = soak(cli, opts, &in, err);
    }
    plim_soak_input_fini(&in);
    return st;
}
