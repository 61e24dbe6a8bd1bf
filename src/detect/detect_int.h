/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_DETECT_INT_H
#define PLIM_DETECT_DETECT_INT_H

/*
 * How the detector is divided. One step goes forward only:
 *
 *   books.c      the observation, joined by subject: what each process on each device holds, and of what kind
 *   series.h     what is remembered of it: minima, maxima and load by the minute, by ten and by 120
 *   trend.h      what a window of a series says: growth, how sure, how steady, how fast
 *   rules        claims_growth.c, capacity.c, conditions.c, trouble.c, ooms.c, requests.c: one claim for
 *                each class and subject
 *   findings.c   claims become findings with hysteresis, and end
 *
 * Time inside is `now_ns`: awake time since the detector began. Where the observations have a gap
 * (suspend, a stopped monitor) it stands still, so that no slope runs through the gap.
 */

#include "base/map.h"
#include "base/num.h"
#include "detect/detect.h"
#include "detect/growth.h"

#define PLIM_SECOND UINT64_C(1000000000)
#define PLIM_MINUTE (60 * PLIM_SECOND)
#define PLIM_HOUR   (60 * PLIM_MINUTE)
#define PLIM_DAY    (24 * PLIM_HOUR)

#define PLIM_SUBJECTS_MAX 4096u /* at once; more are not followed */
#define PLIM_ACTIVE_MAX   256u  /* findings at once */
#define PLIM_QUIET_MAX    64u   /* of findings that ended */

/* Whether what a class is about is there. UNSURE keeps things as they are. */
enum plim_claim_state {
    PLIM_CLAIM_UNSURE,
    PLIM_CLAIM_HOLDS,
    PLIM_CLAIM_CLEAR
};

/* What one rule says of one subject in one step. */
struct plim_claim {
    enum plim_claim_state state;
    enum plim_severity severity;
    double confidence;
    uint64_t began_ns; /* awake time at which it began to show; 0: now */
    uint64_t bytes;
    struct plim_estimate slope, seconds_left;
    char summary[200];
    char evidence[600];
    char next_step[300];
};

/* The state of one class of one subject. */
struct plim_standing {
    uint64_t id;       /* of the active finding, 0: none */
    uint64_t since_ns; /* awake time since when claims agree: for raising, or for ending */
    bool counting;     /* since_ns counts */
};

/* Figures whose growth is followed. */
enum plim_followed {
    PLIM_FOLLOWED_LIVE,     /* of a process: allocated by its allocator */
    PLIM_FOLLOWED_STRANDED, /* of a process: free, in segments that cannot go back */
    PLIM_FOLLOWED_HELD,     /* of a process: as the driver counts it, or else reserved */
    PLIM_FOLLOWED_OUTSIDE,  /* of a process: held, but not by its allocator */
    PLIM_FOLLOWED_USED,     /* of a device */
    PLIM_FOLLOWED_OTHERS,   /* of a device: without its largest process */
    PLIM_FOLLOWED
};

/* X(field): what is kept of a subject when a detector is saved, besides its series and its findings. */
#define PLIM_TRACKED_MAP(X)                                                                        \
    X(first_ns)                                                                                    \
    X(held_last)                                                                                   \
    X(settled_ns)                                                                                  \
    X(first_step)                                                                                  \
    X(xids)                                                                                        \
    X(uncorrected)                                                                                 \
    X(trouble_ns)                                                                                  \
    X(trouble_xid)                                                                                 \
    X(trouble_count)                                                                               \
    X(oom_ns)                                                                                      \
    X(oom_bytes)                                                                                   \
    X(ooms_told)                                                                                   \
    X(retry_ns)                                                                                    \
    X(sleeps)                                                                                      \
    X(awake_most)                                                                                  \
    X(first_residue)

/* What a process holds on a device now. Its bit is set when a figure is known. */
struct plim_holding {
    uint64_t held, live, reserved, stranded, outside; /* bytes; outside: held - reserved */
    uint64_t retries, ooms;                           /* so far */
    bool held_valid, live_valid, stranded_valid, outside_valid, retries_valid, ooms_valid;
    bool counted_valid; /* held is the driver's count */
    bool asleep;        /* its engine says so */
    uint32_t ppid;
    double load; /* requests of its engine, or else the device's busy percent; < 0: unknown */
    bool served; /* load is an engine's */
};

/* Who uses a device. */
struct plim_largest {
    uint64_t bytes; /* of the process that holds most */
    uint32_t pid;   /* of it */
    uint32_t users; /* processes whose bytes are known */
};

#define PLIM_SHAPE  64u /* room for a shape in words */
#define PLIM_SHAPES 4u

/* What a process worked on, as it says, and on what when requests were retried. */
struct plim_shapes {
    char now[PLIM_SHAPE]; /* "" it says nothing */
    uint64_t note;        /* hash of the note that said it */
    bool held;            /* the note is in the newest observation */
    uint64_t all;         /* retries, those without a shape too */
    char seen[PLIM_SHAPES][PLIM_SHAPE];
    uint64_t count[PLIM_SHAPES];
};

struct plim_tracked {
    struct plim_subject subject;
    uint64_t key;
    uint64_t seen_step;                   /* number of the step in which it was seen last */
    uint64_t seen_ns;                     /* awake time of that step */
    uint64_t first_ns;                    /* awake time of its first observation */
    uint64_t total, used, free, reserved; /* of a device: newest figures */
    bool books_valid;                     /* they are known */
    uint64_t xids, uncorrected;           /* of a device: counters when last looked at */
    bool counters_valid;
    uint64_t trouble_ns;         /* awake time of the newest trouble, 0: none */
    uint64_t trouble_xid;        /* number of the newest Xid, 0: none */
    uint64_t trouble_count;      /* Xids and uncorrected errors since the trouble began */
    bool trouble_errors;         /* uncorrected errors were among them */
    struct plim_holding now;     /* of a process */
    uint64_t held_last;          /* of a process: bytes, when it was seen last */
    uint64_t settled_ns;         /* awake time since when it is loaded; 0: not yet */
    uint64_t minute;             /* of awake time, that `recent` was last filled in */
    float recent[11];            /* what it held in the last minutes; newest first */
    struct plim_largest largest; /* of a device */
    uint64_t first_step;         /* number of the step in which it was seen first */
    uint64_t oom_ns,
        oom_bytes; /* the newest failure: awake time, 0 none; bytes asked for, 0 unknown */
    char oom_shape[PLIM_SHAPE]; /* on which it worked then, "" unknown */
    uint64_t ooms;              /* its allocator's counter, when ooms_valid */
    uint64_t ooms_told;         /* failures that were noted */
    bool ooms_valid;
    uint64_t retries;  /* its allocator's counter, when retries_valid */
    uint64_t retry_ns; /* awake time of the newest retry seen, 0: none */
    bool retries_valid;
    struct plim_shapes shapes; /* of a process */
    struct {
        char name[16]; /* of a process that ended at the time of the trouble, "" none */
        uint32_t pid;
        int32_t seconds;      /* after it; < 0: before */
    } trouble_ended;          /* of a device */
    uint64_t sleeps;          /* of its engine */
    uint64_t asleep_ns;       /* awake time at which it fell asleep, 0: it is awake */
    uint64_t awake_most;      /* bytes that it held awake, at most */
    uint64_t first_residue;   /* bytes that it held a minute into its first sleep */
    uint64_t compared_minute; /* of awake time, in which it was compared with its siblings last */
    struct plim_growing
        *growing[PLIM_FOLLOWED]; /* owned; NULL until there is something to follow */
    struct plim_standing standing[PLIM_FINDING_CLASSES];
};

#define PLIM_AGES     8u  /* failures of one program that are kept */
#define PLIM_LINEAGES 64u /* programs */

/* The lives of one program that ran out of memory, whatever their pid. */
struct plim_lineage {
    char name[16];          /* of the process, "" unused */
    char device_uuid[96];   /* of the newest failure */
    uint64_t newest_ns;     /* awake time of the newest failure */
    uint32_t n, next;       /* ages kept; where the next goes */
    float ages[PLIM_AGES];  /* seconds that it had lived */
    uint64_t asked;         /* bytes that it was refused last, 0 unknown */
    char shape[PLIM_SHAPE]; /* on which it worked then, "" unknown */
};

/* How much lives of one program have held without leaking. */
struct plim_level {
    char name[16];        /* of the process, "" unused */
    char device_uuid[96]; /* where */
    uint64_t bytes;       /* the most that a life of an hour or more held when it ended */
    uint64_t newest_ns;   /* awake time at which that life ended */
};

struct plim_detector {
    struct plim_detect_options options;
    uint64_t now_ns;  /* awake time */
    uint64_t mono_ns; /* of the newest observation */
    uint64_t time_ns; /* since 1970, likewise */
    uint64_t period_ns;
    uint64_t step;
    uint64_t next_id;
    PLIM_VEC(struct plim_tracked) subjects;
    struct plim_map index;      /* key -> subject */
    PLIM_VEC(uint32_t) devices; /* index in the newest observation -> subject */
    uint64_t deployed_ns;       /* awake time of the newest deployment told, 0: none */
    char deployed[64];          /* what was said of it */
    PLIM_VEC(struct plim_finding) findings;
    bool unsorted;
    struct plim_lineage lineages[PLIM_LINEAGES];
    struct plim_level levels[PLIM_LINEAGES];
    uint64_t untracked; /* subjects that were one too many */
};

/* ---- findings.c ---- */

/** plim__claim() - take a claim: raise, renew or end its finding. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__claim(struct plim_detector *d, struct plim_tracked *t,
                                           enum plim_finding_class class,
                                           const struct plim_claim *claim, struct plim_err *err);

/** plim__findings_end() - end everything of a subject that is gone. @why: a line of evidence. */
void plim__findings_end(struct plim_detector *d, struct plim_tracked *t, const char *why);

/** plim__findings_tidy() - forget old quiet ones and put the rest in order. */
void plim__findings_tidy(struct plim_detector *d);

/* ---- books.c ---- */

/** plim__books() - subjects of an observation, with their newest figures. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__books(struct plim_detector *d,
                                           const struct plim_observation *o, struct plim_err *err);

void plim__books_free(struct plim_detector *d);

/** plim__subject_key() - of the map of subjects; plim__subject_add() - a subject that is not there yet. */
uint64_t plim__subject_key(const struct plim_subject *subject);
PLIM_MUST_USE enum plim_status plim__subject_add(struct plim_detector *d,
                                                 const struct plim_subject *subject, uint64_t key,
                                                 struct plim_err *err);

/** plim__seen() - whether the subject is in the newest observation. */
static inline bool plim__seen(const struct plim_detector *d, const struct plim_tracked *t)
{
    return t->seen_step == d->step;
}

/** plim__device_of() - the subject of a device of the newest observation, or NULL. */
struct plim_tracked *plim__device_of(const struct plim_detector *d, uint32_t device);

/* ---- rules: each makes the claims of its classes for one subject ---- */

PLIM_MUST_USE enum plim_status plim__rule_capacity(struct plim_detector *d, struct plim_tracked *t,
                                                   struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__rule_trouble(struct plim_detector *d, struct plim_tracked *t,
                                                  const struct plim_observation *o,
                                                  struct plim_err *err);

/** plim__note_ooms() - failures that an observation tells of; before its books, while a process that has
 * just ended is still known. plim__count_ooms(): those that an allocator has counted. */
PLIM_MUST_USE enum plim_status
plim__note_ooms(struct plim_detector *d, const struct plim_observation *o, struct plim_err *err);
void plim__count_ooms(struct plim_detector *d, struct plim_tracked *t);

/** plim__rule_ooms() - of a process; plim__rule_cluster() - of a device: the ages at failure. */
PLIM_MUST_USE enum plim_status plim__rule_ooms(struct plim_detector *d, struct plim_tracked *t,
                                               struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__rule_cluster(struct plim_detector *d, struct plim_tracked *t,
                                                  struct plim_err *err);

/** plim__level_note() - a process has ended: remember what it held. plim__level_of() - what earlier lives
 * of the same program held on the same device, or NULL. */
void plim__level_note(struct plim_detector *d, const struct plim_tracked *t);
const struct plim_level *plim__level_of(const struct plim_detector *d,
                                        const struct plim_tracked *t);

/** plim__rule_conditions() - spill, residue of sleep, difference from siblings: of a process. */
PLIM_MUST_USE enum plim_status plim__rule_conditions(struct plim_detector *d,
                                                     struct plim_tracked *t, struct plim_err *err);

/** plim__rule_growth() - leak, cache growth, fragmentation that creeps, growth of others: once a
 * minute, for a process or a device. */
PLIM_MUST_USE enum plim_status plim__rule_growth(struct plim_detector *d, struct plim_tracked *t,
                                                 struct plim_err *err);

/** plim__left() - time until the headroom, between `least` and `most` bytes, is used up by steady
 * growth. */
struct plim_estimate plim__left(const struct plim_growing *g, double least, double most);

/* ---- requests.c ---- */

/** plim__take_notes() - what processes say that they work on; before failures are noted. */
void plim__take_notes(struct plim_detector *d, const struct plim_observation *o);

/** plim__tally_shape() - so many requests were retried. plim__say_shapes() - a line of evidence, when most of
 * them came with one shape. */
void plim__tally_shape(struct plim_tracked *t, uint64_t times);
void plim__say_shapes(const struct plim_tracked *t, struct plim_claim *c);

enum plim_tight {
    PLIM_TIGHT_NOT,
    PLIM_TIGHT_NEARLY,
    PLIM_TIGHT_PIECES, /* only together with stranded pieces there would be room */
    PLIM_TIGHT_LESS    /* not even so */
};

/** plim__tight() - whether the largest request that the program is known to make would find room; else the claim of
 * it into *c. plim__rule_requests() - claims that there is less left. */
enum plim_tight plim__tight(const struct plim_detector *d, const struct plim_tracked *t,
                            struct plim_claim *c);
PLIM_MUST_USE enum plim_status plim__rule_requests(struct plim_detector *d, struct plim_tracked *t,
                                                   struct plim_err *err);

/* ---- words.c ---- */

/** plim__finding_say() - append one line to a text of fixed room. */
void plim__finding_say(char *text, size_t room, const char *fmt, ...) PLIM_PRINTF(3, 4);

/** plim__span() - a time for people: "40 s", "12 min", "5.2 h", "3.1 days". */
char *plim__span(char buf[24], double seconds);

#endif
