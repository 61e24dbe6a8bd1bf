/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HAProxy's agent-check (its configuration manual, 5.2 "agent-check"): it connects, may send a line,
 * and reads one line of words. Only an agent undoes its own "drain" and "down", so "up ready" is
 * said each time. The weight is the room that is left.
 */

#include "gate/gate_int.h"

#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct plim__agent {
    struct plim__gate *gate;
    int listener;
    int wake[2]; /* a pipe whose end stops the thread */
    pthread_t thread;
};

/* Shares of the pool: full weight up to one half of it, the least before the line. */
static unsigned weight_of(double pressure)
{
    double left = (1 - pressure) * 200;
    return left > 100 ? 100 : left > 1 ? (unsigned)left : 1;
}

void plim__agent_line(struct plim__gate *g, char *out, size_t room)
{
    struct plimsoll_gate_state s;
    const char *why;
    bool ready = plim__gate_ready(g, &why);
    if (!ready && (strcmp(why, "draining") == 0 || strcmp(why, "stopping") == 0)) {
        (void)snprintf(out, room, "drain #%s\n", why);
    } else if (!ready) {
        (void)snprintf(out, room, "down #%s\n", why);
    } else if (plimsoll_gate_read(plim__gate_ledger(g), &s, plim_mono_ns()) == PLIMSOLL_GATE_OK) {
        (void)snprintf(out, room, "up ready %u%%\n", s.stale ? 1 : weight_of(s.pressure));
    } else {
        (void)snprintf(out, room, "up ready 1%%\n");
    }
}

static void answer(struct plim__agent *a)
{
    char line[96];
    int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    plim__agent_line(a->gate, line, sizeof(line));
    /* A new connection has room for a line; who cannot take it gets none. */
    (void)!send(fd, line, strlen(line), MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    (void)close(fd);
    (void)atomic_fetch_add_explicit(&a->gate->count[PLIM_GATE_COUNT_AGENT], 1,
                                    memory_order_relaxed);
}

static void *serve(void *arg)
{
    struct plim__agent *a = arg;
    struct pollfd fds[2] = {{.fd = a->listener, .events = POLLIN},
                            {.fd = a->wake[0], .events = POLLIN}};
    for (;;) {
        int n = poll(fds, 2, -1);
        if (n < 0 && errno != EINTR) {
            return NULL;
        }
        if (n > 0 && fds[1].revents != 0) {
            return NULL;
        }
        if (n > 0 && fds[0].revents != 0) {
            answer(a);
        }
    }
}

/* "HOST:PORT", "[::1]:PORT" or "PORT", split in place. */
static bool split(char *text, const char **host, const char **port)
{
    char *colon = strrchr(text, ':');
    *host = "127.0.0.1";
    *port = text;
    if (colon != NULL) {
        *colon = '\0';
        *port = colon + 1;
        *host = text;
        size_t n = strlen(text);
        if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
            text[n - 1] = '\0';
            *host = text + 1;
        }
    }
    return **port != '\0' && strspn(*port, "0123456789") == strlen(*port) && **host != '\0';
}

static enum plim_status listen_on(const char *address, int *out, struct plim_err *err)
{
    char text[256];
    const char *host, *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int one = 1;
    (void)snprintf(text, sizeof(text), "%s", address);
    if (strlen(address) >= sizeof(text) || !split(text, &host, &port) ||
        getaddrinfo(host, port, &hints, &found) != 0) {
        return plim__fail(err, PLIM_E_USAGE, "no address for agent checks: \"%.100s\"", address);
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
                bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 64) == 0;
    int saved = errno;
    freeaddrinfo(found);
    if (!good) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return plim__fail_errno(err, PLIM_E_OS, saved, "cannot listen for agent checks on %.100s",
                                address);
    }
    *out = fd;
    return PLIM_OK;
}

static void drop(struct plim__agent *a)
{
    if (a->listener >= 0) {
        (void)close(a->listener);
    }
    for (int i = 0; i < 2; i++) {
        if (a->wake[i] >= 0) {
            (void)close(a->wake[i]);
        }
    }
    free(a);
}

enum plim_status plim__agent_start(struct plim__gate *g, const char *address,
                                   struct plim__agent **out, struct plim_err *err)
{
    struct plim__agent *a = malloc(sizeof(*a));
    if (a == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for agent checks");
    }
    *a = (struct plim__agent){.gate = g, .listener = -1, .wake = {-1, -1}};
    enum plim_status st = listen_on(address, &a->listener, err);
    if (st == PLIM_OK && pipe2(a->wake, O_CLOEXEC) != 0) {
        st = plim__fail_errno(err, PLIM_E_OS, errno, "no pipe for agent checks");
    }
    int code = st == PLIM_OK ? pthread_create(&a->thread, NULL, serve, a) : 0;
    if (code != 0) {
        st = plim__fail_errno(err, PLIM_E_OS, code, "no thread for agent checks");
    }
    if (st != PLIM_OK) {
        drop(a);
        return st;
    }
    *out = a;
    return PLIM_OK;
}

void plim__agent_stop(struct plim__agent *a)
{
    if (a == NULL) {
        return;
    }
    (void)close(a->wake[1]);
    a->wake[1] = -1;
    (void)pthread_join(a->thread, NULL);
    drop(a);
}
