/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configurations, and ledgers that are made, found and left.
 *
 * The magic is written last: memory without it is no ledger yet. A file is made and checked under flock(2),
 * which the kernel lets go of when the process dies, so that processes that start together agree who makes it.
 */

#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- configuration */

void plimsoll_gate_defaults(struct plimsoll_gate_config *config)
{
    *config = (struct plimsoll_gate_config){
        .size = sizeof *config,
        .unit_bytes = 1,
        .slots = 16384,
        .lease_ns = UINT64_C(60000000000),
        .high = 1,
        .low = 0.995,
        .margin = 2,
        .share = 0.7,
        .long_share = 0.5,
        .expected_output = 256,
        .oom_limit = 3,
        .oom_window_ns = UINT64_C(120000000000),
        .work_margin = 0.1,
    };
}

static bool within(double x, double low, double high)
{
    return x >= low && x <= high; /* false for what is no number */
}

static const char *groups_wrong(const struct plimsoll_gate_config *c)
{
    if (c->n_groups > PLIMSOLL_GATE_GROUPS || (c->n_groups == 0 && c->state_units == 0)) {
        return "n_groups";
    }
    for (uint32_t i = 0; i < c->n_groups; i++) {
        if (c->groups[i].block_tokens == 0 || c->groups[i].units_per_block == 0) {
            return "groups";
        }
    }
    return NULL;
}

static const char *shares_wrong(const struct plimsoll_gate_config *c)
{
    const struct {
        const char *name;
        double value, low, high;
    } rows[] = {
        {"high", c->high, 0.01, 10},
        {"low", c->low, 0.01, c->high},
        {"margin", c->margin, 0, 6},
        {"share", c->share, 0, 1},
        {"long_part", c->long_part, 0, 1},
        {"long_share", c->long_share, 0, 1},
        {"prefill_tokens_s", c->prefill_tokens_s, 0, 1e12},
        {"work_margin", c->work_margin, 0, 1},
        {"stranded_limit", c->stranded_limit, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!within(rows[i].value, rows[i].low, rows[i].high)) {
            return rows[i].name;
        }
    }
    return NULL;
}

const char *plimsoll_gate_wrong(const struct plimsoll_gate_config *c)
{
    if (c->size != sizeof *c) {
        return "size";
    }
    if (c->capacity_units == 0 || c->capacity_units > PLIMSOLL_GATE_UNITS_MAX) {
        return "capacity_units";
    }
    if (c->unit_bytes == 0) {
        return "unit_bytes";
    }
    if (c->slots == 0 || c->slots > PLIMSOLL_GATE_SLOTS_MAX) {
        return "slots";
    }
    if (c->waiters > PLIMSOLL_GATE_WAIT_MAX || c->waiters > c->slots) {
        return "waiters";
    }
    if (c->policy >= PLIMSOLL_GATE_POLICIES) {
        return "policy";
    }
    if (c->lease_ns == 0 || c->lease_ns > UINT64_MAX / 4) {
        return "lease_ns";
    }
    if (c->expected_output == 0) {
        return "expected_output";
    }
    if (c->oom_limit == 0) {
        return "oom_limit";
    }
    if (c->flags & ~PLIMSOLL_GATE_WORK_IN_POOL) {
        return "flags";
    }
    const char *wrong = groups_wrong(c);
    return wrong ? wrong : shares_wrong(c);
}

size_t plimsoll_gate_bytes(const struct plimsoll_gate_config *config)
{
    if (plimsoll_gate_wrong(config)) {
        return 0;
    }
    return sizeof(struct gate_head) + config->slots * sizeof(struct gate_slot);
}

void plimsoll_gate_config(const struct plimsoll_gate *gate, struct plimsoll_gate_config *out)
{
    *out = ((const struct gate *)(const void *)gate)->config;
}

/* ---- memory */

static void bind(struct gate *g, void *memory, const struct plimsoll_gate_config *config)
{
    *g = (struct gate){.head = memory, .config = *config};
    g->slots = (struct gate_slot *)(void *)((char *)memory + sizeof *g->head);
    g->bytes = plimsoll_gate_bytes(config);
}

/* Everything but the magic, and the slots: those from `fresh` on are never looked at. */
static void fill(struct gate *g, uint64_t now_ns)
{
    struct gate_head *head = g->head;
    memset(head, 0, sizeof *head);
    head->version = PLIMSOLL_GATE_VERSION;
    head->head_bytes = sizeof *head;
    head->slot_bytes = sizeof(struct gate_slot);
    head->bytes = g->bytes;
    head->config = g->config;
    head->now_ns = now_ns;
    head->capacity = g->config.capacity_units;
    head->free_head = GATE_NONE;
    head->random = (uint32_t)(now_ns ^ now_ns >> 32) | 1;
    head->pace.drain_ns = now_ns;
    head->pace.last_first_ns = now_ns;
    head->health = (struct gate_health){.used = UINT64_MAX,
                                        .preempted_seen = UINT64_MAX,
                                        .headroom = UINT64_MAX,
                                        .sharing = 1,
                                        .margin = g->config.margin,
                                        .share = g->config.share,
                                        .eased_ns = now_ns};
    for (uint32_t i = 0; i < PLIMSOLL_GATE_CLASSES; i++) {
        head->classes[i].weight = 1000;
        gate__lengths_init(&head->lengths[i], NULL, g->config.expected_output);
    }
}

int plimsoll_gate_create(struct plimsoll_gate *gate, void *memory, size_t bytes,
                         const struct plimsoll_gate_config *config, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    size_t need = plimsoll_gate_bytes(config);
    if (need == 0) {
        return PLIMSOLL_GATE_BAD_CONFIG;
    }
    if (bytes < need) {
        return PLIMSOLL_GATE_TOO_SMALL;
    }
    bind(g, memory, config);
    fill(g, now_ns);
    for (uint32_t i = 0; i < g->config.slots; i++) { /* old content would be taken for ids */
        g->slots[i].id = 0;
        g->slots[i].state = GATE_FREE;
    }
    g->process = gate__enlist(g);
    __atomic_store_n(&g->head->magic, GATE_MAGIC, __ATOMIC_RELEASE);
    return PLIMSOLL_GATE_OK;
}

/* Whether the memory says of itself that it is a ledger of this version and size. */
static bool sound(const struct gate_head *head, size_t bytes, struct plimsoll_gate_config *config)
{
    if (bytes < sizeof *head || __atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) != GATE_MAGIC ||
        head->version != PLIMSOLL_GATE_VERSION || head->head_bytes != sizeof *head ||
        head->slot_bytes != sizeof(struct gate_slot)) {
        return false;
    }
    *config = head->config; /* a copy, so that what is checked is what is used */
    size_t need = plimsoll_gate_bytes(config);
    return need > 0 && need <= bytes && head->bytes == need;
}

static int join(struct gate *g, uint64_t now_ns)
{
    g->process = 0;
    uint64_t word = gate__lock(g, now_ns);
    if (word == 0) {
        return PLIMSOLL_GATE_BUSY;
    }
    g->process = gate__enlist(g);
    gate__unlock(g, word);
    return g->process == GATE_NONE ? PLIMSOLL_GATE_NO_ROOM : PLIMSOLL_GATE_OK;
}

int plimsoll_gate_attach(struct plimsoll_gate *gate, void *memory, size_t bytes, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    struct plimsoll_gate_config config;
    if (!sound(memory, bytes, &config)) {
        return PLIMSOLL_GATE_BAD_LEDGER;
    }
    bind(g, memory, &config);
    return join(g, now_ns);
}

/* ---- file */

#define OPEN_TRIES 100  /* others may replace the file meanwhile */
#define REPLACE    (-1) /* only those that look on have it open: a new file takes its place */

/* What becomes of a ledger with another configuration. Processes of other pid namespaces count as live. */
static int other_config(const struct gate_head *head)
{
    int code = PLIMSOLL_GATE_OK;
    for (uint32_t i = 0; i < GATE_PROCESSES; i++) {
        const struct gate_process p = head->processes[i];
        if (p.pid != 0 && p.handles > 0 && !gate__gone(&p)) {
            code = REPLACE;
            if (p.doors > 0) {
                return PLIMSOLL_GATE_OTHER_CONFIG;
            }
        }
    }
    return code;
}

/* To the bit: a number that is written differently is another configuration. Another size of the pool is not: an engine that
 * comes back with less memory is the same server, and what was learned of its requests holds. */
static bool same(const struct plimsoll_gate_config *a, const struct plimsoll_gate_config *b)
{
    struct plimsoll_gate_config sized = *b;
    sized.capacity_units = a->capacity_units;
    const unsigned char *x = (const unsigned char *)a;
    const unsigned char *y = (const unsigned char *)&sized;
    size_t i = 0;
    while (i < sizeof *a && x[i] == y[i]) {
        i++;
    }
    return i == sizeof *a;
}

/* Attach to a ledger of another server's life, whose pool may have had another size. */
static int take_over(struct plimsoll_gate *gate, void *memory, size_t bytes,
                     const struct plimsoll_gate_config *config, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    int code = plimsoll_gate_attach(gate, memory, bytes, now_ns);
    if (code != PLIMSOLL_GATE_OK || g->config.capacity_units == config->capacity_units) {
        return code;
    }
    code = plimsoll_gate_resize(gate, config->capacity_units, now_ns);
    if (code != PLIMSOLL_GATE_OK) {
        plimsoll_gate_close(gate, now_ns);
        return code;
    }
    g->config.capacity_units = config->capacity_units;
    g->head->config.capacity_units = config->capacity_units; /* under flock */
    return code;
}

/* Whether a ledger may be made in this file: it is empty, a ledger of whatever version, or one whose maker died before it wrote
 * the magic. Anything else is somebody's file, and a path that was mistyped. */
static bool may_become(int fd, const struct stat *st)
{
    uint64_t magic = 0;
    return st->st_size == 0 || (pread(fd, &magic, sizeof magic, 0) == (ssize_t)sizeof magic &&
                                (magic == 0 || magic == GATE_MAGIC));
}

/* Under flock: the file in memory, with room for a ledger of this configuration. NULL: *code says why. */
static void *map_file(int fd, const struct plimsoll_gate_config *config, struct stat *st,
                      size_t *bytes, int *code)
{
    *code = PLIMSOLL_GATE_NO_FILE;
    if (fstat(fd, st) != 0) {
        return NULL;
    }
    if (!S_ISREG(st->st_mode) || (st->st_uid != geteuid() && st->st_uid != 0)) {
        errno = EPERM;
        return NULL;
    }
    size_t need = config ? plimsoll_gate_bytes(config) : 0;
    size_t have = st->st_size > 0 ? (size_t)st->st_size : 0;
    *bytes = have > need ? have : need;
    if (*bytes == 0 || (config && !may_become(fd, st))) {
        *code = PLIMSOLL_GATE_BAD_LEDGER;
        return NULL;
    }
    /* All of it now: a page that a full file system cannot give later is a SIGBUS, and the end of the server. */
    int wrong = config ? posix_fallocate(fd, 0, (off_t)*bytes) : 0;
    if (wrong != 0) {
        errno = wrong;
        return NULL;
    }
    void *memory = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Under flock: attach to what is in the file, or make it. */
static int settle(struct plimsoll_gate *gate, int fd, const struct plimsoll_gate_config *config,
                  uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    struct stat st;
    size_t map = 0;
    int code = PLIMSOLL_GATE_NO_FILE;
    void *memory = map_file(fd, config, &st, &map, &code);
    if (memory == NULL) {
        return code;
    }
    size_t have = (size_t)st.st_size;
    struct plimsoll_gate_config found;
    bool is = sound(memory, have, &found);
    if (is && !config) {
        code = plimsoll_gate_attach(gate, memory, map, now_ns);
    } else if (!config) {
        code = PLIMSOLL_GATE_BAD_LEDGER;
    } else if (is && same(&found, config) &&
               (found.capacity_units == config->capacity_units ||
                other_config(memory) != PLIMSOLL_GATE_OTHER_CONFIG)) {
        code = take_over(gate, memory, map, config, now_ns);
    } else if (!is || (code = other_config(memory)) == PLIMSOLL_GATE_OK) {
        memset(memory, 0, sizeof(uint64_t)); /* no ledger while it is made */
        code = plimsoll_gate_create(gate, memory, map, config, now_ns);
    }
    g->mapped = code == PLIMSOLL_GATE_OK;
    g->door = config != NULL;
    g->bytes = map;
    g->device = (uint64_t)st.st_dev;
    g->inode = (uint64_t)st.st_ino;
    if (code == PLIMSOLL_GATE_OK && config) {
        g->head->processes[g->process].doors++; /* under flock, as every opener */
    }
    if (code != PLIMSOLL_GATE_OK) {
        (void)munmap(memory, map);
    }
    return code;
}

bool plimsoll_gate_replaced(const struct plimsoll_gate *gate, const char *path)
{
    const struct gate *g = (const struct gate *)(const void *)gate;
    struct stat st;
    return g->mapped != 0 && (stat(path, &st) != 0 || (uint64_t)st.st_dev != g->device ||
                              (uint64_t)st.st_ino != g->inode);
}

/* Whether the file that was locked is still the one of that name. */
static bool is_at(int fd, const char *path)
{
    struct stat open_one;
    struct stat named;
    return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 &&
           open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* One try; REPLACE: another is due. */
static int open_once(struct plimsoll_gate *gate, const char *path,
                     const struct plimsoll_gate_config *config, uint64_t now_ns)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (config ? O_CREAT : 0), 0600);
    if (fd < 0) {
        return PLIMSOLL_GATE_NO_FILE;
    }
    int code = PLIMSOLL_GATE_NO_FILE;
    if (flock(fd, LOCK_EX) == 0) {
        code = is_at(fd, path) ? settle(gate, fd, config, now_ns) : REPLACE;
        if (code == REPLACE && is_at(fd, path) && unlink(path) != 0) {
            code = PLIMSOLL_GATE_OTHER_CONFIG;
        }
        int before = errno;
        (void)flock(fd, LOCK_UN); /* the mapping keeps the file open, and would keep the lock */
        errno = before;
    }
    int saved = errno;
    (void)close(fd);
    errno = saved;
    return code;
}

int plimsoll_gate_open(struct plimsoll_gate *gate, const char *path,
                       const struct plimsoll_gate_config *config, uint64_t now_ns)
{
    if (config && plimsoll_gate_wrong(config)) {
        return PLIMSOLL_GATE_BAD_CONFIG;
    }
    int code = REPLACE;
    for (unsigned i = 0; code == REPLACE && i < OPEN_TRIES; i++) {
        code = open_once(gate, path, config, now_ns);
    }
    return code == REPLACE ? PLIMSOLL_GATE_BUSY : code;
}

void plimsoll_gate_close(struct plimsoll_gate *gate, uint64_t now_ns)
{
    struct gate *g = gate_of(gate);
    uint64_t word = g->head ? gate__lock(g, now_ns) : 0;
    if (word != 0) {
        struct gate_process *p = &g->head->processes[g->process < GATE_PROCESSES ? g->process : 0];
        p->handles -= p->handles > 0;
        p->doors -= g->door && p->doors > 0;
        for (uint32_t i = 0; p->handles == 0 && i < g->head->fresh && i < g->config.slots; i++) {
            struct gate_slot *s = &g->slots[i];
            if (s->process == g->process && !s->leased &&
                (s->state == GATE_LIVE || s->state == GATE_WAITING)) {
                g->head->cancelled++;
                gate__slot_free(g, s);
            }
        }
        if (p->handles == 0 && p->live == 0) {
            *p = (struct gate_process){0};
        }
        gate__unlock(g, word);
    }
    if (g->mapped) {
        (void)munmap(g->head, g->bytes);
    }
    *g = (struct gate){0};
}
