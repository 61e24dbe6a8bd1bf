/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_TAP_H
#define PLIM_OBSERVE_TAP_H

/*
 * What one recorded process shows, read again and again without disturbing it.
 *
 *   tap       an open file of a session (plimsoll/shm.h): the recorder's or the Python side's
 *   ordinal   a device's number in the process, 0 to 15; row 16 of a recorder's file: not known
 *
 * A tap only looks: it takes no events out of the ring, asks for nothing and locks nothing. A file
 * whose heartbeat stands still is not read again.
 * Cost: one pread for a silent process, some for one that tells something.
 * Threads: one.
 */

#include "device/check.h"
#include "observe/observation.h"

#include <plimsoll/shm.h>

#define PLIM_TAP_UUID 64

struct plim_tap {
    char name[96]; /* of the file */
    bool recorder; /* the recorder's file; else the Python side's */
    bool seen;     /* it was there when its folder was last looked at */
    uint32_t session;
    uint32_t pid; /* as we see the process */
    uint64_t start_ticks;
    uint32_t program; /* the process became so many others by exec before */
    int32_t rank;
    int fd;                         /* of the Python side's file, or -1 */
    struct plim_shm_reader *reader; /* owned, of a recorder's file, or NULL */
    uint64_t heartbeat_ns;          /* when the process told what is kept below; CLOCK_MONOTONIC */
    uint64_t period_ns;             /* between the last two times that it told something */
    uint32_t device_of[PLIM_SHM_DEVICES]; /* of each ordinal: index in the sample, or NO_DEVICE */
    uint32_t mapped;                      /* ordinals, as bits, that were told of by then */
    char uuid[PLIM_ATTACH_DEVICES][PLIM_TAP_UUID]; /* as the process told, "" unknown */
    PLIM_VEC(struct plim_attach_device) rows;      /* of the ordinals that it has told of */
    PLIM_VEC(uint32_t) ordinals;                   /* of each row */
    PLIM_VEC(struct plim_owner_now) owners;        /* without pid and device */
    uint64_t notes;                                /* that were read */
    struct plim_note_now note;                     /* the newest that holds; pid 0: none */
    PLIM_VEC(struct plim_happening) told;          /* by notes, since it was last told of */
    uint64_t ooms[PLIM_SHM_DEVICES];               /* failures that were told of, by ordinal */
    bool ooms_known; /* `ooms` holds: what grows from now on is new; the same of notes */
};

/** plim__tap_open() - look at a file. @tap: pid and name are set. A negative errno, or 0. */
int plim__tap_open(struct plim_tap *tap, const char *path);
void plim__tap_close(struct plim_tap *tap);

/** plim__tap_read() - bring it up to date. -EBADMSG: the file is damaged.
 * @mono, @real: now, in CLOCK_MONOTONIC and since 1970. */
int plim__tap_read(struct plim_tap *tap, uint64_t mono, uint64_t real);

/**
 * plim__tap_tell() - what it shows, into the observation.
 * @mono: CLOCK_MONOTONIC now, which is the time of the sample.
 * Errors: PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim__tap_tell(struct plim_tap *tap, uint64_t mono,
                                              struct plim_observation *out, struct plim_err *err);

/**
 * plim__ordinals() - which devices of the sample a process means by its ordinals.
 * By the uuids that it told; else by its CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Without an
 * order by PCI bus CUDA puts the fastest first, so that numbers say something only when all devices
 * are of one kind. NO_DEVICE where nothing is certain.
 * @uuid: [PLIM_ATTACH_DEVICES], "" unknown; @out: [PLIM_SHM_DEVICES].
 * Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
 */
void plim__ordinals(const struct plim_world *world, const struct plim_sample *sample, uint32_t pid,
                    const char uuid[PLIM_ATTACH_DEVICES][PLIM_TAP_UUID], uint32_t *out);

#endif
