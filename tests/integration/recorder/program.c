/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recorded programs do, one way each: recorder_program MODE. Linked with the simulated device as
 * other programs are with the vendor's libraries. Prints one line of JSON at the end: the device's own
 * books, and what the mode found out.
 */

#include <plimsoll/simgpu.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *p);
int cudaMallocHost(void **out, size_t bytes);
int cudaFreeHost(void *p);
int cudaMallocAsync(void **out, size_t bytes, void *stream);
int cudaFreeAsync(void *p, void *stream);
int cudaMallocManaged(void **out, size_t bytes, unsigned flags);
int cudaDeviceGetDefaultMemPool(void **out, int device);
int cudaMemPoolTrimTo(void *pool, size_t keep);
int cudaSetDevice(int device);
int cudaMemGetInfo(size_t *free_bytes, size_t *total);
int cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                     unsigned long long flags, int *status);

typedef int get_proc(const char *symbol, void **out, int version, unsigned long long flags,
                     int *status);
typedef int mem_alloc(uint64_t *out, size_t bytes);
typedef int mem_free(uint64_t addr);

static char answer[512]; /* more JSON members, each with a comma before it */

static void say(const char *name, long value)
{
    size_t n = strlen(answer);
    (void)snprintf(answer + n, sizeof answer - n, ", \"%s\": %ld", name, value);
}

static void *take(size_t bytes)
{
    void *p = NULL;
    return cudaMalloc(&p, bytes) == 0 ? p : NULL;
}

/* ---- ways to a call */

static void linked(void)
{
    void *a = take(1000), *b = take(5 * MIB), *host;
    (void)take(20 * MIB);
    say("host", cudaMallocHost(&host, 4096));
    say("host_free", cudaFreeHost(host));
    (void)cudaFree(a);
    (void)cudaFree(b);
    say("null", cudaFree(NULL));
}

static void by_dlsym(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    mem_alloc *alloc = (mem_alloc *)dlsym(driver, "cuMemAlloc_v2");
    mem_free *release = (mem_free *)dlsym(driver, "cuMemFree_v2");
    uint64_t a, b;
    (void)take(2 * MIB);
    say("alloc", alloc(&a, 4 * MIB));
    say("alloc", alloc(&b, 6 * MIB));
    say("free", release(a));
    say("missing", dlsym(driver, "cuMemNoSuchThing") == NULL);
    say("error", dlerror() != NULL);
    say("default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == (void *)alloc);
    say("strlen", ((size_t(*)(const char *))dlsym(RTLD_DEFAULT, "strlen"))("four") == 4);
    say("next", dlsym(RTLD_NEXT, "cuMemAlloc_v2") != NULL);
}

static void by_proc_address(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *p = NULL;
    get_proc *get = (get_proc *)dlsym(driver, "cuGetProcAddress_v2"), *again;
    int status = -1;
    uint64_t a;
    (void)take(2 * MIB);
    say("itself", get("cuGetProcAddress", &p, 12000, 0, &status));
    again = (get_proc *)p;
    say("alloc_found", again("cuMemAlloc", &p, 12000, 0, &status));
    say("alloc", ((mem_alloc *)p)(&a, 8 * MIB));
    say("free_found", again("cuMemFree", &p, 3020, 0, &status));
    say("free", ((mem_free *)p)(a));
    say("unknown", again("cuMemNoSuchThing", &p, 12000, 0, &status));
    say("unknown_null", p == NULL);
    say("unknown_status", status);
    say("entry_point", cudaGetDriverEntryPointByVersion("cuMemAlloc", &p, 12000, 0, &status));
    say("entry_alloc", ((mem_alloc *)p)(&a, 10 * MIB));
}

/* Libraries that carry a runtime of their own: they find the driver by themselves. */
static void by_libraries(void)
{
    static const char *const names[] = {"libcublas_toy.so.1", "libnccl_toy.so.2",
                                        "libunheard_of.so"};
    (void)take(2 * MIB);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        void *(*toy)(size_t) =
            library == NULL ? NULL : (void *(*)(size_t))dlsym(library, "toy_alloc");
        say(names[i], toy == NULL ? -1 : toy((i + 1) * 4 * MIB) != NULL);
    }
}

/* ---- sorts of memory */

struct location {
    int type, id;
};
struct props {
    int type, handles;
    struct location where;
    void *win32;
    unsigned char flags[8];
};
struct access {
    struct location where;
    int flags;
};
int cuMemAddressReserve(uint64_t *out, size_t bytes, size_t align, uint64_t hint,
                        unsigned long long flags);
int cuMemAddressFree(uint64_t addr, size_t bytes);
int cuMemCreate(uint64_t *out, size_t bytes, const struct props *props, unsigned long long flags);
int cuMemRelease(uint64_t handle);
int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags);
int cuMemUnmap(uint64_t addr, size_t bytes);

static void mapped(void)
{
    struct props props = {.type = 1, .where = {1, 0}};
    uint64_t base, h[3];
    (void)take(2 * MIB);
    say("reserve", cuMemAddressReserve(&base, 64 * MIB, 0, 0, 0));
    for (uint64_t i = 0; i < 3; i++) {
        (void)cuMemCreate(&h[i], 4 * MIB, &props, 0);
        (void)cuMemMap(base + i * 4 * MIB, 4 * MIB, 0, h[i], 0);
    }
    say("release_mapped", cuMemRelease(h[0])); /* the mapping keeps it */
    say("unmap_two", cuMemUnmap(base, 4 * MIB) | cuMemUnmap(base + 4 * MIB, 4 * MIB));
    say("release", cuMemRelease(h[1]));
    say("unmap", cuMemUnmap(base + 8 * MIB, 4 * MIB));
    say("free_range", cuMemAddressFree(base, 64 * MIB));
}

static void pooled(void)
{
    void *p[4], *managed, *pool;
    (void)take(2 * MIB);
    for (int i = 0; i < 4; i++) {
        (void)cudaMallocAsync(&p[i], 8 * MIB, NULL);
    }
    for (int i = 0; i < 4; i++) {
        (void)cudaFreeAsync(p[i], NULL);
    }
    say("pool", cudaDeviceGetDefaultMemPool(&pool, 0));
    say("trim", cudaMemPoolTrimTo(pool, 0));
    (void)cudaMallocAsync(&p[0], 40 * MIB, NULL);
    say("managed", cudaMallocManaged(&managed, 4 * MIB, 1));
    say("managed_free", cudaFree(managed));
}

/* ---- wrong programs */

static void wrong_frees(void)
{
    void *a = take(4 * MIB), *b = take(4 * MIB);
    int here = 0;
    (void)cudaFree(a);
    say("twice", cudaFree(a));
    say("inside", cudaFree((char *)b + 512));
    say("host", cudaFree(&here));
    say("never", cudaFree((void *)0x300000000000));
    say("host_of_device", cudaFreeHost(b));
    say("huge", take((size_t)1 << 45) == NULL);
}

static void two_devices(void)
{
    void *a = take(4 * MIB);
    (void)cudaSetDevice(1);
    (void)take(6 * MIB);
    (void)take(6 * MIB);
    (void)cudaFree(a); /* of device 0 */
}

/* ---- processes and threads */

static void forked_before(void)
{
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            (void)take(4 * MIB);
            (void)take(4 * MIB);
            exit(0);
        }
    }
    while (wait(NULL) > 0) {
    }
    (void)take(2 * MIB);
}

static void forked_after(void)
{
    int status = 0;
    (void)take(4 * MIB);
    pid_t child = fork();
    if (child == 0) {
        void *p;
        _exit(cudaMalloc(&p, 4 * MIB));
    }
    (void)waitpid(child, &status, 0);
    say("child", WEXITSTATUS(status));
    (void)take(6 * MIB);
}

static void become_another(void)
{
    (void)take(4 * MIB);
    (void)execl("/proc/self/exe", "recorder_program", "linked", (char *)NULL);
}

static void *many(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    void *held[16] = {0};
    for (int i = 0; i < 4000; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned at = (seed >> 16) % 16;
        if (held[at] != NULL) {
            (void)cudaFree(held[at]);
            held[at] = NULL;
        } else {
            held[at] = take((seed >> 8) % (3 * MIB) + 1);
        }
    }
    for (int i = 0; i < 16; i += 2) {
        if (held[i] != NULL) {
            (void)cudaFree(held[i]);
        }
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[8];
    (void)take(MIB); /* the context is measured while nobody else allocates */
    for (uintptr_t i = 0; i < 8; i++) {
        (void)pthread_create(&thread[i], NULL, many, (void *)(i + 1));
    }
    for (int i = 0; i < 8; i++) {
        (void)pthread_join(thread[i], NULL);
    }
}

static void threads_that_fork(void)
{
    pthread_t thread[4];
    (void)take(MIB);
    for (uintptr_t i = 0; i < 4; i++) {
        (void)pthread_create(&thread[i], NULL, many, (void *)(i + 1));
    }
    for (int i = 0; i < 50; i++) {
        if (fork() == 0) {
            void *p;
            _exit(cudaMalloc(&p, MIB) == 0);
        }
    }
    int status, bad = 0;
    while (wait(&status) > 0) {
        bad += !WIFEXITED(status);
    }
    for (int i = 0; i < 4; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    say("crashed_children", bad);
}

static void on_alarm(int number)
{
    void *p;
    (void)number;
    if (cudaMalloc(&p, 4096) == 0) {
        (void)cudaFree(p);
    }
}

/* Calls from a signal handler: the simulated device has locks of its own, so only between its calls. */
static void signals(void)
{
    struct sigaction act = {.sa_handler = on_alarm};
    (void)sigaction(SIGUSR1, &act, NULL);
    for (int i = 0; i < 1000; i++) {
        void *p = take(4 * MIB);
        (void)raise(SIGUSR1);
        (void)cudaFree(p);
    }
}

/* ---- ends */

static void *late;

static void free_late(void)
{
    (void)cudaFree(late);
}

static void frees_at_exit(void)
{
    late = take(4 * MIB);
    (void)atexit(free_late);
}

static void ends_at_once(void)
{
    (void)take(4 * MIB);
    _exit(3);
}

static void aborts(void)
{
    (void)take(4 * MIB);
    abort();
}

static void waits(void)
{
    (void)take(4 * MIB);
    printf("ready\n");
    (void)fflush(stdout);
    (void)pause();
}

static void fills(void)
{
    for (int i = 0; i < 500; i++) {
        (void)cudaFree(take(4 * MIB));
    }
    (void)take(4 * MIB);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"linked", linked},
    {"dlsym", by_dlsym},
    {"proc_address", by_proc_address},
    {"libraries", by_libraries},
    {"mapped", mapped},
    {"pooled", pooled},
    {"wrong_frees", wrong_frees},
    {"two_devices", two_devices},
    {"forked_before", forked_before},
    {"forked_after", forked_after},
    {"exec", become_another},
    {"threads", threads},
    {"threads_that_fork", threads_that_fork},
    {"signals", signals},
    {"frees_at_exit", frees_at_exit},
    {"_exit", ends_at_once},
    {"abort", aborts},
    {"wait", waits},
    {"fill", fills},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            struct plimsoll_sim_usage u[2] = {{0}};
            modes[i].run();
            (void)plimsoll_sim_usage(0, &u[0]);
            (void)plimsoll_sim_usage(1, &u[1]);
            printf("{\"used\": [%llu, %llu]%s}\n", (unsigned long long)u[0].mine,
                   (unsigned long long)u[1].mine, answer);
            return 0;
        }
    }
    return 64;
}
