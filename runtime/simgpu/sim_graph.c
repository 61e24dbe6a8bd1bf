/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture and graphs.
 *
 * While a stream captures, work put on it becomes a node that depends on the stream's tail, and an
 * event recorded on it carries the tail; another stream that waits for the event joins the capture.
 * That is enough for what programs look at: the status, a unique id (PyTorch keys its private pool on
 * it), the nodes, and what each depends on. Launching a graph takes the time of its kernels, if they take any.
 *
 * A call that could upset a capture (cudaMalloc, synchronisation, event query) is refused and
 * invalidates it, by the modes of cudaStreamBeginCapture and cudaThreadExchangeStreamCaptureMode:
 * global 0, thread local 1, relaxed 2. Threads: sim_lock; modes belong to a thread.
 */

#include "sim.h"
#include <stdlib.h>
#include <string.h>

struct sim_node {
    struct sim_nodes deps;
    struct sim_node *next; /* of the graph, in order of creation */
    uint32_t self;
    uint8_t kind;
};

struct sim_graph {
    struct sim_node *first, *last;
    uint32_t n, self;
};

struct sim_capture {
    uint64_t id;
    struct sim_graph *graph;
    struct sim_stream *origin;
    struct sim_stream *streams; /* all that take part */
    struct sim_capture *next;   /* all captures in progress: rarely more than one */
    pthread_t thread;
    uint32_t self;
    int mode;
    bool broken;
};

struct exec {
    uint64_t bytes; /* charged */
    int32_t device;
    uint32_t self;
    uint32_t kernels; /* among its nodes */
};

static struct sim_pool nodes = SIM_POOL(struct sim_node);
static struct sim_pool graphs = SIM_POOL(struct sim_graph);
static struct sim_pool captures = SIM_POOL(struct sim_capture);
static struct sim_pool execs = SIM_POOL(struct exec);
static struct sim_capture *active;
static _Atomic uint32_t n_active;
static uint64_t last_id;
static uint64_t exec_bytes[SIM_MAX_DEVICES]; /* sum over executable graphs */
static _Thread_local int thread_mode;

int sim_capture_mode(int mode)
{
    int was = thread_mode;
    thread_mode = mode;
    return was;
}

int sim_nodes_set(struct sim_nodes *list, struct sim_node *const *from, uint32_t n, bool add)
{
    uint32_t keep = add ? list->n : 0;
    if (n == 0 && !add) {
        free(list->at);
        *list = (struct sim_nodes){0};
        return SIM_OK;
    }
    if (keep + n > list->room) {
        uint32_t room = (keep + n) * 2;
        struct sim_node **at = realloc(list->at, room * sizeof(*at));
        if (at == NULL) {
            return SIM_E_NOMEM;
        }
        list->at = at;
        list->room = room;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = 0;
        while (j < keep && list->at[j] != from[i]) {
            j++;
        }
        list->at[j] = from[i];
        keep += j == keep;
    }
    list->n = keep;
    return SIM_OK;
}

/* ---- graphs */

int sim_graph_new(struct sim_graph **out)
{
    uint32_t self;
    struct sim_graph *g = sim_pool_take(&graphs, &self);
    if (g == NULL) {
        return SIM_E_NOMEM;
    }
    g->self = self;
    *out = g;
    return SIM_OK;
}

int sim_graph_destroy(struct sim_graph *g)
{
    if (g == NULL || g->self == 0) {
        return SIM_E_VALUE;
    }
    for (struct sim_node *n = g->first; n != NULL;) {
        struct sim_node *next = n->next;
        free(n->deps.at);
        sim_pool_give(&nodes, n->self);
        n = next;
    }
    sim_pool_give(&graphs, g->self);
    return SIM_OK;
}

int sim_graph_add(struct sim_graph *g, enum sim_node_kind kind, struct sim_node *const *deps,
                  uint32_t n, struct sim_node **out)
{
    uint32_t self;
    struct sim_node *node = sim_pool_take(&nodes, &self);
    if (node == NULL || (n > 0 && sim_nodes_set(&node->deps, deps, n, false) != SIM_OK)) {
        return SIM_E_NOMEM;
    }
    node->self = self;
    node->kind = (uint8_t)kind;
    if (g->last != NULL) {
        g->last->next = node;
    } else {
        g->first = node;
    }
    g->last = node;
    g->n++;
    if (out != NULL) {
        *out = node;
    }
    return SIM_OK;
}

uint32_t sim_graph_nodes(const struct sim_graph *g, struct sim_node **out, uint32_t room)
{
    uint32_t i = 0;
    for (struct sim_node *n = g->first; n != NULL && out != NULL && i < room; n = n->next) {
        out[i++] = n;
    }
    return g->n;
}

const struct sim_nodes *sim_node_deps(const struct sim_node *node)
{
    return &node->deps;
}

enum sim_node_kind sim_node_kind(const struct sim_node *node)
{
    return (enum sim_node_kind)node->kind;
}

/* Executable graphs share pages: charge the difference that the sum makes. */
static int recharge(int device, uint64_t before, uint64_t after)
{
    before = (before + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    after = (after + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    if (after > before) {
        return sim_charge(device, after - before);
    }
    sim_uncharge(device, before - after);
    return SIM_OK;
}

int sim_graph_instantiate(struct sim_graph *g, void **out)
{
    uint32_t self;
    int device = sim_current();
    uint64_t bytes = g->n * sim_config.graph_node;
    struct exec *e = sim_pool_take(&execs, &self);
    int rc =
        e == NULL ? SIM_E_NOMEM : recharge(device, exec_bytes[device], exec_bytes[device] + bytes);
    if (rc != SIM_OK) {
        if (e != NULL) {
            sim_pool_give(&execs, self);
        }
        return rc;
    }
    exec_bytes[device] += bytes;
    *e = (struct exec){.bytes = bytes, .device = device, .self = self};
    for (const struct sim_node *n = g->first; n != NULL; n = n->next) {
        e->kernels += n->kind == SIM_NODE_KERNEL;
    }
    *out = e;
    return SIM_OK;
}

int sim_graph_exec_destroy(void *exec)
{
    struct exec *e = exec;
    if (e == NULL || e->self == 0) {
        return SIM_E_VALUE;
    }
    (void)recharge(e->device, exec_bytes[e->device], exec_bytes[e->device] - e->bytes);
    exec_bytes[e->device] -= e->bytes;
    sim_pool_give(&execs, e->self);
    return SIM_OK;
}

uint32_t sim_graph_exec_kernels(const void *exec)
{
    return ((const struct exec *)exec)->kernels;
}

/* ---- capture */

int sim_capture_fault(struct sim_capture *capture)
{
    capture->broken = true;
    return SIM_E_CAPTURE_UNSUPPORTED;
}

int sim_unsafe(void)
{
    if (__builtin_expect(atomic_load_explicit(&n_active, memory_order_relaxed) == 0, 1) ||
        thread_mode == 2) {
        return SIM_OK;
    }
    for (struct sim_capture *c = active; c != NULL; c = c->next) {
        bool own = pthread_equal(c->thread, pthread_self()) != 0;
        if (c->mode != 2 && (own || (thread_mode == 0 && c->mode == 0))) {
            return sim_capture_fault(c);
        }
    }
    return SIM_OK;
}

bool sim_work(struct sim_stream *s, enum sim_node_kind kind)
{
    if (__builtin_expect(s == NULL || s->capture == NULL, 1)) {
        return true;
    }
    struct sim_node *node;
    if (sim_graph_add(s->capture->graph, kind, s->tail.at, s->tail.n, &node) != SIM_OK ||
        sim_nodes_set(&s->tail, &node, 1, false) != SIM_OK) {
        s->capture->broken = true;
    }
    return false;
}

void sim_capture_join(struct sim_stream *s, struct sim_capture *capture)
{
    if (s->capture == NULL) {
        s->capture = capture;
        s->next_captured = capture->streams;
        capture->streams = s;
    }
}

struct sim_capture *sim_capture_by_id(uint64_t id)
{
    struct sim_capture *c = id == 0 ? NULL : active;
    while (c != NULL && c->id != id) {
        c = c->next;
    }
    return c;
}

int sim_capture_begin(struct sim_stream *s, struct sim_graph *into, int mode)
{
    uint32_t self;
    struct sim_graph *g = into;
    if (s == NULL || mode < 0 || mode > 2) {
        return s == NULL ? SIM_E_HANDLE : SIM_E_VALUE;
    }
    if (s->capture != NULL) {
        return SIM_E_STATE;
    }
    if (s->self == 0) {
        return SIM_E_CAPTURE_UNSUPPORTED; /* the legacy stream cannot capture */
    }
    if (g == NULL && sim_graph_new(&g) != SIM_OK) {
        return SIM_E_NOMEM;
    }
    struct sim_capture *c = sim_pool_take(&captures, &self);
    if (c == NULL) {
        return SIM_E_NOMEM;
    }
    *c = (struct sim_capture){.id = ++last_id,
                              .graph = g,
                              .origin = s,
                              .next = active,
                              .thread = pthread_self(),
                              .self = self,
                              .mode = mode};
    active = c;
    atomic_fetch_add(&n_active, 1);
    (void)sim_nodes_set(&s->tail, NULL, 0, false);
    sim_capture_join(s, c);
    return SIM_OK;
}

int sim_capture_end(struct sim_stream *s, struct sim_graph **out)
{
    struct sim_capture *c = s == NULL ? NULL : s->capture;
    if (c == NULL) {
        return s == NULL ? SIM_E_HANDLE : SIM_E_STATE;
    }
    if (c->origin != s) {
        c->broken = true;
        return SIM_E_CAPTURE_UNMATCHED;
    }
    struct sim_capture **link = &active;
    while (*link != c) {
        link = &(*link)->next;
    }
    *link = c->next;
    atomic_fetch_sub(&n_active, 1);
    for (struct sim_stream *p = c->streams; p != NULL;) {
        struct sim_stream *next = p->next_captured;
        p->capture = NULL;
        p->next_captured = NULL;
        (void)sim_nodes_set(&p->tail, NULL, 0, false);
        p = next;
    }
    int rc = c->broken ? SIM_E_CAPTURE_INVALIDATED : SIM_OK;
    if (c->broken) {
        (void)sim_graph_destroy(c->graph);
    }
    *out = c->broken ? NULL : c->graph;
    sim_pool_give(&captures, c->self);
    return rc;
}

int sim_capture_status(const struct sim_stream *s)
{
    return s == NULL || s->capture == NULL ? 0 : s->capture->broken ? 2 : 1;
}

uint64_t sim_capture_id(const struct sim_stream *s)
{
    return s->capture == NULL ? 0 : s->capture->id;
}

struct sim_graph *sim_capture_graph(const struct sim_stream *s)
{
    return s->capture == NULL ? NULL : s->capture->graph;
}
