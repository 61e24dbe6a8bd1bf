/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_INCIDENT_REDACT_H
#define PLIM_INCIDENT_REDACT_H

/*
 * Taking private things out of text and of snapshots, and remembering what was taken.
 *
 *   span      a private piece of a text, and what stands in its place
 *   rule      finds spans that begin at one byte; all rules are in one table (redact_rules.c)
 *   identity  what is private here: user, home folder, host names, project
 *
 * The rules err on the side of taking too much. What they keep on purpose: figures, names of
 * options, module and function names, file names of source code and libraries, addresses (0x...).
 * Threads: one redactor belongs to one thread.
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/jsonw.h"
#include "base/vec.h"

/* X(name, text for removed.json, meaning) */
#define PLIM_PRIVATE_MAP(X)                                                                        \
    X(SECRET, "secret", "a token, key or password, or what looks like one")                        \
    X(CREDENTIALS, "credentials", "user and password of a URL")                                    \
    X(USER, "user", "the name of the user")                                                        \
    X(HOST, "host", "the name of a host, or an address of the network")                            \
    X(EMAIL, "email", "an e-mail address")                                                         \
    X(PROJECT_PATH, "project_path", "the folder of the project")                                   \
    X(PATH, "path", "a path outside the project")                                                  \
    X(UUID, "uuid", "the identity of a device")                                                    \
    X(ARGUMENT, "argument", "an argument of a command line")                                       \
    X(VARIABLE, "variable", "an environment variable that is not on the list of harmless ones")    \
    X(FILE, "file", "a whole file that could not be cleaned")

enum plim_private {
#define PLIM__X(name, text, meaning) PLIM_PRIVATE_##name,
    PLIM_PRIVATE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_PRIVATE_COUNT
};

const char *plim_private_text(enum plim_private kind);

#define PLIM_IDENTITY_NAMES 8

struct plim_identity {                     /* all borrowed; NULL when unknown */
    const char *user[PLIM_IDENTITY_NAMES]; /* login names, of this process and of the program */
    const char *home;                      /* "/home/ann", without a slash at its end */
    const char *host[PLIM_IDENTITY_NAMES]; /* full and short name of this machine */
    const char *project;                   /* absolute, without a slash at its end */
};

struct plim_removal {
    const char *file; /* arena */
    enum plim_private kind;
    uint64_t count;
};

struct plim_redactor {
    struct plim_arena *arena; /* borrowed */
    struct plim_identity identity;
    bool off; /* keep everything */
    PLIM_VEC(struct plim_removal) removals;
    bool failed; /* out of memory: `removals` is not complete */
};

void plim_redactor_fini(struct plim_redactor *r);

/**
 * plim_redact_text() - append `text` to `out` without its private pieces; `file` is where it will
 * stand.
 * Cost: linear. Failure is sticky in `out`.
 */
void plim_redact_text(struct plim_redactor *r, const char *file, struct plim_str text,
                      struct plim_buf *out);

/** plim_redact_z() - the same for a short text: an arena-owned copy; "" when memory is out (the
 * arena is then `starved`). NULL stays NULL. */
const char *plim_redact_z(struct plim_redactor *r, const char *file, const char *text);

/**
 * plim_redact_argv() - a command line: the program's base name, names of options, and values that
 * are numbers or plain words of options that name no secret stay; the rest becomes "<removed>".
 * @argv: NULL-terminated; @out: (arena) [*n].
 */
PLIM_MUST_USE enum plim_status plim_redact_argv(struct plim_redactor *r, const char *file,
                                                const char *const *argv, const char ***out,
                                                size_t *n, struct plim_err *err);

/** plim_redact_keeps_variable() - whether an environment variable of this name is harmless and of
 * use. */
bool plim_redact_keeps_variable(const char *name, size_t n);

/** plim_redact_note() - count a removal that was made elsewhere. */
void plim_redact_note(struct plim_redactor *r, const char *file, enum plim_private kind,
                      uint64_t count);

/**
 * plim_redact_pickle() - overwrite the private pieces of every string of a pickle in place with
 * 'x'; a '/' in them stays. The strings that give a snapshot its structure are left alone.
 * Errors: PLIM_E_DATA, PLIM_E_TRUNCATED it is no pickle of plain data up to its end: nothing of it
 * should be given away. Cost: linear.
 */
PLIM_MUST_USE enum plim_status plim_redact_pickle(struct plim_redactor *r, const char *file,
                                                  char *bytes, size_t n, struct plim_err *err);

/** plim_redact_json() - removed.json, "plimsoll.removed/1". */
void plim_redact_json(const struct plim_redactor *r, struct plim_jsonw *w);

/* ---- between redact.c and redact_rules.c ---- */

struct plim_span {
    size_t at; /* from the beginning of the text */
    size_t n;
    enum plim_private kind;
    const char *instead; /* static */
};

/** plim__redact_next() - the first span at or behind `from`; false when there is none. */
bool plim__redact_next(const struct plim_identity *who, struct plim_str text, size_t from,
                       struct plim_span *span);

/** plim__redact_is_secret_name() - whether a name of n letters is that of a secret: "HF_TOKEN",
 * "api-key". */
bool plim__redact_is_secret_name(const char *name, size_t n);

#endif
