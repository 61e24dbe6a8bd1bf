/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the history costs: CPU time of a batch, bytes of a point, memory, and the time of the dashboard's queries, at the
 * load that the monitor promises to carry: 8 devices of 21 figures and 200 processes of 15, a quarter of them busy, each
 * replaced every few hours. Time is compressed: batches follow one another at once, on a disk that does not sync
 * (--sync: one that does, for the cost of syncing). In the same run, the same points as one row for each value in a
 * plain SQLite table.
 *
 *   bench_store [--seconds N] [--interval S] [--processes N] [--max-bytes N] [--peer-seconds N] [--sync] [--keep FILE]
 */

#include "../unit/store_disk.h"
#include "store/store.h"

#include "base/num.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS         UINT64_C(1000000000)
#define START      (UINT64_C(1700000000) * NS)
#define DEVICES    8u
#define OF_DEVICE  21u
#define OF_PROCESS 15u
#define MIB        (UINT64_C(1) << 20)

static const char *names[OF_DEVICE + OF_PROCESS];

static struct {
    uint64_t seconds, interval, processes, max_bytes, peer_seconds;
    bool sync;
    const char *keep;
} said = {3 * 3600, 1, 200, 0, 1800, false, NULL};

static uint64_t random_state = 1;

static uint64_t random_next(void)
{
    random_state += UINT64_C(0x9e3779b97f4a7c15);
    return plim_hash_u64(random_state);
}

/* ---- the world ---- */

struct process {
    uint64_t born, dies; /* seconds */
    double figure[OF_PROCESS];
    bool busy;
};

static struct process *processes;
static double devices[DEVICES][OF_DEVICE];

static void begin_process(struct process *p, uint64_t t)
{
    *p = (struct process){.born = t, .dies = t + 600 + random_next() % (12 * 3600)};
    p->busy = random_next() % 4 == 0;
    for (unsigned f = 0; f < OF_PROCESS; f++) {
        p->figure[f] = (double)((1 + random_next() % 8) * 1024 * MIB);
    }
}

/* One more second of everything. */
static void live(uint64_t t)
{
    for (uint64_t i = 0; i < said.processes; i++) {
        struct process *p = &processes[i];
        if (t >= p->dies) {
            begin_process(p, t);
        }
        for (unsigned f = 0; p->busy && f < 5;
             f++) { /* allocated, active, requested, two counters */
            p->figure[f] += f < 3 ? (double)((int64_t)(random_next() % 65) - 32) * 2.0 * (double)MIB
                                  : (double)(random_next() % 200);
            p->figure[f] = fabs(p->figure[f]);
        }
        if (random_next() % 60 == 0) { /* reserved and what the driver counts move seldom */
            p->figure[5] += 20.0 * (double)MIB;
            p->figure[6] += 20.0 * (double)MIB;
        }
    }
    for (unsigned d = 0; d < DEVICES; d++) {
        devices[d][0] = 80.0 * 1024 * (double)MIB;
        devices[d][1] = (double)(random_next() % 20 + 30000) * 2.0 * (double)MIB;
        devices[d][2] = devices[d][0] - devices[d][1];
        devices[d][3] = (double)(random_next() % 101);
        devices[d][4] = 300000 + (double)(random_next() % 20000);
        devices[d][5] = 60 + (double)(random_next() % 3);
    }
}

static void need(enum plim_status st, const struct plim_err *err)
{
    if (st != PLIM_OK) {
        (void)fprintf(stderr, "bench_store: %s\n", err->message);
        exit(1);
    }
}

static void fill(struct plim_batch *batch, uint64_t t)
{
    struct plim_err err = {0};
    char key[64], labels[128];
    plim_batch_reset(batch, START + t * NS, (t + 1000) * NS);
    for (unsigned d = 0; d < DEVICES; d++) {
        (void)snprintf(key, sizeof(key), "GPU-%08x", d);
        need(plim_batch_subject(batch, "device", key, "{\"name\":\"NVIDIA H100\"}", &err), &err);
        for (unsigned f = 0; f < OF_DEVICE; f++) {
            need(plim_batch_point(batch, (uint16_t)f, devices[d][f], &err), &err);
        }
    }
    for (uint64_t i = 0; i < said.processes; i++) {
        (void)snprintf(key, sizeof(key), "GPU-%08x/%llu/%llu", (unsigned)(i % DEVICES),
                       (unsigned long long)i, (unsigned long long)processes[i].born);
        (void)snprintf(labels, sizeof(labels), "{\"device\":%u,\"pid\":%llu,\"name\":\"python3\"}",
                       (unsigned)(i % DEVICES), (unsigned long long)i);
        need(plim_batch_subject(batch, "process", key, labels, &err), &err);
        for (unsigned f = 0; f < OF_PROCESS; f++) {
            need(plim_batch_point(batch, (uint16_t)(OF_DEVICE + f), processes[i].figure[f], &err),
                 &err);
        }
    }
}

/* ---- measuring ---- */

static double cpu_seconds(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double wall_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double resident_mib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) {
        pages = 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (double)MIB;
}

static double file_mib(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (double)info.st_size / (double)MIB : 0;
}

/* ---- the store ---- */

static double filled_alone(void)
{
    struct plim_batch batch = {0};
    double begin = cpu_seconds();
    for (uint64_t t = 0; t < 2000; t++) {
        live(t);
        fill(&batch, t);
    }
    plim_batch_fini(&batch);
    return (cpu_seconds() - begin) / 2000;
}

static void query(const char *path, const char *what, uint64_t seconds, uint64_t end)
{
    struct plim_store_options options = {.read_only = true};
    struct plim_store *store = NULL;
    struct plim_store_answer answer = {0};
    struct plim_err err = {0};
    double worst = 0, total = 0;
    size_t bins = 0;
    need(plim_store_open(path, &options, &store, &err), &err);
    for (unsigned d = 0; d < DEVICES; d++) {
        struct plim_store_query q = {
            .subject = 1 + d,
            .figure = names[1],
            .from_ns = START + (end > seconds ? end - seconds : 0) * NS,
            .to_ns = START + (end + 1) * NS,
            .max_points = 1000,
        };
        double begin = wall_seconds();
        need(plim_store_query(store, &q, &answer, &err), &err);
        double took = wall_seconds() - begin;
        worst = took > worst ? took : worst;
        total += took;
        bins = answer.bins.n;
        plim_store_answer_fini(&answer);
    }
    printf("query of %-10s %4zu bins  mean %6.2f ms  worst %6.2f ms\n", what, bins,
           total / DEVICES * 1e3, worst * 1e3);
    plim_store_close(store);
}

/* Returns bytes of a point and CPU seconds of a point in *cpu. */
static double run_store(const char *path, uint64_t seconds, double making, double *cpu)
{
    struct plim_store_options options = {.figures = names,
                                         .n_figures = OF_DEVICE + OF_PROCESS,
                                         .max_bytes = said.max_bytes,
                                         .vfs = said.sync ? NULL : "disk"};
    struct plim_store *store = NULL;
    struct plim_batch batch = {0};
    struct plim_err err = {0};
    struct plim_store_state now = {0};
    uint64_t batches = 0;
    need(plim_store_open(path, &options, &store, &err), &err);
    double before = resident_mib(), most = 0, size = 0, begin = cpu_seconds(), slowest = 0;
    for (uint64_t t = 0; t < seconds; t += said.interval) {
        live(t);
        fill(&batch, t);
        double start = wall_seconds();
        need(plim_store_put(store, &batch, &err), &err);
        double took = wall_seconds() - start;
        slowest = took > slowest ? took : slowest;
        batches++;
        if (batches % 64 == 0) {
            plim_store_counts(store, &now);
            size = (double)now.bytes > size ? (double)now.bytes : size;
            most = resident_mib() - before > most ? resident_mib() - before : most;
        }
    }
    double spent = cpu_seconds() - begin - making * (double)batches;
    plim_store_state(store, &now);
    printf("batches %llu of %zu points, CPU %.3f ms a batch (%.3f %% of a core at one a second), "
           "slowest %.0f ms\n",
           (unsigned long long)batches, batch.values.n, spent / (double)batches * 1e3,
           spent / (double)batches * 100, slowest * 1e3);
    printf("file %.1f MiB, most with its log %.1f of %.0f MiB; memory +%.1f MiB at most\n",
           (double)now.bytes / (double)MIB, size / (double)MIB, (double)now.max_bytes / (double)MIB,
           most);
    for (size_t k = 0; k < now.n_levels; k++) {
        printf("  %6.0f s steps reach back %8.1f hours\n", (double)now.level[k].step_ns / 1e9,
               now.level_from_ns[k] != 0 ? (double)(now.last_ns - now.level_from_ns[k]) / 3.6e12
                                         : 0);
    }
    plim_batch_fini(&batch);
    plim_store_close(store);
    *cpu = spent / (double)now.points;
    return (double)now.bytes / (double)now.points;
}

/* ---- one row for each value ---- */

static void sql(sqlite3 *db, const char *text)
{
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) {
        (void)fprintf(stderr, "bench_store: %s\n", sqlite3_errmsg(db));
        exit(1);
    }
}

static double run_rows(const char *path, uint64_t seconds, double making, double *cpu)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *put = NULL;
    struct plim_batch batch = {0};
    uint64_t points = 0;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                        said.sync ? NULL : "disk") != SQLITE_OK) {
        exit(1);
    }
    sql(db,
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "CREATE TABLE point(series INTEGER, time INTEGER, value REAL, PRIMARY KEY(series, time))"
        " WITHOUT ROWID");
    (void)sqlite3_prepare_v2(db, "INSERT INTO point VALUES(?, ?, ?)", -1, &put, NULL);
    double begin = cpu_seconds();
    for (uint64_t t = 0; t < seconds; t++) {
        live(t);
        fill(&batch, t);
        sql(db, "BEGIN");
        for (size_t i = 0; i < batch.values.n; i++) {
            (void)sqlite3_bind_int64(put, 1, (sqlite3_int64)i);
            (void)sqlite3_bind_int64(put, 2, (sqlite3_int64)t);
            (void)sqlite3_bind_double(put, 3, batch.values.items[i]);
            (void)sqlite3_step(put);
            (void)sqlite3_reset(put);
        }
        sql(db, "COMMIT");
        points += batch.values.n;
    }
    *cpu = (cpu_seconds() - begin - making * (double)seconds) / (double)points;
    (void)sqlite3_finalize(put);
    double start = wall_seconds();
    sql(db, "SELECT time / 2, min(value), avg(value), max(value) FROM point WHERE series = 1"
            " GROUP BY time / 2");
    printf("rows: query of %llu s in 2 s bins %.2f ms\n", (unsigned long long)seconds,
           (wall_seconds() - start) * 1e3);
    (void)sqlite3_close(db);
    plim_batch_fini(&batch);
    return file_mib(path) * (double)MIB / (double)points;
}

/* ---- */

static void options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        uint64_t *number = strcmp(argv[i], "--seconds") == 0        ? &said.seconds
                           : strcmp(argv[i], "--interval") == 0     ? &said.interval
                           : strcmp(argv[i], "--processes") == 0    ? &said.processes
                           : strcmp(argv[i], "--max-bytes") == 0    ? &said.max_bytes
                           : strcmp(argv[i], "--peer-seconds") == 0 ? &said.peer_seconds
                                                                    : NULL;
        if (number != NULL) {
            *number = strtoull(value, NULL, 10);
            i++;
        } else if (strcmp(argv[i], "--keep") == 0) {
            said.keep = value;
            i++;
        } else if (strcmp(argv[i], "--sync") == 0) {
            said.sync = true;
        } else {
            (void)fprintf(stderr, "bench_store: unknown option %s\n", argv[i]);
            exit(64);
        }
    }
}

static void remove_database(const char *path)
{
    static const char *const suffix[] = {"", "-wal", "-shm", ".lock"};
    char name[600];
    for (size_t i = 0; i < PLIM_COUNT_OF(suffix); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", path, suffix[i]);
        (void)unlink(name);
    }
}

static void compare(const char *folder, double making)
{
    char path[600];
    double store_cpu, rows_cpu;
    uint64_t interval = said.interval;
    said.interval = 1;
    (void)snprintf(path, sizeof(path), "%s/peer.db", folder);
    printf("\nthe same %llu seconds both ways:\n", (unsigned long long)said.peer_seconds);
    double store = run_store(path, said.peer_seconds, making, &store_cpu);
    query(path, "all", said.peer_seconds, said.peer_seconds);
    remove_database(path);
    double rows = run_rows(path, said.peer_seconds, making, &rows_cpu);
    remove_database(path);
    printf("bytes of a point %.3f, as rows %.2f: ratio %.1f; CPU of a point %.0f ns, as rows %.0f "
           "ns: ratio %.1f\n",
           store, rows, rows / store, store_cpu * 1e9, rows_cpu * 1e9, rows_cpu / store_cpu);
    said.interval = interval;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/plim-bench-XXXXXX", path[600];
    static char text[OF_DEVICE + OF_PROCESS][24];
    double cpu;
    options(argc, argv);
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        (void)snprintf(text[i], sizeof(text[i]), "figure_%zu", i);
        names[i] = text[i];
    }
    processes = calloc(said.processes + 1, sizeof(*processes));
    if (processes == NULL || mkdtemp(folder) == NULL) {
        return 1;
    }
    disk_begin();
    double making = filled_alone();
    memset(processes, 0, said.processes * sizeof(*processes));
    (void)snprintf(path, sizeof(path), "%s/h.db", folder);
    if (said.keep != NULL) {
        (void)snprintf(path, sizeof(path), "%s", said.keep);
    }
    double bytes = run_store(path, said.seconds, making, &cpu);
    printf("bytes of a point %.3f, with all levels\n", bytes);
    query(path, "an hour", 3600, said.seconds);
    query(path, "a day", 86400, said.seconds);
    query(path, "a week", UINT64_C(604800), said.seconds);
    query(path, "a quarter", UINT64_C(92) * 86400, said.seconds);
    query(path, "a year", UINT64_C(365) * 86400, said.seconds);
    if (said.keep == NULL) {
        remove_database(path);
    }
    if (said.peer_seconds > 0) {
        compare(folder, making);
    }
    (void)rmdir(folder);
    free(processes);
    return 0;
}
