/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_DECODE_H
#define PLIM_FORMAT_DECODE_H

/*
 * Sources that undo a wrapping: bytes from the source below go in, the content comes out. Nothing is
 * held but small buffers and the decompressor's own window (zstd at most 128 MiB, xz at most 256 MiB, else
 * the data is refused). Each is closed by plim_source_close(); the source below stays open.
 * Errors while reading: PLIM_E_DATA damaged, PLIM_E_TRUNCATED cut short, and those of the source below.
 * Threads: one at a time.
 */

#include "base/file.h"

/** plim__decode_gzip()/zstd()/xz() - one or more members or frames, one behind the other; what follows
 * them and is none is ignored. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__decode_gzip(struct plim_source *below, struct plim_source *out,
                                                 struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__decode_zstd(struct plim_source *below, struct plim_source *out,
                                                 struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__decode_xz(struct plim_source *below, struct plim_source *out,
                                               struct plim_err *err);

/** plim__decode_html() - the first base64 text in a page that holds a pickle or a compressed file, as
 * PyTorch's _memory_viz.py writes: {"name": ..., "base64": "gASV..."}.
 * Errors: PLIM_E_NOMEM; while reading: PLIM_E_DATA when there is none. */
PLIM_MUST_USE enum plim_status plim__decode_html(struct plim_source *below, struct plim_source *out,
                                                 struct plim_err *err);

#endif
