/* SPDX-License-Identifier: Apache-2.0 */

/* See moving_input.h. */

#include "cli/moving_input.h"

#include "base/file.h"
#include "format/seating.h"

#include <stdlib.h>

#define SIZES_LONGEST 8192 /* bytes of a file of sizes */

static enum plim_status wrong_sizes(const char *wanted, struct plim_err *err)
{
    plim__fail(err, PLIM_E_USAGE, "--sizes: wanted %s", wanted);
    plim__err_hint(err, "such as 4194304,8388608, or @FILE with such a text in it");
    return PLIM_E_USAGE;
}

static enum plim_status read_sizes(const char *sizes, struct plim_engine_rounding *out,
                                   struct plim_err *err)
{
    char text[SIZES_LONGEST + 1] = "";
    struct plim_str file = {0};
    if (*sizes == '@') {
        PLIM_TRY(plim_file_read(sizes + 1, SIZES_LONGEST, &file, err));
        memcpy(text, file.p, file.n);
        free((void *)(uintptr_t)file.p);
        sizes = text;
    }
    const char *wanted = plim_engine_sizes_parse(sizes, out);
    return wanted ? wrong_sizes(wanted, err) : PLIM_OK;
}

enum plim_status plim_moving_input(struct plim_cli *cli, const char *allocator, const char *sizes,
                                   const struct plim_moving_options **out, struct plim_err *err)
{
    const char *mode = strchr(allocator, ':');
    bool moving = strncmp(allocator, "pytorch", strlen("pytorch")) != 0;
    struct plim_moving_options options = {0};
    void *p;
    if (mode) {
        plim_engine_mode_parse(mode + 1, &options.rounding.mode);
    }
    if (sizes && !(moving && options.rounding.mode == PLIM_ENGINE_POOL)) {
        return plim__fail(err, PLIM_E_USAGE, "--sizes is about mode pool of Plimsoll's allocator");
    }
    if (!moving) {
        *out = NULL;
        return PLIM_OK;
    }
    if (sizes) {
        PLIM_TRY(read_sizes(sizes, &options.rounding, err));
    }
    PLIM_TRY(plim_arena_alloc(&cli->arena, sizeof options, &p, err));
    memcpy(p, &options, sizeof options);
    *out = p;
    return PLIM_OK;
}

static enum plim_status write_seating(const struct plim_seating *p, const char *path,
                                      struct plim_err *err)
{
    struct plim_buf text = {0};
    plim_seating_write(p, &text);
    enum plim_status st = plim_buf_status(&text, err);
    if (st == PLIM_OK) {
        st = plim_file_replace(path, plim_buf_str(&text), err);
    }
    plim_buf_fini(&text);
    return st;
}

static enum plim_status no_sizes(struct plim_err *err)
{
    plim__fail(err, PLIM_E_USAGE, "mode pool needs --sizes, the sizes of its blocks");
    plim__err_hint(err, "plimsoll soak --write-sizes FILE finds them");
    return PLIM_E_USAGE;
}

enum plim_status plim_seating_input(const struct plim_requests *requests, const char *plan,
                                    const char *write, const struct plim_moving_options **moving,
                                    struct plim_seating_input *out, struct plim_err *err)
{
    *out = (struct plim_seating_input){0};
    if (plim_moving_needs_sizes(*moving)) {
        return no_sizes(err);
    }
    if (!*moving || (*moving)->rounding.mode != PLIM_ENGINE_PLAN) {
        return plan || write
                   ? plim__fail(err, PLIM_E_USAGE, "%s is about mode plan of Plimsoll's allocator",
                                plan ? "--plan" : "--write-plan")
                   : PLIM_OK;
    }
    out->made = plan == NULL;
    PLIM_TRY(plan ? plim_seating_read(plan, &out->seating, err)
                  : plim_seating_make(requests, &out->seating, &out->facts, err));
    enum plim_status st = write ? write_seating(&out->seating, write, err) : PLIM_OK;
    if (st != PLIM_OK) {
        plim_seating_input_fini(out);
        return st;
    }
    out->options = **moving;
    out->options.plan = &out->seating;
    *moving = &out->options;
    return PLIM_OK;
}

void plim_seating_input_fini(struct plim_seating_input *input)
{
    plim_seating_free(&input->seating);
}
