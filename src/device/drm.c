/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Devices of the kernel's DRM drivers: amdgpu, i915, xe, nouveau and others, from /sys and /proc
 * alone.
 *
 *   /sys/class/drm/cardN/device/   vendor, uevent (DRIVER, PCI_SLOT_NAME); amdgpu:
 *                                  mem_info_vram_*, mem_info_gtt_*, gpu_busy_percent
 *   /proc/PID/fdinfo/FD            for descriptors on /dev/dri/: drm-pdev, drm-client-id,
 *                                  drm-resident-REGION, drm-memory-REGION (older, the same), drm-total-REGION
 *   /sys/class/kfd/kfd/            compute processes of amdgpu; they may have no descriptor
 *
 * A client that is open several times in a process is counted once. Regions of the device itself
 * are called vram* (amdgpu, xe, nouveau) or local* (i915). NVIDIA's own driver tells nothing here:
 * its cards are left to NVML.
 * Source: Documentation/gpu/drm-usage-stats.rst, amdgpu's sysfs documentation.
 */

#include "base/num.h"
#include "device/sampler.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS_MAX   64u
#define CLIENTS_MAX 4096u /* clients of one process that are told apart */

struct drm {
    const struct plim_world *world;
    PLIM_VEC(uint64_t) clients; /* of the process that is being read */
};

static enum plim_status drm_open(const struct plim_world *world, const char *script, void **self,
                                 struct plim_err *err)
{
    (void)script;
    struct drm *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for DRM devices");
    }
    d->world = world;
    *self = d;
    return PLIM_OK;
}

static void drm_close(void *self)
{
    struct drm *d = self;
    plim_vec_fini(&d->clients);
    free(d);
}

/* readdir() on a stream of our own. */
static const struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe)
}

static DIR *open_folder(const struct drm *d, const char *path)
{
    char full[4096];
    int n = snprintf(full, sizeof(full), "%s%s", d->world->root, path);
    return n > 0 && (size_t)n < sizeof(full) ? opendir(full) : NULL;
}

static bool is_number(const char *name)
{
    return name[0] != '\0' && strspn(name, "0123456789") == strlen(name);
}

static bool read_number(const struct drm *d, const char *folder, const char *file, uint64_t *out)
{
    char path[512], text[PLIM_WORLD_TEXT], *end;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, file);
    if (!plim_world_read(d->world, path, text)) {
        return false;
    }
    *out = strtoull(text, &end, 0);
    return end != text;
}

/* The value behind "KEY" up to the end of the line; false when there is no such line. */
static bool line_value(const char *text, const char *key, char *out, size_t room)
{
    size_t n = strlen(key);
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (length > n && memcmp(line, key, n) == 0) {
            size_t blank = n + strspn(line + n, " \t");
            (void)snprintf(out, room, "%.*s", (int)(length - blank), line + blank);
            return true;
        }
        line += length;
        line += *line == '\n';
    }
    return false;
}

/* ---- cards ---- */

static void figure(const struct drm *d, const char *folder, const char *file,
                   struct plim_device_sample *out, enum plim_figure which)
{
    uint64_t value;
    if (read_number(d, folder, file, &value)) {
        plim_set_figure(out, which, value);
    }
}

static const char *driver_name(const char *driver)
{
    static const char *const names[][2] = {{"amdgpu", "AMD GPU"},
                                           {"radeon", "AMD GPU"},
                                           {"i915", "Intel GPU"},
                                           {"xe", "Intel GPU"},
                                           {"nouveau", "NVIDIA GPU (nouveau)"},
                                           {"msm", "Qualcomm GPU"},
                                           {"panfrost", "Arm GPU"},
                                           {"panthor", "Arm GPU"},
                                           {"v3d", "Broadcom GPU"},
                                           {"asahi", "Apple GPU"}};
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        if (strcmp(driver, names[i][0]) == 0) {
            return names[i][1];
        }
    }
    return NULL;
}

static bool read_card(const struct drm *d, const char *card, struct plim_device_sample *out)
{
    char folder[300], path[400], text[PLIM_WORLD_TEXT], driver[64];
    (void)snprintf(folder, sizeof(folder), "/sys/class/drm/%s/device", card);
    (void)snprintf(path, sizeof(path), "%s/uevent", folder);
    if (!plim_world_read(d->world, path, text) ||
        !line_value(text, "DRIVER=", driver, sizeof(driver)) || driver_name(driver) == NULL) {
        return false;
    }
    *out = (struct plim_device_sample){.parent = PLIM_NO_PARENT, .vendor = PLIM_VENDOR_OTHER};
    (void)line_value(text, "PCI_SLOT_NAME=", out->pci, sizeof(out->pci));
    (void)snprintf(out->name, sizeof(out->name), "%s", driver_name(driver));
    (void)snprintf(path, sizeof(path), "%s/product_name", folder);
    if (plim_world_read(d->world, path, text) && text[0] != '\n' && text[0] != '\0') {
        (void)snprintf(out->name, sizeof(out->name), "%.*s", (int)strcspn(text, "\n"), text);
    }
    uint64_t vendor = 0;
    (void)read_number(d, folder, "vendor", &vendor);
    out->vendor = vendor == 0x1002   ? PLIM_VENDOR_AMD
                  : vendor == 0x8086 ? PLIM_VENDOR_INTEL
                  : vendor == 0x10de ? PLIM_VENDOR_NVIDIA
                                     : PLIM_VENDOR_OTHER;
    figure(d, folder, "mem_info_vram_total", out, PLIM_FIGURE_TOTAL);
    figure(d, folder, "mem_info_vram_used", out, PLIM_FIGURE_USED);
    figure(d, folder, "mem_info_gtt_total", out, PLIM_FIGURE_HOST_TOTAL);
    figure(d, folder, "mem_info_gtt_used", out, PLIM_FIGURE_HOST_USED);
    figure(d, folder, "gpu_busy_percent", out, PLIM_FIGURE_BUSY);
    out->state = plim_has_figure(out, PLIM_FIGURE_TOTAL) ? PLIM_DEVICE_OK : PLIM_DEVICE_UNSUPPORTED;
    return true;
}

static int by_pci(const void *a, const void *b)
{
    const struct plim_device_sample *x = a, *y = b;
    return strcmp(x->pci, y->pci);
}

static enum plim_status add_cards(const struct drm *d, struct plim_sample *out,
                                  struct plim_err *err)
{
    DIR *dir = open_folder(d, "/sys/class/drm");
    const struct dirent *entry;
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && dir != NULL && (entry = next_entry(dir)) != NULL) {
        struct plim_device_sample card;
        if (strncmp(entry->d_name, "card", 4) == 0 && is_number(entry->d_name + 4) &&
            out->devices.n < CARDS_MAX && read_card(d, entry->d_name, &card)) {
            st = plim_vec_push(&out->devices, err, card);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    if (st == PLIM_OK && out->devices.n > 1) {
        qsort(out->devices.items, out->devices.n, sizeof(*out->devices.items), by_pci);
    }
    return st;
}

/* ---- processes ---- */

/* "12 KiB", "3 MiB", "4096" in bytes. */
static uint64_t region_bytes(const char *value)
{
    char *end;
    uint64_t n = strtoull(value, &end, 10), bytes = 0;
    end += strspn(end, " ");
    uint64_t unit = strncmp(end, "KiB", 3) == 0   ? PLIM_KIB
                    : strncmp(end, "MiB", 3) == 0 ? PLIM_MIB
                    : strncmp(end, "GiB", 3) == 0 ? PLIM_GIB
                                                  : 1;
    return plim_mul_overflows(n, unit, &bytes) ? UINT64_MAX : bytes;
}

/* Bytes in the device's own regions under one of the three keys; false when there are none of it.
 * */
static bool sum_regions(const char *text, const char *key, uint64_t *sum)
{
    bool any = false;
    size_t n = strlen(key);
    *sum = 0;
    for (const char *line = text; *line != '\0';) {
        const char *region = line + n;
        size_t length = strcspn(line, "\n");
        if (length > n && memcmp(line, key, n) == 0 &&
            (strncmp(region, "vram", 4) == 0 || strncmp(region, "local", 5) == 0)) {
            const char *colon = memchr(line, ':', length);
            *sum = colon != NULL
                       ? plim_add_sat(*sum, region_bytes(colon + 1 + strspn(colon + 1, " \t")))
                       : *sum;
            any = any || colon != NULL;
        }
        line += length;
        line += *line == '\n';
    }
    return any;
}

static uint32_t card_of(const struct plim_sample *out, const char *pci)
{
    for (uint32_t i = 0; i < out->devices.n; i++) {
        if (out->devices.items[i].pci[0] != '\0' && strcmp(out->devices.items[i].pci, pci) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* A use of this process on a device grows by another client's bytes. */
static enum plim_status add_client(struct plim_sample *out, uint32_t device, uint32_t pid,
                                   uint64_t bytes, bool known, struct plim_err *err)
{
    plim_vec_foreach (use, &out->uses) {
        if (use->device == device && use->pid == pid) {
            use->bytes = plim_add_sat(use->bytes, bytes);
            use->bytes_valid = use->bytes_valid || known;
            return PLIM_OK;
        }
    }
    struct plim_process_use use = {.device = device,
                                   .pid = pid,
                                   .gpu_instance = PLIM_NO_INSTANCE,
                                   .compute_instance = PLIM_NO_INSTANCE,
                                   .kinds = PLIM_USE_GRAPHICS,
                                   .bytes = bytes,
                                   .bytes_valid = known};
    return plim_vec_push(&out->uses, err, use);
}

static enum plim_status read_fdinfo(struct drm *d, struct plim_sample *out, uint32_t pid,
                                    const char *fd, struct plim_err *err)
{
    char path[64], text[PLIM_WORLD_TEXT], pci[32], id[32];
    (void)snprintf(path, sizeof(path), "/proc/%u/fdinfo/%.16s", pid, fd);
    if (!plim_world_read(d->world, path, text) ||
        !line_value(text, "drm-pdev:", pci, sizeof(pci))) {
        return PLIM_OK;
    }
    uint32_t device = card_of(out, pci);
    uint64_t client =
        line_value(text, "drm-client-id:", id, sizeof(id)) ? strtoull(id, NULL, 10) : 0;
    uint64_t bytes = 0, key = client << 8 | device;
    if (device == UINT32_MAX || d->clients.n >= CLIENTS_MAX) {
        return PLIM_OK;
    }
    plim_vec_foreach (seen, &d->clients) {
        if (*seen == key) {
            return PLIM_OK;
        }
    }
    PLIM_TRY(plim_vec_push(&d->clients, err, key));
    bool known = sum_regions(text, "drm-resident-", &bytes) ||
                 sum_regions(text, "drm-memory-", &bytes) ||
                 sum_regions(text, "drm-total-", &bytes);
    return add_client(out, device, pid, bytes, known, err);
}

static enum plim_status read_process(struct drm *d, struct plim_sample *out, uint32_t pid,
                                     struct plim_err *err)
{
    char folder[64];
    (void)snprintf(folder, sizeof(folder), "/proc/%u/fd", pid);
    DIR *dir = open_folder(d, folder);
    const struct dirent *entry;
    enum plim_status st = PLIM_OK;
    d->clients.n = 0;
    while (st == PLIM_OK && dir != NULL && (entry = next_entry(dir)) != NULL) {
        char target[64];
        ssize_t n = is_number(entry->d_name)
                        ? readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1)
                        : -1;
        if (n > 9 && memcmp(target, "/dev/dri/", 9) == 0) {
            st = read_fdinfo(d, out, pid, entry->d_name, err);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return st;
}

/* ---- compute processes of amdgpu ---- */

/* The card of a KFD node: gpu_id names it in /proc-like files, location_id is its place on the PCI
 * bus. */
static uint32_t card_of_gpu_id(const struct drm *d, const struct plim_sample *out, uint64_t gpu_id)
{
    for (unsigned node = 0; node < CARDS_MAX * 2; node++) {
        char folder[80], path[100], text[PLIM_WORLD_TEXT], value[32], pci[20];
        uint64_t id;
        (void)snprintf(folder, sizeof(folder), "/sys/class/kfd/kfd/topology/nodes/%u", node);
        if (!read_number(d, folder, "gpu_id", &id)) {
            break;
        }
        (void)snprintf(path, sizeof(path), "%s/properties", folder);
        if (id != gpu_id || !plim_world_read(d->world, path, text) ||
            !line_value(text, "location_id ", value, sizeof(value))) {
            continue;
        }
        unsigned place = (unsigned)strtoul(value, NULL, 10), domain = 0;
        if (line_value(text, "domain ", value, sizeof(value))) {
            domain = (unsigned)strtoul(value, NULL, 10);
        }
        (void)snprintf(pci, sizeof(pci), "%04x:%02x:%02x.%u", domain & 0xffff, place >> 8 & 0xff,
                       place >> 3 & 0x1f, place & 7);
        return card_of(out, pci);
    }
    return UINT32_MAX;
}

static enum plim_status read_kfd_process(const struct drm *d, struct plim_sample *out,
                                         const char *name, struct plim_err *err)
{
    char folder[80];
    (void)snprintf(folder, sizeof(folder), "/sys/class/kfd/kfd/proc/%.16s", name);
    DIR *dir = open_folder(d, folder);
    const struct dirent *entry;
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && dir != NULL && (entry = next_entry(dir)) != NULL) {
        uint64_t bytes;
        if (strncmp(entry->d_name, "vram_", 5) != 0 || !is_number(entry->d_name + 5) ||
            !read_number(d, folder, entry->d_name, &bytes)) {
            continue;
        }
        uint32_t device = card_of_gpu_id(d, out, strtoull(entry->d_name + 5, NULL, 10));
        struct plim_process_use use = {.device = device,
                                       .pid = (uint32_t)strtoul(name, NULL, 10),
                                       .gpu_instance = PLIM_NO_INSTANCE,
                                       .compute_instance = PLIM_NO_INSTANCE,
                                       .kinds = PLIM_USE_COMPUTE,
                                       .bytes = bytes,
                                       .bytes_valid = true};
        if (device != UINT32_MAX) {
            /* The same memory may be told by fdinfo: the greater figure counts, not the sum. */
            st = plim_sample_add_use(out, &use, err);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return st;
}

static enum plim_status each_number(struct drm *d, const char *folder, bool kfd,
                                    struct plim_sample *out, struct plim_err *err)
{
    DIR *dir = open_folder(d, folder);
    const struct dirent *entry;
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && dir != NULL && (entry = next_entry(dir)) != NULL) {
        if (is_number(entry->d_name)) {
            st = kfd ? read_kfd_process(d, out, entry->d_name, err)
                     : read_process(d, out, (uint32_t)strtoul(entry->d_name, NULL, 10), err);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return st;
}

static enum plim_status drm_sample(void *self, struct plim_sample *out, struct plim_err *err)
{
    struct drm *d = self;
    PLIM_TRY(add_cards(d, out, err));
    if (out->devices.n == 0) {
        return PLIM_OK; /* nobody can hold memory of no device: /proc need not be read */
    }
    PLIM_TRY(each_number(d, "/proc", false, out, err));
    return each_number(d, "/sys/class/kfd/kfd/proc", true, out, err);
}

const struct plim_vendor plim__vendor_drm = {"drm", drm_open, drm_sample, drm_close};
