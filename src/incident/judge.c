/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The diagnosis of an incident: every snapshot with the message and the facts that belong to it;
 * without a snapshot the message alone; without both, how the program ended. What is read here is
 * the cleaned material, so that the diagnosis can be made again from the finished folder.
 */

#include "incident/assembly.h"

#include "base/bytes.h"
#include "base/file.h"
#include "diagnose/facts.h"
#include "format/oomtext.h"
#include "format/snapshot_read.h"
#include "format/trace_build.h"
#include "incident/folder.h"
#include "report/diagnosis.h"
#include "report/explanation.h"

#include <signal.h>

#define MESSAGE_LINES 60u /* shown of the message, from its end */

/* The message, scanned and judged. */
struct told {
    struct plim_oom_scan scan;
    struct plim_message message;
    bool any; /* it tells of a failure */
};

static void told_fini(struct told *t)
{
    plim_message_fini(&t->message);
    plim_oom_scan_fini(&t->scan);
}

/* What is being written, and the message that belongs to it. */
struct pages {
    struct told told;
    struct plim_buf md, json;
    enum plim_class cls; /* of the file that was judged last */
    enum plim_subclass subclass;
};

static enum plim_status told_from(struct plim_str text, struct told *t, struct plim_err *err)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, text);
    enum plim_status st = plim_oom_scan(&source, &t->scan, err);
    if (st == PLIM_E_DATA) { /* no text at all */
        return PLIM_OK;
    }
    st = st == PLIM_OK ? plim_message_judge(&t->scan, &t->message, err) : st;
    t->any = st == PLIM_OK && t->message.primary != SIZE_MAX;
    return st;
}

/* ---- the head of diagnosis.md ---- */

static void duration(struct plim_buf *out, uint64_t ns)
{
    uint64_t s = ns / UINT64_C(1000000000);
    if (s >= 86400) {
        plim_buf_printf(out, "%llu d ", (unsigned long long)(s / 86400));
    }
    if (s >= 3600) {
        plim_buf_printf(out, "%llu h ", (unsigned long long)(s / 3600 % 24));
    }
    if (s >= 60) {
        plim_buf_printf(out, "%llu min ", (unsigned long long)(s / 60 % 60));
    }
    plim_buf_printf(out, "%llu s", (unsigned long long)(s % 60));
}

static void fact(struct plim_buf *out, const char *label, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        plim_buf_printf(out, "- %s: ", label);
        plim_markdown_escape(out, value);
        plim_buf_char(out, '\n');
    }
}

static void pairs(struct plim_assembly *a, struct plim_buf *out, const char *label,
                  const struct plim_pairs *list)
{
    for (size_t i = 0; i < list->n; i++) {
        plim_buf_printf(out, i == 0 ? "- %s: " : ", ", label);
        plim_markdown_escape(out, plim_redact_z(&a->redactor, "diagnosis.md", list->items[i].name));
        plim_buf_char(out, ' ');
        plim_markdown_escape(out,
                             plim_redact_z(&a->redactor, "diagnosis.md", list->items[i].value));
    }
    plim_buf_text(out, list->n > 0 ? "\n" : "");
}

static void ending(struct plim_assembly *a, struct plim_buf *out)
{
    const struct plim_facts_file *o = &a->pieces.owner;
    if (o->signal > 0) {
        plim_buf_printf(out, "- ended by signal %d (%s)\n", o->signal,
                        strsignal(o->signal)); // NOLINT(concurrency-mt-unsafe)
    } else if (o->exit_status >= 0) {
        plim_buf_printf(out, "- ended with status %d\n", o->exit_status);
    }
}

static enum plim_status head(struct plim_assembly *a, struct plim_buf *out, struct plim_err *err)
{
    static const char *const titles[] = {
#define PLIM__X(name, text, meaning) meaning,
        PLIM_INCIDENT_KIND_MAP(PLIM__X)
#undef PLIM__X
    };
    const struct plim_facts_file *o = &a->pieces.owner;
    plim_buf_printf(out, "# Incident: %s\n\n", titles[o->kind]);
    fact(out, "when", plim__time_text(a->arena, o->time_ns));
    uint64_t uptime = plim__uptime_ns(a);
    if (uptime > 0) {
        plim_buf_text(out, "- after ");
        duration(out, uptime);
        plim_buf_char(out, '\n');
    }
    if (o->argv != NULL) {
        const char **kept;
        size_t n;
        PLIM_TRY(plim_redact_argv(&a->redactor, "diagnosis.md", o->argv, &kept, &n, err));
        plim_buf_text(out, "- command: `");
        for (size_t i = 0; i < n; i++) {
            plim_buf_printf(out, "%s%s", i > 0 ? " " : "", kept[i]);
        }
        plim_buf_text(out, "`\n");
    }
    ending(a, out);
    if (a->pieces.drops.n > 0) {
        const struct plim_facts_file *d = &a->pieces.drops.items[0];
        if (d->rank >= 0) {
            plim_buf_printf(out, "- rank %lld", (long long)d->rank);
            if (d->world_size > 0) {
                plim_buf_printf(out, " of %lld", (long long)d->world_size);
            }
            plim_buf_char(out, '\n');
        }
        pairs(a, out, "request", &d->tags);
        pairs(a, out, "versions", &d->versions);
        fact(out, "allocator settings", plim_redact_z(&a->redactor, "diagnosis.md", d->alloc_conf));
    }
    plim_buf_char(out, '\n');
    return PLIM_OK;
}

/* ---- the tail of it ---- */

static void add_environment(struct plim_assembly *a, struct plim_buf *out)
{
    const struct plim_pairs *env = &a->pieces.owner.environment;
    if (env->n == 0) {
        return;
    }
    plim_buf_text(out, "\n### Environment\n\n| variable | value |\n| --- | --- |\n");
    for (size_t i = 0; i < env->n; i++) {
        plim_buf_printf(out, "| `%s` | ", env->items[i].name);
        plim_markdown_escape(out, plim_redact_z(&a->redactor, "diagnosis.md", env->items[i].value));
        plim_buf_text(out, " |\n");
    }
}

/* The last lines, in a fence that they cannot close. */
static void add_message(struct plim_assembly *a, struct plim_buf *out)
{
    struct plim_str text = plim_str_trim(plim_buf_str(&a->message));
    size_t lines = 0, at = text.n;
    while (at > 0 && lines < MESSAGE_LINES) {
        at--;
        lines += text.p[at] == '\n';
    }
    if (text.n == 0) {
        return;
    }
    text = plim_str_skip(text, at > 0 ? at + 1 : 0);
    plim_buf_text(out, "\n### Message\n\n~~~~~~~~text\n");
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        plim_buf_char(out,
                      ((unsigned char)c < 0x20 && c != '\n' && c != '\t') || c == '~' ? ' ' : c);
    }
    plim_buf_text(out, "\n~~~~~~~~\n");
}

static void add_notes(struct plim_assembly *a, struct plim_buf *out)
{
    plim_buf_text(out, a->notes.n > 0 ? "\n### Notes\n\n" : "");
    plim_vec_foreach (note, &a->notes) {
        plim_buf_text(out, "- ");
        plim_markdown_escape(out, *note);
        plim_buf_char(out, '\n');
    }
    plim_buf_text(out, a->redactor.off
                           ? "\nNothing was removed from this bundle: look through it before you "
                             "give it away.\n"
                           : "\nPrivate things were removed from this bundle; `removed.json` "
                             "lists what.\n");
}

/* ---- verdicts ---- */

static void take_verdict(struct plim_assembly *a, const struct plim_verdict *v)
{
    a->verdict = *v;
    a->verdict.summary = plim_arena_sayf(a->arena, "%s", v->summary != NULL ? v->summary : "");
}

/* What was seen from outside just before: memory of other processes. Only where it is plain which
 * device it was: the program may count its devices in another order. */
static void add_seen(const struct plim_assembly *a, struct plim_facts *facts)
{
    const struct plim_sample *last = plim__last_sample(&a->seconds);
    if (last == NULL || last->devices.n != 1 || plim_known(facts->others)) {
        return;
    }
    struct plim_holders h = plim__holders(a, last, 0);
    if (h.known && h.ours > 0) { /* else the list does not show the program itself */
        facts->others = plim_amount(h.others, PLIM_HOW_MEASURED);
    }
}

/* A snapshot, with what the recording knows of the outside: NCCL, contexts and so on. */
static enum plim_status read_snapshot(const struct plim_assembly *a, const char *path,
                                      struct plim_snapshot *out, struct plim_err *err)
{
    struct plim_source trace;
    PLIM_TRY(plim_snapshot_read_file(path, NULL, out, err));
    if (a->trace != NULL && path != a->trace &&
        plim_source_open(a->trace, &trace, NULL) == PLIM_OK) {
        /* A recording that says nothing of this process takes nothing from the snapshot. */
        (void)!plim_trace_read_beside(&trace, NULL, out, NULL);
        plim_source_close(&trace);
    }
    return PLIM_OK;
}

/* Judge a snapshot or a recording. @facts: what is known besides. A reason why it says nothing goes
 * to *why. The first one that is judged gives the verdict and diagnosis.json. */
static enum plim_status judge_file(struct plim_assembly *a, const char *path,
                                   struct plim_facts facts, const char *title, struct pages *pages,
                                   struct plim_err *why)
{
    struct plim_diagnose_options options = {.device = PLIM_NO_ID, .facts = facts};
    const struct told *told = &pages->told;
    struct plim_snapshot snapshot;
    struct plim_diagnosis diagnosis;
    if (told->any) {
        PLIM_TRY(plim_facts_add_message(&options.facts, &told->scan, &told->message, why));
    }
    add_seen(a, &options.facts);
    PLIM_TRY(read_snapshot(a, path, &snapshot, why));
    enum plim_status st = plim_diagnose(&snapshot, &options, &diagnosis, why);
    if (st == PLIM_OK) {
        plim_buf_text(&pages->md, title);
        plim_markdown_diagnosis(&pages->md, &snapshot, &diagnosis);
        plim_buf_char(&pages->md, '\n');
        pages->cls = diagnosis.set.verdict.cls;
        pages->subclass = diagnosis.set.verdict.subclass;
        if (pages->json.n == 0) {
            struct plim_jsonw w;
            plim_jsonw_init(&w, &pages->json, false);
            plim_json_diagnosis(&w, &snapshot, &diagnosis);
            take_verdict(a, &diagnosis.set.verdict);
        }
        plim_diagnosis_fini(&diagnosis);
    }
    plim_snapshot_fini(&snapshot);
    return st;
}

static enum plim_status judge_snapshot(struct plim_assembly *a, struct plim_kept *kept,
                                       struct pages *pages, struct plim_err *err)
{
    const struct plim_facts_file *drop = &a->pieces.drops.items[kept->drop];
    struct plim_facts facts = {.total = drop->device_total, .free = drop->device_free};
    struct plim_err why = {0};
    const char *title = "";
    if (a->kept.n > 1) {
        title = drop->rank >= 0 ? plim_arena_sayf(a->arena, "## Process %d, rank %lld\n\n",
                                                  drop->pid, (long long)drop->rank)
                                : plim_arena_sayf(a->arena, "## Process %d\n\n", drop->pid);
    }
    if (judge_file(a, kept->judged_path, facts, title, pages, &why) != PLIM_OK) {
        return plim__assembly_note(a, err, "the snapshot of process %d says nothing: %s", drop->pid,
                                   why.message);
    }
    kept->judged = true;
    kept->cls = pages->cls;
    kept->subclass = pages->subclass;
    return PLIM_OK;
}

/* The recording stands for a snapshot when there is none; it sees only what goes through the
 * driver. */
static enum plim_status judge_trace(struct plim_assembly *a, struct pages *pages,
                                    struct plim_err *err)
{
    struct plim_err why = {0};
    if (judge_file(a, a->trace, (struct plim_facts){0}, "", pages, &why) != PLIM_OK) {
        return plim__assembly_note(a, err, "the recording says nothing: %s", why.message);
    }
    return PLIM_OK;
}

/* Neither a snapshot nor words about memory: what the ending tells. */
static void judge_ending(struct plim_assembly *a, struct plim_buf *md)
{
    const struct plim_facts_file *o = &a->pieces.owner;
    struct plim_finding_set set = {0};
    struct plim_verdict v = {.cls = PLIM_CLASS_UNKNOWN, .subclass = PLIM_SUBCLASS_NONE};
    if (o->signal == SIGKILL) {
        v.summary = "The program was killed from outside. The kernel does that when host memory "
                    "runs out (see dmesg and the memory.events of its cgroup); so does a manager "
                    "that stops it. Nothing here says which.";
    } else if (o->signal > 0) {
        v.cls = PLIM_CLASS_NOT_OOM;
        v.subclass = PLIM_SUBCLASS_OTHER_ERROR;
        v.confidence = 0.6;
        v.summary =
            plim_arena_sayf(a->arena,
                            "The program was ended by signal %d (%s), and nothing it said "
                            "is about memory.",
                            o->signal, strsignal(o->signal)); // NOLINT(concurrency-mt-unsafe)
    } else if (o->exit_status > 0) {
        v.cls = PLIM_CLASS_NOT_OOM;
        v.subclass = PLIM_SUBCLASS_OTHER_ERROR;
        v.confidence = 0.6;
        v.summary = plim_arena_sayf(a->arena,
                                    "The program ended with status %d, and nothing it said is "
                                    "about memory.",
                                    o->exit_status);
    } else {
        v.summary = "There is neither a snapshot nor a message to judge.";
    }
    set.verdict = v;
    plim_markdown_finding(md, "GPU memory diagnosis", &set);
    take_verdict(a, &v);
}

static void judge_message(struct plim_assembly *a, struct pages *pages)
{
    const struct told *told = &pages->told;
    struct plim_jsonw w;
    plim_markdown_explanation(&pages->md, &told->scan, &told->message);
    plim_jsonw_init(&w, &pages->json, false);
    plim_json_explanation(&w, &told->scan, &told->message);
    take_verdict(a, &told->message.verdict);
}

/* ---- the whole ---- */

/* Whatever was made goes through the rules once more before it is written. */
static enum plim_status write_clean(struct plim_assembly *a, const char *name,
                                    const struct plim_buf *text, struct plim_err *err)
{
    struct plim_buf out = {0};
    enum plim_status st = plim_buf_status(text, err);
    if (st == PLIM_OK) {
        plim_redact_text(&a->redactor, name, plim_buf_str(text), &out);
        st = plim_buf_status(&out, err);
    }
    st = st == PLIM_OK ? plim_arena_status(a->arena, err) : st;
    st = st == PLIM_OK ? plim_file_replace(plim__part_path(a, name), plim_buf_str(&out), err) : st;
    plim_buf_fini(&out);
    return st;
}

static enum plim_status judge(struct plim_assembly *a, struct pages *pages, struct plim_err *err)
{
    struct plim_buf *md = &pages->md, *json = &pages->json;
    PLIM_TRY(head(a, md, err));
    for (size_t i = 0; i < a->kept.n; i++) {
        PLIM_TRY(judge_snapshot(a, &a->kept.items[i], pages, err));
    }
    if (json->n == 0 && a->trace != NULL && a->pieces.owner.kind == PLIM_INCIDENT_OOM) {
        PLIM_TRY(judge_trace(a, pages, err));
    }
    if (json->n == 0 && pages->told.any) {
        judge_message(a, pages);
    } else if (json->n == 0) {
        judge_ending(a, md);
    }
    plim__last_seconds_markdown(a, md, &a->seconds);
    add_message(a, md);
    add_environment(a, md);
    add_notes(a, md);
    a->verdict.summary = plim_redact_z(&a->redactor, "incident.json", a->verdict.summary);
    PLIM_TRY(write_clean(a, "diagnosis.md", md, err));
    return json->n > 0 ? write_clean(a, "diagnosis.json", json, err) : PLIM_OK;
}

enum plim_status plim__judge_incident(struct plim_assembly *a, struct plim_err *err)
{
    struct pages pages = {0};
    enum plim_status st = told_from(plim_buf_str(&a->message), &pages.told, err);
    st = st == PLIM_OK ? judge(a, &pages, err) : st;
    plim_buf_fini(&pages.md);
    plim_buf_fini(&pages.json);
    told_fini(&pages.told);
    return st;
}

uint64_t plim__uptime_ns(const struct plim_assembly *a)
{
    const struct plim_facts_file *f = &a->pieces.owner;
    if (f->started_ns == 0 && a->pieces.drops.n > 0) {
        f = &a->pieces.drops.items[0];
    }
    return f->started_ns != 0 && f->time_ns > f->started_ns ? f->time_ns - f->started_ns : 0;
}
