/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_ENGINE_FETCH_H
#define PLIM_OBSERVE_ENGINE_FETCH_H

/*
 * Asking serving engines for their metrics, in a thread of its own: whoever observes takes what was said last and
 * never waits.
 *
 *   server   one address that is asked: configured, or found here (engine_process.h)
 *
 * A server that is down, slow, or says what is no page of metrics is down: it is asked less and less often, at most
 * once a minute, and its figures are unknown meanwhile. Nothing but GET is sent; redirections and proxies are not
 * followed; a page is at most `body_limit` bytes. Servers that were not configured are asked on loopback only.
 * Threads: one thread opens, reads and closes.
 */

#include "observe/engine_process.h"
#include "observe/place.h"

#define PLIM_ENGINE_SERVERS 64 /* most that are asked */

struct plim_engine_fetch_options {
    const struct plim_world *world; /* NULL: the real one; where engines are looked for */
    const struct plim_place
        *servers; /* [n_servers] http://HOST:PORT[/PATH], https://..., HOST:PORT,
                                         unix:PATH */
    size_t n_servers;
    bool discover; /* ask known engines that are found on this machine */
    uint64_t
        interval_ns; /* between two questions; 0: five seconds, as engines write each question into their logs */
    uint64_t timeout_ns; /* for one answer; 0: two seconds */
    size_t body_limit;   /* bytes; 0: 16 MiB */
};

struct plim_engine_fetch;

/** plim_engine_fetch_open() - start asking.
 * Errors: PLIM_E_USAGE an address that is none; PLIM_E_UNSUPPORTED servers are configured and libcurl is not
 * installed; PLIM_E_RANGE too many; PLIM_E_NOMEM; PLIM_E_OS no thread. */
PLIM_MUST_USE enum plim_status
plim_engine_fetch_open(const struct plim_engine_fetch_options *options,
                       struct plim_engine_fetch **out, struct plim_err *err);

/**
 * plim_engine_fetch_read() - append what is known: engines in the order of servers, and what happened since the
 * last call: an engine came up, went down, began anew, fell asleep, woke up.
 * @out: its sample's uses tell which processes use a device.
 * Errors: PLIM_E_NOMEM; PLIM_E_UNSUPPORTED engines were found and libcurl is not installed.
 * Cost: a copy. Waits for nobody.
 */
PLIM_MUST_USE enum plim_status plim_engine_fetch_read(struct plim_engine_fetch *fetch,
                                                      struct plim_observation *out,
                                                      struct plim_err *err);

/** plim_engine_fetch_change() - ask these servers from now on, as of options. Those that are asked already keep what
 * they said; the others are dropped without a word. Errors: PLIM_E_USAGE, PLIM_E_RANGE, PLIM_E_NOMEM; nothing is
 * changed then. Waits for nobody. */
PLIM_MUST_USE enum plim_status plim_engine_fetch_change(struct plim_engine_fetch *fetch,
                                                        const struct plim_place *servers, size_t n,
                                                        bool discover, struct plim_err *err);

/** plim_engine_fetch_close() - stop; waits for the thread, at most some milliseconds. NULL is allowed. */
void plim_engine_fetch_close(struct plim_engine_fetch *fetch);

/* ---- addresses (engine_address.c) ---- */

struct plim_engine_address {
    char name[64];    /* as given, or host:port, or the end of a socket's path */
    char url[512];    /* with a path */
    char socket[108]; /* of a Unix socket, or "" */
    uint16_t local;   /* port, when it is on this machine's loopback; else 0 */
};

/** plim_engine_address_parse() - see plim_engine_fetch_options.servers. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim_engine_address_parse(const struct plim_place *place,
                                                         struct plim_engine_address *out,
                                                         struct plim_err *err);

#endif
