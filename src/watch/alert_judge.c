/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How alerts move on: each step looks which rules hold for which subjects, and every alert then goes
 *
 *     (none) -> pending -> firing -> resolved -> (forgotten after an hour, when everybody was told)
 *                  \-> (none)   \<- comes back: the next episode, after pending again
 *
 * and what each receiver has to be told of it, and when. Pure: times are the caller's.
 */

#include "base/bytes.h"
#include "base/clock.h"
#include "base/num.h"
#include "base/scalar.h"
#include "watch/alert_int.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MINUTE (60 * PLIM_SECOND_NS)
#define HOUR   (60 * MINUTE)

#define FLAP_NS       HOUR         /* back within this time of its end: it flaps */
#define FLAP_CLEAR_NS (2 * HOUR)   /* longest that a flapping alert must be right */
#define GRACE_NS      (5 * MINUTE) /* after a restart, in which findings may have to be made again */
#define AM_REFRESH_NS MINUTE       /* Alertmanager forgets what is not sent again */
#define PASTS_MAX     4096u

/* One step of judging. */
struct judge {
    struct plim_alert_list *list;
    const struct plim_alert_book *book;
    const struct plim_alert_rule *rule; /* now looked at */
    const struct plim_observation *now;
    uint64_t now_ns; /* since 1970 */
    bool changed;
};

const char *plim_alert_state_text(enum plim_alert_state state)
{
    static const char *const texts[] = {
#define X(name, text) text,
        PLIM_ALERT_STATE_MAP(X)
#undef X
    };
    return texts[state];
}

void plim__alert_list_fini(struct plim_alert_list *list)
{
    plim_vec_foreach (alert, &list->alerts) {
        free(*alert);
    }
    plim_vec_fini(&list->alerts);
    plim_vec_fini(&list->pasts);
}

static bool matches(const char *pattern, const char *text)
{
    return pattern[0] == '\0' || fnmatch(pattern, text, 0) == 0;
}

/* ---- subjects ---- */

static uint64_t fingerprint(const struct plim_alert_rule *rule, const char *class,
                            const struct plim_subject *subject, const char *engine)
{
    char process[48];
    snprintf(process, sizeof(process), "%u/%llu", subject->pid,
             (unsigned long long)subject->start_ticks);
    uint64_t h = plim__alert_hash(0, rule->name);
    h = plim__alert_hash(h, class);
    h = plim__alert_hash(h, subject->device_uuid);
    h = plim__alert_hash(h, process);
    return plim__alert_hash(h, engine);
}

static bool is_meant(const struct judge *j, const struct plim_subject *subject)
{
    const struct plim_sample *sample = &j->now->sample;
    const char *pci =
        subject->device < sample->devices.n ? sample->devices.items[subject->device].pci : "";
    return matches(j->rule->process, subject->process) &&
           (matches(j->rule->device, subject->device_uuid) || matches(j->rule->device, pci));
}

static struct plim_alert *find(const struct plim_alert_list *list, uint64_t fingerprint)
{
    plim_vec_foreach (alert, &list->alerts) {
        if ((*alert)->fingerprint == fingerprint) {
            return *alert;
        }
    }
    return NULL;
}

static struct plim_alert *add(struct judge *j, uint64_t print)
{
    struct plim_alert *alert = NULL;
    if (j->list->alerts.n < PLIM_ALERTS_MAX) {
        alert = calloc(1, sizeof(*alert));
    }
    if (alert == NULL || plim_vec_push(&j->list->alerts, NULL, alert) != PLIM_OK) {
        free(alert);
        j->list->lost++;
        return NULL;
    }
    alert->fingerprint = print;
    alert->state = PLIM_ALERT_PENDING;
    alert->age_mono = alert->held_mono = j->now->mono_ns;
    alert->began_ns = j->now_ns;
    return alert;
}

/* The alert of this rule for a subject for which it holds; NULL: no room for it. */
static struct plim_alert *hold(struct judge *j, const char *class,
                               const struct plim_subject *subject, const char *engine)
{
    const struct plim_sample *sample = &j->now->sample;
    uint64_t print = fingerprint(j->rule, class, subject, engine);
    struct plim_alert *alert = find(j->list, print);
    if (alert == NULL) {
        alert = add(j, print);
    }
    if (alert == NULL) {
        return NULL;
    }
    alert->seen = true;
    alert->subject = *subject;
    snprintf(alert->rule, sizeof(alert->rule), "%s", j->rule->name);
    snprintf(alert->class, sizeof(alert->class), "%s", class);
    snprintf(alert->engine, sizeof(alert->engine), "%s", engine);
    snprintf(alert->runbook, sizeof(alert->runbook), "%s", j->rule->runbook);
    if (subject->device < sample->devices.n) {
        const struct plim_device_sample *d = &sample->devices.items[subject->device];
        memcpy(alert->device_name, d->name, sizeof(alert->device_name));
        memcpy(alert->pci, d->pci, sizeof(alert->pci));
    }
    return alert;
}

/* ---- rules over findings ---- */

static bool finding_holds(const struct judge *j, const struct plim_finding *f)
{
    const struct plim_alert_rule *r = j->rule;
    return f->active && (r->classes >> f->class & 1) != 0 && f->severity >= r->min_severity &&
           f->confidence >= r->min_confidence &&
           (r->left_below <= 0 ||
            (f->seconds_left.valid && f->seconds_left.value < r->left_below)) &&
           is_meant(j, &f->subject);
}

static void judge_finding(struct judge *j, const struct plim_finding *f)
{
    struct plim_alert *alert =
        finding_holds(j, f) ? hold(j, plim_finding_class_text(f->class), &f->subject, "") : NULL;
    if (alert == NULL) {
        return;
    }
    alert->severity = j->rule->severity < 0 ? f->severity : (enum plim_severity)j->rule->severity;
    alert->confidence = f->confidence;
    alert->bytes = f->bytes;
    alert->slope = f->slope;
    alert->seconds_left = f->seconds_left;
    memcpy(alert->summary, f->summary, sizeof(alert->summary));
    memcpy(alert->evidence, f->evidence, sizeof(alert->evidence));
    snprintf(alert->next_step, sizeof(alert->next_step), "%s",
             j->rule->next_step[0] ? j->rule->next_step : f->next_step);
}

/* ---- rules over figures ---- */

static struct plim_past *past_of(struct judge *j, uint64_t print)
{
    plim_vec_foreach (past, &j->list->pasts) {
        if (past->fingerprint == print) {
            return past;
        }
    }
    struct plim_past fresh = {.fingerprint = print};
    if (j->list->pasts.n >= PASTS_MAX || plim_vec_push(&j->list->pasts, NULL, fresh) != PLIM_OK) {
        j->list->lost++;
        return NULL;
    }
    return &j->list->pasts.items[j->list->pasts.n - 1];
}

/* How much the figure grew over the rule's time, or since it is known if that is shorter. A counter that went
 * back was started anew, and grew by what it has now. */
static bool growth(struct judge *j, const struct plim_reading *reading, double *out)
{
    struct plim_past *p =
        past_of(j, fingerprint(j->rule, "figure", &reading->subject, reading->engine));
    uint64_t mono = j->now->mono_ns;
    if (p == NULL) {
        return false;
    }
    p->seen_mono = mono;
    if (p->n > 0 && reading->value < p->value[p->n - 1]) {
        p->n = 1;
        p->mono[0] = mono;
        p->value[0] = 0;
    }
    if (p->n == 0 || mono - p->mono[p->n - 1] >= j->rule->over_ns / (PLIM_PAST_POINTS - 2)) {
        unsigned drop = p->n == PLIM_PAST_POINTS;
        memmove(p->mono, p->mono + drop, (p->n - drop) * sizeof(p->mono[0]));
        memmove(p->value, p->value + drop, (p->n - drop) * sizeof(p->value[0]));
        p->n -= drop;
        p->mono[p->n] = mono;
        p->value[p->n++] = reading->value;
    }
    unsigned first = 0;
    while (first + 1 < p->n && mono - p->mono[first] > j->rule->over_ns) {
        first++;
    }
    *out = reading->value - p->value[first];
    return true;
}

static bool is_bytes(const char *figure)
{
    size_t n = strlen(figure);
    return n > 6 && strcmp(figure + n - 6, "_bytes") == 0;
}

static const char *figure_text(const char *figure, double value, char text[PLIM_BYTES_TEXT])
{
    if ((is_bytes(figure) || strcmp(figure, "process.bytes") == 0) && value >= 0 && value < 1e19) {
        return plim_bytes_format(text, (uint64_t)value);
    }
    snprintf(text, PLIM_BYTES_TEXT, "%.6g", value);
    return text;
}

static void describe_figure(const struct plim_alert_rule *rule, struct plim_alert *alert)
{
    char value[PLIM_BYTES_TEXT];
    char limit[PLIM_BYTES_TEXT];
    char clear[PLIM_BYTES_TEXT];
    char over[PLIM_DURATION_TEXT];
    char time[PLIM_DURATION_TEXT + 24] = "";
    if (rule->over_ns != 0) {
        snprintf(time, sizeof(time), " over the last %s",
                 plim_duration_format(over, (double)rule->over_ns / 1e9));
    }
    snprintf(alert->figure, sizeof(alert->figure), "%s", rule->figure_text);
    snprintf(alert->summary, sizeof(alert->summary), "%s%s%s %s %s%s, %s the limit of %s",
             alert->engine[0] ? alert->engine : alert->subject.process,
             alert->engine[0] || alert->subject.process[0] ? ": " : "", rule->figure_text,
             rule->over_ns ? "grew by" : "is", figure_text(rule->figure_text, alert->value, value),
             time, rule->above ? "above" : "below",
             figure_text(rule->figure_text, rule->threshold, limit));
    snprintf(alert->evidence, sizeof(alert->evidence), "%s = %s%s\nlimit %s, right again at %s",
             rule->figure_text, value, time, limit,
             figure_text(rule->figure_text, rule->clear, clear));
    snprintf(alert->next_step, sizeof(alert->next_step), "%s",
             rule->next_step[0] ? rule->next_step
                                : "Look at this subject on the dashboard, or with plimsoll top.");
}

static void judge_reading(struct judge *j, const struct plim_reading *reading)
{
    const struct plim_alert_rule *r = j->rule;
    double value = reading->value;
    if (!reading->known || !is_meant(j, &reading->subject) ||
        (r->over_ns != 0 && !growth(j, reading, &value))) {
        return;
    }
    const struct plim_alert *before =
        find(j->list, fingerprint(r, "figure", &reading->subject, reading->engine));
    double limit = before != NULL && before->state == PLIM_ALERT_FIRING ? r->clear : r->threshold;
    if (r->above ? !(value > limit) : !(value < limit)) {
        return;
    }
    struct plim_alert *alert = hold(j, "figure", &reading->subject, reading->engine);
    if (alert != NULL) {
        alert->severity = r->severity < 0 ? PLIM_SEVERITY_WARNING : (enum plim_severity)r->severity;
        alert->value = value;
        alert->threshold = r->threshold;
        describe_figure(r, alert);
    }
}

static void judge_figure(struct judge *j)
{
    struct plim_reading reading;
    for (size_t i = 0; plim__figure_at(j->now, j->rule->figure, i, &reading); i++) {
        judge_reading(j, &reading);
    }
}

/* ---- moving on ---- */

static const struct plim_alert_rule *rule_of(const struct plim_alert_book *book, const char *name)
{
    plim_vec_foreach (rule, &book->rules) {
        if (strcmp(rule->name, name) == 0) {
            return rule;
        }
    }
    return NULL;
}

static void fire(struct judge *j, const struct plim_alert_rule *rule, struct plim_alert *alert)
{
    uint64_t now = j->now_ns;
    bool back = alert->episode > 0 && now - alert->resolved_ns < FLAP_NS;
    alert->clear_ns = back ? plim_min_u64(alert->clear_ns * 2, FLAP_CLEAR_NS) : rule->clear_for_ns;
    alert->clear_ns = plim_max_u64(alert->clear_ns, rule->clear_for_ns);
    alert->flapping = back;
    alert->state = PLIM_ALERT_FIRING;
    alert->episode++;
    alert->acknowledged = false;
    alert->fired_ns = now;
    alert->resolved_ns = 0;
    alert->right_mono = 0;
    j->changed = true;
}

static void resolve(struct judge *j, struct plim_alert *alert)
{
    alert->state = PLIM_ALERT_RESOLVED;
    alert->resolved_ns = j->now_ns;
    j->changed = true;
}

/* What holds goes forward. */
static void rise(struct judge *j, const struct plim_alert_rule *rule, struct plim_alert *alert)
{
    uint64_t mono = j->now->mono_ns;
    if (alert->state == PLIM_ALERT_RESOLVED) {
        alert->state = PLIM_ALERT_PENDING;
        alert->held_mono = mono;
        alert->began_ns = j->now_ns;
    }
    alert->right_mono = 0;
    if (alert->state == PLIM_ALERT_PENDING && mono - alert->held_mono >= rule->for_ns) {
        fire(j, rule, alert);
    }
}

/* What does not hold goes back; false: it is to be forgotten. */
static bool fall(struct judge *j, const struct plim_alert_rule *rule, struct plim_alert *alert)
{
    uint64_t mono = j->now->mono_ns;
    bool young = alert->held_mono == 0 && mono - alert->age_mono < GRACE_NS;
    if (alert->state == PLIM_ALERT_PENDING) {
        alert->state = PLIM_ALERT_RESOLVED;
        return alert->episode > 0;
    }
    if (alert->state == PLIM_ALERT_FIRING) {
        alert->right_mono = alert->right_mono != 0 ? alert->right_mono : mono;
        if (!young &&
            mono - alert->right_mono >= plim_max_u64(alert->clear_ns, rule->clear_for_ns)) {
            resolve(j, alert);
        }
        return true;
    }
    uint64_t now = j->now_ns;
    bool owed = false;
    plim_vec_foreach (receiver, &j->book->receivers) {
        owed = owed || plim__alert_due(j->list, j->book, alert, receiver, now) != UINT64_MAX;
    }
    return owed || now - alert->resolved_ns < FLAP_NS;
}

static void move_on(struct judge *j)
{
    size_t kept = 0;
    for (size_t i = 0; i < j->list->alerts.n; i++) {
        struct plim_alert *alert = j->list->alerts.items[i];
        const struct plim_alert_rule *rule = rule_of(j->book, alert->rule);
        bool keep = rule != NULL;
        if (keep && alert->seen) {
            rise(j, rule, alert);
        } else if (keep) {
            keep = fall(j, rule, alert);
        }
        alert->seen = false;
        if (keep) {
            j->list->alerts.items[kept++] = alert;
        } else {
            j->changed = j->changed || alert->episode > 0;
            free(alert);
        }
    }
    j->list->alerts.n = kept;
}

static void forget(struct judge *j)
{
    struct plim_alert_list *list = j->list;
    size_t kept = 0;
    for (size_t i = 0; i < list->pasts.n; i++) {
        if (j->now->mono_ns - list->pasts.items[i].seen_mono < HOUR) {
            list->pasts.items[kept++] = list->pasts.items[i];
        }
    }
    list->pasts.n = kept;
    kept = 0;
    for (size_t i = 0; i < list->n_silences; i++) {
        if (list->silences[i].until_ns > j->now_ns) {
            list->silences[kept++] = list->silences[i];
        }
    }
    j->changed = j->changed || kept != list->n_silences;
    list->n_silences = kept;
}

bool plim__alerts_judge(struct plim_alert_list *list, const struct plim_alert_book *book,
                        const struct plim_observation *now, uint64_t now_ns,
                        const struct plim_finding *findings, size_t n)
{
    struct judge j = {.list = list, .book = book, .now = now, .now_ns = now_ns};
    plim_vec_foreach (rule, &book->rules) {
        j.rule = rule;
        for (size_t i = 0; i < n && rule->classes != 0; i++) {
            judge_finding(&j, &findings[i]);
        }
        if (rule->classes == 0) {
            judge_figure(&j);
        }
    }
    move_on(&j);
    forget(&j);
    return j.changed;
}

/* ---- what receivers are owed ---- */

bool plim__alert_silenced(const struct plim_alert_list *list, const struct plim_alert *alert,
                          uint64_t now_ns)
{
    for (size_t i = 0; i < list->n_silences; i++) {
        const struct plim_silence *s = &list->silences[i];
        if (s->until_ns > now_ns && matches(s->rule, alert->rule) &&
            (matches(s->device, alert->subject.device_uuid) || matches(s->device, alert->pci)) &&
            matches(s->process, alert->subject.process)) {
            return true;
        }
    }
    return false;
}

const struct plim_told *plim__alert_told(const struct plim_alert *alert, uint64_t receiver)
{
    static const struct plim_told nothing;
    for (size_t i = 0; i < PLIM_RECEIVERS_MAX; i++) {
        if (alert->told[i].receiver == receiver) {
            return &alert->told[i];
        }
    }
    return &nothing;
}

void plim__alert_tell(struct plim_alert *alert, const struct plim_alert *as, uint64_t receiver,
                      uint64_t now_ns)
{
    size_t at = 0;
    while (at + 1 < PLIM_RECEIVERS_MAX && alert->told[at].receiver != receiver &&
           alert->told[at].receiver != 0) {
        at++;
    }
    alert->told[at] = (struct plim_told){receiver, as->episode, as->state, as->severity, now_ns};
}

static uint64_t due_while_firing(const struct plim_alert *alert, const struct plim_alert_rule *rule,
                                 const struct plim_receiver *receiver, const struct plim_told *told,
                                 uint64_t now_ns)
{
    bool am = receiver->kind == PLIM_RECEIVER_ALERTMANAGER;
    uint64_t repeat = alert->acknowledged ? 0 : rule->repeat_ns;
    repeat = am ? AM_REFRESH_NS : repeat;
    if (told->episode != alert->episode || told->severity < alert->severity) {
        return alert->acknowledged && !am ? UINT64_MAX : alert->fired_ns;
    }
    if (repeat == 0) {
        return UINT64_MAX;
    }
    /* A clock that was set back would let us wait for ever. */
    return told->time_ns > now_ns ? now_ns : told->time_ns + repeat;
}

uint64_t plim__alert_due(const struct plim_alert_list *list, const struct plim_alert_book *book,
                         const struct plim_alert *alert, const struct plim_receiver *receiver,
                         uint64_t now_ns)
{
    const struct plim_alert_rule *rule = rule_of(book, alert->rule);
    const struct plim_told *told = plim__alert_told(alert, receiver->hash);
    size_t bit = (size_t)(receiver - book->receivers.items);
    bool before = told->episode == alert->episode; /* told of this episode */
    if (rule == NULL || (rule->receivers >> bit & 1) == 0 || alert->episode == 0 ||
        alert->state == PLIM_ALERT_PENDING ||
        (alert->severity < receiver->min_severity && !before)) {
        return UINT64_MAX;
    }
    if (alert->state == PLIM_ALERT_FIRING) {
        return plim__alert_silenced(list, alert, now_ns)
                   ? UINT64_MAX
                   : due_while_firing(alert, rule, receiver, told, now_ns);
    }
    bool quiet = !before && (alert->acknowledged || plim__alert_silenced(list, alert, now_ns));
    bool late = now_ns - alert->resolved_ns > receiver->give_up_ns && now_ns > alert->resolved_ns;
    return (before && told->state == PLIM_ALERT_RESOLVED) || quiet || late ? UINT64_MAX
                                                                           : alert->resolved_ns;
}

void plim__alert_sample(struct plim_alert *out, uint64_t now_ns)
{
    *out = (struct plim_alert){
        .fingerprint = plim__alert_hash(0, "sample"),
        .rule = "leak",
        .class = "leak",
        .subject = {.device_uuid = "GPU-00000000-0000-0000-0000-000000000000",
                    .device = 0,
                    .pid = 4242,
                    .process = "sample"},
        .device_name = "Sample GPU",
        .pci = "0000:00:00.0",
        .state = PLIM_ALERT_FIRING,
        .severity = PLIM_SEVERITY_NOTICE,
        .episode = 1,
        .test = true,
        .began_ns = now_ns - 10 * MINUTE,
        .fired_ns = now_ns,
        .confidence = 0.95,
        .bytes = 3 * PLIM_GIB,
        .slope = {true, 145e3, 120e3, 170e3},
        .seconds_left = {true, 14400, 12000, 18000},
        .summary = "This is a test: a sample alert of plimsoll watch, nothing is wrong",
        .evidence = "live bytes grew by 3.00 GiB in 6 h\nno plateau in any hour",
        .next_step = "Nothing to do. A real alert says here what to do next."};
}
