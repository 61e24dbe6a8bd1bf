/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the host: memory, container limit, shared memory, limits of the process and the kernel. */

#include "base/bytes.h"
#include "base/num.h"
#include "device/doctor.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The number behind `key` in a text of "key: number kB" lines, in bytes. */
static bool kib_line(const char *text, const char *key, uint64_t *bytes)
{
    const char *at = strstr(text, key);
    if (at == NULL || (at != text && at[-1] != '\n')) {
        return false;
    }
    at += strlen(key);
    *bytes = strtoull(at, NULL, 10) * PLIM_KIB;
    return true;
}

/* A file that holds one number; "max" and what is no number give false. */
static bool read_number(const struct plim_world *world, const char *path, uint64_t *number)
{
    char text[PLIM_WORLD_TEXT];
    if (!plim_world_read(world, path, text) || !isdigit((unsigned char)text[0])) {
        return false;
    }
    *number = strtoull(text, NULL, 10);
    return true;
}

/* The path behind "`controller`:" in /proc/self/cgroup ("0::/a/b", "5:memory:/a"), without newline. */
static bool cgroup_path(const struct plim_world *world, const char *controller, char *path,
                        size_t room)
{
    char text[PLIM_WORLD_TEXT];
    if (!plim_world_read(world, "/proc/self/cgroup", text)) {
        return false;
    }
    for (char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        char *name = memchr(line, ':', n);
        char *where = name ? memchr(name + 1, ':', n - (size_t)(name + 1 - line)) : NULL;
        if (where != NULL && strncmp(name + 1, controller, (size_t)(where - name)) == 0) {
            (void)snprintf(path, room, "%.*s", (int)(line + n - where - 1), where + 1);
            return true;
        }
        line += n + (line[n] == '\n');
    }
    return false;
}

/* The smallest limit on the way from `path` up to the root of the hierarchy. */
static bool smallest_limit(const struct plim_world *world, const char *mount, char *path,
                           const char *file, uint64_t *limit)
{
    bool found = false;
    for (;;) {
        char full[4096];
        uint64_t here = 0;
        size_t n = strlen(path);
        path[n > 0 && path[n - 1] == '/' ? n - 1 : n] = '\0';
        int len = snprintf(full, sizeof(full), "%s%s/%s", mount, path, file);
        if (len > 0 && (size_t)len < sizeof(full) && read_number(world, full, &here)) {
            *limit = found ? plim_min_u64(*limit, here) : here;
            found = true;
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            return found;
        }
        *slash = '\0';
    }
}

/* cgroup v1 writes "no limit" as a huge number (PAGE_COUNTER_MAX). */
#define NO_LIMIT (UINT64_C(1) << 62)

bool plim_cgroup_limit(const struct plim_world *world, uint64_t *limit)
{
    char path[1024];
    uint64_t found = 0;
    bool some = cgroup_path(world, ":", path, sizeof(path)) &&
                smallest_limit(world, "/sys/fs/cgroup", path, "memory.max", &found);
    if (!some) {
        some =
            cgroup_path(world, "memory:", path, sizeof(path)) &&
            smallest_limit(world, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", &found);
    }
    if (!some || found >= NO_LIMIT) {
        return false;
    }
    *limit = found;
    return true;
}

static enum plim_status check_memory(struct plim_checks *checks, const struct plim_world *world,
                                     struct plim_err *err)
{
    char text[PLIM_WORLD_TEXT];
    char a[PLIM_BYTES_TEXT];
    char b[PLIM_BYTES_TEXT];
    uint64_t total = 0;
    uint64_t available = 0;
    uint64_t limit = 0;
    struct plim_check check = {.id = "host.memory", .title = "Host memory"};
    if (!plim_world_read(world, "/proc/meminfo", text) || !kib_line(text, "MemTotal:", &total) ||
        !kib_line(text, "MemAvailable:", &available)) {
        check.status = PLIM_CHECK_MISSING;
        check.detail = "/proc/meminfo does not say";
        return plim_check_add(checks, check, err);
    }
    PLIM_TRY(plim_check_text(checks, &check.detail, err, "%s, %s available",
                             plim_bytes_format(a, total), plim_bytes_format(b, available)));
    PLIM_TRY(plim_check_add(checks, check, err));
    if (!plim_cgroup_limit(world, &limit) || limit >= total) {
        return PLIM_OK;
    }
    check = (struct plim_check){.id = "host.cgroup", .title = "Container memory limit"};
    check.advice = "a process that passes it is killed without a Python error; loading a model "
                   "needs room for its weights in host memory";
    PLIM_TRY(plim_check_text(checks, &check.detail, err, "%s of %s", plim_bytes_format(a, limit),
                             plim_bytes_format(b, total)));
    return plim_check_add(checks, check, err);
}

#define SHM_LITTLE PLIM_GIB /* bytes; Docker's default of 64 MiB is the usual culprit */

static enum plim_status check_shm(struct plim_checks *checks, const struct plim_world *world,
                                  struct plim_err *err)
{
    char path[4096];
    char size[PLIM_BYTES_TEXT];
    struct statvfs fs;
    struct plim_check check = {.id = "host.shm", .title = "/dev/shm"};
    (void)snprintf(path, sizeof(path), "%s/dev/shm", world->root);
    if (statvfs(path, &fs) != 0) {
        check.status = PLIM_CHECK_MISSING;
        check.detail = "not mounted";
        check.advice = "DataLoader workers and NCCL need it: mount a tmpfs there";
        return plim_check_add(checks, check, err);
    }
    uint64_t bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    if (bytes < SHM_LITTLE) {
        check.status = PLIM_CHECK_WARN;
        check.advice = "DataLoader workers and NCCL fill it: docker run --shm-size=8g or "
                       "--ipc=host; in Kubernetes an emptyDir with medium: Memory";
    }
    PLIM_TRY(plim_check_text(checks, &check.detail, err, "%s", plim_bytes_format(size, bytes)));
    return plim_check_add(checks, check, err);
}

static enum plim_status check_limit(struct plim_checks *checks, struct plim_check check,
                                    uint64_t limit, bool unlimited, struct plim_err *err)
{
    char size[PLIM_BYTES_TEXT];
    PLIM_TRY(plim_check_text(checks, &check.detail, err, "%s",
                             unlimited ? "unlimited" : plim_bytes_format(size, limit)));
    return plim_check_add(checks, check, err);
}

static enum plim_status check_process_limits(struct plim_checks *checks, struct plim_err *err)
{
    struct rlimit locked = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit space = {RLIM_INFINITY, RLIM_INFINITY};
    (void)getrlimit(RLIMIT_MEMLOCK, &locked);
    (void)getrlimit(RLIMIT_AS, &space);
    struct plim_check check = {.id = "host.memlock", .title = "Locked memory (ulimit -l)"};
    if (locked.rlim_cur < 64 * PLIM_MIB) {
        check.advice = "pinned memory of CUDA is not bound by it; NCCL over InfiniBand is";
    }
    PLIM_TRY(check_limit(checks, check, locked.rlim_cur, locked.rlim_cur == RLIM_INFINITY, err));
    if (space.rlim_cur == RLIM_INFINITY) {
        return PLIM_OK;
    }
    check = (struct plim_check){.id = "host.address_space", .title = "Address space (ulimit -v)"};
    check.status = PLIM_CHECK_WARN;
    check.advice = "CUDA reserves address space of the size of all memory: ulimit -v unlimited";
    return check_limit(checks, check, space.rlim_cur, false, err);
}

#define MAPS_DEFAULT 65530 /* vm.max_map_count of the Linux kernel (DEFAULT_MAX_MAP_COUNT) */

static enum plim_status check_kernel(struct plim_checks *checks, const struct plim_world *world,
                                     struct plim_err *err)
{
    uint64_t maps = 0;
    uint64_t overcommit = 0;
    if (read_number(world, "/proc/sys/vm/max_map_count", &maps)) {
        struct plim_check check = {.id = "host.max_map_count", .title = "vm.max_map_count"};
        if (maps < MAPS_DEFAULT) {
            check.status = PLIM_CHECK_WARN;
            check.advice = "sysctl vm.max_map_count=65530 or more: mapping many files or "
                           "segments fails before memory is used up";
        }
        PLIM_TRY(plim_check_text(checks, &check.detail, err, "%llu", (unsigned long long)maps));
        PLIM_TRY(plim_check_add(checks, check, err));
    }
    if (read_number(world, "/proc/sys/vm/overcommit_memory", &overcommit)) {
        static const char *const modes[] = {"0 (heuristic)", "1 (always)", "2 (strict)"};
        struct plim_check check = {.id = "host.overcommit", .title = "vm.overcommit_memory"};
        check.detail = modes[overcommit < 3 ? overcommit : 0];
        if (overcommit == 2) {
            check.status = PLIM_CHECK_WARN;
            check.advice = "CUDA reserves much address space, which strict accounting refuses: "
                           "sysctl vm.overcommit_memory=0";
        }
        PLIM_TRY(plim_check_add(checks, check, err));
    }
    return PLIM_OK;
}

static enum plim_status check_place(struct plim_checks *checks, const struct plim_world *world,
                                    struct plim_err *err)
{
    char text[PLIM_WORLD_TEXT];
    struct plim_check check = {.id = "host.place", .title = "Where this runs"};
    if (plim_world_read(world, "/proc/version", text) && strstr(text, "icrosoft") != NULL) {
        check.detail = "WSL";
        check.advice = "the Windows driver may move GPU memory to system memory instead of "
                       "reporting out of memory (its setting: CUDA sysmem fallback policy)";
    } else if (world->getenv("KUBERNETES_SERVICE_HOST") != NULL) {
        check.detail = "Kubernetes pod";
    } else if (plim_world_read(world, "/.dockerenv", text)) {
        check.detail = "Docker container";
    } else if (plim_world_read(world, "/run/.containerenv", text)) {
        check.detail = "Podman container";
    } else {
        return PLIM_OK;
    }
    return plim_check_add(checks, check, err);
}

/* Where failing programs are to leave their evidence. */
static enum plim_status check_incidents(struct plim_checks *checks, const struct plim_world *world,
                                        struct plim_err *err)
{
    const char *folder = world->getenv("PLIMSOLL_INCIDENT_DIR");
    char path[4096];
    struct plim_check check = {.id = "host.incidents", .title = "PLIMSOLL_INCIDENT_DIR"};
    if (folder == NULL || folder[0] == '\0') {
        return PLIM_OK;
    }
    (void)snprintf(path, sizeof(path), "%s%s", world->root, folder);
    bool there = access(path, F_OK) == 0;
    PLIM_TRY(plim_check_text(checks, &check.detail, err, "%.500s%s", folder,
                             there ? "" : " (not there yet)"));
    if (there && access(path, W_OK | X_OK) != 0) {
        check.status = PLIM_CHECK_WARN;
        check.advice = "nobody can write there: failing programs will leave nothing";
    }
    return plim_check_add(checks, check, err);
}

enum plim_status plim_doctor_host(struct plim_checks *checks, const struct plim_world *world,
                                  struct plim_err *err)
{
    PLIM_TRY(check_place(checks, world, err));
    PLIM_TRY(check_memory(checks, world, err));
    PLIM_TRY(check_shm(checks, world, err));
    PLIM_TRY(check_process_limits(checks, err));
    PLIM_TRY(check_incidents(checks, world, err));
    return check_kernel(checks, world, err);
}
