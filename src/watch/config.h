/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_WATCH_CONFIG_H
#define PLIM_WATCH_CONFIG_H

/*
 * The monitor's settings file: the one table of what can be said in it, and reading it.
 *
 *   section   [watch], of which there is one; [alert NAME], of which there may be many
 *   key       one row of a section's list below
 *
 *     [watch]
 *     interval = 1s
 *     [notify pager]
 *     kind = webhook
 *     url = https://pager.example.org/hook
 *
 * To add a key: one row in its section's list. It is then parsed, checked, documented in the example file
 * (`plimsoll watch --example-settings > deploy/plimsoll.conf` writes it anew), and a field of struct plim_set_<section>.
 *   X(S, field, KIND, "key", "allowed|words" or NULL, "default" or NULL, "example", "help")
 * Kinds and types of their fields:
 *   TEXT      const char *, NULL when not said         CHOICE   one of the allowed words, likewise
 *   WORDS     list of words, between blanks or commas   FLAG     bool, false when not said
 *   SIZE      bytes    DURATION nanoseconds    COUNT whole number: struct plim_set_u64
 *   REAL      struct plim_set_real
 * `given` is false when nobody said anything and the row has no default: never test for 0.
 * A key that is said twice in one section, an unknown key and an unknown section are errors with their line.
 *
 * Secrets are never in this file: keys ending in -file name the file that holds one.
 * Threads: settings are constant once read.
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"

/* X(section, named, "what it is about") */
#define PLIM_SETTINGS_SECTION_MAP(X)                                                               \
    X(watch, false, "The monitor itself.")                                                         \
    X(engine, true, "A serving engine whose /metrics are asked.")                                  \
    X(log, true, "The log of an engine, which tells where its memory went.")                       \
    X(alert, true,                                                                                 \
      "A rule: when somebody is told. With the name of a built-in rule it replaces that rule.")    \
    X(notify, true, "Who is told, and how.")                                                       \
    X(peer, true, "Another monitor, to be shown on the page of the fleet.")

#define PLIM_SETTINGS_watch(X, S)                                                                  \
    X(S, interval, DURATION, "interval", NULL, NULL, "1s", "time between samples")                 \
    X(S, listen, WORDS, "listen", NULL, NULL, "127.0.0.1:9754",                                    \
      "addresses to serve at: HOST:PORT, unix:PATH, none")                                         \
    X(S, token_file, TEXT, "token-file", NULL, NULL, "/etc/plimsoll/token",                        \
      "a file with the token that clients on other machines, and changes, need")                   \
    X(S, token_always, FLAG, "token-always", NULL, "no", "yes",                                    \
      "clients on this machine need it too: for machines with users that do not trust each other") \
    X(S, certificate, TEXT, "certificate", NULL, NULL, "/etc/plimsoll/cert.pem",                   \
      "serve by TLS: a PEM file with the certificate and those above it")                          \
    X(S, key, TEXT, "key", NULL, NULL, "/etc/plimsoll/key.pem",                                    \
      "a PEM file with the certificate's private key")                                             \
    X(S, hosts, WORDS, "hosts", NULL, NULL, "gpu-7.internal",                                      \
      "further names by which local clients may ask, besides localhost")                           \
    X(S, incidents, TEXT, "incidents", NULL, NULL, "/var/lib/plimsoll/incidents",                  \
      "folder whose incident bundles are shown; without it as of plimsoll incident")               \
    X(S, db, TEXT, "db", NULL, NULL, "/var/lib/plimsoll/history.db",                               \
      "the history; \"none\" keeps it in memory only")                                             \
    X(S, max_bytes, SIZE, "max-bytes", NULL, "1GiB", "4GiB",                                       \
      "most disk space of the history; the oldest goes first")                                     \
    X(S, history_levels, WORDS, "history-levels", NULL, NULL, "1s:1d 10s:7d 60s:92d 1h:730d",      \
      "resolutions of the history and for how long each is kept")                                  \
    X(S, discover_engines, FLAG, "discover-engines", NULL, "yes", "no",                            \
      "ask serving engines that use a device of this machine for their metrics, on its loopback")  \
    X(S, host, TEXT, "host", NULL, NULL, "gpu-7.example.org",                                      \
      "name of this machine for others, instead of its host name")                                 \
    X(S, url, TEXT, "url", NULL, NULL, "https://gpu-7.example.org:9754",                           \
      "address of the dashboard as people reach it, for the links in alerts")                      \
    X(S, alert_state, TEXT, "alert-state", NULL, NULL, "/var/lib/plimsoll/alerts.json",            \
      "where alerts, silences and what is still to be sent survive a restart; without it beside "  \
      "the history")                                                                               \
    X(S, default_alerts, FLAG, "default-alerts", NULL, "yes", "yes",                               \
      "the built-in rules; [alert NAME] replaces one of them")

#define PLIM_SETTINGS_engine(X, S)                                                                 \
    X(S, url, TEXT, "url", NULL, NULL, "http://127.0.0.1:8000/metrics", "where its metrics are")

#define PLIM_SETTINGS_log(X, S)                                                                    \
    X(S, path, TEXT, "path", NULL, NULL, "/var/log/vllm.log", "the file")

#define PLIM_SETTINGS_alert(X, S)                                                                  \
    X(S, off, FLAG, "off", NULL, "no", "yes", "the rule is not used")                              \
    X(S, finding, WORDS, "finding", NULL, NULL, "leak, fragmentation",                             \
      "a rule over findings: their classes, or \"any\"")                                           \
    X(S, min_severity, CHOICE, "min-severity", "notice|warning|critical", NULL, "warning",         \
      "findings of this severity and graver ones only")                                            \
    X(S, min_confidence, REAL, "min-confidence", NULL, NULL, "0.8",                                \
      "findings that are at least so sure, 0 to 1")                                                \
    X(S, left_below, DURATION, "left-below", NULL, NULL, "1h",                                     \
      "findings by which memory will be out so soon only")                                         \
    X(S, figure, TEXT, "figure", NULL, NULL, "device.used_ratio",                                  \
      "a rule over a figure: device.KEY, process.KEY, allocator.KEY, engine.KEY or host.KEY")      \
    X(S, above, REAL, "above", NULL, NULL, "0.95",                                                 \
      "it is wrong when the figure is greater; sizes in bytes")                                    \
    X(S, below, REAL, "below", NULL, NULL, "1", "it is wrong when the figure is less")             \
    X(S, clear, REAL, "clear", NULL, NULL, "0.90",                                                 \
      "it is right again at this figure; without it, at the threshold")                            \
    X(S, over, DURATION, "over", NULL, NULL, "10m",                                                \
      "look at how much the figure grew over this time instead of at the figure")                  \
    X(S, process, TEXT, "process", NULL, NULL, "vllm*", "only processes of this name (* and ?)")   \
    X(S, device, TEXT, "device", NULL, NULL, "GPU-8f2a*",                                          \
      "only devices of this UUID or PCI address")                                                  \
    X(S, hold, DURATION, "for", NULL, NULL, "5m", "it must be wrong so long before it is told")    \
    X(S, clear_for, DURATION, "clear-for", NULL, NULL, "5m",                                       \
      "it must be right so long before the end is told")                                           \
    X(S, repeat, DURATION, "repeat", NULL, NULL, "4h",                                             \
      "tell again after this time while it lasts; 0 never")                                        \
    X(S, severity, CHOICE, "severity", "notice|warning|critical", NULL, "critical",                \
      "severity of the alert, instead of the finding's")                                           \
    X(S, notify, WORDS, "notify", NULL, NULL, "pager, mail",                                       \
      "names of [notify] sections; without it all of them")                                        \
    X(S, next_step, TEXT, "next-step", NULL, NULL, "Restart the worker: see the runbook.",         \
      "what to do, instead of the monitor's own advice")                                           \
    X(S, runbook, TEXT, "runbook", NULL, NULL, "https://wiki.example.org/gpu-oom",                 \
      "a link that the alert carries")

#define PLIM_SETTINGS_notify(X, S)                                                                 \
    X(S, kind, CHOICE, "kind", "webhook|alertmanager|email|script", NULL, "webhook",               \
      "how: JSON by HTTP; the API of Alertmanager; a mail by sendmail; a program of yours")        \
    X(S, url, TEXT, "url", NULL, NULL, "https://hooks.example.org/plimsoll",                       \
      "of the webhook; of Alertmanager without /api")                                              \
    X(S, url_file, TEXT, "url-file", NULL, NULL, "/etc/plimsoll/hook-url",                         \
      "a file that holds the URL, when the URL is a secret or long")                               \
    X(S, token_file, TEXT, "token-file", NULL, NULL, "/etc/plimsoll/hook-token",                   \
      "a file that holds the token of \"Authorization: Bearer\"")                                  \
    X(S, hmac_file, TEXT, "hmac-file", NULL, NULL, "/etc/plimsoll/hook-key",                       \
      "a file that holds the key with which the webhook's body is signed (HMAC-SHA-256)")          \
    X(S, ca_file, TEXT, "ca-file", NULL, NULL, "/etc/ssl/private-ca.pem",                          \
      "certificates to trust instead of the system's")                                             \
    X(S, to, WORDS, "to", NULL, NULL, "oncall@example.org", "addresses of the mail")               \
    X(S, from, TEXT, "from", NULL, NULL, "plimsoll@gpu-7.example.org", "sender of the mail")       \
    X(S, sendmail, TEXT, "sendmail", NULL, "/usr/sbin/sendmail", "/usr/sbin/sendmail",             \
      "program that takes the mail")                                                               \
    X(S, program, TEXT, "program", NULL, NULL, "/usr/local/bin/page",                              \
      "the program of kind script: JSON on standard input, PLIMSOLL_ALERT_* in the environment")   \
    X(S, timeout, DURATION, "timeout", NULL, "10s", "10s",                                         \
      "after which a receiver or program is given up, and tried again later")                      \
    X(S, min_severity, CHOICE, "min-severity", "notice|warning|critical", NULL, "critical",        \
      "only alerts of this severity and graver ones")                                              \
    X(S, group, CHOICE, "group", "all|rule|device|none", "all", "device",                          \
      "alerts that are due together make one message for each of these")                           \
    X(S, group_wait, DURATION, "group-wait", NULL, "5s", "5s",                                     \
      "wait so long for others before a message is sent")                                          \
    X(S, give_up, DURATION, "give-up", NULL, "1d", "1d",                                           \
      "no longer try to send what is older than this")

#define PLIM_SETTINGS_peer(X, S)                                                                   \
    X(S, url, TEXT, "url", NULL, NULL, "http://gpu-8.example.org:9754", "address of the monitor")  \
    X(S, token_file, TEXT, "token-file", NULL, NULL, "/etc/plimsoll/gpu-8.token",                  \
      "a file with its token")                                                                     \
    X(S, ca_file, TEXT, "ca-file", NULL, NULL, "/etc/ssl/private-ca.pem",                          \
      "certificates to trust for it instead of the system's")

struct plim_set_u64 {
    uint64_t value;
    bool given;
};

struct plim_set_real {
    double value;
    bool given;
};

struct plim_set_words {
    const char **items; /* arena, [n] */
    size_t n;
};

#define PLIM__SET_TEXT     const char *
#define PLIM__SET_CHOICE   const char *
#define PLIM__SET_FLAG     bool
#define PLIM__SET_WORDS    struct plim_set_words
#define PLIM__SET_SIZE     struct plim_set_u64
#define PLIM__SET_DURATION struct plim_set_u64
#define PLIM__SET_COUNT    struct plim_set_u64
#define PLIM__SET_REAL     struct plim_set_real

/* struct plim_set_<section>, with a field for each of its keys. */
#define PLIM__FIELD(S, field, kind, key, allowed, initial, example, help) PLIM__SET_##kind field;
#define PLIM__STRUCT(section, named, about)                                                        \
    struct plim_set_##section {                                                                    \
        const char *name; /* arena; "" of a section without */                                     \
        int line;         /* of its first key; 0: it is not in the file */                         \
        uint64_t said;    /* bit for each row that is in the file */                               \
        PLIM_SETTINGS_##section(PLIM__FIELD, unused)                                               \
    };
PLIM_SETTINGS_SECTION_MAP(PLIM__STRUCT)
#undef PLIM__STRUCT
#undef PLIM__FIELD

struct plim_settings {
    struct plim_arena arena;
    const char *path; /* arena; NULL: there is no file */
    /* One vector for each section, in the file's order; settings.watch.items[0] is always there. */
#define PLIM__VEC(section, named, about) PLIM_VEC(struct plim_set_##section) section;
    PLIM_SETTINGS_SECTION_MAP(PLIM__VEC)
#undef PLIM__VEC
};

/**
 * plim_settings_read() - the settings of the file `path`; NULL: the defaults.
 * Syntax and values only: whether rules and notifiers make sense is checked by who uses them.
 * Errors: PLIM_E_NOINPUT; PLIM_E_USAGE with "path:line" and a suggestion; PLIM_E_NOMEM, PLIM_E_BUDGET.
 */
PLIM_MUST_USE enum plim_status plim_settings_read(const char *path, struct plim_settings **out,
                                                  struct plim_err *err);
void plim_settings_free(struct plim_settings *settings); /* NULL is allowed */

/** plim_settings_fail() - an error about a section: sets where to "path:line [section name]". */
#define plim_settings_fail(settings, section, err, ...)                                            \
    (plim__err_set(err, PLIM_E_USAGE, __VA_ARGS__),                                                \
     plim__settings_where(settings, (section)->line, (section)->name, err),                        \
     plim__status(PLIM_E_USAGE))
void plim__settings_where(const struct plim_settings *settings, int line, const char *name,
                          struct plim_err *err);

/** plim_settings_example() - a settings file with every key, its meaning and default, all commented out. */
void plim_settings_example(struct plim_buf *out);

#endif
