/* SPDX-License-Identifier: Apache-2.0 */
/* See html_file.h. */

#include "cli/html_file.h"

#include "base/file.h"

enum plim_status plim_cli_html(struct plim_cli *cli, const char *path,
                               const struct plim_snapshot *snapshot,
                               const struct plim_diagnosis *diagnosis,
                               const struct plim_html_options *options, struct plim_err *err)
{
    struct plim_buf page = {0};
    if (!path) {
        return PLIM_OK;
    }
    if (strcmp(path, "-") == 0) {
        plim_buf_reset(&cli->out);
        return plim_html_report(&cli->out, snapshot, diagnosis, options, err);
    }
    enum plim_status st = plim_html_report(&page, snapshot, diagnosis, options, err);
    if (st == PLIM_OK) {
        st = plim_file_replace(path, plim_buf_str(&page), err);
    }
    plim_buf_fini(&page);
    return st;
}
