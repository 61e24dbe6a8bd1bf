/* SPDX-License-Identifier: Apache-2.0 */
/* One ledger, several processes: some of them killed or stopped inside the lock. */

#include "gate_bench.h"

#include "../../runtime/gate/core/ledger.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILDREN 4

static char path[256];

static struct plimsoll_gate_config with_waiters(uint64_t blocks)
{
    struct plimsoll_gate_config c = paged(blocks);
    c.waiters = 64;
    return c;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void new_path(void)
{
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/plimsoll-gate-test-%d", dir ? dir : "/tmp", (int)getpid());
    (void)unlink(path);
}

/* Admits, extends and releases until it is killed, and keeps some reservations. */
static void work_for_ever(unsigned seed)
{
    struct plimsoll_gate gate;
    struct plimsoll_gate_config c = with_waiters(20000);
    uint64_t ids[64] = {0};
    int code;
    do {
        code = plimsoll_gate_open(&gate, path, &c, now_ns());
    } while (code == PLIMSOLL_GATE_BUSY);
    if (code != 0) {
        _exit(1);
    }
    for (uint64_t random = seed;;) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned at = (unsigned)(random >> 58);
        struct plimsoll_gate_request r = {.prompt_tokens = 1 + (uint32_t)(random >> 40) % 900,
                                          .max_tokens = 500,
                                          .class_id = at % 5,
                                          .flags = at % 2};
        struct plimsoll_gate_decision d;
        if (ids[at] == 0) {
            (void)plimsoll_gate_admit(&gate, &r, &d, now_ns());
            ids[at] = d.id;
        } else if (random & 1) {
            (void)plimsoll_gate_extend(&gate, ids[at], (uint32_t)(random >> 33) % 400, now_ns());
        } else {
            (void)plimsoll_gate_release(&gate, ids[at], 0, PLIMSOLL_GATE_STOPPED, now_ns());
            ids[at] = 0;
        }
    }
}

static pid_t start(unsigned seed)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody stays behind a test that fails */
        work_for_ever(seed);
    }
    return pid;
}

static void kill_hard(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void stop(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

/* Let it go on for a little while, another one each time: a signal that comes at once would leave
 * it no step. */
static void stop_later(pid_t pid)
{
    static unsigned times;
    const struct timespec while_it_runs = {.tv_nsec = 10000 + (long)(times++ * 7919 % 200000)};
    assert_int_equal(kill(pid, SIGCONT), 0);
    (void)nanosleep(&while_it_runs, NULL);
    stop(pid);
}

static struct gate_head *head_of(struct plimsoll_gate *gate)
{
    return gate_of(gate)->head;
}

static bool holds_lock(struct plimsoll_gate *gate, pid_t pid)
{
    uint64_t word = __atomic_load_n(&head_of(gate)->lock, __ATOMIC_ACQUIRE);
    return word != 0 && head_of(gate)->processes[(word & 0xffff) - 1].pid == (uint32_t)pid;
}

/* On a busy machine a holder may be off the processor for longer than anybody waits: ask again. */
static struct plimsoll_gate_state read_state(struct plimsoll_gate *gate)
{
    struct plimsoll_gate_state s = {0};
    int code = PLIMSOLL_GATE_BUSY;
    for (unsigned i = 0; i < 200 && code == PLIMSOLL_GATE_BUSY; i++) {
        code = plimsoll_gate_read(gate, &s, now_ns());
    }
    assert_int_equal(code, 0);
    return s;
}

static void tick(struct plimsoll_gate *gate)
{
    int code = PLIMSOLL_GATE_BUSY;
    for (unsigned i = 0; i < 200 && code == PLIMSOLL_GATE_BUSY; i++) {
        code = plimsoll_gate_tick(gate, now_ns());
    }
    assert_int_equal(code, 0);
}

/* What is wrong, once the others leave the lock: on a busy machine its holder may not run for a while. */
static const char *check(struct plimsoll_gate *gate)
{
    const char *wrong = "the ledger is locked";
    for (unsigned i = 0; i < 200 && wrong && strcmp(wrong, "the ledger is locked") == 0; i++) {
        wrong = plimsoll_gate_check(gate);
    }
    return wrong;
}

/* A worker that has begun, stopped while it holds the lock. */
static pid_t stopped_inside(struct plimsoll_gate *gate, unsigned seed)
{
    pid_t pid = start(seed);
    uint64_t before = read_state(gate).admitted;
    while (read_state(gate).admitted < before + 100) {
    }
    stop(pid);
    while (!holds_lock(gate, pid)) {
        stop_later(pid);
    }
    return pid;
}

static void open_gate(struct plimsoll_gate *gate)
{
    struct plimsoll_gate_config c = with_waiters(20000);
    new_path();
    assert_int_equal(plimsoll_gate_open(gate, path, &c, now_ns()), 0);
}

static void close_gate(struct plimsoll_gate *gate)
{
    plimsoll_gate_close(gate, now_ns());
    assert_int_equal(unlink(path), 0);
}

static void who_dies_inside_the_lock_is_repaired_by_the_next(void **state)
{
    (void)state;
    struct plimsoll_gate gate;
    open_gate(&gate);
    for (unsigned round = 1; round <= 10; round++) {
        pid_t pid = stopped_inside(&gate, round);
        kill_hard(pid);
        assert_null(plimsoll_gate_check(&gate)); /* takes the lock, so repairs */
        assert_int_equal(read_state(&gate).repairs, round);
        tick(&gate);
        struct plimsoll_gate_state s = read_state(&gate);
        assert_int_equal(s.live + s.waiting, 0); /* what the dead one had is returned */
        assert_true(s.reclaimed > 0);
        assert_int_equal(s.processes, 1);
        assert_null(plimsoll_gate_check(&gate));
    }
    close_gate(&gate);
}

static void a_stopped_holder_costs_a_bounded_wait_and_is_passed_over_later(void **state)
{
    (void)state;
    struct plimsoll_gate gate;
    struct plimsoll_gate_request r = {.prompt_tokens = 100, .max_tokens = 100};
    struct plimsoll_gate_decision d;
    open_gate(&gate);
    pid_t pid = stopped_inside(&gate, 3);
    uint64_t before = now_ns();
    assert_int_equal(plimsoll_gate_admit(&gate, &r, &d, before), PLIMSOLL_GATE_BUSY);
    assert_int_equal(plimsoll_gate_admit(&gate, &r, &d, before + 3 * SECOND), 0);
    assert_null(plimsoll_gate_check(&gate));
    uint64_t repairs = read_state(&gate).repairs;
    uint64_t admitted = read_state(&gate).admitted;
    assert_int_equal(kill(pid, SIGCONT),
                     0); /* goes on writing without the lock, and then notices */
    while (read_state(&gate).admitted < admitted + 100) {
    }
    stop(pid);
    while (holds_lock(&gate, pid)) {
        stop_later(pid);
    }
    assert_true(read_state(&gate).repairs > repairs);
    assert_null(plimsoll_gate_check(&gate));
    kill_hard(pid);
    close_gate(&gate);
}

static void killing_workers_at_random_loses_and_leaks_nothing(void **state)
{
    (void)state;
    struct plimsoll_gate gate;
    pid_t pids[CHILDREN];
    open_gate(&gate);
    for (unsigned i = 0; i < CHILDREN; i++) {
        pids[i] = start(i + 1);
    }
    for (unsigned round = 0; round < 60; round++) {
        uint64_t admitted = read_state(&gate).admitted;
        while (read_state(&gate).admitted < admitted + 50) {
        }
        unsigned victim = round % CHILDREN;
        kill_hard(pids[victim]);
        tick(&gate);
        assert_null(check(&gate));
        pids[victim] = start(round + 100);
    }
    for (unsigned i = 0; i < CHILDREN; i++) {
        kill_hard(pids[i]);
    }
    tick(&gate);
    struct plimsoll_gate_state s = read_state(&gate);
    assert_int_equal(s.live + s.waiting, 0);
    assert_int_equal(s.held_units, 0);
    assert_int_equal(s.processes, 1);
    assert_null(plimsoll_gate_check(&gate));
    close_gate(&gate);
}

static void another_configuration_is_refused_while_the_ledger_is_in_use(void **state)
{
    (void)state;
    struct plimsoll_gate gate, other;
    struct plimsoll_gate_config c = with_waiters(500);
    open_gate(&gate);
    assert_int_equal(plimsoll_gate_open(&other, path, &c, now_ns()), PLIMSOLL_GATE_OTHER_CONFIG);
    assert_int_equal(plimsoll_gate_open(&other, path, NULL, now_ns()), 0);
    assert_int_equal(read_state(&other).capacity_units, 20000);
    assert_int_equal(read_state(&other).processes, 1);
    plimsoll_gate_close(&other, now_ns());
    plimsoll_gate_close(&gate, now_ns());
    assert_int_equal(plimsoll_gate_open(&gate, path, &c, now_ns()), 0); /* made anew */
    assert_int_equal(read_state(&gate).capacity_units, 500);
    close_gate(&gate);
}

/* A process that opens the ledger as a front door, admits one request so, and is killed. */
static uint64_t admitted_by_one_who_died(uint32_t flags)
{
    int pair[2];
    uint64_t id = 0;
    assert_int_equal(pipe(pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        const struct plimsoll_gate_config c = with_waiters(20000);
        struct plimsoll_gate own;
        struct plimsoll_gate_request r = {.prompt_tokens = 100, .max_tokens = 60, .flags = flags};
        struct plimsoll_gate_decision d;
        if (plimsoll_gate_open(&own, path, &c, now_ns()) == 0 &&
            plimsoll_gate_admit(&own, &r, &d, now_ns()) == 0) {
            (void)!write(pair[1], &d.id, sizeof(d.id));
        }
        (void)pause();
        _exit(1);
    }
    assert_int_equal(read(pair[0], &id, sizeof(id)), sizeof(id));
    kill_hard(pid);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return id;
}

static void a_reservation_by_lease_outlives_its_process(void **state)
{
    struct plimsoll_gate gate;
    (void)state;
    open_gate(&gate);
    uint64_t id = admitted_by_one_who_died(PLIMSOLL_GATE_BY_LEASE);
    assert_true(admitted_by_one_who_died(0) != 0);
    tick(&gate);
    struct plimsoll_gate_state s = read_state(&gate);
    assert_int_equal(s.live, 1);
    assert_int_equal(s.reclaimed, 1);
    assert_int_equal(plimsoll_gate_extend(&gate, id, 10, now_ns()), 0);
    assert_null(plimsoll_gate_check(&gate));
    assert_int_equal(plimsoll_gate_release(&gate, id, 20, PLIMSOLL_GATE_STOPPED, now_ns()), 0);
    id = admitted_by_one_who_died(PLIMSOLL_GATE_BY_LEASE);
    (void)plimsoll_gate_tick(&gate, now_ns() + 61 * SECOND);
    s = read_state(&gate);
    assert_int_equal(s.live, 0);
    assert_int_equal(s.expired, 1);
    close_gate(&gate);
}

static void a_server_with_another_configuration_replaces_what_others_only_look_at(void **state)
{
    struct plimsoll_gate door, looks;
    struct plimsoll_gate_config other = with_waiters(150);
    struct plimsoll_gate_config found;
    (void)state;
    other.max_length /= 2;
    open_gate(&door);
    assert_int_equal(plimsoll_gate_open(&looks, path, NULL, now_ns()), 0);
    /* One process has both handles here: while its front door is open, nobody changes it. */
    struct plimsoll_gate second;
    assert_int_equal(plimsoll_gate_open(&second, path, &other, now_ns()),
                     PLIMSOLL_GATE_OTHER_CONFIG);
    plimsoll_gate_close(&door, now_ns());
    assert_false(plimsoll_gate_replaced(&looks, path));
    assert_int_equal(plimsoll_gate_open(&second, path, &other, now_ns()), 0);
    assert_true(plimsoll_gate_replaced(&looks, path));
    assert_false(plimsoll_gate_replaced(&second, path));
    assert_int_equal(read_state(&looks).capacity_units, with_waiters(20000).capacity_units);
    plimsoll_gate_close(&looks, now_ns());
    assert_int_equal(plimsoll_gate_open(&looks, path, NULL, now_ns()), 0);
    plimsoll_gate_config(&looks, &found);
    assert_int_equal(found.capacity_units, 150);
    plimsoll_gate_close(&looks, now_ns());
    close_gate(&second);
}

static void a_server_with_another_pool_takes_over_what_was_learned(void **state)
{
    struct plimsoll_gate door, looks, second;
    struct plimsoll_gate_config smaller = with_waiters(15000);
    struct plimsoll_gate_request r = {.prompt_tokens = 100};
    (void)state;
    open_gate(&door);
    assert_int_equal(plimsoll_gate_open(&looks, path, NULL, now_ns()), 0);
    assert_int_equal(plimsoll_gate_oom(&door, &r, 5000, now_ns()), 0);
    assert_int_equal(plimsoll_gate_open(&second, path, &smaller, now_ns()),
                     PLIMSOLL_GATE_OTHER_CONFIG);
    plimsoll_gate_close(&door, now_ns());
    assert_int_equal(plimsoll_gate_open(&door, path, &smaller, now_ns()), 0);
    assert_int_equal(plimsoll_gate_open(&second, path, &smaller, now_ns()), 0);
    assert_false(plimsoll_gate_replaced(&looks, path));
    assert_int_equal(read_state(&looks).capacity_units, 15000);
    assert_int_equal(read_state(&second).ooms, 1);
    struct plimsoll_gate_decision d;
    assert_int_equal(plimsoll_gate_admit(&second, &r, &d, now_ns()), 0);
    assert_int_equal(d.work_bytes, 5000);
    assert_null(plimsoll_gate_check(&second));
    plimsoll_gate_close(&looks, now_ns());
    plimsoll_gate_close(&second, now_ns());
    close_gate(&door);
}

static void a_file_that_is_no_ledger_is_not_taken_for_one(void **state)
{
    (void)state;
    struct plimsoll_gate gate;
    new_path();
    assert_int_equal(plimsoll_gate_open(&gate, path, NULL, 1), PLIMSOLL_GATE_NO_FILE);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (unsigned i = 0; i < 100000; i++) {
        fputs("not a ledger ", f);
    }
    fclose(f);
    assert_int_equal(plimsoll_gate_open(&gate, path, NULL, 1), PLIMSOLL_GATE_BAD_LEDGER);
    struct plimsoll_gate_config c = with_waiters(500);
    c.low = 2;
    assert_int_equal(plimsoll_gate_open(&gate, path, &c, 1), PLIMSOLL_GATE_BAD_CONFIG);
    c.low = 0.9;
    assert_int_equal(plimsoll_gate_open(&gate, path, &c, 1), PLIMSOLL_GATE_BAD_LEDGER);
    char text[14] = {0};
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    assert_int_equal(ftell(f), 1300000);
    fclose(f);
    assert_string_equal(text, "not a ledger ");
    assert_int_equal(truncate(path, 5), 0); /* shorter than the magic */
    assert_int_equal(plimsoll_gate_open(&gate, path, &c, 1), PLIMSOLL_GATE_BAD_LEDGER);
    assert_int_equal(unlink(path), 0);
}

static void a_ledger_that_was_cut_off_or_half_made_is_made_anew(void **state)
{
    (void)state;
    struct plimsoll_gate gate;
    struct plimsoll_gate_config c = with_waiters(500);
    open_gate(&gate);
    plimsoll_gate_close(&gate, now_ns());
    const off_t lengths[] = {100, 0, 4096};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(truncate(path, lengths[i]),
                         0); /* 4096 after 0: zeros, as before the magic */
        assert_int_equal(plimsoll_gate_open(&gate, path, &c, now_ns()), 0);
        assert_null(plimsoll_gate_check(&gate));
        plimsoll_gate_close(&gate, now_ns());
    }
    assert_int_equal(unlink(path), 0);
}

static void a_ledger_for_which_there_is_no_room_is_an_error_and_no_signal(void **state)
{
    (void)state;
    struct plimsoll_gate gate;
    struct plimsoll_gate_config c = with_waiters(500);
    struct stat st;
    open_gate(&gate);
    assert_int_equal(stat(path, &st), 0);
    /* Every page is there from the beginning: a full file system cannot fail later. */
    assert_true((uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size);
    close_gate(&gate);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit little = {.rlim_cur = 65536, .rlim_max = 65536};
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &little);
        _exit(plimsoll_gate_open(&gate, path, &c, now_ns()) == PLIMSOLL_GATE_NO_FILE ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_dies_inside_the_lock_is_repaired_by_the_next),
        cmocka_unit_test(a_stopped_holder_costs_a_bounded_wait_and_is_passed_over_later),
        cmocka_unit_test(killing_workers_at_random_loses_and_leaks_nothing),
        cmocka_unit_test(another_configuration_is_refused_while_the_ledger_is_in_use),
        cmocka_unit_test(a_reservation_by_lease_outlives_its_process),
        cmocka_unit_test(a_server_with_another_configuration_replaces_what_others_only_look_at),
        cmocka_unit_test(a_server_with_another_pool_takes_over_what_was_learned),
        cmocka_unit_test(a_file_that_is_no_ledger_is_not_taken_for_one),
        cmocka_unit_test(a_ledger_that_was_cut_off_or_half_made_is_made_anew),
        cmocka_unit_test(a_ledger_for_which_there_is_no_room_is_an_error_and_no_signal),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
