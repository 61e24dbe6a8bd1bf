/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's parts, each alone: notches, times of day, last words, process groups, locks, systemd's socket. */

#include "unit.h"

#include "fail_alloc.h"

#include "base/clock.h"
#include "observe/room.h"
#include "run/run_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- notches ---- */

static void a_notch_that_makes_no_sense_is_refused(void **state)
{
    static const char *const bad[] = {"",       "x",      "x=",    "x=5",     "=-1",    "--=-1",
                                      "x=-",    "x=-0",   "x=/1",  "x=/-2",   "x=-1:",  "x=-1:y",
                                      "x=-nan", "x=-inf", "x=-1 ", "x=-1:-5", "x=/2:1z"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct plim_notches notches = {0};
        struct plim_err err = {0};
        assert_int_equal(plim_notch_parse(&notches, bad[i], &err), PLIM_E_USAGE);
        assert_int_equal(notches.n, 0);
        assert_non_null(strstr(err.message, bad[i]));
    }
}

static void more_than_eight_notches_are_refused(void **state)
{
    struct plim_notches notches = {0};
    (void)state;
    for (size_t i = 0; i < PLIM_NOTCHES; i++) {
        assert_int_equal(plim_notch_parse(&notches, "--a=-1", NULL), PLIM_OK);
    }
    assert_string_equal(notches.list[0].flag, "a");
    assert_int_equal(plim_notch_parse(&notches, "a=-1", NULL), PLIM_E_RANGE);
}

static void take(struct plim_notches *notches, const char *const *command, size_t n,
                 const char *expected)
{
    char what[160] = "";
    bool down = plim_notch_down(notches, command, n, what, sizeof(what));
    assert_int_equal(down, expected[0] != '\0');
    assert_string_equal(what, expected);
}

static void check_command(const struct plim_notches *notches, const char *const *command, size_t n,
                          const char *const *expected)
{
    struct plim_arena arena;
    const char **made;
    plim_arena_init(&arena, 0);
    assert_int_equal(plim_notch_apply(notches, command, n, &arena, &made, NULL), PLIM_OK);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(made[i], expected[i]);
    }
    assert_null(made[n]);
    plim_arena_fini(&arena);
}

static void notches_take_turns_down_to_their_limits_and_back(void **state)
{
    const char *command[] = {"serve",  "--len", "5000",   "--util=0.92",
                             "--seqs", "many",  "--lens", "7"};
    const size_t n = sizeof(command) / sizeof(*command);
    struct plim_notches notches = {0};
    (void)state;
    assert_int_equal(plim_notch_parse(&notches, "len=/2:1250", NULL), PLIM_OK);
    assert_int_equal(plim_notch_parse(&notches, "util=-0.05:0.85", NULL), PLIM_OK);
    assert_int_equal(plim_notch_parse(&notches, "seqs=/2", NULL), PLIM_OK);   /* has no number */
    assert_int_equal(plim_notch_parse(&notches, "absent=/2", NULL), PLIM_OK); /* is not there */
    take(&notches, command, n, "len 5000 -> 2500");
    take(&notches, command, n, "util 0.92 -> 0.87");
    take(&notches, command, n, "len 2500 -> 1250");
    take(&notches, command, n, "");
    const char *low[] = {"serve", "--len", "1250", "--util=0.87", "--seqs", "many", "--lens", "7"};
    check_command(&notches, command, n, low);
    assert_true(plim_notch_up(&notches));
    assert_true(plim_notch_up(&notches));
    assert_true(plim_notch_up(&notches));
    assert_false(plim_notch_up(&notches));
    check_command(&notches, command, n, command);
}

static void flags_are_found_as_the_program_finds_them(void **state)
{
    const char *command[] = {"x",         "--max_len",  "32k",    "-c", "8",
                             "--seqs=64", "--ctx=1.5K", "--seqs", "16", "--auto=auto"};
    const char *low[] = {"x",         "--max_len", "16000",  "-c", "4",
                         "--seqs=64", "--ctx=768", "--seqs", "8",  "--auto=auto"};
    const size_t n = sizeof(command) / sizeof(*command);
    static const char *const notch[] = {"max-len=/2:16000", "c=/2",      "seqs=/2", "ctx=/2",
                                        "auto=/2",          "absent=/2", "c=/2:5"};
    static const char *const useless[] = {NULL,
                                          NULL,
                                          NULL,
                                          NULL,
                                          "its value in the command is no number",
                                          "the command has no such flag",
                                          "it is at its limit"};
    struct plim_notches notches = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(notch) / sizeof(*notch); i++) {
        assert_int_equal(plim_notch_parse(&notches, notch[i], NULL), PLIM_OK);
        const char *why = plim_notch_useless(&notches.list[i], command, n);
        assert_string_equal(why ? why : "", useless[i] ? useless[i] : "");
    }
    take(&notches, command, n, "max-len 32000 -> 16000");
    take(&notches, command, n, "c 8 -> 4");
    take(&notches, command, n, "seqs 16 -> 8"); /* the last one counts */
    take(&notches, command, n, "ctx 1536 -> 768");
    check_command(&notches, command, n, low);
}

static void whole_numbers_stay_whole_and_end_before_zero(void **state)
{
    const char *command[] = {"x", "--n=5"};
    struct plim_notches notches = {0};
    (void)state;
    assert_int_equal(plim_notch_parse(&notches, "n=/2", NULL), PLIM_OK);
    take(&notches, command, 2, "n 5 -> 2");
    take(&notches, command, 2, "n 2 -> 1");
    take(&notches, command, 2, "");
}

/* ---- times of day ---- */

static uint64_t at(unsigned hour, unsigned minute)
{
    struct tm local = {.tm_year = 126,
                       .tm_mon = 5,
                       .tm_mday = 15,
                       .tm_hour = (int)hour,
                       .tm_min = (int)minute,
                       .tm_isdst = -1};
    return (uint64_t)mktime(&local);
}

static void a_window_may_cross_midnight(void **state)
{
    struct plim__window w;
    (void)state;
    assert_int_equal(plim__window_parse(NULL, &w, NULL), PLIM_OK);
    assert_true(plim__window_open(&w, at(13, 0)));
    assert_int_equal(plim__window_parse("02:00-05:30", &w, NULL), PLIM_OK);
    assert_true(plim__window_open(&w, at(2, 0)));
    assert_true(plim__window_open(&w, at(5, 29)));
    assert_false(plim__window_open(&w, at(5, 30)));
    assert_false(plim__window_open(&w, at(1, 59)));
    assert_int_equal(plim__window_parse("22:30-05:00", &w, NULL), PLIM_OK);
    assert_true(plim__window_open(&w, at(23, 59)));
    assert_true(plim__window_open(&w, at(0, 0)));
    assert_false(plim__window_open(&w, at(12, 0)));
    static const char *const bad[] = {
        "", "2", "02:00", "24:00-01:00", "02:60-03:00", "02:00-03:00x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(plim__window_parse(bad[i], &w, NULL), PLIM_E_USAGE);
    }
}

/* ---- last words ---- */

#define TOO_LITTLE                                                                                 \
    "ValueError: Free memory on device cuda:0 (59.6/79.65 GiB) on startup is less than desired "   \
    "GPU memory utilization (0.9, 71.68 GiB). Decrease GPU memory utilization or reduce GPU "      \
    "memory used by other processes.\n"

/* What a shell says, where our own streams are `sink`; whether its last words are of memory. */
static bool said(const char *script, int sink, char *why, size_t room)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    struct plim__words words;
    int out[2], status = 0, kept[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    pid_t pid = 0;
    assert_true(dup2(sink, STDOUT_FILENO) >= 0 && dup2(sink, STDERR_FILENO) >= 0);
    enum plim_status st = plim__words_start(&words, out, NULL);
    st = st == PLIM_OK ? plim__group_start(argv, out, &pid, NULL) : st;
    (void)close(out[0]);
    (void)close(out[1]);
    while (pid != 0 && !plim__group_reap(pid, &status)) {
        (void)poll(NULL, 0, 1);
    }
    bool found = plim__words_of_memory(&words, why, room);
    plim__words_stop(&words);
    plim__words_stop(&words); /* a second time does nothing */
    (void)dup2(kept[0], STDOUT_FILENO);
    (void)dup2(kept[1], STDERR_FILENO);
    (void)close(kept[0]);
    (void)close(kept[1]);
    assert_int_equal(st, PLIM_OK);
    return found;
}

static void last_words_pass_through_and_are_judged(void **state)
{
    char why[320], got[sizeof(TOO_LITTLE)] = "";
    FILE *sink = tmpfile();
    (void)state;
    assert_non_null(sink);
    assert_true(said("printf '%s' '" TOO_LITTLE "'", fileno(sink), why, sizeof(why)));
    assert_non_null(strstr(why, "20.05 GiB"));
    assert_int_equal(pread(fileno(sink), got, sizeof(got) - 1, 0), sizeof(TOO_LITTLE) - 1);
    assert_string_equal(got, TOO_LITTLE);
    (void)fclose(sink);
}

static void words_on_standard_error_count_and_others_do_not(void **state)
{
    char why[320];
    int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)state;
    assert_true(said("printf '%s' '" TOO_LITTLE "' >&2; exit 1", sink, why, sizeof(why)));
    assert_false(said("echo starting; echo done >&2", sink, why, sizeof(why)));
    assert_false(said(":", sink, why, sizeof(why)));
    /* Long ago: more than is kept was said since. */
    assert_false(
        said("printf '%s' '" TOO_LITTLE "'; yes working | head -c 400000", sink, why, sizeof(why)));
    assert_true(
        said("yes working | head -c 400000; printf '%s' '" TOO_LITTLE "'", sink, why, sizeof(why)));
    (void)close(sink);
}

static void a_command_is_not_stopped_by_a_reader_who_left(void **state)
{
    char why[320];
    int pair[2];
    (void)state;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    (void)close(pair[0]);
    assert_true(said("yes working | head -c 400000; printf '%s' '" TOO_LITTLE "'", pair[1], why,
                     sizeof(why)));
    (void)close(pair[1]);
}

static void listening_without_memory_fails_and_leaves_nothing(void **state)
{
    struct plim__words words;
    int out[2];
    (void)state;
    fail_alloc_at(1);
    assert_int_equal(plim__words_start(&words, out, NULL), PLIM_E_NOMEM);
    fail_alloc_at(0);
    plim__words_stop(&words);
    char why[8];
    assert_false(plim__words_of_memory(&words, why, sizeof(why)));
}

/* ---- processes ---- */

static void a_command_that_is_not_there_says_so(void **state)
{
    const char *argv[] = {"/nowhere/server", NULL};
    int out[2] = {STDOUT_FILENO, STDERR_FILENO};
    struct plim_err err = {0};
    pid_t pid;
    (void)state;
    assert_int_equal(plim__group_start(argv, out, &pid, &err), PLIM_E_NOINPUT);
    assert_non_null(strstr(err.message, "/nowhere/server"));
}

static void a_group_lives_until_its_last_process_ends(void **state)
{
    const char *argv[] = {"sh", "-c", "sleep 600 & echo; wait", NULL};
    int out[2], status = 0;
    pid_t pid;
    char line;
    (void)state;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const int to[2] = {out[1], out[1]};
    assert_int_equal(plim__group_start(argv, to, &pid, NULL), PLIM_OK);
    assert_int_equal(read(out[0], &line, 1), 1); /* both are there */
    assert_true(plim__group_has(pid, (uint32_t)pid));
    assert_false(plim__group_has(pid, (uint32_t)getpid()));
    assert_false(plim__group_has(pid, 1));
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (!plim__group_reap(pid, &status)) {
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_true(plim__group_lives(pid));
    plim__group_signal(pid, SIGKILL);
    while (plim__group_lives(pid)) {
        (void)plim__group_reap(pid, &status);
        (void)poll(NULL, 0, 1);
    }
    (void)close(out[0]);
    (void)close(out[1]);
}

/* ---- one start at a time ---- */

static void one_start_at_a_time_by_device(void **state)
{
    struct plim_sample sample = {0};
    struct plim__start_lock first = {0}, second = {0};
    struct plim_device_sample device = {0};
    (void)state;
    (void)snprintf(device.uuid, sizeof(device.uuid), "GPU-unit-test-%d", (int)getpid());
    assert_int_equal(plim_vec_push(&sample.devices, NULL, device), PLIM_OK);
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "GPU-another", 1), 0);
    assert_true(plim__start_lock_try(&first, &sample));
    assert_int_equal(first.n, 0); /* the command does not see it */
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "0", 1), 0);
    assert_true(plim__start_lock_try(&first, &sample));
    assert_int_equal(first.n, 1);
    assert_false(plim__start_lock_try(&second, &sample));
    assert_int_equal(second.n, 0);
    plim__start_lock_free(&first);
    assert_true(plim__start_lock_try(&second, &sample));
    plim__start_lock_free(&second);
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    static const char *const places[] = {"/run/lock", "/dev/shm"};
    for (size_t i = 0; i < 2; i++) {
        char path[256];
        (void)snprintf(path, sizeof(path), "%s/plimsoll-start-%s.lock", places[i], device.uuid);
        (void)unlink(path);
    }
    plim_vec_fini(&sample.devices);
}

/* ---- room ---- */

static bool is_even(const void *arg, uint32_t pid)
{
    (void)arg;
    return pid % 2 == 0;
}

static void put_allocator(struct plim_observation *o, uint32_t pid, uint32_t device,
                          uint64_t reserved, uint64_t allocated, uint64_t split)
{
    struct plim_allocator_now a = {.pid = pid,
                                   .device = device,
                                   .valid = UINT64_C(1) << PLIM_ALLOCATOR_RESERVED |
                                            UINT64_C(1) << PLIM_ALLOCATOR_ALLOCATED |
                                            UINT64_C(1) << PLIM_ALLOCATOR_INACTIVE_SPLIT};
    a.figure[PLIM_ALLOCATOR_RESERVED] = reserved;
    a.figure[PLIM_ALLOCATOR_ALLOCATED] = allocated;
    a.figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] = split;
    assert_ok(plim_vec_push(&o->allocators, NULL, a));
}

static void room_is_what_is_free_and_what_can_be_given_back(void **state)
{
    struct plim_observation o = {0};
    struct plim_device_sample d = {0};
    (void)state;
    struct plim_room room = plim_room_of(&o, is_even, NULL);
    assert_true(room.headroom == UINT64_MAX && room.stranded < 0);
    plim_set_figure(&d, PLIM_FIGURE_FREE, 1000);
    assert_ok(plim_vec_push(&o.sample.devices, NULL, d));
    plim_set_figure(&d, PLIM_FIGURE_FREE, 300);
    assert_ok(plim_vec_push(&o.sample.devices, NULL, d));
    put_allocator(&o, 1, 1, 900, 100, 700); /* somebody else's */
    put_allocator(&o, 2, 0, 500, 300, 50);
    room = plim_room_of(&o, is_even, NULL);
    assert_int_equal(room.headroom, 1150);
    assert_true(room.stranded == 0.1);
    put_allocator(&o, 4, 1, 500, 500, 200); /* contradicts itself: nothing can be given back */
    put_allocator(&o, 6, PLIM_NO_DEVICE, 100, 50, 50);
    room = plim_room_of(&o, is_even, NULL);
    assert_int_equal(room.headroom, 300);
    assert_true(room.stranded == 0.5);
    o.allocators.items[3].stale = true; /* pid 6 tells nothing any more */
    assert_true(plim_room_of(&o, is_even, NULL).stranded == 0.4);
    plim_vec_fini(&o.allocators);
    plim_vec_fini(&o.sample.devices);
}

/* ---- systemd ---- */

static void systemd_is_told_and_pinged_at_half_its_time(void **state)
{
    char path[108], got[64];
    struct plim__notify notify;
    (void)state;
    (void)snprintf(path, sizeof(path), "@plimsoll-unit-%d", (int)getpid());
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path));
    a.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&a, length), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", path, 1), 0);
    assert_int_equal(setenv("WATCHDOG_USEC", "2000000", 1), 0);
    plim__notify_open(&notify);
    assert_null(getenv("NOTIFY_SOCKET")); /* they are not the command's */
    assert_null(getenv("WATCHDOG_USEC"));
    plim__notify_send(&notify, "READY=1");
    ssize_t n = recv(fd, got, sizeof(got) - 1, 0);
    assert_int_equal(n, 7);
    assert_memory_equal(got, "READY=1", 7);
    uint64_t now = plim_mono_ns();
    plim__notify_alive(&notify, now);
    assert_int_equal(recv(fd, got, sizeof(got), 0), 10); /* WATCHDOG=1 */
    plim__notify_alive(&notify, now + 900000000);
    assert_int_equal(recv(fd, got, sizeof(got), 0), -1);
    plim__notify_alive(&notify, now + 1100000000);
    assert_int_equal(recv(fd, got, sizeof(got), 0), 10);
    (void)close(fd);
    plim__notify_send(&notify, "READY=1"); /* nobody listens: lost */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_notch_that_makes_no_sense_is_refused),
        cmocka_unit_test(more_than_eight_notches_are_refused),
        cmocka_unit_test(notches_take_turns_down_to_their_limits_and_back),
        cmocka_unit_test(flags_are_found_as_the_program_finds_them),
        cmocka_unit_test(whole_numbers_stay_whole_and_end_before_zero),
        cmocka_unit_test(a_window_may_cross_midnight),
        cmocka_unit_test(last_words_pass_through_and_are_judged),
        cmocka_unit_test(words_on_standard_error_count_and_others_do_not),
        cmocka_unit_test(a_command_is_not_stopped_by_a_reader_who_left),
        cmocka_unit_test(listening_without_memory_fails_and_leaves_nothing),
        cmocka_unit_test(a_command_that_is_not_there_says_so),
        cmocka_unit_test(a_group_lives_until_its_last_process_ends),
        cmocka_unit_test(one_start_at_a_time_by_device),
        cmocka_unit_test(room_is_what_is_free_and_what_can_be_given_back),
        cmocka_unit_test(systemd_is_told_and_pinged_at_half_its_time),
    };
    return PLIM_RUN_TESTS("run", tests);
}
