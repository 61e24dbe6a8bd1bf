/* SPDX-License-Identifier: Apache-2.0 */
/* See soak_input.h. */

#include "cli/soak_input.h"

#include "base/num.h"
#include "cli/moving_input.h"
#include "format/traffic.h"
#include "serving/card.h"

#include <stdlib.h>

/* ---- model ------------------------------------------------------------------------------------------- */

static enum plim_status read_model(struct plim_cli *cli, const struct plim_opts_soak *opts,
                                   struct plim_soak_input *in, struct plim_err *err)
{
    struct plim_geometry_options options = {.assume = opts->assume};
    if (cli->n_args == 0) {
        return PLIM_OK;
    }
    in->has_model = true;
    return plim_model_open(&cli->arena, cli->args[0], &options, &in->model, err);
}

/* ---- traffic ----------------------------------------------------------------------------------------- */

static uint64_t unit_of(const char *word)
{
    return plim_cli_is(word, "s")    ? UINT64_C(1000000000)
           : plim_cli_is(word, "ms") ? UINT64_C(1000000)
           : plim_cli_is(word, "us") ? UINT64_C(1000)
           : plim_cli_is(word, "ns") ? UINT64_C(1)
                                     : 0;
}

static enum plim_status read_traffic(const struct plim_opts_soak *opts, struct plim_soak_input *in,
                                     size_t i, const char *name, struct plim_err *err)
{
    struct plim_traffic_options options = {.strict = opts->strict,
                                           .unit_ns = unit_of(opts->time_unit)};
    struct plim_flow_source *s = &in->sources[i];
    bool known;
    in->names[i].name = name;
    PLIM_TRY(plim_flow_parse(plim_str_from(name), s, &known, err));
    if (known) {
        return PLIM_OK;
    }
    enum plim_status st = plim_traffic_read(name, &options, &in->traffic[i], &in->names[i].repairs,
                                            &in->names[i].layout, err);
    if (st == PLIM_E_NOINPUT) {
        plim__err_hint(err, "neither a file nor made traffic: %s, or poisson, gamma, weibull, mmpp",
                       plim_flow_presets());
    }
    PLIM_TRY(st);
    plim_traffic_spread(&in->traffic[i]);
    in->names[i].file = true;
    *s = (struct plim_flow_source){.traffic = &in->traffic[i],
                                   .process = {PLIM_PROCESS_GAMMA, 1, 2, 0, 0, 0}};
    return PLIM_OK;
}

static enum plim_status all_traffic(struct plim_cli *cli, const struct plim_opts_soak *opts,
                                    struct plim_soak_input *in, struct plim_err *err)
{
    bool pictures = in->server.workload == PLIM_WORKLOAD_PICTURES;
    size_t n = opts->traffic.n > 0 ? opts->traffic.n : 1;
    void *p;
    PLIM_TRY(plim_arena_array(&cli->arena, n, sizeof *in->traffic, &p, err));
    in->traffic = p;
    PLIM_TRY(plim_arena_array(&cli->arena, n, sizeof *in->sources, &p, err));
    in->sources = p;
    PLIM_TRY(plim_arena_array(&cli->arena, n, sizeof *in->names, &p, err));
    in->names = p;
    in->n_sources = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = opts->traffic.n > 0 ? opts->traffic.items[i]
                           : pictures          ? "pictures"
                                               : "azure-conv";
        PLIM_TRY(read_traffic(opts, in, i, name, err));
    }
    return PLIM_OK;
}

bool plim_soak_numbers(const char *text, double out[3])
{
    for (int i = 0; i < 3; i++) {
        char *end;
        out[i] = strtod(text, &end);
        if (end == text || *end != (i < 2 ? ':' : '\0')) {
            return false;
        }
        text = end + 1;
    }
    return true;
}

/* "0.001:120000:4000" */
static enum plim_status read_tail(const char *text, struct plim_tail *out, struct plim_err *err)
{
    double v[3];
    if (!text) {
        return PLIM_OK;
    }
    double most = (double)PLIM_TRAFFIC_TOKENS_MAX;
    bool good = plim_soak_numbers(text, v) && v[0] >= 0 && v[0] <= 1 && v[1] >= 0 && v[1] <= most &&
                v[2] >= 0 && v[2] <= most;
    if (!good) {
        plim__fail(err, PLIM_E_USAGE, "--tail is a share, prompt and output tokens");
        plim__err_hint(err, "such as 0.001:120000:4000; 0 tokens leave the length as it is");
        return PLIM_E_USAGE;
    }
    *out = (struct plim_tail){v[0], (uint32_t)v[1], (uint32_t)v[2]};
    return PLIM_OK;
}

/* ---- server ------------------------------------------------------------------------------------------ */

static void count(const struct plim_opt_u64 *option, uint32_t *field)
{
    if (option->given) {
        *field = (uint32_t)plim_min_u64(option->value, UINT32_MAX);
    }
}

static enum plim_status edges(const char *text, struct plim_edges *out, const char *name,
                              struct plim_err *err)
{
    enum plim_status st = text ? plim_edges_parse(plim_str_from(text), out, err) : PLIM_OK;
    if (st != PLIM_OK) {
        plim__err_where(err, "%s", name);
    }
    return st;
}

static enum plim_status set_server(const struct plim_opts_soak *o, uint64_t capacity,
                                   struct plim_soak_input *in, struct plim_err *err)
{
    struct plim_server *s = &in->server;
    enum plim_workload workload = plim_cli_is(o->workload, "dynamic")    ? PLIM_WORKLOAD_DYNAMIC
                                  : plim_cli_is(o->workload, "pictures") ? PLIM_WORKLOAD_PICTURES
                                                                         : PLIM_WORKLOAD_PAGED;
    if (!in->has_model && workload != PLIM_WORKLOAD_PICTURES) {
        plim__fail(err, PLIM_E_USAGE, "which model? give its folder or config.json");
        return PLIM_E_USAGE;
    }
    plim_server_defaults(s, workload, in->has_model ? &in->model.geometry : NULL, capacity);
    s->weight_bytes = in->has_model && in->model.has_stored ? in->model.stored_bytes : 0;
    count(&o->max_seqs, &s->max_seqs);
    if (s->step_tokens < s->max_seqs) {
        s->step_tokens = s->max_seqs;
    }
    count(&o->step_tokens, &s->step_tokens);
    count(&o->max_length, &s->max_length);
    count(&o->block_tokens, &s->block_tokens);
    count(&o->denoising_steps, &s->steps);
    count(&o->adapters, &s->adapters);
    count(&o->adapters_held, &s->adapters_held);
    count(&o->adapter_rank, &s->adapter_rank);
    s->utilization = o->utilization.given ? o->utilization.value : s->utilization;
    s->kv_bytes = o->kv_bytes.value;
    s->eager = o->eager;
    s->no_prefix_cache = o->no_prefix_cache;
    s->empty_cache = o->empty_cache;
    s->batch_wait_ns = o->batch_wait.given ? o->batch_wait.value : s->batch_wait_ns;
    s->flops = o->tflops.given ? o->tflops.value * 1e12 : 0;
    s->bandwidth = (double)o->bandwidth.value;
    PLIM_TRY(edges(o->captures, &s->captures, "--captures", err));
    PLIM_TRY(edges(o->prompt_edges, &s->prompts, "--prompt-edges", err));
    PLIM_TRY(edges(o->batch_edges, &s->batches, "--batch-edges", err));
    return edges(o->side_edges, &s->sides, "--side-edges", err);
}

/* ---- settings ---------------------------------------------------------------------------------------- */

static enum plim_status set_confs(struct plim_cli *cli, const struct plim_opts_soak *o,
                                  struct plim_soak_input *in, struct plim_err *err)
{
    struct plim_torch_version version = PLIM_TORCH_LATEST;
    const struct plim_moving_options *moving;
    PLIM_TRY(plim_moving_input(cli, o->allocator, o->sizes, &moving, err));
    bool both = strncmp(o->allocator, "both", strlen("both")) == 0;
    size_t given = o->conf.n > 0 ? o->conf.n : moving && !both ? 0 : 1;
    size_t n = given + (moving != NULL);
    void *p;
    if (o->conf.n > 0 && moving && !both) {
        return plim__fail(err, PLIM_E_USAGE, "--conf is about PyTorch's allocator");
    }
    if (o->torch_version) {
        PLIM_TRY(plim_torch_version_parse(plim_str_from(o->torch_version), &version, err));
    }
    PLIM_TRY(plim_arena_array(&cli->arena, n, sizeof *in->confs, &p, err));
    in->confs = p;
    PLIM_TRY(plim_arena_array(&cli->arena, n, sizeof *in->conf_texts, &p, err));
    in->conf_texts = p;
    for (size_t i = 0; i < n; i++) {
        in->conf_texts[i] = i < o->conf.n ? o->conf.items[i] : "";
        plim_conf_init(&in->confs[i], version);
        PLIM_TRY(plim_conf_parse(&in->confs[i], plim_str_from(in->conf_texts[i]), err));
    }
    in->plan.confs = in->confs;
    in->plan.n_confs = n;
    in->plan.moving = moving;
    return PLIM_OK;
}

enum plim_status plim_soak_input(struct plim_cli *cli, const struct plim_opts_soak *o,
                                 struct plim_soak_input *in, struct plim_err *err)
{
    struct plim_card card;
    *in = (struct plim_soak_input){0};
    PLIM_TRY(read_model(cli, o, in, err));
    PLIM_TRY(plim_card_find(o->gpu, &card, err));
    uint64_t capacity = o->device_memory.given ? o->device_memory.value : card.total;
    PLIM_TRY(set_server(o, capacity, in, err));
    PLIM_TRY(all_traffic(cli, o, in, err));
    if (o->seeds.value == 0 || o->seeds.value > 1000) {
        return plim__fail(err, PLIM_E_USAGE, "--seeds must be from 1 to 1000");
    }
    in->flow = (struct plim_flow_options){
        .sources = in->sources,
        .n_sources = in->n_sources,
        .span_ns = o->hours.value,
        .rate_scale = o->rate.given ? o->rate.value : 1,
        .length_scale = o->length.given ? o->length.value : 1,
        .seed = o->seed.value,
    };
    PLIM_TRY(read_tail(o->tail, &in->flow.tail, err));
    PLIM_TRY(set_confs(cli, o, in, err));
    in->plan.setup = (struct plim_soak_setup){
        .server = &in->server,
        .flow = &in->flow,
        .capacity = capacity,
        .external = o->external.given ? o->external.value : card.context,
        .stop_at_failure = o->stop,
    };
    in->plan.first_seed = o->seed.value;
    in->plan.n_seeds = (size_t)o->seeds.value;
    in->plan.threads = o->threads.given && o->threads.value <= 64 ? (unsigned)o->threads.value : 0;
    return PLIM_OK;
}

void plim_soak_input_fini(struct plim_soak_input *in)
{
    for (size_t i = 0; i < in->n_sources; i++) {
        plim_traffic_fini(&in->traffic[i]);
    }
}
