/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of PyTorch's _memory_viz.py (trace_plot, segment_plot) hold the whole pickle as base64 in a
 * script: [{"name": "snapshot.pickle", "base64": "gASV..."}]. The page is searched as a stream for the
 * word base64 followed by text that decodes to the start of a pickle or of a compressed file; pictures
 * and fonts in data: URLs are passed over.
 * Source: torch/cuda/_memory_viz.py, _format_viz(), torch 2.1 to 2.14.
 */

#include "base/base64.h"
#include "format/decode.h"

#include <stdlib.h>

#define IN_BYTES (64u * 1024u)

struct html {
    struct plim_source *below; /* borrowed */
    size_t at;
    size_t n;
    bool eof;
    bool found;
    bool done;
    uint8_t ahead[3]; /* the first bytes, decoded to see what they are */
    size_t n_ahead;
    uint8_t in[IN_BYTES];
};

/* The next byte, or -1 at the end. */
static enum plim_status next(struct html *h, int *c, struct plim_err *err)
{
    if (h->at == h->n && !h->eof) {
        h->at = h->n = 0;
        PLIM_TRY(h->below->read(h->below->self, h->in, IN_BYTES, &h->n, err));
        h->eof = h->n == 0;
    }
    *c = h->at < h->n ? h->in[h->at++] : -1;
    return PLIM_OK;
}

/* The next base64 digit, line ends and the backslashes of JSON passed over; -1 at the end of the text. */
static enum plim_status next_digit(struct html *h, int *d, struct plim_err *err)
{
    int c;
    do {
        PLIM_TRY(next(h, &c, err));
        if (c == '\\') {
            PLIM_TRY(next(h, &c, err));
            c = c == 'n' || c == 'r' ? '\n' : c;
        }
    } while (c == '\n' || c == '\r');
    *d = plim_base64_digit(c);
    return PLIM_OK;
}

/* Up to three bytes from four digits; fewer at the end of the text, which sets `done`. */
static enum plim_status next_group(struct html *h, uint8_t out[3], size_t *n, struct plim_err *err)
{
    uint32_t bits = 0;
    unsigned digits = 0;
    while (digits < 4) {
        int d;
        PLIM_TRY(next_digit(h, &d, err));
        if (d < 0) {
            h->done = true;
            break;
        }
        bits = bits << 6 | (uint32_t)d;
        digits++;
    }
    *n = digits >= 2 ? digits - 1 : 0;
    bits <<= 6 * (4 - digits);
    out[0] = (uint8_t)(bits >> 16);
    out[1] = (uint8_t)(bits >> 8);
    out[2] = (uint8_t)bits;
    return PLIM_OK;
}

/* Do the first bytes begin a pickle with its PROTO, or gzip, zstd, xz? */
static bool promising(const uint8_t p[3], size_t n)
{
    return n == 3 && ((p[0] == 0x80 && p[1] >= 2 && p[1] <= 5) || (p[0] == 0x1f && p[1] == 0x8b) ||
                      (p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f) ||
                      (p[0] == 0xfd && p[1] == '7' && p[2] == 'z'));
}

/* Behind the word "base64": pass what may stand between it and the text; step back one byte then. */
static enum plim_status skip_separators(struct html *h, struct plim_err *err)
{
    int c;
    for (unsigned i = 0; i < 16; i++) {
        PLIM_TRY(next(h, &c, err));
        if (c < 0 || !strchr(" \t\r\n\"'`:=,\\", c)) {
            h->at -= c >= 0;
            break;
        }
    }
    return PLIM_OK;
}

static enum plim_status find_text(struct html *h, struct plim_err *err)
{
    static const char word[] = "base64";
    size_t matched = 0;
    while (!h->found) {
        int c;
        PLIM_TRY(next(h, &c, err));
        if (c < 0) {
            plim__fail(err, PLIM_E_DATA, "this web page has no memory snapshot inside");
            plim__err_hint(err,
                           "pages of `python -m torch.cuda._memory_viz trace_plot` have; or name "
                           "the snapshot.pickle itself");
            return PLIM_E_DATA;
        }
        matched = c == word[matched] ? matched + 1 : c == word[0] ? 1 : 0;
        if (matched == sizeof(word) - 1) {
            matched = 0;
            h->done = false;
            PLIM_TRY(skip_separators(h, err));
            PLIM_TRY(next_group(h, h->ahead, &h->n_ahead, err));
            h->found = promising(h->ahead, h->n_ahead);
        }
    }
    return PLIM_OK;
}

static enum plim_status html_read(void *self, void *dst, size_t n, size_t *got,
                                  struct plim_err *err)
{
    struct html *h = self;
    uint8_t *out = dst;
    *got = 0;
    PLIM_TRY(find_text(h, err));
    while (*got < n && (h->n_ahead > 0 || !h->done)) {
        if (h->n_ahead == 0) {
            PLIM_TRY(next_group(h, h->ahead, &h->n_ahead, err));
            continue;
        }
        size_t part = n - *got < h->n_ahead ? n - *got : h->n_ahead;
        memcpy(out + *got, h->ahead, part);
        memmove(h->ahead, h->ahead + part, h->n_ahead - part);
        h->n_ahead -= part;
        *got += part;
    }
    return PLIM_OK;
}

enum plim_status plim__decode_html(struct plim_source *below, struct plim_source *out,
                                   struct plim_err *err)
{
    struct html *h = calloc(1, sizeof(*h));
    if (!h) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to read a web page");
    }
    h->below = below;
    *out = (struct plim_source){.read = html_read, .close = free, .self = h};
    memcpy(out->name, below->name, sizeof(out->name));
    return PLIM_OK;
}
