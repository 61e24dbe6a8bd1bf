/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine starts on a device at a time. Engines size their cache by what is free while they
 * profile; two that profile together each take what the other is about to use.
 * The locks are files, held by flock: they end with the process that holds them.
 */

#include "run/run_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* What names a device on this machine: its uuid, else its place, else its number. */
static void name_of(const struct plim_device_sample *d, size_t i, char *out, size_t room)
{
    if (d->uuid[0] != '\0' || d->pci[0] != '\0') {
        (void)snprintf(out, room, "%s", d->uuid[0] != '\0' ? d->uuid : d->pci);
    } else {
        (void)snprintf(out, room, "%s-%zu", plim_vendor_text(d->vendor), i);
    }
}

static int open_lock(const char *folder, const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/plimsoll-start-%s.lock", folder, name);
    for (char *p = path + strlen(folder) + 1; *p != '\0'; p++) {
        *p = *p == '/' ? '_' : *p;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd >= 0) {
        (void)fchmod(fd, 0666); /* other users' engines lock too; fails where the file is theirs */
    }
    return fd;
}

/* Whether CUDA_VISIBLE_DEVICES lets the command see the device that drivers list as number `i`. A list of
 * numbers is in CUDA's order, which need not be the driver's: then all devices count. */
static bool may_see(const char *visible, const char *uuid)
{
    if (visible == NULL || strstr(visible, "GPU-") == NULL) {
        return true;
    }
    char list[1024];
    char *rest = NULL;
    (void)snprintf(list, sizeof(list), "%s", visible);
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (strncmp(uuid, word, strlen(word)) == 0) {
            return true;
        }
    }
    return false;
}

bool plim__start_lock_try(struct plim__start_lock *lock, const struct plim_sample *sample)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"); // NOLINT(concurrency-mt-unsafe): not set
    for (size_t i = 0; i < sample->devices.n && lock->n < PLIM__DEVICES_MAX; i++) {
        const struct plim_device_sample *d = &sample->devices.items[i];
        char name[128];
        if (d->uuid[0] != '\0' && !may_see(visible, d->uuid)) {
            continue;
        }
        name_of(d, i, name, sizeof(name));
        int fd = open_lock("/run/lock", name);
        fd = fd >= 0 ? fd : open_lock("/dev/shm", name);
        if (fd < 0) {
            continue;
        }
        lock->fd[lock->n++] = fd;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            plim__start_lock_free(lock);
            return false;
        }
    }
    return true;
}

void plim__start_lock_free(struct plim__start_lock *lock)
{
    for (size_t i = 0; i < lock->n; i++) {
        (void)close(lock->fd[i]);
    }
    lock->n = 0;
}
