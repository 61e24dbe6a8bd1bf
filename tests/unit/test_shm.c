/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between a recorded process and its reader: what is written is read, in order and
 * whole; what is lost is counted; a writer may die at any moment; a file may be anything.
 *
 * PLIMSOLL_TEST_KILLS says how many writers are killed (300).
 */

#include "shm/process.h"
#include "shm/writer.h"
#include "shm_folder.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const calls[] = {"", "cuMemAlloc_v2", "cuMemFree_v2"};
static const struct plim_shm_sizes small = {64, 4096, 8, 8, 64};

static void path_of(char path[512], uint32_t pid, unsigned program)
{
    bool dead;
    (void)snprintf(path, 512, "%s/%u-%llu.%u" PLIM_SHM_SUFFIX, dir, pid,
                   (unsigned long long)plim__shm_start_ticks(pid, &dead), program);
}

static struct plim_shm_writer fresh(const struct plim_shm_sizes *sizes, char path[512])
{
    struct plim_shm_writer w = {0};
    remove_files();
    assert_int_equal(plim__shm_create(&w, dir, sizes, calls, 3, "test"), 0);
    path_of(path, (uint32_t)getpid(), 0);
    return w;
}

/* An event whose fields follow from one number, so that a torn one shows. */
static struct plim_gpu_event numbered(uint64_t i)
{
    return (struct plim_gpu_event){.time_ns = i,
                                   .addr = i * 3,
                                   .size = i ^ 0xabcdef,
                                   .aux = ~i,
                                   .thread = (uint32_t)i,
                                   .call = (uint16_t)(i & 1),
                                   .kind = PLIM_EVENT_ALLOC};
}

static void assert_numbered(const struct plim_gpu_event *e)
{
    struct plim_gpu_event want = numbered(e->time_ns);
    want.seq = e->seq;
    assert_memory_equal(e, &want, sizeof want);
}

static void events_come_back_in_order_across_the_end_of_the_ring(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader r;
    struct plim_gpu_event got[100];
    assert_int_equal(plim_shm_open(&r, path, true), 0);
    assert_int_equal(plim_shm_poll(&r, got, 100, false), 0);
    for (uint64_t i = 0; i < 40; i++) {
        struct plim_gpu_event e = numbered(i);
        assert_true(plim__shm_write(&w, &e));
    }
    assert_int_equal(plim_shm_poll(&r, got, 30, false), 30);
    assert_int_equal(plim_shm_poll(&r, got + 30, 70, false), 10);
    for (uint64_t i = 40; i < 90; i++) {
        struct plim_gpu_event e = numbered(i);
        assert_true(plim__shm_write(&w, &e));
    }
    assert_int_equal(plim_shm_poll(&r, got + 40, 60, false), 50);
    for (uint64_t i = 0; i < 90; i++) {
        assert_int_equal(got[i].seq, i + 1);
        assert_int_equal(got[i].time_ns, i);
        assert_numbered(&got[i]);
    }
    plim_shm_close(&r);
    plim__shm_unmap(&w);
}

static void a_full_ring_drops_counts_and_tells_where(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader r;
    struct plim_gpu_event got[100];
    for (uint64_t i = 0; i < 70; i++) {
        struct plim_gpu_event e = numbered(i);
        assert_int_equal(plim__shm_write(&w, &e), i < 64);
    }
    assert_int_equal(plim_shm_open(&r, path, true), 0);
    assert_int_equal(plim_shm_poll(&r, got, 64, false), 64);
    assert_int_equal(plim_shm_poll(&r, got, 64, false), 1);
    assert_int_equal(got[0].kind, PLIM_EVENT_LOST);
    assert_int_equal(got[0].size, 6);
    struct plim_gpu_event e = numbered(70);
    assert_true(plim__shm_write(&w, &e));
    plim_shm_close(&r);
    /* A new reader goes on where the first one stopped, and does not tell the loss again. */
    assert_int_equal(plim_shm_open(&r, path, true), 0);
    assert_int_equal(plim_shm_poll(&r, got, 64, false), 1);
    assert_int_equal(got[0].seq, 65);
    assert_numbered(&got[0]);
    plim_shm_close(&r);
    plim__shm_unmap(&w);
}

static void one_reader_consumes_and_others_look(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader first, second, looker;
    struct plim_gpu_event e = numbered(1), got[4];
    assert_int_equal(plim_shm_open(&first, path, true), 0);
    assert_int_equal(plim_shm_open(&second, path, true), -EBUSY);
    assert_int_equal(plim_shm_open(&looker, path, false), 0);
    assert_true(plim__shm_write(&w, &e));
    assert_int_equal(plim_shm_poll(&looker, got, 4, false), 1);
    assert_int_equal(plim_shm_poll(&looker, got, 4, false), 1);
    assert_int_equal(plim_shm_poll(&first, got, 4, false), 1);
    assert_int_equal(plim_shm_poll(&looker, got, 4, false), 0);
    plim_shm_close(&first);
    plim_shm_close(&looker);
    plim__shm_unmap(&w);
}

static void tables_give_back_what_was_added_and_say_when_they_are_full(void **state)
{
    (void)state;
    char path[512], text[64];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader r;
    struct plim_shm_library lib;
    const uint64_t frames[3] = {0x1000, 0x2000, 0x3000};
    uint64_t back[8];
    assert_int_equal(plim_shm_open(&r, path, false), 0);
    assert_int_equal(plim_shm_call(&r, 2, text, sizeof text), 0);
    assert_string_equal(text, "cuMemFree_v2");
    assert_int_equal(plim_shm_call(&r, 0, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(plim_shm_call(&r, 3, text, sizeof text), -ERANGE);
    assert_int_equal(plim_shm_library(&r, 1, &lib, text, sizeof text), -ERANGE);
    assert_int_equal(plim__shm_add_library(&w, 16, 32, "/lib/libnccl.so.2", PLIM_OWNER_NCCL), 1);
    assert_int_equal(plim_shm_library(&r, 1, &lib, text, 10), 0);
    assert_string_equal(text, "/lib/libn");
    assert_int_equal(lib.owner, PLIM_OWNER_NCCL);
    assert_int_equal(lib.end, 32);
    for (unsigned i = 2; i < 8; i++) {
        assert_int_equal(plim__shm_add_library(&w, i, i + 1, "x", 0), i);
    }
    assert_int_equal(plim__shm_add_library(&w, 9, 10, "x", 0), 0);
    assert_int_equal(plim__shm_add_stack(&w, frames, 3), 1);
    assert_int_equal(plim_shm_stack(&r, 1, back, 8), 3);
    assert_memory_equal(back, frames, sizeof frames);
    assert_int_equal(plim_shm_stack(&r, 0, back, 8), 0);
    assert_int_equal(plim_shm_stack(&r, 2, back, 8), -ERANGE);
    char *long_text = malloc(5000);
    memset(long_text, 'x', 4999);
    long_text[4999] = '\0';
    assert_int_equal(plim__shm_add_text(&w, long_text), 0);
    free(long_text);
    plim_shm_close(&r);
    plim__shm_unmap(&w);
}

static void totals_are_read_by_device_and_owner(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader r;
    struct plim_shm_total got[PLIM_SHM_OWNERS];
    struct plim_shm_counters counters;
    uint64_t lost;
    plim__shm_total(&w, 3, PLIM_OWNER_NCCL)->charged = 42;
    plim__shm_total(&w, PLIM_DEVICE_NONE, PLIM_OWNER_NCCL)->live = 7;
    w.head->counters.double_frees = 5;
    assert_int_equal(plim_shm_open(&r, path, false), 0);
    assert_int_equal(plim_shm_totals(&r, 3, got), 0);
    assert_int_equal(got[PLIM_OWNER_NCCL].charged, 42);
    assert_int_equal(plim_shm_totals(&r, 16, got), 0);
    assert_int_equal(got[PLIM_OWNER_NCCL].live, 7);
    assert_int_equal(plim_shm_totals(&r, 17, got), -ERANGE);
    assert_int_equal(plim_shm_counters(&r, &counters, &lost), 0);
    assert_int_equal(counters.double_frees, 5);
    assert_true(plim_shm_alive(&r));
    plim_shm_close(&r);
    plim__shm_unmap(&w);
}

static void a_second_program_of_a_process_gets_a_file_of_its_own(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path), again = {0};
    assert_int_equal(plim__shm_create(&again, dir, &small, calls, 3, "test"), 0);
    assert_int_equal(again.head->program, 1);
    path_of(path, (uint32_t)getpid(), 1);
    assert_int_equal(access(path, R_OK), 0);
    plim__shm_unmap(&again);
    plim__shm_unmap(&w);
}

static void failures_leave_nothing_behind(void **state)
{
    (void)state;
    struct plim_shm_writer w = {0};
    struct plim_shm_sizes odd = small;
    remove_files();
    odd.ring_slots = 48;
    assert_int_equal(plim__shm_create(&w, dir, &odd, calls, 3, "test"), -EINVAL);
    assert_int_equal(plim__shm_create(&w, "/nowhere/at/all", &small, calls, 3, "test"), -ENOENT);
    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    tight = (struct rlimit){65536, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    odd.ring_slots = 4096; /* 256 KiB: as on a file system that is full */
    int rc = plim__shm_create(&w, dir, &odd, calls, 3, "test");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(rc, -EFBIG);
    assert_null(w.head);
    char path[512];
    path_of(path, (uint32_t)getpid(), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(mkdir(dir, 0700), 0);
}

/* Many threads write, a reader consumes meanwhile: all events arrive, none twice, none torn. */

#define THREADS 4
#define EACH    20000

static void *write_many(void *arg)
{
    struct plim_shm_writer *w = arg;
    for (uint64_t i = 0; i < EACH; i++) {
        struct plim_gpu_event e = numbered(i);
        (void)plim__shm_write(w, &e);
    }
    return NULL;
}

static void events_of_many_threads_arrive_whole_or_are_counted_as_lost(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_sizes sizes = small;
    sizes.ring_slots = 1024;
    struct plim_shm_writer w = fresh(&sizes, path);
    struct plim_shm_reader r;
    pthread_t threads[THREADS];
    uint64_t seen = 0, lost = 0, last = 0;
    assert_int_equal(plim_shm_open(&r, path, true), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &w), 0);
    }
    while (seen + lost < (uint64_t)THREADS * EACH) {
        struct plim_gpu_event got[300];
        int n = plim_shm_poll(&r, got, 300, false);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            if (got[i].kind == PLIM_EVENT_LOST) {
                lost += got[i].size;
            } else {
                assert_int_equal(got[i].seq, ++last);
                assert_numbered(&got[i]);
                seen++;
            }
        }
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(seen + lost, (uint64_t)THREADS * EACH);
    plim_shm_close(&r);
    plim__shm_unmap(&w);
}

/* A writer in another process, killed at some moment: what it left can be read to the end. */
static void kill_one(unsigned wait_us)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct plim_shm_writer w = {0};
        if (plim__shm_create(&w, dir, &small, calls, 3, "test") != 0) {
            _exit(1);
        }
        for (uint64_t i = 0;; i++) {
            struct plim_gpu_event e = numbered(i);
            (void)plim__shm_write(&w, &e);
        }
    }
    char path[512];
    struct timespec wait = {0, (long)wait_us * 1000};
    uint64_t last = 0;
    bool opened = false;
    struct plim_shm_reader r;
    path_of(path, (uint32_t)child, 0);
    (void)nanosleep(&wait, NULL); /* the random moment */
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    opened = plim_shm_open(&r, path, true) == 0;
    for (int n = 1; opened && n > 0;) {
        struct plim_gpu_event got[50];
        assert_false(plim_shm_alive(&r));
        n = plim_shm_poll(&r, got, 50, true);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            if (got[i].kind != PLIM_EVENT_LOST) {
                assert_true(got[i].seq > last);
                last = got[i].seq;
                assert_numbered(&got[i]);
            }
        }
    }
    if (opened) {
        plim_shm_close(&r);
    }
    remove_files();
}

static void a_writer_may_be_killed_at_any_moment(void **state)
{
    (void)state;
    const char *text = getenv("PLIMSOLL_TEST_KILLS");
    unsigned kills = text == NULL ? 300 : (unsigned)atoi(text);
    unsigned seed = 1;
    for (unsigned i = 0; i < kills; i++) {
        seed = seed * 1103515245u + 12345u;
        kill_one((seed >> 16) % 1000);
    }
}

static void a_slot_that_was_never_finished_stops_the_reader_until_the_writer_is_gone(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader r;
    struct plim_gpu_event e = numbered(1), got[8];
    assert_true(plim__shm_write(&w, &e));
    w.head->head++; /* a thread took a slot and was killed */
    assert_true(plim__shm_write(&w, &e));
    assert_int_equal(plim_shm_open(&r, path, true), 0);
    assert_int_equal(plim_shm_poll(&r, got, 8, false), 1);
    assert_int_equal(plim_shm_poll(&r, got, 8, false), 0);
    assert_int_equal(plim_shm_poll(&r, got, 8, true), 2);
    assert_int_equal(got[0].seq, 3);
    assert_int_equal(got[1].kind, PLIM_EVENT_LOST);
    assert_int_equal(got[1].size, 1);
    plim_shm_close(&r);
    plim__shm_unmap(&w);
}

/* ---- Files that are not what they say */

static void any_byte_of_the_head_may_be_wrong(void **state)
{
    (void)state;
    char path[512], text[64];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_gpu_event e = numbered(1), got[8];
    assert_true(plim__shm_write(&w, &e));
    unsigned char good[960];
    memcpy(good, w.head, sizeof good);
    for (size_t i = 0; i < sizeof good; i++) {
        for (unsigned v = 0; v < 3; v++) {
            struct plim_shm_reader r;
            struct plim_shm_library lib;
            uint64_t frames[4];
            memcpy((void *)w.head, good, sizeof good);
            ((unsigned char *)w.head)[i] = (unsigned char)(v == 0 ? 0 : v == 1 ? 255 : good[i] + 1);
            if (plim_shm_open(&r, path, true) != 0) {
                continue;
            }
            (void)plim_shm_poll(&r, got, 8, false);
            (void)plim_shm_poll(&r, got, 8, true);
            (void)plim_shm_call(&r, 1, text, sizeof text);
            (void)plim_shm_library(&r, 1, &lib, text, sizeof text);
            (void)plim_shm_stack(&r, 1, frames, 4);
            plim_shm_close(&r);
        }
    }
    memcpy((void *)w.head, good, sizeof good);
    plim__shm_unmap(&w);
}

static void a_file_that_is_cut_short_is_an_error(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader r;
    struct plim_gpu_event e = numbered(1), got[8];
    assert_true(plim__shm_write(&w, &e));
    assert_int_equal(plim_shm_open(&r, path, true), 0);
    plim__shm_unmap(&w);
    assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(plim_shm_poll(&r, got, 8, false), -EBADMSG);
    plim_shm_close(&r);
    assert_int_equal(plim_shm_open(&r, path, true), -EBADMSG);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(plim_shm_open(&r, path, false), -EBADMSG);
    assert_int_equal(plim_shm_open(&r, dir, false), -EBADMSG);
}

static void a_tail_that_nobody_can_have_written_is_refused(void **state)
{
    (void)state;
    char path[512];
    struct plim_shm_writer w = fresh(&small, path);
    struct plim_shm_reader r;
    struct plim_gpu_event e = numbered(1), got[8];
    w.head->tail = 1000;
    assert_false(plim__shm_write(&w, &e)); /* and the writer takes no harm */
    assert_int_equal(plim_shm_open(&r, path, true), 0);
    assert_int_equal(plim_shm_poll(&r, got, 8, false), -EBADMSG);
    plim_shm_close(&r);
    plim__shm_unmap(&w);
}

static void what_python_writes_is_read_row_by_row(void **state)
{
    (void)state;
    char path[512];
    remove_files();
    (void)snprintf(path, sizeof path, "%s/1-1.0" PLIM_ATTACH_SUFFIX, dir);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    assert_int_equal(ftruncate(fd, sizeof(struct plim_attach_file)), 0);
    struct plim_attach_file got,
        *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(plim_attach_read(path, &got), -EBADMSG);
    memcpy(f->magic, PLIM_ATTACH_MAGIC, sizeof f->magic);
    f->version = 1;
    f->file_bytes = sizeof *f;
    f->device[0] = (struct plim_attach_device){.valid = 1, .reserved = 9};
    f->device[1] = (struct plim_attach_device){.lock = 1, .valid = 1};
    f->note[0] = (struct plim_attach_note){.number = 1, .bytes = 2, .text = "{}"};
    f->note[1] = (struct plim_attach_note){.number = 2, .bytes = 60000};
    memset(f->info, 'x', sizeof f->info);
    assert_int_equal(plim_attach_read(path, &got), 0);
    assert_int_equal(got.device[0].reserved, 9);
    assert_int_equal(got.device[1].valid, 0);
    assert_int_equal(got.note[0].number, 1);
    assert_int_equal(got.note[1].number, 0);
    assert_int_equal(strlen(got.info), sizeof got.info - 1);
    uint32_t number = 0;
    assert_int_equal(plim_attach_ask(path, &number), 0);
    assert_int_equal(number, 1);
    assert_int_equal(f->snapshot_asked, 1);
    (void)munmap(f, sizeof *f);
    assert_int_equal(ftruncate(fd, 9000), 0);
    assert_int_equal(plim_attach_read(path, &got), -EBADMSG);
    (void)close(fd);
}

/* ---- What an event charges */

static void events_charge_by_kind_pages_and_result(void **state)
{
    (void)state;
    struct plim_gpu_event e = {.kind = PLIM_EVENT_ALLOC, .size = 100};
    assert_int_equal(plim_event_charge(&e), 100);
    e.flags = PLIM_EVENT_PAGES;
    e.aux = 2097152;
    assert_int_equal(plim_event_charge(&e), 2097152);
    e.result = 2;
    assert_int_equal(plim_event_charge(&e), 0);
    e = (struct plim_gpu_event){.kind = PLIM_EVENT_FREE, .size = 100};
    assert_int_equal(plim_event_charge(&e), -100);
    e.result = 1; /* refused after it was recorded: takes it back */
    assert_int_equal(plim_event_charge(&e), 100);
    e.flags = PLIM_EVENT_UNKNOWN;
    assert_int_equal(plim_event_charge(&e), 0);
    e = (struct plim_gpu_event){.kind = 250, .size = 100};
    assert_int_equal(plim_event_charge(&e), 0);
    assert_string_equal(plim_event_kind_text(PLIM_EVENT_LOST), "lost");
    assert_string_equal(plim_event_kind_text(250), "unknown");
    assert_string_equal(plim_owner_text(PLIM_OWNER_NCCL), "NCCL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_back_in_order_across_the_end_of_the_ring),
        cmocka_unit_test(a_full_ring_drops_counts_and_tells_where),
        cmocka_unit_test(one_reader_consumes_and_others_look),
        cmocka_unit_test(tables_give_back_what_was_added_and_say_when_they_are_full),
        cmocka_unit_test(totals_are_read_by_device_and_owner),
        cmocka_unit_test(a_second_program_of_a_process_gets_a_file_of_its_own),
        cmocka_unit_test(failures_leave_nothing_behind),
        cmocka_unit_test(events_of_many_threads_arrive_whole_or_are_counted_as_lost),
        cmocka_unit_test(a_writer_may_be_killed_at_any_moment),
        cmocka_unit_test(a_slot_that_was_never_finished_stops_the_reader_until_the_writer_is_gone),
        cmocka_unit_test(any_byte_of_the_head_may_be_wrong),
        cmocka_unit_test(a_file_that_is_cut_short_is_an_error),
        cmocka_unit_test(a_tail_that_nobody_can_have_written_is_refused),
        cmocka_unit_test(what_python_writes_is_read_row_by_row),
        cmocka_unit_test(events_charge_by_kind_pages_and_result),
    };
    folder_make();
    int rc = PLIM_RUN_TESTS("shm", tests);
    folder_remove();
    return rc;
}
