/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_GATE_LEDGER_H
#define PLIM_GATE_LEDGER_H

/*
 * What lies in the memory of a ledger, and what the files here share. include/plimsoll/gate.h has the nouns.
 *
 *   head | slot [slots]
 *
 *   slot      one reservation, or free. `state` is written last when it begins and first when it ends: who
 *             dies in between leaves a slot that is whole or free, never half
 *   sums      over all live slots; each slot keeps what it added, so that taking it off again is exact. They
 *             can be computed anew from the slots: that is the repair
 *   horizon   so many output tokens ahead. All requests of a continuous batch get one token a step, so
 *             steps are the clock of the forecast
 *   told      what a request had when it was last heard of. What it has now is likely more: gate__grown()
 *   slope     units that a request that has begun grows by in GATE_SLOPE steps if it lives
 *   fixed     units x 16: forecasts are fractions, and sums of whole numbers come out even
 *
 * Everything in a head or slot but magic, version, sizes and configuration is changed under the lock only.
 * The configuration is copied into each handle and checked there. Numbers read from the memory index nothing
 * before they are compared with what they index.
 */

#include <plimsoll/gate.h>

#define GATE_MAGIC     UINT64_C(0x455441474d494c50) /* "PLIMGATE", least byte first */
#define GATE_HORIZONS  16u
#define GATE_BINS      128u /* of output lengths: exact to 8, then 8 for each doubling, to 2^18 */
#define GATE_PROCESSES 256u
#define GATE_KINDS     4u  /* of workspace: plain, pictures, log-probabilities, both */
#define GATE_SIZES     20u /* of each: powers of two */
#define GATE_FIXED     16u
#define GATE_SLOPE     16u
#define GATE_NONE      UINT32_MAX
#define GATE_MOMENT    16u /* low bits of a moment that sums leave out, so that a million add up */
#define GATE_ID_BITS   20u /* of an id: the slot's number; above: how often it was used */

/* Near ones close together: all that run grow at once, and who is about to end has not let go yet. */
static const uint32_t gate_horizon[GATE_HORIZONS] = {0,   4,   8,   16,  32,   64,   128,  192,
                                                     256, 384, 512, 768, 1024, 2048, 4096, 8192};

enum gate_slot_state {
    GATE_FREE,
    GATE_LIVE,
    GATE_WAITING
};

/* What a slot adds to the sums, or the sums. */
struct gate_forecast {
    uint64_t mean[GATE_HORIZONS]; /* fixed; [0] is what is held */
    uint64_t var[GATE_HORIZONS];  /* units squared */
};

/* 512 bytes. */
struct gate_slot {
    uint64_t id; /* keeps its last value when free */
    uint32_t state;
    uint32_t next_free; /* GATE_NONE: last */
    uint32_t process;
    uint32_t class_id;
    uint64_t lease_ns, lease_end_ns;
    uint64_t admitted_ns;
    uint64_t first_ns;                     /* 0: no token yet */
    uint64_t order;                        /* of arrival */
    uint32_t prompt, cached, shared, most; /* tokens; most: of output */
    uint32_t samples, image_tokens, logprob_rows, known;
    uint32_t generated;
    int32_t priority;
    uint32_t peak;     /* units */
    uint32_t expected; /* units, at its own worst moment */
    uint32_t queued;   /* prompt tokens that it waits for; 0 when it has begun */
    uint32_t is_long;
    uint32_t
        guessed; /* 1: nobody told of its first token; when it came and what it has now is reckoned */
    uint32_t leased; /* 1: outlives its process */
    uint64_t
        backlog; /* prompt tokens before its first token when it was admitted, its own with them */
    uint64_t work; /* bytes; 0 when it has begun */
    struct gate_forecast forecast;
    uint64_t told_ns;              /* when it had what `generated` says */
    uint32_t slope;                /* fixed */
    uint32_t whole;                /* 1: its answer comes in one piece */
    uint32_t doubt[GATE_HORIZONS]; /* fixed: how far its forecast may be off with all others */
    uint32_t apart;                /* 1: its samples have prompts of their own */
    uint32_t longest; /* tokens of the longest of these; 0: they are as long as prompt */
    uint64_t pad[3];
};

struct gate_process {
    uint32_t pid; /* 0: free */
    uint32_t handles;
    uint64_t start_ticks; /* 0: not known */
    uint64_t namespace;   /* inode of its pid namespace; 0: not known */
    uint32_t live;        /* reservations, the waiting ones with them */
    uint32_t doors;       /* handles of them that were opened with a configuration */
};

/* Kaplan-Meier: of those that came to a length, how many ended there. Weights decay. */
struct gate_lengths {
    float ended[GATE_BINS];
    float left[GATE_BINS];     /* censored: would have gone on */
    float survival[GATE_BINS]; /* share that gets to the bin's first length */
    float came[GATE_BINS]; /* answers that came to the bin, the borrowed ones with them; no guess */
    float lost[GATE_BINS]; /* of them, those that left in an earlier bin */
    double weight;         /* of the next observation */
    uint64_t n;
};

struct gate_class {
    char name[PLIMSOLL_GATE_NAME]; /* "": free, but for class 0 */
    double budget;
    uint32_t weight; /* thousandths */
    uint32_t max_requests;
    uint32_t live;
    uint32_t pad0;
    uint64_t expected; /* units */
    uint64_t admitted, refused, finished;
    uint64_t pad1[2];
};

/* A straight line through observations that lose weight: y = base + slope x. */
struct gate_line {
    double n, x, y, xx, xy, yy;
};

struct gate_pace {
    struct gate_line first; /* seconds to the first token over prompt tokens ahead */
    uint64_t last_first_ns; /* when prompts were last known to move on */
    double grown,
        grown_s; /* tokens that requests grew by lately, and the seconds that they took: decaying sums */
    double whole_s; /* for each token of answers in one piece, all time counted */
    double limit;   /* of requests at once; 0: none */
    uint32_t seen,
        slow; /* requests since the limit was last looked at; of them slower than the target */
    uint64_t lowered_ns;   /* when it was last lowered */
    uint32_t most_live;    /* since it was last looked at */
    uint32_t held_back;    /* requests that the limit refused since then */
    double drained, ended; /* units, requests; decaying sums */
    double covered;        /* seconds that these sums are of, decaying too */
    double owed;           /* units that refused ones were told to come back for */
    uint64_t drain_ns;     /* when these were last decayed */
};

struct gate_sums {
    struct gate_forecast forecast;
    uint64_t doubt[GATE_HORIZONS]; /* fixed */
    uint64_t peak;                 /* units */
    uint64_t begun_held;           /* units, of requests with a first token */
    uint64_t told;                 /* their told_ns, without the low GATE_MOMENT bits */
    uint64_t slope;                /* theirs, fixed */
    uint64_t long_expected;
    uint64_t queued; /* tokens */
    uint64_t work;   /* bytes */
    uint64_t weight; /* of the classes that have live ones, thousandths */
    uint32_t live, begun, waiting, pad;
};

/* The heaviest request of late that ended without a token, as one does when memory runs out on it. */
struct gate_suspect {
    uint64_t ns; /* when it ended; 0: none */
    uint32_t prompt, cached, image_tokens, logprob_rows;
};

struct gate_health {
    uint64_t figures_ns; /* when figures came; 0: never */
    uint64_t used;       /* units; UINT64_MAX: not told */
    uint64_t foreign;
    int64_t drift;
    double sharing;
    uint64_t preempted_seen; /* the engine's counter; UINT64_MAX: not yet */
    uint64_t preempted;
    uint64_t engine;
    uint64_t headroom;    /* bytes; UINT64_MAX: not told; see gate__headroom() */
    uint64_t headroom_ns; /* when it was told */
    double stranded;
    uint32_t stranded_run; /* figures in a row above the limit that were not better than before */
    uint32_t oom_run;
    uint64_t oom_ns;
    uint64_t ooms;
    double work[GATE_KINDS][GATE_SIZES]; /* bytes, learned; 0: not yet */
    uint32_t work_seen[GATE_KINDS][GATE_SIZES];
    double margin, share; /* now */
    uint64_t eased_ns;    /* when they were last eased */
    uint32_t full, draining, broken_by, pad;
    double
        work_failed; /* bytes: the least price of a request that failed while no headroom was told; 0: none */
    struct gate_suspect suspect;
};

struct gate_head {
    uint64_t magic; /* written last (atomic) */
    uint32_t version;
    uint32_t head_bytes, slot_bytes, pad0;
    uint64_t bytes; /* of all */
    struct plimsoll_gate_config config;
    uint8_t pad1[64];
    uint64_t lock; /* 0: free; else 1 + the process's number, above 16 bits a count (atomic) */
    uint64_t stuck_word, stuck_ns; /* a holder that did not go on, and since when (atomic) */
    uint64_t suspect;              /* somebody wrote without the lock: repair (atomic) */
    uint8_t pad2[32];
    uint64_t now_ns; /* the latest time that anybody told */
    uint64_t count;  /* of lock holders */
    uint64_t order;  /* of the next reservation */
    uint64_t capacity;
    uint32_t fresh;     /* slots from here on were never used */
    uint32_t free_head; /* GATE_NONE: none */
    uint32_t scan;      /* where the tick goes on */
    uint32_t random;    /* state of the jitter */
    struct gate_sums sums;
    struct gate_pace pace;
    struct gate_health health;
    uint64_t admitted, finished, cancelled, failed, expired, reclaimed, unknown_ids, repairs;
    uint64_t refused[32];
    uint32_t waiters[PLIMSOLL_GATE_WAIT_MAX]; /* slots, the next one first; [sums.waiting] */
    struct gate_process processes[GATE_PROCESSES];
    struct gate_class classes[PLIMSOLL_GATE_CLASSES];
    struct gate_lengths lengths[PLIMSOLL_GATE_CLASSES]; /* [0]: of everybody */
} __attribute__((aligned(64)));

/* The content of a struct plimsoll_gate. */
struct gate {
    struct gate_head *head;
    struct gate_slot *slots;
    uint64_t bytes;
    uint32_t process;       /* its number in the table */
    uint32_t mapped;        /* 1: by plimsoll_gate_open() */
    uint32_t door;          /* 1: with a configuration */
    uint64_t device, inode; /* of the file */
    struct plimsoll_gate_config config;
};

_Static_assert(sizeof(struct gate_slot) == 512, "a slot is eight cache lines");
_Static_assert(sizeof(struct gate_head) % 64 == 0, "slots begin on a cache line");
_Static_assert(sizeof(struct gate) <= sizeof(struct plimsoll_gate), "a handle holds it");

static inline struct gate *gate_of(struct plimsoll_gate *gate)
{
    return (struct gate *)(void *)gate;
}

/* ---- lock.c */

/** gate__lock() - take the ledger, repair it if somebody died inside. 0: BUSY; else what gate__unlock()
 * wants. */
uint64_t gate__lock(struct gate *g, uint64_t now_ns);
void gate__unlock(struct gate *g, uint64_t word);
/** gate__enlist() - this process's number in the table; GATE_NONE: full. Under the lock, or alone. */
uint32_t gate__enlist(struct gate *g);
/** gate__gone() - whether the process of that number is surely dead. */
bool gate__gone(const struct gate_process *p);

/* ---- price.c */

/** gate__units() - units for that many tokens of one sequence; @prompt: while they are computed. */
uint64_t gate__units(const struct plimsoll_gate_config *c, uint64_t tokens, bool prompt);
/** gate__shared_units() - units of whole blocks of so many tokens that sequences can share. */
uint64_t gate__shared_units(const struct plimsoll_gate_config *c, uint64_t tokens);
/** gate__to_compute() - prompt tokens that a slot's first token waits for: those of all prompts of a batch. */
uint32_t gate__to_compute(const struct gate_slot *s);

/** gate__price() - fill in a slot's peak, forecast and expected from its tokens. */
void gate__price(const struct gate *g, struct gate_slot *s);
/** gate__work() - bytes of workspace while its prompt is computed, as learned or by the formula. */
uint64_t gate__work(const struct gate *g, const struct gate_slot *s);
/** gate__headroom() - bytes for workspace as last told; UINT64_MAX: not told, or so long ago that it is not true any more. */
uint64_t gate__headroom(const struct gate *g);
/** gate__suspect() - a request ended without a token, and its client may not be why. */
void gate__suspect(struct gate *g, const struct gate_slot *s);
/** gate__work_cell() - where what is learned about its kind is. */
void gate__work_cell(const struct gate *g, const struct gate_slot *s, unsigned *kind,
                     unsigned *size);

/* ---- expect.c */

/** gate__lengths_init() - as everybody's (@all), or as if lengths were spread about `mean` tokens (NULL). */
void gate__lengths_init(struct gate_lengths *l, const struct gate_lengths *all, double mean);
/** gate__lengths_learn() - a length; @ended: false: it would have been more. @all: of everybody; NULL: `l` is
 * it. @mean: what lengths are before anything was learned. */
void gate__lengths_learn(struct gate_lengths *l, const struct gate_lengths *all, double mean,
                         uint32_t length, bool ended);
/** gate__lengths_seen() - answers that came to `from` tokens and of which is known whether they came to `to`. */
double gate__lengths_seen(const struct gate_lengths *l, uint64_t from, uint64_t to);
/** gate__lengths_alive() - share of requests that get to `length`. From 0 to 1, falling. */
double gate__lengths_alive(const struct gate_lengths *l, uint64_t length);
/** gate__lengths_at() - the length that a share `below` of requests does not exceed. */
uint32_t gate__lengths_at(const struct gate_lengths *l, double below);
double gate__lengths_mean(const struct gate_lengths *l);

/* ---- sums.c */

void gate__add(struct gate *g, struct gate_slot *s);
void gate__take_off(struct gate *g, struct gate_slot *s);
/** gate__slot() - the live or waiting slot of an id, or NULL. */
struct gate_slot *gate__slot(const struct gate *g, uint64_t id);
/** gate__slot_new() - a free slot with a new id, not live yet; NULL: none. */
struct gate_slot *gate__slot_new(struct gate *g);
/** gate__slot_free() - off the sums and free; a waiting one leaves the queue. */
void gate__slot_free(struct gate *g, struct gate_slot *s);
void gate__repair(struct gate *g);
/** gate__queue() - put a waiting slot in its place: by priority, then by arrival. */
void gate__queue(struct gate *g, const struct gate_slot *s);
void gate__unqueue(struct gate *g, const struct gate_slot *s);
/** gate__grown() - units that requests have likely grown by since they were told of: those that have begun made a
 * step in each gate__token_s() since, and whoever had ended would have been told. */
double gate__grown(const struct gate *g);
/** gate__held() - units that are likely held now. */
double gate__held(const struct gate *g);
/** gate__position() - how many are before it in the queue. */
uint32_t gate__position(const struct gate *g, const struct gate_slot *s);

/* ---- pace.c */

/** gate__ahead() - prompt tokens ahead of a new request, less what was computed since the last sign. */
uint64_t gate__ahead(const struct gate *g);
/** gate__first_s() - seconds to the first token behind so many prompt tokens; below 0: not known.
 * @spread: nullable; the deviation of what was seen from that. */
double gate__first_s(const struct gate *g, double tokens, double *spread);
void gate__pace_first(struct gate *g, const struct gate_slot *s);
/** gate__pace_grew() - a request was told of and has `generated` tokens now. */
void gate__pace_grew(struct gate *g, const struct gate_slot *s, uint32_t generated);
/** gate__token_s() - seconds that each further token takes lately, a guess before anything was learned. */
double gate__token_s(const struct gate *g);
void gate__pace_ended(struct gate *g, const struct gate_slot *s, uint32_t generated);
void gate__pace_drained(struct gate *g, double units);
double gate__drain_rate(const struct gate *g);
/** gate__retry_ms() - when to come back. @units: that are missing; @s: seconds that are missing. */
uint32_t gate__retry_ms(struct gate *g, double units, double s);

/* ---- health.c */

/** gate__stale() - figures are too old. */
bool gate__stale(const struct gate *g);
/** gate__ease() - margins and shares go back with time. */
void gate__ease(struct gate *g);

/* ---- decide.c */

/** gate__pressure() - with @more added (nullable), as the policy counts, as a share of the pool. */
double gate__pressure(const struct gate *g, const struct gate_slot *more);

static inline double gate__clamp(double x, double low, double high)
{
    return !(x > low) ? low : x < high ? x : high; /* not a number: low */
}

/* Units of the pool, in range whatever the memory says. */
static inline double gate__capacity(const struct gate *g)
{
    return gate__clamp((double)g->head->capacity, 1, (double)PLIMSOLL_GATE_UNITS_MAX);
}

static inline uint64_t gate__less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

#endif
