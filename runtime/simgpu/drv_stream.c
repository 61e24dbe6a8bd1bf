/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA driver: streams, events, capture, graphs; and the lookup of driver functions by name.
 */

#include "call.h"
#include <string.h>

SIM_API int cuStreamCreate(void **out, unsigned flags)
{
    return sim_call_stream_new(out, flags, 0);
}

SIM_API int cuStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    return sim_call_stream_new(out, flags, priority);
}

SIM_API int cuStreamDestroy_v2(void *stream)
{
    return sim_call_stream_destroy(stream);
}

SIM_API int cuStreamSynchronize(void *stream)
{
    return sim_call_stream_sync(stream);
}

SIM_API int cuStreamQuery(void *stream)
{
    return sim_call_stream_query(stream);
}

SIM_API int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)flags;
    return sim_call_stream_wait(stream, event);
}

SIM_API int cuStreamGetCtx(void *stream, void **context)
{
    int rc = sim_start();
    const struct sim_stream *s = rc == SIM_OK ? sim_stream(stream) : NULL;
    if (s != NULL) {
        *context = sim_context_handle(s->device);
    }
    return rc != SIM_OK ? rc : s == NULL ? SIM_E_HANDLE : SIM_OK;
}

SIM_API int cuStreamGetPriority(void *stream, int *priority)
{
    int rc = sim_start();
    const struct sim_stream *s = rc == SIM_OK ? sim_stream(stream) : NULL;
    *priority = s == NULL ? 0 : s->priority;
    return rc != SIM_OK ? rc : s == NULL ? SIM_E_HANDLE : SIM_OK;
}

/* Values are written at once when they go to host memory; waits are satisfied. */
SIM_API int cuStreamWriteValue32_v2(void *stream, uint64_t p, uint32_t value, unsigned flags)
{
    (void)flags;
    int rc = sim_call_fill((void *)(uintptr_t)p, 0, 0, stream);
    if (rc == SIM_OK && !sim_is_device((void *)(uintptr_t)p)) {
        memcpy((void *)(uintptr_t)p, &value, sizeof value);
    }
    return rc;
}

SIM_API int cuStreamWaitValue32_v2(void *stream, uint64_t p, uint32_t value, unsigned flags)
{
    (void)stream, (void)p, (void)value, (void)flags;
    return SIM_OK;
}

SIM_API int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *data)
{
    return sim_call_host_func(stream, fn, data);
}

SIM_API int cuEventCreate(void **out, unsigned flags)
{
    return sim_call_event_new(out, flags);
}

SIM_API int cuEventDestroy_v2(void *event)
{
    return sim_call_event_destroy(event);
}

SIM_API int cuEventRecord(void *event, void *stream)
{
    return sim_call_event_record(event, stream);
}

SIM_API int cuEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
    (void)flags;
    return sim_call_event_record(event, stream);
}

SIM_API int cuEventQuery(void *event)
{
    return sim_call_event_query(event);
}

SIM_API int cuEventSynchronize(void *event)
{
    return sim_call_event_sync(event);
}

SIM_API int cuEventElapsedTime(float *ms, void *from, void *to)
{
    return sim_call_event_elapsed(ms, from, to);
}

SIM_API int cuEventElapsedTime_v2(float *ms, void *from, void *to)
{
    return sim_call_event_elapsed(ms, from, to);
}

SIM_API int cuStreamIsCapturing(void *stream, int *status)
{
    return sim_call_capture_info(stream, status, NULL, NULL, NULL, NULL);
}

SIM_API int cuStreamBeginCapture_v2(void *stream, int mode)
{
    return sim_call_capture_begin(stream, NULL, mode);
}

SIM_API int cuStreamEndCapture(void *stream, void **graph)
{
    return sim_call_capture_end(stream, graph);
}

SIM_API int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void **graph,
                                      void ***deps, size_t *n)
{
    return sim_call_capture_info(stream, status, id, graph, deps, n);
}

SIM_API int cuStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *id, void **graph,
                                      void ***deps, const void **edges, size_t *n)
{
    if (edges != NULL) {
        *edges = NULL;
    }
    return sim_call_capture_info(stream, status, id, graph, deps, n);
}

SIM_API int cuThreadExchangeStreamCaptureMode(int *mode)
{
    if (mode == NULL || *mode < 0 || *mode > 2) {
        return SIM_E_VALUE;
    }
    *mode = sim_capture_mode(*mode);
    return SIM_OK;
}

SIM_API int cuGraphGetNodes(void *graph, void **nodes, size_t *n)
{
    return sim_call_graph_nodes(graph, nodes, n);
}

SIM_API int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags)
{
    (void)flags;
    return sim_call_graph_instantiate(exec, graph);
}

SIM_API int cuGraphLaunch(void *exec, void *stream)
{
    return sim_call_graph_launch(exec, stream);
}

SIM_API int cuGraphExecDestroy(void *exec)
{
    return sim_call_graph_exec_destroy(exec);
}

SIM_API int cuGraphDestroy(void *graph)
{
    (void)pthread_mutex_lock(&sim_lock);
    int rc = sim_graph_destroy(graph);
    sim_end();
    return rc;
}

SIM_API int cuGetExportTable(const void **table, const void *uuid)
{
    (void)table, (void)uuid;
    return SIM_E_NOT_FOUND;
}

/* ---- functions by name */

/* A base name and the CUDA version from which it means that symbol, where versions differ in shape. */
static const struct {
    const char *base;
    int version;
    const char *symbol;
} shapes[] = {
    {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
    {"cuMemcpyBatchAsync", 0, "cuMemcpyBatchAsync"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 0, "cuStreamGetCaptureInfo_v2"},
};

/*
 * The protocol of cuda.h 13.0: an unknown name is not an error of the call; the pointer is NULL and
 * the status 1, "not found". The name is noted, so that a report can say what was missing.
 */
static void look_up(const char *name, int version, void **fn, int *status)
{
    static const char *const suffixes[] = {"_v2", "", "_v3"};
    char symbol[160];
    size_t len = strlen(name);
    void *p = NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && p == NULL; i++) {
        if (strcmp(shapes[i].base, name) == 0 && version >= shapes[i].version) {
            p = sim_driver_symbol(shapes[i].symbol);
        }
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && p == NULL && len < 150; i++) {
        memcpy(symbol, name, len);
        memcpy(symbol + len, suffixes[i], strlen(suffixes[i]) + 1);
        p = sim_driver_symbol(symbol);
    }
    *fn = p;
    if (status != NULL) {
        *status = p == NULL;
    }
}

SIM_API int cuGetProcAddress_v2(const char *name, void **fn, int version, uint64_t flags,
                                int *status)
{
    (void)flags;
    look_up(name, version, fn, status);
    return SIM_OK;
}

SIM_API int cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, fn, version, flags, NULL);
}

SIM_API int cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned version,
                                             uint64_t flags, int *status)
{
    (void)flags;
    look_up(name, (int)version, fn, status);
    return SIM_OK;
}

SIM_API int cudaGetDriverEntryPoint(const char *name, void **fn, uint64_t flags, int *status)
{
    return cudaGetDriverEntryPointByVersion(name, fn, 13000, flags, status);
}
