/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll gate: admission by memory, as a daemon. What it has to say goes to standard error. */

#include "base/err.h"
#include "cli/verbs.h"
#include "gate/gate.h"

#include <stdio.h>

static void tell(void *arg, const char *text)
{
    (void)arg;
    (void)fprintf(stderr, "plimsoll: %s\n", text);
}

static enum plimsoll_gate_policy policy_of(const char *word)
{
    for (uint32_t i = 0; i < PLIMSOLL_GATE_POLICIES; i++) {
        if (plim_cli_is(word, plimsoll_gate_policy_text(i))) {
            return (enum plimsoll_gate_policy)i;
        }
    }
    return PLIMSOLL_GATE_POLICY_EXPECTED;
}

enum plim_status plim_cmd_gate(struct plim_cli *cli, const struct plim_opts_gate *opts,
                               struct plim_err *err)
{
    struct plim_gate_options options = {.listen = opts->listen.items,
                                        .n_listen = opts->listen.n,
                                        .agent = opts->agent,
                                        .token_file = opts->token_file,
                                        .ledger = opts->ledger,
                                        .engines = opts->engine_url.items,
                                        .n_engines = opts->engine_url.n,
                                        .capacity_tokens = opts->capacity_tokens.value,
                                        .block_tokens = (uint32_t)opts->block_tokens.value,
                                        .max_length = (uint32_t)opts->max_length.value,
                                        .max_requests = (uint32_t)opts->max_requests.value,
                                        .policy = policy_of(opts->policy),
                                        .first_token_ns = opts->first_token.value,
                                        .token_ns = opts->token_time.value,
                                        .lease_ns = opts->lease.value,
                                        .authz_lease_ns = opts->authz_lease.value,
                                        .waiters = (uint32_t)opts->queue.value,
                                        .work_token = opts->work_token.value,
                                        .work_image = opts->work_image.value,
                                        .work_row = opts->work_row.value,
                                        .work_room = opts->work_room.value,
                                        .step_tokens = (uint32_t)opts->step_tokens.value,
                                        .fail_open = plim_cli_is(opts->fail, "open"),
                                        .steps = opts->steps.value,
                                        .tell = tell};
    if (opts->ledger == NULL && opts->engine_url.n == 0 && opts->capacity_tokens.value == 0) {
        plim__err_set(err, PLIM_E_USAGE, "the gate does not know how large the KV cache is");
        plim__err_hint(
            err,
            "name the engine (--engine-url), a ledger that its middleware makes (--ledger), or "
            "--capacity-tokens");
        return PLIM_E_USAGE;
    }
    if (opts->block_tokens.value > UINT32_MAX || opts->max_length.value > UINT32_MAX ||
        opts->max_requests.value > UINT32_MAX || opts->queue.value > UINT32_MAX ||
        opts->step_tokens.value > UINT32_MAX) {
        return plim__fail(err, PLIM_E_USAGE, "a number is too large");
    }
    cli->sent = true;
    return plim_gate_run(&options, err);
}
