/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of devices: books that come out, recorded lines, DRM devices and processes in a made-up
 * world, hanging drivers. */

#include "device/sample_json.h"
#include "device/sampler.h"
#include "fail_alloc.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIB PLIM_GIB

struct made {
    char root[64];
    struct plim_world world;
    struct plim_sample sample;
};

static const char *nothing(const char *name)
{
    (void)name;
    return NULL;
}

static int make(void **state)
{
    struct made *made = calloc(1, sizeof(*made));
    snprintf(made->root, sizeof(made->root), "/tmp/plimsoll-test-sample-XXXXXX");
    if (mkdtemp(made->root) == NULL) {
        return 1;
    }
    made->world = (struct plim_world){made->root, nothing};
    *state = made;
    return 0;
}

static int drop(void **state)
{
    struct made *made = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", made->root);
    plim_sample_fini(&made->sample);
    free(made);
    return system(command) != 0;
}

static void folders_of(char *full)
{
    for (char *slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
}

static void put(const struct made *made, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", made->root, path);
    folders_of(full);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void link_to(const struct made *made, const char *path, const char *target)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", made->root, path);
    folders_of(full);
    assert_int_equal(symlink(target, full), 0);
}

static void add_device(struct plim_sample *s, uint64_t total, uint64_t free, uint64_t used,
                       uint64_t reserved)
{
    struct plim_device_sample d = {.parent = PLIM_NO_PARENT};
    plim_set_figure(&d, PLIM_FIGURE_TOTAL, total);
    plim_set_figure(&d, PLIM_FIGURE_FREE, free);
    plim_set_figure(&d, PLIM_FIGURE_USED, used);
    if (reserved != UINT64_MAX) {
        plim_set_figure(&d, PLIM_FIGURE_RESERVED, reserved);
    }
    assert_ok(plim_vec_push(&s->devices, NULL, d));
}

static void add_use(struct plim_sample *s, uint32_t device, uint32_t pid, uint64_t bytes)
{
    struct plim_process_use use = {.device = device,
                                   .pid = pid,
                                   .kinds = PLIM_USE_COMPUTE,
                                   .bytes = bytes,
                                   .bytes_valid = true};
    assert_ok(plim_sample_add_use(s, &use, NULL));
}

static uint64_t used(const struct plim_sample *s)
{
    return s->devices.items[0].figure[PLIM_FIGURE_USED];
}

/* ---- books ---- */

static void used_with_and_without_the_reserve_mean_the_same(void **state)
{
    struct made *made = *state;
    add_device(&made->sample, 80 * GIB, 50 * GIB, 30 * GIB, GIB); /* used includes it */
    plim_sample_balance(&made->sample);
    assert_int_equal(used(&made->sample), 29 * GIB);
    assert_false(made->sample.devices.items[0].odd);
    plim_sample_reset(&made->sample);
    add_device(&made->sample, 80 * GIB, 50 * GIB, 29 * GIB, GIB); /* or not */
    plim_sample_balance(&made->sample);
    assert_int_equal(used(&made->sample), 29 * GIB);
    assert_false(made->sample.devices.items[0].odd);
    assert_true(plim_sample_check(&made->sample));
}

static void figures_that_contradict_each_other_are_marked_and_never_negative(void **state)
{
    struct made *made = *state;
    add_device(&made->sample, 80 * GIB, 90 * GIB, 10 * GIB,
               UINT64_MAX); /* more free than there is */
    add_device(&made->sample, 80 * GIB, 70 * GIB, 40 * GIB,
               UINT64_MAX);                                      /* more in all than there is */
    add_device(&made->sample, 80 * GIB, 79 * GIB, GIB, 5 * GIB); /* reserve larger than the rest */
    plim_sample_balance(&made->sample);
    assert_true(plim_sample_check(&made->sample));
    for (size_t i = 0; i < 3; i++) {
        assert_true(made->sample.devices.items[i].odd);
    }
}

static void owners_and_the_unknown_rest_make_what_is_used(void **state)
{
    struct made *made = *state;
    uint64_t unknown = 0;
    add_device(&made->sample, 80 * GIB, 50 * GIB, 30 * GIB, UINT64_MAX);
    add_use(&made->sample, 0, 10, 12 * GIB);
    add_use(&made->sample, 0, 11, 8 * GIB);
    plim_sample_balance(&made->sample);
    assert_true(plim_sample_unknown(&made->sample, 0, &unknown));
    assert_int_equal(unknown, 10 * GIB);
    assert_true(plim_sample_check(&made->sample));
}

static void processes_that_add_up_to_too_much_are_counted_up_to_what_is_used(void **state)
{
    struct made *made = *state;
    uint64_t unknown = 1;
    add_device(&made->sample, 80 * GIB, 50 * GIB, 30 * GIB, UINT64_MAX);
    add_use(&made->sample, 0, 10, 25 * GIB);
    add_use(&made->sample, 0, 11, 25 * GIB);
    plim_sample_balance(&made->sample);
    assert_true(plim_sample_unknown(&made->sample, 0, &unknown));
    assert_int_equal(unknown, 0);
    assert_int_equal(made->sample.uses.items[1].counted, 5 * GIB);
    assert_int_equal(made->sample.uses.items[1].bytes, 25 * GIB);
    assert_true(made->sample.devices.items[0].odd);
    assert_true(plim_sample_check(&made->sample));
}

static void a_process_that_computes_and_draws_is_one(void **state)
{
    struct made *made = *state;
    struct plim_process_use use = {
        .pid = 7, .kinds = PLIM_USE_GRAPHICS, .bytes = 5, .bytes_valid = true};
    add_device(&made->sample, 100, 50, 50, UINT64_MAX);
    add_use(&made->sample, 0, 7, 9);
    assert_ok(plim_sample_add_use(&made->sample, &use, NULL));
    assert_int_equal(made->sample.uses.n, 1);
    assert_int_equal(made->sample.uses.items[0].kinds, PLIM_USE_COMPUTE | PLIM_USE_GRAPHICS);
    assert_int_equal(made->sample.uses.items[0].bytes, 9);
}

static uint64_t next(uint64_t *seed)
{
    *seed = plim_hash_u64(*seed + 1);
    return *seed >> (*seed % 64);
}

static void books_come_out_for_any_figures(void **state)
{
    struct made *made = *state;
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        plim_sample_reset(&made->sample);
        struct plim_device_sample d = {.parent = PLIM_NO_PARENT};
        for (int f = PLIM_FIGURE_TOTAL; f <= PLIM_FIGURE_RESERVED; f++) {
            d.figure[f] = next(&seed);
            d.valid |= (next(&seed) & 1) << f;
        }
        assert_ok(plim_vec_push(&made->sample.devices, NULL, d));
        for (uint64_t i = next(&seed) % 5; i > 0; i--) {
            add_use(&made->sample, 0, (uint32_t)i, next(&seed));
        }
        plim_sample_balance(&made->sample);
        if (!plim_sample_check(&made->sample)) {
            const uint64_t *f = made->sample.devices.items[0].figure;
            fail_msg("round %d: total %lu used %lu free %lu reserved %lu", round, f[0], f[1], f[2],
                     f[3]);
        }
    }
}

/* ---- lines ---- */

static void a_sample_survives_being_written_and_read(void **state)
{
    struct made *made = *state;
    struct plim_sample back = {0};
    struct plim_buf out = {0}, again = {0};
    add_device(&made->sample, 80 * GIB, 50 * GIB, 30 * GIB, GIB);
    add_use(&made->sample, 0, 10, 12 * GIB);
    struct plim_process_facts p = {
        .pid = 10, .ppid = 1, .start_ticks = 5, .rss = 7, .name = "py\"thon"};
    assert_ok(plim_vec_push(&made->sample.processes, NULL, p));
    struct plim_device_sample *d = &made->sample.devices.items[0];
    snprintf(d->name, sizeof(d->name), "A card");
    d->state = PLIM_DEVICE_HUNG;
    made->sample.time_ns = UINT64_C(1795982712000000001);
    plim_sample_write(&out, &made->sample);
    assert_ok(plim_sample_parse(plim_buf_str(&out), &back, NULL));
    plim_sample_write(&again, &back);
    assert_string_equal(out.p, again.p);
    assert_null(memchr(out.p, '\n', out.n - 1)); /* one line */
    plim_sample_fini(&back);
    plim_buf_fini(&out);
    plim_buf_fini(&again);
}

static void lines_that_are_none_are_refused(void **state)
{
    struct made *made = *state;
    static const char *const lines[] = {"", "[]", "{", "{\"schema\":\"plimsoll.sample/2\"}",
                                        "{\"devices\":[]}"};
    for (size_t i = 0; i < PLIM_COUNT_OF(lines); i++) {
        assert_int_equal(plim_sample_parse(plim_str_from(lines[i]), &made->sample, NULL),
                         PLIM_E_DATA);
    }
}

/* ---- processes ---- */

#define ID64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void containers_pods_and_services_are_named(void **state)
{
    static const struct {
        const char *text, *container, *pod, *unit;
    } cases[] = {
        {"0::/system.slice/vllm.service\n", "", "", "vllm.service"},
        {"0::/system.slice/docker-" ID64 ".scope\n", ID64, "", ""},
        {"12:memory:/docker/" ID64 "\n1:name=systemd:/docker/" ID64 "\n", ID64, "", ""},
        {"0::/kubepods.slice/kubepods-burstable.slice/"
         "kubepods-burstable-pod1b2c3d4e_0000_1111_2222_333344445555.slice/cri-containerd-" ID64
         ".scope\n",
         ID64, "1b2c3d4e-0000-1111-2222-333344445555", ""},
        {"0::/kubepods/besteffort/pod1b2c3d4e-0000-1111-2222-333344445555/" ID64 "\n", ID64,
         "1b2c3d4e-0000-1111-2222-333344445555", ""},
        {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/comfy.service\n", "", "",
         "comfy.service"},
        {"0::/\n", "", "", ""},
        {"", "", "", ""},
    };
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        struct plim_process_facts f = {0};
        plim_process_cgroup(cases[i].text, &f);
        assert_string_equal(f.container, cases[i].container);
        assert_string_equal(f.pod, cases[i].pod);
        assert_string_equal(f.unit, cases[i].unit);
    }
}

static void a_process_with_an_odd_name_is_read_and_a_dead_one_is_not(void **state)
{
    struct made *made = *state;
    struct plim_process_facts f;
    struct plim_process_stat stat;
    put(made, "/proc/42/stat",
        "42 (a) S (b) S 7 41 42 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 98765 1000 250 0\n");
    put(made, "/proc/42/statm", "1000 250 100 1 0 100 0\n");
    put(made, "/proc/43/stat", "43 (gone) Z 7 43 43 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0\n");
    assert_true(plim_process_read(&made->world, 42, &f));
    assert_string_equal(f.name, "a) S (b");
    assert_int_equal(f.ppid, 7);
    assert_int_equal(f.start_ticks, 98765);
    assert_int_equal(f.rss, 250 * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_true(plim_process_stat(&made->world, 42, &stat));
    assert_string_equal(stat.name, "a) S (b");
    assert_int_equal(stat.ppid, 7);
    assert_int_equal(stat.group, 41);
    assert_int_equal(stat.start_ticks, 98765);
    assert_false(plim_process_stat(&made->world, 43, &stat));
    assert_false(plim_process_read(&made->world, 43, &f));
    assert_false(plim_process_read(&made->world, 44, &f));
}

/* ---- DRM ---- */

static void make_amd(const struct made *made)
{
    put(made, "/sys/class/drm/card1/device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n");
    put(made, "/sys/class/drm/card1/device/vendor", "0x1002\n");
    put(made, "/sys/class/drm/card1/device/mem_info_vram_total", "17163091968\n");
    put(made, "/sys/class/drm/card1/device/mem_info_vram_used", "5368709120\n");
    put(made, "/sys/class/drm/card1/device/mem_info_gtt_total", "8589934592\n");
    put(made, "/sys/class/drm/card1/device/mem_info_gtt_used", "1048576\n");
    put(made, "/sys/class/drm/card1-DP-1/device/uevent", "DRIVER=amdgpu\n");
    put(made, "/sys/class/drm/card0/device/uevent", "DRIVER=nvidia\nPCI_SLOT_NAME=0000:01:00.0\n");
    put(made, "/proc/42/stat",
        "42 (game) S 7 42 42 0 -1 0 1 0 0 0 1 1 0 0 20 0 1 0 98765 1000 250 0\n");
    link_to(made, "/proc/42/fd/3", "/dev/dri/renderD128");
    link_to(made, "/proc/42/fd/4", "/dev/dri/renderD128");
    link_to(made, "/proc/42/fd/5", "/dev/null");
    const char *client =
        "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\n"
        "drm-memory-vram:\t2097152 KiB\ndrm-memory-gtt:\t1024 KiB\n";
    put(made, "/proc/42/fdinfo/3", client);
    put(made, "/proc/42/fdinfo/4", client); /* the same client again */
}

static struct plim_sampler *open_sampler(const struct made *made, const char *script,
                                         uint64_t timeout_ns)
{
    struct plim_sampler_options options = {
        .world = &made->world, .script = script, .timeout_ns = timeout_ns};
    struct plim_sampler *sampler = NULL;
    assert_ok(plim_sampler_open(&options, &sampler, NULL));
    return sampler;
}

static void an_amd_card_and_its_process_are_found(void **state)
{
    struct made *made = *state;
    make_amd(made);
    struct plim_sampler *sampler = open_sampler(made, NULL, 0);
    assert_ok(plim_sampler_take(sampler, &made->sample, NULL));
    assert_int_equal(made->sample.devices.n, 1);
    const struct plim_device_sample *d = &made->sample.devices.items[0];
    assert_int_equal(d->vendor, PLIM_VENDOR_AMD);
    assert_string_equal(d->pci, "0000:03:00.0");
    assert_int_equal(d->figure[PLIM_FIGURE_TOTAL], UINT64_C(17163091968));
    assert_int_equal(d->figure[PLIM_FIGURE_FREE], UINT64_C(17163091968) - 5 * GIB);
    assert_false(plim_has_figure(d, PLIM_FIGURE_RESERVED));
    assert_int_equal(made->sample.uses.n, 1);
    assert_int_equal(made->sample.uses.items[0].bytes, 2 * GIB);
    assert_string_equal(made->sample.processes.items[0].name, "game");
    assert_true(plim_sample_check(&made->sample));
    plim_sampler_close(sampler);
}

static void compute_processes_of_kfd_count_once(void **state)
{
    struct made *made = *state;
    make_amd(made);
    put(made, "/sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    put(made, "/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "4711\n");
    put(made, "/sys/class/kfd/kfd/topology/nodes/1/properties",
        "simd_count 80\nlocation_id 768\ndomain 0\n");
    put(made, "/sys/class/kfd/kfd/proc/42/vram_4711", "3221225472\n");
    put(made, "/sys/class/kfd/kfd/proc/99/vram_4711", "1048576\n");
    struct plim_sampler *sampler = open_sampler(made, NULL, 0);
    assert_ok(plim_sampler_take(sampler, &made->sample, NULL));
    assert_int_equal(made->sample.uses.n, 2);
    uint64_t sum = made->sample.uses.items[0].bytes + made->sample.uses.items[1].bytes;
    assert_int_equal(sum, 3 * GIB + PLIM_MIB);
    plim_sampler_close(sampler);
}

static void an_intel_card_tells_no_total_but_who_holds_what(void **state)
{
    struct made *made = *state;
    put(made, "/sys/class/drm/card0/device/uevent", "DRIVER=xe\nPCI_SLOT_NAME=0000:00:02.0\n");
    put(made, "/sys/class/drm/card0/device/vendor", "0x8086\n");
    link_to(made, "/proc/42/fd/3", "/dev/dri/renderD128");
    put(made, "/proc/42/fdinfo/3",
        "drm-driver:\txe\ndrm-client-id:\t1\ndrm-pdev:\t0000:00:02.0\ndrm-total-vram0:\t8 MiB\n"
        "drm-resident-vram0:\t4 MiB\ndrm-resident-system:\t9 MiB\n");
    struct plim_sampler *sampler = open_sampler(made, NULL, 0);
    assert_ok(plim_sampler_take(sampler, &made->sample, NULL));
    assert_int_equal(made->sample.devices.items[0].state, PLIM_DEVICE_UNSUPPORTED);
    assert_int_equal(made->sample.devices.items[0].valid, 0);
    assert_int_equal(made->sample.uses.items[0].bytes, 4 * PLIM_MIB);
    assert_true(plim_sample_check(&made->sample));
    plim_sampler_close(sampler);
}

static void a_machine_without_devices_gives_an_empty_sample(void **state)
{
    struct made *made = *state;
    struct plim_sampler *sampler = open_sampler(made, NULL, 0);
    assert_ok(plim_sampler_take(sampler, &made->sample, NULL));
    assert_int_equal(made->sample.devices.n, 0);
    plim_sampler_close(sampler);
}

/* ---- drivers that hang ---- */

#define LINE(used)                                                                                 \
    "{\"schema\":\"plimsoll.sample/"                                                               \
    "1\",\"time_ns\":1,\"devices\":[{\"vendor\":\"nvidia\",\"name\":\"card\","                     \
    "\"state\":\"ok\",\"total_bytes\":100,\"free_bytes\":" used                                    \
    "}],\"uses\":[],\"processes\":[]}\n"

static void a_driver_that_hangs_does_not_stop_samples_and_comes_back(void **state)
{
    struct made *made = *state;
    char path[128];
    put(made, "/script", LINE("90") "hang 3\n" LINE("80") LINE("70"));
    snprintf(path, sizeof(path), "%s/script", made->root);
    struct plim_sampler *sampler = open_sampler(made, path, UINT64_C(1000000000));
    assert_ok(plim_sampler_take(sampler, &made->sample, NULL));
    assert_int_equal(used(&made->sample), 10);
    unsigned hung = 0;
    for (int i = 0; i < 9000; i++) { /* until it answers again */
        assert_ok(plim_sampler_take(sampler, &made->sample, NULL));
        assert_int_equal(made->sample.devices.n, 1);
        assert_string_equal(made->sample.devices.items[0].name, "card");
        if (made->sample.devices.items[0].state != PLIM_DEVICE_HUNG) {
            break;
        }
        assert_int_equal(made->sample.devices.items[0].valid, 0);
        hung++;
        usleep(10000);
    }
    assert_true(hung > 0);
    assert_int_equal(used(&made->sample), 30); /* the answer that came too late is not given */
    plim_sampler_close(sampler);
}

static void a_sampler_that_is_closed_while_its_driver_hangs_leaves_it_behind(void **state)
{
    struct made *made = *state;
    char path[128];
    put(made, "/script", "hang 600\n" LINE("80")); /* as long as this program, and longer */
    snprintf(path, sizeof(path), "%s/script", made->root);
    struct plim_sampler *sampler = open_sampler(made, path, UINT64_C(1000000));
    assert_ok(plim_sampler_take(sampler, &made->sample, NULL));
    assert_int_equal(made->sample.devices.n, 0); /* nothing was seen yet */
    plim_sampler_close(sampler);
}

#define SAMPLE_TEST(f) cmocka_unit_test_setup_teardown(f, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SAMPLE_TEST(used_with_and_without_the_reserve_mean_the_same),
        SAMPLE_TEST(figures_that_contradict_each_other_are_marked_and_never_negative),
        SAMPLE_TEST(owners_and_the_unknown_rest_make_what_is_used),
        SAMPLE_TEST(processes_that_add_up_to_too_much_are_counted_up_to_what_is_used),
        SAMPLE_TEST(a_process_that_computes_and_draws_is_one),
        SAMPLE_TEST(books_come_out_for_any_figures),
        SAMPLE_TEST(a_sample_survives_being_written_and_read),
        SAMPLE_TEST(lines_that_are_none_are_refused),
        SAMPLE_TEST(containers_pods_and_services_are_named),
        SAMPLE_TEST(a_process_with_an_odd_name_is_read_and_a_dead_one_is_not),
        SAMPLE_TEST(an_amd_card_and_its_process_are_found),
        SAMPLE_TEST(compute_processes_of_kfd_count_once),
        SAMPLE_TEST(an_intel_card_tells_no_total_but_who_holds_what),
        SAMPLE_TEST(a_machine_without_devices_gives_an_empty_sample),
        SAMPLE_TEST(a_driver_that_hangs_does_not_stop_samples_and_comes_back),
        SAMPLE_TEST(a_sampler_that_is_closed_while_its_driver_hangs_leaves_it_behind),
    };
    return PLIM_RUN_TESTS("sample", tests);
}
