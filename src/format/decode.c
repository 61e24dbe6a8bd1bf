/* SPDX-License-Identifier: Apache-2.0 */
/* gzip, zstd and xz behind one reading loop; each differs in how it opens, takes a step and closes. */

#include "format/decode.h"

#include <stdlib.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#define IN_BYTES        (64u * 1024u)
#define XZ_MEMORY       (UINT64_C(256) << 20)
#define ZSTD_LOG_WINDOW 27 /* 128 MiB */

struct decoder;

struct codec {
    const char *name;
    enum plim_status (*open)(struct decoder *d, struct plim_err *err);
    /* Decode from in[at, n) to dst [n]; sets *got, and `done` at the end of all data. */
    enum plim_status (*step)(struct decoder *d, void *dst, size_t n, size_t *got,
                             struct plim_err *err);
    void (*close)(struct decoder *d);
};

struct decoder {
    const struct codec *codec;
    struct plim_source *below; /* borrowed */
    size_t at;                 /* next byte of in[] */
    size_t n;                  /* bytes in in[] */
    bool eof;                  /* nothing more from below */
    bool started;              /* a byte has come out, or a member has ended */
    bool boundary;             /* between two members or frames */
    bool done;
    z_stream gzip;
    ZSTD_DStream *zstd;
    lzma_stream xz;
    uint8_t in[IN_BYTES];
};

static enum plim_status damaged(const struct decoder *d, struct plim_err *err)
{
    plim__fail(err, PLIM_E_DATA, "the %s data is damaged", d->codec->name);
    plim__err_hint(err, "copy the file again, or test it with the %s program", d->codec->name);
    return PLIM_E_DATA;
}

/* -- gzip ---------------------------------------------------------------------------------------- */

static enum plim_status gzip_open(struct decoder *d, struct plim_err *err)
{
    int r = inflateInit2(&d->gzip, 15 + 16); /* largest window, gzip header */
    return r == Z_OK ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "no memory to decompress gzip");
}

/* Another member follows when its magic number is there; anything else is not looked at. */
static void gzip_next_member(struct decoder *d)
{
    bool more = d->n - d->at >= 2 && d->in[d->at] == 0x1f && d->in[d->at + 1] == 0x8b;
    d->done = !more || inflateReset(&d->gzip) != Z_OK;
    d->boundary = false;
}

static enum plim_status gzip_step(struct decoder *d, void *dst, size_t n, size_t *got,
                                  struct plim_err *err)
{
    if (d->boundary) {
        gzip_next_member(d);
        return PLIM_OK;
    }
    d->gzip.next_in = d->in + d->at;
    d->gzip.avail_in = (unsigned)(d->n - d->at);
    d->gzip.next_out = dst;
    d->gzip.avail_out = (unsigned)n;
    int r = inflate(&d->gzip, Z_NO_FLUSH);
    d->at = d->n - d->gzip.avail_in;
    *got = n - d->gzip.avail_out;
    if (r == Z_MEM_ERROR) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to decompress gzip");
    }
    d->boundary = r == Z_STREAM_END;
    return r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR ? PLIM_OK : damaged(d, err);
}

static void gzip_close(struct decoder *d)
{
    inflateEnd(&d->gzip);
}

/* -- zstd ---------------------------------------------------------------------------------------- */

static enum plim_status zstd_open(struct decoder *d, struct plim_err *err)
{
    d->zstd = ZSTD_createDStream();
    if (!d->zstd ||
        ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, ZSTD_LOG_WINDOW))) {
        ZSTD_freeDStream(d->zstd);
        return plim__fail(err, PLIM_E_NOMEM, "no memory to decompress zstd");
    }
    return PLIM_OK;
}

static enum plim_status zstd_step(struct decoder *d, void *dst, size_t n, size_t *got,
                                  struct plim_err *err)
{
    if (d->boundary && d->n - d->at >= 4 && memcmp(d->in + d->at, "\x28\xb5\x2f\xfd", 4) != 0 &&
        (d->in[d->at] & 0xf0) != 0x50) { /* 0x50 to 0x5f begin a frame that is to be skipped */
        d->done = true;
        return PLIM_OK;
    }
    ZSTD_inBuffer in = {d->in, d->n, d->at};
    ZSTD_outBuffer out = {dst, n, 0};
    size_t r = ZSTD_decompressStream(d->zstd, &out, &in);
    d->at = in.pos;
    *got = out.pos;
    if (ZSTD_isError(r)) {
        return damaged(d, err);
    }
    d->boundary = r == 0;
    return PLIM_OK;
}

static void zstd_close(struct decoder *d)
{
    ZSTD_freeDStream(d->zstd);
}

/* -- xz ------------------------------------------------------------------------------------------ */

static enum plim_status xz_open(struct decoder *d, struct plim_err *err)
{
    d->xz = (lzma_stream)LZMA_STREAM_INIT;
    lzma_ret r = lzma_stream_decoder(&d->xz, XZ_MEMORY, LZMA_CONCATENATED);
    return r == LZMA_OK ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "no memory to decompress xz");
}

static enum plim_status xz_step(struct decoder *d, void *dst, size_t n, size_t *got,
                                struct plim_err *err)
{
    d->xz.next_in = d->in + d->at;
    d->xz.avail_in = d->n - d->at;
    d->xz.next_out = dst;
    d->xz.avail_out = n;
    lzma_ret r = lzma_code(&d->xz, d->eof ? LZMA_FINISH : LZMA_RUN);
    d->at = d->n - d->xz.avail_in;
    *got = n - d->xz.avail_out;
    if (r == LZMA_MEM_ERROR || r == LZMA_MEMLIMIT_ERROR) {
        return plim__fail(err, r == LZMA_MEM_ERROR ? PLIM_E_NOMEM : PLIM_E_BUDGET,
                          "the xz data needs too much memory to decompress");
    }
    d->done = r == LZMA_STREAM_END;
    return r == LZMA_OK || r == LZMA_STREAM_END || r == LZMA_BUF_ERROR ? PLIM_OK : damaged(d, err);
}

static void xz_close(struct decoder *d)
{
    lzma_end(&d->xz);
}

/* -- the loop ------------------------------------------------------------------------------------ */

static enum plim_status refill(struct decoder *d, struct plim_err *err)
{
    size_t got = 0;
    memmove(d->in, d->in + d->at, d->n - d->at);
    d->n -= d->at;
    d->at = 0;
    PLIM_TRY(d->below->read(d->below->self, d->in + d->n, IN_BYTES - d->n, &got, err));
    d->eof = got == 0;
    d->n += got;
    return PLIM_OK;
}

static enum plim_status decoder_read(void *self, void *dst, size_t n, size_t *got,
                                     struct plim_err *err)
{
    struct decoder *d = self;
    n = n > 1u << 30 ? 1u << 30 : n; /* zlib counts in 32 bits */
    *got = 0;
    while (!d->done && n > 0) {
        if (d->n - d->at < 8 && !d->eof) {
            PLIM_TRY(refill(d, err));
        }
        size_t before = d->n - d->at;
        bool boundary = d->boundary;
        if (d->eof && before == 0 && boundary) {
            d->done = true;
            return PLIM_OK;
        }
        PLIM_TRY(d->codec->step(d, dst, n, got, err));
        if (*got > 0) {
            return PLIM_OK;
        }
        if (d->eof && !d->done && d->n - d->at == before && d->boundary == boundary) {
            plim__fail(err, PLIM_E_TRUNCATED, "the %s data is cut short", d->codec->name);
            plim__err_hint(err, "copy the file again");
            return PLIM_E_TRUNCATED;
        }
    }
    return PLIM_OK;
}

static void decoder_close(void *self)
{
    struct decoder *d = self;
    d->codec->close(d);
    free(d);
}

static enum plim_status decoder_new(const struct codec *codec, struct plim_source *below,
                                    struct plim_source *out, struct plim_err *err)
{
    struct decoder *d = calloc(1, sizeof(*d));
    if (!d) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to decompress %s", codec->name);
    }
    d->codec = codec;
    d->below = below;
    enum plim_status st = codec->open(d, err);
    if (st != PLIM_OK) {
        free(d);
        return st;
    }
    *out = (struct plim_source){.read = decoder_read, .close = decoder_close, .self = d};
    memcpy(out->name, below->name, sizeof(out->name));
    return PLIM_OK;
}

enum plim_status plim__decode_gzip(struct plim_source *below, struct plim_source *out,
                                   struct plim_err *err)
{
    static const struct codec codec = {"gzip", gzip_open, gzip_step, gzip_close};
    return decoder_new(&codec, below, out, err);
}

enum plim_status plim__decode_zstd(struct plim_source *below, struct plim_source *out,
                                   struct plim_err *err)
{
    static const struct codec codec = {"zstd", zstd_open, zstd_step, zstd_close};
    return decoder_new(&codec, below, out, err);
}

enum plim_status plim__decode_xz(struct plim_source *below, struct plim_source *out,
                                 struct plim_err *err)
{
    static const struct codec codec = {"xz", xz_open, xz_step, xz_close};
    return decoder_new(&codec, below, out, err);
}
