/* SPDX-License-Identifier: Apache-2.0 */
/* Appending to a trace file; see trace_write.h. */

#include "format/trace_write.h"

#include "format/trace_index.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static enum plim_status write_all(int fd, struct plim_str s, struct plim_err *err)
{
    while (s.n > 0) {
        ssize_t n = write(fd, s.p, s.n);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return plim__fail_errno(err, PLIM_E_IO, n < 0 ? errno : EIO, "cannot write the trace");
        }
        s = plim_str_skip(s, (size_t)n);
    }
    return PLIM_OK;
}

/* `s` behind what is there, or nothing of it. */
static enum plim_status append_bytes(struct plim_trace_writer *w, struct plim_str s,
                                     struct plim_err *err)
{
    enum plim_status st = write_all(w->fd, s, err);
    if (st == PLIM_OK) {
        w->size += s.n;
        return PLIM_OK;
    }
    if (ftruncate(w->fd, (off_t)w->size) == 0) {
        (void)lseek(w->fd, (off_t)w->size, SEEK_SET);
    } /* else a torn frame stays, which readers step over */
    return st;
}

enum plim_status plim_trace_create(const char *path, uint64_t created_ns,
                                   struct plim_trace_writer *out, struct plim_err *err)
{
    uint8_t head[PLIM_TRACE_HEAD_BYTES];
    struct plim_trace_writer w = {.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (w.fd < 0) {
        enum plim_status st =
            plim__fail_errno(err, PLIM_E_CREATE, errno, "cannot create '%s'", path);
        plim__err_hint(err, "name another file with -o");
        return st;
    }
    plim__trace_head_put(head, created_ns);
    enum plim_status st =
        append_bytes(&w, (struct plim_str){(const char *)head, sizeof(head)}, err);
    if (st != PLIM_OK) {
        plim_trace_close(&w);
        return st;
    }
    *out = w;
    return PLIM_OK;
}

enum plim_status plim_trace_append(struct plim_trace_writer *w, struct plim_trace_frame frame,
                                   struct plim_str payload, struct plim_err *err)
{
    plim_buf_reset(&w->out);
    PLIM_TRY(plim__frame_put(&w->out, &frame, payload, err));
    PLIM_TRY(plim_vec_reserve(&w->places, 1, err));
    uint64_t at = w->size;
    PLIM_TRY(append_bytes(w, plim_buf_str(&w->out), err));
    w->places.items[w->places.n++] = (struct plim_trace_place){frame, at};
    return PLIM_OK;
}

enum plim_status plim_trace_seal(struct plim_trace_writer *w, struct plim_err *err)
{
    struct plim_buf payload = {0};
    uint64_t at = w->size;
    struct plim_trace_frame frame = {.kind = PLIM_FRAME_INDEX, .items = (uint32_t)w->places.n};
    plim__index_put(&payload, w->places.items, w->places.n);
    enum plim_status st = plim_buf_status(&payload, err);
    st = st == PLIM_OK ? plim_trace_append(w, frame, plim_buf_str(&payload), err) : st;
    if (st == PLIM_OK) {
        plim_buf_reset(&payload);
        plim__trailer_put(&payload, at);
        frame = (struct plim_trace_frame){.kind = PLIM_FRAME_TRAILER, .items = 1};
        st = plim_trace_append(w, frame, plim_buf_str(&payload), err);
    }
    plim_buf_fini(&payload);
    if (st == PLIM_OK && fsync(w->fd) != 0 && errno != EINVAL && errno != EROFS) {
        st = plim__fail_errno(err, PLIM_E_IO, errno, "cannot write the trace");
    }
    return st;
}

void plim_trace_close(struct plim_trace_writer *w)
{
    if (w->fd >= 0) {
        (void)close(w->fd);
    }
    plim_vec_fini(&w->places);
    plim_buf_fini(&w->out);
    w->fd = -1;
}
