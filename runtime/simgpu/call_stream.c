/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream, event, launch and graph calls as both interfaces make them.
 */

#include "call.h"

static uint64_t num(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

int sim_call_set_device(int device)
{
    int rc = sim_start();
    if (rc == SIM_OK && (device < 0 || device >= sim_device_count())) {
        rc = SIM_E_DEVICE;
    }
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        rc = sim_context(device);
        (void)pthread_mutex_unlock(&sim_lock);
    }
    return rc == SIM_OK ? sim_set_current(device) : rc;
}

int sim_call_stream_new(void **out, unsigned flags, int priority)
{
    struct sim_stream *s = NULL;
    int rc = sim_begin(SIM_CALL_STREAM_CREATE, sim_current());
    if (rc == SIM_OK) {
        rc = out == NULL ? SIM_E_VALUE : sim_stream_new(sim_current(), flags, priority, &s);
        sim_end();
    }
    if (rc == SIM_OK) {
        *out = s;
    }
    return sim_leave(SIM_CALL_STREAM_CREATE, sim_current(), num(s), 0, flags, rc);
}

int sim_call_stream_destroy(void *stream)
{
    int rc = sim_enter(SIM_CALL_STREAM_SYNC);
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        rc = sim_stream_destroy(sim_stream(stream));
        sim_end();
    }
    return rc;
}

int sim_call_stream_sync(void *stream)
{
    uint64_t until = 0;
    int rc = sim_begin(SIM_CALL_STREAM_SYNC, sim_current());
    if (rc == SIM_OK) {
        rc = sim_stream_sync(sim_stream(stream), &until);
        sim_end();
    }
    sim_sleep_until(until);
    return sim_leave(SIM_CALL_STREAM_SYNC, sim_current(), num(stream), 0, 0, rc);
}

int sim_call_stream_query(void *stream)
{
    int rc = sim_begin(SIM_CALL_STREAM_SYNC, sim_current());
    if (rc == SIM_OK) {
        rc = sim_stream_query(sim_stream(stream));
        sim_end();
    }
    return rc;
}

int sim_call_stream_wait(void *stream, void *event)
{
    int rc = sim_begin(SIM_CALL_STREAM_WAIT, sim_current());
    if (rc == SIM_OK) {
        rc = sim_stream_wait(sim_stream(stream), event);
        sim_end();
    }
    return sim_leave(SIM_CALL_STREAM_WAIT, sim_current(), num(stream), 0, num(event), rc);
}

int sim_call_device_sync(void)
{
    int device = sim_current();
    uint64_t until = 0;
    int rc = sim_begin(SIM_CALL_DEVICE_SYNC, device);
    if (rc == SIM_OK) {
        rc = sim_device_sync(device, &until);
        sim_end();
    }
    sim_sleep_until(until);
    return sim_leave(SIM_CALL_DEVICE_SYNC, device, 0, 0, 0, rc);
}

int sim_call_event_new(void **out, unsigned flags)
{
    struct sim_event *e = NULL;
    int rc = sim_begin(SIM_CALL_EVENT_CREATE, sim_current());
    if (rc == SIM_OK) {
        rc = out == NULL ? SIM_E_VALUE : sim_event_new(flags, &e);
        sim_end();
    }
    if (rc == SIM_OK) {
        *out = e;
    }
    return sim_leave(SIM_CALL_EVENT_CREATE, sim_current(), num(e), 0, flags, rc);
}

int sim_call_event_destroy(void *event)
{
    int rc = sim_start();
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        rc = sim_event_destroy(event);
        sim_end();
    }
    return rc;
}

int sim_call_event_record(void *event, void *stream)
{
    int rc = sim_begin(SIM_CALL_EVENT_RECORD, sim_current());
    if (rc == SIM_OK) {
        rc = sim_event_record(event, sim_stream(stream));
        sim_end();
    }
    return sim_leave(SIM_CALL_EVENT_RECORD, sim_current(), num(event), 0, num(stream), rc);
}

int sim_call_event_query(void *event)
{
    int rc = sim_begin(SIM_CALL_EVENT_QUERY, sim_current());
    if (rc == SIM_OK) {
        rc = sim_event_query(event);
        sim_end();
    }
    return sim_leave(SIM_CALL_EVENT_QUERY, sim_current(), num(event), 0, 0, rc);
}

int sim_call_event_sync(void *event)
{
    uint64_t until = 0;
    int rc = sim_begin(SIM_CALL_EVENT_SYNC, sim_current());
    if (rc == SIM_OK) {
        rc = sim_event_sync(event, &until);
        sim_end();
    }
    sim_sleep_until(until);
    return sim_leave(SIM_CALL_EVENT_SYNC, sim_current(), num(event), 0, 0, rc);
}

int sim_call_event_elapsed(float *ms, void *from, void *to)
{
    int rc = sim_begin(SIM_CALL_EVENT_QUERY, sim_current());
    if (rc == SIM_OK) {
        rc = ms == NULL ? SIM_E_VALUE : sim_event_elapsed(from, to, ms);
        sim_end();
    }
    return rc;
}

int sim_call_launch(const void *function, void *stream)
{
    int rc = sim_begin(SIM_CALL_LAUNCH, sim_current());
    if (rc == SIM_OK) {
        struct sim_stream *s = sim_stream(stream);
        rc = s == NULL ? SIM_E_HANDLE : SIM_OK;
        if (sim_work(s, SIM_NODE_KERNEL) && s != NULL) {
            sim_stream_run(s, 1);
        }
        sim_end();
        atomic_fetch_add_explicit(&sim_launches, 1, memory_order_relaxed);
    }
    return sim_leave(SIM_CALL_LAUNCH, sim_current(), num(function), 0, num(stream), rc);
}

int sim_call_host_func(void *stream, void (*fn)(void *), void *data)
{
    int rc = sim_begin(SIM_CALL_LAUNCH, sim_current());
    if (rc == SIM_OK) {
        struct sim_stream *s = sim_stream(stream);
        rc = s == NULL ? SIM_E_HANDLE : SIM_OK;
        bool now = sim_work(s, SIM_NODE_HOST);
        sim_end();
        if (rc == SIM_OK && now) {
            fn(data);
        }
    }
    return rc;
}

int sim_call_capture_begin(void *stream, void *graph, int mode)
{
    int rc = sim_begin(SIM_CALL_CAPTURE_BEGIN, sim_current());
    if (rc == SIM_OK) {
        rc = sim_capture_begin(sim_stream(stream), graph, mode);
        sim_end();
    }
    return sim_leave(SIM_CALL_CAPTURE_BEGIN, sim_current(), num(stream), 0, (uint64_t)mode, rc);
}

int sim_call_capture_end(void *stream, void **graph)
{
    struct sim_graph *g = NULL;
    int rc = sim_begin(SIM_CALL_CAPTURE_END, sim_current());
    if (rc == SIM_OK) {
        rc = sim_capture_end(sim_stream(stream), &g);
        sim_end();
        if (graph != NULL) {
            *graph = g; /* NULL when the capture was invalidated, as documented */
        }
    }
    return sim_leave(SIM_CALL_CAPTURE_END, sim_current(), num(stream), 0, num(g), rc);
}

int sim_call_capture_info(void *stream, int *status, uint64_t *id, void **graph, void ***deps,
                          size_t *n_deps)
{
    int rc = sim_start();
    if (rc != SIM_OK) {
        return rc;
    }
    (void)pthread_mutex_lock(&sim_lock);
    struct sim_stream *s = sim_stream(stream);
    if (s == NULL || status == NULL) {
        rc = s == NULL ? SIM_E_HANDLE : SIM_E_VALUE;
    } else {
        *status = sim_capture_status(s);
        if (id != NULL) {
            *id = sim_capture_id(s);
        }
        if (graph != NULL) {
            *graph = sim_capture_graph(s);
        }
        if (deps != NULL) {
            *deps = (void **)s->tail.at;
        }
        if (n_deps != NULL) {
            *n_deps = s->tail.n;
        }
    }
    sim_end();
    return rc;
}

int sim_call_capture_update(void *stream, void *const *deps, size_t n, unsigned flags)
{
    int rc = sim_start();
    if (rc != SIM_OK) {
        return rc;
    }
    (void)pthread_mutex_lock(&sim_lock);
    struct sim_stream *s = sim_stream(stream);
    if (s == NULL || sim_capture_status(s) != 1) {
        rc = s == NULL ? SIM_E_HANDLE : SIM_E_STATE;
    } else {
        rc = sim_nodes_set(&s->tail, (struct sim_node *const *)deps, (uint32_t)n, flags == 0);
    }
    sim_end();
    return rc;
}

int sim_call_graph_nodes(void *graph, void **out, size_t *n)
{
    if (graph == NULL || n == NULL) {
        return SIM_E_VALUE;
    }
    (void)pthread_mutex_lock(&sim_lock);
    uint32_t room = out == NULL ? 0 : (uint32_t)*n;
    uint32_t count = sim_graph_nodes(graph, (struct sim_node **)out, room);
    *n = out == NULL || count < room ? count : room;
    sim_end();
    return SIM_OK;
}

int sim_call_node_deps(void *node, void **out, size_t *n)
{
    if (node == NULL || n == NULL) {
        return SIM_E_VALUE;
    }
    (void)pthread_mutex_lock(&sim_lock);
    const struct sim_nodes *deps = sim_node_deps(node);
    size_t room = out == NULL ? 0 : *n;
    for (size_t i = 0; i < room && i < deps->n; i++) {
        out[i] = deps->at[i];
    }
    *n = out == NULL || deps->n < room ? deps->n : room;
    sim_end();
    return SIM_OK;
}

int sim_call_graph_instantiate(void **exec, void *graph)
{
    int rc = sim_begin(SIM_CALL_INSTANTIATE, sim_current());
    if (rc == SIM_OK) {
        rc = exec == NULL || graph == NULL ? SIM_E_VALUE : sim_graph_instantiate(graph, exec);
        sim_end();
    }
    return sim_leave(SIM_CALL_INSTANTIATE, sim_current(), num(graph), 0, 0, rc);
}

int sim_call_graph_exec_destroy(void *exec)
{
    int rc = sim_start();
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        rc = sim_graph_exec_destroy(exec);
        sim_end();
    }
    return rc;
}

int sim_call_graph_launch(void *exec, void *stream)
{
    int rc = sim_begin(SIM_CALL_GRAPH_LAUNCH, sim_current());
    if (rc == SIM_OK) {
        struct sim_stream *s = sim_stream(stream);
        rc = s == NULL || exec == NULL ? SIM_E_HANDLE : SIM_OK;
        if (sim_work(s, SIM_NODE_EMPTY) && rc == SIM_OK) {
            sim_stream_run(s, sim_graph_exec_kernels(exec));
        }
        sim_end();
    }
    return sim_leave(SIM_CALL_GRAPH_LAUNCH, sim_current(), num(exec), 0, num(stream), rc);
}
