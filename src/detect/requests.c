/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a process was working on when something went wrong, and whether the largest request that it is known to make
 * would find room now.
 *
 *   shape   what the process says of its request by plimsoll.note(shape=...), as words: "batch 8, prompt 4096"
 *   asked   the bytes that a life of the program was refused last, by its log or its allocator: it will ask again
 *   room    what a request gets for certain: free on the device, and segments that the allocator can give back.
 *           Beyond it there are only stranded pieces, of which nobody knows the largest
 *
 * Notes are looked at once a step; one that came and went between two steps counts for the step after. So shapes
 * are a statistic: they are told of several retries, or of a single failure as what is likely.
 */

#include "base/bytes.h"
#include "base/intern.h"
#include "detect/detect_int.h"

#include <jansson.h>
#include <stdio.h>

#define ASKED_NS (7 * PLIM_DAY) /* how long it is remembered what was asked for */
#define AFTER_NS                                                                                   \
    (10 * PLIM_MINUTE) /* after a failure of its own the failure is told, not what comes next */
#define CLEAR   1.1    /* times what was asked for: so much room ends the finding */
#define TALLIED 3u     /* retries that a shape must have seen to be told of */

/* ---- shapes ---- */

static void put_value(char *text, size_t room, const json_t *value)
{
    size_t n = strlen(text);
    if (json_is_string(value)) {
        (void)snprintf(text + n, room - n, "%s", json_string_value(value));
    } else {
        char *plain = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        (void)snprintf(text + n, room - n, "%s", plain != NULL ? plain : "");
        free(plain);
    }
}

/* The shape that a note tells, as words; "" none. */
static void shape_of(const char *note, char out[PLIM_SHAPE])
{
    json_t *root = json_loads(note, 0, NULL);
    json_t *shape = json_object_get(root, "shape"), *value;
    const char *key;
    out[0] = '\0';
    if (json_is_object(shape)) {
        json_object_foreach(shape, key, value)
        {
            size_t n = strlen(out);
            (void)snprintf(out + n, PLIM_SHAPE - n, "%s%s ", n > 0 ? ", " : "", key);
            put_value(out, PLIM_SHAPE, value);
        }
    } else if (shape != NULL && !json_is_null(shape)) {
        put_value(out, PLIM_SHAPE, shape);
    }
    json_decref(root);
    for (char *p = out; *p != '\0'; p++) {
        *p = (unsigned char)*p < ' ' || (unsigned char)*p > '~' ? '?' : *p;
    }
}

void plim__take_notes(struct plim_detector *d, const struct plim_observation *o)
{
    plim_vec_foreach (t, &d->subjects) {
        struct plim_shapes *s = &t->shapes;
        if (t->subject.pid == 0) {
            continue;
        }
        bool noted = false;
        plim_vec_foreach (note, &o->notes) {
            if (note->pid == t->subject.pid && note->start_ticks == t->subject.start_ticks) {
                uint64_t id = plim_hash_bytes(note->text, strlen(note->text));
                if (id != s->note || s->now[0] == '\0') {
                    shape_of(note->text, s->now);
                }
                s->note = id;
                noted = true;
            }
        }
        /* What held in the step before may have ended by the failure that this step tells of. */
        if (!noted && !s->held) {
            s->now[0] = '\0';
        }
        s->held = noted;
    }
}

void plim__tally_shape(struct plim_tracked *t, uint64_t times)
{
    struct plim_shapes *s = &t->shapes;
    unsigned least = 0;
    for (unsigned i = 0; i < PLIM_SHAPES; i++) {
        least = s->count[i] < s->count[least] ? i : least;
    }
    s->all = plim_add_sat(s->all, times);
    if (s->now[0] == '\0') {
        return;
    }
    for (unsigned i = 0; i < PLIM_SHAPES; i++) {
        if (strcmp(s->seen[i], s->now) == 0) {
            s->count[i] = plim_add_sat(s->count[i], times);
            return;
        }
    }
    /* The rarest gives way. */
    memcpy(s->seen[least], s->now, sizeof(s->now));
    s->count[least] = times;
}

void plim__say_shapes(const struct plim_tracked *t, struct plim_claim *c)
{
    const struct plim_shapes *s = &t->shapes;
    unsigned most = 0;
    for (unsigned i = 0; i < PLIM_SHAPES; i++) {
        most = s->count[i] > s->count[most] ? i : most;
    }
    if (s->count[most] >= TALLIED && 2 * s->count[most] >= s->all) {
        plim__finding_say(
            c->evidence, sizeof(c->evidence), "%llu of %llu retries came while it worked on: %s.",
            (unsigned long long)s->count[most], (unsigned long long)s->all, s->seen[most]);
    }
}

/* ---- the largest request that is known ---- */

static const struct plim_lineage *asker(const struct plim_detector *d, const struct plim_tracked *t)
{
    for (unsigned i = 0; i < PLIM_LINEAGES; i++) {
        const struct plim_lineage *l = &d->lineages[i];
        if (l->asked != 0 && t->subject.process[0] != '\0' &&
            strcmp(l->name, t->subject.process) == 0 && d->now_ns - l->newest_ns < ASKED_NS) {
            return l;
        }
    }
    return NULL;
}

enum plim_tight plim__tight(const struct plim_detector *d, const struct plim_tracked *t,
                            struct plim_claim *c)
{
    const struct plim_tracked *on = plim__device_of(d, t->subject.device);
    const struct plim_lineage *l = asker(d, t);
    const struct plim_holding *h = &t->now;
    if (l == NULL || on == NULL || !on->books_valid || !h->live_valid || !h->stranded_valid ||
        (t->oom_ns != 0 && d->now_ns - t->oom_ns < AFTER_NS)) {
        return PLIM_TIGHT_NOT;
    }
    uint64_t releasable = plim_sub_sat(plim_sub_sat(h->reserved, h->live), h->stranded);
    uint64_t room = plim_add_sat(on->free, releasable);
    char asked[PLIM_BYTES_TEXT], has[PLIM_BYTES_TEXT], pieces[PLIM_BYTES_TEXT];
    const char *name = t->subject.process;
    if (room >= l->asked) {
        return (double)room < CLEAR * (double)l->asked ? PLIM_TIGHT_NEARLY : PLIM_TIGHT_NOT;
    }
    bool pieced = l->asked <= plim_add_sat(room, h->stranded);
    c->state = PLIM_CLAIM_HOLDS;
    c->severity = PLIM_SEVERITY_WARNING;
    c->confidence = 0.7; /* whether it asks for so much again, nobody knows */
    c->bytes = l->asked;
    (void)snprintf(c->summary, sizeof(c->summary),
                   "%s (pid %u) on device %u: a request of %s, as one was refused, would find no "
                   "room now: %s.",
                   name, t->subject.pid, t->subject.device, plim_bytes_format(asked, l->asked),
                   pieced ? "only stranded pieces" : "less is left");
    plim__finding_say(c->evidence, sizeof(c->evidence),
                      "%s are free or can be given back; %s are stranded in pieces.",
                      plim_bytes_format(has, room), plim_bytes_format(pieces, h->stranded));
    if (l->shape[0] != '\0') {
        plim__finding_say(c->evidence, sizeof(c->evidence), "It was then working on: %s.",
                          l->shape);
    }
    (void)snprintf(c->next_step, sizeof(c->next_step),
                   pieced ? "kill -USR2 %u writes a snapshot; plimsoll tune says which allocator "
                            "setting helps."
                          : "Admit less at a time (plimsoll gate), or free memory before pid %u "
                            "asks again.",
                   t->subject.pid);
    return pieced ? PLIM_TIGHT_PIECES : PLIM_TIGHT_LESS;
}

enum plim_status plim__rule_requests(struct plim_detector *d, struct plim_tracked *t,
                                     struct plim_err *err)
{
    struct plim_claim c = {.state = PLIM_CLAIM_CLEAR};
    enum plim_tight tight = plim__tight(d, t, &c);
    if (tight == PLIM_TIGHT_NEARLY) {
        c.state = PLIM_CLAIM_UNSURE;
    } else if (tight != PLIM_TIGHT_LESS) {
        c = (struct plim_claim){.state = PLIM_CLAIM_CLEAR};
    }
    if (c.state == PLIM_CLAIM_CLEAR && t->standing[PLIM_FINDING_CAPACITY].id != 0) {
        plim__finding_say(c.evidence, sizeof(c.evidence),
                          tight == PLIM_TIGHT_PIECES ? "There is room again, in pieces."
                                                     : "There is room for it again.");
    }
    return plim__claim(d, t, PLIM_FINDING_CAPACITY, &c, err);
}
