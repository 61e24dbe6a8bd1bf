/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder over a made-up driver whose costs tests set: levels, contexts, modules, graphs, limits,
 * refusals, lookups by version, threads, signals. The hooks are in this program; the made-up driver and
 * runtime are the library behind it (tests/fakes/recorded_driver.c).
 */

#include "fakes/recorded_driver.h"
#include "record.h"
#include "shm_folder.h"
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define MIB     ((uint64_t)1 << 20)
#define CONTEXT (300 * MIB)

static struct plim_shm_reader reader;
static struct plim_gpu_event got[4096];
static int n_got;

static void drain(void)
{
    n_got = 0;
    for (int n = 1; n > 0 && n_got < 4096;) {
        n = plim_shm_poll(&reader, got + n_got, (unsigned)(4096 - n_got), false);
        assert_true(n >= 0);
        n_got += n;
    }
}

static uint64_t charged(unsigned owner)
{
    struct plim_shm_total totals[PLIM_SHM_OWNERS];
    assert_int_equal(plim_shm_totals(&reader, 0, totals), 0);
    return totals[owner].charged;
}

static uint64_t charged_by_all(void)
{
    uint64_t sum = 0;
    for (unsigned owner = 0; owner < PLIM_OWNERS; owner++) {
        sum += charged(owner);
    }
    return sum;
}

static struct plim_shm_counters counters(void)
{
    struct plim_shm_counters c;
    uint64_t lost;
    assert_int_equal(plim_shm_counters(&reader, &c, &lost), 0);
    assert_int_equal(lost, 0);
    return c;
}

/* The context, one module and the file: made by the first calls. */
static int begin(void **state)
{
    (void)state;
    void *context;
    fake.cost = CONTEXT;
    if (cuDevicePrimaryCtxRetain(&context, 0) != 0) {
        return 1;
    }
    DIR *d = opendir(dir);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.' && plim_shm_open(&reader, path, true) != 0) {
            return 1;
        }
    }
    (void)closedir(d);
    return 0;
}

static void a_context_costs_what_the_device_lost(void **state)
{
    (void)state;
    drain();
    assert_int_equal(n_got, 1);
    assert_int_equal(got[0].kind, PLIM_EVENT_CONTEXT);
    assert_int_equal(got[0].size, CONTEXT);
    assert_int_equal(got[0].flags & PLIM_EVENT_ESTIMATE, PLIM_EVENT_ESTIMATE);
    assert_int_equal(charged(PLIM_OWNER_CONTEXT), CONTEXT);
}

static void a_call_through_both_levels_is_recorded_once(void **state)
{
    (void)state;
    void *p;
    assert_int_equal(cudaMalloc(&p, 5 * MIB), 0);
    assert_int_equal(cudaFree(p), 0);
    drain();
    assert_int_equal(n_got, 2);
    assert_int_equal(got[0].call, PLIM__CALL_cuMemAlloc_v2);
    assert_int_equal(got[0].flags & PLIM_EVENT_RUNTIME, 0);
    assert_int_equal(got[0].owner,
                     PLIM_OWNER_APPLICATION); /* not the library that has the runtime */
    assert_int_equal(got[0].aux, 6 * MIB);
    assert_int_equal(got[1].call, PLIM__CALL_cuMemFree_v2);
    assert_int_equal(got[1].size, 5 * MIB);
    assert_true(got[1].time_ns >= got[0].time_ns);
}

static void a_refused_release_is_taken_back(void **state)
{
    (void)state;
    uint64_t addr;
    struct plim_shm_counters before = counters();
    assert_int_equal(cuMemAlloc_v2(&addr, 4 * MIB), 0);
    fake.result = 700;
    assert_int_equal(cuMemFree_v2(addr), 700);
    assert_int_equal(charged(PLIM_OWNER_APPLICATION), 4 * MIB);
    assert_int_equal(counters().failed_frees, before.failed_frees + 1);
    assert_int_equal(cuMemFree_v2(addr), 0);
    drain();
    assert_int_equal(n_got, 4);
    int64_t sum = 0;
    for (int i = 0; i < n_got; i++) {
        sum += plim_event_charge(&got[i]);
    }
    assert_int_equal(sum, 0);
    assert_int_equal(got[2].result, 700);
    assert_int_equal(charged(PLIM_OWNER_APPLICATION), 0);
}

static void a_failed_allocation_is_an_event_and_costs_nothing(void **state)
{
    (void)state;
    uint64_t addr = 1;
    fake.result = 2;
    assert_int_equal(cuMemAlloc_v2(&addr, 4 * MIB), 2);
    assert_int_equal(addr, 1);
    drain();
    assert_int_equal(n_got, 1);
    assert_int_equal(got[0].result, 2);
    assert_int_equal(got[0].size, 4 * MIB);
    assert_int_equal(plim_event_charge(&got[0]), 0);
}

static void modules_and_graphs_cost_what_the_device_lost(void **state)
{
    (void)state;
    void *module, *exec;
    fake.cost = 7 * MIB;
    assert_int_equal(cuModuleLoadData(&module, NULL), 0);
    assert_int_equal(charged(PLIM_OWNER_MODULE), 7 * MIB);
    fake.cost = 3 * MIB;
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, NULL, 0), 0);
    fake.cost = 2 * MIB;
    assert_int_equal(cuGraphLaunch(exec, NULL), 0);
    assert_int_equal(charged(PLIM_OWNER_GRAPH), 5 * MIB);
    drain();
    assert_int_equal(cuGraphLaunch(exec, NULL), 0);
    drain();
    assert_int_equal(n_got, 0); /* only the first launch is looked at */
    assert_int_equal(cuGraphExecDestroy(exec), 0);
    assert_int_equal(cuModuleUnload(module), 0);
    fake.used -= 12 * MIB;
    drain();
    assert_int_equal(got[0].kind, PLIM_EVENT_GRAPH_END);
    assert_int_equal(got[0].size, 5 * MIB);
    assert_int_equal(charged(PLIM_OWNER_GRAPH) + charged(PLIM_OWNER_MODULE), 0);
}

static void a_limit_that_takes_memory_belongs_to_the_context(void **state)
{
    (void)state;
    fake.cost = 216 * MIB;
    assert_int_equal(cuCtxSetLimit(0, 8192), 0);
    drain();
    assert_int_equal(n_got, 1);
    assert_int_equal(got[0].kind, PLIM_EVENT_LIMIT);
    assert_int_equal(got[0].aux, 8192);
    assert_int_equal(charged(PLIM_OWNER_CONTEXT), CONTEXT + 216 * MIB);
}

static void arrays_cost_what_their_format_says(void **state)
{
    (void)state;
    void *array;
    const struct plim__array3 half4 = {.width = 100, .height = 10, .format = 0x10, .channels = 4};
    const struct plim__array3 bc1 = {.width = 64, .height = 64, .format = 0x91, .channels = 4};
    assert_int_equal(cuArray3DCreate_v2(&array, &half4), 0);
    assert_int_equal(cuArrayDestroy(array), 0);
    assert_int_equal(cuArray3DCreate_v2(&array, &bc1), 0);
    assert_int_equal(cuArrayDestroy(array), 0);
    drain();
    assert_int_equal(got[0].size, 100 * 10 * 4 * 2);
    assert_int_equal(got[2].size, 64 * 64 / 2);
}

static void memory_of_others_is_not_charged(void **state)
{
    (void)state;
    uint64_t addr, before = charged_by_all();
    struct fake_ipc handle = {"i"};
    assert_int_equal(cuIpcOpenMemHandle_v2(&addr, handle, 1), 0);
    assert_int_equal(charged_by_all(), before);
    assert_int_equal(cuIpcCloseMemHandle(addr), 0);
    drain();
    assert_int_equal(got[0].kind, PLIM_EVENT_IMPORT);
    assert_int_equal(got[1].kind, PLIM_EVENT_CLOSE_IMPORT);
}

static void an_allocation_that_comes_again_had_gone_unseen(void **state)
{
    (void)state;
    uint64_t addr, again;
    assert_int_equal(cuMemAlloc_v2(&addr, 4 * MIB), 0);
    fake.next = addr; /* released where nobody saw it */
    assert_int_equal(cuMemAlloc_v2(&again, 6 * MIB), 0);
    assert_int_equal(again, addr);
    assert_int_equal(charged(PLIM_OWNER_APPLICATION), 6 * MIB);
    drain();
    assert_int_equal(n_got, 3);
    assert_int_equal(got[1].kind, PLIM_EVENT_FREE);
    assert_int_equal(got[1].flags & PLIM_EVENT_TAIL, PLIM_EVENT_TAIL);
    assert_int_equal(cuMemFree_v2(addr), 0);
}

/* ---- lookups where the driver hands out other addresses than it exports */

static void lookups_give_the_hook_of_the_right_shape(void **state)
{
    (void)state;
    void *p, *context;
    uint64_t addr;
    int status = -1;
    struct plim_shm_counters before = counters();
    drain();
    assert_int_equal(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, &status), 0);
    assert_int_equal(((int (*)(uint64_t *, size_t))p)(&addr, 2 * MIB), 0);
    assert_int_equal(cuMemFree_v2(addr), 0);
    assert_int_equal(cuGetProcAddress_v2("cuCtxCreate", &p, 3020, 0, &status), 0);
    assert_int_equal(((int (*)(void **, unsigned, int))p)(&context, 0, 0), 0);
    assert_int_equal(cuGetProcAddress_v2("cuCtxCreate", &p, 13000, 0, &status), 0);
    assert_int_equal(((int (*)(void **, void *, unsigned, int))p)(&context, NULL, 0, 0), 0);
    drain();
    assert_int_equal(n_got, 4);
    assert_int_equal(got[0].call, PLIM__CALL_cuMemAlloc_v2);
    assert_int_equal(got[2].call, PLIM__CALL_cuCtxCreate_v2);
    assert_int_equal(got[3].call, PLIM__CALL_cuCtxCreate_v4);
    assert_int_equal(counters().unhooked, before.unhooked);
}

static void lookups_by_a_newer_version_are_hooked_only_when_the_shape_is_known(void **state)
{
    (void)state;
    void *p;
    uint64_t addr;
    int status;
    struct plim_shm_counters before = counters();
    assert_int_equal(cuGetProcAddress_v2("cuMemAlloc", &p, 14000, 0, &status), 0);
    assert_int_equal(((int (*)(uint64_t *, size_t))p)(&addr, 2 * MIB), 0);
    assert_int_equal(cuMemFree_v2(addr), 0);
    drain();
    assert_int_equal(n_got, 2);
    assert_int_equal(cuGetProcAddress_v2("cuCtxCreate", &p, 14000, 0, &status), 0);
    assert_int_equal(((int (*)(void))p)(), 77);
    drain();
    assert_int_equal(n_got, 0);
    assert_int_equal(counters().unhooked, before.unhooked + 1);
    assert_int_equal(cuGetProcAddress_v2("cuNothing", &p, 12000, 0, &status), 0);
    assert_null(p);
    assert_int_equal(status, 1);
}

/* ---- the table of what is live */

static void the_table_finds_what_was_put_there(void **state)
{
    (void)state;
    enum {
        KEYS = 5000
    };
    static bool in[KEYS];
    unsigned seed = 7, live = 0;
    for (unsigned i = 0; i < 200000; i++) {
        seed = seed * 1103515245u + 12345u;
        uint64_t key = (seed >> 8) % KEYS;
        struct plim__live *found;
        struct plim__shard *shard = plim__live_lock(PLIM__EXTERNAL, key << 9, &found);
        assert_int_equal(found != NULL, in[key]);
        if (found != NULL) {
            assert_int_equal(found->size, key);
            plim__live_remove(shard, found);
            assert_true(plim__live_freed(shard, PLIM__EXTERNAL, key << 9));
        } else {
            struct plim__live entry = {
                .key = key << 9, .size = key, .cls = PLIM__EXTERNAL, .device = 9};
            assert_true(plim__live_add(shard, &entry));
        }
        plim__live_unlock(shard);
        in[key] = !in[key];
        live = in[key] ? live + 1 : live - 1;
    }
    uint32_t cursor = 0;
    struct plim__live out;
    while (plim__live_pop(9, 1u << PLIM__EXTERNAL, &cursor, &out)) {
        assert_true(in[out.size]);
        live--;
    }
    assert_int_equal(live, 0);
}

/* ---- threads and signals */

static void *allocate_and_release(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    void *held[8] = {0};
    for (int i = 0; i < 2000; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned at = (seed >> 16) % 8;
        if (held[at] != NULL) {
            (void)cudaFree(held[at]);
            held[at] = NULL;
        } else {
            (void)cudaMalloc(&held[at], (seed >> 8) % (4 * MIB) + 1);
        }
    }
    for (int i = 0; i < 8; i++) {
        if (held[i] != NULL) {
            (void)cudaFree(held[i]);
        }
    }
    return NULL;
}

static void threads_leave_the_books_as_they_were(void **state)
{
    (void)state;
    pthread_t thread[6];
    uint64_t before = charged_by_all();
    struct plim_shm_counters counted = counters();
    for (uintptr_t i = 0; i < 6; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, allocate_and_release, (void *)(i + 1)),
                         0);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    assert_int_equal(charged_by_all(), before);
    assert_int_equal(counters().unknown_frees, counted.unknown_frees);
    int64_t sum = 0;
    do {
        drain();
        for (int i = 0; i < n_got; i++) {
            sum += plim_event_charge(&got[i]);
        }
    } while (n_got > 0);
    assert_int_equal(sum, 0);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    void *p;
    (void)number;
    alarms = alarms + 1;
    if (cudaMalloc(&p, 3 * MIB) == 0) {
        (void)cudaFree(p);
    }
}

static void a_signal_in_the_middle_of_a_call_does_no_harm(void **state)
{
    (void)state;
    struct sigaction act = {.sa_handler = on_alarm}, old;
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    uint64_t before = charged_by_all();
    assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (unsigned i = 0; alarms < 300 && i < 20000000; i++) {
        void *p;
        if (cudaMalloc(&p, 4 * MIB) == 0) {
            (void)cudaFree(p);
        }
        if (i % 1000 == 0) {
            drain();
        }
    }
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    assert_true(alarms >= 300);
    /* Pairs in a handler that interrupted the recorder went by unseen, both halves of them. */
    assert_int_equal(charged_by_all(), before);
    drain();
}

static void the_end_of_the_last_context_ends_everything_in_it(void **state)
{
    (void)state;
    void *p, *module;
    assert_int_equal(cudaMalloc(&p, 4 * MIB), 0);
    fake.cost = MIB;
    assert_int_equal(cuModuleLoadData(&module, NULL), 0);
    drain();
    /* The contexts of the lookups are of the device too: only with the last one is it over. */
    assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_true(charged_by_all() >= 5 * MIB);
    drain();
    assert_int_equal(n_got, 1);
    assert_int_equal(got[0].kind, PLIM_EVENT_CONTEXT_END);
    assert_int_equal(got[0].size, CONTEXT + 216 * MIB);
    assert_int_equal(charged(PLIM_OWNER_CONTEXT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_costs_what_the_device_lost),
        cmocka_unit_test(a_call_through_both_levels_is_recorded_once),
        cmocka_unit_test(a_refused_release_is_taken_back),
        cmocka_unit_test(a_failed_allocation_is_an_event_and_costs_nothing),
        cmocka_unit_test(modules_and_graphs_cost_what_the_device_lost),
        cmocka_unit_test(a_limit_that_takes_memory_belongs_to_the_context),
        cmocka_unit_test(arrays_cost_what_their_format_says),
        cmocka_unit_test(memory_of_others_is_not_charged),
        cmocka_unit_test(an_allocation_that_comes_again_had_gone_unseen),
        cmocka_unit_test(lookups_give_the_hook_of_the_right_shape),
        cmocka_unit_test(lookups_by_a_newer_version_are_hooked_only_when_the_shape_is_known),
        cmocka_unit_test(the_table_finds_what_was_put_there),
        cmocka_unit_test(threads_leave_the_books_as_they_were),
        cmocka_unit_test(a_signal_in_the_middle_of_a_call_does_no_harm),
        cmocka_unit_test(the_end_of_the_last_context_ends_everything_in_it),
    };
    folder_make();
    (void)setenv("PLIMSOLL_RECORD_DIR", dir, 1);
    (void)unsetenv("PLIMSOLL_RECORD");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    int rc = cmocka_run_group_tests_name("recorder", tests, begin, NULL);
    folder_remove();
    return rc;
}
