/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in front of the scanner: compressed logs are decompressed on the way, and input that is no
 * text is told apart, so that a snapshot given to the wrong verb gets a useful answer.
 */

#include "format/decode.h"
#include "format/oomtext_internal.h"

#define BINARY_SHARE 20 /* one control byte in so many is no text */

/* The head that was looked at, then the rest of the raw source. */
static enum plim_status replay_read(void *self, void *dst, size_t n, size_t *got,
                                    struct plim_err *err)
{
    struct plim__oom_input *in = self;
    if (in->at < in->n) {
        size_t take = in->n - in->at < n ? in->n - in->at : n;
        memcpy(dst, in->head + in->at, take);
        in->at += take;
        *got = take;
        return PLIM_OK;
    }
    return in->raw->read(in->raw->self, dst, n, got, err);
}

static bool starts(const struct plim__oom_input *in, const char *magic, size_t n)
{
    return in->n >= n && memcmp(in->head, magic, n) == 0;
}

enum plim_status plim__oom_input_open(struct plim__oom_input *in, struct plim_source *raw,
                                      struct plim_err *err)
{
    *in = (struct plim__oom_input){.raw = raw};
    for (size_t got = 1; got > 0 && in->n < sizeof(in->head); in->n += got) {
        PLIM_TRY(raw->read(raw->self, in->head + in->n, sizeof(in->head) - in->n, &got, err));
    }
    in->replay = (struct plim_source){.read = replay_read, .self = in};
    in->source = &in->replay;
    if (starts(in, "\x1f\x8b", 2)) {
        PLIM_TRY(plim__decode_gzip(&in->replay, &in->decoder, err));
        in->source = &in->decoder;
    } else if (starts(in, "\x28\xb5\x2f\xfd", 4)) {
        PLIM_TRY(plim__decode_zstd(&in->replay, &in->decoder, err));
        in->source = &in->decoder;
    } else if (starts(in, "\xfd\x37zXZ", 5)) {
        PLIM_TRY(plim__decode_xz(&in->replay, &in->decoder, err));
        in->source = &in->decoder;
    }
    return PLIM_OK;
}

void plim__oom_input_close(struct plim__oom_input *in)
{
    if (in->source == &in->decoder) {
        plim_source_close(&in->decoder);
    }
}

static bool is_control(unsigned char c)
{
    return (c < 0x20 && !strchr("\t\n\r\f\b\a\033", c)) || c == 0 || c == 0x7f;
}

/* Files that hold words, also ours, but are no text. */
static const struct {
    const char *magic;
    size_t n;
    const char *hint;
} files[] = {
    {"\x80\x02", 2, "it is a pickle: for a memory snapshot use 'plimsoll diagnose'"},
    {"\x80\x03", 2, "it is a pickle: for a memory snapshot use 'plimsoll diagnose'"},
    {"\x80\x04", 2, "it is a pickle: for a memory snapshot use 'plimsoll diagnose'"},
    {"\x80\x05", 2, "it is a pickle: for a memory snapshot use 'plimsoll diagnose'"},
    {"PK\x03\x04", 4, "it is a zip archive, as model checkpoints are: give the log instead"},
    {"\x7f"
     "ELF",
     4, "it is a program or a library: give its output instead"},
    {"GGUF", 4, "it is a model: give the log instead"},
};

static enum plim_status refuse(const char *name, size_t at, const char *hint, struct plim_err *err)
{
    enum plim_status st = plim__fail(err, PLIM_E_DATA, "this is not text");
    plim__err_where(err, "%s: byte", name[0] ? name : "input");
    plim__err_at(err, at);
    plim__err_hint(err, "%s", hint);
    return st;
}

enum plim_status plim__oom_input_check(struct plim_str head, bool found, const char *name,
                                       struct plim_err *err)
{
    size_t control = 0, first = SIZE_MAX;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (head.n >= files[i].n && memcmp(head.p, files[i].magic, files[i].n) == 0) {
            return refuse(name, 0, files[i].hint, err);
        }
    }
    for (size_t i = 0; i < head.n; i++) {
        if (is_control((unsigned char)head.p[i])) {
            control++;
            first = first == SIZE_MAX ? i : first;
        }
    }
    if (found || control * BINARY_SHARE <= head.n) {
        return PLIM_OK;
    }
    return refuse(name, first,
                  "no message was found in it; give the program's log or the message itself", err);
}
