/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ustar (POSIX.1-1988), a head of 512 bytes before each file:
 *
 *   0 name[100]  100 mode[8]  108 uid[8]  116 gid[8]  124 size[12]  136 mtime[12]
 *   148 checksum[8]  156 type
 *   157 link[100]  257 "ustar\0" "00"  265 user[32]  297 group[32]  345 prefix[155]
 *
 * Numbers are octal text. The checksum is the sum of all bytes of the head with its own eight as
 * blanks. The file's bytes follow, filled up to 512. Two blocks of zeros end the archive.
 */

#include "incident/archive.h"

#include "base/arena.h"
#include "base/intern.h"
#include "base/num.h"
#include "format/decode.h"
#include "incident/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define BLOCK 512u

struct head {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
    char magic[8], user[32], group[32], major[8], minor[8], prefix[155], fill[12];
};
_Static_assert(sizeof(struct head) == BLOCK, "a head is one block");

static unsigned checksum(const struct head *h)
{
    const unsigned char *p = (const unsigned char *)h;
    unsigned sum = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        bool own = i >= offsetof(struct head, checksum) && i < offsetof(struct head, type);
        sum += own ? ' ' : p[i];
    }
    return sum;
}

/* ---- writing ---- */

struct writer {
    int fd;
    ZSTD_CStream *zstd;
    char out[1 << 16];
};

static int put_bytes(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno != EINTR) {
            return errno;
        }
        p += put > 0 ? put : 0;
        n -= put > 0 ? (size_t)put : 0;
    }
    return 0;
}

/* Returns 0 or an errno. */
static int put(struct writer *w, const void *p, size_t n, ZSTD_EndDirective end)
{
    ZSTD_inBuffer in = {p, n, 0};
    size_t left;
    do {
        ZSTD_outBuffer out = {w->out, sizeof(w->out), 0};
        left = ZSTD_compressStream2(w->zstd, &out, &in, end);
        if (ZSTD_isError(left)) {
            return ENOMEM;
        }
        int e = put_bytes(w->fd, w->out, out.pos);
        if (e != 0) {
            return e;
        }
    } while (in.pos < in.size || (end == ZSTD_e_end && left > 0));
    return 0;
}

static enum plim_status put_head(struct writer *w, const char *top, const char *name, char type,
                                 const struct stat *info, struct plim_err *err)
{
    struct head h = {0};
    int n = snprintf(h.name, sizeof(h.name), "%s/%s", top, name);
    if (n < 0 || (size_t)n >= sizeof(h.name) || (uint64_t)info->st_size > PLIM_ARCHIVE_FILE) {
        return plim__fail(err, PLIM_E_RANGE, "'%.100s' is too long for an archive", name);
    }
    uint64_t mtime = info->st_mtime > 0 ? (uint64_t)info->st_mtime : 0;
    (void)snprintf(h.mode, sizeof(h.mode), "%07o", type == '5' ? 0755U : 0644U);
    (void)snprintf(h.uid, sizeof(h.uid), "%07o", 0U);
    (void)snprintf(h.gid, sizeof(h.gid), "%07o", 0U);
    (void)snprintf(h.size, sizeof(h.size), "%011llo",
                   type == '5' ? 0ULL : (unsigned long long)info->st_size);
    (void)snprintf(h.mtime, sizeof(h.mtime), "%011llo",
                   (unsigned long long)(mtime & ((UINT64_C(1) << 33) - 1)));
    h.type = type;
    memcpy(h.magic, "ustar\00000", 8);
    (void)snprintf(h.checksum, sizeof(h.checksum), "%06o", checksum(&h));
    h.checksum[7] = ' ';
    int e = put(w, &h, sizeof(h), ZSTD_e_continue);
    return e != 0 ? plim__fail_errno(err, PLIM_E_IO, e, "cannot write the archive") : PLIM_OK;
}

static enum plim_status put_file(struct writer *w, const char *folder, const char *top,
                                 const char *name, struct plim_err *err)
{
    static const char zeros[BLOCK];
    char path[4096];
    struct stat info;
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof(path) || lstat(path, &info) != 0) {
        return plim__fail_errno(err, PLIM_E_NOINPUT, errno, "cannot read '%.150s'", name);
    }
    if (!S_ISREG(info.st_mode)) {
        return PLIM_OK;
    }
    struct plim_mapping map;
    PLIM_TRY(plim_file_map(path, &map, err));
    info.st_size = (off_t)map.n;
    enum plim_status st = put_head(w, top, name, '0', &info, err);
    if (st == PLIM_OK) {
        size_t fill = (BLOCK - map.n % BLOCK) % BLOCK;
        int e = put(w, map.p != NULL ? map.p : "", map.n, ZSTD_e_continue);
        e = e == 0 ? put(w, zeros, fill, ZSTD_e_continue) : e;
        st = e != 0 ? plim__fail_errno(err, PLIM_E_IO, e, "cannot write the archive") : PLIM_OK;
    }
    plim_file_unmap(&map);
    return st;
}

static enum plim_status put_all(struct writer *w, const char *folder, const char *top,
                                const struct plim_names *names, struct plim_err *err)
{
    static const char zeros[2 * BLOCK];
    struct stat info;
    if (stat(folder, &info) != 0) {
        return plim__fail_errno(err, PLIM_E_NOINPUT, errno, "cannot open '%.150s'", folder);
    }
    PLIM_TRY(put_head(w, top, "", '5', &info, err));
    for (size_t i = 0; i < names->list.n; i++) {
        PLIM_TRY(put_file(w, folder, top, names->list.items[i], err));
    }
    int e = put(w, zeros, sizeof(zeros), ZSTD_e_end);
    e = e == 0 && fsync(w->fd) != 0 ? errno : e;
    return e != 0 ? plim__fail_errno(err, PLIM_E_IO, e, "cannot write the archive") : PLIM_OK;
}

enum plim_status plim_archive_write(const char *folder, const char *top, const char *path,
                                    struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_names names = {0};
    plim_arena_init(&arena, 0);
    const char *temporary = plim_arena_sayf(&arena, "%s.%d.tmp", path, getpid());
    struct writer *w = calloc(1, sizeof(*w));
    enum plim_status st = plim__folder_names(folder, "", &arena, &names, err);
    if (st == PLIM_OK && (w == NULL || (w->zstd = ZSTD_createCStream()) == NULL || arena.starved)) {
        st = plim__fail(err, PLIM_E_NOMEM, "no memory to write an archive");
    }
    if (st == PLIM_OK) {
        w->fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (w->fd < 0) {
            st = plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot create '%.150s'", path);
        } else {
            st = put_all(w, folder, top, &names, err);
            if (close(w->fd) != 0 && st == PLIM_OK) {
                st = plim__fail_errno(err, PLIM_E_IO, errno, "cannot write '%.150s'", path);
            }
            if (st == PLIM_OK && rename(temporary, path) != 0) {
                st = plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot write '%.150s'", path);
            }
            (void)(st != PLIM_OK ? unlink(temporary) : 0);
        }
    }
    if (w != NULL) {
        (void)ZSTD_freeCStream(w->zstd);
    }
    free(w);
    plim_vec_fini(&names.list);
    plim_arena_fini(&arena);
    return st;
}

/* ---- reading ---- */

enum plim_status plim_archive_from(struct plim_source file, struct plim_archive *out,
                                   struct plim_err *err)
{
    *out = (struct plim_archive){.file = file};
    enum plim_status st = plim__decode_zstd(&out->file, &out->bytes, err);
    if (st != PLIM_OK) {
        plim_source_close(&out->file);
    }
    return st;
}

enum plim_status plim_archive_open(const char *path, struct plim_archive *out, struct plim_err *err)
{
    struct plim_source file;
    PLIM_TRY(plim_source_open(path, &file, err));
    return plim_archive_from(file, out, err);
}

void plim_archive_close(struct plim_archive *a)
{
    plim_source_close(&a->bytes);
    plim_source_close(&a->file);
    plim_map_fini(&a->seen);
}

static enum plim_status fault(const struct plim_archive *a, enum plim_status status,
                              struct plim_err *err, const char *what)
{
    enum plim_status st = plim__fail(err, status, "%s", what);
    plim__err_where(err, "archive %.60s: byte", a->file.name);
    plim__err_at(err, a->position);
    return st;
}

/* Exactly n bytes; *end (nullable) is set instead when there is not one left. */
static enum plim_status fetch(struct plim_archive *a, char *dst, size_t n, bool *end,
                              struct plim_err *err)
{
    size_t fill = 0;
    while (fill < n) {
        size_t got = 0;
        PLIM_TRY(a->bytes.read(a->bytes.self, dst + fill, n - fill, &got, err));
        if (got == 0) {
            if (fill == 0 && end != NULL) {
                *end = true;
                return PLIM_OK;
            }
            return fault(a, PLIM_E_TRUNCATED, err, "the archive ends too early");
        }
        fill += got;
    }
    a->position += n;
    return PLIM_OK;
}

static bool octal(const char *p, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    while (i < n && p[i] == ' ') {
        i++;
    }
    size_t start = i;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    *out = v;
    return i > start && (i == n || p[i] == ' ' || p[i] == '\0');
}

static bool is_name(const char *p, size_t n)
{
    if (n == 0 || p[0] == '.' || p[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)p[i] <= ' ' || (unsigned char)p[i] >= 0x7f || p[i] == '/' ||
            p[i] == '\\') {
            return false;
        }
    }
    return true;
}

/* FOLDER/FILE, or FOLDER/ for the folder itself; the same folder everywhere. */
static bool take_name(struct plim_archive *a, const struct head *h)
{
    size_t n = strnlen(h->name, sizeof(h->name));
    const char *slash = memchr(h->name, '/', n);
    if (h->prefix[0] != '\0' || slash == NULL || n >= sizeof(h->name)) {
        return false;
    }
    size_t top = (size_t)(slash - h->name), rest = n - top - 1;
    bool folder = h->type == '5';
    if (!is_name(h->name, top) || (folder ? rest != 0 : !is_name(slash + 1, rest))) {
        return false;
    }
    if (a->top[0] != '\0' && (strlen(a->top) != top || memcmp(a->top, h->name, top) != 0)) {
        return false;
    }
    memcpy(a->top, h->name, top);
    a->top[top] = '\0';
    memcpy(a->name, slash + 1, rest);
    a->name[rest] = '\0';
    return true;
}

static enum plim_status check_head(struct plim_archive *a, const struct head *h,
                                   struct plim_err *err)
{
    uint64_t sum, size;
    if (memcmp(h->magic, "ustar", 5) != 0 || !octal(h->checksum, sizeof(h->checksum), &sum) ||
        sum != checksum(h)) {
        return fault(a, PLIM_E_DATA, err, "not the head of a file in a tar archive");
    }
    if (h->type != '0' && h->type != '\0' && h->type != '5') {
        return fault(a, PLIM_E_UNSAFE, err,
                     "the archive holds something that is no regular file: refused");
    }
    if (!take_name(a, h)) {
        return fault(a, PLIM_E_UNSAFE, err, "a name in the archive leads elsewhere: refused");
    }
    if (!octal(h->size, sizeof(h->size), &size)) {
        return fault(a, PLIM_E_DATA, err, "a size in the archive is no number");
    }
    size = h->type == '5' ? 0 : size;
    if (size > PLIM_ARCHIVE_FILE || a->position + size > PLIM_ARCHIVE_BYTES ||
        a->seen.n >= PLIM_ARCHIVE_MEMBERS) {
        return fault(a, PLIM_E_BUDGET, err, "the archive is too large");
    }
    uint64_t key = plim_hash_bytes(a->name, strlen(a->name)) >> 1; /* never PLIM_MAP_NO_KEY */
    if (plim_map_get(&a->seen, key) != NULL) {
        return fault(a, PLIM_E_UNSAFE, err, "a name stands twice in the archive: refused");
    }
    PLIM_TRY(plim_map_put(&a->seen, key, 1, err));
    a->size = a->left = size;
    a->padding = (BLOCK - size % BLOCK) % BLOCK;
    return PLIM_OK;
}

static bool is_zero(const struct head *h)
{
    const char *p = (const char *)h;
    for (size_t i = 0; i < BLOCK; i++) {
        if (p[i] != 0) {
            return false;
        }
    }
    return true;
}

static enum plim_status skip(struct plim_archive *a, struct plim_err *err)
{
    char waste[8192];
    uint64_t n = a->left + a->padding;
    while (n > 0) {
        size_t part = (size_t)plim_min_u64(n, sizeof(waste));
        PLIM_TRY(fetch(a, waste, part, NULL, err));
        n -= part;
    }
    a->left = a->padding = 0;
    return PLIM_OK;
}

enum plim_status plim_archive_next(struct plim_archive *a, bool *more, struct plim_err *err)
{
    struct head h;
    while (!a->ended) {
        PLIM_TRY(skip(a, err));
        PLIM_TRY(fetch(a, (char *)&h, sizeof(h), &a->ended, err));
        a->ended = a->ended || is_zero(&h);
        if (a->ended) {
            break;
        }
        PLIM_TRY(check_head(a, &h, err));
        if (h.type != '5') {
            *more = true;
            return PLIM_OK;
        }
    }
    *more = false;
    return PLIM_OK;
}

enum plim_status plim_archive_read(struct plim_archive *a, void *dst, size_t n, size_t *got,
                                   struct plim_err *err)
{
    size_t part = (size_t)plim_min_u64(a->left, n), have = 0;
    if (part > 0) {
        PLIM_TRY(a->bytes.read(a->bytes.self, dst, part, &have, err));
        if (have == 0) {
            return fault(a, PLIM_E_TRUNCATED, err, "the archive ends too early");
        }
    }
    a->left -= have;
    a->position += have;
    *got = have;
    return PLIM_OK;
}
