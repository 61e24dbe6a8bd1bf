/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Packing of chunks. A column of whole numbers is written as differences, one of others as the exclusive or of their
 * bits; figures of memory stand still most of the time, so nearly all of that is zero bytes, which zstd then takes
 * together. Cells of bins are written so that a figure that stands still is zeros too: the lowest value as a
 * column, and how far the highest, the last and the sum are above what it alone would make of them.
 */

#include "store/chunk.h"

#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <zstd.h>

#define FORM_POINTS 1u /* first byte of a chunk: version and kind in one */
#define FORM_BINS   2u
#define MODE_WHOLE  0u
#define MODE_REAL   1u
#define ZSTD_LEVEL  3
#define RAW_MAX     (UINT32_C(16) << 20) /* bytes of a chunk, unpacked */

void plim__cell_point(struct plim_cell *cell, double value)
{
    struct plim_cell point = {value, value, value, value, 1};
    plim__cell_join(cell, &point);
}

void plim__cell_join(struct plim_cell *cell, const struct plim_cell *later)
{
    if (cell->n == 0 || later->n == 0) {
        *cell = later->n == 0 ? *cell : *later;
        return;
    }
    cell->min = fmin(cell->min, later->min);
    cell->max = fmax(cell->max, later->max);
    cell->sum += later->sum;
    cell->last = later->last;
    cell->n += later->n;
}

/* ---- packing ---- */

static bool whole(double v)
{
    return fabs(v) <= PLIM_EXACT_MAX && v == trunc(v) && !(v == 0 && signbit(v));
}

static bool all_whole(const struct plim_cell *cells, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        const struct plim_cell *c = &cells[i];
        if (c->n > 0 && !(whole(c->min) && whole(c->max) && whole(c->sum) && whole(c->last) &&
                          whole(c->min * (double)c->n))) {
            return false;
        }
    }
    return true;
}

/* How often the state changes between absent and present, then the lengths, absent first. */
static void put_presence(struct plim_buf *out, const struct plim_cell *cells, size_t rows)
{
    bool present = false;
    uint64_t run = 0;
    for (size_t i = 0; i < rows; i++) {
        if ((cells[i].n > 0) != present) {
            plim__varint_put(out, run);
            run = 0;
            present = !present;
        }
        run++;
    }
    plim__varint_put(out, run);
}

static void put_whole(struct plim_buf *out, bool bins, const struct plim_cell *cells, size_t rows)
{
    int64_t last = 0, last_n = 0;
    for (size_t i = 0; i < rows; i++) {
        if (cells[i].n > 0) {
            plim__varint_put(out, plim__zigzag((int64_t)cells[i].min - last));
            last = (int64_t)cells[i].min;
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            plim__varint_put(out, plim__zigzag((int64_t)cells[i].n - last_n));
            last_n = (int64_t)cells[i].n;
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            plim__varint_put(out, (uint64_t)(cells[i].max - cells[i].min));
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            int64_t floor = (int64_t)cells[i].min * (int64_t)cells[i].n;
            plim__varint_put(out, plim__zigzag((int64_t)cells[i].sum - floor));
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            plim__varint_put(out, (uint64_t)(cells[i].last - cells[i].min));
        }
    }
}

static uint64_t bits_of(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static double real_of(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* Like values share their highest bits, which the exclusive or clears and the swap makes the last: a short number. */
static uint64_t fold(double v, double like)
{
    return __builtin_bswap64(bits_of(v) ^ bits_of(like));
}

static double unfold(uint64_t folded, double like)
{
    return real_of(__builtin_bswap64(folded) ^ bits_of(like));
}

static void put_real(struct plim_buf *out, bool bins, const struct plim_cell *cells, size_t rows)
{
    double last = 0;
    int64_t last_n = 0;
    for (size_t i = 0; i < rows; i++) {
        if (cells[i].n > 0) {
            plim__varint_put(out, fold(cells[i].min, last));
            last = cells[i].min;
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            plim__varint_put(out, plim__zigzag((int64_t)cells[i].n - last_n));
            last_n = (int64_t)cells[i].n;
            plim__varint_put(out, fold(cells[i].max, cells[i].min));
            plim__varint_put(out, fold(cells[i].sum, cells[i].min * (double)cells[i].n));
            plim__varint_put(out, fold(cells[i].last, cells[i].min));
        }
    }
}

void plim__packer_begin(struct plim__packer *packer, bool bins, int64_t start, int64_t unit,
                        const int64_t *times, size_t rows)
{
    int64_t last = start, step = 0;
    packer->rows = rows;
    packer->bins = bins;
    plim_buf_reset(&packer->raw);
    plim_buf_char(&packer->raw, (char)(bins ? FORM_BINS : FORM_POINTS));
    plim__varint_put(&packer->raw, (uint64_t)unit);
    plim__varint_put(&packer->raw, rows);
    for (size_t i = 0; i < rows; i++) {
        int64_t now = (times[i] - last) / unit;
        plim__varint_put(&packer->raw, plim__zigzag(now - step));
        step = now;
        last = times[i];
    }
}

void plim__packer_figure(struct plim__packer *packer, uint32_t figure,
                         const struct plim_cell *cells)
{
    bool is_whole = all_whole(cells, packer->rows);
    plim_buf_reset(&packer->body);
    plim_buf_char(&packer->body, (char)(is_whole ? MODE_WHOLE : MODE_REAL));
    put_presence(&packer->body, cells, packer->rows);
    (is_whole ? put_whole : put_real)(&packer->body, packer->bins, cells, packer->rows);
    plim__varint_put(&packer->raw, figure);
    plim__text_put(&packer->raw, plim_buf_str(&packer->body));
    packer->raw.failed = packer->raw.failed || packer->body.failed;
}

enum plim_status plim__packer_end(struct plim__packer *packer, struct plim_buf *out,
                                  struct plim_err *err)
{
    PLIM_TRY(plim_buf_status(&packer->raw, err));
    if (packer->zstd == NULL) {
        packer->zstd = ZSTD_createCCtx();
        if (packer->zstd == NULL) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for packing");
        }
        (void)ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
        (void)ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_checksumFlag, 1);
    }
    size_t room = ZSTD_compressBound(packer->raw.n);
    plim_buf_reset(&packer->body);
    if (!plim_buf_reserve(&packer->body, room)) {
        return plim_buf_status(&packer->body, err);
    }
    size_t n = ZSTD_compress2(packer->zstd, packer->body.p, room, packer->raw.p, packer->raw.n);
    if (ZSTD_isError(n)) {
        return plim__fail(err, PLIM_E_NOMEM, "packing failed: %s", ZSTD_getErrorName(n));
    }
    plim_buf_add(out, (struct plim_str){packer->body.p, n});
    return plim_buf_status(out, err);
}

void plim__packer_fini(struct plim__packer *packer)
{
    plim_buf_fini(&packer->raw);
    plim_buf_fini(&packer->body);
    (void)ZSTD_freeCCtx(packer->zstd);
    *packer = (struct plim__packer){0};
}

/* ---- reading ---- */

static enum plim_status broken(struct plim_err *err)
{
    return plim__fail(err, PLIM_E_DATA, "a piece of the history is damaged");
}

static enum plim_status unpack(struct plim__chunk *chunk, struct plim_str bytes,
                               struct plim_err *err)
{
    unsigned long long raw = ZSTD_getFrameContentSize(bytes.p, bytes.n);
    if (raw == ZSTD_CONTENTSIZE_UNKNOWN || raw == ZSTD_CONTENTSIZE_ERROR || raw > RAW_MAX) {
        return broken(err);
    }
    if (chunk->zstd == NULL && (chunk->zstd = ZSTD_createDCtx()) == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for unpacking");
    }
    plim_buf_reset(&chunk->raw);
    if (!plim_buf_reserve(&chunk->raw, (size_t)raw)) {
        return plim_buf_status(&chunk->raw, err);
    }
    size_t n = ZSTD_decompressDCtx(chunk->zstd, chunk->raw.p, (size_t)raw, bytes.p, bytes.n);
    if (ZSTD_isError(n) || n != raw) {
        return broken(err);
    }
    chunk->raw.n = n;
    return PLIM_OK;
}

enum plim_status plim__chunk_open(struct plim__chunk *chunk, struct plim_str bytes, int64_t start,
                                  struct plim_err *err)
{
    PLIM_TRY(unpack(chunk, bytes, err));
    struct plim_cursor *c = &chunk->rest;
    *c = plim__cursor(plim_buf_str(&chunk->raw));
    unsigned form = c->p < c->end ? *c->p++ : 0;
    uint64_t unit = plim__varint_get(c);
    uint64_t rows = plim__varint_get(c);
    if ((form != FORM_POINTS && form != FORM_BINS) || c->bad || unit == 0 || unit > UINT32_MAX ||
        rows > PLIM_CHUNK_ROWS) {
        return broken(err);
    }
    chunk->bins = form == FORM_BINS;
    chunk->rows = (size_t)rows;
    chunk->times.n = 0;
    PLIM_TRY(plim_vec_reserve(&chunk->times, rows, err));
    int64_t ticks = 0, step = 0;
    for (size_t i = 0; i < rows; i++) {
        int64_t change = plim__unzigzag(plim__varint_get(c));
        if (change > INT32_MAX || change < INT32_MIN) {
            return broken(err);
        }
        step += change;
        ticks += step;
        if (step < 0 || (i > 0 && step == 0) || ticks > INT32_MAX) {
            return broken(err);
        }
        chunk->times.items[chunk->times.n++] = start + ticks * (int64_t)unit;
    }
    return c->bad ? broken(err) : PLIM_OK;
}

bool plim__chunk_next(struct plim__chunk *chunk, uint32_t *figure, struct plim_str *body)
{
    struct plim_cursor *c = &chunk->rest;
    if (c->p >= c->end) {
        return false;
    }
    uint64_t id = plim__varint_get(c);
    *body = plim__text_get(c);
    *figure = (uint32_t)id;
    return !c->bad && id <= UINT16_MAX;
}

/* Marks present cells with n = 1. */
static bool get_presence(struct plim_cursor *c, struct plim_cell *cells, size_t rows)
{
    bool present = false;
    size_t at = 0;
    while (at < rows) {
        uint64_t run = plim__varint_get(c);
        if (c->bad || run > rows - at || (run == 0 && at > 0)) {
            return false;
        }
        for (uint64_t i = 0; i < run; i++) {
            cells[at++] = (struct plim_cell){.n = present};
        }
        present = !present;
    }
    return true;
}

/* Whole numbers of hostile bytes wrap in 64 bits and are then merely wrong. */
static int64_t add_wrapping(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static void get_whole(struct plim_cursor *c, bool bins, struct plim_cell *cells, size_t rows)
{
    int64_t last = 0, last_n = 0;
    for (size_t i = 0; i < rows; i++) {
        if (cells[i].n > 0) {
            last = add_wrapping(last, plim__unzigzag(plim__varint_get(c)));
            double v = (double)last;
            cells[i] = (struct plim_cell){v, v, v, v, 1};
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            last_n = add_wrapping(last_n, plim__unzigzag(plim__varint_get(c)));
            cells[i].n = last_n > 0 && last_n <= INT32_MAX ? (uint64_t)last_n : 1;
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            cells[i].max = cells[i].min + (double)plim__varint_get(c);
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            cells[i].sum =
                cells[i].min * (double)cells[i].n + (double)plim__unzigzag(plim__varint_get(c));
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            cells[i].last = cells[i].min + (double)plim__varint_get(c);
        }
    }
}

static void get_real(struct plim_cursor *c, bool bins, struct plim_cell *cells, size_t rows)
{
    double last = 0;
    int64_t last_n = 0;
    for (size_t i = 0; i < rows; i++) {
        if (cells[i].n > 0) {
            last = unfold(plim__varint_get(c), last);
            cells[i] = (struct plim_cell){last, last, last, last, 1};
        }
    }
    for (size_t i = 0; bins && i < rows; i++) {
        if (cells[i].n > 0) {
            struct plim_cell *cell = &cells[i];
            last_n = add_wrapping(last_n, plim__unzigzag(plim__varint_get(c)));
            cell->n = last_n > 0 && last_n <= INT32_MAX ? (uint64_t)last_n : 1;
            cell->max = unfold(plim__varint_get(c), cell->min);
            cell->sum = unfold(plim__varint_get(c), cell->min * (double)cell->n);
            cell->last = unfold(plim__varint_get(c), cell->min);
        }
    }
}

static bool finite_cells(const struct plim_cell *cells, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        const struct plim_cell *c = &cells[i];
        if (c->n > 0 &&
            !(isfinite(c->min) && isfinite(c->max) && isfinite(c->sum) && isfinite(c->last))) {
            return false;
        }
    }
    return true;
}

bool plim__chunk_cells(const struct plim__chunk *chunk, struct plim_str body,
                       struct plim_cell *cells)
{
    struct plim_cursor c = plim__cursor(body);
    unsigned mode = c.p < c.end ? *c.p++ : UINT8_MAX;
    if (mode > MODE_REAL || !get_presence(&c, cells, chunk->rows)) {
        return false;
    }
    (mode == MODE_WHOLE ? get_whole : get_real)(&c, chunk->bins, cells, chunk->rows);
    return !c.bad && c.p == c.end && finite_cells(cells, chunk->rows);
}

void plim__chunk_fini(struct plim__chunk *chunk)
{
    plim_buf_fini(&chunk->raw);
    plim_vec_fini(&chunk->times);
    (void)ZSTD_freeDCtx(chunk->zstd);
    *chunk = (struct plim__chunk){0};
}
