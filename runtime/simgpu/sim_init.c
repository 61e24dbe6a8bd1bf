/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set-up on first use, and what fork means.
 *
 * Loading the library does next to nothing: it may be preloaded into a shell or a compiler. The first call
 * that touches a device reads the environment, opens the books and reserves the address space. As
 * with the real driver, a child forked after that has no working device (every call fails with
 * "initialization error"), while a child forked before it starts afresh.
 */

#include "sim.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_config sim_config = {.graph_node = 16384, .max_mappings = 520000};
pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic int sim_ready;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static int start_error;

static void before_fork(void)
{
    (void)pthread_mutex_lock(&start_lock); /* another thread's first call comes to its end first */
    (void)pthread_mutex_lock(&sim_lock);
}

static void after_fork_parent(void)
{
    (void)pthread_mutex_unlock(&sim_lock);
    (void)pthread_mutex_unlock(&start_lock);
}

static void after_fork_child(void)
{
    bool used = false;
    (void)pthread_mutex_init(&sim_lock, NULL);
    (void)pthread_mutex_init(&start_lock, NULL);
    if (atomic_load(&sim_ready) == 0) {
        return; /* nothing was set up */
    }
    for (int d = 0; d < sim_device_count(); d++) {
        used = used || sim_has_context(d);
    }
    sim_books_forked();
    sim_log_forked();
    if (used) {
        atomic_store(&sim_ready, 2);
    }
}

/* A line for people without stdio; used once, when the set-up itself is wrong. */
static void complain(const char *key, const char *value)
{
    const char *parts[] = {"plimsoll simulated GPU: bad value in ", key, "=", value, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (write(2, parts[i], strlen(parts[i])) < 0) {
            return;
        }
    }
}

static int from_environment(void)
{
    static const struct {
        const char *variable, *key;
        bool of_device; /* kept in the books: set by the process that makes them */
    } settings[] = {
        {"PLIMSOLL_SIM_ADDRESSES", "addresses", false},
        {"PLIMSOLL_SIM_CLOCK", "clock", false},
        {"PLIMSOLL_SIM_EVENT_LAG", "event_lag", false},
        {"PLIMSOLL_SIM_KERNEL_TIME", "kernel_time", false},
        {"PLIMSOLL_SIM_GRAPH_NODE", "graph_node", false},
        {"PLIMSOLL_SIM_COST", "cost", false},
        {"PLIMSOLL_SIM_EXTERNAL", "external", true},
        {"PLIMSOLL_SIM_LIMIT", "limit", true},
        {"PLIMSOLL_SIM_FAIL", "fail", false},
        {"PLIMSOLL_SIM_LOG", "log", false},
        {"PLIMSOLL_SIM_MAX_MAPPINGS", "max_mappings", false},
    };
    int rc = SIM_OK;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *value = getenv(settings[i].variable);
        if (value == NULL || (settings[i].of_device && !sim_books_created())) {
            continue;
        }
        if (sim_set(settings[i].key, value) != SIM_OK) {
            complain(settings[i].variable, value);
            rc = SIM_E_INIT;
        }
    }
    return rc;
}

static int start(void)
{
    struct sim_card cards[SIM_MAX_DEVICES];
    const char *gpu = getenv("PLIMSOLL_SIM_GPU");
    gpu = gpu == NULL ? "h100-80gb" : gpu;
    int n = sim_parse_cards(gpu, cards);
    if (n == 0) {
        complain("PLIMSOLL_SIM_GPU", gpu);
        return SIM_E_INIT;
    }
    uint64_t context;
    const char *text = getenv("PLIMSOLL_SIM_CONTEXT");
    if (text != NULL) {
        if (!sim_parse_size(text, &context)) {
            complain("PLIMSOLL_SIM_CONTEXT", text);
            return SIM_E_INIT;
        }
        for (int d = 0; d < n; d++) {
            cards[d].context = context;
        }
    }
    int rc = sim_books_open(getenv("PLIMSOLL_SIM_STATE"), cards, n);
    rc = rc == SIM_OK ? sim_space_init(sim_device_count()) : rc;
    return rc == SIM_OK ? from_environment() : rc;
}

/* All that loading the library does: a fork must not meet a first call half way. */
__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

int sim_start_slow(void)
{
    int state = atomic_load_explicit(&sim_ready, memory_order_acquire);
    if (state != 0) {
        return state == 1 ? SIM_OK : SIM_E_INIT;
    }
    (void)pthread_mutex_lock(&start_lock);
    if (atomic_load(&sim_ready) == 0 && start_error == SIM_OK) {
        start_error = start();
        if (start_error == SIM_OK) {
            atomic_store_explicit(&sim_ready, 1, memory_order_release);
        }
    }
    int rc = start_error;
    (void)pthread_mutex_unlock(&start_lock);
    return rc;
}
