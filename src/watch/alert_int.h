/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_ALERT_INT_H
#define PLIM_WATCH_ALERT_INT_H

/* What the files of the alerts share. See alert.h for the words. */

#include "watch/alert.h"

#include <pthread.h>

/* ---- figures by name (alert_figure.c) ---- */

/* X(NAME, text) */
#define PLIM_SCOPE_MAP(X)                                                                          \
    X(DEVICE, "device")                                                                            \
    X(PROCESS, "process")                                                                          \
    X(ALLOCATOR, "allocator")                                                                      \
    X(ENGINE, "engine")                                                                            \
    X(HOST, "host")

enum plim_scope {
#define PLIM__X(name, text) PLIM_SCOPE_##name,
    PLIM_SCOPE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_SCOPES
};

struct plim_figure_name {
    enum plim_scope scope;
    int index; /* of the scope's table; negative: derived, see alert_figure.c */
};

/* A figure of one subject; `known` false: it does not tell. */
struct plim_reading {
    struct plim_subject subject;
    const char *engine; /* borrowed from the observation; "" none */
    bool known;
    double value;
};

/** plim__figure_find() - "device.used_ratio". Errors: PLIM_E_USAGE with a suggestion. */
PLIM_MUST_USE enum plim_status plim__figure_find(const char *name, struct plim_figure_name *out,
                                                 struct plim_err *err);

/** plim__figure_at() - the figure of the i-th subject that could have it; false: there is no i-th. */
bool plim__figure_at(const struct plim_observation *now, struct plim_figure_name name, size_t i,
                     struct plim_reading *out);

/* ---- rules (alert_rule.c) ---- */

struct plim_alert_rule {
    char name[PLIM_ALERT_NAME];
    uint32_t classes; /* bit for each finding class; 0: a rule over a figure */
    enum plim_severity min_severity;
    double min_confidence;
    double left_below; /* seconds; 0: any */
    struct plim_figure_name figure;
    char figure_text[48];
    bool above; /* it is wrong above the threshold, else below */
    double threshold, clear;
    uint64_t over_ns;             /* 0: the figure itself */
    char process[64], device[96]; /* patterns; "" any */
    uint64_t for_ns, clear_for_ns, repeat_ns;
    int severity;       /* -1: the finding's; a figure's is WARNING */
    uint32_t receivers; /* bit for each */
    char next_step[300];
    char runbook[160];
};

/* X(NAME, text) */
#define PLIM_RECEIVER_KIND_MAP(X)                                                                  \
    X(WEBHOOK, "webhook")                                                                          \
    X(ALERTMANAGER, "alertmanager")                                                                \
    X(EMAIL, "email")                                                                              \
    X(SCRIPT, "script")

enum plim_receiver_kind {
#define PLIM__X(name, text) PLIM_RECEIVER_##name,
    PLIM_RECEIVER_KIND_MAP(PLIM__X)
#undef PLIM__X
    PLIM_RECEIVER_KINDS
};

#define PLIM_MAIL_ADDRESSES 32 /* of one receiver */

enum plim_alert_group {
    PLIM_GROUP_ALL,
    PLIM_GROUP_RULE,
    PLIM_GROUP_DEVICE,
    PLIM_GROUP_NONE
};

struct plim_receiver {
    char name[PLIM_ALERT_NAME];
    uint64_t hash; /* of the name */
    enum plim_receiver_kind kind;
    const char *url, *url_file, *token_file, *hmac_file, *ca_file; /* the book's arena, or NULL */
    const char *from, *sendmail, *program;
    struct plim_set_words to;
    enum plim_severity min_severity;
    enum plim_alert_group group;
    uint64_t timeout_ns, group_wait_ns, give_up_ns;
};

/* Rules and receivers of one reading of the settings. Constant, counted, freed by the last holder. */
struct plim_alert_book {
    struct plim_arena arena;
    int holders;
    const char *url; /* of the dashboard; arena, or NULL */
    PLIM_VEC(struct plim_alert_rule) rules;
    PLIM_VEC(struct plim_receiver) receivers;
};

PLIM_MUST_USE enum plim_status plim__alert_book(const struct plim_settings *settings,
                                                struct plim_alert_book **out, struct plim_err *err);
void plim__alert_book_free(struct plim_alert_book *book);
uint64_t plim__alert_hash(uint64_t seed, const char *text); /* FNV-1a, never 0 */
bool plim__alert_is_url(const char *text);                  /* http or https, no blanks */

/* ---- moving on (alert_judge.c): under the lock ---- */

/* The past of a figure whose growth is asked. */
#define PLIM_PAST_POINTS 16
struct plim_past {
    uint64_t fingerprint;
    uint64_t seen_mono;
    uint64_t mono[PLIM_PAST_POINTS]; /* [n], oldest first, evenly spread over the rule's `over` */
    double value[PLIM_PAST_POINTS];
    unsigned n;
};

/* Alerts in all their states, and what silences them. */
struct plim_alert_list {
    PLIM_VEC(struct plim_alert *) alerts; /* owned */
    PLIM_VEC(struct plim_past) pasts;
    struct plim_silence silences[PLIM_SILENCES_MAX];
    size_t n_silences;
    uint64_t last_silence; /* id given last */
    uint64_t lost;         /* alerts that there was no room for */
};

/** plim__alerts_judge() - one step. @now_ns: since 1970; durations go by the observation's mono_ns.
 * Returns whether anything changed that has to be kept or told. */
bool plim__alerts_judge(struct plim_alert_list *list, const struct plim_alert_book *book,
                        const struct plim_observation *now, uint64_t now_ns,
                        const struct plim_finding *findings, size_t n);
void plim__alert_list_fini(struct plim_alert_list *list);
bool plim__alert_silenced(const struct plim_alert_list *list, const struct plim_alert *alert,
                          uint64_t now_ns);

/** plim__alert_due() - when (since 1970) `receiver` has to be told of the alert; UINT64_MAX: not at all. */
uint64_t plim__alert_due(const struct plim_alert_list *list, const struct plim_alert_book *book,
                         const struct plim_alert *alert, const struct plim_receiver *receiver,
                         uint64_t now_ns);
const struct plim_told *plim__alert_told(const struct plim_alert *alert, uint64_t receiver);
void plim__alert_tell(struct plim_alert *alert, const struct plim_alert *as, uint64_t receiver,
                      uint64_t now_ns);

/** plim__alert_sample() - the alert of plim_alerts_test(). */
void plim__alert_sample(struct plim_alert *out, uint64_t now_ns);

/* ---- the state file (alert_state.c) ---- */

void plim__alert_state_write(const struct plim_alert_list *list, struct plim_buf *out);

/** plim__alert_state_read() - into an empty list. Errors: PLIM_E_DATA, PLIM_E_NOMEM; the list is then empty. */
PLIM_MUST_USE enum plim_status
plim__alert_state_read(struct plim_str text, struct plim_alert_list *list, struct plim_err *err);

/* ---- messages (alert_message.c, alert_mail.c, alert_http.c, alert_run.c) ---- */

struct plim_alert_message {
    const struct plim_receiver *receiver;
    const struct plim_alert_book *book;
    const char *host, *version;
    uint64_t time_ns;
    const struct plim_alert *alerts; /* [n] */
    size_t n;
    const bool *stopping; /* (atomic) the monitor ends: be quick */
};

/** plim__alert_message_json() - "plimsoll.alert/1", docs/schema/alert.json. */
void plim__alert_message_json(const struct plim_alert_message *m, struct plim_buf *out);
/** plim__alert_message_am() - the body of Alertmanager's POST /api/v2/alerts. */
void plim__alert_message_am(const struct plim_alert_message *m, struct plim_buf *out);
void plim__alert_put(struct plim_jsonw *w, const struct plim_alert *alert, const char *url);
/** plim__alert_title() - "2 alerts on HOST: ..." in one line; returned. */
char *plim__alert_title(const struct plim_alert_message *m, char *text, size_t n);
/** plim__alert_id() - names the message for a receiver that drops what it has had already. */
uint64_t plim__alert_id(const struct plim_alert_message *m);

/** plim__alert_mail() - a whole mail, RFC 5322 and MIME. */
void plim__alert_mail(const struct plim_alert_message *m, struct plim_buf *out);

/** plim__alert_send() - one try. Errors: PLIM_E_IO it did not work, try again; PLIM_E_DATA the receiver
 * refuses this content; PLIM_E_NOMEM, PLIM_E_UNSUPPORTED. `*wait_ns`: what it asked us to wait, or 0. */
PLIM_MUST_USE enum plim_status plim__alert_send(const struct plim_alert_message *m,
                                                uint64_t *wait_ns, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__alert_post(const struct plim_alert_message *m,
                                                uint64_t *wait_ns, struct plim_err *err);

/** plim__alert_run() - run argv with `input` on standard input; its process group is killed at the time limit.
 * @env: NULL: ours. Errors: PLIM_E_IO not started, failed, or killed. */
PLIM_MUST_USE enum plim_status plim__alert_run(const char *const *argv, char *const *env,
                                               struct plim_str input, uint64_t timeout_ns,
                                               const bool *stopping, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__alert_script(const struct plim_alert_message *m,
                                                  struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__alert_sendmail(const struct plim_alert_message *m,
                                                    struct plim_err *err);

#endif
