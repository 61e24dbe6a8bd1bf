/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_SNAPSHOT_READ_H
#define PLIM_FORMAT_SNAPSHOT_READ_H

/*
 * Bytes to a snapshot: the one door through which PyTorch memory snapshots come in.
 *
 * The wrapping is recognised by its first bytes, never by the file's name: a pickle (protocols 0 to
 * 5), JSON (a whole snapshot, or the list that torch.cuda.memory_snapshot() returns), gzip, zstd or
 * xz around one of these, and the HTML page that PyTorch's viewer tool writes (base64 in a script). A
 * trace of `plimsoll record` is read as well (trace_build.h).
 * What is something else (a model checkpoint, a GGUF file, text, an empty file) is refused by name.
 *
 * The input is hostile: nothing in it is executed, opcodes that could call code are refused with their
 * byte offset, and memory, nesting, string length and memo size are limited. It is read once, front
 * to back, through a small window, so standard input and files larger than memory work; no tree of
 * objects is built: entries go straight into the columns of the snapshot.
 *
 * Inconsistencies that still leave sense (a negative size, blocks that do not add up) become findings
 * of the snapshot; only what cannot be read is an error. Threads: independent calls are independent.
 */

#include "base/file.h"
#include "heap/snapshot.h"

/* X(field, default, unit and meaning). What one read may cost; 0 in a field means its default. */
#define PLIM_READ_LIMIT_MAP(X)                                                                     \
    X(memory, UINT64_C(16) << 30, "bytes of memory for everything that is read")                   \
    X(string, UINT64_C(64) << 20, "bytes of one string")                                           \
    X(memo, UINT64_C(1) << 29, "entries of the pickle's memo")                                     \
    X(nesting, 100, "containers inside each other")

struct plim_read_limits {
#define PLIM__X(field, value, meaning) uint64_t field; /* see PLIM_READ_LIMIT_MAP */
    PLIM_READ_LIMIT_MAP(PLIM__X)
#undef PLIM__X
};

/**
 * plim_snapshot_read() - read a snapshot from `source`, to its end.
 * @source: borrowed; read from where it stands, not closed.
 * @limits: nullable: the defaults. Beside `memory`, memory may never exceed 64 MiB plus four times the
 *          bytes read so far (after decompression), so a small file cannot ask for much.
 * @out:    written only on success; plim_snapshot_fini() it. Need not be initialised before.
 * Errors: PLIM_E_DATA not a snapshot, or a broken one; PLIM_E_TRUNCATED; PLIM_E_UNSAFE an opcode that
 *         could call code; PLIM_E_BUDGET; PLIM_E_UNSUPPORTED; PLIM_E_IO; PLIM_E_NOMEM. err->pos is
 *         the byte offset in the (decompressed) data, err->where the name of the source.
 * Cost: linear; about 100 ns for each trace entry, 40 bytes kept for it.
 */
PLIM_MUST_USE enum plim_status plim_snapshot_read(struct plim_source *source,
                                                  const struct plim_read_limits *limits,
                                                  struct plim_snapshot *out, struct plim_err *err);

/** plim_snapshot_read_file() - open `path` ("-" is standard input), read, close. */
PLIM_MUST_USE enum plim_status plim_snapshot_read_file(const char *path,
                                                       const struct plim_read_limits *limits,
                                                       struct plim_snapshot *out,
                                                       struct plim_err *err);

#endif
