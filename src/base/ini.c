/* SPDX-License-Identifier: Apache-2.0 */
/* Settings files through libinih: see ini.h. */

#include "base/ini.h"

#include "base/file.h"

#include <ini.h>
#include <stdlib.h>
#include <string.h>

/* libinih cuts longer names off without a word. */
#define SECTION_MAX 48u
#define KEY_MAX     48u

struct reader {
    struct plim_str rest; /* of the text */
    plim_ini_entry entry;
    void *user;
    struct plim_err *err;
    enum plim_status status;
    int line; /* that was handed out last */
};

/* libinih asks for lines one by one, which gives us their numbers. */
static char *next_line(char *buf, int room, void *stream)
{
    struct reader *r = stream;
    if (r->rest.n == 0 || r->status != PLIM_OK) {
        return NULL;
    }
    const char *end = memchr(r->rest.p, '\n', r->rest.n);
    size_t n = end ? (size_t)(end - r->rest.p) + 1 : r->rest.n;
    r->line++;
    if (n >= (size_t)room || n > PLIM_INI_LINE + 1) {
        r->status =
            plim__fail(r->err, PLIM_E_USAGE, "the line is longer than %u bytes", PLIM_INI_LINE);
        return NULL;
    }
    /* Indented entries are entries: libinih would take them for more of the value above. */
    size_t blanks = 0;
    while (blanks < n && (r->rest.p[blanks] == ' ' || r->rest.p[blanks] == '\t')) {
        blanks++;
    }
    memcpy(buf, r->rest.p + blanks, n - blanks);
    buf[n - blanks] = '\0';
    r->rest = plim_str_skip(r->rest, n);
    return buf;
}

/* libinih calls this for each entry; 0 makes it remember the line. */
static int on_entry(void *user, const char *section, const char *key, const char *value)
{
    struct reader *r = user;
    if (r->status == PLIM_OK && (strlen(section) > SECTION_MAX || strlen(key) > KEY_MAX)) {
        r->status = plim__fail(r->err, PLIM_E_USAGE, "the name '%.20s...' is longer than %u bytes",
                               strlen(key) > KEY_MAX ? key : section, SECTION_MAX);
    }
    if (r->status == PLIM_OK) {
        r->status = r->entry(r->user, section, key, value ? value : "", r->line, r->err);
    }
    return r->status == PLIM_OK;
}

enum plim_status plim_ini_read(const char *path, plim_ini_entry entry, void *user,
                               struct plim_err *err)
{
    struct plim_str text;
    PLIM_TRY(plim_file_read(path, PLIM_INI_LIMIT, &text, err));
    struct reader reader = {.rest = text, .entry = entry, .user = user, .err = err};
    int bad = ini_parse_stream(next_line, &reader, on_entry, &reader);
    bool ours = reader.status != PLIM_OK;
    free((void *)(uintptr_t)text.p);
    if (!ours && bad != 0) {
        reader.status = plim__fail(err, PLIM_E_USAGE, "not 'key = value' nor '[section]'");
    }
    if (reader.status != PLIM_OK) {
        plim__err_where(err, "%.80s:%d", path, !ours && bad > 0 ? bad : reader.line);
    }
    return reader.status;
}
