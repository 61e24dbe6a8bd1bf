/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that writes, its queue, and what it does while it cannot. See writer.h. */

#include "store/writer.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/num.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define QUEUE_BYTES (UINT64_C(4) << 20)
#define QUEUE_LEAST 8u /* batches that are never given up */
#define AGAIN_NS    PLIM_SECOND_NS
#define STATE_EVERY 64 /* batches between looks at the whole state, which costs a few queries */

struct plim_writer {
    pthread_t thread;
    struct plim_store *store; /* the thread's; NULL while it cannot be opened */
    char *path;
    struct plim_store_options options;
    uint64_t queue_bytes;
    struct plim_batch *filling; /* of who sends */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    PLIM_VEC(struct plim_batch *) queue; /* oldest first; [0] may be with the thread */
    struct plim_batch *spare;            /* an empty one, for its storage */
    bool writing;                        /* the thread has queue[0] */
    bool ending;
    uint64_t max_bytes; /* what the history may have from now on; the thread's is in `options` */
    struct plim_writer_state state;
};

/* ---- who sends ---- */

struct plim_batch *plim_writer_batch(struct plim_writer *writer)
{
    if (writer->filling == NULL) {
        (void)pthread_mutex_lock(&writer->lock);
        writer->filling = writer->spare;
        writer->spare = NULL;
        (void)pthread_mutex_unlock(&writer->lock);
    }
    if (writer->filling == NULL) {
        writer->filling = calloc(1, sizeof(*writer->filling));
    }
    return writer->filling;
}

static void free_batch(struct plim_batch *batch)
{
    if (batch != NULL) {
        plim_batch_fini(batch);
        free(batch);
    }
}

/* The events of a batch that is given up, without their subjects, to the one after it. */
static void pass_events(const struct plim_batch *from, struct plim_batch *to)
{
    plim_vec_foreach (event, &from->events) {
        if (plim_batch_event(to, event->time_ns, from->text.p + event->kind, false,
                             from->text.p + event->json, NULL) != PLIM_OK) {
            return;
        }
    }
}

/* Every second one of the older half goes. Under the lock. */
static void thin(struct plim_writer *writer)
{
    size_t kept = 0, half = writer->queue.n / 2;
    for (size_t i = 0; i < writer->queue.n; i++) {
        struct plim_batch *batch = writer->queue.items[i];
        bool with_thread = i == 0 && writer->writing;
        if (i < half && i % 2 == 1 && !with_thread) {
            writer->state.lost += batch->values.n;
            pass_events(batch, writer->queue.items[i + 1]);
            free_batch(batch);
        } else {
            writer->queue.items[kept++] = batch;
        }
    }
    writer->queue.n = kept;
}

static uint64_t waiting_bytes(const struct plim_writer *writer)
{
    uint64_t bytes = 0;
    plim_vec_foreach (batch, &writer->queue) {
        bytes += plim_batch_bytes(*batch);
    }
    return bytes;
}

void plim_writer_send(struct plim_writer *writer)
{
    struct plim_batch *batch = writer->filling;
    if (batch == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&writer->lock);
    if (plim_vec_push(&writer->queue, NULL, batch) == PLIM_OK) {
        writer->filling = NULL;
    } else {
        writer->state.lost += batch->values.n;
    }
    if (writer->queue.n > QUEUE_LEAST && waiting_bytes(writer) > writer->queue_bytes) {
        thin(writer);
    }
    writer->state.waiting = writer->queue.n;
    writer->state.waiting_bytes = waiting_bytes(writer);
    (void)pthread_cond_signal(&writer->wake);
    (void)pthread_mutex_unlock(&writer->lock);
}

enum plim_status plim_writer_limit(struct plim_writer *writer, uint64_t max_bytes,
                                   struct plim_err *err)
{
    max_bytes = max_bytes != 0 ? max_bytes : PLIM_STORE_MAX_BYTES;
    PLIM_TRY(plim_store_limit_check(max_bytes, err));
    (void)pthread_mutex_lock(&writer->lock);
    writer->max_bytes = max_bytes;
    (void)pthread_mutex_unlock(&writer->lock);
    return PLIM_OK;
}

void plim_writer_state(struct plim_writer *writer, struct plim_writer_state *out)
{
    (void)pthread_mutex_lock(&writer->lock);
    *out = writer->state;
    (void)pthread_mutex_unlock(&writer->lock);
}

/* ---- the thread ---- */

/* queue[0], for writing; NULL: the end. */
static struct plim_batch *take(struct plim_writer *writer)
{
    (void)pthread_mutex_lock(&writer->lock);
    while (writer->queue.n == 0 && !writer->ending) {
        (void)pthread_cond_wait(&writer->wake, &writer->lock);
    }
    struct plim_batch *batch = writer->queue.n > 0 ? writer->queue.items[0] : NULL;
    writer->writing = batch != NULL;
    (void)pthread_mutex_unlock(&writer->lock);
    return batch;
}

/* Wait before the next try; false: it is the end. */
static bool wait_again(struct plim_writer *writer)
{
    uint64_t until = plim_mono_ns() + AGAIN_NS;
    (void)pthread_mutex_lock(&writer->lock);
    writer->writing = false;
    while (!writer->ending && plim_cond_wait_until(&writer->wake, &writer->lock, until)) {
    }
    bool more = !writer->ending;
    writer->writing = more;
    (void)pthread_mutex_unlock(&writer->lock);
    return more;
}

static void written(struct plim_writer *writer, struct plim_batch *batch,
                    const struct plim_store_state *state)
{
    (void)pthread_mutex_lock(&writer->lock);
    writer->writing = false;
    writer->queue.n--;
    memmove(writer->queue.items, writer->queue.items + 1,
            writer->queue.n * sizeof(*writer->queue.items));
    writer->state.store = *state;
    writer->state.degraded = false;
    writer->state.waiting = writer->queue.n;
    writer->state.waiting_bytes = waiting_bytes(writer);
    if (writer->spare == NULL) {
        writer->spare = batch;
        batch = NULL;
    }
    (void)pthread_mutex_unlock(&writer->lock);
    free_batch(batch);
}

static void failed(struct plim_writer *writer, const struct plim_store_state *state)
{
    (void)pthread_mutex_lock(&writer->lock);
    writer->state.store = *state;
    writer->state.degraded = true;
    (void)pthread_mutex_unlock(&writer->lock);
}

/* The limit that was asked for since the last batch. */
static enum plim_status turn_to_limit(struct plim_writer *writer, struct plim_err *err)
{
    (void)pthread_mutex_lock(&writer->lock);
    uint64_t max_bytes = writer->max_bytes;
    (void)pthread_mutex_unlock(&writer->lock);
    bool other = max_bytes != writer->options.max_bytes;
    writer->options.max_bytes = max_bytes;
    return other && writer->store != NULL ? plim_store_limit(writer->store, max_bytes, err)
                                          : PLIM_OK;
}

static enum plim_status write_batch(struct plim_writer *writer, const struct plim_batch *batch,
                                    struct plim_store_state *state, struct plim_err *err)
{
    enum plim_status st = turn_to_limit(writer, err);
    if (st == PLIM_OK && writer->store == NULL) {
        st = plim_store_open(writer->path, &writer->options, &writer->store, err);
    }
    if (st == PLIM_OK) {
        st = plim_store_put(writer->store, batch, err);
        if (st != PLIM_OK || state->batches % STATE_EVERY == 0) {
            plim_store_state(writer->store, state);
        } else {
            plim_store_counts(writer->store, state);
        }
    }
    return st;
}

static void *run(void *arg)
{
    struct plim_writer *writer = arg;
    struct plim_store_state state = writer->state.store;
    struct plim_batch *batch;
    while ((batch = take(writer)) != NULL) {
        struct plim_err err = {0};
        if (write_batch(writer, batch, &state, &err) == PLIM_OK) {
            written(writer, batch, &state);
            continue;
        }
        if (state.fault == PLIM_STORE_NONE) {
            state.fault = PLIM_STORE_OTHER;
            memcpy(state.why, err.message, sizeof(state.why) - 1);
        }
        failed(writer, &state);
        if (!wait_again(writer)) {
            break;
        }
    }
    return NULL;
}

/* ---- beginning and end ---- */

static enum plim_status start(struct plim_writer *writer, struct plim_err *err)
{
    (void)pthread_mutex_init(&writer->lock, NULL);
    plim_cond_init(&writer->wake);
    int code = pthread_create(&writer->thread, NULL, run, writer);
    return code == 0 ? PLIM_OK : plim__fail_errno(err, PLIM_E_OS, code, "cannot start a thread");
}

static void fini(struct plim_writer *writer)
{
    plim_store_close(writer->store);
    plim_vec_foreach (batch, &writer->queue) {
        free_batch(*batch);
    }
    plim_vec_fini(&writer->queue);
    free_batch(writer->spare);
    free_batch(writer->filling);
    free(writer->path);
    free(writer);
}

enum plim_status plim_writer_open(const char *path, const struct plim_store_options *options,
                                  uint64_t queue_bytes, struct plim_writer **out,
                                  struct plim_err *err)
{
    struct plim_writer *writer = calloc(1, sizeof(*writer));
    if (writer == NULL || (writer->path = strdup(path)) == NULL) {
        free(writer);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the history");
    }
    writer->options = *options;
    writer->max_bytes = options->max_bytes != 0 ? options->max_bytes : PLIM_STORE_MAX_BYTES;
    writer->options.max_bytes = writer->max_bytes;
    writer->queue_bytes = queue_bytes != 0 ? queue_bytes : QUEUE_BYTES;
    enum plim_status st = plim_store_open(path, options, &writer->store, err);
    if (st == PLIM_OK) {
        plim_store_state(writer->store, &writer->state.store);
    } else if (st == PLIM_E_IO) {
        writer->state.degraded = true;
        st = PLIM_OK;
    }
    st = st == PLIM_OK ? start(writer, err) : st;
    if (st != PLIM_OK) {
        fini(writer);
        return st;
    }
    *out = writer;
    return PLIM_OK;
}

void plim_writer_close(struct plim_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&writer->lock);
    writer->ending = true;
    (void)pthread_cond_signal(&writer->wake);
    (void)pthread_mutex_unlock(&writer->lock);
    (void)pthread_join(writer->thread, NULL);
    (void)pthread_cond_destroy(&writer->wake);
    (void)pthread_mutex_destroy(&writer->lock);
    fini(writer);
}

const char *plim_store_default_path(struct plim_arena *arena)
{
    const char *state = plim_env_get("XDG_STATE_HOME");
    const char *home = plim_env_get("HOME");
    if (geteuid() == 0) {
        return "/var/lib/plimsoll/history.db";
    }
    if (state != NULL && state[0] == '/') {
        return plim_arena_sayf(arena, "%s/plimsoll/history.db", state);
    }
    return home != NULL ? plim_arena_sayf(arena, "%s/.local/state/plimsoll/history.db", home)
                        : NULL;
}
