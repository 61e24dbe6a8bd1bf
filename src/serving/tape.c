/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The tape: tensors with holders on the allocator model. See tape.h.
 *
 * vLLM sets max_split_size_mb:20 while it loads and profiles: tensors of 20 MiB and more then keep whole
 * segments, and smaller ones share segments of 20 MiB (v1/worker/gpu_worker.py of vllm 0.33.0,
 * _scoped_allocator_max_split).
 */

#include "serving/tape.h"

#include <stdio.h>

static void host_failed(struct plim_tape *tape, enum plim_status status)
{
    if (tape->status == PLIM_OK) {
        tape->status = status;
    }
}

static bool ended(const struct plim_tape *tape)
{
    return tape->failed || tape->status != PLIM_OK;
}

/* The settings, and the same with the limit: a string that is set resets what it does not name, so the engine
 * appends to what it finds. */
static enum plim_status settings(struct plim_tape *tape, const struct plim_tape_config *config,
                                 struct plim_err *err)
{
    char text[512];
    plim_conf_init(&tape->conf, config->version);
    tape->split = tape->conf;
    PLIM_TRY(plim_conf_parse(&tape->conf, plim_str_from(config->settings), err));
    int n = snprintf(text, sizeof text, "%s%smax_split_size_mb:20", config->settings,
                     config->settings[0] != '\0' ? "," : "");
    if (n < 0 || (size_t)n >= sizeof text) {
        return plim__fail(err, PLIM_E_BUDGET, "allocator settings of more than 480 characters");
    }
    return plim_conf_parse(&tape->split, plim_str_from(text), err);
}

enum plim_status plim_tape_init(struct plim_tape *tape, const struct plim_tape_config *config,
                                struct plim_err *err)
{
    *tape = (struct plim_tape){.step = "start"};
    struct plim_devmodel_config device = {
        .total = config->total,
        .external = config->used,
        .policy = PLIM_ADDRESS_ASCENDING,
    };
    PLIM_TRY(settings(tape, config, err));
    PLIM_TRY(plim_devmodel_init(&tape->device, &device, err));
    struct plim_torch_config torch = {
        .version = config->version,
        .conf = &tape->conf,
        .device = &tape->device,
    };
    PLIM_TRY(plim_torch_new(&torch, &tape->torch, err));
    return plim_vec_push(&tape->tensors, err, (struct plim_tape_tensor){0}); /* number 0 */
}

void plim_tape_fini(struct plim_tape *tape)
{
    plim_torch_delete(tape->torch);
    plim_devmodel_fini(&tape->device);
    plim_vec_fini(&tape->tensors);
    plim_vec_fini(&tape->unused);
    *tape = (struct plim_tape){0};
}

enum plim_status plim_tape_status(const struct plim_tape *tape, struct plim_err *err)
{
    return tape->status == PLIM_OK
               ? PLIM_OK
               : plim__fail(err, tape->status, "the allocator model stopped at: %s", tape->step);
}

/* A number for a new tensor. */
static plim_tensor number(struct plim_tape *tape)
{
    if (tape->unused.n > 0) {
        return tape->unused.items[--tape->unused.n];
    }
    if (plim_vec_push(&tape->tensors, NULL, (struct plim_tape_tensor){0}) != PLIM_OK) {
        host_failed(tape, PLIM_E_NOMEM);
        return 0;
    }
    return (plim_tensor)(tape->tensors.n - 1);
}

plim_tensor plim_tape_take(struct plim_tape *tape, uint64_t bytes)
{
    if (ended(tape) || bytes == 0) {
        return 0;
    }
    uint64_t block = PLIM_TORCH_NONE;
    enum plim_status st =
        plim_torch_alloc(tape->torch, bytes, 0, PLIM_TORCH_POOL_DEFAULT, &block, NULL);
    if (st != PLIM_OK) {
        host_failed(tape, st);
        return 0;
    }
    if (block == PLIM_TORCH_NONE) {
        tape->failed = true;
        tape->failed_step = tape->step;
        tape->failure = *plim_torch_failure(tape->torch);
        return 0;
    }
    plim_tensor tensor = number(tape);
    if (tensor != 0) {
        tape->tensors.items[tensor] = (struct plim_tape_tensor){block, 1};
    }
    return tensor;
}

plim_tensor plim_tape_hold(struct plim_tape *tape, plim_tensor tensor)
{
    if (tensor != 0) {
        tape->tensors.items[tensor].holders++;
    }
    return tensor;
}

void plim_tape_drop(struct plim_tape *tape, plim_tensor tensor)
{
    if (tensor == 0 || --tape->tensors.items[tensor].holders > 0) {
        return;
    }
    enum plim_status st = plim_torch_free(tape->torch, tape->tensors.items[tensor].block, NULL);
    if (st == PLIM_OK) {
        st = plim_vec_push(&tape->unused, NULL, tensor);
    }
    if (st != PLIM_OK) {
        host_failed(tape, st);
    }
}

void plim_tape_touch(struct plim_tape *tape, uint64_t bytes)
{
    plim_tape_drop(tape, plim_tape_take(tape, bytes));
}

void plim_tape_limit_split(struct plim_tape *tape, bool limit)
{
    plim_torch_reconf(tape->torch, limit ? &tape->split : &tape->conf);
}

void plim_tape_empty_cache(struct plim_tape *tape)
{
    if (!ended(tape)) {
        enum plim_status st = plim_torch_empty_cache(tape->torch, PLIM_TORCH_POOL_DEFAULT, NULL);
        if (st != PLIM_OK) {
            host_failed(tape, st);
        }
    }
}

void plim_tape_reset_peak(struct plim_tape *tape)
{
    plim_torch_reset_peak(tape->torch);
}

static struct plim_stat allocated_bytes(const struct plim_tape *tape)
{
    struct plim_torch_stats stats;
    plim_torch_stats(tape->torch, &stats);
    return stats.stat[PLIM_TORCH_STAT_ALLOCATED_BYTES][PLIM_TORCH_ALL];
}

uint64_t plim_tape_allocated(const struct plim_tape *tape)
{
    return (uint64_t)allocated_bytes(tape).current;
}

uint64_t plim_tape_peak(const struct plim_tape *tape)
{
    return (uint64_t)allocated_bytes(tape).peak;
}

uint64_t plim_tape_reserved(const struct plim_tape *tape)
{
    return plim_torch_gauges(tape->torch).reserved;
}

uint64_t plim_tape_free(const struct plim_tape *tape)
{
    return plim_devmodel_free_bytes(&tape->device);
}
