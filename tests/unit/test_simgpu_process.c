/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated GPU and its processes: deaths, forks, several devices, the log file that outlives
 * its writer. */

#include "simgpu_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a process of its own: two cards of 1 and 2 GiB. The line that failed, or 0. */
static int two_devices(void)
{
    void *a, *b;
    size_t free_bytes, total;
    (void)setenv("PLIMSOLL_SIM_GPU", "1GiB,2GiB", 1);
    (void)setenv("PLIMSOLL_SIM_CONTEXT", "64MiB", 1);
#define CHECK(x)                                                                                   \
    if (!(x)) {                                                                                    \
        return __LINE__ % 250 + 1;                                                                 \
    }
    CHECK(sim_start() == SIM_OK && sim_device_count() == 2)
    CHECK(sim_call_malloc(&a, 100 * MIB) == SIM_OK)
    CHECK(sim_call_set_device(2) == SIM_E_DEVICE)
    CHECK(sim_call_set_device(1) == SIM_OK)
    CHECK(sim_call_malloc(&b, 1500 * MIB) == SIM_OK)
    CHECK(sim_device_of(a) == 0 && sim_device_of(b) == 1)
    CHECK(sim_call_info(&free_bytes, &total) == SIM_OK)
    CHECK(total == 2 * CAPACITY && free_bytes == total - 1564 * MIB)
    CHECK(sim_call_free(a) == SIM_OK) /* of the other device */
    CHECK(sim_call_set_device(0) == SIM_OK)
    CHECK(sim_call_info(&free_bytes, &total) == SIM_OK)
    CHECK(total == CAPACITY && free_bytes == CAPACITY - CONTEXT)
    return 0;
#undef CHECK
}

static void a_process_that_dies_gives_its_memory_back(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    uint64_t before = in_use(); /* no context yet: this test runs first */
    assert_int_equal(before, 0);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        void *p;
        byte = (char)sim_call_malloc(&p, 100 * MIB);
        (void)!write(ready[1], &byte, 1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, SIM_OK);
    assert_int_equal(in_use(), CONTEXT + 100 * MIB);
    struct sim_process list[4];
    assert_int_equal(sim_processes(0, list, 4), 1);
    assert_int_equal(list[0].pid, child);
    assert_int_equal(list[0].bytes, CONTEXT + 100 * MIB);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(in_use(), 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void a_log_file_holds_the_calls_even_without_an_end(void **state)
{
    (void)state;
    char path[64], name[96];
    struct plimsoll_sim_log_head head;
    struct plimsoll_sim_call call;
    int status;
    (void)snprintf(path, sizeof path, "/tmp/plimsoll-log-%d", (int)getpid());
    pid_t child = fork(); /* no context yet: this test runs early */
    if (child == 0) {
        void *p;
        if (sim_set("log", path) != SIM_OK || sim_call_malloc(&p, 4 * MIB) != SIM_OK) {
            _exit(1);
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    (void)snprintf(name, sizeof name, "%s.%d", path, (int)child);
    FILE *file = fopen(name, "rb");
    assert_non_null(file);
    (void)unlink(name);
    assert_int_equal(fread(&head, sizeof head, 1, file), 1);
    assert_memory_equal(head.magic, PLIMSOLL_SIM_LOG_MAGIC, 8);
    assert_int_equal(head.record_bytes, sizeof call);
    assert_int_equal(head.pid, child);
    assert_int_equal(atomic_load(&head.count), 2); /* the context and the allocation */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fread(&call, sizeof call, 1, file), 1);
    }
    assert_string_equal(plimsoll_sim_call_name(call.call), "cudaMalloc");
    assert_int_equal(call.size, 4 * MIB);
    (void)fclose(file);
}

static void devices_have_books_of_their_own(void **state)
{
    (void)state;
    int status;
    pid_t child = fork(); /* with other cards: books are made at first use */
    if (child == 0) {
        (void)execl("/proc/self/exe", "test_simgpu_process", "two-devices", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_child_forked_after_first_use_has_no_device(void **state)
{
    (void)state;
    int status;
    void *mine;
    assert_int_equal(sim_call_malloc(&mine, 2 * MIB), SIM_OK);
    pid_t child = fork();
    if (child == 0) {
        void *p;
        _exit(sim_call_malloc(&p, 2 * MIB));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), SIM_E_INIT);
    assert_int_equal(sim_call_free(mine), SIM_OK);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "two-devices") == 0) {
        return two_devices();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_dies_gives_its_memory_back),
        cmocka_unit_test(a_log_file_holds_the_calls_even_without_an_end),
        cmocka_unit_test(devices_have_books_of_their_own),
        cmocka_unit_test(a_child_forked_after_first_use_has_no_device),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("simgpu process", tests, start, NULL);
}
