/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published bodies: the bytes, and for each encoding one response of libmicrohttpd that any number
 * of connections share without a copy. An encoding is made when it is first asked for.
 */

#include "http/http_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#define SMALL      1024u /* bytes that are not worth compressing */
#define GZIP_LEVEL 4
#define ZSTD_LEVEL 3

/*
 * Two counts: of handles that our code holds, and of users of the bytes. While there are handles the
 * body keeps its responses; each response uses the bytes until libmicrohttpd is through with it,
 * which may be long after the last handle.
 */
struct plim_http_body {
    _Atomic unsigned handles; /* while > 0 they are one user together */
    _Atomic unsigned users;   /* of the bytes */
    const char *type, *csp;
    struct plim_buf text;
    pthread_mutex_t lock; /* of what follows */
    struct plim_buf packed[PLIM_ENCODINGS];
    struct MHD_Response *response[PLIM_ENCODINGS];
    struct MHD_Response *unchanged[PLIM_ENCODINGS];
    char etag[PLIM_ENCODINGS][32];
};

struct plim_http_slot {
    pthread_mutex_t lock;
    struct plim_http_body *body; /* reference or NULL */
};

const char *plim__encoding_text(enum plim_encoding encoding)
{
    static const char *const texts[PLIM_ENCODINGS] = {
        [PLIM_ENCODING_IDENTITY] = "identity",
        [PLIM_ENCODING_GZIP] = "gzip",
        [PLIM_ENCODING_ZSTD] = "zstd",
    };
    return texts[encoding];
}

/* Room for n bytes more in one piece; NULL: no memory. */
static char *room_for(struct plim_buf *out, size_t n)
{
    out->p = malloc(n + 1);
    out->cap = out->p ? n + 1 : 0;
    return out->p;
}

static bool gzip(struct plim_str text, struct plim_buf *out)
{
    z_stream z = {0};
    if (text.n > UINT32_MAX || deflateInit2(&z, GZIP_LEVEL, Z_DEFLATED, 15 + 16, 8, 0) != Z_OK) {
        return false;
    }
    size_t bound = deflateBound(&z, text.n);
    bool ok = room_for(out, bound) != NULL;
    if (ok) {
        z.next_in = (Bytef *)(uintptr_t)text.p;
        z.avail_in = (uInt)text.n;
        z.next_out = (Bytef *)out->p;
        z.avail_out = (uInt)bound;
        ok = deflate(&z, Z_FINISH) == Z_STREAM_END;
        out->n = z.total_out;
    }
    (void)deflateEnd(&z);
    return ok;
}

enum plim_status plim__compress(struct plim_str text, enum plim_encoding encoding,
                                struct plim_buf *out, struct plim_err *err)
{
    struct plim_buf made = {0};
    bool ok = false;
    if (encoding == PLIM_ENCODING_GZIP) {
        ok = gzip(text, &made);
    } else if (room_for(&made, ZSTD_compressBound(text.n))) {
        size_t n = ZSTD_compress(made.p, made.cap, text.p, text.n, ZSTD_LEVEL);
        ok = !ZSTD_isError(n);
        made.n = ok ? n : 0;
    }
    if (!ok) {
        plim_buf_fini(&made);
        return plim__fail(err, PLIM_E_NOMEM, "no memory to compress %zu bytes", text.n);
    }
    *out = made;
    return PLIM_OK;
}

enum plim_status plim_http_body_new(const char *type, const char *csp, struct plim_buf *text,
                                    struct plim_http_body **out, struct plim_err *err)
{
    struct plim_http_body *body = calloc(1, sizeof(*body));
    if (!body || text->failed) {
        free(body);
        plim_buf_fini(text);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for an answer");
    }
    body->type = type;
    body->csp = csp ? csp : PLIM_HTTP_CSP_NOTHING;
    body->text = *text;
    *text = (struct plim_buf){0};
    atomic_init(&body->handles, 1);
    atomic_init(&body->users, 1);
    (void)pthread_mutex_init(&body->lock, NULL);
    *out = body;
    return PLIM_OK;
}

struct plim_http_body *plim_http_body_ref(struct plim_http_body *body)
{
    atomic_fetch_add_explicit(&body->handles, 1, memory_order_relaxed);
    return body;
}

static void drop_user(void *self)
{
    struct plim_http_body *body = self;
    if (atomic_fetch_sub_explicit(&body->users, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int i = 0; i < PLIM_ENCODINGS; i++) {
        plim_buf_fini(&body->packed[i]);
    }
    plim_buf_fini(&body->text);
    (void)pthread_mutex_destroy(&body->lock);
    free(body);
}

void plim_http_body_unref(struct plim_http_body *body)
{
    if (!body || atomic_fetch_sub_explicit(&body->handles, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int i = 0; i < PLIM_ENCODINGS; i++) {
        if (body->response[i]) {
            MHD_destroy_response(body->response[i]);
        }
        if (body->unchanged[i]) {
            MHD_destroy_response(body->unchanged[i]);
        }
    }
    drop_user(body);
}

struct plim_str plim_http_body_text(const struct plim_http_body *body)
{
    return plim_buf_str(&body->text);
}

static struct MHD_Response *response_of(struct plim_http_body *body, struct plim_str bytes,
                                        enum plim_encoding encoding)
{
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback_cls(
        bytes.n, (void *)(uintptr_t)bytes.p, drop_user, body);
    if (!response) {
        return NULL;
    }
    atomic_fetch_add_explicit(&body->users, 1, memory_order_relaxed);
    plim__answer_security(response, body->csp);
    MHD_add_response_header(response, "Content-Type", body->type);
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "Vary", "Accept, Accept-Encoding");
    MHD_add_response_header(response, "ETag", body->etag[encoding]);
    if (encoding != PLIM_ENCODING_IDENTITY) {
        MHD_add_response_header(response, "Content-Encoding", plim__encoding_text(encoding));
    }
    return response;
}

/* Make what an encoding needs, once. Under the lock. */
static bool prepare(struct plim_http_body *body, enum plim_encoding encoding)
{
    struct plim_str bytes = plim_buf_str(&body->text);
    if (body->response[encoding]) {
        return true;
    }
    if (encoding != PLIM_ENCODING_IDENTITY) {
        if (plim__compress(bytes, encoding, &body->packed[encoding], NULL) != PLIM_OK) {
            return false;
        }
        bytes = plim_buf_str(&body->packed[encoding]);
    }
    (void)snprintf(body->etag[encoding], sizeof(body->etag[encoding]), "\"%016llx-%c\"",
                   (unsigned long long)XXH3_64bits(bytes.p, bytes.n),
                   plim__encoding_text(encoding)[0]);
    body->unchanged[encoding] = response_of(body, PLIM_STR(""), encoding);
    body->response[encoding] = response_of(body, bytes, encoding);
    return body->response[encoding] != NULL;
}

struct MHD_Response *plim__body_response(struct plim_http_body *body, struct plim_str accept,
                                         struct plim_str none_match, unsigned *code)
{
    enum plim_encoding encoding =
        body->text.n <= SMALL ? PLIM_ENCODING_IDENTITY : plim_http_choose_encoding(accept);
    (void)pthread_mutex_lock(&body->lock);
    if (!prepare(body, encoding)) {
        encoding = PLIM_ENCODING_IDENTITY;
        (void)prepare(body, encoding);
    }
    (void)pthread_mutex_unlock(&body->lock);
    if (body->unchanged[encoding] &&
        plim_http_has_etag(none_match, plim_str_from(body->etag[encoding]))) {
        *code = MHD_HTTP_NOT_MODIFIED;
        return body->unchanged[encoding];
    }
    *code = MHD_HTTP_OK;
    return body->response[encoding];
}

enum plim_status plim_http_slot_new(struct plim_http_slot **out, struct plim_err *err)
{
    struct plim_http_slot *slot = calloc(1, sizeof(*slot));
    if (!slot) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for answers");
    }
    (void)pthread_mutex_init(&slot->lock, NULL);
    *out = slot;
    return PLIM_OK;
}

void plim_http_slot_free(struct plim_http_slot *slot)
{
    if (slot) {
        plim_http_body_unref(slot->body);
        (void)pthread_mutex_destroy(&slot->lock);
        free(slot);
    }
}

void plim_http_slot_set(struct plim_http_slot *slot, struct plim_http_body *body)
{
    (void)pthread_mutex_lock(&slot->lock);
    struct plim_http_body *old = slot->body;
    slot->body = body;
    (void)pthread_mutex_unlock(&slot->lock);
    plim_http_body_unref(old);
}

struct plim_http_body *plim_http_slot_get(struct plim_http_slot *slot)
{
    (void)pthread_mutex_lock(&slot->lock);
    struct plim_http_body *body = slot->body ? plim_http_body_ref(slot->body) : NULL;
    (void)pthread_mutex_unlock(&slot->lock);
    return body;
}
