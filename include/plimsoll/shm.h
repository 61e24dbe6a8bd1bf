/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_SHM_H
#define PLIMSOLL_SHM_H

/*
 * What a recorded process and its reader share: layouts, byte by byte, and how to read them.
 *
 * A session is a folder, PLIMSOLL_RECORD_DIR, best on a memory file system, mode 0700, made by whoever
 * starts the recording. Each process puts its own files there, named by PROCESS = <pid>-<start>.<n>:
 * start is field 22 of /proc/<pid>/stat (clock ticks since boot), n counts programs that the process
 * became by exec, from 0: the first name that is free, each writer counting its own files.
 *
 *   PROCESS.plimshm     written by the recorder: head, ring of events, tables, totals
 *   PROCESS.plimattach  written by the Python side: allocator statistics, notes, snapshot requests
 *
 * The recorder makes its file at the first call that it sees; a process that never touches a device
 * makes none. A forked child makes its own. When a file with a greater n exists, the lesser ones are
 * ended. A recorder's file is complete when it gets its name (it has none before, or, where the
 * file system wants one, PROCESS behind a dot), and all its bytes are allocated: a full file system
 * shows then, never later. Files of a dead process are removed by the reader that took what they
 * hold.
 *
 * Rules of sharing. Words marked (atomic) are read and written whole, by __atomic builtins. The writer
 * never waits: a full ring drops the event and counts it in `lost`. Totals are kept up to date even
 * then, so a reader can always resynchronise. One reader at a time consumes (it holds flock on the
 * file); any number may look. A reader trusts nothing: it reads with pread, so that a file cut short
 * gives an error and not a signal, and checks each offset and index.
 *
 * Sizes are bytes; times are nanoseconds of CLOCK_MONOTONIC; real time = that + real_offset_ns.
 * Little endian, 64-bit machines only. Offsets in comments are decimal.
 */

#include <plimsoll/event.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_SHM_MAGIC   "PLIMSHM1"
#define PLIM_SHM_VERSION 1u
#define PLIM_SHM_SUFFIX  ".plimshm"
#define PLIM_SHM_DEVICES 17 /* CUDA's devices 0 to 15; row 16: not known which */
#define PLIM_SHM_OWNERS  32 /* rows for enum plim_gpu_owner, with room */

enum plim_shm_state {
    PLIM_SHM_MAKING = 0,
    PLIM_SHM_LIVE = 1,
    PLIM_SHM_ENDED = 2, /* exit began; handlers may still call. A killed process leaves LIVE */
};

/* Live totals of one owner on one device, 64 bytes, all (atomic). */
struct plim_shm_total {
    uint64_t live;     /* bytes asked for and not given back */
    uint64_t charged;  /* device bytes that costs: whole pages, pools by their reservation */
    uint64_t peak;     /* highest `charged` */
    uint64_t count;    /* live allocations; filled in by the reader */
    uint64_t allocs;   /* successful so far */
    uint64_t frees;    /* successful so far */
    uint64_t failures; /* calls whose result was not 0 */
    uint64_t foreign;  /* bytes mapped that somebody else pays for: IPC, imports, peers */
};

/* Counters of the recorder itself, 128 bytes, all (atomic). */
struct plim_shm_counters {
    uint64_t events;        /* so far, lost ones included; filled in by the reader */
    uint64_t unknown_frees; /* releases of addresses whose allocation was not seen */
    uint64_t double_frees;  /* of those: released before, not allocated since */
    uint64_t wrong_device;  /* released while another device was current */
    uint64_t failed_frees;  /* the driver refused a release of something we know */
    uint64_t nested;        /* calls made from inside the recorder, passed through unseen */
    uint64_t unhooked;      /* entry points handed out that could not be hooked */
    uint64_t untracked;     /* live allocations that found no room in the recorder's table */
    uint64_t stacks_lost;   /* stacks that found no room in the table */
    uint64_t pad[7];
};

/* Start of a recorder's file, 4096 bytes. */
struct plim_shm_head {
    char magic[8];          /*   0 */
    uint32_t version;       /*   8 */
    uint32_t head_bytes;    /*  12 sizeof(struct plim_shm_head) */
    uint64_t file_bytes;    /*  16 */
    uint32_t state;         /*  24 enum plim_shm_state (atomic) */
    uint32_t pid;           /*  28 as the process sees itself */
    uint64_t start_ticks;   /*  32 field 22 of /proc/<pid>/stat */
    uint32_t program;       /*  40 n of the file's name */
    uint32_t parent_pid;    /*  44 */
    uint64_t start_ns;      /*  48 when the file was made */
    int64_t real_offset_ns; /*  56 CLOCK_REALTIME - CLOCK_MONOTONIC at that time */
    uint64_t ring_at;       /*  64 offset of the ring */
    uint64_t ring_slots;    /*  72 a power of two; a slot is a struct plim_gpu_event */
    uint64_t totals_at;     /*  80 offset of struct plim_shm_total [devices][owners] */
    uint32_t devices;       /*  88 PLIM_SHM_DEVICES */
    uint32_t owners;        /*  92 PLIM_SHM_OWNERS */
    uint64_t text_at;    /*  96 offset of the text: strings with a NUL each, the first one empty */
    uint64_t text_bytes; /* 104 room */
    uint64_t calls_at; /* 112 offset of uint32_t [calls]: where in the text the name of a call is */
    uint32_t calls;    /* 120 call 0 is "" */
    uint32_t library_room; /* 124 rows */
    uint64_t libraries_at; /* 128 offset of struct plim_shm_library [library_room] */
    uint64_t stacks_at;    /* 136 offset of struct plim_shm_stack [stack_room] */
    uint32_t stack_room;   /* 144 rows */
    uint32_t pad0;         /* 148 */
    uint64_t frames_at;    /* 152 offset of uint64_t [frame_room]: return addresses */
    uint64_t frame_room;   /* 160 */
    char recorder[32];     /* 168 version of the recorder */
    uint8_t pad1[312];     /* 200 */
    /* Each of these on a cache line of its own: written by many threads. */
    uint64_t head; /* 512 events written so far; the next one gets seq head + 1 (atomic) */
    uint64_t pad2[7];
    uint64_t tail; /* 576 events that the consumer has taken; written by it (atomic) */
    uint64_t told; /* 584 of `lost`, how many the consumer has told; written by it (atomic) */
    uint64_t pad3[6];
    uint64_t lost;         /* 640 events dropped because the ring was full (atomic) */
    uint64_t heartbeat_ns; /* 648 time of the last event or drop (atomic) */
    uint64_t pad4[6];
    uint64_t text_used;   /* 704 bytes of text that are complete (atomic) */
    uint64_t libraries;   /* 712 rows that are complete; row 0 is "unknown" (atomic) */
    uint64_t stacks;      /* 720 rows that are complete; row 0 has no frames (atomic) */
    uint64_t frames_used; /* 728 (atomic) */
    uint64_t pad5[4];
    struct plim_shm_counters counters; /* 768 */
    uint8_t pad6[3200];                /* 896 */
};

/* A file that was mapped when a call came from it, 32 bytes. Later rows are newer: when two cover an
 * address, the one with the greatest `since` not after the event counts. */
struct plim_shm_library {
    uint64_t base;  /* lowest address */
    uint64_t end;   /* behind the highest */
    uint64_t since; /* events written when the row was made */
    uint32_t name;  /* path, offset into the text */
    uint32_t owner; /* enum plim_gpu_owner */
};

struct plim_shm_stack {
    uint32_t first; /* index of the first (innermost) frame */
    uint32_t n;
};

/* ---- What Python writes: little enough for mmap and struct. 16384 bytes. */

#define PLIM_ATTACH_MAGIC   "PLIMATT1"
#define PLIM_ATTACH_SUFFIX  ".plimattach"
#define PLIM_ATTACH_DEVICES 16
#define PLIM_ATTACH_NOTES   16
#define PLIM_ATTACH_TEXT    456

/* 256 bytes, behind a sequence lock: odd while being written; a reader copies, and tries again (at most
 * 8 times) when `lock` was odd or changed. */
struct plim_attach_device {
    uint32_t lock;              /*   0 */
    uint32_t valid;             /*   4 1 when the row has been written */
    uint64_t time_ns;           /*   8 when it was asked */
    uint64_t allocated;         /*  16 bytes handed out */
    uint64_t active;            /*  24 handed out or waiting for events */
    uint64_t requested;         /*  32 bytes that callers asked for */
    uint64_t reserved;          /*  40 bytes of all segments */
    uint64_t inactive_split;    /*  48 free pieces of segments in use */
    uint64_t peak_allocated;    /*  56 */
    uint64_t peak_reserved;     /*  64 */
    uint64_t segments;          /*  72 number */
    uint64_t num_alloc_retries; /* 80 */
    uint64_t num_ooms;          /*  88 */
    uint64_t num_device_alloc;  /*  96 */
    uint64_t num_device_free;   /* 104 */
    uint64_t device_free;       /* 112 as the driver says; UINT64_MAX: not asked */
    uint64_t device_total;      /* 120 likewise */
    uint64_t pad[16];           /* 128 */
};

/* 512 bytes: one line of JSON, {"request_id": ..., "shape": ...}. Slot i holds note i + k * NOTES. */
struct plim_attach_note {
    uint32_t lock;    /*  0 as above */
    uint32_t bytes;   /*  4 of text, no NUL needed */
    uint64_t number;  /*  8 1, 2, ...; 0: empty */
    uint64_t time_ns; /* 16 */
    uint64_t end_ns;  /* 24 when it stopped to hold; 0: still holds */
    uint32_t thread;  /* 32 kernel's thread id */
    uint32_t device;  /* 36 UINT32_MAX: not said */
    uint64_t pad[2];  /* 40 */
    char text[PLIM_ATTACH_TEXT];
};

struct plim_attach_file {
    char magic[8];            /*   0 */
    uint32_t version;         /*   8 1 */
    uint32_t file_bytes;      /*  12 16384 */
    uint32_t pid;             /*  16 */
    int32_t rank;             /*  20 of the job, -1: none */
    uint64_t start_ticks;     /*  24 */
    int64_t real_offset_ns;   /*  32 */
    uint64_t heartbeat_ns;    /*  40 (atomic) */
    uint64_t notes;           /*  48 written so far (atomic) */
    uint32_t state;           /*  56 enum plim_shm_state (atomic) */
    uint32_t snapshot_asked;  /*  60 count up to ask for a snapshot (atomic) */
    uint32_t snapshot_done;   /*  64 the last request that was answered (atomic) */
    uint32_t snapshot_result; /*  68 0, or an errno */
    uint32_t ooms;            /*  72 failures that the observer saw (atomic) */
    uint32_t pad0[5];         /*  76 */
    char snapshot_path[416]; /*  96 the last one, with a NUL; complete when snapshot_done says so */
    char info[512];          /* 512 JSON: versions, settings, refusals */
    char uuid[PLIM_ATTACH_DEVICES][64]; /* 1024 of each device, with a NUL; "" not known */
    uint8_t pad1[2048];                 /* 2048 */
    struct plim_attach_device device[PLIM_ATTACH_DEVICES]; /* 4096 */
    struct plim_attach_note note[PLIM_ATTACH_NOTES];       /* 8192 */
};

#ifdef __cplusplus
#    define PLIM__SHM_ASSERT(what) static_assert(what, #what)
#else
#    define PLIM__SHM_ASSERT(what) _Static_assert(what, #what)
#endif
PLIM__SHM_ASSERT(sizeof(struct plim_shm_total) == 64);
PLIM__SHM_ASSERT(sizeof(struct plim_shm_counters) == 128);
PLIM__SHM_ASSERT(sizeof(struct plim_shm_head) == 4096);
PLIM__SHM_ASSERT(offsetof(struct plim_shm_head, head) == 512);
PLIM__SHM_ASSERT(offsetof(struct plim_shm_head, counters) == 768);
PLIM__SHM_ASSERT(sizeof(struct plim_shm_library) == 32);
PLIM__SHM_ASSERT(sizeof(struct plim_attach_device) == 256);
PLIM__SHM_ASSERT(sizeof(struct plim_attach_note) == 512);
PLIM__SHM_ASSERT(sizeof(struct plim_attach_file) == 16384);
PLIM__SHM_ASSERT(offsetof(struct plim_attach_file, device) == 4096);
PLIM__SHM_ASSERT(offsetof(struct plim_attach_file, note) == 8192);

/* ---- Reading (runtime/shm/reader.c; libc only; linked into the program and the library) ---- */

/* A file that is open for reading. All fields are the reader's own; look, do not touch. */
struct plim_shm_reader {
    int fd;
    bool consumes;             /* this reader advances `tail` */
    struct plim_shm_head head; /* as last read: layout checked when opened, counters by each poll */
    uint64_t skipped;          /* unfinished slots of a dead writer, not told yet */
};

/*
 * Codes of the functions below: 0, or a negative errno; -EBADMSG for a file that is not what it says
 * (wrong magic, version, sizes or offsets), -EBUSY when another reader consumes.
 */

/** plim_shm_open() - open a recorder's file and check its layout.
 * @consume: take events out of the ring. Needs write permission and that nobody else does it.
 * A consumer continues where the last one stopped. */
int plim_shm_open(struct plim_shm_reader *reader, const char *path, bool consume);

void plim_shm_close(struct plim_shm_reader *reader);

/** plim_shm_alive() - true while the process that writes the file exists and is no zombie. Compares pid
 * and start time in /proc. A caller in another pid namespace gets false. */
bool plim_shm_alive(const struct plim_shm_reader *reader);

/** plim_shm_named_alive() - whether the process that a file of a session is named for exists and is
 * no zombie: 1 or 0; -EINVAL: not such a name. As plim_shm_alive(), of use only in the pid namespace
 * of the process. @name: of the file, without its folder; a hidden one too. */
int plim_shm_named_alive(const char *name);

/** plim_shm_poll() - read the next events, in order.
 * @out: [room] receives them, room >= 1. A gap shows as an event of kind LOST.
 * @dead: the process is gone (ask plim_shm_alive before the call): slots that it did not finish are
 *        skipped and counted as lost. Otherwise reading stops at a slot being written.
 * Returns how many were read, 0 when there are none now, or a code. Consumers advance the ring;
 * others see the same events again. Cost: some preads; bounded by room. */
int plim_shm_poll(struct plim_shm_reader *reader, struct plim_gpu_event *out, unsigned room,
                  bool dead);

/** plim_shm_totals() - the totals of all owners on a device (0 to 15, or 16 for unknown).
 * @out: [PLIM_SHM_OWNERS]. Each number is whole; together they are of nearly one moment. */
int plim_shm_totals(const struct plim_shm_reader *reader, unsigned device,
                    struct plim_shm_total out[PLIM_SHM_OWNERS]);

/** plim_shm_counters() - the recorder's own counters, and `lost`. */
int plim_shm_counters(const struct plim_shm_reader *reader, struct plim_shm_counters *out,
                      uint64_t *lost);

/** plim_shm_text()/call()/library()/stack() - entries of the tables. Texts are copied to buf, cut at
 * room - 1, always with a NUL. stack returns the number of frames written. -ERANGE: no such entry. */
int plim_shm_text(const struct plim_shm_reader *reader, uint64_t at, char *buf, size_t room);
int plim_shm_call(const struct plim_shm_reader *reader, unsigned call, char *buf, size_t room);
int plim_shm_library(const struct plim_shm_reader *reader, unsigned library,
                     struct plim_shm_library *out, char *path, size_t room);
int plim_shm_stack(const struct plim_shm_reader *reader, unsigned stack, uint64_t *frames,
                   unsigned room);

/** plim_attach_read() - a copy of a .plimattach file, checked. Rows and notes that were being written
 * for the whole time have valid 0 and number 0. */
int plim_attach_read(const char *path, struct plim_attach_file *out);

/** plim_attach_ask() - ask the process for a snapshot; its number, to compare with snapshot_done. */
int plim_attach_ask(const char *path, uint32_t *number);

/** plim_event_kind_text()/plim_owner_text() - fixed English words; never NULL. */
const char *plim_event_kind_text(unsigned kind);
const char *plim_owner_text(unsigned owner);

#ifdef __cplusplus
}
#endif
#endif
