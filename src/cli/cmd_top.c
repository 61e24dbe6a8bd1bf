/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll top: device memory in a terminal, again and again. */

#include "cli/verbs.h"
#include "cli/version.h"
#include "top/top.h"

#include <errno.h>
#include <stdio.h>

/* Screens of a batch leave at once: somebody may read them as they come. */
static enum plim_status write_text(void *arg, struct plim_str text, struct plim_err *err)
{
    (void)arg;
    if (fwrite(text.p, 1, text.n, stdout) != text.n || fflush(stdout) != 0) {
        return plim__fail_errno(err, PLIM_E_IO, errno, "cannot write to standard output");
    }
    return PLIM_OK;
}

static enum plim_status places(struct plim_cli *cli, const struct plim_opt_list *list,
                               const struct plim_place **out, struct plim_err *err)
{
    void *memory = NULL;
    PLIM_TRY(plim_arena_array(&cli->arena, list->n, sizeof(**out), &memory, err));
    struct plim_place *all = memory;
    for (size_t i = 0; i < list->n; i++) {
        all[i].place = list->items[i];
    }
    *out = all;
    return PLIM_OK;
}

enum plim_status plim_cmd_top(struct plim_cli *cli, const struct plim_opts_top *opts,
                              struct plim_err *err)
{
    struct plim_top_options options = {.from = opts->monitor,
                                       .samples = opts->samples,
                                       .n_engines = opts->engine_url.n,
                                       .n_logs = opts->engine_log.n,
                                       .discover = !opts->no_discover && opts->samples == NULL,
                                       .batch = opts->batch || opts->once,
                                       .ascii = opts->ascii,
                                       .color = cli->color,
                                       .width = (unsigned)opts->width.value,
                                       .steps = opts->once ? 1 : opts->steps.value,
                                       .view = {.sort = plim_top_sort(opts->sort),
                                                .tree = opts->tree,
                                                .device = PLIM_TOP_ALL_DEVICES,
                                                .interval_ns = opts->interval.value},
                                       .version = PLIM_VERSION,
                                       .write = write_text};
    if (opts->device.given) {
        options.view.device = (uint32_t)opts->device.value;
    }
    if (opts->filter != NULL) {
        (void)snprintf(options.view.filter, sizeof(options.view.filter), "%s", opts->filter);
    }
    PLIM_TRY(places(cli, &opts->engine_url, &options.engines, err));
    PLIM_TRY(places(cli, &opts->engine_log, &options.logs, err));
    cli->sent = true;
    return plim_top_run(&options, err);
}
