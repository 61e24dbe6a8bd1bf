/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the command says: its standard output and error pass through a thread on their way to ours, and
 * the end of it is kept, because an engine that finds too little memory when it starts says so in its
 * log and nowhere else. Whether the last words are of memory is judged as `plimsoll explain` does.
 *
 * Kept are two pieces, each of at most PIECE bytes and PIECE_NS old when the next one begins: what is
 * older has nothing to do with the end.
 */

#include "run/run_int.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/num.h"
#include "diagnose/message.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PIECE     ((size_t)128 << 10)
#define PIECE_NS  UINT64_C(60000000000)
#define SETTLE_MS 1000
#define CHUNK     16384

static void keep(struct plim__words *w, const char *bytes, size_t n)
{
    uint64_t now = plim_mono_ns();
    (void)pthread_mutex_lock(&w->lock);
    while (n > 0) {
        if (w->n[1] == PIECE || (w->n[1] > 0 && now - w->since_ns > PIECE_NS)) {
            memcpy(w->piece, w->piece + PIECE, w->n[1]);
            w->n[0] = w->n[1];
            w->n[1] = 0;
        }
        if (w->n[1] == 0) {
            w->since_ns = now;
        }
        size_t part = PIECE - w->n[1] < n ? PIECE - w->n[1] : n;
        memcpy(w->piece + PIECE + w->n[1], bytes, part);
        w->n[1] += part;
        bytes += part;
        n -= part;
    }
    (void)pthread_mutex_unlock(&w->lock);
}

/* To our own stream. Who does not take it in keeps the command waiting, as without us; but not our end. */
static void pass_on(struct plim__words *w, int to, const char *bytes, size_t n)
{
    struct pollfd p[2] = {{.fd = to, .events = POLLOUT}, {.fd = w->wake[0], .events = POLLIN}};
    while (n > 0) {
        (void)poll(p, 2, -1);
        if (p[0].revents == 0 && p[1].revents != 0) {
            return;
        }
        ssize_t put = write(to, bytes, n);
        if (put < 0 && errno != EINTR && errno != EAGAIN) {
            return; /* nobody listens any more */
        }
        bytes += put > 0 ? put : 0;
        n -= put > 0 ? (size_t)put : 0;
    }
}

/* What there is of one stream; false: it has ended. */
static bool hear(struct plim__words *w, unsigned which)
{
    char chunk[CHUNK];
    ssize_t n = read(w->in[which], chunk, sizeof(chunk));
    if (n > 0) {
        keep(w, chunk, (size_t)n);
        pass_on(w, which == 0 ? STDOUT_FILENO : STDERR_FILENO, chunk, (size_t)n);
    }
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void *listen_to(void *arg)
{
    struct plim__words *w = arg;
    struct pollfd p[3] = {{.fd = w->in[0], .events = POLLIN},
                          {.fd = w->in[1], .events = POLLIN},
                          {.fd = w->wake[0], .events = POLLIN}};
    while (p[0].fd >= 0 || p[1].fd >= 0) {
        int n = poll(p, 3, -1);
        if (n < 0 && errno != EINTR) {
            break;
        }
        bool heard = false;
        atomic_store(&w->busy, true);
        for (unsigned i = 0; n > 0 && i < 2; i++) {
            if (p[i].fd >= 0 && p[i].revents != 0) {
                heard = true;
                p[i].fd = hear(w, i) ? p[i].fd : -1;
            }
        }
        atomic_store(&w->busy, false);
        if (n > 0 && p[2].revents != 0 && !heard) {
            break; /* all that was said is passed on */
        }
    }
    return NULL;
}

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++) {
        if (pair[i] >= 0) {
            (void)close(pair[i]);
        }
        pair[i] = -1;
    }
}

enum plim_status plim__words_start(struct plim__words *w, int out[2], struct plim_err *err)
{
    int pair[2][2] = {{-1, -1}, {-1, -1}};
    sigset_t pipe_only, before;
    *w = (struct plim__words){.in = {-1, -1}, .wake = {-1, -1}};
    w->piece = malloc(2 * PIECE);
    if (w->piece == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for what the command says");
    }
    if (pipe2(w->wake, O_CLOEXEC) != 0 || pipe2(pair[0], O_CLOEXEC) != 0 ||
        pipe2(pair[1], O_CLOEXEC) != 0) {
        int code = errno;
        close_pair(w->wake);
        close_pair(pair[0]);
        free(w->piece);
        w->piece = NULL;
        return plim__fail_errno(err, PLIM_E_OS, code, "no pipe for what the command says");
    }
    for (unsigned i = 0; i < 2; i++) {
        w->in[i] = pair[i][0];
        out[i] = pair[i][1];
        (void)fcntl(w->in[i], F_SETFL, O_NONBLOCK);
    }
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &before); /* the thread has our mask */
    int code = pthread_create(&w->thread, NULL, listen_to, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->started = code == 0;
    if (code != 0) {
        plim__words_stop(w);
        close_pair(out);
        return plim__fail_errno(err, PLIM_E_OS, code, "no thread for what the command says");
    }
    return PLIM_OK;
}

void plim__words_stop(struct plim__words *w)
{
    if (w->piece == NULL) {
        return;
    }
    (void)close(w->wake[1]);
    w->wake[1] = -1;
    if (w->started) {
        (void)pthread_join(w->thread, NULL);
    }
    (void)pthread_mutex_destroy(&w->lock);
    close_pair(w->wake);
    close_pair(w->in);
    free(w->piece);
    *w = (struct plim__words){.in = {-1, -1}, .wake = {-1, -1}};
}

/* Until everything that was written so far has been heard, or a second is over. */
static void settle(struct plim__words *w)
{
    for (int ms = 0; ms < SETTLE_MS; ms += 10) {
        int left[2] = {0, 0};
        (void)ioctl(w->in[0], FIONREAD, &left[0]);
        (void)ioctl(w->in[1], FIONREAD, &left[1]);
        if (left[0] == 0 && left[1] == 0 && !atomic_load(&w->busy)) {
            return;
        }
        (void)poll(NULL, 0, 10);
    }
}

static bool is_memory(const struct plim_message *message, char *why, size_t room)
{
    enum plim_class cls = message->verdict.cls;
    if (message->primary == SIZE_MAX || cls == PLIM_CLASS_NOT_OOM || cls == PLIM_CLASS_HEALTHY ||
        cls == PLIM_CLASS_HOST_MEMORY) {
        return false;
    }
    (void)snprintf(why, room, "%s", message->verdict.summary ? message->verdict.summary : "");
    return true;
}

bool plim__words_of_memory(struct plim__words *w, char *why, size_t room)
{
    struct plim_oom_scan scan;
    struct plim_message message;
    struct plim_source_bytes state;
    bool found = false;
    if (w->piece == NULL) {
        return false;
    }
    settle(w);
    (void)pthread_mutex_lock(&w->lock);
    char *text = malloc(w->n[0] + w->n[1] + 1);
    size_t n = text != NULL ? w->n[0] + w->n[1] : 0;
    if (text != NULL) {
        memcpy(text, w->piece, w->n[0]);
        memcpy(text + w->n[0], w->piece + PIECE, w->n[1]);
    }
    (void)pthread_mutex_unlock(&w->lock);
    struct plim_source source = plim_source_bytes(&state, (struct plim_str){text, n});
    if (n > 0 && plim_oom_scan(&source, &scan, NULL) == PLIM_OK) {
        found =
            plim_message_judge(&scan, &message, NULL) == PLIM_OK && is_memory(&message, why, room);
        plim_message_fini(&message);
    }
    if (n > 0) {
        plim_oom_scan_fini(&scan);
    }
    free(text);
    return found;
}
