/* SPDX-License-Identifier: Apache-2.0 */

/* Reading and writing facts.json and parts.json. See pieces.h. */

#include "incident/pieces.h"

#include "base/file.h"
#include "base/jsonw.h"
#include "base/num.h"
#include "incident/folder.h"
#include "incident/redact.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FACTS_BYTES (UINT64_C(1) << 20)
#define PAIRS_MAX   1000u

extern char **environ;

const char *plim_incident_kind_text(enum plim_incident_kind kind)
{
    static const char *const texts[] = {
#define PLIM__X(name, text, meaning) text,
        PLIM_INCIDENT_KIND_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)kind < PLIM_INCIDENT_KIND_COUNT ? texts[kind] : "unknown";
}

/* ---- reading ---- */

static const char *text_of(const json_t *object, const char *key, struct plim_arena *arena)
{
    const json_t *v = json_object_get(object, key);
    return json_is_string(v) ? plim_arena_sayf(arena, "%s", json_string_value(v)) : NULL;
}

static int64_t number_of(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : otherwise;
}

static struct plim_amount amount_of(const json_t *object, const char *key)
{
    int64_t v = number_of(object, key, -1);
    return v < 0 ? plim_amount(0, PLIM_HOW_UNKNOWN) : plim_amount((uint64_t)v, PLIM_HOW_MEASURED);
}

static enum plim_status pairs_of(const json_t *object, const char *key, struct plim_arena *arena,
                                 struct plim_pairs *out, struct plim_err *err)
{
    json_t *from = json_object_get(object, key);
    size_t room = json_is_object(from) ? json_object_size(from) : 0;
    const char *name;
    json_t *value;
    void *array;
    room = room > PAIRS_MAX ? PAIRS_MAX : room;
    PLIM_TRY(plim_arena_array(arena, room + 1, sizeof(struct plim_pair), &array, err));
    *out = (struct plim_pairs){.items = array};
    json_object_foreach(from, name, value)
    {
        struct plim_pair pair = {.name = plim_arena_sayf(arena, "%s", name)};
        if (json_is_string(value)) {
            pair.value = plim_arena_sayf(arena, "%s", json_string_value(value));
        } else if (json_is_integer(value)) {
            pair.value = plim_arena_sayf(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
            pair.number = true;
        } else if (json_is_real(value)) {
            pair.value = plim_arena_sayf(arena, "%.6g", json_real_value(value));
        }
        if (pair.value != NULL && out->n < room) {
            out->items[out->n++] = pair;
        }
    }
    return PLIM_OK;
}

/* The owner that the process was started under. */
static int owner_of(const struct plim_pairs *environment)
{
    for (size_t i = 0; i < environment->n; i++) {
        if (strcmp(environment->items[i].name, PLIM_INCIDENT_OWNER_VARIABLE) == 0) {
            return (int)strtol(environment->items[i].value, NULL, 10);
        }
    }
    return 0;
}

bool plim__drop_is_ours(const struct plim_facts_file *drop)
{
    return drop->owner == getpid() || !plim__process_lives(drop->owner);
}

/* Of an environment only what is on the list goes any further, and nothing that we put there
 * ourselves. */
static void keep_harmless(struct plim_pairs *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        const char *name = list->items[i].name;
        bool own = strncmp(name, "PLIMSOLL_INCIDENT_", 18) == 0 ||
                   strncmp(name, "PLIMSOLL_RECORD_", 16) == 0;
        if (!own && plim_redact_keeps_variable(name, strlen(name))) {
            list->items[kept++] = list->items[i];
        }
    }
    list->n = kept;
}

static enum plim_status argv_of(const json_t *object, struct plim_arena *arena, const char ***out,
                                struct plim_err *err)
{
    const json_t *list = json_object_get(object, "argv");
    size_t n = json_is_array(list) ? json_array_size(list) : 0;
    void *array;
    if (n == 0 || n > PAIRS_MAX * 10) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_arena_array(arena, n + 1, sizeof(char *), &array, err));
    const char **argv = array;
    for (size_t i = 0; i < n; i++) {
        const char *z = json_string_value(json_array_get(list, i));
        argv[i] = plim_arena_sayf(arena, "%s", z != NULL ? z : "");
    }
    *out = argv;
    return PLIM_OK;
}

static enum plim_status devices_of(const json_t *object, struct plim_arena *arena,
                                   struct plim_facts_file *out, struct plim_err *err)
{
    const json_t *list = json_object_get(object, "devices");
    size_t n = json_is_array(list) ? json_array_size(list) : 0;
    void *array;
    n = n > PAIRS_MAX ? PAIRS_MAX : n;
    PLIM_TRY(plim_arena_array(arena, n + 1, sizeof(struct plim_named_device), &array, err));
    out->devices = array;
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(list, i);
        const char *name = text_of(row, "name", arena);
        out->devices[out->n_devices++] =
            (struct plim_named_device){.index = (uint64_t)number_of(row, "index", (int64_t)i),
                                       .name = name != NULL ? name : "",
                                       .total = amount_of(row, "total_bytes")};
    }
    return PLIM_OK;
}

static bool kind_of(const json_t *object, enum plim_incident_kind *out)
{
    const char *word = json_string_value(json_object_get(object, "kind"));
    for (int k = 0; word != NULL && k < PLIM_INCIDENT_KIND_COUNT; k++) {
        if (strcmp(word, plim_incident_kind_text((enum plim_incident_kind)k)) == 0) {
            *out = (enum plim_incident_kind)k;
            return true;
        }
    }
    return false;
}

static enum plim_status facts_from(const json_t *o, struct plim_arena *arena,
                                   struct plim_facts_file *out, struct plim_err *err)
{
    struct plim_facts_file f = {
        .pid = (int)number_of(o, "pid", 0),
        .ppid = (int)number_of(o, "ppid", 0),
        .time_ns = (uint64_t)number_of(o, "time_ns", 0),
        .started_ns = (uint64_t)number_of(o, "started_ns", 0),
        .rank = number_of(o, "rank", -1),
        .local_rank = number_of(o, "local_rank", -1),
        .world_size = number_of(o, "world_size", -1),
        .device = number_of(o, "device", -1),
        .request = amount_of(o, "request_bytes"),
        .device_total = amount_of(o, "device_total_bytes"),
        .device_free = amount_of(o, "device_free_bytes"),
        .alloc_conf = text_of(o, "alloc_conf", arena),
        .user = text_of(o, "user", arena),
        .home = text_of(o, "home", arena),
        .cwd = text_of(o, "cwd", arena),
        .host = text_of(o, "host", arena),
        .trace = text_of(o, "trace", arena),
        .exit_status = (int)number_of(o, "exit_status", -1),
        .signal = (int)number_of(o, "signal", 0),
        .snapshot_incomplete = json_is_false(json_object_get(o, "snapshot_complete")),
    };
    if (!json_is_object(o) || !kind_of(o, &f.kind)) {
        return plim__fail(err, PLIM_E_DATA, "not the facts of an incident: no kind");
    }
    PLIM_TRY(pairs_of(o, "tags", arena, &f.tags, err));
    PLIM_TRY(pairs_of(o, "versions", arena, &f.versions, err));
    PLIM_TRY(pairs_of(o, "environment", arena, &f.environment, err));
    f.owner = owner_of(&f.environment);
    keep_harmless(&f.environment);
    PLIM_TRY(argv_of(o, arena, &f.argv, err));
    PLIM_TRY(devices_of(o, arena, &f, err));
    PLIM_TRY(plim_arena_status(arena, err));
    *out = f;
    return PLIM_OK;
}

enum plim_status plim__facts_read(const char *path, struct plim_arena *arena,
                                  struct plim_facts_file *out, struct plim_err *err)
{
    struct plim_str text;
    json_error_t fault;
    PLIM_TRY(plim_file_read(path, FACTS_BYTES, &text, err));
    json_t *root = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &fault);
    free((void *)(uintptr_t)text.p);
    if (root == NULL) {
        enum plim_status st = plim__fail(err, PLIM_E_DATA, "not JSON: %.150s", fault.text);
        plim__err_where(err, "%s", path);
        return st;
    }
    enum plim_status st = facts_from(root, arena, out, err);
    json_decref(root);
    return st;
}

static int by_time(const void *a, const void *b)
{
    const struct plim_facts_file *x = a, *y = b;
    return x->time_ns != y->time_ns ? (x->time_ns < y->time_ns ? -1 : 1)
                                    : (x->pid > y->pid) - (x->pid < y->pid);
}

/* drop-PID-N: what can be known without facts. */
static struct plim_facts_file bare(const char *name, const struct plim_facts_file *owner)
{
    int pid = atoi(name + strlen(PLIM_DROP_PREFIX)); // NOLINT(cert-err34-c): 0 when it is none
    return (struct plim_facts_file){.kind = owner->kind,
                                    .pid = pid,
                                    .time_ns = owner->time_ns,
                                    .rank = -1,
                                    .local_rank = -1,
                                    .world_size = -1,
                                    .device = -1,
                                    .exit_status = -1,
                                    .half = true};
}

enum plim_status plim__pieces_read(const char *raw, struct plim_arena *arena,
                                   struct plim_pieces *out, struct plim_err *err)
{
    struct plim_names names = {0};
    struct plim_pieces p = {.raw = raw};
    enum plim_status st =
        plim__facts_read(plim_arena_sayf(arena, "%s/parts.json", raw), arena, &p.owner, err);
    st = st == PLIM_OK ? plim__folder_names(raw, PLIM_DROP_PREFIX, arena, &names, err) : st;
    for (size_t i = 0; st == PLIM_OK && i < names.list.n; i++) {
        struct plim_facts_file facts;
        const char *name = names.list.items[i];
        const char *folder = plim_arena_sayf(arena, "%s/%s", raw, name);
        if (plim__facts_read(plim_arena_sayf(arena, "%s/facts.json", folder), arena, &facts,
                             NULL) != PLIM_OK) {
            facts = bare(name, &p.owner);
        }
        facts.half = facts.half || strstr(name, PLIM_PART_SUFFIX) != NULL;
        facts.folder = folder;
        st = plim_vec_push(&p.drops, err, facts);
    }
    plim_vec_fini(&names.list);
    st = st == PLIM_OK ? plim_arena_status(arena, err) : st;
    if (st != PLIM_OK) {
        plim__pieces_fini(&p);
        return st;
    }
    if (p.drops.n > 1) {
        qsort(p.drops.items, p.drops.n, sizeof(*p.drops.items), by_time);
    }
    *out = p;
    return PLIM_OK;
}

void plim__pieces_fini(struct plim_pieces *pieces)
{
    plim_vec_fini(&pieces->drops);
}

/* ---- writing ---- */

static const char *variable(const char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            return *env + n + 1;
        }
    }
    return NULL;
}

static void write_environment(struct plim_jsonw *w, const char *const *env)
{
    plim_jsonw_key(w, "environment");
    plim_jsonw_object(w);
    for (size_t i = 0; env != NULL && env[i] != NULL; i++) {
        const char *equals = strchr(env[i], '=');
        size_t n = equals != NULL ? (size_t)(equals - env[i]) : 0;
        char name[128];
        bool again = false;
        if (n == 0 || n >= sizeof(name) || !plim_redact_keeps_variable(env[i], n)) {
            continue;
        }
        for (size_t k = 0; k < i && !again; k++) {
            again = strncmp(env[k], env[i], n + 1) == 0; /* a name may stand twice */
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, env[i]);
        if (!again) {
            plim_jsonw_kv_text(w, name, equals + 1);
        }
    }
    plim_jsonw_end(w);
}

static void write_text(struct plim_jsonw *w, const char *key, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        plim_jsonw_kv_text(w, key, value);
    }
}

static void write_people(struct plim_jsonw *w, const char *const *env, const char *project)
{
    char host[256] = "", cwd[4096] = "";
    (void)gethostname(host, sizeof(host) - 1);
    if (project == NULL && getcwd(cwd, sizeof(cwd)) != NULL) {
        project = cwd;
    }
    const char *user = variable(env, "USER");
    write_text(w, "user", user != NULL ? user : variable(env, "LOGNAME"));
    write_text(w, "home", variable(env, "HOME"));
    write_text(w, "cwd", project);
    write_text(w, "host", host);
}

enum plim_status plim__parts_write(const char *path, const struct plim_incident_parts *parts,
                                   const char *project, struct plim_err *err)
{
    struct plim_buf buf = {0};
    struct plim_jsonw w;
    const char *const *env =
        parts->env != NULL ? parts->env : (const char *const *)(uintptr_t)environ;
    plim_jsonw_init(&w, &buf, false);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.parts/1");
    plim_jsonw_kv_text(&w, "kind", plim_incident_kind_text(parts->kind));
    plim_jsonw_kv_i64(&w, "pid", parts->pid);
    plim_jsonw_kv_u64(&w, "time_ns", parts->time_ns);
    if (parts->started_ns != 0) {
        plim_jsonw_kv_u64(&w, "started_ns", parts->started_ns);
    }
    if (parts->exit_status >= 0) {
        plim_jsonw_kv_i64(&w, "exit_status", parts->exit_status);
    }
    if (parts->signal > 0) {
        plim_jsonw_kv_i64(&w, "signal", parts->signal);
    }
    if (parts->argv != NULL) {
        plim_jsonw_key(&w, "argv");
        plim_jsonw_array(&w);
        for (size_t i = 0; parts->argv[i] != NULL; i++) {
            plim_jsonw_text(&w, parts->argv[i]);
        }
        plim_jsonw_end(&w);
    }
    if (parts->trace != NULL) {
        char absolute[PATH_MAX];
        plim_jsonw_kv_text(&w, "trace",
                           realpath(parts->trace, absolute) != NULL ? absolute : parts->trace);
    }
    write_people(&w, env, project);
    write_environment(&w, env);
    plim_jsonw_end(&w);
    enum plim_status st = plim_buf_status(&buf, err);
    st = st == PLIM_OK ? plim_file_replace(path, plim_buf_str(&buf), err) : st;
    plim_buf_fini(&buf);
    return st;
}
