/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which entry points of the installed driver and runtime the recorder covers.
 *
 * What a library exports is read from its symbol table in memory: the recorder's tables say which of
 * those it hooks, and which it passes on purpose; a name that looks like memory and is in neither is one
 * that this version of the recorder does not know, and is named.
 */

#include "base/arena.h"
#include "device/doctor.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define NAMED 6 /* unknown entry points that are named; the others are counted */

#define LOOKUP(level, symbol, since) {#symbol, #level[0] == 'D'},
#define ALIAS(base, symbol, since)
#define HOOK(level, symbol, since, kind, params, args, before, after) {#symbol, #level[0] == 'D'},
static const struct {
    const char *symbol;
    bool driver;
} hooked[] = {
#include "recorder/hooks.def"
};
#undef HOOK
#undef ALIAS
#undef LOOKUP

static const char *const words[] = {
#define WORD(text) text,
#define PASSED(symbol, reason)
#include "recorder/coverage.def"
#undef PASSED
#undef WORD
};
static const char *const passed[] = {
#define WORD(text)
#define PASSED(symbol, reason) #symbol,
#include "recorder/coverage.def"
#undef PASSED
#undef WORD
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Whether `base` is the name without _v2, _v3, ... and _ptsz or _ptds. */
static bool has_base(const char *name, const char *base)
{
    size_t n = strlen(base);
    if (strncmp(name, base, n) != 0) {
        return false;
    }
    const char *rest = name + n;
    if (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '2' && rest[2] <= '9') {
        rest += 3;
    }
    return *rest == '\0' || strcmp(rest, "_ptsz") == 0 || strcmp(rest, "_ptds") == 0;
}

static bool is_known(const char *name)
{
    bool memory = false;
    for (size_t i = 0; i < COUNT(words); i++) {
        memory = memory || strstr(name, words[i]) != NULL;
    }
    for (size_t i = 0; memory && i < COUNT(hooked); i++) {
        memory = strcmp(name, hooked[i].symbol) != 0;
    }
    for (size_t i = 0; memory && i < COUNT(passed); i++) {
        memory = !has_base(name, passed[i]);
    }
    return !memory;
}

/* A library's symbol table, as its dynamic section gives it. */
struct symbols {
    const ElfW(Sym) * table;
    const char *strings;
    size_t n;
};

/* The number of symbols from the GNU hash table: behind the last one of the last chain. */
static size_t count_gnu(const uint32_t *hash)
{
    uint32_t n_buckets = hash[0], first = hash[1], bloom = hash[2], last = 0;
    const uint32_t *buckets = hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chains = buckets + n_buckets;
    for (uint32_t i = 0; i < n_buckets; i++) {
        last = buckets[i] > last ? buckets[i] : last;
    }
    if (last < first) {
        return first;
    }
    while ((chains[last - first] & 1) == 0) {
        last++;
    }
    return (size_t)last + 1;
}

static struct symbols symbols_of(void *library)
{
    struct link_map *map = NULL;
    struct symbols s = {0};
    if (dlinfo(library, RTLD_DI_LINKMAP, (void *)&map) != 0 || map == NULL) {
        return s;
    }
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)(uintptr_t)d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB) {
            s.table = at;
        } else if (d->d_tag == DT_STRTAB) {
            s.strings = at;
        } else if (d->d_tag == DT_GNU_HASH) {
            s.n = count_gnu(at);
        } else if (d->d_tag == DT_HASH && s.n == 0) {
            s.n = ((const uint32_t *)at)[1];
        }
    }
    s.n = s.table == NULL || s.strings == NULL ? 0 : s.n;
    return s;
}

/* Names of entry points that the recorder does not know: how many, and the first of them. */
static size_t unknown(void *library, char text[256])
{
    struct symbols s = symbols_of(library);
    size_t n = 0, used = 0;
    for (size_t i = 0; i < s.n; i++) {
        const char *name = s.strings + s.table[i].st_name;
        bool function = (s.table[i].st_info & 15) == STT_FUNC && s.table[i].st_shndx != SHN_UNDEF;
        if (!function || strncmp(name, "cu", 2) != 0 || is_known(name)) {
            continue;
        }
        if (n < NAMED && used + strlen(name) + 3 < 256) {
            used += (size_t)snprintf(text + used, 256 - used, "%s%s", n == 0 ? "" : ", ", name);
        }
        n++;
    }
    return n;
}

static enum plim_status check_library(struct plim_checks *checks, const char *id, const char *title,
                                      const char *file, bool driver, struct plim_err *err)
{
    struct plim_check check = {.id = id, .title = title};
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    char names[256] = "";
    size_t here = 0, all = 0;
    if (library == NULL) {
        return PLIM_OK; /* another check says so */
    }
    for (size_t i = 0; i < COUNT(hooked); i++) {
        if (hooked[i].driver == driver) {
            all++;
            here += dlsym(library, hooked[i].symbol) != NULL;
        }
    }
    size_t n = unknown(library, names);
    (void)dlclose(library);
    if (n == 0) {
        PLIM_TRY(
            plim_check_text(checks, &check.detail, err,
                            "%s has %zu of the %zu entry points that are recorded, and no other "
                            "that changes device memory",
                            file, here, all));
    } else {
        check.status = PLIM_CHECK_WARN;
        check.advice = "what these take shows as memory of nobody; a newer Plimsoll may know them";
        PLIM_TRY(
            plim_check_text(checks, &check.detail, err,
                            "%s has %zu of the %zu entry points that are recorded, and %zu more "
                            "that may change device memory: %s%s",
                            file, here, all, n, names, n > NAMED ? ", ..." : ""));
    }
    return plim_check_add(checks, check, err);
}

enum plim_status plim_doctor_recorder(struct plim_checks *checks, struct plim_err *err)
{
    static const char *const runtimes[] = {"libcudart.so.13", "libcudart.so.12"};
    PLIM_TRY(
        check_library(checks, "recorder.driver", "Recorder and driver", "libcuda.so.1", true, err));
    for (size_t i = 0; i < COUNT(runtimes); i++) {
        PLIM_TRY(check_library(checks, "recorder.runtime", "Recorder and runtime", runtimes[i],
                               false, err));
    }
    return PLIM_OK;
}
