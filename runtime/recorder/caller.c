/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file a call came from, and whose memory that makes it.
 *
 * A small cache knows call sites; behind it are the ranges of files met so far; behind those
 * /proc/self/maps, read when a call comes from a file not met yet. The loader is never asked: its lock
 * may be held by a thread that waits for a lock of CUDA's which our caller holds. A file that was
 * closed and another one opened in its place is taken for the first one.
 */

#include "record.h"

#include "shm/process.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define SITES     1024u /* a power of two */
#define FILES     1024u
#define SITE_BITS 48 /* of an address; the rest holds the library's number */

static const char *const prefixes[] = {
#define PLIM__X(name, text, library) library,
    PLIM_OWNER_MAP(PLIM__X)
#undef PLIM__X
};

static uint64_t sites[SITES]; /* address << 16 | library; (atomic) */
static struct {
    uint64_t base, end;
    uint32_t owner;
} files[FILES]; /* by library, from 1; behind `lock` for writing, complete below n_files */
static uint32_t n_files;
static uint32_t lock;
static char program[PATH_MAX]; /* path of the executable */
static char line[PATH_MAX + 128];
static char chunk[4096];

static unsigned owner_of(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    for (unsigned i = 0; i < PLIM_OWNERS; i++) {
        if (prefixes[i][0] != '\0' && strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return i;
        }
    }
    return strcmp(path, program) == 0 ? PLIM_OWNER_APPLICATION : PLIM_OWNER_OTHER;
}

/* Lower-case hexadecimal digits at *at, which moves behind them. */
static uint64_t hex(const char **at)
{
    uint64_t value = 0;
    for (;; ++*at) {
        char c = **at;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit == 16) {
            return value;
        }
        value = value << 4 | digit;
    }
}

/* One line of maps: "base-end perms offset dev inode   path". path is "" when there is none. */
static const char *parse(const char *text, uint64_t *base, uint64_t *end)
{
    const char *at = text;
    *base = hex(&at);
    at += *at == '-';
    *end = hex(&at);
    for (int blanks = 0; blanks < 4 && *at != '\0'; at++) {
        blanks += *at == ' ';
    }
    at = strchr(at, '/');
    return at == NULL ? "" : at;
}

struct lines {
    int fd;
    size_t n, at; /* of chunk */
};

static bool next_line(struct lines *in)
{
    size_t n = 0;
    for (;;) {
        if (in->at == in->n) {
            ssize_t got = read(in->fd, chunk, sizeof chunk);
            if (got <= 0) {
                return false;
            }
            in->n = (size_t)got;
            in->at = 0;
        }
        char c = chunk[in->at++];
        if (c == '\n') {
            line[n] = '\0';
            return true;
        }
        if (n < sizeof line - 1) {
            line[n++] = c;
        }
    }
}

/* Find the file that is mapped at an address: its path into `path`, its whole extent. */
static bool search_maps(uint64_t addr, char path[PATH_MAX], uint64_t *base, uint64_t *end)
{
    struct lines in = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    bool hit = false;
    path[0] = '\0';
    while (in.fd >= 0 && next_line(&in)) {
        uint64_t from, to;
        const char *name = parse(line, &from, &to);
        if (name[0] != '\0' && strcmp(name, path) == 0) {
            *end = to; /* more of the same file */
        } else if (hit) {
            break;
        } else {
            *base = from;
            *end = to;
            (void)plim__shm_put_text(path, path + PATH_MAX - 1, name);
        }
        hit = hit || (addr >= from && addr < to);
    }
    if (in.fd >= 0) {
        (void)close(in.fd);
    }
    return hit && path[0] != '\0';
}

static unsigned known(uint64_t addr)
{
    uint32_t n = __atomic_load_n(&n_files, __ATOMIC_ACQUIRE);
    for (uint32_t i = 1; i < n; i++) {
        if (addr >= files[i].base && addr < files[i].end) {
            return i;
        }
    }
    return 0;
}

/* Behind the lock. */
static unsigned learn(uint64_t addr)
{
    static char path[PATH_MAX];
    uint64_t base, end;
    unsigned library = known(addr);
    if (library != 0 || !search_maps(addr, path, &base, &end)) {
        return library;
    }
    if (program[0] == '\0') {
        ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
        program[n > 0 ? n : 0] = '\0';
    }
    unsigned owner = owner_of(path);
    library = plim__shm_add_library(&plim__rec.shm, base, end, path, owner);
    if (library == 0 || library >= FILES) {
        return 0;
    }
    files[library].base = base;
    files[library].end = end;
    files[library].owner = owner;
    __atomic_store_n(&n_files, library + 1, __ATOMIC_RELEASE);
    return library;
}

unsigned plim__library(uintptr_t site, unsigned *owner)
{
    uint64_t addr = site & (((uint64_t)1 << SITE_BITS) - 1);
    uint64_t *slot = &sites[(addr * 0x9e3779b97f4a7c15u >> 40) & (SITES - 1)];
    uint64_t seen = __atomic_load_n(slot, __ATOMIC_RELAXED);
    unsigned library = (unsigned)(seen & 0xffff);
    if (seen >> 16 != addr) {
        library = known(addr);
        if (library == 0) {
            while (__atomic_exchange_n(&lock, 1u, __ATOMIC_ACQUIRE) != 0) {
                (void)sched_yield();
            }
            library = learn(addr);
            __atomic_store_n(&lock, 0u, __ATOMIC_RELEASE);
        }
        __atomic_store_n(slot, addr << 16 | library, __ATOMIC_RELAXED);
    }
    (void)__atomic_load_n(&n_files, __ATOMIC_ACQUIRE); /* files[library] is complete */
    *owner = library == 0 ? PLIM_OWNER_UNKNOWN : files[library].owner;
    return library;
}

void plim__libraries_reset(void)
{
    memset(sites, 0, sizeof sites);
    n_files = 0;
    lock = 0;
}
