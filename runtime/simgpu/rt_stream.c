/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA runtime: streams, events, capture, graphs. Signatures as in cuda_runtime_api.h of CUDA 13.0;
 * names with a suffix are CUDA 12's.
 */

#include "call.h"
#include <string.h>

SIM_API int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    return sim_ret(sim_call_stream_new(out, flags, priority));
}

SIM_API int cudaStreamCreateWithFlags(void **out, unsigned flags)
{
    return sim_ret(sim_call_stream_new(out, flags, 0));
}

SIM_API int cudaStreamCreate(void **out)
{
    return sim_ret(sim_call_stream_new(out, 0, 0));
}

SIM_API int cudaStreamDestroy(void *stream)
{
    return sim_ret(sim_call_stream_destroy(stream));
}

SIM_API int cudaStreamQuery(void *stream)
{
    return sim_ret(sim_call_stream_query(stream));
}

SIM_API int cudaStreamSynchronize(void *stream)
{
    return sim_ret(sim_call_stream_sync(stream));
}

SIM_API int cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)flags;
    return sim_ret(sim_call_stream_wait(stream, event));
}

/* Facts about a stream: which of the four. */
static int stream_fact(void *stream, int fact, uint64_t *out)
{
    int rc = sim_start();
    const struct sim_stream *s = rc == SIM_OK ? sim_stream(stream) : NULL;
    if (s == NULL) {
        return sim_ret(rc == SIM_OK ? SIM_E_HANDLE : rc);
    }
    *out = fact == 0   ? (uint64_t)(int64_t)s->priority
           : fact == 1 ? s->flags
           : fact == 2 ? (uint64_t)s->device
                       : s->id;
    return SIM_OK;
}

SIM_API int cudaStreamGetPriority(void *stream, int *priority)
{
    uint64_t v = 0;
    int rc = stream_fact(stream, 0, &v);
    *priority = (int)v;
    return rc;
}

SIM_API int cudaStreamGetFlags(void *stream, unsigned *flags)
{
    uint64_t v = 0;
    int rc = stream_fact(stream, 1, &v);
    *flags = (unsigned)v;
    return rc;
}

SIM_API int cudaStreamGetDevice(void *stream, int *device)
{
    uint64_t v = 0;
    int rc = stream_fact(stream, 2, &v);
    *device = (int)v;
    return rc;
}

SIM_API int cudaStreamGetId(void *stream, uint64_t *id)
{
    return stream_fact(stream, 3, id);
}

SIM_API int cudaLaunchHostFunc(void *stream, void (*fn)(void *), void *data)
{
    return sim_ret(sim_call_host_func(stream, fn, data));
}

SIM_API int cudaStreamAddCallback(void *stream, void (*fn)(void *, int, void *), void *data,
                                  unsigned flags)
{
    (void)flags;
    int rc = sim_start();
    if (rc == SIM_OK) {
        fn(stream, SIM_OK, data);
    }
    return sim_ret(rc);
}

/* ---- events */

SIM_API int cudaEventCreateWithFlags(void **out, unsigned flags)
{
    return sim_ret(sim_call_event_new(out, flags));
}

SIM_API int cudaEventCreate(void **out)
{
    return sim_ret(sim_call_event_new(out, 0));
}

SIM_API int cudaEventDestroy(void *event)
{
    return sim_ret(sim_call_event_destroy(event));
}

SIM_API int cudaEventRecord(void *event, void *stream)
{
    return sim_ret(sim_call_event_record(event, stream));
}

SIM_API int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
    (void)flags;
    return sim_ret(sim_call_event_record(event, stream));
}

SIM_API int cudaEventQuery(void *event)
{
    return sim_ret(sim_call_event_query(event));
}

SIM_API int cudaEventSynchronize(void *event)
{
    return sim_ret(sim_call_event_sync(event));
}

SIM_API int cudaEventElapsedTime(float *ms, void *from, void *to)
{
    return sim_ret(sim_call_event_elapsed(ms, from, to));
}

SIM_API int cudaEventElapsedTime_v2(float *ms, void *from, void *to)
{
    return sim_ret(sim_call_event_elapsed(ms, from, to));
}

/* Events of other processes are complete: nothing runs. */
SIM_API int cudaIpcGetEventHandle(void *handle, void *event)
{
    (void)event;
    memset(handle, 0, 64);
    return SIM_OK;
}

struct event_handle {
    char bytes[64];
};

SIM_API int cudaIpcOpenEventHandle(void **event, struct event_handle handle)
{
    (void)handle;
    return sim_ret(sim_call_event_new(event, 2));
}

/* ---- capture */

SIM_API int cudaStreamIsCapturing(void *stream, int *status)
{
    return sim_ret(sim_call_capture_info(stream, status, NULL, NULL, NULL, NULL));
}

SIM_API int cudaStreamBeginCapture(void *stream, int mode)
{
    return sim_ret(sim_call_capture_begin(stream, NULL, mode));
}

SIM_API int cudaStreamBeginCaptureToGraph(void *stream, void *graph, void *const *deps,
                                          const void *edges, size_t n, int mode)
{
    (void)edges;
    int rc = sim_call_capture_begin(stream, graph, mode);
    if (rc == SIM_OK && n > 0) {
        rc = sim_call_capture_update(stream, deps, n, 1);
    }
    return sim_ret(rc);
}

SIM_API int cudaStreamEndCapture(void *stream, void **graph)
{
    return sim_ret(sim_call_capture_end(stream, graph));
}

SIM_API int cudaStreamGetCaptureInfo(void *stream, int *status, uint64_t *id, void **graph,
                                     void ***deps, const void **edges, size_t *n)
{
    if (edges != NULL) {
        *edges = NULL;
    }
    return sim_ret(sim_call_capture_info(stream, status, id, graph, deps, n));
}

SIM_API int cudaStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *id, void **graph,
                                        void ***deps, const void **edges, size_t *n)
{
    return cudaStreamGetCaptureInfo(stream, status, id, graph, deps, edges, n);
}

SIM_API int cudaStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void **graph,
                                        void ***deps, size_t *n)
{
    return sim_ret(sim_call_capture_info(stream, status, id, graph, deps, n));
}

SIM_API int cudaStreamUpdateCaptureDependencies(void *stream, void *const *deps, const void *edges,
                                                size_t n, unsigned flags)
{
    (void)edges;
    return sim_ret(sim_call_capture_update(stream, deps, n, flags));
}

SIM_API int cudaStreamUpdateCaptureDependencies_v2(void *stream, void *const *deps,
                                                   const void *edges, size_t n, unsigned flags)
{
    return cudaStreamUpdateCaptureDependencies(stream, deps, edges, n, flags);
}

SIM_API int cudaThreadExchangeStreamCaptureMode(int *mode)
{
    if (mode == NULL || *mode < 0 || *mode > 2) {
        return sim_ret(SIM_E_VALUE);
    }
    *mode = sim_capture_mode(*mode);
    return SIM_OK;
}

/* ---- graphs */

SIM_API int cudaGraphCreate(void **out, unsigned flags)
{
    (void)flags;
    struct sim_graph *g = NULL;
    int rc = sim_start();
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        rc = sim_graph_new(&g);
        (void)pthread_mutex_unlock(&sim_lock);
        *out = g;
    }
    return sim_ret(rc);
}

SIM_API int cudaGraphDestroy(void *graph)
{
    (void)pthread_mutex_lock(&sim_lock);
    int rc = sim_graph_destroy(graph);
    (void)pthread_mutex_unlock(&sim_lock);
    return sim_ret(rc);
}

SIM_API int cudaGraphGetNodes(void *graph, void **nodes, size_t *n)
{
    return sim_ret(sim_call_graph_nodes(graph, nodes, n));
}

SIM_API int cudaGraphNodeGetDependencies(void *node, void **deps, void *edges, size_t *n)
{
    if (edges != NULL && n != NULL) {
        memset(edges, 0, *n * 8); /* default edges */
    }
    return sim_ret(sim_call_node_deps(node, deps, n));
}

SIM_API int cudaGraphNodeGetDependencies_v2(void *node, void **deps, void *edges, size_t *n)
{
    return cudaGraphNodeGetDependencies(node, deps, edges, n);
}

SIM_API int cudaGraphNodeGetType(void *node, int *type)
{
    static const int types[] = {0, 1, 2, 3, 5}; /* kernel, memcpy, memset, host, empty */
    *type = types[sim_node_kind(node)];
    return SIM_OK;
}

/* A node of any type has no effect, so its parameters are not looked at. */
SIM_API int cudaGraphAddNode(void **out, void *graph, void *const *deps, const void *edges,
                             size_t n, void *params)
{
    (void)edges, (void)params;
    struct sim_node *node = NULL;
    (void)pthread_mutex_lock(&sim_lock);
    int rc = graph == NULL ? SIM_E_VALUE
                           : sim_graph_add(graph, SIM_NODE_EMPTY, (struct sim_node *const *)deps,
                                           (uint32_t)n, &node);
    (void)pthread_mutex_unlock(&sim_lock);
    if (rc == SIM_OK && out != NULL) {
        *out = node;
    }
    return sim_ret(rc);
}

SIM_API int cudaGraphAddNode_v2(void **out, void *graph, void *const *deps, const void *edges,
                                size_t n, void *params)
{
    return cudaGraphAddNode(out, graph, deps, edges, n, params);
}

SIM_API int cudaGraphAddEmptyNode(void **out, void *graph, void *const *deps, size_t n)
{
    return cudaGraphAddNode(out, graph, deps, NULL, n, NULL);
}

SIM_API int cudaGraphInstantiate(void **exec, void *graph, uint64_t flags)
{
    (void)flags;
    return sim_ret(sim_call_graph_instantiate(exec, graph));
}

SIM_API int cudaGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags)
{
    return cudaGraphInstantiate(exec, graph, flags);
}

SIM_API int cudaGraphExecDestroy(void *exec)
{
    return sim_ret(sim_call_graph_exec_destroy(exec));
}

SIM_API int cudaGraphLaunch(void *exec, void *stream)
{
    return sim_ret(sim_call_graph_launch(exec, stream));
}

SIM_API int cudaGraphUpload(void *exec, void *stream)
{
    (void)exec, (void)stream;
    return SIM_OK;
}

SIM_API int cudaGraphDebugDotPrint(void *graph, const char *path, unsigned flags)
{
    (void)graph, (void)path, (void)flags;
    return SIM_OK;
}

/* User objects keep host data alive as long as a graph; here it is kept for ever. */
SIM_API int cudaUserObjectCreate(void **out, void *data, void (*destroy)(void *), unsigned refs,
                                 unsigned flags)
{
    (void)destroy, (void)refs, (void)flags;
    *out = data;
    return SIM_OK;
}

SIM_API int cudaUserObjectRelease(void *object, unsigned n)
{
    (void)object, (void)n;
    return SIM_OK;
}

SIM_API int cudaGraphRetainUserObject(void *graph, void *object, unsigned n, unsigned flags)
{
    (void)graph, (void)object, (void)n, (void)flags;
    return SIM_OK;
}
