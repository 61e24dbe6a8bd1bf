/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_STORE_WRITER_H
#define PLIM_STORE_WRITER_H

/*
 * A thread that writes batches into a store, so that a slow disk never delays who measures.
 *
 * Batches wait in a queue of bounded memory. While the store cannot be written (disk full, locked, gone) they stay there
 * and are written when it works again; when the queue is full, every second batch of its older half is given up, so
 * that the newest stay whole and the older ones get sparser. Events move on to the next batch.
 *
 * Threads: one thread fills and sends; plim_writer_state() may be called from any.
 */

#include "store/store.h"

struct plim_writer;

struct plim_writer_state {
    struct plim_store_state store;   /* as after the last write */
    bool degraded;                   /* what was sent is in memory only */
    uint64_t waiting, waiting_bytes; /* batches in the queue, and what they hold */
    uint64_t lost;                   /* points that were given up */
};

/**
 * plim_writer_open() - open the store and start the thread.
 * @options: what it points to is borrowed as long as the writer lives.
 * @queue_bytes: most memory of waiting batches, 0: 4 MiB.
 * A store that fails by PLIM_E_IO begins degraded and is tried again. Errors: those of plim_store_open() else.
 */
PLIM_MUST_USE enum plim_status plim_writer_open(const char *path,
                                                const struct plim_store_options *options,
                                                uint64_t queue_bytes, struct plim_writer **out,
                                                struct plim_err *err);

/** plim_writer_batch() - an empty batch to fill, then send; the same one until it is sent. NULL: no memory. */
struct plim_batch *plim_writer_batch(struct plim_writer *writer);

/** plim_writer_send() - hand the batch over. Never waits for the disk. */
void plim_writer_send(struct plim_writer *writer);

/** plim_writer_limit() - see plim_store_limit(); done by the thread, with the next batch. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim_writer_limit(struct plim_writer *writer, uint64_t max_bytes,
                                                 struct plim_err *err);

void plim_writer_state(struct plim_writer *writer, struct plim_writer_state *out);

/** plim_writer_close() - write what waits, unless the store is degraded, and end. */
void plim_writer_close(struct plim_writer *writer);

/** plim_store_default_path() - where the history is when nobody says: /var/lib/plimsoll/history.db for root, else below
 * XDG_STATE_HOME or ~/.local/state. Arena; NULL: no home. Before threads are started (getenv). */
const char *plim_store_default_path(struct plim_arena *arena);

#endif
