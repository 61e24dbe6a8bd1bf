/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_CALL_H
#define SIM_CALL_H

/*
 * How an exported call is put together: enter, do it under the lock, log, remember the error.
 *
 * Runtime calls return through sim_ret, which sets the thread's last error; driver calls do not.
 * Opaque handles are `void *`, enumerations `int`: the ABI is the same, and no vendor header is
 * needed to build.
 */

#include "sim.h"

/* Start of a call that needs a context: returns from the caller, unlocked, when it fails. */
static inline int sim_begin(enum sim_call call, int device)
{
    int rc = sim_enter(call);
    if (rc == SIM_OK) {
        (void)pthread_mutex_lock(&sim_lock);
        rc = sim_context(device);
        if (rc != SIM_OK) {
            (void)pthread_mutex_unlock(&sim_lock);
        }
    }
    return rc;
}

static inline void sim_end(void)
{
    (void)pthread_mutex_unlock(&sim_lock);
}

/* What both the runtime and the driver entry points of a call do. call_memory.c, call_stream.c. */
int sim_call_malloc(void **out, size_t bytes);
int sim_call_free(void *p);
int sim_call_info(size_t *free_bytes, size_t *total);
int sim_call_malloc_async(void **out, size_t bytes, struct sim_mempool *pool, void *stream);
int sim_call_free_async(void *p, void *stream);
int sim_call_pool_trim(struct sim_mempool *pool, size_t keep);
int sim_call_managed(void **out, size_t bytes);
int sim_call_host_alloc(void **out, size_t bytes);
int sim_call_host_free(void *p);
int sim_call_host_register(void *p, size_t bytes);
int sim_call_host_unregister(void *p);
int sim_call_copy(void *to, const void *from, size_t bytes, void *stream, bool async);
int sim_call_copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                     size_t height, void *stream);
int sim_call_fill(void *to, int value, size_t bytes, void *stream);
int sim_call_symbol(void **out, const void *symbol, size_t bytes);

int sim_call_stream_new(void **out, unsigned flags, int priority);
int sim_call_stream_destroy(void *stream);
int sim_call_stream_sync(void *stream);
int sim_call_stream_query(void *stream);
int sim_call_stream_wait(void *stream, void *event);
int sim_call_device_sync(void);
int sim_call_event_new(void **out, unsigned flags);
int sim_call_event_destroy(void *event);
int sim_call_event_record(void *event, void *stream);
int sim_call_event_query(void *event);
int sim_call_event_sync(void *event);
int sim_call_event_elapsed(float *ms, void *from, void *to);
int sim_call_launch(const void *function, void *stream);
int sim_call_host_func(void *stream, void (*fn)(void *), void *data);
int sim_call_capture_begin(void *stream, void *graph, int mode);
int sim_call_capture_end(void *stream, void **graph);
int sim_call_capture_info(void *stream, int *status, uint64_t *id, void **graph, void ***deps,
                          size_t *n_deps);
int sim_call_capture_update(void *stream, void *const *deps, size_t n, unsigned flags);
int sim_call_graph_nodes(void *graph, void **out, size_t *n);
int sim_call_graph_instantiate(void **exec, void *graph);
int sim_call_graph_exec_destroy(void *exec);
int sim_call_graph_launch(void *exec, void *stream);
int sim_call_node_deps(void *node, void **out, size_t *n);
int sim_call_set_device(int device);

#endif
