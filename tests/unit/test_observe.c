/* SPDX-License-Identifier: Apache-2.0 */
/* Observations: their identities, what recorded processes show, and whose device a number is. */

#include "observe/tap.h"
#include "observe_made.h"
#include "shm/process.h"
#include "shm/writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern const struct plim_observer plim__observer_sessions;

static char dir[64];
static uint64_t start; /* of this process */
static const char *const calls[] = {"", "cuMemAlloc_v2", "cuMemFree_v2"};
static const struct plim_shm_sizes small = {64, 4096, 8, 8, 64};

static const char *our_folder(const char *name)
{
    return strcmp(name, "PLIMSOLL_RECORD_DIR") == 0 ? dir : NULL;
}

/* A world whose /proc is real, and whose only session is ours: others may run on this machine. */
static char root_of_world[80];
static const struct plim_world world = {root_of_world, our_folder};
static const struct plim_collect_options options = {.world = &world};

static uint64_t mono(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

/* ---- identities ---- */

static uint64_t seed = 1;

static uint64_t any(uint64_t below)
{
    seed = plim_hash_u64(seed + UINT64_C(0x9e3779b97f4a7c15));
    return seed % below;
}

/* Figures as likely to be absurd as not. */
static uint64_t any_bytes(void)
{
    static const uint64_t odd[] = {0, 1, 80 * GIB, UINT64_MAX, UINT64_MAX / 2};
    return any(3) == 0 ? odd[any(PLIM_COUNT_OF(odd))] : any(100 * GIB);
}

static void books_come_out_whatever_anybody_tells(void **state)
{
    (void)state;
    struct plim_observation o = {0};
    for (int round = 0; round < 20000; round++) {
        plim_observation_reset(&o);
        struct plim_device_sample *d = add_device(&o, "GPU-1");
        d->valid = any(16);
        for (int i = 0; i < 4; i++) {
            d->figure[i] = any_bytes();
        }
        for (uint64_t n = any(5); n > 0; n--) {
            add_use(&o, 0, (uint32_t)(1 + any(3)), 7, any_bytes());
        }
        for (uint64_t n = any(5); n > 0; n--) {
            struct plim_allocator_now a = {.pid = (uint32_t)(1 + any(3))};
            a.valid = UINT64_C(1) << PLIM_ALLOCATOR_RESERVED | any(16);
            a.figure[PLIM_ALLOCATOR_RESERVED] = any_bytes();
            a.figure[PLIM_ALLOCATOR_ALLOCATED] =
                plim_min_u64(any_bytes(), a.figure[PLIM_ALLOCATOR_RESERVED]);
            a.valid &= ~(UINT64_C(1) << PLIM_ALLOCATOR_ACTIVE);
            struct plim_owner_now w = {.pid = (uint32_t)(1 + any(3)), .outside = any(2) == 0};
            w.charged = any_bytes();
            assert_ok(plim_vec_push(&o.allocators, NULL, a));
            assert_ok(plim_vec_push(&o.owners, NULL, w));
        }
        plim_sample_balance(&o.sample);
        assert_true(plim_observation_check(&o));
        uint64_t counted = 0, unknown;
        plim_vec_foreach (use, &o.sample.uses) {
            struct plim_use_books b = plim_observation_books(&o, use);
            assert_int_equal(b.allocated + b.slack + b.outside + b.unknown, use->counted);
            counted += use->counted;
        }
        if (plim_sample_unknown(&o.sample, 0, &unknown)) {
            assert_int_equal(counted + unknown, o.sample.devices.items[0].figure[PLIM_FIGURE_USED]);
        }
    }
    plim_observation_fini(&o);
}

static void what_is_impossible_is_seen(void **state)
{
    (void)state;
    struct plim_observation o = {0};
    add_device(&o, "GPU-1");
    struct plim_allocator_now a = {.valid = 1u << PLIM_ALLOCATOR_ALLOCATED |
                                            1u << PLIM_ALLOCATOR_RESERVED};
    a.figure[PLIM_ALLOCATOR_ALLOCATED] = 2;
    a.figure[PLIM_ALLOCATOR_RESERVED] = 1;
    assert_ok(plim_vec_push(&o.allocators, NULL, a));
    assert_false(plim_observation_check(&o));
    o.allocators.items[0].figure[PLIM_ALLOCATOR_RESERVED] = 3;
    assert_true(plim_observation_check(&o));
    o.allocators.items[0].device = 7;
    assert_false(plim_observation_check(&o));
    plim_observation_fini(&o);
}

/* ---- sessions ---- */

struct session {
    void *self;
    struct plim_observation o;
    struct plim_attach_file file;
    char path[300];
};

static void put(const struct session *s)
{
    int fd = open(s->path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &s->file, sizeof(s->file), 0), sizeof(s->file));
    assert_int_equal(close(fd), 0);
}

static enum plim_status take(struct session *s, struct plim_err *err)
{
    plim_observation_reset(&s->o);
    s->o.sample.time_ns = 1700000000 * SECOND;
    add_device(&s->o, "GPU-0a0b0c0d-1111-2222-3333-444455556666");
    add_device(&s->o, "GPU-ffffffff-1111-2222-3333-444455556666");
    add_use(&s->o, 1, (uint32_t)getpid(), start, 10 * GIB);
    plim_sample_balance(&s->o.sample);
    return plim__observer_sessions.take(s->self, &s->o, err);
}

static int begin(void **state)
{
    struct session *s = calloc(1, sizeof(*s));
    snprintf(dir, sizeof(dir), "/tmp/plim-test-observe-XXXXXX");
    assert_non_null(mkdtemp(dir));
    char proc[100];
    snprintf(root_of_world, sizeof(root_of_world), "%s/world", dir);
    snprintf(proc, sizeof(proc), "%s/proc", root_of_world);
    assert_int_equal(mkdir(root_of_world, 0700), 0);
    assert_int_equal(symlink("/proc", proc), 0);
    start = plim__shm_start_ticks(0, NULL);
    snprintf(s->path, sizeof(s->path), "%s/%d-%llu.0.plimattach", dir, getpid(),
             (unsigned long long)start);
    memcpy(s->file.magic, PLIM_ATTACH_MAGIC, 8);
    s->file.version = 1;
    s->file.file_bytes = sizeof(s->file);
    s->file.rank = 3;
    s->file.heartbeat_ns = mono();
    s->file.device[0] = (struct plim_attach_device){.valid = 1,
                                                    .time_ns = mono(),
                                                    .allocated = 5 * GIB,
                                                    .active = 6 * GIB,
                                                    .requested = 4 * GIB,
                                                    .reserved = 8 * GIB,
                                                    .num_ooms = 2};
    snprintf(s->file.uuid[0], 64, "ffffffff-1111-2222-3333-444455556666");
    assert_ok(plim__observer_sessions.open(&options, &s->self, NULL));
    *state = s;
    return 0;
}

static int end(void **state)
{
    struct session *s = *state;
    char command[128];
    plim__observer_sessions.close(s->self);
    plim_observation_fini(&s->o);
    free(s);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) != 0;
}

static void an_allocator_is_read_and_its_device_known_by_uuid(void **state)
{
    struct session *s = *state;
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.allocators.n, 1);
    const struct plim_allocator_now *a = &s->o.allocators.items[0];
    assert_int_equal(a->pid, getpid());
    assert_int_equal(a->device, 1);
    assert_int_equal(a->rank, 3);
    assert_false(a->stale);
    assert_int_equal(a->figure[PLIM_ALLOCATOR_ALLOCATED], 5 * GIB);
    assert_int_equal(a->figure[PLIM_ALLOCATOR_OOMS], 2);
    assert_true(plim_observation_check(&s->o));
    struct plim_use_books b = plim_observation_books(&s->o, &s->o.sample.uses.items[0]);
    assert_int_equal(b.allocated, 5 * GIB);
    assert_int_equal(b.slack, 3 * GIB);
    assert_int_equal(b.unknown, 2 * GIB);
    assert_int_equal(s->o.happenings.n, 0); /* those failures were before us */
}

static void a_row_that_is_being_written_keeps_what_it_said_before(void **state)
{
    struct session *s = *state;
    put(s);
    assert_ok(take(s, NULL));
    s->file.device[0].lock = 1;
    s->file.device[0].allocated = 7 * GIB;
    s->file.heartbeat_ns++;
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.allocators.items[0].figure[PLIM_ALLOCATOR_ALLOCATED], 5 * GIB);
    s->file.device[0].lock = 2;
    s->file.heartbeat_ns++;
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.allocators.items[0].figure[PLIM_ALLOCATOR_ALLOCATED], 7 * GIB);
}

static void failures_and_deployments_are_told_once(void **state)
{
    struct session *s = *state;
    static const char note[] = "{\"deployed\":\"model 12\"}";
    put(s);
    assert_ok(take(s, NULL));
    s->file.device[0].num_ooms = 3;
    s->file.heartbeat_ns++;
    s->file.note[1] = (struct plim_attach_note){
        .bytes = sizeof(note) - 1, .number = 1, .time_ns = mono(), .device = UINT32_MAX};
    memcpy(s->file.note[1].text, note, sizeof(note) - 1);
    s->file.notes = 1;
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.happenings.n, 2);
    assert_int_equal(s->o.happenings.items[0].kind, PLIM_HAPPENED_DEPLOYED);
    assert_string_equal(s->o.happenings.items[0].text, "model 12");
    assert_int_equal(s->o.happenings.items[1].kind, PLIM_HAPPENED_OOM);
    assert_int_equal(s->o.happenings.items[1].device, 1);
    assert_int_equal(s->o.notes.n, 1);
    assert_string_equal(s->o.notes.items[0].text, note);
    s->file.note[1].end_ns = mono();
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.happenings.n, 0);
    assert_int_equal(s->o.notes.n, 0);
}

static void a_note_that_came_and_went_between_two_looks_is_told_once(void **state)
{
    struct session *s = *state;
    static const char brief[] = "{\"shape\":\"brief\"}", longer[] = "{\"shape\":\"longer\"}";
    put(s);
    assert_ok(take(s, NULL));
    s->file.note[1] = (struct plim_attach_note){
        .bytes = sizeof(brief) - 1, .number = 1, .time_ns = mono(), .end_ns = mono()};
    memcpy(s->file.note[1].text, brief, sizeof(brief) - 1);
    s->file.notes = 1;
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.notes.n, 1);
    assert_string_equal(s->o.notes.items[0].text, brief);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.notes.n, 0);
    s->file.note[2] =
        (struct plim_attach_note){.bytes = sizeof(longer) - 1, .number = 2, .time_ns = mono()};
    memcpy(s->file.note[2].text, longer, sizeof(longer) - 1);
    s->file.note[3] = s->file.note[1]; /* a later one that has ended: what holds counts */
    s->file.note[3].number = 3;
    s->file.notes = 3;
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.notes.n, 1);
    assert_string_equal(s->o.notes.items[0].text, longer);
}

static void a_process_that_tells_nothing_any_more_is_stale(void **state)
{
    struct session *s = *state;
    s->file.device[0].time_ns = mono() - 60 * SECOND;
    put(s);
    assert_ok(take(s, NULL));
    assert_true(s->o.allocators.items[0].stale);
}

static void impossible_figures_are_left_out(void **state)
{
    struct session *s = *state;
    s->file.device[0].allocated = 9 * GIB; /* of 8 reserved */
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.allocators.n, 0);
}

static void files_that_lie_or_are_cut_are_errors_and_not_rows(void **state)
{
    struct session *s = *state;
    struct plim_err err = {0};
    put(s);
    assert_int_equal(truncate(s->path, 9000), 0);
    assert_int_equal(take(s, &err), PLIM_E_DATA);
    assert_int_equal(s->o.allocators.n, 0);
    char other[200]; /* a process that started at another time is not ours */
    snprintf(other, sizeof(other), "%s/%d-%llu.0.plimattach", dir, getpid(),
             (unsigned long long)start + 1);
    assert_int_equal(rename(s->path, other), 0);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.allocators.n, 0);
}

static void a_file_cut_while_it_is_read_is_let_go(void **state)
{
    struct session *s = *state;
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(truncate(s->path, 100), 0);
    s->file.heartbeat_ns++;
    int fd = open(s->path, O_WRONLY);
    assert_int_equal(pwrite(fd, &s->file, 100, 0), 100);
    assert_int_equal(close(fd), 0);
    assert_int_equal(take(s, NULL), PLIM_E_DATA);
    assert_int_equal(s->o.allocators.n, 0);
    assert_int_equal(unlink(s->path), 0);
    assert_ok(take(s, NULL));
}

static void a_folder_that_is_made_anew_is_looked_at_at_once(void **state)
{
    struct session *s = *state;
    char other[160], file[260];
    put(s);
    snprintf(other, sizeof(other), "%s/tmp", root_of_world);
    assert_int_equal(mkdir(other, 0700), 0);
    snprintf(other, sizeof(other), "%s/tmp/plimsoll-x", root_of_world);
    assert_int_equal(mkdir(other, 0700), 0);
    for (int round = 0; round < 1500; round++) { /* more than there are places for folders */
        assert_ok(take(s, NULL));
        assert_int_equal(s->o.allocators.n, round == 0 ? 1 : 0);
        if (round == 0) {
            assert_int_equal(unlink(s->path), 0);
        }
        assert_int_equal(rmdir(other), 0);
        snprintf(other, sizeof(other), "%s/tmp/plimsoll-%d", root_of_world, round);
        assert_int_equal(mkdir(other, 0700), 0);
    }
    snprintf(file, sizeof(file), "%s%s", other, strrchr(s->path, '/'));
    snprintf(s->path, sizeof(s->path), "%s", file);
    assert_ok(take(s, NULL));
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.allocators.n, 1);
    assert_int_equal(unlink(s->path), 0);
    assert_int_equal(rmdir(other), 0);
    assert_ok(take(s, NULL));
    assert_int_equal(mkdir(other, 0700), 0);
    put(s);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.allocators.n, 1);
}

static void owners_are_read_and_the_only_device_is_theirs(void **state)
{
    struct session *s = *state;
    struct plim_shm_writer w = {0};
    assert_int_equal(plim__shm_create(&w, dir, &small, calls, 3, "test"), 0);
    plim__shm_total(&w, 5, PLIM_OWNER_NCCL)->charged = 2 * GIB;
    plim__shm_total(&w, 5, PLIM_OWNER_NCCL)->allocs = 1;
    plim__shm_total(&w, 5, PLIM_OWNER_TORCH)->charged = 6 * GIB;
    plim__shm_total(&w, 5, PLIM_OWNER_TORCH)->allocs = 4;
    __atomic_store_n(&w.head->heartbeat_ns, mono(), __ATOMIC_RELAXED);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.owners.n, 2);
    assert_int_equal(s->o.owners.items[0].owner, PLIM_OWNER_TORCH);
    assert_false(s->o.owners.items[0].outside);
    assert_true(s->o.owners.items[1].outside);
    assert_int_equal(s->o.owners.items[1].charged, 2 * GIB);
    assert_int_equal(s->o.owners.items[1].device, 1);
    struct plim_use_books b = plim_observation_books(&s->o, &s->o.sample.uses.items[0]);
    assert_int_equal(b.allocated, 6 * GIB);
    assert_int_equal(b.outside, 2 * GIB);
    assert_int_equal(b.unknown, 2 * GIB);
    plim__shm_total(&w, 5, PLIM_OWNER_NCCL)->failures = 1;
    __atomic_store_n(&w.head->heartbeat_ns, mono() + 1, __ATOMIC_RELAXED);
    assert_ok(take(s, NULL));
    assert_int_equal(s->o.happenings.n, 1);
    assert_int_equal(s->o.happenings.items[0].kind, PLIM_HAPPENED_OOM);
    plim__shm_unmap(&w);
}

/* ---- ordinals ---- */

static void put_environ(const char *root, const char *text, size_t n)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/proc", root);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/proc/77", root);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/proc/77/environ", root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void a_number_means_a_device_only_when_that_is_certain(void **state)
{
    (void)state;
    char root[] = "/tmp/plim-test-ordinal-XXXXXX", command[128];
    char none[PLIM_ATTACH_DEVICES][PLIM_TAP_UUID] = {{0}};
    uint32_t out[PLIM_SHM_DEVICES];
    struct plim_observation o = {0};
    assert_non_null(mkdtemp(root));
    struct plim_world made = {root, our_folder};
    add_device(&o, "GPU-aaaaaaaa-1111-2222-3333-444455556666");
    add_device(&o, "GPU-bbbbbbbb-1111-2222-3333-444455556666");
    add_device(&o, "GPU-bbbbcccc-1111-2222-3333-444455556666");
    /* CONST(text with NULs). */
#define ORDINALS(text)                                                                             \
    (put_environ(root, text, sizeof(text) - 1), plim__ordinals(&made, &o.sample, 77, none, out))
    ORDINALS("A=1\0B=2\0");
    assert_int_equal(out[0], 0);
    assert_int_equal(out[2], 2);
    assert_int_equal(out[3], PLIM_NO_DEVICE);
    ORDINALS("CUDA_VISIBLE_DEVICES=2,0\0");
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], 0);
    assert_int_equal(out[2], PLIM_NO_DEVICE);
    ORDINALS("CUDA_VISIBLE_DEVICES=1,-1,0\0"); /* CUDA stops at what is none */
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], PLIM_NO_DEVICE);
    ORDINALS("CUDA_VISIBLE_DEVICES=GPU-bbbbcccc, GPU-aaaa, GPU-bbbb\0"); /* the last is two */
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], 0);
    assert_int_equal(out[2], PLIM_NO_DEVICE);
    ORDINALS("CUDA_VISIBLE_DEVICES=\0");
    assert_int_equal(out[0], PLIM_NO_DEVICE);
    snprintf(o.sample.devices.items[1].name, 96, "another card"); /* the faster may be first */
    ORDINALS("CUDA_VISIBLE_DEVICES=0\0");
    assert_int_equal(out[0], PLIM_NO_DEVICE);
    ORDINALS("CUDA_DEVICE_ORDER=PCI_BUS_ID\0CUDA_VISIBLE_DEVICES=1\0");
    assert_int_equal(out[0], 1);
    snprintf(none[0], PLIM_TAP_UUID, "aaaaaaaa-1111-2222-3333-444455556666");
    ORDINALS("CUDA_VISIBLE_DEVICES=1\0"); /* what the process tells itself counts */
    assert_int_equal(out[0], 0);
    plim_observation_fini(&o);
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

#define SESSION_TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(books_come_out_whatever_anybody_tells),
        cmocka_unit_test(what_is_impossible_is_seen),
        SESSION_TEST(an_allocator_is_read_and_its_device_known_by_uuid),
        SESSION_TEST(a_row_that_is_being_written_keeps_what_it_said_before),
        SESSION_TEST(failures_and_deployments_are_told_once),
        SESSION_TEST(a_note_that_came_and_went_between_two_looks_is_told_once),
        SESSION_TEST(a_process_that_tells_nothing_any_more_is_stale),
        SESSION_TEST(impossible_figures_are_left_out),
        SESSION_TEST(files_that_lie_or_are_cut_are_errors_and_not_rows),
        SESSION_TEST(a_file_cut_while_it_is_read_is_let_go),
        SESSION_TEST(a_folder_that_is_made_anew_is_looked_at_at_once),
        SESSION_TEST(owners_are_read_and_the_only_device_is_theirs),
        cmocka_unit_test(a_number_means_a_device_only_when_that_is_certain),
    };
    return PLIM_RUN_TESTS("observe", tests);
}
