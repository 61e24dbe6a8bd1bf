/* SPDX-License-Identifier: Apache-2.0 */

/* The list of checks, and reading small files of the world under its root. */

#include "device/check.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

const char *plim_check_status_text(enum plim_check_status status)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_CHECK_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)status < PLIM_CHECK_COUNT ? texts[status] : "unknown";
}

void plim_checks_fini(struct plim_checks *checks)
{
    plim_vec_fini(&checks->list);
}

enum plim_status plim_check_text(struct plim_checks *checks, const char **out, struct plim_err *err,
                                 const char *fmt, ...)
{
    char text[1024];
    struct plim_str copy;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    PLIM_TRY(plim_arena_str(checks->arena, plim_str_from(text), &copy, err));
    *out = copy.p;
    return PLIM_OK;
}

enum plim_status plim_check_add(struct plim_checks *checks, struct plim_check check,
                                struct plim_err *err)
{
    return plim_vec_push(&checks->list, err, check);
}

bool plim_world_read(const struct plim_world *world, const char *path, char text[PLIM_WORLD_TEXT])
{
    char full[4096];
    int n = snprintf(full, sizeof(full), "%s%s", world->root, path);
    int fd = n > 0 && (size_t)n < sizeof(full) ? open(full, O_RDONLY | O_CLOEXEC) : -1;
    size_t fill = 0;
    ssize_t got = fd >= 0 ? 1 : -1;
    while (got > 0 && fill < PLIM_WORLD_TEXT - 1) {
        got = read(fd, text + fill, PLIM_WORLD_TEXT - 1 - fill);
        fill += got > 0 ? (size_t)got : 0;
    }
    text[fill] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    return got >= 0;
}
