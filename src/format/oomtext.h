/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_OOMTEXT_H
#define PLIM_FORMAT_OOMTEXT_H

/*
 * Out-of-memory text: from a pasted message or a log of any size to facts.
 *
 * A row (struct plim_oom_row) is one grammar: a pattern with typed named fields, the role of the text
 * in a log, and what the text means. All rows are in one table (oomtext_rows.c); adding a grammar is
 * adding a row. The scanner reads a stream once in constant memory. A fast search for the rows' fixed
 * words skips everything else; lines with a hit are cleaned (colours, carriage returns, NULs, log
 * prefixes) and matched. What belongs to one failure (an event) is collected over the lines that
 * follow it, so that a message may be spread over lines, wrapped, or cut at any point.
 *
 * Nothing is judged here: what the facts mean is the business of diagnose/message.h.
 *
 * Nouns: failure row = its text says that something was refused; clause = a part of a failure's
 * message; near row = a circumstance (a stack frame) that counts for failures at most
 * PLIM_OOM_NEAR_LINES away; beside row = the same, on the very line; session row = a fact that holds
 * until it is replaced; header row = a
 * pasted table begins, the lines below it are read one by one.
 * Units: bytes. Matching ignores case; a blank in a pattern matches any run of blanks and newlines.
 * Threads: a scan belongs to one thread; the tables are constant.
 */

#include "base/arena.h"
#include "base/file.h"
#include "base/vec.h"
#include "format/oomtext_words.h"

/* A number found in the text. */
struct plim_oom_value {
    uint64_t n;    /* bytes or count; saturates at UINT64_MAX */
    uint64_t slop; /* half a unit of the last printed digit, in bytes: |true - n| <= slop */
    double real;   /* the number as printed, without its unit */
    uint64_t line; /* where it stands, from 1 */
    bool set;
};

/* "Process PID has SIZE memory in use", or a line of the processes table of nvidia-smi. */
struct plim_oom_process {
    uint64_t pid;
    uint64_t bytes;
    bool listed; /* from nvidia-smi, not from the message itself */
};

#define PLIM_OOM_PROCESSES  16   /* kept for each event; further ones are counted in the sum only */
#define PLIM_OOM_NEAR_LINES 120  /* how far a near row's circumstance reaches */
#define PLIM_OOM_EVENTS     256  /* events kept; further ones are counted */
#define PLIM_OOM_TEXT       8192 /* most bytes of one event's message */
#define PLIM_OOM_LINE       16384 /* longest piece of a line that is looked at */
#define PLIM_OOM_EXCERPT    140   /* bytes of an event's excerpt, NUL included */

struct plim_oom_facts {
    struct plim_oom_value field[PLIM_OOM_FIELD_COUNT];
    struct plim_oom_process process[PLIM_OOM_PROCESSES];
    size_t processes;                      /* in process[] */
    uint64_t seen[PLIM_OOM_MEANING_COUNT]; /* line of the latest sighting, 0 = never */
};

struct plim_oom_event {
    struct plim_oom_facts facts;
    enum plim_oom_meaning meaning; /* the weightiest failure seen in it */
    enum plim_oom_family family;
    const char *format;   /* id of that row, static */
    const char *versions; /* what the wording says about the program's version, static; or NULL */
    uint64_t line;        /* first line of the failure, from 1 */
    uint64_t last_line;   /* last line that belongs to it */
    int64_t time_ms;      /* from the log's own time stamps; PLIM_OOM_NO_TIME when there are none */
    int64_t rank;         /* from the log's prefix, -1 when unknown */
    int64_t pid;          /* the same */
    char excerpt[PLIM_OOM_EXCERPT]; /* of the line that says most; printable, NUL-terminated */
    unsigned copies;                /* times the same failure was reported, 1 at least */
    unsigned ranks;                 /* ranks or devices that reported it, 1 at least */
    bool at_end;                    /* the input ends within this message: it may be cut */
};

#define PLIM_OOM_NO_TIME INT64_MIN

struct plim_oom_scan {
    PLIM_VEC(struct plim_oom_event) events; /* in log order */
    struct plim_oom_facts session;          /* facts of the whole text */
    uint64_t dropped;                       /* failures beyond PLIM_OOM_EVENTS */
    uint64_t lines;
    uint64_t bytes;
    uint64_t control_bytes; /* NULs and other bytes that no log holds, among the bytes looked at */
    int64_t first_time_ms;  /* of the first stamped line that was looked at */
};

/**
 * plim_oom_scan() - read everything from `source` and collect the failures.
 * Memory: about 1 MiB plus the events, whatever the input's size. Cost: about one pass over memory.
 * Compressed text (gzip, zstd, xz) is decompressed, UTF-16 is read as far as it is ASCII.
 * Errors: those of the source; PLIM_E_DATA for input that is no text and holds no message;
 * PLIM_E_NOMEM. Free with plim_oom_scan_fini(), also after an error.
 */
PLIM_MUST_USE enum plim_status plim_oom_scan(struct plim_source *source, struct plim_oom_scan *out,
                                             struct plim_err *err);

void plim_oom_scan_fini(struct plim_oom_scan *scan);

static inline bool plim_oom_has(const struct plim_oom_facts *facts, enum plim_oom_field field)
{
    return facts->field[field].set;
}

#endif
