/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a session: how they come into being under the eyes of a reader, what is left of a process
 * that is killed meanwhile, and what their names tell.
 */

#include "shm/process.h"
#include "shm/writer.h"
#include "shm_folder.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const calls[] = {"", "cuMemAlloc_v2", "cuMemFree_v2"};
static const struct plim_shm_sizes small = {64, 4096, 8, 8, 64};

static unsigned count_files(bool hidden)
{
    DIR *d = opendir(dir);
    unsigned n = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        bool link = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        n += !link && (e->d_name[0] == '.') == hidden;
    }
    (void)closedir(d);
    return n;
}

/* In a child: make files of several MiB until killed. */
static void make_files(void)
{
    const struct plim_shm_sizes big = {1u << 15, 4096, 8, 8, 64};
    for (;;) {
        struct plim_shm_writer w;
        if (plim__shm_create(&w, dir, &big, calls, 3, "test") != 0) {
            _exit(1);
        }
        plim__shm_unmap(&w);
        remove_files();
    }
}

static void a_writer_killed_while_it_makes_its_file_leaves_nothing_hidden(void **state)
{
    (void)state;
    unsigned seed = 3;
    int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) {
        skip(); /* the file system has no files without a name */
    }
    (void)close(fd);
    remove_files();
    for (unsigned i = 0; i < 100; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            make_files();
        }
        seed = seed * 1103515245u + 12345u;
        struct timespec wait = {0, (long)((seed >> 16) % 4000) * 1000};
        (void)nanosleep(&wait, NULL); /* the random moment */
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(count_files(true), 0);
        assert_true(count_files(false) <= 1);
        remove_files();
    }
}

/* From now on this process is as on a file system that has no files without a name, or no hard links
 * either. */
static bool forbid(bool links)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, links ? SYS_linkat : UINT32_MAX, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* In a child: two files, the second as of a second program. */
static void make_two(bool without_links)
{
    struct plim_shm_writer w;
    if (!forbid(without_links) || open(dir, O_TMPFILE | O_RDWR, 0600) >= 0) {
        _exit(77);
    }
    bool made = plim__shm_create(&w, dir, &small, calls, 3, "test") == 0;
    made = made && plim__shm_create(&w, dir, &small, calls, 3, "test") == 0;
    _exit(made && w.head->program == 1 ? 0 : 1);
}

static void where_every_file_has_a_name_it_is_hidden_until_it_is_complete(void **state)
{
    (void)state;
    for (int without_links = 0; without_links < 2; without_links++) {
        int status;
        remove_files();
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            make_two(without_links != 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WEXITSTATUS(status) == 77) {
            skip(); /* no filters of system calls here */
        }
        assert_int_equal(status, 0);
        assert_int_equal(count_files(true), 0);
        assert_int_equal(count_files(false), 2);
    }
    remove_files();
}

static void names_tell_whose_process_lives(void **state)
{
    (void)state;
    char name[128];
    const char *const bad[] = {"",
                               ".",
                               "..",
                               "1-1.0",
                               "x",
                               "1-1.plimshm",
                               "-1.0.plimshm",
                               "1-.0.plimshm",
                               "1-1.0.plimshmm",
                               "0-1.0.plimshm",
                               "4294967297-1.0.plimshm",
                               "..1-1.0.plimshm",
                               "99999999999999999999-1.0.plimshm"};
    unsigned long long start = plim__shm_start_ticks(0, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(plim_shm_named_alive(bad[i]), -EINVAL);
    }
    (void)snprintf(name, sizeof name, ".%d-%llu.3" PLIM_SHM_SUFFIX, (int)getpid(), start);
    assert_int_equal(plim_shm_named_alive(name), 1);
    assert_int_equal(plim_shm_named_alive(name + 1), 1);
    (void)snprintf(name, sizeof name, "%d-%llu.0" PLIM_ATTACH_SUFFIX, (int)getpid(), start + 1);
    assert_int_equal(plim_shm_named_alive(name), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_writer_killed_while_it_makes_its_file_leaves_nothing_hidden),
        cmocka_unit_test(where_every_file_has_a_name_it_is_hidden_until_it_is_complete),
        cmocka_unit_test(names_tell_whose_process_lives),
    };
    folder_make();
    int rc = PLIM_RUN_TESTS("shm files", tests);
    folder_remove();
    return rc;
}
