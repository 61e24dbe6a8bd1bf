/* SPDX-License-Identifier: Apache-2.0 */
/* Host checks in a made-up world: /proc and cgroup files in a temporary folder. */

#include "device/doctor.h"
#include "fail_alloc.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct made {
    char root[64];
    struct plim_world world;
    struct plim_arena arena;
    struct plim_checks checks;
};

static const char *nothing(const char *name)
{
    (void)name;
    return NULL;
}

static const char *in_kubernetes(const char *name)
{
    return strcmp(name, "KUBERNETES_SERVICE_HOST") == 0 ? "10.0.0.1" : NULL;
}

static int make_world(void **state)
{
    struct made *made = calloc(1, sizeof(*made));
    snprintf(made->root, sizeof(made->root), "/tmp/plimsoll-test-host-XXXXXX");
    if (mkdtemp(made->root) == NULL) {
        return 1;
    }
    made->world = (struct plim_world){made->root, nothing};
    plim_arena_init(&made->arena, 0);
    made->checks.arena = &made->arena;
    *state = made;
    return 0;
}

static int drop_world(void **state)
{
    struct made *made = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", made->root);
    plim_checks_fini(&made->checks);
    plim_arena_fini(&made->arena);
    free(made);
    return system(command) != 0;
}

/* Write a file of the made-up world, with its folders. */
static void put(const struct made *made, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", made->root, path);
    for (char *slash = full + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static const struct plim_check *find(const struct made *made, const char *id)
{
    plim_vec_foreach (check, &made->checks.list) {
        if (strcmp(check->id, id) == 0) {
            return check;
        }
    }
    return NULL;
}

/* The check, or one that equals nothing when there is none. */
static const struct plim_check *need(const struct made *made, const char *id)
{
    static const struct plim_check none = {"", "", PLIM_CHECK_COUNT, "no such check", NULL};
    const struct plim_check *found = find(made, id);
    return found ? found : &none;
}

static void an_empty_world_is_reported_not_guessed(void **state)
{
    struct made *made = *state;
    assert_ok(plim_doctor_host(&made->checks, &made->world, NULL));
    assert_int_equal(need(made, "host.memory")->status, PLIM_CHECK_MISSING);
    assert_int_equal(need(made, "host.shm")->status, PLIM_CHECK_MISSING);
    assert_null(find(made, "host.cgroup"));
    assert_null(find(made, "host.overcommit"));
    assert_null(find(made, "host.place"));
}

static void memory_is_read_from_meminfo(void **state)
{
    struct made *made = *state;
    put(made, "/proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
    assert_ok(plim_doctor_host(&made->checks, &made->world, NULL));
    assert_string_equal(need(made, "host.memory")->detail, "16.00 GiB, 8.00 GiB available");
}

static void the_smallest_limit_of_the_cgroup_v2_ancestors_counts(void **state)
{
    struct made *made = *state;
    uint64_t limit = 0;
    put(made, "/proc/self/cgroup", "0::/kubepods/pod1/c1\n");
    put(made, "/sys/fs/cgroup/kubepods/pod1/c1/memory.max", "max\n");
    assert_false(plim_cgroup_limit(&made->world, &limit));
    put(made, "/sys/fs/cgroup/kubepods/pod1/memory.max", "4294967296\n");
    put(made, "/sys/fs/cgroup/kubepods/memory.max", "8589934592\n");
    assert_true(plim_cgroup_limit(&made->world, &limit));
    assert_int_equal(limit, UINT64_C(4294967296));
}

static void a_cgroup_at_the_root_is_found(void **state)
{
    struct made *made = *state;
    uint64_t limit = 0;
    put(made, "/proc/self/cgroup", "0::/\n");
    put(made, "/sys/fs/cgroup/memory.max", "1073741824\n");
    assert_true(plim_cgroup_limit(&made->world, &limit));
    assert_int_equal(limit, 1073741824);
}

static void cgroup_v1_is_read_and_its_huge_number_is_no_limit(void **state)
{
    struct made *made = *state;
    uint64_t limit = 0;
    put(made, "/proc/self/cgroup", "12:cpuset:/docker/x\n5:memory:/docker/x\n0::/\n");
    put(made, "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
    assert_false(plim_cgroup_limit(&made->world, &limit));
    put(made, "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "2147483648\n");
    assert_true(plim_cgroup_limit(&made->world, &limit));
    assert_int_equal(limit, UINT64_C(2147483648));
}

static void a_container_limit_is_a_check_of_its_own(void **state)
{
    struct made *made = *state;
    made->world.getenv = in_kubernetes;
    put(made, "/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n");
    put(made, "/proc/self/cgroup", "0::/\n");
    put(made, "/sys/fs/cgroup/memory.max", "17179869184\n");
    assert_ok(plim_doctor_host(&made->checks, &made->world, NULL));
    assert_string_equal(need(made, "host.cgroup")->detail, "16.00 GiB of 64.00 GiB");
    assert_string_equal(need(made, "host.place")->detail, "Kubernetes pod");
}

static void strict_overcommit_and_few_maps_are_warnings(void **state)
{
    struct made *made = *state;
    put(made, "/proc/sys/vm/overcommit_memory", "2\n");
    put(made, "/proc/sys/vm/max_map_count", "1024\n");
    assert_ok(plim_doctor_host(&made->checks, &made->world, NULL));
    assert_int_equal(need(made, "host.overcommit")->status, PLIM_CHECK_WARN);
    assert_int_equal(need(made, "host.max_map_count")->status, PLIM_CHECK_WARN);
    assert_non_null(need(made, "host.max_map_count")->advice);
}

static void wsl_is_recognised(void **state)
{
    struct made *made = *state;
    put(made, "/proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2\n");
    assert_ok(plim_doctor_host(&made->checks, &made->world, NULL));
    assert_string_equal(need(made, "host.place")->detail, "WSL");
}

static enum plim_status examine(void *arg)
{
    struct made *made = arg;
    struct plim_arena arena;
    plim_arena_init(&arena, 0);
    struct plim_checks checks = {.arena = &arena};
    enum plim_status st = plim_doctor_host(&checks, &made->world, NULL);
    plim_checks_fini(&checks);
    plim_arena_fini(&arena);
    return st;
}

static const char *with_incidents(const char *name)
{
    return strcmp(name, "PLIMSOLL_INCIDENT_DIR") == 0 ? "/var/incidents" : NULL;
}

static void the_folder_of_incidents_is_named_when_it_is_set(void **state)
{
    struct made *made = *state;
    made->world.getenv = with_incidents;
    assert_ok(plim_doctor_host(&made->checks, &made->world, NULL));
    const struct plim_check *check = NULL;
    plim_vec_foreach (c, &made->checks.list) {
        check = strcmp(c->id, "host.incidents") == 0 ? c : check;
    }
    assert_non_null(check);
    assert_string_equal(check->detail, "/var/incidents (not there yet)");
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    assert_true(fail_alloc_sweep(examine, *state, 100, false) >= 2);
}

#define HOST_TEST(f) cmocka_unit_test_setup_teardown(f, make_world, drop_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOST_TEST(an_empty_world_is_reported_not_guessed),
        HOST_TEST(memory_is_read_from_meminfo),
        HOST_TEST(the_smallest_limit_of_the_cgroup_v2_ancestors_counts),
        HOST_TEST(a_cgroup_at_the_root_is_found),
        HOST_TEST(cgroup_v1_is_read_and_its_huge_number_is_no_limit),
        HOST_TEST(a_container_limit_is_a_check_of_its_own),
        HOST_TEST(strict_overcommit_and_few_maps_are_warnings),
        HOST_TEST(wsl_is_recognised),
        HOST_TEST(the_folder_of_incidents_is_named_when_it_is_set),
        HOST_TEST(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return PLIM_RUN_TESTS("doctor_host", tests);
}
