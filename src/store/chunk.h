/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_STORE_CHUNK_H
#define PLIM_STORE_CHUNK_H

/*
 * Chunk: all figures of one subject over one stretch of a level, packed; docs/format/history.md draws its bytes.
 *
 *   cell    one bin of one figure; on the finest level the cell of one point, n == 1
 *   row     the cells of one time; a figure may have none in some rows
 *
 * Times are ledger milliseconds. Bytes of a chunk are hostile: a reader says no and reads nothing past them.
 * Threads: a packer and a reader belong to one thread each.
 */

#include "base/varint.h"
#include "base/vec.h"

#define PLIM_CHUNK_ROWS    4096u /* most of one chunk */
#define PLIM_CHUNK_FIGURES 1024u

struct plim_cell {
    double min, max, sum, last;
    uint64_t n; /* points; 0: there is none */
};

/** plim__cell_point() - take one point in; plim__cell_join() - take a later cell in. */
void plim__cell_point(struct plim_cell *cell, double value);
void plim__cell_join(struct plim_cell *cell, const struct plim_cell *later);

struct plim__packer {
    struct plim_buf raw, body; /* owned */
    void *zstd;                /* owned: ZSTD_CCtx */
    size_t rows;
    bool bins;
};

void plim__packer_fini(struct plim__packer *packer);

/** plim__packer_begin() - @times: [rows], rising, multiples of unit above start. */
void plim__packer_begin(struct plim__packer *packer, bool bins, int64_t start, int64_t unit,
                        const int64_t *times, size_t rows);

/** plim__packer_figure() - cells of one figure, [rows]; figures in rising order. */
void plim__packer_figure(struct plim__packer *packer, uint32_t figure,
                         const struct plim_cell *cells);

/** plim__packer_end() - the packed bytes, appended to `out`. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__packer_end(struct plim__packer *packer, struct plim_buf *out,
                                                struct plim_err *err);

struct plim__chunk {
    struct plim_buf raw; /* owned */
    void *zstd;          /* owned: ZSTD_DCtx */
    struct plim_cursor rest;
    bool bins;
    size_t rows;
    PLIM_VEC(int64_t) times; /* [rows] */
};

void plim__chunk_fini(struct plim__chunk *chunk);

/** plim__chunk_open() - unpack; reusable. Errors: PLIM_E_DATA, PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__chunk_open(struct plim__chunk *chunk, struct plim_str bytes,
                                                int64_t start, struct plim_err *err);

/** plim__chunk_next() - the next figure and its bytes, undecoded; false at the end or when they are broken. */
bool plim__chunk_next(struct plim__chunk *chunk, uint32_t *figure, struct plim_str *body);

/** plim__chunk_cells() - decode the bytes of a figure into cells[chunk->rows]; false: broken. */
bool plim__chunk_cells(const struct plim__chunk *chunk, struct plim_str body,
                       struct plim_cell *cells);

#endif
