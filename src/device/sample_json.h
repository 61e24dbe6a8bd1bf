/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_SAMPLE_JSON_H
#define PLIM_DEVICE_SAMPLE_JSON_H

/*
 * A sample as one line of JSON ("plimsoll.sample/1", docs/schema/sample.json): what incidents keep
 * of the time before a failure, and what a script of made-up samples is written in. Command lines
 * are not in it.
 * Threads: pure.
 */

#include "base/buf.h"
#include "base/jsonw.h"
#include "device/sample.h"

/** plim_device_members() - members of the open object for one device; what is unknown is left out. */
void plim_device_members(struct plim_jsonw *w, const struct plim_device_sample *device);

/** plim_use_kinds_member() - "kinds" of the open object: what the process does on the device. */
void plim_use_kinds_member(struct plim_jsonw *w, const struct plim_process_use *use);

/** plim_sample_write() - one line with its newline. Failure is sticky in `out`. */
void plim_sample_write(struct plim_buf *out, const struct plim_sample *sample);

/**
 * plim_sample_parse() - one line; `out` is reset first. Nothing is balanced: a script may tell of
 * impossible things.
 * Errors: PLIM_E_DATA not such a line; PLIM_E_BUDGET more than 4096 devices or 100,000 uses;
 * PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_sample_parse(struct plim_str line, struct plim_sample *out,
                                                 struct plim_err *err);

#endif
