/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A vendor that answers from a file of "plimsoll.sample/1" lines, one for each question, the last
 * one again and again: for tests, and to look at recorded samples with the tools for live ones. A
 * line of the form `hang SECONDS` answers that much later, as a driver in trouble does.
 */

#include "base/file.h"
#include "device/sample_json.h"
#include "device/sampler.h"

#include <stdlib.h>
#include <time.h>

#define SCRIPT_BYTES (UINT64_C(256) << 20)

struct script {
    struct plim_str text; /* owned */
    size_t at;            /* of the next line */
    size_t last;          /* of the last line that was a sample */
};

static enum plim_status script_open(const struct plim_world *world, const char *path, void **self,
                                    struct plim_err *err)
{
    (void)world;
    struct script *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a script");
    }
    enum plim_status st = plim_file_read(path, SCRIPT_BYTES, &s->text, err);
    if (st != PLIM_OK) {
        free(s);
        return st;
    }
    *self = s;
    return PLIM_OK;
}

static void script_close(void *self)
{
    struct script *s = self;
    free((void *)(uintptr_t)s->text.p);
    free(s);
}

static void hang(struct plim_str seconds)
{
    char text[32] = "";
    memcpy(text, seconds.p, seconds.n < sizeof(text) ? seconds.n : sizeof(text) - 1);
    double s = strtod(text, NULL);
    s = s > 0 && s < 3600 ? s : 0;
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&t, &t) != 0) {
    }
}

static struct plim_str line_at(const struct script *s, size_t at)
{
    struct plim_str rest = plim_str_skip(s->text, at);
    const char *end = memchr(rest.p, '\n', rest.n);
    rest.n = end != NULL ? (size_t)(end - rest.p) : rest.n;
    return rest;
}

enum plim_status plim__script_check(const char *path, struct plim_err *err)
{
    struct script s = {0};
    PLIM_TRY(plim_file_read(path, SCRIPT_BYTES, &s.text, err));
    enum plim_status st = plim__fail(err, PLIM_E_DATA, "no sample is in it");
    struct plim_sample sample = {0};
    for (struct plim_str line = {0}; s.at < s.text.n; s.at += line.n + 1) {
        line = line_at(&s, s.at);
        if (line.n > 0 && !plim_str_starts(line, PLIM_STR("hang "))) {
            st = plim_sample_parse(line, &sample, err);
            break;
        }
    }
    if (st != PLIM_OK) {
        plim__err_where(err, "%s", path);
        plim__err_hint(err, "a plimsoll.sample/1 object on each line, such as incidents hold");
    }
    plim_sample_fini(&sample);
    free((void *)(uintptr_t)s.text.p);
    return st;
}

static enum plim_status script_sample(void *self, struct plim_sample *out, struct plim_err *err)
{
    struct script *s = self;
    while (s->at < s->text.n) {
        struct plim_str line = line_at(s, s->at);
        size_t at = s->at;
        s->at += line.n + 1;
        if (plim_str_starts(line, PLIM_STR("hang "))) {
            hang(plim_str_skip(line, 5));
        } else if (line.n > 0) {
            s->last = at;
            break;
        }
    }
    struct plim_str line = line_at(s, s->last);
    return line.n > 0 ? plim_sample_parse(line, out, err) : PLIM_OK;
}

const struct plim_vendor plim__vendor_script = {"script", script_open, script_sample, script_close};
