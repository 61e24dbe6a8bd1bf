/* SPDX-License-Identifier: Apache-2.0 */
/* sd_notify(3) by its protocol: a datagram to a Unix socket, "@" for an abstract one. */

#include "run/run_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void plim__notify_open(struct plim__notify *notify)
{
    const char *path = getenv("NOTIFY_SOCKET"); // NOLINT(concurrency-mt-unsafe): before threads
    const char *usec = getenv("WATCHDOG_USEC"); // NOLINT(concurrency-mt-unsafe)
    const char *whose = getenv("WATCHDOG_PID"); // NOLINT(concurrency-mt-unsafe)
    *notify = (struct plim__notify){0};
    if (path != NULL && strlen(path) < sizeof(notify->path)) {
        (void)snprintf(notify->path, sizeof(notify->path), "%s", path);
    }
    if (usec != NULL && (whose == NULL || strtol(whose, NULL, 10) == (long)getpid())) {
        notify->every_ns = strtoull(usec, NULL, 10) * 1000 / 2;
    }
    (void)unsetenv("NOTIFY_SOCKET"); // NOLINT(concurrency-mt-unsafe)
    (void)unsetenv("WATCHDOG_USEC"); // NOLINT(concurrency-mt-unsafe)
    (void)unsetenv("WATCHDOG_PID");  // NOLINT(concurrency-mt-unsafe)
}

void plim__notify_send(const struct plim__notify *notify, const char *text)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = strlen(notify->path);
    if (n == 0) {
        return;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    memcpy(to.sun_path, notify->path, n);
    if (to.sun_path[0] == '@') {
        to.sun_path[0] = '\0';
    }
    (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    (void)close(fd);
}

void plim__notify_alive(struct plim__notify *notify, uint64_t now_ns)
{
    if (notify->every_ns > 0 && now_ns - notify->last_ns >= notify->every_ns) {
        notify->last_ns = now_ns;
        plim__notify_send(notify, "WATCHDOG=1");
    }
}
