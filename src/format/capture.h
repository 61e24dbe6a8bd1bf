/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_CAPTURE_H
#define PLIM_FORMAT_CAPTURE_H

/*
 * What the process that took a snapshot knew besides: the text of the snapshot's key `plimsoll`, one JSON
 * object with the facts of docs/format/incident.md ("a drop").
 *
 *   capture   those facts, as far as an analysis uses them
 *   tag       one thing that the program said of its work at the time: the request's name, its shape
 *
 * Input is hostile: texts are cut at 200 bytes, lists at the numbers below, and control characters become
 * spaces. Unknown: false, NULL, or an absent row. Threads: pure; everything is owned by the arena.
 */

#include "base/arena.h"

#define PLIM_CAPTURE_DEVICES 64u
#define PLIM_CAPTURE_TAGS    16u
#define PLIM_TAG_BYTES       200u /* of a name or a value */

struct plim_tag {
    const char *name; /* "request_id", "batch" */
    const char *text; /* "r1", "8" */
    bool number;      /* the value was an integer */
};

struct plim_tags {
    struct plim_tag items[PLIM_CAPTURE_TAGS];
    uint32_t n;
};

struct plim_capture_device {
    uint64_t index;
    uint64_t total; /* bytes of the device */
};

struct plim_capture {
    bool failure;          /* taken at an out-of-memory error, by the observer of PyTorch */
    uint64_t device;       /* that failed */
    uint64_t limit;        /* most bytes the process might use, or the device's; 0 unknown */
    const char *torch;     /* version, "2.14.1+cu130", or NULL */
    struct plim_tags tags; /* of the work at the failure */
    struct plim_capture_device devices[PLIM_CAPTURE_DEVICES];
    uint32_t n_devices;
};

/**
 * plim_capture_read() - the facts in `text`.
 * Errors: PLIM_E_DATA no JSON object, or not of the schema plimsoll.drop/1; PLIM_E_NOMEM. A fact of a wrong
 * type is left unknown. Cost: O(bytes).
 */
PLIM_MUST_USE enum plim_status plim_capture_read(struct plim_str text, struct plim_arena *arena,
                                                 struct plim_capture *out, struct plim_err *err);

/**
 * plim_tags_read() - the tags in a note of the program: {"request_id": "r1", "shape": {"batch": 8}}, the
 * members of inner objects one level down as tags of their own.
 * Errors: PLIM_E_DATA no JSON object; PLIM_E_NOMEM. Cost: O(bytes).
 */
PLIM_MUST_USE enum plim_status plim_tags_read(struct plim_str text, struct plim_arena *arena,
                                              struct plim_tags *out, struct plim_err *err);

/** plim_capture_total() - bytes of a device, 0 when unknown. */
uint64_t plim_capture_total(const struct plim_capture *capture, uint64_t device);

#endif
