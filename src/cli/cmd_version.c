/* SPDX-License-Identifier: Apache-2.0 */

/* plimsoll version, plimsoll --version: what this program is and how it was built. */

#include "cli/revision.h"
#include "cli/verbs.h"
#include "cli/version.h"

enum plim_status plim_cmd_version(struct plim_cli *cli, const struct plim_opts_version *opts,
                                  struct plim_err *err)
{
    (void)err;
    if (!plim_cli_is(opts->format, "json")) {
        plim_buf_text(&cli->out, "plimsoll " PLIM_VERSION " (revision " PLIM_REVISION ")\n"
                                 "built with " PLIM_COMPILER " for " PLIM_HOST ", " PLIM_BUILDTYPE
                                 ", sanitizers: " PLIM_SANITIZE "\n"
                                 "libraries: " PLIM_LIBRARIES "\n");
        return PLIM_OK;
    }
    struct plim_jsonw w;
    plim_jsonw_init(&w, &cli->out, false);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.version/1");
    plim_jsonw_kv_text(&w, "version", PLIM_VERSION);
    plim_jsonw_kv_text(&w, "revision", PLIM_REVISION);
    plim_jsonw_kv_text(&w, "compiler", PLIM_COMPILER);
    plim_jsonw_kv_text(&w, "host", PLIM_HOST);
    plim_jsonw_kv_text(&w, "buildtype", PLIM_BUILDTYPE);
    plim_jsonw_kv_text(&w, "sanitizers", PLIM_SANITIZE);
    plim_jsonw_kv_text(&w, "libraries", PLIM_LIBRARIES);
    plim_jsonw_end(&w);
    return PLIM_OK;
}
