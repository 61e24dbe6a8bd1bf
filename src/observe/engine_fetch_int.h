/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_ENGINE_FETCH_INT_H
#define PLIM_OBSERVE_ENGINE_FETCH_INT_H

/*
 * Inside the thread that asks engines:
 *
 *   engine_fetch.c     the thread's life, and the other side: who opens, reads, changes and closes
 *   engine_servers.c   whom it asks: configured servers, and those that are found here
 *   engine_ask.c       a question to a server by libcurl, and what its answer says
 *
 * The thread's own: servers' transfers, the tree of processes, libcurl. Shared with the other side, under `lock`:
 * each server's `said`, the list of users, happenings, the end. What a page says is put together outside the lock
 * and handed over whole.
 */

#include "observe/engine_fetch.h"

#include "http/curl.h"
#include "observe/engine_page.h"

#include <pthread.h>

#define PLIM__ENGINE_USERS 256 /* most pids that are told to the thread */

/* What a server said last. */
struct plim__engine_said {
    struct plim_engine_list engines; /* of the last whole page */
    bool asked;                      /* it answered, or failed to, at least once */
    bool up;
    uint64_t told_ns;
    uint32_t restarts;
    uint32_t pid;
    uint32_t workers, worker[PLIM_ENGINE_WORKERS];
};

struct plim__engine_server {
    struct plim_engine_address address;
    enum plim_engine_kind guess; /* from its command line */
    bool found;                  /* not configured: it goes when its process has gone */
    CURL *easy;                  /* NULL until it is asked first */
    bool flying;
    uint64_t next_ns; /* when to ask, by the monotonic clock */
    unsigned failures;
    size_t got, limit; /* bytes of the page so far, and at most */
    double process_start;
    struct plim_engine_page page;
    struct plim__engine_said said; /* under the lock */
};

/* Who shall be asked from now on. */
struct plim__engine_change {
    struct plim__engine_server
        *server[PLIM_ENGINE_SERVERS]; /* owned: configured ones, not asked yet */
    size_t n;
    bool discover;
};

struct plim_engine_fetch {
    struct plim_world world;
    uint64_t interval_ns, timeout_ns;
    size_t body_limit;
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows, up to the next empty line */
    pthread_cond_t wake;
    bool stop;
    struct plim__engine_change *change; /* owned; NULL: nothing was changed */
    CURLM *multi;                       /* set once, when there is somebody to ask */
    bool no_curl;                       /* engines were found, and libcurl is not there */
    uint32_t users[PLIM__ENGINE_USERS];
    size_t n_users;
    uint64_t changed_ns; /* when other processes began to use devices */
    struct plim__engine_server
        *server[PLIM_ENGINE_SERVERS]; /* owned; added and removed by the thread only */
    size_t n_servers;
    PLIM_VEC(struct plim_happening) happenings;

    struct plim_curl curl; /* the thread's own from here on */
    struct plim_engine_tree tree;
    bool discover;
    uint64_t look_ns; /* when engines were looked for last; 0: look now */
};

/* ---- engine_servers.c ---- */

/** plim__engine_change_new() - the servers of options, not asked yet. Errors: PLIM_E_USAGE an address that is none;
 * PLIM_E_RANGE too many; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status
plim__engine_change_new(struct plim_engine_fetch *fetch, const struct plim_place *servers, size_t n,
                        bool discover, struct plim__engine_change **out, struct plim_err *err);
void plim__engine_change_free(struct plim_engine_fetch *fetch, struct plim__engine_change *change);

/** plim__engine_turn() - ask whom the change says. A server that was asked before and still is keeps what it said.
 * Takes the change. */
void plim__engine_turn(struct plim_engine_fetch *fetch, struct plim__engine_change *change);

/** plim__engine_look() - when it is time, look for engines on this machine, and for the processes of servers. */
void plim__engine_look(struct plim_engine_fetch *fetch, uint64_t now);

/** plim__engine_server_free() - end its transfer, if one is under way. */
void plim__engine_server_free(struct plim_engine_fetch *fetch, struct plim__engine_server *server);

/* ---- engine_ask.c ---- */

/** plim__engine_curl() - libcurl, when somebody is to be asked. Errors: PLIM_E_UNSUPPORTED; PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__engine_curl(struct plim_engine_fetch *fetch,
                                                 struct plim_err *err);
void plim__engine_ask(struct plim_engine_fetch *fetch, struct plim__engine_server *server,
                      uint64_t now);

/** plim__engine_answers() - go on with what is under way, and take the answers that are whole. */
void plim__engine_answers(struct plim_engine_fetch *fetch);

#endif
