/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A daemon with the shared HTTP server and nothing else: for tests from outside and for measuring.
 *
 *   http_toy BYTES [name=value ...] LISTEN...
 *
 * names: token, certificate, key (files), all (1), patience (seconds). Prints the addresses, then
 * answers until SIGTERM; SIGHUP reads the secrets again and prints "reloaded" or the error.
 *
 *   GET /fast   a published body of BYTES     GET /slow   1 MiB from the worker, after ?ms=
 *   GET /live   an event each 100 ms          GET /open   for everybody
 *   POST /echo  the body again, 1000 bytes    GET /file   this program's own file
 *   GET /counts what the server counts        GET /item/{}/part
 *   GET /held   from the worker, once GET /free was asked; `held` of /counts says that it waits
 */

#include "base/num.h"
#include "http/http.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct toy {
    struct plim_http_slot *slot;
    struct plim_http_channel *channel;
    struct plim_http *_Atomic http; /* handlers may run before it is known here */
    atomic_bool held, freed;
};

static enum plim_status fast(void *self, const struct plim_http_request *request,
                             struct plim_http_answer *answer, struct plim_err *err)
{
    struct toy *toy = self;
    (void)request;
    (void)err;
    answer->body = plim_http_slot_get(toy->slot);
    return PLIM_OK;
}

static enum plim_status slow(void *self, const struct plim_http_request *request,
                             struct plim_http_answer *answer, struct plim_err *err)
{
    uint64_t ms;
    (void)self;
    PLIM_TRY(plim_http_query_u64(request, "ms", 0, &ms, err));
    if (ms > 2000) {
        return plim__fail(err, PLIM_E_RANGE, "no longer than two seconds");
    }
    struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
    plim_buf_repeat(&answer->text, "slow but sure...", 1u << 16);
    answer->type = "text/plain";
    return PLIM_OK;
}

static enum plim_status held(void *self, const struct plim_http_request *request,
                             struct plim_http_answer *answer, struct plim_err *err)
{
    struct toy *toy = self;
    const struct timespec pause = {.tv_nsec = 5000000};
    (void)request;
    (void)err;
    atomic_store(&toy->held, true);
    for (unsigned i = 0; !atomic_load(&toy->freed) && i < 24000; i++) { /* two minutes: it hangs */
        (void)nanosleep(&pause, NULL);
    }
    atomic_store(&toy->held, false);
    answer->type = "text/plain";
    return PLIM_OK;
}

static enum plim_status set_free(void *self, const struct plim_http_request *request,
                                 struct plim_http_answer *answer, struct plim_err *err)
{
    struct toy *toy = self;
    (void)request;
    (void)err;
    atomic_store(&toy->freed, true);
    answer->type = "text/plain";
    return PLIM_OK;
}

static enum plim_status live(void *self, const struct plim_http_request *request,
                             struct plim_http_answer *answer, struct plim_err *err)
{
    struct toy *toy = self;
    (void)request;
    (void)err;
    answer->channel = toy->channel;
    return PLIM_OK;
}

static enum plim_status say(void *self, const struct plim_http_request *request,
                            struct plim_http_answer *answer, struct plim_err *err)
{
    (void)self;
    (void)err;
    plim_buf_add(&answer->text, request->n_params ? request->param[0] : request->body);
    answer->type = "text/plain";
    return PLIM_OK;
}

static enum plim_status file(void *self, const struct plim_http_request *request,
                             struct plim_http_answer *answer, struct plim_err *err)
{
    struct stat st;
    (void)self;
    (void)request;
    answer->fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (answer->fd < 0 || fstat(answer->fd, &st) != 0) {
        return plim__fail_errno(err, PLIM_E_NOINPUT, errno, "no program");
    }
    answer->size = (uint64_t)st.st_size;
    answer->type = "application/octet-stream";
    (void)snprintf(answer->filename, sizeof(answer->filename), "a \"toy\"\r\n.bin");
    return PLIM_OK;
}

static enum plim_status counts(void *self, const struct plim_http_request *request,
                               struct plim_http_answer *answer, struct plim_err *err)
{
    static const char *const keys[] = {
#define PLIM__X(name, key) key,
        PLIM_HTTP_COUNT_MAP(PLIM__X)
#undef PLIM__X
    };
    struct toy *toy = self;
    (void)request;
    (void)err;
    for (unsigned i = 0; toy->http && i < PLIM_HTTP_COUNTS; i++) {
        plim_buf_printf(&answer->text, "%s %llu\n", keys[i],
                        (unsigned long long)plim_http_count(toy->http, (enum plim_http_count)i));
    }
    plim_buf_printf(&answer->text, "held %d\n", atomic_load(&toy->held));
    answer->type = "text/plain";
    return PLIM_OK;
}

static const struct plim_http_route routes[] = {
    {"GET", "/fast", fast, 0, 0},
    {"GET", "/slow", slow, PLIM_HTTP_SLOW, 0},
    {"GET", "/held", held, PLIM_HTTP_SLOW, 0},
    {"GET", "/free", set_free, 0, 0},
    {"GET", "/live", live, 0, 0},
    {"GET", "/open", say, PLIM_HTTP_OPEN, 0},
    {"POST", "/echo", say, PLIM_HTTP_MUTATES, 1000},
    {"GET", "/item/{}/part", say, 0, 0},
    {"GET", "/file", file, 0, 0},
    {"GET", "/counts", counts, 0, 0},
};

static const char *value_of(int argc, char **argv, const char *name)
{
    size_t n = strlen(name);
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=') {
            return argv[i] + n + 1;
        }
    }
    return NULL;
}

static void publish(struct toy *toy, uint64_t id)
{
    char data[64];
    int n = snprintf(data, sizeof(data), "{\"n\": %llu}", (unsigned long long)id);
    (void)!plim_http_channel_publish(toy->channel, id, "tick",
                                     (struct plim_str){data, (size_t)(n > 0 ? n : 0)}, NULL);
}

/* An event each 100 ms, until SIGTERM. */
static void run(struct toy *toy, const sigset_t *signals)
{
    struct timespec period = {.tv_nsec = 100000000};
    struct plim_err err = {0};
    for (uint64_t id = 1;; id++) {
        int got = sigtimedwait(signals, NULL, &period);
        if (got == SIGTERM) {
            return;
        }
        if (got == SIGHUP) {
            bool ok = plim_http_reload(toy->http, &err) == PLIM_OK;
            puts(ok ? "reloaded" : err.message);
            (void)fflush(stdout);
        }
        publish(toy, id);
    }
}

static enum plim_status start(struct toy *toy, int argc, char **argv, struct plim_err *err)
{
    const char *listen[16], *patience = value_of(argc, argv, "patience");
    struct plim_http_options options = {.listen = listen,
                                        .token_file = value_of(argc, argv, "token"),
                                        .certificate = value_of(argc, argv, "certificate"),
                                        .key = value_of(argc, argv, "key"),
                                        .auth_all = value_of(argc, argv, "all") != NULL,
                                        .patience_s =
                                            patience ? (unsigned)strtoul(patience, NULL, 10) : 0,
                                        .routes = routes,
                                        .n_routes = PLIM_COUNT_OF(routes),
                                        .self = toy};
    struct plim_buf text = {0};
    struct plim_http_body *body;
    for (int i = 2; i < argc && options.n_listen < PLIM_COUNT_OF(listen); i++) {
        if (!strchr(argv[i], '=')) {
            listen[options.n_listen++] = argv[i];
        }
    }
    plim_buf_repeat(&text, "plimsoll_device_memory_used_bytes{device=\"0\"} 85899345920\n",
                    strtoul(argv[1], NULL, 10) / 58);
    PLIM_TRY(plim_http_slot_new(&toy->slot, err));
    PLIM_TRY(plim_http_channel_new(&toy->channel, err));
    PLIM_TRY(plim_http_body_new("text/plain; version=0.0.4", NULL, &text, &body, err));
    plim_http_slot_set(toy->slot, body);
    struct plim_http *http = NULL;
    PLIM_TRY(plim_http_start(&options, &http, err));
    toy->http = http;
    for (size_t i = 0; plim_http_url(toy->http, i); i++) {
        puts(plim_http_url(toy->http, i));
    }
    puts("ready");
    (void)fflush(stdout);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    struct toy toy = {0};
    struct plim_err err = {0};
    sigset_t signals;
    char text[600];
    if (argc < 2) {
        return 64;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    enum plim_status st = start(&toy, argc, argv, &err);
    if (st == PLIM_OK) {
        run(&toy, &signals);
    } else {
        plim_err_format(&err, text, sizeof(text));
        puts(text);
    }
    plim_http_stop(toy.http);
    plim_http_channel_free(toy.channel);
    plim_http_slot_free(toy.slot);
    return plim_status_exit(st);
}
