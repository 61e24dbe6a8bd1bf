/* SPDX-License-Identifier: Apache-2.0 */

/* See sample_log.h. */

#include "incident/sample_log.h"

#include "base/file.h"
#include "device/sample_json.h"

#include <string.h>

static void drop_oldest(struct plim_sample_log *log, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        log->bytes -= log->lines.items[i].n;
        free(log->lines.items[i].text);
    }
    log->lines.n -= n;
    if (n > 0) {
        memmove(log->lines.items, log->lines.items + n, log->lines.n * sizeof(*log->lines.items));
    }
}

enum plim_status plim_sample_log_add(struct plim_sample_log *log, const struct plim_sample *sample,
                                     struct plim_err *err)
{
    struct plim_buf buf = {0};
    plim_sample_write(&buf, sample);
    enum plim_status st = plim_buf_status(&buf, err);
    if (st == PLIM_OK) {
        struct plim_sample_line line = {.time_ns = sample->time_ns, .text = buf.p, .n = buf.n};
        st = plim_vec_push(&log->lines, err, line);
    }
    if (st != PLIM_OK) {
        plim_buf_fini(&buf);
        return st;
    }
    log->bytes += buf.n;
    size_t old = 0;
    uint64_t bytes = log->bytes;
    while (old + 1 < log->lines.n &&
           (log->lines.items[old].time_ns + PLIM_SAMPLE_LOG_KEEP_NS < sample->time_ns ||
            bytes > PLIM_SAMPLE_LOG_KEEP_MAX)) {
        bytes -= log->lines.items[old++].n;
    }
    drop_oldest(log, old);
    return PLIM_OK;
}

enum plim_status plim_sample_log_write(const struct plim_sample_log *log, const char *path,
                                       struct plim_err *err)
{
    struct plim_buf out = {0};
    for (size_t i = 0; i < log->lines.n; i++) {
        plim_buf_add(&out, (struct plim_str){log->lines.items[i].text, log->lines.items[i].n});
    }
    enum plim_status st = plim_buf_status(&out, err);
    st = st == PLIM_OK ? plim_file_replace(path, plim_buf_str(&out), err) : st;
    plim_buf_fini(&out);
    return st;
}

void plim_sample_log_fini(struct plim_sample_log *log)
{
    drop_oldest(log, log->lines.n);
    plim_vec_fini(&log->lines);
}
