/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_GATE_H
#define PLIMSOLL_GATE_H

/*
 * The gate: whether a server has room for a request, said before the request starts.
 *
 *   unit         what memory is counted in: a block of a paged engine's pool, or `unit_bytes` bytes
 *   pool         the units that keys and values may take: capacity_units
 *   reservation  a request that was admitted and is not over: its number is its id, never 0, below 2^53
 *   held         units for the tokens that a request has now; peak: for the most tokens it can have
 *   forecast     units that all reservations will hold in so many steps: expected, and how sure that is
 *   class        requests that behave alike (a client, a route, a model): output lengths are learned by class
 *   pressure     how full the pool will be at the worst moment ahead, as a share; 1 is the line
 *   front door   whoever asks: a middleware inside an API server, a daemon, a simulation
 *
 * A ledger lives in memory that the caller gives: plain memory, or one file that several processes map.
 * `struct plimsoll_gate` is one process's handle on it. A front door asks plimsoll_gate_admit() for each
 * request, tells growth with plimsoll_gate_extend() (every few dozen tokens is enough; the first token at
 * once; an answer that comes in one piece is reckoned until its release), and ends with plimsoll_gate_release(). Between reports requests count
 * as having gone on at the pace that was learned. Every second or so somebody calls plimsoll_gate_tick() and,
 * with the engine's figures, plimsoll_gate_observe(). All counts that are told are totals so far, so telling
 * one twice does no harm; unknown ids are counted and otherwise ignored.
 *
 * Time is a parameter: nanoseconds of CLOCK_MONOTONIC (or of a simulation), one clock for a ledger. Going
 * back is read as standing still. Wall clocks do not occur.
 * Threads and processes: any may call at once. One lock guards the ledger for under a microsecond; who dies
 * inside it is noticed by the next one, who repairs the sums from the reservations. Waiting is bounded:
 * PLIMSOLL_GATE_BUSY after about 20 ms. Reservations of a dead process are returned by the next tick
 * (pid and start time, within one pid namespace), all others when their lease ends.
 * Open the file after fork(), not before. Content of the file is checked, never trusted.
 * No function allocates, prints or keeps state of its own. Needs libc and libm only.
 * Cost: admit, extend and release are O(1); tick looks at a part of the reservations at a time.
 * How it decides, and figures: docs/design/gate.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define PLIMSOLL_GATE_API __attribute__((visibility("default")))
#else
#    define PLIMSOLL_GATE_API
#endif

#define PLIMSOLL_GATE_VERSION   3u  /* of the layout in memory */
#define PLIMSOLL_GATE_GROUPS    8u  /* of layers, at most */
#define PLIMSOLL_GATE_CLASSES   64u /* class 0 is everybody who is in no other */
#define PLIMSOLL_GATE_NAME      48u /* bytes of a class's name, with the NUL */
#define PLIMSOLL_GATE_SLOTS_MAX (1u << 20)
#define PLIMSOLL_GATE_WAIT_MAX  1024u
#define PLIMSOLL_GATE_UNITS_MAX (UINT64_C(1) << 24) /* of a pool; choose unit_bytes accordingly */

/* What functions return besides 0. X(name, number, text) */
#define PLIMSOLL_GATE_CODE_MAP(X)                                                                  \
    X(OK, 0, "ok")                                                                                 \
    X(UNKNOWN, 1, "no such reservation")                                                           \
    X(BUSY, 2, "the ledger is locked by a process that does not go on")                            \
    X(BAD_CONFIG, 3, "the configuration makes no sense")                                           \
    X(BAD_LEDGER, 4, "what is there is no ledger of this version")                                 \
    X(OTHER_CONFIG, 5, "the ledger is in use with another configuration")                          \
    X(TOO_SMALL, 6, "the memory is too small for this configuration")                              \
    X(NO_FILE, 7, "the file cannot be opened or mapped: see errno")                                \
    X(NO_ROOM, 8, "the table of processes is full")

enum plimsoll_gate_code {
#define PLIMSOLL__X(name, number, text) PLIMSOLL_GATE_##name = number,
    PLIMSOLL_GATE_CODE_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
};

/* X(name, number, word) */
#define PLIMSOLL_GATE_VERDICT_MAP(X)                                                               \
    X(ADMIT, 0, "admit")                                                                           \
    X(LATER, 1, "later")    /* not now: 429 with Retry-After */                                    \
    X(NEVER, 2, "never")    /* it can never fit: 400 */                                            \
    X(DRAINING, 3, "drain") /* the server takes nothing new: 503 */                                \
    X(WAIT, 4, "wait")      /* in the queue: ask plimsoll_gate_poll() */

enum plimsoll_gate_verdict {
#define PLIMSOLL__X(name, number, word) PLIMSOLL_GATE_##name = number,
    PLIMSOLL_GATE_VERDICT_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
};

/* Why. X(name, number, word, HTTP status, code of the error body, sentence for the client) */
#define PLIMSOLL_GATE_REASON_MAP(X)                                                                \
    X(FITS, 0, "fits", 200, "", "")                                                                \
    X(TOO_LONG, 1, "too_long", 400, "context_length_exceeded",                                     \
      "The prompt is as long as this model's context or longer.")                                  \
    X(TOO_LARGE, 2, "too_large", 400, "request_too_large",                                         \
      "This request needs more memory than the server has, even when it is idle.")                 \
    X(MEMORY, 3, "memory", 429, "rate_limit_exceeded",                                             \
      "The server has no memory for this request now.")                                            \
    X(WORKSPACE, 4, "workspace", 429, "rate_limit_exceeded",                                       \
      "The server has no memory to process a request of this kind now.")                           \
    X(FIRST_TOKEN, 5, "first_token", 429, "rate_limit_exceeded",                                   \
      "The request would wait too long for its first token.")                                      \
    X(PACE, 6, "pace", 429, "rate_limit_exceeded",                                                 \
      "More requests at once would make all of them too slow.")                                    \
    X(REQUESTS, 7, "requests", 429, "rate_limit_exceeded", "Too many requests at once.")           \
    X(BUDGET, 8, "budget", 429, "rate_limit_exceeded",                                             \
      "This client's budget is used up by its running requests.")                                  \
    X(SHARE, 9, "share", 429, "rate_limit_exceeded",                                               \
      "The server is full and this client has its share of it.")                                   \
    X(PRIORITY, 10, "priority", 429, "rate_limit_exceeded",                                        \
      "The server is nearly full and takes only more important requests.")                         \
    X(LONG, 11, "long", 429, "rate_limit_exceeded",                                                \
      "Enough long requests are running; shorter ones are still taken.")                           \
    X(STALE, 12, "stale", 429, "rate_limit_exceeded",                                              \
      "The state of the server is not known at the moment.")                                       \
    X(TABLE, 13, "table", 429, "rate_limit_exceeded", "Too many requests at once.")                \
    X(QUEUE, 14, "queue", 429, "rate_limit_exceeded", "Others have been waiting for longer.")      \
    X(DRAIN, 15, "drain", 503, "service_unavailable",                                              \
      "The server is about to stop and takes no new requests.")                                    \
    X(BREAKER, 16, "breaker", 503, "service_unavailable",                                          \
      "The server ran out of memory repeatedly and is about to be restarted.")

enum plimsoll_gate_reason {
#define PLIMSOLL__X(name, ...) PLIMSOLL_GATE_WHY_##name,
    PLIMSOLL_GATE_REASON_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
    PLIMSOLL_GATE_REASONS
};

/* How memory is judged. X(name, number, word, meaning) */
#define PLIMSOLL_GATE_POLICY_MAP(X)                                                                \
    X(EXPECTED, 0, "expected",                                                                     \
      "the forecast of what is held, with a margin that grows with each preemption")               \
    X(CONSERVATIVE, 1, "conservative", "the peaks of all: nothing is ever preempted")              \
    X(OVERCOMMIT, 2, "overcommit",                                                                 \
      "what is held and a share of the rest of the peaks; the share adapts")                       \
    X(UNLIMITED, 3, "unlimited", "memory is booked but not judged")

enum plimsoll_gate_policy {
#define PLIMSOLL__X(name, number, word, meaning) PLIMSOLL_GATE_POLICY_##name = number,
    PLIMSOLL_GATE_POLICY_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
    PLIMSOLL_GATE_POLICIES
};

/* How a request ended. X(name, number, word) */
#define PLIMSOLL_GATE_OUTCOME_MAP(X)                                                               \
    X(STOPPED, 0, "stopped")     /* the model ended it: its length is learned */                   \
    X(LENGTH, 1, "length")       /* max_tokens ended it: the length would have been more */        \
    X(CANCELLED, 2, "cancelled") /* the client left: likewise */                                   \
    X(FAILED, 3, "failed")       /* nothing is learned */                                          \
    X(OOM, 4, "oom")             /* the server ran out of memory: plimsoll_gate_oom() too */

enum plimsoll_gate_outcome {
#define PLIMSOLL__X(name, number, word) PLIMSOLL_GATE_##name = number,
    PLIMSOLL_GATE_OUTCOME_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
};

/* Layers whose keys and values have one shape. A request of T tokens takes
 * units_per_block * (ceil(min(T, cap_tokens) / block_tokens) + extra_blocks while capped) units. Before its first
 * token the cap is higher by a step: the engine books what a step computes before it lets go of what is behind the
 * window. */
struct plimsoll_gate_group {
    uint32_t block_tokens; /* at least 1 */
    uint32_t cap_tokens;   /* kept at most between steps, the window - 1; 0: all */
    uint32_t
        units_per_block;   /* at least 1; 1 where all groups draw from one pool of equal blocks */
    uint32_t extra_blocks; /* of a capped request: a window begins and ends inside blocks */
};

#define PLIMSOLL_GATE_WORK_IN_POOL 1u /* flags: workspace comes out of the pool (no paged engine) */

/* How a ledger is made. plimsoll_gate_defaults() first, then what is known. 0 means "no limit" or "not
 * known" where nothing else is said. */
struct plimsoll_gate_config {
    uint32_t size;           /* sizeof, set by plimsoll_gate_defaults() */
    uint32_t flags;          /* PLIMSOLL_GATE_* */
    uint64_t capacity_units; /* that requests can use (vLLM: num_gpu_blocks - 1) */
    uint64_t unit_bytes;     /* for people, and for workspace in the pool */
    uint32_t n_groups;       /* at least 1, or state_units */
    uint32_t state_units;    /* of each sequence whatever its length */
    struct plimsoll_gate_group groups[PLIMSOLL_GATE_GROUPS];
    uint32_t max_length;       /* tokens, prompt and output together */
    uint32_t lookahead_tokens; /* that the engine books ahead for each sequence (speculation) */
    uint32_t max_requests;     /* reservations at once */
    uint32_t slots;            /* reservations that the memory has room for; default 16384 */
    uint32_t waiters;          /* of the queue; 0: no queue. At most PLIMSOLL_GATE_WAIT_MAX */
    uint32_t policy;           /* enum plimsoll_gate_policy */
    uint64_t lease_ns;         /* default 60 s; plimsoll_gate_extend() renews it */
    uint64_t stale_ns;         /* engine figures older than this count as full; 0: never */

    double high;       /* pressure at which nothing more is taken; default 1 */
    double low;        /* then taken again below it; default 0.995 */
    double margin;     /* EXPECTED: standard deviations kept free at the start; default 2 */
    double share;      /* OVERCOMMIT: of the rest of the peaks at the start; default 0.7 */
    double long_part;  /* requests expected to take more of the pool are long; 0: none is */
    double long_share; /* all long ones together get at most this part; default 0.5 */

    uint64_t first_token_ns;  /* longest wait for a first token; 0: not guarded */
    uint64_t token_ns;        /* longest time for each further token; 0: not guarded */
    uint32_t queued_tokens;   /* prompt tokens before their first token; 0: no limit */
    uint32_t expected_output; /* tokens, before anything was learned; default 256 */
    double prefill_tokens_s; /* prompt tokens a second, before anything was learned; 0: not known */

    uint64_t work_token_bytes; /* workspace for each prompt token computed in a step */
    uint32_t step_tokens;      /* of one step at most; 0: whole prompts at once */
    uint32_t oom_limit;        /* failures in a row that trip the breaker; default 3 */
    uint64_t work_image_bytes; /* for each token of pictures, while they are encoded */
    uint64_t work_row_bytes;   /* for each prompt token whose log-probabilities are asked */
    uint64_t work_limit_bytes; /* memory for workspace when no headroom is told; 0: not judged */
    double work_margin;        /* share of headroom kept free; default 0.1 */
    uint64_t oom_window_ns;    /* failures further apart are not in a row; default 120 s */
    double stranded_limit;     /* share of reserved bytes stranded that trips it; 0: never */
    uint64_t reserved[8];      /* 0 */
};

#define PLIMSOLL_GATE_MAY_WAIT 1u /* rather than be refused */
#define PLIMSOLL_GATE_BY_LEASE                                                                     \
    2u /* it outlives the process that asks: only its lease, or its release, ends it */
#define PLIMSOLL_GATE_WHOLE                                                                        \
    4u /* its answer comes in one piece: growth is reckoned from the start */
#define PLIMSOLL_GATE_APART                                                                        \
    8u /* samples answer as many prompts, of prompt_tokens each on the average: they share nothing */

struct plimsoll_gate_request {
    uint32_t prompt_tokens;
    uint32_t max_tokens;    /* most output; 0: what the model's length leaves */
    uint32_t cached_tokens; /* of the prompt, that need not be computed */
    uint32_t
        shared_tokens; /* of the prompt, whose blocks running requests hold: they cost nothing */
    uint32_t samples;  /* answers to one prompt; 0: 1, more than 65536: so many; see _APART */
    uint32_t image_tokens; /* of the prompt, from pictures */
    uint32_t logprob_rows; /* prompt tokens whose log-probabilities are asked */
    uint32_t class_id;     /* from plimsoll_gate_class(); 0: in none */
    int32_t
        priority; /* 0: normal; below: refused when a tenth is free still; above: up to the whole pool */
    uint32_t known_output;   /* tokens, where somebody knows; 0: expected by class */
    uint32_t flags;          /* PLIMSOLL_GATE_MAY_WAIT, _BY_LEASE, _WHOLE, _APART */
    uint32_t longest_tokens; /* of _APART: of the longest prompt; 0: all are as long */
    uint64_t lease_ns;       /* 0: the ledger's */
};

struct plimsoll_gate_decision {
    uint64_t id;             /* ADMIT, WAIT: of the reservation; else 0 */
    uint32_t verdict;        /* enum plimsoll_gate_verdict */
    uint32_t reason;         /* enum plimsoll_gate_reason */
    uint32_t http;           /* status; 200 for ADMIT and WAIT */
    uint32_t retry_after_ms; /* LATER, DRAINING: 1000 to 60000; WAIT: when to ask again */
    uint32_t now_units;      /* for the prompt */
    uint32_t expected_units; /* most that it is expected to hold */
    uint32_t peak_units;     /* most that it can hold */
    uint32_t position;       /* WAIT: 0 is next */
    uint64_t work_bytes;     /* workspace while its prompt is computed */
    uint64_t first_token_ns; /* expected wait for the first token; 0: not known */
    double pressure;         /* with this request */
    uint32_t is_long;        /* 1: belongs on the route for long requests, if there is one */
    uint32_t reserved;
};

#define PLIMSOLL_GATE_HAS_USAGE     1u
#define PLIMSOLL_GATE_HAS_PREEMPTED 2u
#define PLIMSOLL_GATE_HAS_HEADROOM  4u
#define PLIMSOLL_GATE_HAS_STRANDED  8u
#define PLIMSOLL_GATE_HAS_ENGINE    16u

/* What the engine and the monitor say. */
struct plimsoll_gate_figures {
    uint32_t has; /* PLIMSOLL_GATE_HAS_*: which of the following are known */
    uint32_t reserved;
    double usage;            /* share of the pool in use (vllm:kv_cache_usage_perc) */
    uint64_t preempted;      /* so far (vllm:num_preemptions_total) */
    uint64_t headroom_bytes; /* of the device, for workspace; true for 30 s */
    double stranded;         /* stranded / reserved bytes of the allocator */
    uint64_t engine;         /* changes when the engine was started anew (start time, pid) */
};

/* The ledger at one moment. */
struct plimsoll_gate_state {
    uint64_t capacity_units;
    uint64_t held_units;     /* by the ledger, as it is likely to be now */
    uint64_t expected_units; /* at the worst moment ahead, without margin */
    uint64_t peak_units;     /* sum of the peaks */
    uint64_t used_units;     /* by the engine's last figures; UINT64_MAX: none yet */
    uint64_t foreign_units;  /* used by the engine and in no reservation, counted in */
    int64_t drift_units;     /* used - held of requests that have begun, at the last figures */
    double drift;            /* the same as a share of the pool */
    double sharing;          /* what requests that have begun really use for each unit held */
    double pressure;
    double margin;                 /* EXPECTED: standard deviations kept free now */
    double share;                  /* OVERCOMMIT: now */
    double prefill_tokens_s;       /* learned; 0: not yet */
    double first_token_s;          /* a request of no tokens would wait now; 0: not known */
    double token_s;                /* time for each token lately; 0: not known */
    double drain_units_s;          /* units returned a second lately */
    uint32_t limit_requests;       /* by pace; UINT32_MAX: none */
    uint32_t live, begun, waiting; /* reservations; of them with a first token; in the queue */
    uint32_t processes;
    uint32_t full;           /* between `high` and `low` */
    uint32_t draining;       /* 1: asked; 2: the breaker */
    uint32_t stale;          /* 1: figures are too old */
    uint32_t broken_by;      /* 0, or 1: failures in a row, 2: stranded bytes */
    uint64_t queued_tokens;  /* prompt tokens before their first token, not cached */
    uint64_t work_bytes;     /* workspace of requests before their first token */
    uint64_t headroom_bytes; /* UINT64_MAX: not told */
    uint64_t figures_age_ns; /* UINT64_MAX: none yet */
    uint64_t admitted, finished, cancelled, failed, expired, reclaimed; /* so far */
    uint64_t refused[32];                                               /* by reason */
    uint64_t unknown_ids; /* released or extended twice, or never given */
    uint64_t preempted;   /* since the ledger was made, by the engine's figures */
    uint64_t ooms;
    uint64_t repairs; /* of the sums, after a death inside the lock */
    uint64_t reserved[8];
};

struct plimsoll_gate_class {
    char name[PLIMSOLL_GATE_NAME];
    double weight;           /* share against the others when the pool is full; default 1 */
    double budget;           /* largest part of the pool; 0: no limit */
    uint32_t max_requests;   /* 0: no limit */
    uint32_t live;           /* out */
    uint64_t expected_units; /* out: of its reservations */
    uint64_t admitted, refused, finished;        /* out */
    double output_mean;                          /* out: tokens, as learned */
    uint32_t output_p50, output_p90, output_p99; /* out */
    uint32_t reserved;
};

/* A process's handle; the caller's storage, content private. */
struct plimsoll_gate {
    uint64_t word[128];
};

/** plimsoll_gate_defaults() - a configuration without a pool. */
PLIMSOLL_GATE_API void plimsoll_gate_defaults(struct plimsoll_gate_config *config);

/** plimsoll_gate_wrong() - the name of the first field that makes no sense; NULL: all do. */
PLIMSOLL_GATE_API const char *plimsoll_gate_wrong(const struct plimsoll_gate_config *config);

/** plimsoll_gate_bytes() - memory that a ledger needs; 0: the configuration makes no sense. */
PLIMSOLL_GATE_API size_t plimsoll_gate_bytes(const struct plimsoll_gate_config *config);

/** plimsoll_gate_create() - make a ledger in memory. @memory: aligned to 64 bytes, borrowed until the last
 * use; its content is overwritten. Returns 0, BAD_CONFIG, TOO_SMALL. */
PLIMSOLL_GATE_API int plimsoll_gate_create(struct plimsoll_gate *gate, void *memory, size_t bytes,
                                           const struct plimsoll_gate_config *config,
                                           uint64_t now_ns);

/** plimsoll_gate_attach() - use a ledger that somebody made. Returns 0, BAD_LEDGER, BUSY, NO_ROOM. */
PLIMSOLL_GATE_API int plimsoll_gate_attach(struct plimsoll_gate *gate, void *memory, size_t bytes,
                                           uint64_t now_ns);

/**
 * plimsoll_gate_open() - the ledger in a file (on a tmpfs such as /dev/shm), made when it is not there.
 * @config: NULL: only one that is there, to look at and to steer. With a configuration it is a front door's. A ledger
 * that differs in the size of the pool only is taken over with what was learned, one that differs otherwise is made
 * anew, when no live front door has it open: for those that look on, the old file stays what it was, see
 * plimsoll_gate_replaced(). The file has mode 0600 and, when it was there, must be a regular file of this user or root, and
 * empty or a ledger (of any version, or half made): nothing else is written over. All of its memory (512 bytes for each
 * slot) is taken when it is made: on a full file system that fails with ENOSPC.
 * Returns 0, NO_FILE (errno says why), BAD_CONFIG, OTHER_CONFIG, BAD_LEDGER, BUSY, NO_ROOM.
 */
PLIMSOLL_GATE_API int plimsoll_gate_open(struct plimsoll_gate *gate, const char *path,
                                         const struct plimsoll_gate_config *config,
                                         uint64_t now_ns);

/** plimsoll_gate_replaced() - whether `path` names another file by now than the one that is open: a server with another
 * configuration began, or somebody removed it. Close it then, and open it again. False for a ledger without a file. */
PLIMSOLL_GATE_API bool plimsoll_gate_replaced(const struct plimsoll_gate *gate, const char *path);

/** plimsoll_gate_close() - return this process's reservations, but those BY_LEASE, and leave; unmaps a file, which stays. */
PLIMSOLL_GATE_API void plimsoll_gate_close(struct plimsoll_gate *gate, uint64_t now_ns);

/** plimsoll_gate_config() - a copy of the configuration in use. */
PLIMSOLL_GATE_API void plimsoll_gate_config(const struct plimsoll_gate *gate,
                                            struct plimsoll_gate_config *out);

/** plimsoll_gate_admit() - judge a request and, if it may start, reserve for it.
 * Returns 0 with a decision of any verdict, or BUSY: the front door fails open or closed by its own choice. */
PLIMSOLL_GATE_API int plimsoll_gate_admit(struct plimsoll_gate *gate,
                                          const struct plimsoll_gate_request *request,
                                          struct plimsoll_gate_decision *out, uint64_t now_ns);

/** plimsoll_gate_poll() - ask again for a request that waits. ADMIT: it is a reservation now. WAIT: not
 * yet. NEVER, DRAINING: it is out of the queue. One that does not ask loses its place when its lease ends;
 * to give up, release it. Returns 0, UNKNOWN, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_poll(struct plimsoll_gate *gate, uint64_t id,
                                         struct plimsoll_gate_decision *out, uint64_t now_ns);

/** plimsoll_gate_extend() - it has `generated` output tokens now (of all samples: the longest). Renews the lease,
 * also when nothing grew. Returns 0, UNKNOWN, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_extend(struct plimsoll_gate *gate, uint64_t id,
                                           uint32_t generated, uint64_t now_ns);

/** plimsoll_gate_correct() - its prompt really has so many tokens. Returns 0, UNKNOWN, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_correct(struct plimsoll_gate *gate, uint64_t id,
                                            uint32_t prompt_tokens, uint64_t now_ns);

/** plimsoll_gate_release() - it is over. @generated: output tokens in the end. @outcome: enum
 * plimsoll_gate_outcome. Also for one that waits. Returns 0, UNKNOWN, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_release(struct plimsoll_gate *gate, uint64_t id,
                                            uint32_t generated, uint32_t outcome, uint64_t now_ns);

/** plimsoll_gate_observe() - the engine's figures. Returns 0, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_observe(struct plimsoll_gate *gate,
                                            const struct plimsoll_gate_figures *figures,
                                            uint64_t now_ns);

/** plimsoll_gate_oom() - the server ran out of memory on such a request. @wanted: bytes of the allocation that
 * failed, 0: not known. Its kind of request is priced higher from now on; where no headroom is told, what it was
 * priced at is more than there is. @request: NULL: it is not known which: the heaviest of those that had no token
 * yet, now or when they failed within the last minute. Such a report within a minute of another says nothing new.
 * Cost with NULL: O(reservations). Returns 0, UNKNOWN (nothing new), BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_oom(struct plimsoll_gate *gate,
                                        const struct plimsoll_gate_request *request,
                                        uint64_t wanted, uint64_t now_ns);

/** plimsoll_gate_worked() - a request of this kind was served and took `bytes` of workspace at most (from a
 * snapshot or recorder): teaches the price. Returns 0, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_worked(struct plimsoll_gate *gate,
                                           const struct plimsoll_gate_request *request,
                                           uint64_t bytes, uint64_t now_ns);

/** plimsoll_gate_tick() - end leases and return what dead processes hold. Call it every second or so, in one
 * process or all. Returns 0, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_tick(struct plimsoll_gate *gate, uint64_t now_ns);

/** plimsoll_gate_drain() - take nothing new (true), or again (false; closes the breaker too). */
PLIMSOLL_GATE_API int plimsoll_gate_drain(struct plimsoll_gate *gate, bool on, uint64_t now_ns);

/** plimsoll_gate_resize() - the pool has so many units now (an engine that was started with another size). */
PLIMSOLL_GATE_API int plimsoll_gate_resize(struct plimsoll_gate *gate, uint64_t capacity_units,
                                           uint64_t now_ns);

/** plimsoll_gate_class() - the number of the class of that name, made when it is new; 0 when the table is full
 * or on BUSY. Only the first 47 bytes count. Costs a scan of 64 names: keep the number. */
PLIMSOLL_GATE_API uint32_t plimsoll_gate_class(struct plimsoll_gate *gate, const char *name,
                                               uint64_t now_ns);

/** plimsoll_gate_class_set() - weight, budget and max_requests of a class. Returns 0, UNKNOWN, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_class_set(struct plimsoll_gate *gate, uint32_t class_id,
                                              const struct plimsoll_gate_class *limits,
                                              uint64_t now_ns);

/** plimsoll_gate_class_read() - Returns 0, UNKNOWN (no such class), BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_class_read(struct plimsoll_gate *gate, uint32_t class_id,
                                               struct plimsoll_gate_class *out, uint64_t now_ns);

/** plimsoll_gate_read() - the state. Returns 0, BUSY. */
PLIMSOLL_GATE_API int plimsoll_gate_read(struct plimsoll_gate *gate,
                                         struct plimsoll_gate_state *out, uint64_t now_ns);

/** plimsoll_gate_check() - NULL, or what is wrong in the ledger (static text). O(slots). For tests. */
PLIMSOLL_GATE_API const char *plimsoll_gate_check(struct plimsoll_gate *gate);

/** Fixed words of the tables above; never NULL. */
PLIMSOLL_GATE_API const char *plimsoll_gate_code_text(int code);
PLIMSOLL_GATE_API const char *plimsoll_gate_verdict_text(uint32_t verdict);
PLIMSOLL_GATE_API const char *plimsoll_gate_reason_text(uint32_t reason); /* "memory" */
PLIMSOLL_GATE_API uint32_t plimsoll_gate_reason_http(uint32_t reason);
PLIMSOLL_GATE_API const char *plimsoll_gate_reason_code(uint32_t reason);    /* of the error body */
PLIMSOLL_GATE_API const char *plimsoll_gate_reason_message(uint32_t reason); /* for the client */
PLIMSOLL_GATE_API const char *plimsoll_gate_policy_text(uint32_t policy);
PLIMSOLL_GATE_API const char *plimsoll_gate_outcome_text(uint32_t outcome);

#ifdef __cplusplus
}
#endif
#endif
