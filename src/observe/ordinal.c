/* SPDX-License-Identifier: Apache-2.0 */

/* Which device a process means by a number. See tap.h. */

#include "observe/tap.h"

#include "base/num.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ENVIRON_MOST ((size_t)256 << 10) /* bytes of an environment that are looked at */
#define VALUE_ROOM   1024

/* A uuid without "GPU-" or "MIG-". */
static const char *bare(const char *uuid)
{
    return strncasecmp(uuid, "GPU-", 4) == 0 || strncasecmp(uuid, "MIG-", 4) == 0 ? uuid + 4 : uuid;
}

/* The device whose uuid begins so; NO_DEVICE when there is none, or more than one. */
static uint32_t by_uuid(const struct plim_sample *s, const char *text, size_t n)
{
    uint32_t found = PLIM_NO_DEVICE;
    const char *want = bare(text);
    n -= plim_min_u64((uint64_t)(want - text), n);
    for (uint32_t i = 0; n > 0 && i < s->devices.n; i++) {
        if (strncasecmp(bare(s->devices.items[i].uuid), want, n) == 0) {
            if (found != PLIM_NO_DEVICE) {
                return PLIM_NO_DEVICE;
            }
            found = i;
        }
    }
    return found;
}

/* A variable of a process's environment as it was started; false: not set, or not to be read. */
static bool variable(const char *text, size_t n, const char *name, char value[VALUE_ROOM])
{
    size_t k = strlen(name);
    for (const char *p = text, *end = text + n; p < end; p += strnlen(p, (size_t)(end - p)) + 1) {
        size_t all = strnlen(p, (size_t)(end - p));
        if (all > k && memcmp(p, name, k) == 0 && p[k] == '=') {
            (void)snprintf(value, VALUE_ROOM, "%.*s", (int)(all - k - 1), p + k + 1);
            return all - k - 1 < VALUE_ROOM;
        }
    }
    return false;
}

/* The environment of a process, owned; NULL: not to be read. */
static char *read_environ(const struct plim_world *world, uint32_t pid, size_t *n)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/proc/%u/environ", world->root, pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? malloc(ENVIRON_MOST) : NULL;
    ssize_t got = 1;
    for (*n = 0; text != NULL && got > 0 && *n<ENVIRON_MOST; *n += got> 0 ? (size_t)got : 0) {
        got = read(fd, text + *n, ENVIRON_MOST - *n);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return text;
}

/* Physical devices of NVIDIA in the order of their PCI bus, which is that of the sample; their
 * number. @alike: all have one name. */
static uint32_t physical(const struct plim_sample *s, uint32_t *list, uint32_t room, bool *alike)
{
    uint32_t n = 0;
    *alike = true;
    for (uint32_t i = 0; i < s->devices.n && n < room; i++) {
        const struct plim_device_sample *d = &s->devices.items[i];
        if (d->vendor == PLIM_VENDOR_NVIDIA && d->parent == PLIM_NO_PARENT) {
            *alike = *alike && (n == 0 || strcmp(d->name, s->devices.items[list[0]].name) == 0);
            list[n++] = i;
        }
    }
    return n;
}

/* One entry of CUDA_VISIBLE_DEVICES; false ends the list, as CUDA does at what it does not know. */
static bool entry(const struct plim_sample *s, const char *p, size_t n, bool ordered,
                  const uint32_t *list, uint32_t n_list, uint32_t *out)
{
    char *end;
    *out = PLIM_NO_DEVICE;
    if (n > 3 && (strncasecmp(p, "GPU", 3) == 0 || strncasecmp(p, "MIG", 3) == 0)) {
        *out = by_uuid(s, p, n);
        return true;
    }
    unsigned long number = n > 0 && *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : UINT32_MAX;
    if (number >= n_list) {
        return false;
    }
    *out = ordered ? list[number] : PLIM_NO_DEVICE;
    return true;
}

static void by_environment(const struct plim_world *world, const struct plim_sample *s,
                           uint32_t pid, uint32_t *out)
{
    uint32_t list[64];
    char visible[VALUE_ROOM], order[VALUE_ROOM] = "";
    size_t n;
    bool alike;
    uint32_t n_list = physical(s, list, PLIM_COUNT_OF(list), &alike);
    char *text = read_environ(world, pid, &n);
    if (text == NULL) {
        return; /* somebody else's process: its settings are not known */
    }
    (void)variable(text, n, "CUDA_DEVICE_ORDER", order);
    bool ordered = alike || strcmp(order, "PCI_BUS_ID") == 0;
    bool limited = variable(text, n, "CUDA_VISIBLE_DEVICES", visible);
    free(text);
    if (!limited) {
        for (uint32_t i = 0; ordered && i < n_list && i < PLIM_ATTACH_DEVICES; i++) {
            out[i] = list[i];
        }
        return;
    }
    const char *p = visible;
    for (unsigned i = 0; i < PLIM_ATTACH_DEVICES && *p != '\0'; i++) {
        while (*p == ' ') {
            p++;
        }
        size_t length = strcspn(p, ",");
        if (!entry(s, p, length, ordered, list, n_list, &out[i])) {
            return;
        }
        p += length + (p[length] == ',');
    }
}

void plim__ordinals(const struct plim_world *world, const struct plim_sample *s, uint32_t pid,
                    const char uuid[PLIM_ATTACH_DEVICES][PLIM_TAP_UUID], uint32_t *out)
{
    bool told = false;
    for (unsigned i = 0; i < PLIM_SHM_DEVICES; i++) {
        out[i] = PLIM_NO_DEVICE;
    }
    for (unsigned i = 0; i < PLIM_ATTACH_DEVICES; i++) {
        if (uuid[i][0] != '\0') {
            out[i] = by_uuid(s, uuid[i], strnlen(uuid[i], PLIM_TAP_UUID));
            told = true;
        }
    }
    if (!told) {
        by_environment(world, s, pid, out);
    }
}
