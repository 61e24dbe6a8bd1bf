/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What /proc says of a process and of the host.
 *
 * Cgroups: a container runtime puts the container's id, 64 hexadecimal digits, into the last name
 * of the path, plain (/docker/ID) or as a scope (docker-ID.scope, cri-containerd-ID.scope,
 * crio-ID.scope, libpod-ID.scope); Kubernetes puts the pod's uid into a name before it (podUID,
 * with - or _ in the uid). A service of systemd is the last name that ends in .service. Source:
 * systemd.slice(5), runc's and the kubelet's cgroup drivers.
 */

#include "base/num.h"
#include "device/sampler.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t hex_run(const char *p)
{
    size_t n = 0;
    while (isxdigit((unsigned char)p[n]) && !isupper((unsigned char)p[n])) {
        n++;
    }
    return n;
}

/* One name of the path. */
static void take_name(const char *name, size_t n, struct plim_process_facts *out)
{
    for (size_t i = 0; i + 64 <= n; i++) {
        if ((i == 0 || name[i - 1] == '-') && hex_run(name + i) == 64) {
            (void)snprintf(out->container, sizeof(out->container), "%.64s", name + i);
        }
    }
    for (size_t i = 0; i + 39 <= n; i++) { /* "pod" and a uid */
        if (memcmp(name + i, "pod", 3) == 0 && hex_run(name + i + 3) == 8 &&
            (name[i + 11] == '-' || name[i + 11] == '_')) {
            (void)snprintf(out->pod, sizeof(out->pod), "%.36s", name + i + 3);
            for (char *p = out->pod; *p != '\0'; p++) {
                *p = *p == '_' ? '-' : *p;
            }
        }
    }
    static const char service[] = ".service";
    size_t k = sizeof(service) - 1;
    if (n > k && n < sizeof(out->unit) && memcmp(name + n - k, service, k) == 0 &&
        strncmp(name, "user@", 5) != 0) {
        (void)snprintf(out->unit, sizeof(out->unit), "%.*s", (int)n, name);
    }
}

void plim_process_cgroup(const char *text, struct plim_process_facts *out)
{
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        const char *path = memchr(line, '/', n);
        for (const char *p = path; p != NULL && p < line + n;) {
            p += *p == '/';
            size_t part = strcspn(p, "/\n");
            take_name(p, part, out);
            p += part;
            p = *p == '/' ? p : NULL;
        }
        line += n;
        line += *line == '\n';
    }
}

/* Fields 2, 4, 5 and 22 of /proc/PID/stat; the command in field 2 may hold blanks and parentheses. */
static bool read_stat(const char *text, struct plim_process_stat *out)
{
    const char *open = strchr(text, '('), *p = strrchr(text, ')');
    if (open == NULL || p == NULL || p < open || p[1] == '\0' || p[2] == 'Z' || p[2] == 'X') {
        return false;
    }
    size_t n = plim_min_u64((uint64_t)(p - open) - 1, sizeof(out->name) - 1);
    memcpy(out->name, open + 1, n);
    out->name[n] = '\0';
    p += 2; /* field 3 */
    for (int field = 4; field <= 22; field++) {
        p = strchr(p, ' ');
        if (p == NULL) {
            return false;
        }
        p++;
        if (field == 4) {
            out->ppid = (uint32_t)strtoul(p, NULL, 10);
        } else if (field == 5) {
            out->group = (uint32_t)strtoul(p, NULL, 10);
        }
    }
    out->start_ticks = strtoull(p, NULL, 10);
    return true;
}

bool plim_process_stat(const struct plim_world *world, uint32_t pid, struct plim_process_stat *out)
{
    char path[64], text[PLIM_WORLD_TEXT];
    struct plim_process_stat stat = {0};
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    if (!plim_world_read(world, path, text) || !read_stat(text, &stat)) {
        return false;
    }
    *out = stat;
    return true;
}

bool plim_process_read(const struct plim_world *world, uint32_t pid, struct plim_process_facts *out)
{
    char path[64], text[PLIM_WORLD_TEXT];
    struct plim_process_stat stat;
    if (!plim_process_stat(world, pid, &stat)) {
        return false;
    }
    struct plim_process_facts facts = {
        .pid = pid, .ppid = stat.ppid, .start_ticks = stat.start_ticks};
    memcpy(facts.name, stat.name, sizeof(facts.name));
    (void)snprintf(path, sizeof(path), "/proc/%u/statm", pid);
    const char *resident = plim_world_read(world, path, text) ? strchr(text, ' ') : NULL;
    if (resident != NULL) {
        facts.rss = strtoull(resident + 1, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    (void)snprintf(path, sizeof(path), "/proc/%u/cgroup", pid);
    if (plim_world_read(world, path, text)) {
        plim_process_cgroup(text, &facts);
    }
    *out = facts;
    return true;
}

static bool line_kib(const char *text, const char *key, uint64_t *bytes)
{
    const char *p = strstr(text, key);
    char *end;
    if (p == NULL) {
        return false;
    }
    p += strlen(key);
    uint64_t kib = strtoull(p, &end, 10);
    return end != p && !plim_mul_overflows(kib, PLIM_KIB, bytes);
}

bool plim_host_memory(const struct plim_world *world, uint64_t *total, uint64_t *available)
{
    char text[PLIM_WORLD_TEXT];
    uint64_t all, rest;
    if (!plim_world_read(world, "/proc/meminfo", text) || !line_kib(text, "MemTotal:", &all) ||
        !line_kib(text, "MemAvailable:", &rest)) {
        return false;
    }
    *total = all;
    *available = plim_min_u64(rest, all);
    return true;
}
