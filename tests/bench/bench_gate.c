/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a decision takes with 10,000 live reservations, in nanoseconds, beside what everybody knows:
 * an uncontended pthread mutex, and a system call (getppid). One thread; each operation is timed by itself
 * with clock_gettime, whose own cost is measured and taken off.
 *
 *     bench_gate [ROUNDS]
 */

#include <plimsoll/gate.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIVE 10000u

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int rising(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

struct series {
    const char *name;
    uint32_t *ns; /* owned, [n] */
    size_t n;
};

static void note(struct series *s, uint64_t from, uint64_t clock)
{
    uint64_t took = now_ns() - from;
    s->ns[s->n++] = (uint32_t)(took > clock ? took - clock : 0);
}

static void print(struct series *s, double peer)
{
    qsort(s->ns, s->n, sizeof *s->ns, rising);
    uint32_t p50 = s->ns[s->n / 2];
    uint32_t p99 = s->ns[s->n * 99 / 100];
    printf("  %-34s %7" PRIu32 " %7" PRIu32 "   %6.2f\n", s->name, p50, p99,
           peer > 0 ? p50 / peer : 1);
}

static struct plimsoll_gate gate;

static uint64_t admit(uint64_t random, uint64_t now)
{
    struct plimsoll_gate_request r = {.prompt_tokens = 100 + (uint32_t)(random >> 50) % 4000,
                                      .max_tokens = 1024,
                                      .class_id = (uint32_t)(random >> 40) % 8};
    struct plimsoll_gate_decision d;
    if (plimsoll_gate_admit(&gate, &r, &d, now) != 0) {
        abort();
    }
    return d.id;
}

static uint64_t next(uint64_t *random)
{
    return *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
}

static void fill(uint64_t *ids)
{
    struct plimsoll_gate_config c;
    plimsoll_gate_defaults(&c);
    c.capacity_units = PLIMSOLL_GATE_UNITS_MAX;
    c.n_groups = 2; /* full attention and a window */
    c.groups[0] = (struct plimsoll_gate_group){.block_tokens = 16, .units_per_block = 1};
    c.groups[1] = (struct plimsoll_gate_group){
        .block_tokens = 16, .cap_tokens = 1024, .units_per_block = 5, .extra_blocks = 1};
    c.max_length = 131072;
    c.first_token_ns = UINT64_C(1) << 60;
    size_t bytes = plimsoll_gate_bytes(&c);
    void *memory = aligned_alloc(64, bytes); /* until the program ends */
    if (!memory || plimsoll_gate_create(&gate, memory, bytes, &c, now_ns()) != 0) {
        abort();
    }
    uint64_t random = 1;
    for (unsigned i = 0; i < LIVE; i++) {
        ids[i] = admit(next(&random), now_ns());
        (void)plimsoll_gate_extend(&gate, ids[i], 1 + i % 300, now_ns());
    }
}

enum {
    MUTEX,
    SYSCALL,
    ADMIT,
    EXTEND,
    RELEASE,
    REFUSE,
    SERIES
};

int main(int argc, char **argv)
{
    size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000;
    struct series all[SERIES] = {{.name = "pthread mutex, lock and unlock"},
                                 {.name = "system call (getppid)"},
                                 {.name = "admit, given"},
                                 {.name = "extend"},
                                 {.name = "release"},
                                 {.name = "admit, refused"}};
    static uint64_t ids[LIVE];
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    uint64_t random = 7;
    for (unsigned i = 0; i < SERIES; i++) {
        all[i].ns = calloc(rounds, sizeof *all[i].ns);
        if (!all[i].ns) {
            return 1;
        }
    }
    uint64_t clock = UINT64_MAX;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t from = now_ns();
        uint64_t took = now_ns() - from;
        clock = took < clock ? took : clock;
    }
    fill(ids);
    for (size_t i = 0; i < rounds; i++) {
        unsigned at = (unsigned)(next(&random) >> 33) % LIVE;
        uint64_t from = now_ns();
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        note(&all[MUTEX], from, clock);
        from = now_ns();
        (void)syscall(SYS_getppid);
        note(&all[SYSCALL], from, clock);
        from = now_ns();
        (void)plimsoll_gate_release(&gate, ids[at], 200, PLIMSOLL_GATE_STOPPED, from);
        note(&all[RELEASE], from, clock);
        from = now_ns();
        ids[at] = admit(random, from);
        note(&all[ADMIT], from, clock);
        unsigned other = (unsigned)(next(&random) >> 33) % LIVE;
        from = now_ns();
        (void)plimsoll_gate_extend(&gate, ids[other], (uint32_t)i % 800, from);
        note(&all[EXTEND], from, clock);
        if (ids[at] == 0) {
            return 1;
        }
    }
    (void)plimsoll_gate_resize(&gate, 1000, now_ns()); /* now nothing fits */
    for (size_t i = 0; i < rounds; i++) {
        uint64_t from = now_ns();
        if (admit(next(&random), from) != 0) {
            return 1;
        }
        note(&all[REFUSE], from, clock);
    }
    printf("%u live reservations, two groups of layers, 8 classes, %zu rounds; nanoseconds\n", LIVE,
           rounds);
    printf("  %-34s %7s %7s   %6s\n", "", "p50", "p99", "p50 / system call");
    print(&all[SYSCALL], 0);
    double peer = all[SYSCALL].ns[rounds / 2];
    for (unsigned i = 0; i < SERIES; i++) {
        if (i != SYSCALL) {
            print(&all[i], peer);
        }
    }
    for (unsigned i = 0; i < SERIES; i++) {
        free(all[i].ns);
    }
    return plimsoll_gate_check(&gate) ? 1 : 0;
}
