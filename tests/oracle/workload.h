/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_ORACLE_WORKLOAD_H
#define PLIM_TESTS_ORACLE_WORKLOAD_H

/*
 * One workload, two sides: the real PyTorch allocator on the simulated device (real.cpp) and the model
 * (model.c). Both programs are this driver with a different side behind it; the same arguments give the
 * same requests, and both write a log of records. run.py compares the logs byte for byte.
 *
 *   slot    a place for one block; an operation on a full slot frees it, on an empty one allocates
 *   record  five numbers: what happened, and four values; addresses are relative to the first byte of
 *           the device's address space, streams and pools are indices
 *
 * What is logged: each result, each driver call in order, each event of the memory history, the text of
 * each out-of-memory error, all statistics after some operations, all segments and blocks after others.
 */

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OW_SLOTS   2048
#define OW_STREAMS 6
#define OW_POOLS   3
#define OW_THREADS 16
#define OW_ORIGIN  UINT64_C(0x200000000000) /* where the simulated device's addresses start */
#define OW_LIMIT   (OW_ORIGIN + (UINT64_C(1) << 44)) /* where they end */

/* Tags of records. */
enum ow_tag {
    OW_ALLOC = 1, /* slot, address (0 = failed), 0, 0 */
    OW_CALL,      /* enum ow_call, address, size, stream or failure flag */
    OW_EVENT,     /* action, address, size, stream << 16 | pool */
    OW_TEXT,      /* 24 bytes of text and their offset */
    OW_STAT,      /* current, peak, allocated, freed */
    OW_SCALAR,    /* index, value */
    OW_SEGMENT,   /* address, size, stream << 32 | pool << 8 | flags, registration counter */
    OW_BLOCK,     /* size, requested, state, age */
    OW_OP,        /* number of the operation, kind, a, b: not compared as such, for reading */
};

enum ow_call {
    OW_CALL_MALLOC,
    OW_CALL_FREE,
    OW_CALL_MEM_GET_INFO,
    OW_CALL_RESERVE,
    OW_CALL_UNRESERVE,
    OW_CALL_CREATE,
    OW_CALL_RELEASE,
    OW_CALL_MAP,
    OW_CALL_UNMAP,
    OW_CALL_ACCESS,
    OW_CALL_STREAM_SYNC,
    OW_CALL_EVENT_RECORD,
    OW_CALL_EVENT_QUERY,
    OW_CALL_EVENT_SYNC,
};

struct ow_config {
    uint64_t seed;
    uint64_t ops;
    uint64_t total;      /* bytes of the device */
    uint64_t context;    /* bytes of it that the process's context takes */
    uint64_t external;   /* bytes of it that others use */
    uint64_t lag;        /* ticks until an event is complete */
    uint64_t fill;       /* of 100 operations on empty slots, how many allocate */
    unsigned streams;    /* 1 .. OW_STREAMS */
    unsigned pools;      /* private pools, 0 .. OW_POOLS */
    unsigned slots;      /* 1 .. OW_SLOTS */
    unsigned stats;      /* all statistics every so many operations */
    unsigned snapshot;   /* all segments and blocks every so many operations */
    unsigned descending; /* address policy */
    unsigned first_fit;
    unsigned rare;     /* bits: which rare operations happen, enum ow_rare */
    unsigned history;  /* bench: the real side records its memory history, as for a snapshot */
    unsigned bench;    /* no logs: time the requests */
    unsigned threads;  /* bench: that make them; 0: one */
    const char *sizes; /* edge, small, mixed, shapes, huge, bench-* */
    const char *conf;  /* settings at start */
    const char *conf2; /* settings to change to and back at run time, or "" */
    const char
        *settings; /* a file of settings strings, one a line: apply them all, do nothing else */
};

enum ow_rare {
    OW_RARE_EMPTY = 1,    /* empty_cache, of a pool too */
    OW_RARE_FRACTION = 2, /* set_per_process_memory_fraction */
    OW_RARE_BURST = 4,    /* free many slots at once */
    OW_RARE_RESET = 8,    /* reset_peak_stats, reset_accumulated_stats */
    OW_RARE_POOL = 16,    /* release and re-create pools */
    OW_RARE_CAPTURE = 32, /* graph captures */
};

/* ---- what each side provides ------------------------------------------------------------------ */

void side_open(const struct ow_config *config);
void side_close(void);
/* False: out of memory (the text has been logged). pool: 0 = default, else index + 1. */
bool side_alloc(unsigned slot, uint64_t size, unsigned stream, unsigned pool);
void side_free(unsigned slot);
void side_record(unsigned slot, unsigned stream);
void side_empty(unsigned pool);
void side_fraction(double fraction);
void side_conf(const char *text);
void side_advance(uint64_t ticks);
void side_pool_new(unsigned pool, bool overflow, bool no_split);
void side_pool_drop(
    unsigned pool); /* release, then empty its cache, as MemPool's destructor does */
void side_capture(unsigned stream, unsigned pool, bool begin);
void side_reset(bool peaks);
void side_stats(void);
void side_snapshot(void);
/* Apply a settings string and print either its error or all settings after it. */
void side_settings(const char *text);

/* ---- what the driver provides to the sides ------------------------------------------------------ */

void ow_put(enum ow_tag tag, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
void ow_text(const char *text);
uint64_t ow_rel(uint64_t addr); /* address relative to OW_ORIGIN; 0 stays 0 */
/* c10::StreamId of stream i: 0 is the default stream, others come from PyTorch's pool in order. */
int64_t ow_stream_id(unsigned i);

#ifdef __cplusplus
}
#endif
#endif
