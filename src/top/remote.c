/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a running monitor sees: its "plimsoll.status/1" document (docs/schema/status.json) becomes a state again.
 * The monitor may be of another version, or somebody else: what is absent, of another type or out of range is not
 * known, and indexes are checked, as everything drawn relies on them.
 */

#include "top/top.h"

#include "http/curl.h"
#include "observe/printable.h"

#include <plimsoll/shm.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define BODY_LIMIT (64u << 20)
#define TIMEOUT_MS 2000L
#define PATH       "/api/v1/status"

struct plim_top_remote {
    struct plim_curl curl;
    CURL *easy;
    char url[512];
    struct plim_buf body;
    struct plim_observation now;
    PLIM_VEC(struct plim_finding) findings;
    PLIM_VEC(struct plim_estimate) left;
    struct plim_state state;
    char host[256];
};

/* ---- values ---- */

static uint64_t number(const json_t *o, const char *key, uint64_t unknown)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
                                                            : unknown;
}

static bool is_true(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

static void text(char *out, size_t size, const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    plim_printable(out, size, plim_str_from(s != NULL ? s : ""));
}

/* Evidence has lines; everything else is one. */
static void lines(char *out, size_t size, const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    (void)snprintf(out, size, "%s", s != NULL ? s : "");
    for (; *out != '\0'; out++) {
        *out = (unsigned char)*out < ' ' && *out != '\n' ? ' ' : *out;
    }
}

/* Which of these words; `unknown` when it is none. */
static unsigned word(const json_t *o, const char *key, const char *const *words, unsigned n,
                     unsigned unknown)
{
    const char *s = json_string_value(json_object_get(o, key));
    for (unsigned i = 0; s != NULL && i < n; i++) {
        if (strcmp(s, words[i]) == 0) {
            return i;
        }
    }
    return unknown;
}

static struct plim_estimate estimate(const json_t *o, const char *key)
{
    const json_t *e = json_object_get(o, key);
    struct plim_estimate out = {.valid = json_is_object(e),
                                .value = json_number_value(json_object_get(e, "value")),
                                .low = json_number_value(json_object_get(e, "low")),
                                .high = json_number_value(json_object_get(e, "high"))};
    return out;
}

/* An index into the devices, or NO_DEVICE. */
static uint32_t device_index(const struct plim_top_remote *r, const json_t *o)
{
    uint64_t i = number(o, "device", PLIM_NO_DEVICE);
    return i < r->now.sample.devices.n ? (uint32_t)i : PLIM_NO_DEVICE;
}

#define FIGURES(o, valid, figure, n, keys)                                                         \
    for (unsigned i = 0; i < (n); i++) {                                                           \
        const json_t *v = json_object_get(o, (keys)[i]);                                           \
        if (json_is_number(v) && json_number_value(v) >= 0) {                                      \
            (figure)[i] =                                                                          \
                (__typeof__((figure)[0]))(json_is_integer(v) ? (double)json_integer_value(v)       \
                                                             : json_number_value(v));              \
            (valid) |= UINT64_C(1) << i;                                                           \
        }                                                                                          \
    }

/* ---- parts of the document ---- */

static const char *const figure_keys[] = {
#define PLIM__X(name, key) key,
    PLIM_FIGURE_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const state_words[] = {
#define PLIM__X(name, text) text,
    PLIM_DEVICE_STATE_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const vendor_words[] = {
#define PLIM__X(name, text) text,
    PLIM_VENDOR_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const allocator_keys[] = {
#define PLIM__X(name, key, kind) key,
    PLIM_ALLOCATOR_FIGURE_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const engine_keys[] = {
#define PLIM__X(name, key, kind) key,
    PLIM_ENGINE_FIGURE_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const engine_words[] = {
#define PLIM__X(name, text) text,
    PLIM_ENGINE_KIND_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const component_keys[] = {
#define PLIM__X(name, text) text,
    PLIM_COMPONENT_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const finding_words[] = {
#define PLIM__X(name, text, severity) text,
    PLIM_FINDING_MAP(PLIM__X)
#undef PLIM__X
};
static const char *const severity_words[] = {
#define PLIM__X(name, text) text,
    PLIM_SEVERITY_MAP(PLIM__X)
#undef PLIM__X
};

static enum plim_status take_device(struct plim_top_remote *r, const json_t *o,
                                    struct plim_err *err)
{
    struct plim_device_sample d = {.parent = PLIM_NO_PARENT};
    uint64_t parent = number(o, "parent", UINT64_MAX);
    text(d.name, sizeof(d.name), o, "name");
    text(d.uuid, sizeof(d.uuid), o, "uuid");
    text(d.pci, sizeof(d.pci), o, "pci");
    d.vendor = word(o, "vendor", vendor_words, PLIM_VENDORS, PLIM_VENDOR_OTHER);
    d.state = word(o, "state", state_words, PLIM_DEVICE_STATES, PLIM_DEVICE_ERROR);
    d.parent = parent < r->now.sample.devices.n ? (uint32_t)parent : PLIM_NO_PARENT;
    d.divided = is_true(o, "divided");
    d.unified = is_true(o, "unified");
    FIGURES(o, d.valid, d.figure, PLIM_FIGURE_COUNT, figure_keys)
    PLIM_TRY(plim_vec_push(&r->left, err, estimate(o, "seconds_left")));
    return plim_vec_push(&r->now.sample.devices, err, d);
}

static enum plim_status take_use(struct plim_top_remote *r, const json_t *o, struct plim_err *err)
{
    static const char *const kinds[] = {"compute", "graphics", "mps"};
    struct plim_process_use u = {.device = device_index(r, o),
                                 .pid = (uint32_t)number(o, "pid", 0),
                                 .gpu_instance = PLIM_NO_INSTANCE,
                                 .compute_instance = PLIM_NO_INSTANCE};
    struct plim_process_facts p = {.pid = u.pid};
    size_t i;
    json_t *kind;
    json_array_foreach(json_object_get(o, "kinds"), i, kind)
    {
        for (unsigned k = 0; k < 3; k++) {
            const char *s = json_string_value(kind);
            u.kinds |= s != NULL && strcmp(s, kinds[k]) == 0 ? 1u << k : 0;
        }
    }
    u.bytes = number(o, "bytes", 0);
    u.counted = number(o, "counted_bytes", 0);
    u.bytes_valid = json_object_get(o, "bytes") != NULL;
    p.ppid = (uint32_t)number(o, "parent_pid", 0);
    p.start_ticks = number(o, "start_ticks", 0);
    p.rss = number(o, "resident_bytes", 0);
#define PLIM__X(field, size, key) text(p.field, sizeof(p.field), o, key);
    PLIM_PROCESS_TEXT_MAP(PLIM__X)
#undef PLIM__X
    if (u.device == PLIM_NO_DEVICE) {
        return PLIM_OK;
    }
    if (plim_sample_process(&r->now.sample, u.pid) == NULL) {
        PLIM_TRY(plim_vec_push(&r->now.sample.processes, err, p));
    }
    return plim_vec_push(&r->now.sample.uses, err, u);
}

static enum plim_status take_allocator(struct plim_top_remote *r, const json_t *o,
                                       struct plim_err *err)
{
    struct plim_allocator_now a = {.pid = (uint32_t)number(o, "pid", 0),
                                   .start_ticks = number(o, "start_ticks", 0),
                                   .device = device_index(r, o),
                                   .ordinal = (uint32_t)number(o, "ordinal", 0),
                                   .rank = -1,
                                   .stale = is_true(o, "stale")};
    FIGURES(o, a.valid, a.figure, PLIM_ALLOCATOR_FIGURES, allocator_keys)
    return plim_vec_push(&r->now.allocators, err, a);
}

static enum plim_status take_owner(struct plim_top_remote *r, const json_t *o, struct plim_err *err)
{
    struct plim_owner_now w = {.pid = (uint32_t)number(o, "pid", 0),
                               .device = device_index(r, o),
                               .outside = is_true(o, "outside"),
                               .charged = number(o, "bytes", 0)};
    return plim_vec_push(&r->now.owners, err, w);
}

static enum plim_status take_engine(struct plim_top_remote *r, const json_t *o,
                                    struct plim_err *err)
{
    struct plim_engine_now e = {.pid = (uint32_t)number(o, "pid", 0),
                                .up = is_true(o, "up"),
                                .told_ns = number(o, "told_ns", 0)};
    e.kind = word(o, "kind", engine_words, PLIM_ENGINE_KINDS, PLIM_ENGINE_KIND_UNKNOWN);
    text(e.name, sizeof(e.name), o, "name");
    text(e.model, sizeof(e.model), o, "model");
    text(e.rank, sizeof(e.rank), o, "rank");
    FIGURES(o, e.valid, e.figure, PLIM_ENGINE_FIGURES, engine_keys)
    const json_t *components = json_object_get(o, "components");
    FIGURES(components, e.component_valid, e.component, PLIM_COMPONENTS, component_keys)
    return plim_vec_push(&r->now.engines, err, e);
}

static enum plim_status take_finding(struct plim_top_remote *r, const json_t *o,
                                     struct plim_err *err)
{
    struct plim_finding f = {.active = is_true(o, "active")};
    f.class = word(o, "class", finding_words, PLIM_FINDING_CLASSES, PLIM_FINDING_DEVICE);
    f.severity = word(o, "severity", severity_words, PLIM_SEVERITIES, PLIM_SEVERITY_NOTICE);
    f.subject.device = device_index(r, o);
    f.subject.pid = (uint32_t)number(o, "pid", 0);
    text(f.summary, sizeof(f.summary), o, "summary");
    lines(f.evidence, sizeof(f.evidence), o, "evidence");
    lines(f.next_step, sizeof(f.next_step), o, "next_step");
    return plim_vec_push(&r->findings, err, f);
}

static enum plim_status each(struct plim_top_remote *r, const json_t *document, const char *key,
                             enum plim_status (*take)(struct plim_top_remote *, const json_t *,
                                                      struct plim_err *),
                             struct plim_err *err)
{
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(document, key), i, o)
    {
        PLIM_TRY(take(r, o, err));
    }
    return PLIM_OK;
}

static enum plim_status take_document(struct plim_top_remote *r, const json_t *document,
                                      struct plim_err *err)
{
    plim_observation_reset(&r->now);
    r->findings.n = r->left.n = 0;
    PLIM_TRY(each(r, document, "devices", take_device, err));
    PLIM_TRY(each(r, document, "uses", take_use, err));
    PLIM_TRY(each(r, document, "allocators", take_allocator, err));
    PLIM_TRY(each(r, document, "owners", take_owner, err));
    PLIM_TRY(each(r, document, "engines", take_engine, err));
    PLIM_TRY(each(r, document, "findings", take_finding, err));
    text(r->host, sizeof(r->host), document, "host");
    r->now.sample.time_ns = r->now.mono_ns = number(document, "time_ns", 0);
    r->state = (struct plim_state){.now = &r->now,
                                   .watched = true,
                                   .findings = r->findings.items,
                                   .n_findings = r->findings.n,
                                   .left = r->left.n > 0 ? r->left.items : NULL,
                                   .host = r->host};
    return PLIM_OK;
}

static enum plim_status read_body(struct plim_top_remote *r, struct plim_str body,
                                  const struct plim_state **out, struct plim_err *err)
{
    json_error_t why;
    json_t *document = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &why);
    const char *schema = json_string_value(json_object_get(document, "schema"));
    enum plim_status st = PLIM_OK;
    if (schema == NULL || strcmp(schema, "plimsoll.status/1") != 0) {
        st = plim__fail(err, PLIM_E_DATA, "what answers at %.120s is no monitor", r->url);
    } else {
        st = take_document(r, document, err);
    }
    json_decref(document);
    if (st == PLIM_OK) {
        *out = &r->state;
    }
    return st;
}

/* ---- asking ---- */

static size_t take_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct plim_top_remote *r = arg;
    if (r->body.n + size * n > BODY_LIMIT) {
        return 0;
    }
    plim_buf_add(&r->body, (struct plim_str){bytes, size * n});
    return r->body.failed ? 0 : size * n;
}

static bool set_up(struct plim_top_remote *r, const char *address)
{
    const struct plim_curl *c = &r->curl;
    bool is_socket = strncmp(address, "unix:", 5) == 0;
    bool whole = strstr(address, "://") != NULL;
    int n = is_socket
                ? snprintf(r->url, sizeof(r->url), "http://localhost" PATH)
                : snprintf(r->url, sizeof(r->url), "%s%s" PATH, whole ? "" : "http://", address);
    r->easy = n > 0 && (size_t)n < sizeof(r->url) ? c->easy_init() : NULL;
    return r->easy != NULL && c->easy_setopt(r->easy, CURLOPT_URL, r->url) == CURLE_OK &&
           c->easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           c->easy_setopt(r->easy, CURLOPT_TIMEOUT_MS, TIMEOUT_MS) == CURLE_OK &&
           c->easy_setopt(r->easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           c->easy_setopt(r->easy, CURLOPT_FAILONERROR, 1L) == CURLE_OK &&
           c->easy_setopt(r->easy, CURLOPT_WRITEDATA, r) == CURLE_OK &&
           c->easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           (!is_socket ||
            c->easy_setopt(r->easy, CURLOPT_UNIX_SOCKET_PATH, address + 5) == CURLE_OK);
}

enum plim_status plim__top_remote_open(const char *address, struct plim_top_remote **out,
                                       struct plim_err *err)
{
    struct plim_top_remote *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to ask a monitor");
    }
    enum plim_status st = plim_curl_open(&r->curl, err);
    if (st == PLIM_OK && !set_up(r, address)) {
        st = plim__fail(err, PLIM_E_USAGE, "'%.100s' is no address of a monitor", address);
    }
    if (st != PLIM_OK) {
        plim__top_remote_close(r);
        return st;
    }
    *out = r;
    return PLIM_OK;
}

enum plim_status plim__top_remote_take(struct plim_top_remote *r, const struct plim_state **out,
                                       struct plim_err *err)
{
    plim_buf_reset(&r->body);
    CURLcode code = r->curl.easy_perform(r->easy);
    if (code != CURLE_OK) {
        plim__err_set(err, PLIM_E_NOINPUT, "the monitor at %.120s does not answer: %s", r->url,
                      r->curl.easy_strerror(code));
        plim__err_hint(err, "start one with: plimsoll watch");
        return PLIM_E_NOINPUT;
    }
    return read_body(r, plim_buf_str(&r->body), out, err);
}

void plim__top_remote_close(struct plim_top_remote *r)
{
    if (r != NULL) {
        if (r->easy != NULL) {
            r->curl.easy_cleanup(r->easy);
        }
        plim_buf_fini(&r->body);
        plim_observation_fini(&r->now);
        plim_vec_fini(&r->findings);
        plim_vec_fini(&r->left);
        free(r);
    }
}
