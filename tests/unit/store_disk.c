/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that can fail and forget; see store_disk.h. */

#include "store_disk.h"
#include "unit.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR 512
#define PARTS  2 /* the database and its log */

struct disk disk;

/* A write that is not durable yet, or with data == NULL a truncation to `at`. */
struct pending {
    int64_t at;
    int n;
    uint8_t *data;
};

static struct part {
    uint8_t *bytes; /* durable */
    int64_t n, cap;
    struct pending *pending;
    size_t n_pending, cap_pending;
    bool exists; /* durably */
} parts[PARTS];

struct disk_file {
    sqlite3_file base;
    struct part *part;   /* NULL: not remembered, not counted */
    sqlite3_file real[]; /* of the VFS below */
};

static sqlite3_vfs *below;
static char watched[1024]; /* the database opened first: others on this disk are not counted */

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct disk_file *)file)->real;
}

/* ---- what is durable ---- */

static void apply(struct part *part, const struct pending *p)
{
    int64_t end = p->data != NULL ? p->at + p->n : p->at;
    if (end > part->cap) {
        part->cap = end * 2;
        part->bytes = realloc(part->bytes, (size_t)part->cap);
        assert_non_null(part->bytes);
    }
    if (end > part->n) {
        memset(part->bytes + part->n, 0, (size_t)(end - part->n));
    }
    part->n = p->data == NULL || end > part->n ? end : part->n;
    if (p->data != NULL) {
        memcpy(part->bytes + p->at, p->data, (size_t)p->n);
    }
}

static void drop_pending(struct part *part)
{
    for (size_t i = 0; i < part->n_pending; i++) {
        free(part->pending[i].data);
    }
    part->n_pending = 0;
}

static void note(struct part *part, const void *data, int n, int64_t at)
{
    if (!disk.remember) {
        return;
    }
    if (part->n_pending == part->cap_pending) {
        part->cap_pending = part->cap_pending * 2 + 64;
        part->pending = realloc(part->pending, part->cap_pending * sizeof(*part->pending));
        assert_non_null(part->pending);
    }
    struct pending *p = &part->pending[part->n_pending++];
    *p = (struct pending){at, n, data != NULL ? malloc((size_t)n) : NULL};
    if (data != NULL) {
        memcpy(p->data, data, (size_t)n);
    }
}

static void make_durable(struct part *part)
{
    for (size_t i = 0; i < part->n_pending; i++) {
        apply(part, &part->pending[i]);
    }
    part->exists = true;
    drop_pending(part);
}

/* ---- the VFS ---- */

static int operation(const struct part *part)
{
    if (part == NULL) {
        return SQLITE_OK;
    }
    uint64_t at = disk.operations++;
    if (at == disk.cut_at) {
        disk_cut(disk.cut_folder, disk.cut_name, disk.cut_seed);
        disk.cut = true;
    }
    return at >= disk.fail_at && at - disk.fail_at < disk.fail_for ? disk.fail_code : SQLITE_OK;
}

static int on_write(sqlite3_file *file, const void *data, int n, sqlite3_int64 at)
{
    struct part *part = ((struct disk_file *)file)->part;
    int code = operation(part);
    if (code == SQLITE_OK) {
        code = real_of(file)->pMethods->xWrite(real_of(file), data, n, at);
        if (part != NULL) {
            note(part, data, n, at);
        }
    }
    return code;
}

static int on_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct part *part = ((struct disk_file *)file)->part;
    int code = operation(part);
    if (code == SQLITE_OK) {
        code = real_of(file)->pMethods->xTruncate(real_of(file), size);
        if (part != NULL) {
            note(part, NULL, 0, size);
        }
    }
    return code;
}

static int on_sync(sqlite3_file *file, int flags)
{
    (void)flags;
    struct part *part = ((struct disk_file *)file)->part;
    int code = operation(part);
    if (code == SQLITE_OK && part != NULL && disk.remember) {
        make_durable(part);
    }
    return code;
}

static int on_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int on_read(sqlite3_file *file, void *data, int n, sqlite3_int64 at)
{
    return real_of(file)->pMethods->xRead(real_of(file), data, n, at);
}

static int on_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int on_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int on_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int on_check(sqlite3_file *file, int *out)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), out);
}

static int on_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int on_sector(sqlite3_file *file)
{
    (void)file;
    return SECTOR;
}

static int on_traits(sqlite3_file *file)
{
    (void)file;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE; /* as the system's: no atomic writes, no order */
}

static int on_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, out);
}

static int on_shm_lock(sqlite3_file *file, int at, int n, int flags)
{
    return real_of(file)->pMethods->xShmLock(real_of(file), at, n, flags);
}

static void on_shm_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int on_shm_unmap(sqlite3_file *file, int remove)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = on_close,
    .xRead = on_read,
    .xWrite = on_write,
    .xTruncate = on_truncate,
    .xSync = on_sync,
    .xFileSize = on_size,
    .xLock = on_lock,
    .xUnlock = on_unlock,
    .xCheckReservedLock = on_check,
    .xFileControl = on_control,
    .xSectorSize = on_sector,
    .xDeviceCharacteristics = on_traits,
    .xShmMap = on_shm_map,
    .xShmLock = on_shm_lock,
    .xShmBarrier = on_shm_barrier,
    .xShmUnmap = on_shm_unmap,
};

static int on_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    struct disk_file *self = (struct disk_file *)file;
    int code = below->xOpen(below, name, real_of(file), flags, out);
    self->base.pMethods = real_of(file)->pMethods != NULL ? &methods : NULL;
    bool writes = (flags & SQLITE_OPEN_READONLY) == 0;
    if (writes && (flags & SQLITE_OPEN_MAIN_DB) != 0 && watched[0] == '\0') {
        (void)snprintf(watched, sizeof(watched), "%s", name);
    }
    bool ours = name != NULL && strncmp(name, watched, strlen(watched)) == 0;
    self->part = !writes || !ours                ? NULL
                 : (flags & SQLITE_OPEN_MAIN_DB) ? &parts[0]
                 : (flags & SQLITE_OPEN_WAL)     ? &parts[1]
                                                 : NULL;
    return code;
}

/* Removing the log when the last connection closes: durable only with the folder, so it may or may not happen. Here it
 * does, which is the harder case for the database alone. */
static int on_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    size_t n = strlen(watched);
    if (strncmp(name, watched, n) == 0 && strcmp(name + n, "-wal") == 0) {
        drop_pending(&parts[1]);
        parts[1].n = 0;
        parts[1].exists = false;
    }
    return below->xDelete(below, name, sync);
}

void disk_begin(void)
{
    static sqlite3_vfs vfs;
    if (below == NULL) {
        below = sqlite3_vfs_find(NULL);
        vfs = *below;
        vfs.pNext = NULL;
        vfs.zName = "disk";
        vfs.szOsFile = (int)sizeof(struct disk_file) + below->szOsFile;
        vfs.xOpen = on_open;
        vfs.xDelete = on_delete;
        assert_int_equal(sqlite3_vfs_register(&vfs, 0), SQLITE_OK);
    }
    disk = (struct disk){.fail_at = UINT64_MAX, .cut_at = UINT64_MAX};
    watched[0] = '\0';
    disk_forget();
}

void disk_forget(void)
{
    for (int i = 0; i < PARTS; i++) {
        drop_pending(&parts[i]);
        free(parts[i].bytes);
        free(parts[i].pending);
        parts[i] = (struct part){0};
    }
}

/* ---- power cuts ---- */

static uint64_t random_of(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    return plim_hash_u64(*seed);
}

/* Each sector of each pending write got there, or not; order means nothing. */
static void apply_some(struct part *image, const struct pending *p, uint64_t *seed)
{
    if (p->data == NULL) {
        if (random_of(seed) % 2 == 0) {
            apply(image, p);
        }
        return;
    }
    unsigned share = (unsigned)(random_of(seed) % 5); /* nothing, some, half, most, all */
    for (int at = 0; at < p->n; at += SECTOR) {
        int n = p->n - at < SECTOR ? p->n - at : SECTOR;
        if (random_of(seed) % 4 < share) {
            struct pending piece = {p->at + at, n, p->data + at};
            apply(image, &piece);
        }
    }
}

static void cut_part(const struct part *part, const char *path, uint64_t *seed)
{
    struct part image = {.n = part->n, .cap = part->n + 1};
    image.bytes = malloc((size_t)image.cap);
    assert_non_null(image.bytes);
    if (part->n > 0) {
        memcpy(image.bytes, part->bytes, (size_t)part->n);
    }
    for (size_t i = 0; i < part->n_pending; i++) {
        apply_some(&image, &part->pending[i], seed);
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(image.bytes, 1, (size_t)image.n, file), image.n);
    assert_int_equal(fclose(file), 0);
    free(image.bytes);
}

void disk_cut(const char *folder, const char *name, uint64_t seed)
{
    static const char *const suffix[PARTS] = {"", "-wal"};
    char path[1024];
    for (int i = 0; i < PARTS; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix[i]);
        (void)remove(path);
        if (parts[i].exists || parts[i].n_pending > 0) {
            cut_part(&parts[i], path, &seed);
        }
    }
    (void)snprintf(path, sizeof(path), "%s/%s-shm", folder, name);
    (void)remove(path);
}
