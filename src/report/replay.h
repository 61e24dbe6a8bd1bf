/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_REPLAY_H
#define PLIM_REPORT_REPLAY_H

/*
 * A replay as text, Markdown and JSON ("plimsoll.replay/1", described by docs/schema/replay.json).
 * Strings of the snapshot may be hostile: they are escaped or cleaned as in text.h and markdown.h.
 * Threads: pure but for the buffer.
 */

#include "base/arena.h"
#include "base/jsonw.h"
#include "replay/replay.h"
#include "replay/seating.h"
#include "replay/selfcheck.h"
#include "report/text.h"

/* One replay with what it was run on. */
struct plim_replay_view {
    const struct plim_requests *requests;
    const struct plim_replay_setup *setup;
    const struct plim_replay_result *result;
    const char *conf;                         /* the settings as a text */
    const char *capacity_by;                  /* "given", "computed", "estimated" or "unknown" */
    const struct plim_seating_facts *seating; /* that was made for it; NULL: none was */
    /* Whether a replay of the recorded failure, under its own settings and with the room that there was,
     * fails there too; NULL: nothing failed, or it was not tried. */
    const bool *reproduced;
};

void plim_text_replay(struct plim_buf *out, const struct plim_replay_view *view,
                      struct plim_arena *arena, const struct plim_text_style *style);
void plim_markdown_replay(struct plim_buf *out, const struct plim_replay_view *view,
                          struct plim_arena *arena);
void plim_json_replay(struct plim_jsonw *w, const struct plim_replay_view *view,
                      struct plim_arena *arena);

/** plim_moving_name() - what Plimsoll's allocator is called in text: with its mode when that is not stitch. Static. */
const char *plim_moving_name(const struct plim_moving_options *moving);

/** plim_json_allocator() - the key `allocator`, and `mode` of Plimsoll's own. @moving: NULL is PyTorch's. */
void plim_json_allocator(struct plim_jsonw *w, const struct plim_moving_options *moving);

/** plim_json_replay_run() - the keys of a run, into the object that is open; the `runs` of tune too. */
void plim_json_replay_run(struct plim_jsonw *w, const struct plim_requests *requests,
                          const struct plim_replay_setup *setup,
                          const struct plim_replay_result *result, const char *conf);

/** plim_json_doubts()/plim_text_doubts() - what was guessed or left out; text: nothing when nothing. */
void plim_json_doubts(struct plim_jsonw *w, const struct plim_requests *requests);
void plim_text_doubts(struct plim_buf *out, const struct plim_requests *requests,
                      const struct plim_text_style *style);

/** plim_doubt_list() - sentences about what is uncertain; arena-owned; *n of them. */
const char *const *plim_doubt_list(const struct plim_requests *requests, struct plim_arena *arena,
                                   size_t *n);

/**
 * plim_text_stranded_line() - stranded bytes over time in one line of `columns` characters.
 * @most: bytes that the highest bar stands for.
 */
void plim_text_stranded_line(struct plim_buf *out, const struct plim_replay_result *result,
                             uint64_t most, unsigned columns, bool unicode);

/* A self-check ("plimsoll.selfcheck/1"). */
void plim_text_selfcheck(struct plim_buf *out, const struct plim_selfcheck *check,
                         const struct plim_text_style *style);
void plim_json_selfcheck(struct plim_jsonw *w, const struct plim_selfcheck *check);

#endif
