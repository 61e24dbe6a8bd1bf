/* SPDX-License-Identifier: Apache-2.0 */

/* Asking engines: a server in a thread of the test that behaves well and badly. */

#include "observe/engine_fetch.h"
#include "observe/engine_page.h"
#include "unit.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

/* A time limit for servers that answer, however busy the machine is, and for those that never do:
 * who waited for these would hang. */
#define LONG_NS (600000 * MS)

/* A server that answers each path in its own way; `total` is what its counter says. */
static struct {
    pthread_t thread;
    int listening;
    uint16_t port;
    atomic_int total, silent, redirected;
    atomic_bool stop, refuse;
} server;

static void say(int fd, const char *text)
{
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void say_page(int fd, const char *head)
{
    char text[400];
    (void)snprintf(text, sizeof(text),
                   "%s\r\n\r\nvllm:num_requests_running 3\nvllm:prompt_tokens_total %d\n", head,
                   atomic_load(&server.total));
    say(fd, text);
}

static void say_endless(int fd)
{
    static char block[65536];
    memset(block, '#', sizeof(block));
    say(fd, "HTTP/1.1 200 OK\r\n\r\nvllm:num_requests_running 3\n");
    while (!atomic_load(&server.stop) && send(fd, block, sizeof(block), MSG_NOSIGNAL) > 0) {
    }
}

/* Returns whether the connection stays open, without an answer. */
static bool answer(int fd, const char *request)
{
    if (atomic_load(&server.refuse)) {
        say(fd, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    } else if (strncmp(request, "GET /metrics ", 13) == 0) {
        say_page(fd, "HTTP/1.1 200 OK\r\nConnection: close");
    } else if (strncmp(request, "GET /cut ", 9) == 0) {
        say(fd, "HTTP/1.0 200 OK\r\n\r\nvllm:prompt_tokens_total 7\nvllm:num_requests_running 12");
    } else if (strncmp(request, "GET /short ", 11) == 0) {
        say_page(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5000");
    } else if (strncmp(request, "GET /html ", 10) == 0) {
        say(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>no</html>");
    } else if (strncmp(request, "GET /away ", 10) == 0) {
        say(fd, "HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n");
    } else if (strncmp(request, "GET /there ", 11) == 0) {
        atomic_fetch_add(&server.redirected, 1);
    } else if (strncmp(request, "GET /endless ", 13) == 0) {
        say_endless(fd);
    } else {
        atomic_fetch_add(&server.silent, 1); /* /silent */
        return true;
    }
    return false;
}

static void *serve(void *arg)
{
    (void)arg;
    int silent[64];
    size_t n = 0;
    while (!atomic_load(&server.stop)) {
        struct pollfd p = {.fd = server.listening, .events = POLLIN};
        char request[2048];
        if (poll(&p, 1, 20) != 1) {
            continue;
        }
        int fd = accept(server.listening, NULL, NULL);
        ssize_t got = recv(fd, request, sizeof(request) - 1, 0);
        request[got > 0 ? got : 0] = '\0';
        if (answer(fd, request) && n < PLIM_COUNT_OF(silent)) {
            silent[n++] = fd;
        } else {
            (void)close(fd);
        }
    }
    while (n > 0) {
        (void)close(silent[--n]);
    }
    return NULL;
}

static int start_server(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof(address);
    server.listening = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server.listening, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(server.listening, 64), 0);
    assert_int_equal(getsockname(server.listening, (struct sockaddr *)&address, &n), 0);
    server.port = ntohs(address.sin_port);
    atomic_store(&server.total, 100);
    return pthread_create(&server.thread, NULL, serve, NULL);
}

static int stop_server(void **state)
{
    (void)state;
    atomic_store(&server.stop, true);
    (void)pthread_join(server.thread, NULL);
    return close(server.listening);
}

/* ---- asking it ---- */

static struct plim_engine_fetch *fetch;
static struct plim_observation seen;
static unsigned happened[PLIM_HAPPENING_KINDS];

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Engines e0, e1 ... at these paths of the server. */
static struct plim_place *servers_at(const char *const *paths, size_t n)
{
    static char text[8][100];
    static struct plim_place servers[8];
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "e%zu=http://127.0.0.1:%u%s", i, server.port,
                       paths[i]);
        servers[i] = (struct plim_place){NULL, text[i]};
    }
    return servers;
}

static void open_fetch(const char *const *paths, size_t n, uint64_t timeout_ns)
{
    struct plim_engine_fetch_options options = {.servers = servers_at(paths, n),
                                                .n_servers = n,
                                                .interval_ns = 20 * MS,
                                                .timeout_ns = timeout_ns,
                                                .body_limit = 1 << 20};
    memset(happened, 0, sizeof(happened));
    assert_ok(plim_engine_fetch_open(&options, &fetch, NULL));
}

static void read_once(void)
{
    plim_observation_reset(&seen);
    assert_ok(plim_engine_fetch_read(fetch, &seen, NULL));
    plim_vec_foreach (h, &seen.happenings) {
        happened[h->kind]++;
    }
}

/* Read until `reached`; the time limit only ends a test that would hang. */
static void read_until(bool (*reached)(void))
{
    uint64_t start = now_ms();
    do {
        read_once();
        if (reached()) {
            return;
        }
        (void)poll(NULL, 0, 5);
    } while (now_ms() - start < 90000);
    fail_msg("what was waited for did not come");
}

static void close_fetch(void)
{
    plim_engine_fetch_close(fetch);
    plim_observation_fini(&seen);
    memset(&seen, 0, sizeof(seen));
}

static bool first_is_up(void)
{
    return seen.engines.n > 0 && seen.engines.items[0].up;
}

static bool first_is_down(void)
{
    return seen.engines.n > 0 && !seen.engines.items[0].up;
}

static bool nobody_is_asked(void)
{
    return seen.engines.n == 0;
}

static bool restarted(void)
{
    return seen.engines.n > 0 && seen.engines.items[0].restarts > 0;
}

static void figures_of_a_server_arrive(void **state)
{
    (void)state;
    open_fetch((const char *const[]){""}, 1, LONG_NS);
    read_until(first_is_up);
    assert_int_equal(seen.engines.n, 1);
    assert_string_equal(seen.engines.items[0].name, "e0");
    assert_int_equal(seen.engines.items[0].kind, PLIM_ENGINE_KIND_VLLM);
    assert_true(seen.engines.items[0].figure[PLIM_ENGINE_FIGURE_RUNNING] == 3);
    assert_int_equal(happened[PLIM_HAPPENED_ENGINE_UP], 1);
    close_fetch();
}

static void a_server_that_goes_down_keeps_its_name_and_loses_its_figures(void **state)
{
    (void)state;
    open_fetch((const char *const[]){"/metrics"}, 1, LONG_NS);
    read_until(first_is_up);
    atomic_store(&server.refuse, true);
    read_until(first_is_down);
    assert_int_equal(seen.engines.items[0].valid, 0);
    assert_int_equal(seen.engines.items[0].kind, PLIM_ENGINE_KIND_VLLM);
    atomic_store(&server.refuse, false);
    read_until(first_is_up);
    assert_int_equal(happened[PLIM_HAPPENED_ENGINE_DOWN], 1);
    assert_int_equal(happened[PLIM_HAPPENED_ENGINE_UP], 2);
    close_fetch();
}

static void totals_that_begin_anew_are_a_restart(void **state)
{
    (void)state;
    open_fetch((const char *const[]){"/metrics"}, 1, LONG_NS);
    read_until(first_is_up);
    assert_int_equal(seen.engines.items[0].restarts, 0);
    atomic_store(&server.total, 5);
    read_until(restarted);
    assert_int_equal(seen.engines.items[0].restarts, 1);
    assert_int_equal(happened[PLIM_HAPPENED_ENGINE_UP], 2);
    close_fetch();
}

static bool others_are_up(void)
{
    return seen.engines.n == 2 && seen.engines.items[0].up && seen.engines.items[1].up &&
           strcmp(seen.engines.items[1].name, "e1") == 0;
}

static void other_servers_are_asked_from_a_change_on(void **state)
{
    (void)state;
    open_fetch((const char *const[]){"/metrics", "/html"}, 2, LONG_NS);
    read_until(first_is_up);
    assert_ok(plim_engine_fetch_change(fetch, servers_at((const char *const[]){"/metrics", ""}, 2),
                                       2, false, NULL));
    read_until(others_are_up); /* the second one under its old name, elsewhere */
    assert_int_equal(happened[PLIM_HAPPENED_ENGINE_UP], 2); /* the first one was not asked anew */
    struct plim_place bad = {NULL, "ftp://h/"};
    assert_int_equal(plim_engine_fetch_change(fetch, &bad, 1, false, NULL), PLIM_E_USAGE);
    read_once();
    assert_true(others_are_up());
    assert_ok(plim_engine_fetch_change(fetch, NULL, 0, false, NULL));
    read_until(nobody_is_asked);
    close_fetch();
}

static bool all_said(void)
{
    return seen.engines.n == 7 && seen.engines.items[0].up && seen.engines.items[6].up;
}

static void bad_servers_are_down_and_others_are_not(void **state)
{
    (void)state;
    static const char *const paths[] = {"/metrics", "/silent", "/html", "/away",
                                        "/endless", "/short",  "/cut"};
    open_fetch(paths, PLIM_COUNT_OF(paths), 1000 * MS); /* the silent one is given up after that */
    read_until(all_said);
    for (size_t i = 1; i <= 5; i++) {
        assert_false(seen.engines.items[i].up);
    }
    assert_false(plim_engine_has(&seen.engines.items[6], PLIM_ENGINE_FIGURE_RUNNING)); /* cut */
    assert_true(plim_engine_has(&seen.engines.items[6], PLIM_ENGINE_FIGURE_PROMPT_TOKENS));
    assert_int_equal(atomic_load(&server.redirected), 0);
    close_fetch();
}

static bool silent_one_is_asked(void)
{
    return atomic_load(&server.silent) > 0;
}

static void neither_reading_nor_closing_waits_for_a_silent_server(void **state)
{
    (void)state;
    atomic_store(&server.silent, 0);
    open_fetch((const char *const[]){"/metrics", "/silent"}, 2, LONG_NS);
    read_until(silent_one_is_asked);
    read_until(first_is_up);
    assert_int_equal(seen.engines.n, 1); /* the other one is still waited for */
    close_fetch();
}

static void addresses_are_read_as_users_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *url, *socket;
        uint16_t local;
    } cases[] = {
        {"localhost:8000", "localhost:8000", "http://localhost:8000/metrics", "", 8000},
        {"a=http://127.0.0.1:80/", "a", "http://127.0.0.1:80/metrics", "", 80},
        {"https://gpu-7/m?x=1", "gpu-7", "https://gpu-7/m?x=1", "", 0},
        {"https://[::1]", "[::1]", "https://[::1]/metrics", "", 443},
        {"http://me:secret@h:1", "h:1", "http://me:secret@h:1/metrics", "", 0},
        {"x-1=unix:/run/e.sock", "x-1", "http://localhost/metrics", "/run/e.sock", 0},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        struct plim_engine_address a;
        assert_ok(plim_engine_address_parse(&(struct plim_place){NULL, cases[i].text}, &a, NULL));
        assert_string_equal(a.name, cases[i].name);
        assert_string_equal(a.url, cases[i].url);
        assert_string_equal(a.socket, cases[i].socket);
        assert_int_equal(a.local, cases[i].local);
    }
    static const char *const bad[] = {
        "", "ftp://h/", "file:///etc/passwd", "unix:relative", "a=", "http://", "h p:1"};
    for (size_t i = 0; i < PLIM_COUNT_OF(bad); i++) {
        struct plim_engine_address a;
        assert_int_equal(plim_engine_address_parse(&(struct plim_place){NULL, bad[i]}, &a, NULL),
                         PLIM_E_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_a_server_arrive),
        cmocka_unit_test(a_server_that_goes_down_keeps_its_name_and_loses_its_figures),
        cmocka_unit_test(totals_that_begin_anew_are_a_restart),
        cmocka_unit_test(other_servers_are_asked_from_a_change_on),
        cmocka_unit_test(bad_servers_are_down_and_others_are_not),
        cmocka_unit_test(neither_reading_nor_closing_waits_for_a_silent_server),
        cmocka_unit_test(addresses_are_read_as_users_write_them),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("engine_fetch", tests, start_server, stop_server);
}
