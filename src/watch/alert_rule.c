/* SPDX-License-Identifier: Apache-2.0 */

/*
 * From the settings to rules and receivers: the built-in rules, and everything that can be wrong with what
 * somebody wrote. A rule that could never hold, and a receiver that could never be reached, are errors.
 */

#include "base/clock.h"
#include "base/near.h"
#include "base/num.h"
#include "watch/alert_int.h"

#include <stdio.h>
#include <stdlib.h>

#define MINUTE (60 * PLIM_SECOND_NS)
#define HOUR   (60 * MINUTE)

#define BOOK_BUDGET (4u << 20) /* bytes of texts */

/* Of rules that do not say. */
#define FOR_NS       MINUTE
#define CLEAR_FOR_NS (5 * MINUTE)
#define REPEAT_NS    (4 * HOUR)

/* The built-in rules, in the words of the settings. Findings have a hysteresis of their own and say how sure they
 * are, so that these wait only for what might pass by itself. Notices are for the dashboard: nobody is woken. */
#define CLASS(text)                                                                                \
    {                                                                                              \
        (const char *[]){text}, 1                                                                  \
    }
#define TIME(ns)                                                                                   \
    {                                                                                              \
        ns, true                                                                                   \
    }
static const struct plim_set_alert built_in[] = {
    {.name = "oom", .finding = CLASS("oom"), .hold = TIME(0), .clear_for = TIME(10 * MINUTE)},
    {.name = "oom-soon",
     .finding = CLASS("any"),
     .left_below = TIME(30 * MINUTE),
     .min_confidence = {0.7, true},
     .hold = TIME(MINUTE),
     .severity = "critical"},
    {.name = "spill", .finding = CLASS("system_memory_spill"), .hold = TIME(30 * PLIM_SECOND_NS)},
    {.name = "device", .finding = CLASS("device_trouble"), .hold = TIME(10 * PLIM_SECOND_NS)},
    {.name = "leak",
     .finding = CLASS("leak"),
     .min_confidence = {0.8, true},
     .hold = TIME(5 * MINUTE),
     .clear_for = TIME(15 * MINUTE)},
    {.name = "fragmentation",
     .finding = CLASS("fragmentation"),
     .min_confidence = {0.7, true},
     .hold = TIME(15 * MINUTE),
     .clear_for = TIME(15 * MINUTE)},
    {.name = "external",
     .finding = CLASS("external_growth"),
     .min_confidence = {0.8, true},
     .hold = TIME(10 * MINUTE)},
    {.name = "capacity", .finding = CLASS("capacity_approached"), .hold = TIME(5 * MINUTE)},
    {.name = "oom-cluster", .finding = CLASS("oom_uptime_cluster"), .hold = TIME(0)},
    {.name = "engine-down",
     .figure = "engine.up",
     .below = {1, true},
     .hold = TIME(2 * MINUTE),
     .next_step =
         "Look at the engine's log and exit status; plimsoll incident lists what a failure left."},
};

uint64_t plim__alert_hash(uint64_t seed, const char *text)
{
    uint64_t h = seed ^ UINT64_C(14695981039346656037);
    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return h != 0 ? h : 1;
}

static void set_text(char *out, size_t n, const char *text)
{
    snprintf(out, n, "%s", text != NULL ? text : "");
}

static int severity_of(const char *text)
{
    int found = -1;
    for (int i = 0; text != NULL && i < PLIM_SEVERITIES; i++) {
        found = strcmp(plim_severity_text((enum plim_severity)i), text) == 0 ? i : found;
    }
    return found;
}

static bool is_text_line(const char *text, const char *also_not)
{
    for (const char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f || strchr(also_not, *p) != NULL) {
            return false;
        }
    }
    return *text != '\0';
}

/* ---- receivers ---- */

bool plim__alert_is_url(const char *url)
{
    return (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0) &&
           is_text_line(url, " ");
}

static enum plim_status check_http(const struct plim_settings *s, const struct plim_set_notify *n,
                                   struct plim_err *err)
{
    if ((n->url == NULL) == (n->url_file == NULL)) {
        return plim_settings_fail(s, n, err, "kind %s needs either url or url-file", n->kind);
    }
    if (n->url != NULL && !plim__alert_is_url(n->url)) {
        return plim_settings_fail(s, n, err, "url is no http:// or https:// address");
    }
    return PLIM_OK;
}

static enum plim_status check_mail(const struct plim_settings *s, const struct plim_set_notify *n,
                                   struct plim_err *err)
{
    if (n->to.n == 0 || n->to.n > PLIM_MAIL_ADDRESSES) {
        return plim_settings_fail(s, n, err, "kind email needs to, with 1 to %d addresses",
                                  PLIM_MAIL_ADDRESSES);
    }
    for (size_t i = 0; i <= n->to.n; i++) {
        const char *address = i < n->to.n ? n->to.items[i] : n->from;
        if (address != NULL && (address[0] == '-' || !is_text_line(address, " <>()[]\\,;:\""))) {
            return plim_settings_fail(s, n, err, "'%.60s' is no plain mail address", address);
        }
    }
    return n->sendmail[0] == '/' ? PLIM_OK
                                 : plim_settings_fail(s, n, err, "sendmail is no absolute path");
}

/* Keys that one kind only has. */
static enum plim_status check_strangers(const struct plim_settings *s,
                                        const struct plim_set_notify *n, struct plim_err *err)
{
    bool http = strcmp(n->kind, "webhook") == 0 || strcmp(n->kind, "alertmanager") == 0;
    const struct {
        const char *key;
        bool said;
        bool fits;
    } rows[] = {{"url", n->url != NULL, http},
                {"url-file", n->url_file != NULL, http},
                {"token-file", n->token_file != NULL, http},
                {"ca-file", n->ca_file != NULL, http},
                {"hmac-file", n->hmac_file != NULL, strcmp(n->kind, "webhook") == 0},
                {"to", n->to.n > 0, strcmp(n->kind, "email") == 0},
                {"from", n->from != NULL, strcmp(n->kind, "email") == 0},
                {"program", n->program != NULL, strcmp(n->kind, "script") == 0}};
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (rows[i].said && !rows[i].fits) {
            return plim_settings_fail(s, n, err, "kind %s has no %s", n->kind, rows[i].key);
        }
    }
    return PLIM_OK;
}

static enum plim_status check_receiver(const struct plim_settings *s,
                                       const struct plim_set_notify *n, struct plim_err *err)
{
    if (n->kind == NULL) {
        return plim_settings_fail(s, n, err,
                                  "kind is missing: webhook, alertmanager, email or script");
    }
    if (!is_text_line(n->name, " ,") || n->timeout.value < PLIM_SECOND_NS / 100) {
        return plim_settings_fail(s, n, err, "the name has blanks, or timeout is under 10 ms");
    }
    PLIM_TRY(check_strangers(s, n, err));
    if (strcmp(n->kind, "email") == 0) {
        return check_mail(s, n, err);
    }
    if (strcmp(n->kind, "script") == 0) {
        return n->program != NULL && n->program[0] == '/'
                   ? PLIM_OK
                   : plim_settings_fail(s, n, err, "kind script needs program, an absolute path");
    }
    return check_http(s, n, err);
}

static enum plim_status own_text(struct plim_arena *arena, const char *text, const char **out,
                                 struct plim_err *err)
{
    return text != NULL ? plim_arena_text(arena, text, out, err) : PLIM_OK;
}

static enum plim_status own_texts(struct plim_arena *arena, const struct plim_set_notify *n,
                                  struct plim_receiver *r, struct plim_err *err)
{
    const struct {
        const char *text;
        const char **to;
    } rows[] = {{n->url, &r->url},
                {n->url_file, &r->url_file},
                {n->token_file, &r->token_file},
                {n->hmac_file, &r->hmac_file},
                {n->ca_file, &r->ca_file},
                {n->from, &r->from},
                {n->sendmail, &r->sendmail},
                {n->program, &r->program}};
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        PLIM_TRY(own_text(arena, rows[i].text, rows[i].to, err));
    }
    void *items = NULL;
    PLIM_TRY(plim_arena_array(arena, n->to.n + 1, sizeof(*r->to.items), &items, err));
    r->to = (struct plim_set_words){items, n->to.n};
    for (size_t i = 0; i < n->to.n; i++) {
        PLIM_TRY(own_text(arena, n->to.items[i], &r->to.items[i], err));
    }
    return PLIM_OK;
}

static enum plim_status add_receiver(const struct plim_settings *s, const struct plim_set_notify *n,
                                     struct plim_alert_book *book, struct plim_err *err)
{
    static const char *const kinds[] = {
#define X(name, text) text,
        PLIM_RECEIVER_KIND_MAP(X)
#undef X
    };
    static const char *const groups[] = {"all", "rule", "device", "none"};
    struct plim_receiver r = {.hash = plim__alert_hash(0, n->name),
                              .timeout_ns = n->timeout.value,
                              .group_wait_ns = n->group_wait.value,
                              .give_up_ns = n->give_up.value};
    PLIM_TRY(check_receiver(s, n, err));
    if (book->receivers.n >= PLIM_RECEIVERS_MAX) {
        return plim_settings_fail(s, n, err, "more than %d receivers", PLIM_RECEIVERS_MAX);
    }
    set_text(r.name, sizeof(r.name), n->name);
    for (unsigned i = 0; i < PLIM_COUNT_OF(kinds); i++) {
        r.kind = strcmp(kinds[i], n->kind) == 0 ? (enum plim_receiver_kind)i : r.kind;
        r.group = strcmp(groups[i], n->group) == 0 ? (enum plim_alert_group)i : r.group;
    }
    int least = severity_of(n->min_severity);
    r.min_severity = least < 0 ? PLIM_SEVERITY_NOTICE : (enum plim_severity)least;
    PLIM_TRY(own_texts(&book->arena, n, &r, err));
    return plim_vec_push(&book->receivers, err, r);
}

/* ---- rules ---- */

static enum plim_status find_class(const struct plim_settings *s, const struct plim_set_alert *a,
                                   const char *word, uint32_t *classes, struct plim_err *err)
{
    const char *best = NULL;
    unsigned least = PLIM_NEAR_MAX;
    if (strcmp(word, "any") == 0) {
        *classes |= (UINT32_C(1) << PLIM_FINDING_CLASSES) - 1;
        return PLIM_OK;
    }
    for (int i = 0; i < PLIM_FINDING_CLASSES; i++) {
        const char *text = plim_finding_class_text((enum plim_finding_class)i);
        if (strcmp(text, word) == 0) {
            *classes |= UINT32_C(1) << i;
            return PLIM_OK;
        }
        unsigned d = plim_near(word, text);
        best = d < least ? text : best;
        least = d < least ? d : least;
    }
    enum plim_status st = plim_settings_fail(s, a, err, "there is no finding '%.40s'", word);
    if (best != NULL) {
        plim__err_hint(err, "did you mean '%s'?", best);
    }
    return st;
}

static enum plim_status set_figure(const struct plim_settings *s, const struct plim_set_alert *a,
                                   struct plim_alert_rule *r, struct plim_err *err)
{
    if (plim__figure_find(a->figure, &r->figure, err) != PLIM_OK) {
        plim__settings_where(s, a->line, a->name, err);
        return PLIM_E_USAGE;
    }
    if (a->above.given == a->below.given) {
        return plim_settings_fail(s, a, err, "figure needs either above or below");
    }
    if (a->min_severity != NULL || a->min_confidence.given || a->left_below.given) {
        return plim_settings_fail(s, a, err,
                                  "min-severity, min-confidence and left-below are for findings");
    }
    set_text(r->figure_text, sizeof(r->figure_text), a->figure);
    r->above = a->above.given;
    r->threshold = r->above ? a->above.value : a->below.value;
    r->clear = a->clear.given ? a->clear.value : r->threshold;
    r->over_ns = a->over.value;
    if (r->above ? r->clear > r->threshold : r->clear < r->threshold) {
        return plim_settings_fail(s, a, err, "clear is on the wrong side of the threshold");
    }
    return PLIM_OK;
}

static enum plim_status set_condition(const struct plim_settings *s, const struct plim_set_alert *a,
                                      struct plim_alert_rule *r, struct plim_err *err)
{
    int least = severity_of(a->min_severity);
    if ((a->finding.n == 0) == (a->figure == NULL)) {
        return plim_settings_fail(s, a, err, "a rule needs either finding or figure");
    }
    if (a->figure != NULL) {
        return set_figure(s, a, r, err);
    }
    if (a->above.given || a->below.given || a->clear.given || a->over.given) {
        return plim_settings_fail(s, a, err, "above, below, clear and over are for figures");
    }
    if (a->min_confidence.given &&
        !(a->min_confidence.value >= 0 && a->min_confidence.value <= 1)) {
        return plim_settings_fail(s, a, err, "min-confidence is not between 0 and 1");
    }
    for (size_t i = 0; i < a->finding.n; i++) {
        PLIM_TRY(find_class(s, a, a->finding.items[i], &r->classes, err));
    }
    r->min_severity = least < 0 ? PLIM_SEVERITY_NOTICE : (enum plim_severity)least;
    r->min_confidence = a->min_confidence.value;
    r->left_below = (double)a->left_below.value / (double)PLIM_SECOND_NS;
    return PLIM_OK;
}

static enum plim_status set_receivers(const struct plim_settings *s, const struct plim_set_alert *a,
                                      const struct plim_alert_book *book, struct plim_alert_rule *r,
                                      struct plim_err *err)
{
    if (a->notify.n == 0) {
        r->receivers = UINT32_MAX;
    }
    for (size_t i = 0; i < a->notify.n; i++) {
        size_t k = 0;
        while (k < book->receivers.n &&
               strcmp(book->receivers.items[k].name, a->notify.items[i]) != 0) {
            k++;
        }
        if (k == book->receivers.n) {
            return plim_settings_fail(s, a, err, "there is no [notify %.40s]", a->notify.items[i]);
        }
        r->receivers |= UINT32_C(1) << k;
    }
    return PLIM_OK;
}

static uint64_t or_else(struct plim_set_u64 said, uint64_t otherwise)
{
    return said.given ? said.value : otherwise;
}

static enum plim_status add_rule(const struct plim_settings *s, const struct plim_set_alert *a,
                                 struct plim_alert_book *book, struct plim_err *err)
{
    struct plim_alert_rule r = {.for_ns = or_else(a->hold, FOR_NS),
                                .clear_for_ns = or_else(a->clear_for, CLEAR_FOR_NS),
                                .repeat_ns = or_else(a->repeat, REPEAT_NS),
                                .severity = severity_of(a->severity)};
    if (a->off) {
        return PLIM_OK;
    }
    if (!is_text_line(a->name, "")) {
        return plim_settings_fail(s, a, err, "the rule's name has control characters");
    }
    PLIM_TRY(set_condition(s, a, &r, err));
    PLIM_TRY(set_receivers(s, a, book, &r, err));
    set_text(r.name, sizeof(r.name), a->name);
    set_text(r.process, sizeof(r.process), a->process);
    set_text(r.device, sizeof(r.device), a->device);
    set_text(r.next_step, sizeof(r.next_step), a->next_step);
    set_text(r.runbook, sizeof(r.runbook), a->runbook);
    return plim_vec_push(&book->rules, err, r);
}

static bool is_replaced(const struct plim_settings *s, const char *name)
{
    bool found = false;
    plim_vec_foreach (a, &s->alert) {
        found = found || strcmp(a->name, name) == 0;
    }
    return found;
}

static enum plim_status fill(const struct plim_settings *s, struct plim_alert_book *book,
                             struct plim_err *err)
{
    const struct plim_set_watch *watch = &s->watch.items[0];
    PLIM_TRY(own_text(&book->arena, watch->url, &book->url, err));
    if (watch->url != NULL && !plim__alert_is_url(watch->url)) {
        return plim_settings_fail(s, watch, err, "url is no http:// or https:// address");
    }
    plim_vec_foreach (n, &s->notify) {
        PLIM_TRY(add_receiver(s, n, book, err));
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(built_in) && watch->default_alerts; i++) {
        if (!is_replaced(s, built_in[i].name)) {
            PLIM_TRY(add_rule(s, &built_in[i], book, err));
        }
    }
    plim_vec_foreach (a, &s->alert) {
        PLIM_TRY(add_rule(s, a, book, err));
    }
    return PLIM_OK;
}

enum plim_status plim__alert_book(const struct plim_settings *settings,
                                  struct plim_alert_book **out, struct plim_err *err)
{
    struct plim_alert_book *book = calloc(1, sizeof(*book));
    if (book == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the rules");
    }
    plim_arena_init(&book->arena, BOOK_BUDGET);
    book->holders = 1;
    enum plim_status st = fill(settings, book, err);
    if (st != PLIM_OK) {
        plim__alert_book_free(book);
        return st;
    }
    *out = book;
    return PLIM_OK;
}

void plim__alert_book_free(struct plim_alert_book *book)
{
    plim_vec_fini(&book->rules);
    plim_vec_fini(&book->receivers);
    plim_arena_fini(&book->arena);
    free(book);
}

enum plim_status plim_alerts_check(const struct plim_settings *settings, struct plim_err *err)
{
    struct plim_alert_book *book = NULL;
    PLIM_TRY(plim__alert_book(settings, &book, err));
    plim__alert_book_free(book);
    return PLIM_OK;
}
