/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_SHM_FOLDER_H
#define PLIM_TESTS_SHM_FOLDER_H

/* A folder of one test program for the files of recorded processes: in memory where that can be had. */

#include "unit.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static void folder_make(void)
{
    (void)snprintf(dir, sizeof dir, "/dev/shm/plimsoll-test-%d", (int)getpid());
    if (mkdir(dir, 0700) != 0) {
        (void)snprintf(dir, sizeof dir, "/tmp/plimsoll-test-%d", (int)getpid());
        (void)mkdir(dir, 0700);
    }
}

static void remove_files(void)
{
    DIR *d = opendir(dir);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        (void)unlink(path);
    }
    (void)closedir(d);
}

static void folder_remove(void)
{
    remove_files();
    (void)rmdir(dir);
}

#endif
