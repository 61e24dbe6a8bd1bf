/* SPDX-License-Identifier: Apache-2.0 */

/* See monitor.h. */

#include "cli/monitor.h"

#include "base/file.h"
#include "http/get.h"

#include <stdlib.h>

#define ANSWER_MOST ((size_t)256 << 20)
#define TOKEN_MOST  4096u

static enum plim_status read_token(const char *path, struct plim_arena *arena, const char **token,
                                   struct plim_err *err)
{
    struct plim_str text;
    if (path == NULL) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_file_read(path, TOKEN_MOST, &text, err));
    struct plim_str s = plim_str_trim(text);
    *token = plim_arena_sayf(arena, "%.*s", PLIM_STR_ARG(s));
    free((void *)(uintptr_t)text.p);
    return PLIM_OK;
}

enum plim_status plim_cli_ask(struct plim_cli *cli, const struct plim_cli_question *question,
                              struct plim_err *err)
{
    struct plim_http_get get = {.address = question->monitor,
                                .path = question->path,
                                .accept = question->accept,
                                .timeout_ns = question->patience_ns,
                                .most = ANSWER_MOST};
    PLIM_TRY(read_token(question->token_file, &cli->arena, &get.token, err));
    return plim_http_get(&get, &cli->out, err);
}
