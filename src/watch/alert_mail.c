/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Alerts as a mail: text for people, and plimsoll.alert/1 attached for programs. Names of processes and devices come
 * from outside, so nothing of them reaches a header unencoded: no line break, no second header.
 * Sources: RFC 5322 (headers), RFC 2047 (encoded words), RFC 2045 section 6.7 and 6.8 (quoted-printable, base64),
 * RFC 3834 (Auto-Submitted).
 */

#include "base/bytes.h"
#include "base/scalar.h"
#include "watch/alert_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define LINE_MAX_QP 75u /* of 76: one for the soft line break */

/* ---- encodings ---- */

static void put_base64(struct plim_buf *out, struct plim_str bytes, size_t columns)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t column = 0;
    for (size_t i = 0; i < bytes.n; i += 3) {
        uint32_t v = 0;
        size_t n = bytes.n - i < 3 ? bytes.n - i : 3;
        for (size_t k = 0; k < 3; k++) {
            v = v << 8 | (k < n ? (unsigned char)bytes.p[i + k] : 0U);
        }
        for (size_t k = 0; k < 4; k++) {
            plim_buf_char(out, k <= n ? digits[v >> (18 - 6 * k) & 63] : '=');
        }
        column += 4;
        if (columns != 0 && column >= columns) {
            plim_buf_char(out, '\n');
            column = 0;
        }
    }
    if (column != 0 && columns != 0) {
        plim_buf_char(out, '\n');
    }
}

static void put_quoted(struct plim_buf *out, const char *text)
{
    size_t column = 0;
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        bool last = p[1] == '\n' || p[1] == '\0';
        bool plain = (c >= 33 && c <= 126 && c != '=') || ((c == ' ' || c == '\t') && !last);
        if (c == '\n') {
            plim_buf_char(out, '\n');
            column = 0;
            continue;
        }
        if (column + (plain ? 1 : 3) > LINE_MAX_QP) {
            plim_buf_text(out, "=\n");
            column = 0;
        }
        plain = plain && !(column == 0 && c == '.'); /* no line that ends a mail */
        if (plain) {
            plim_buf_char(out, (char)c);
        } else {
            plim_buf_printf(out, "=%02X", c);
        }
        column += plain ? 1 : 3;
    }
}

/* A header whose text is anything: printable ASCII as it is, all else as encoded words of whole characters. */
static void put_header(struct plim_buf *out, const char *name, const char *text)
{
    bool plain = strstr(text, "=?") == NULL;
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        plain = plain && text[i] >= ' ' && text[i] <= '~';
    }
    plim_buf_printf(out, "%s:", name);
    if (plain && n < 900) {
        plim_buf_printf(out, " %s\n", text);
        return;
    }
    while (n > 0) {
        size_t part = n < 42 ? n : 42;
        while (part < n && part > 1 && ((unsigned char)text[part] & 0xc0) == 0x80) {
            part--;
        }
        plim_buf_text(out, " =?UTF-8?B?");
        put_base64(out, (struct plim_str){text, part}, 0);
        plim_buf_text(out, "?=\n");
        text += part;
        n -= part;
    }
}

/* ---- the text for people ---- */

static void put_alert(struct plim_buf *out, const struct plim_alert_message *m,
                      const struct plim_alert *a)
{
    char time[PLIM_TIME_TEXT];
    char size[PLIM_BYTES_TEXT];
    char left[PLIM_DURATION_TEXT];
    bool ended = a->state == PLIM_ALERT_RESOLVED;
    plim_buf_printf(out, "%s: %s\n\n", ended ? "RESOLVED" : plim_severity_text(a->severity),
                    a->summary);
    plim_buf_printf(out, "  rule       %s\n  class      %s\n", a->rule, a->class);
    if (a->device_name[0] != '\0') {
        plim_buf_printf(out, "  device     %s, %s\n", a->device_name, a->subject.device_uuid);
    }
    if (a->subject.pid != 0) {
        plim_buf_printf(out, "  process    %s (%u)\n", a->subject.process, a->subject.pid);
    }
    if (a->engine[0] != '\0') {
        plim_buf_printf(out, "  engine     %s\n", a->engine);
    }
    plim_buf_printf(out, "  since      %s\n", plim_time_format(time, a->began_ns));
    if (ended) {
        plim_buf_printf(out, "  until      %s\n", plim_time_format(time, a->resolved_ns));
    }
    if (a->figure[0] == '\0') {
        plim_buf_printf(out, "  concerns   %s, confidence %.0f %%\n",
                        plim_bytes_format(size, a->bytes), a->confidence * 100);
    }
    if (a->seconds_left.valid && !ended) {
        plim_buf_printf(out, "  time left  %s\n",
                        plim_duration_format(left, a->seconds_left.value));
    }
    plim_buf_printf(out, "\nEvidence\n\n%s\n\nNext step\n\n%s\n", a->evidence, a->next_step);
    if (a->runbook[0] != '\0') {
        plim_buf_printf(out, "\nRunbook: %s\n", a->runbook);
    }
    if (m->book->url != NULL) {
        plim_buf_printf(out, "\nDashboard: %s/#alert=%016" PRIx64 "\n", m->book->url,
                        a->fingerprint);
    }
}

static void put_text(struct plim_buf *out, const struct plim_alert_message *m)
{
    struct plim_buf text = {0};
    for (size_t i = 0; i < m->n; i++) {
        put_alert(&text, m, &m->alerts[i]);
        plim_buf_text(&text, i + 1 < m->n ? "\n--------\n\n" : "\n");
    }
    plim_buf_printf(&text, "plimsoll watch %s on %s\n", m->version, m->host);
    out->failed = out->failed || text.failed;
    put_quoted(out, plim_buf_str(&text).p);
    plim_buf_fini(&text);
}

/* ---- the whole ---- */

static void put_addresses(struct plim_buf *out, const struct plim_receiver *r)
{
    plim_buf_text(out, "To:");
    for (size_t i = 0; i < r->to.n; i++) {
        plim_buf_printf(out, "%s <%s>", i > 0 ? ",\n" : "", r->to.items[i]);
    }
    plim_buf_char(out, '\n');
}

/* Letters, digits, dots and dashes of the host's name: it stands in addresses. */
static void host_name(const char *host, char out[128])
{
    size_t n = 0;
    for (; *host != '\0' && n < 127; host++) {
        bool good = (*host >= 'a' && *host <= 'z') || (*host >= 'A' && *host <= 'Z') ||
                    (*host >= '0' && *host <= '9') || *host == '.' || *host == '-';
        out[n++] = good ? *host : '-';
    }
    out[n] = '\0';
}

static void put_headers(struct plim_buf *out, const struct plim_alert_message *m, const char *mark)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char title[320];
    char host[128];
    struct tm t = {0};
    time_t now = (time_t)(m->time_ns / 1000000000U);
    (void)gmtime_r(&now, &t);
    host_name(m->host, host);
    if (m->receiver->from != NULL) {
        plim_buf_printf(out, "From: <%s>\n", m->receiver->from);
    } else {
        plim_buf_printf(out, "From: plimsoll <plimsoll@%s>\n", host[0] ? host : "localhost");
    }
    put_addresses(out, m->receiver);
    put_header(out, "Subject", plim__alert_title(m, title, sizeof(title)));
    plim_buf_printf(out, "Date: %s, %02d %s %d %02d:%02d:%02d +0000\n", days[t.tm_wday], t.tm_mday,
                    months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    plim_buf_printf(out, "Message-ID: <%016" PRIx64 ".%" PRIu64 "@%s>\n", plim__alert_id(m),
                    m->time_ns / 1000000000U, host);
    plim_buf_printf(out, "References: <%016" PRIx64 ".%u@%s>\n", m->alerts[0].fingerprint,
                    m->alerts[0].episode, host); /* mails of one episode make one thread */
    plim_buf_printf(out,
                    "MIME-Version: 1.0\nAuto-Submitted: auto-generated\n"
                    "Content-Type: multipart/mixed; boundary=\"%s\"\n\n",
                    mark);
}

void plim__alert_mail(const struct plim_alert_message *m, struct plim_buf *out)
{
    char mark[48];
    struct plim_buf json = {0};
    snprintf(mark, sizeof(mark), "=_plimsoll_%016" PRIx64, plim__alert_id(m)); /* in no encoding */
    put_headers(out, m, mark);
    plim_buf_printf(out,
                    "--%s\nContent-Type: text/plain; charset=utf-8\n"
                    "Content-Transfer-Encoding: quoted-printable\n\n",
                    mark);
    put_text(out, m);
    plim_buf_printf(out,
                    "\n--%s\nContent-Type: application/json\nContent-Transfer-Encoding: base64\n"
                    "Content-Disposition: attachment; filename=\"alert.json\"\n\n",
                    mark);
    plim__alert_message_json(m, &json);
    put_base64(out, plim_buf_str(&json), 76);
    plim_buf_printf(out, "\n--%s--\n", mark);
    out->failed = out->failed || json.failed;
    plim_buf_fini(&json);
}

enum plim_status plim__alert_sendmail(const struct plim_alert_message *m, struct plim_err *err)
{
    const struct plim_receiver *r = m->receiver;
    struct plim_buf mail = {0};
    const char *argv[PLIM_MAIL_ADDRESSES + 8] = {r->sendmail,
                                                 "-i"}; /* a dot does not end the mail */
    size_t n = 2;
    if (r->from != NULL) {
        argv[n++] = "-f";
        argv[n++] = r->from;
    }
    argv[n++] = "--";
    for (size_t i = 0; i < r->to.n; i++) {
        argv[n++] = r->to.items[i];
    }
    plim__alert_mail(m, &mail);
    enum plim_status st = plim_buf_status(&mail, err);
    if (st == PLIM_OK) {
        st = plim__alert_run(argv, NULL, plim_buf_str(&mail), r->timeout_ns, m->stopping, err);
    }
    plim_buf_fini(&mail);
    return st;
}
