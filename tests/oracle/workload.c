/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of both sides: reads arguments key=value, draws operations from a seeded generator, and
 * writes records. It knows nothing of either side but workload.h.
 *
 * Usage: oracle_model|oracle_real LOG [key=value ...]      LOG "-" writes none
 */

#include "workload.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

static FILE *log_file;
static uint64_t records;
static uint64_t events;
static uint64_t calls;

/* ---- records ------------------------------------------------------------------------------------ */

void ow_put(enum ow_tag tag, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t record[5] = {(uint64_t)tag, a, b, c, d};
    records++;
    events += tag == OW_EVENT;
    calls += tag == OW_CALL;
    if (log_file && fwrite(record, sizeof record, 1, log_file) != 1) {
        perror("log");
        exit(1);
    }
}

void ow_text(const char *text)
{
    size_t n = strlen(text);
    for (size_t at = 0; at < n; at += 24) {
        uint64_t part[3] = {0, 0, 0};
        memcpy(part, text + at, n - at < 24 ? n - at : 24);
        ow_put(OW_TEXT, part[0], part[1], part[2], at);
    }
}

uint64_t ow_rel(uint64_t addr)
{
    return addr == 0 ? 0 : addr - OW_ORIGIN;
}

int64_t ow_stream_id(unsigned i)
{
    /* c10/cuda/CUDAStream.cpp: index in the pool above four bits of type (1 = normal priority) and a
     * final 1; the default stream is 0. Checked against the real side when it opens. */
    return i == 0 ? 0 : (int64_t)((i - 1) << 5 | 1 << 1 | 1);
}

/* ---- random -------------------------------------------------------------------------------------- */

/* SplitMix64 (public domain, Sebastiano Vigna). */
static uint64_t rng;

static uint64_t draw(void)
{
    uint64_t z = (rng += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t n)
{
    return draw() % n;
}

static double unit(void)
{
    return (double)(draw() >> 11) * 0x1p-53;
}

/* Log-uniform between two powers of two. */
static uint64_t between(double low, double high)
{
    return (uint64_t)exp2(low + unit() * (high - low));
}

/* ---- sizes --------------------------------------------------------------------------------------- */

static uint64_t size_edge(void)
{
    static const uint64_t edges[] = {512,      1024,     4096,      512 * KIB, MIB,
                                     2 * MIB,  9 * MIB,  10 * MIB,  12 * MIB,  20 * MIB,
                                     22 * MIB, 32 * MIB, 40 * MIB,  63 * MIB,  64 * MIB,
                                     65 * MIB, 84 * MIB, 100 * MIB, 128 * MIB, 200 * MIB};
    static const int64_t offsets[] = {-513, -512, -511, -1, 0, 1, 511, 512, 513, -65536, 65536};
    uint64_t edge = edges[below(sizeof edges / sizeof edges[0])];
    int64_t off = offsets[below(sizeof offsets / sizeof offsets[0])];
    return (int64_t)edge + off < 1 ? 1 : edge + (uint64_t)off;
}

/* What a program with a few layers asks for: few different sizes, each many times. */
static uint64_t size_shape(void)
{
    static const uint64_t shapes[] = {4,        8 * KIB,       16 * KIB, 512 * KIB, 1536 * KIB,
                                      3 * MIB,  3 * MIB + 256, 6 * MIB,  8 * MIB,   16 * MIB,
                                      24 * MIB, 33 * MIB,      50 * MIB, 96 * MIB};
    return shapes[below(sizeof shapes / sizeof shapes[0])];
}

static uint64_t size_draw(const char *kind, uint64_t total)
{
    if (strcmp(kind, "edge") == 0) {
        return size_edge();
    }
    if (strcmp(kind, "small") == 0) {
        return between(0, 20.3);
    }
    if (strcmp(kind, "shapes") == 0) {
        return size_shape();
    }
    if (strcmp(kind, "huge") == 0) {
        return below(8) ? between(20, 28) : below(total + total / 4);
    }
    if (strcmp(kind, "bench-repeat") == 0) {
        return 4 * MIB;
    }
    if (strcmp(kind, "bench-mix") == 0) {
        return between(9, 24);
    }
    if (strcmp(kind, "bench-small") == 0) {
        return between(9, 20);
    }
    return below(3) ? between(0, 27.6) : size_edge(); /* mixed */
}

/* ---- operations ----------------------------------------------------------------------------------- */

static struct ow_config config;
static bool full[OW_SLOTS];
static unsigned home[OW_SLOTS]; /* stream the block was allocated on */
static bool shared[OW_SLOTS];   /* used on another stream too */
static bool pool_alive[OW_POOLS];
static unsigned capturing; /* stream under capture, 0 = none */
static bool held;          /* a shared block was freed during this capture */
static bool changed;       /* conf2 is in force */

static void pool_make(unsigned i)
{
    side_pool_new(i, i == 1, i == 2);
    pool_alive[i] = true;
}

/*
 * Shared blocks freed during a capture complete together after it, in the order of a table that PyTorch
 * keys by host pointers. Nobody can foresee that order, so at most one such block is freed in a capture.
 */
static void slot_free(unsigned slot)
{
    if (capturing && shared[slot]) {
        if (held) {
            return;
        }
        held = true;
    }
    side_free(slot);
    full[slot] = false;
}

static void rare_pool(void)
{
    unsigned i = (unsigned)below(config.pools);
    if (capturing) {
        return;
    }
    if (pool_alive[i]) {
        side_pool_drop(i);
        pool_alive[i] = false;
    } else {
        pool_make(i);
    }
}

static void rare_capture(void)
{
    if (!capturing && config.streams > 1 && pool_alive[0]) {
        capturing = 1 + (unsigned)below(config.streams - 1);
        ow_put(OW_OP, capturing, 0, 0, 2);
        side_capture(capturing, 0, true);
    } else if (capturing) {
        ow_put(OW_OP, 0, 0, 0, 2);
        side_capture(capturing, 0, false);
        capturing = 0;
    }
}

static void rare_burst(void)
{
    uint64_t odds = 2 + below(6);
    for (unsigned i = 0; i < config.slots; i++) {
        if (full[i] && below(odds)) {
            slot_free(i);
        }
    }
}

static void operation_rare(void)
{
    unsigned kind = (unsigned)below(6);
    if (!(config.rare & (1u << kind))) {
        return;
    }
    switch (1u << kind) {
    case OW_RARE_EMPTY:
        if (!capturing) {
            side_empty(config.pools && below(3) == 0 ? 1 + (unsigned)below(config.pools) : 0);
        }
        break;
    case OW_RARE_FRACTION:
        side_fraction(below(2) ? 1.0 : 0.5 + 0.5 * unit());
        break;
    case OW_RARE_BURST:
        rare_burst();
        break;
    case OW_RARE_RESET:
        side_reset(below(2) == 0);
        break;
    case OW_RARE_POOL:
        if (config.pools) {
            rare_pool();
        }
        break;
    case OW_RARE_CAPTURE:
        rare_capture();
        break;
    default:
        break;
    }
}

static void operation_slot(void)
{
    unsigned slot = (unsigned)below(config.slots);
    unsigned stream = (unsigned)below(config.streams);
    unsigned pool = config.pools && below(4) == 0 ? 1 + (unsigned)below(config.pools) : 0;
    uint64_t size = size_draw(config.sizes, config.total);
    uint64_t luck = below(100);
    if (capturing) {
        stream = capturing; /* as in a program: the capturing stream is the current one */
        pool = 1;
    } else if (pool && !pool_alive[pool - 1]) {
        pool = 0;
    }
    if (!full[slot]) {
        if (luck < config.fill) {
            full[slot] = side_alloc(slot, size, stream, pool);
            home[slot] = stream;
            shared[slot] = false;
            held = held && capturing; /* a request outside completes it */
        }
    } else if (config.streams > 1 && luck < 30 && !(capturing && held)) {
        unsigned other = (unsigned)below(config.streams);
        shared[slot] = shared[slot] || other != home[slot];
        ow_put(OW_OP, slot, other, capturing, 1);
        side_record(slot, other);
        if (capturing && other != home[slot]) {
            /* What PyTorch notes about it stays with the block's host object until such a free; a
             * later block in the same host memory would inherit it. So free it now. */
            slot_free(slot);
        }
    } else {
        slot_free(slot);
    }
}

static void operation(uint64_t i)
{
    uint64_t luck = below(1000);
    ow_put(OW_OP, i, luck, 0, 0);
    if (luck < 40) {
        operation_rare();
    } else if (luck < 120) {
        side_advance(below(config.lag * 2 + 1));
    } else if (luck < 124 && config.conf2[0]) {
        changed = !changed;
        side_conf(changed ? config.conf2 : config.conf);
    } else {
        operation_slot();
    }
    if (config.stats && i % config.stats == 0) {
        side_stats();
    }
    if (config.snapshot && i % config.snapshot == 0) {
        side_snapshot();
    }
}

/* ---- timing --------------------------------------------------------------------------------------- */

struct request {
    unsigned slot;
    uint64_t size;
};

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); /* what others do on the machine does not count */
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static uint64_t bench_part(const struct request *list, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++) {
        unsigned slot = list[i].slot;
        if (full[slot]) {
            side_free(slot);
            count++;
        }
        full[slot] = side_alloc(slot, list[i].size, 0, 0);
        count++;
    }
    return count;
}

struct part {
    struct request *list;
    uint64_t n, count;
};

static void *bench_thread(void *arg)
{
    struct part *part = arg;
    part->count = bench_part(part->list, part->n);
    return NULL;
}

/* The same with several threads, each with blocks of its own. Time is that of all calls together. */
static void bench_threads(struct request *list)
{
    pthread_t thread[OW_THREADS];
    struct part part[OW_THREADS];
    unsigned n = config.threads < OW_THREADS ? config.threads : OW_THREADS;
    uint64_t each = config.ops / n, count = 0;
    for (uint64_t i = 0; i < each * n; i++) {
        list[i].slot = list[i].slot / n * n + (unsigned)(i / each);
        list[i].slot -= list[i].slot < config.slots ? 0 : n;
    }
    double start = now();
    for (unsigned t = 0; t < n; t++) {
        part[t] = (struct part){list + t * each, each, 0};
        if (pthread_create(&thread[t], NULL, bench_thread, &part[t]) != 0) {
            exit(1);
        }
    }
    for (unsigned t = 0; t < n; t++) {
        pthread_join(thread[t], NULL);
        count += part[t].count;
    }
    printf("%.2f ns/call %llu calls\n", (now() - start) * 1e9 / (double)count,
           (unsigned long long)count);
    free(list);
}

/* Replace a random block each time; print nanoseconds for each call (allocation or free). */
static void bench(void)
{
    struct request *list = malloc(config.ops * sizeof *list);
    if (!list) {
        exit(1);
    }
    for (uint64_t i = 0; i < config.ops; i++) {
        list[i] = (struct request){(unsigned)below(config.slots), size_draw(config.sizes, 0)};
    }
    if (config.threads > 1) {
        bench_threads(list);
        return;
    }
    uint64_t warm = config.ops / 4;
    bench_part(list, warm);
    double start = now();
    uint64_t count = bench_part(list + warm, config.ops - warm);
    printf("%.2f ns/call %llu calls\n", (now() - start) * 1e9 / (double)count,
           (unsigned long long)count);
    free(list);
}

/* ---- settings ------------------------------------------------------------------------------------- */

static void settings(const char *path)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(66);
    }
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        printf("%s\t", line);
        side_settings(line);
    }
    fclose(f);
}

/* ---- arguments ------------------------------------------------------------------------------------ */

static void argument(char *text)
{
    static const struct {
        const char *key;
        size_t at;
        int width; /* bytes; 0 = string */
    } keys[] = {
#define KEY(name, width) {#name, offsetof(struct ow_config, name), width}
        KEY(seed, 8),    KEY(ops, 8),      KEY(total, 8),      KEY(context, 8),   KEY(external, 8),
        KEY(lag, 8),     KEY(fill, 8),     KEY(streams, 4),    KEY(pools, 4),     KEY(slots, 4),
        KEY(stats, 4),   KEY(snapshot, 4), KEY(descending, 4), KEY(first_fit, 4), KEY(rare, 4),
        KEY(history, 4), KEY(bench, 4),    KEY(threads, 4),    KEY(sizes, 0),     KEY(conf, 0),
        KEY(conf2, 0),   KEY(settings, 0),
#undef KEY
    };
    char *value = strchr(text, '=');
    for (size_t i = 0; value && i < sizeof keys / sizeof keys[0]; i++) {
        if (strncmp(text, keys[i].key, (size_t)(value - text)) ||
            keys[i].key[value - text] != '\0') {
            continue;
        }
        char *field = (char *)&config + keys[i].at;
        uint64_t number = strtoull(value + 1, NULL, 10);
        uint32_t half = (uint32_t)number;
        const char *string = value + 1;
        if (keys[i].width == 0) {
            memcpy(field, &string, sizeof string);
        } else {
            memcpy(field, keys[i].width == 8 ? (void *)&number : (void *)&half,
                   (size_t)keys[i].width);
        }
        return;
    }
    fprintf(stderr, "unknown argument %s\n", text);
    exit(64);
}

int main(int argc, char **argv)
{
    config = (struct ow_config){
        .seed = 1,
        .ops = 10000,
        .total = UINT64_C(2) << 30,
        .context = 500 * MIB,
        .lag = 10,
        .fill = 100,
        .streams = 1,
        .slots = 128,
        .stats = 16,
        .snapshot = 128,
        .rare = OW_RARE_EMPTY | OW_RARE_FRACTION | OW_RARE_BURST | OW_RARE_RESET,
        .sizes = "mixed",
        .conf = "",
        .conf2 = "",
        .settings = "",
    };
    for (int i = 2; i < argc; i++) {
        argument(argv[i]);
    }
    if (argc < 2 || config.slots > OW_SLOTS || config.streams > OW_STREAMS ||
        config.pools > OW_POOLS) {
        fprintf(stderr, "usage: %s LOG [key=value ...]\n", argv[0]);
        return 64;
    }
    rng = config.seed;
    log_file = strcmp(argv[1], "-") ? fopen(argv[1], "wb") : NULL;
    side_open(&config);
    for (unsigned i = 0; i < config.pools; i++) {
        pool_make(i);
    }
    if (config.settings[0]) {
        settings(config.settings);
    } else if (config.bench) {
        bench();
    } else {
        for (uint64_t i = 0; i < config.ops; i++) {
            operation(i);
        }
        if (capturing) {
            rare_capture();
        }
        side_snapshot();
        side_stats();
        printf("%llu events %llu calls %llu records\n", (unsigned long long)events,
               (unsigned long long)calls, (unsigned long long)records);
    }
    if (log_file && fclose(log_file)) {
        perror("log");
        return 1;
    }
    side_close();
    return 0;
}
