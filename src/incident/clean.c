/* SPDX-License-Identifier: Apache-2.0 */

/*
 * From pieces to files that may be given away. A snapshot is copied first and cleaned in the copy,
 * so that this can be done again from the beginning at any time.
 */

#include "incident/assembly.h"

#include "base/file.h"
#include "incident/folder.h"
#include "incident/trace_clean.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_BYTES     (UINT64_C(64) << 20) /* of a text piece that is read at all */
#define MESSAGE_BYTES  ((size_t)256 << 10)  /* kept of a log, from its end */
#define SNAPSHOT_BYTES (UINT64_C(2) << 30)
#define TRACE_BYTES    (UINT64_C(64) << 20)  /* of a recording that is kept whole */
#define TRACE_LAST_NS  UINT64_C(60000000000) /* kept of a longer one */

enum plim_status plim__assembly_note(struct plim_assembly *a, struct plim_err *err, const char *fmt,
                                     ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return plim_vec_push(&a->notes, err, plim_redact_z(&a->redactor, "incident.json", text));
}

const char *plim__part_path(const struct plim_assembly *a, const char *file)
{
    return plim_arena_sayf(a->arena, "%s/%s", a->part, file);
}

/* ---- snapshots ---- */

/* Clean a pickle in its file. Errors: PLIM_E_IO; those of plim_redact_pickle(). */
static enum plim_status clean_pickle(struct plim_assembly *a, const char *path, const char *name,
                                     struct plim_err *err)
{
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        int e = errno;
        (void)(fd >= 0 ? close(fd) : 0);
        return plim__fail_errno(err, PLIM_E_IO, e, "cannot open '%.150s'", path);
    }
    size_t n = (size_t)info.st_size;
    char *bytes =
        n > 0 ? mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : (char *)MAP_FAILED;
    int e = errno;
    (void)close(fd);
    if (bytes == MAP_FAILED) {
        return n == 0 ? plim__fail(err, PLIM_E_TRUNCATED, "the file is empty")
                      : plim__fail_errno(err, PLIM_E_IO, e, "cannot map '%.150s'", path);
    }
    enum plim_status st = plim_redact_pickle(&a->redactor, name, bytes, n, err);
    if (st == PLIM_OK && msync(bytes, n, MS_SYNC) != 0) {
        st = plim__fail_errno(err, PLIM_E_IO, errno, "cannot write '%.150s'", path);
    }
    (void)munmap(bytes, n);
    return st;
}

/* The file that is kept. On trouble with its content nothing is kept, and the original is judged.
 * */
static enum plim_status keep_snapshot(struct plim_assembly *a, struct plim_kept *kept,
                                      const char *name, struct plim_err *err)
{
    const char *final = plim__part_path(a, name);
    const char *temporary = plim_arena_sayf(a->arena, "%s.tmp", final);
    struct plim_err why = {0};
    PLIM_TRY(plim_arena_status(a->arena, err));
    PLIM_TRY(plim__copy_file(kept->judged_path, temporary, err));
    enum plim_status st = clean_pickle(a, temporary, name, &why);
    if (st == PLIM_E_DATA || st == PLIM_E_TRUNCATED) {
        (void)unlink(temporary);
        plim_redact_note(&a->redactor, name, PLIM_PRIVATE_FILE, 1);
        return plim__assembly_note(a, err, "%s is left out: it could not be cleaned (%s)", name,
                                   why.message);
    }
    if (st == PLIM_OK && rename(temporary, final) != 0) {
        st = plim__fail_errno(&why, PLIM_E_IO, errno, "cannot write '%.150s'", final);
    }
    if (st != PLIM_OK) {
        if (err != NULL) {
            *err = why;
        }
        return st;
    }
    kept->file = name;
    kept->judged_path = final;
    return PLIM_OK;
}

static enum plim_status clean_snapshot(struct plim_assembly *a, size_t index, struct plim_err *err)
{
    const struct plim_facts_file *drop = &a->pieces.drops.items[index];
    struct plim_kept kept = {.drop = index};
    uint64_t most = a->options->max_snapshot != 0 ? a->options->max_snapshot : SNAPSHOT_BYTES;
    struct stat info;
    kept.judged_path = plim_arena_sayf(a->arena, "%s/snapshot.pickle", drop->folder);
    if (drop->half) {
        PLIM_TRY(
            plim__assembly_note(a, err, "process %d died while it wrote what it knew", drop->pid));
    }
    if (lstat(kept.judged_path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return PLIM_OK;
    }
    size_t before = 0;
    for (size_t i = 0; i < index; i++) {
        before += a->pieces.drops.items[i].pid == drop->pid;
    }
    const char *name =
        before == 0 ? plim_arena_sayf(a->arena, "snapshot-%d.pickle", drop->pid)
                    : plim_arena_sayf(a->arena, "snapshot-%d-%zu.pickle", drop->pid, before + 1);
    if ((uint64_t)info.st_size > most) {
        plim_redact_note(&a->redactor, name, PLIM_PRIVATE_FILE, 1);
        PLIM_TRY(plim__assembly_note(a, err, "%s is left out: it is larger than %llu MiB", name,
                                     (unsigned long long)(most >> 20)));
    } else {
        PLIM_TRY(keep_snapshot(a, &kept, name, err));
    }
    return plim_vec_push(&a->kept, err, kept);
}

/* ---- texts ---- */

static enum plim_status write_file(struct plim_assembly *a, const char *name, struct plim_buf *buf,
                                   struct plim_err *err)
{
    PLIM_TRY(plim_buf_status(buf, err));
    PLIM_TRY(plim_arena_status(a->arena, err));
    return plim_file_replace(plim__part_path(a, name), plim_buf_str(buf), err);
}

/* Append the cleaned end of a file, whole lines; nothing when it is not there. */
static void add_text(struct plim_assembly *a, const char *path, const char *name, size_t most,
                     struct plim_buf *out)
{
    struct plim_str text;
    if (plim_file_read(path, TEXT_BYTES, &text, NULL) != PLIM_OK) {
        return;
    }
    struct plim_str end = plim_str_skip(text, text.n > most ? text.n - most : 0);
    const char *line = end.n < text.n ? memchr(end.p, '\n', end.n) : NULL;
    if (line != NULL) {
        end = plim_str_skip(end, (size_t)(line - end.p) + 1);
    }
    plim_redact_text(&a->redactor, name, end, out);
    free((void *)(uintptr_t)text.p);
}

static enum plim_status clean_message(struct plim_assembly *a, struct plim_err *err)
{
    add_text(a, plim_arena_sayf(a->arena, "%s/stderr.txt", a->pieces.raw), "message.txt",
             MESSAGE_BYTES, &a->message);
    for (size_t i = 0; i < a->pieces.drops.n && a->message.n < MESSAGE_BYTES; i++) {
        const char *path =
            plim_arena_sayf(a->arena, "%s/message.txt", a->pieces.drops.items[i].folder);
        if (a->message.n > 0 && a->message.p[a->message.n - 1] != '\n') {
            plim_buf_char(&a->message, '\n');
        }
        struct plim_buf own = {0};
        add_text(a, path, "message.txt", MESSAGE_BYTES, &own);
        /* What standard error says already is not said again. */
        if (own.n > 0 && plim_str_find(plim_buf_str(&a->message),
                                       plim_str_trim(plim_buf_str(&own))) == SIZE_MAX) {
            plim_buf_add(&a->message, plim_buf_str(&own));
        }
        a->message.failed = a->message.failed || own.failed;
        plim_buf_fini(&own);
    }
    PLIM_TRY(plim_buf_status(&a->message, err));
    return a->message.n > 0 ? write_file(a, "message.txt", &a->message, err) : PLIM_OK;
}

static enum plim_status clean_samples(struct plim_assembly *a, struct plim_err *err)
{
    struct plim_buf out = {0};
    add_text(a, plim_arena_sayf(a->arena, "%s/samples.jsonl", a->pieces.raw), "samples.jsonl",
             TEXT_BYTES, &out);
    enum plim_status st =
        out.n > 0 ? write_file(a, "samples.jsonl", &out, err) : plim_buf_status(&out, err);
    plim_buf_fini(&out);
    if (st == PLIM_OK) {
        st = plim__last_seconds_read(plim__part_path(a, "samples.jsonl"), a->pieces.owner.time_ns,
                                     &a->seconds, err);
    }
    return st;
}

/* The recording, whole or its end. What cannot be read is noted. */
static enum plim_status clean_trace(struct plim_assembly *a, struct plim_err *err)
{
    const struct plim_facts_file *o = &a->pieces.owner;
    struct stat info;
    struct plim_err why = {0};
    bool cut = false;
    if (o->trace == NULL) {
        return PLIM_OK;
    }
    const char *to = plim__part_path(a, "trace.plt");
    bool there = stat(o->trace, &info) == 0;
    if (there && !S_ISREG(info.st_mode)) {
        return PLIM_OK; /* /dev/null: none is kept */
    }
    bool large = there && (uint64_t)info.st_size > TRACE_BYTES;
    uint64_t since = large && o->time_ns > TRACE_LAST_NS ? o->time_ns - TRACE_LAST_NS : 0;
    enum plim_status st =
        plim__trace_clean(&a->redactor, o->trace, to, "trace.plt", since, &cut, &why);
    if (st == PLIM_E_NOINPUT || st == PLIM_E_DATA || st == PLIM_E_TRUNCATED ||
        st == PLIM_E_UNSUPPORTED) {
        (void)unlink(to);
        return plim__assembly_note(a, err, "the recording could not be read: %s", why.message);
    }
    if (st != PLIM_OK) {
        if (err != NULL) {
            *err = why;
        }
        return st;
    }
    a->trace = cut ? o->trace : to;
    return cut ? plim__assembly_note(a, err,
                                     "trace.plt has the last %u seconds of a longer recording",
                                     (unsigned)(TRACE_LAST_NS / UINT64_C(1000000000)))
               : PLIM_OK;
}

enum plim_status plim__clean(struct plim_assembly *a, struct plim_err *err)
{
    for (size_t i = 0; i < a->pieces.drops.n; i++) {
        PLIM_TRY(clean_snapshot(a, i, err));
    }
    PLIM_TRY(clean_message(a, err));
    PLIM_TRY(clean_trace(a, err));
    return clean_samples(a, err);
}
