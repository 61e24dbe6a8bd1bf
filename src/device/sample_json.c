/* SPDX-License-Identifier: Apache-2.0 */

/* See sample_json.h. An absent key is an unknown value; keys that are not known are skipped. */

#include "device/sample_json.h"

#include <jansson.h>
#include <stdio.h>

#define DEVICES_MAX 4096u
#define USES_MAX    100000u

static const struct {
    uint32_t bit;
    const char *key;
} kinds[] = {{PLIM_USE_COMPUTE, "compute"}, {PLIM_USE_GRAPHICS, "graphics"}, {PLIM_USE_MPS, "mps"}};

/* ---- writing ---- */

static void text(struct plim_jsonw *w, const char *key, const char *value)
{
    if (value[0] != '\0') {
        plim_jsonw_kv_text(w, key, value);
    }
}

static void flag(struct plim_jsonw *w, const char *key, bool value)
{
    if (value) {
        plim_jsonw_kv_bool(w, key, true);
    }
}

void plim_device_members(struct plim_jsonw *w, const struct plim_device_sample *d)
{
    plim_jsonw_kv_text(w, "vendor", plim_vendor_text(d->vendor));
    text(w, "name", d->name);
    text(w, "uuid", d->uuid);
    text(w, "pci", d->pci);
    plim_jsonw_kv_text(w, "state", plim_device_state_text(d->state));
    if (d->code != 0) {
        plim_jsonw_kv_i64(w, "code", d->code);
    }
    if (d->parent != PLIM_NO_PARENT) {
        plim_jsonw_kv_u64(w, "parent", d->parent);
    }
    flag(w, "divided", d->divided);
    flag(w, "unified", d->unified);
    flag(w, "odd", d->odd);
    for (int i = 0; i < PLIM_FIGURE_COUNT; i++) {
        if (plim_has_figure(d, (enum plim_figure)i)) {
            plim_jsonw_kv_u64(w, plim_figure_key((enum plim_figure)i), d->figure[i]);
        }
    }
}

void plim_use_kinds_member(struct plim_jsonw *w, const struct plim_process_use *use)
{
    plim_jsonw_key(w, "kinds");
    plim_jsonw_array(w);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if ((use->kinds & kinds[i].bit) != 0) {
            plim_jsonw_text(w, kinds[i].key);
        }
    }
    plim_jsonw_end(w);
}

static void write_use(struct plim_jsonw *w, const struct plim_process_use *use)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "device", use->device);
    plim_jsonw_kv_u64(w, "pid", use->pid);
    if (use->gpu_instance != PLIM_NO_INSTANCE) {
        plim_jsonw_kv_u64(w, "gpu_instance", use->gpu_instance);
    }
    if (use->compute_instance != PLIM_NO_INSTANCE) {
        plim_jsonw_kv_u64(w, "compute_instance", use->compute_instance);
    }
    plim_use_kinds_member(w, use);
    if (use->bytes_valid) {
        plim_jsonw_kv_u64(w, "bytes", use->bytes);
    }
    plim_jsonw_end(w);
}

static void write_process(struct plim_jsonw *w, const struct plim_process_facts *p)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "pid", p->pid);
    if (p->start_ticks != 0) {
        plim_jsonw_kv_u64(w, "ppid", p->ppid);
        plim_jsonw_kv_u64(w, "start_ticks", p->start_ticks);
        plim_jsonw_kv_u64(w, "rss_bytes", p->rss);
    }
#define PLIM__X(field, size, key) text(w, key, p->field);
    PLIM_PROCESS_TEXT_MAP(PLIM__X)
#undef PLIM__X
    plim_jsonw_end(w);
}

void plim_sample_write(struct plim_buf *out, const struct plim_sample *sample)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.sample/1");
    plim_jsonw_kv_u64(&w, "time_ns", sample->time_ns);
    if (sample->host_total != 0) {
        plim_jsonw_kv_u64(&w, "host_total_bytes", sample->host_total);
        plim_jsonw_kv_u64(&w, "host_available_bytes", sample->host_available);
    }
    plim_jsonw_key(&w, "devices");
    plim_jsonw_array(&w);
    plim_vec_foreach (d, &sample->devices) {
        plim_jsonw_object(&w);
        plim_device_members(&w, d);
        plim_jsonw_end(&w);
    }
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "uses");
    plim_jsonw_array(&w);
    plim_vec_foreach (use, &sample->uses) {
        write_use(&w, use);
    }
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "processes");
    plim_jsonw_array(&w);
    plim_vec_foreach (p, &sample->processes) {
        write_process(&w, p);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
}

/* ---- reading ---- */

static bool get_u64(const json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static uint32_t get_u32(const json_t *o, const char *key, uint32_t otherwise)
{
    uint64_t v;
    return get_u64(o, key, &v) && v < UINT32_MAX ? (uint32_t)v : otherwise;
}

static void get_text(const json_t *o, const char *key, char *out, size_t room)
{
    const char *z = json_string_value(json_object_get(o, key));
    (void)snprintf(out, room, "%s", z != NULL ? z : "");
}

static void read_device(const json_t *o, struct plim_device_sample *d)
{
    char word[32];
    *d = (struct plim_device_sample){.vendor = PLIM_VENDOR_OTHER};
    get_text(o, "vendor", word, sizeof(word));
    for (int i = 0; i < PLIM_VENDORS; i++) {
        d->vendor = strcmp(word, plim_vendor_text((enum plim_vendor_kind)i)) == 0
                        ? (enum plim_vendor_kind)i
                        : d->vendor;
    }
    get_text(o, "state", word, sizeof(word));
    for (int i = 0; i < PLIM_DEVICE_STATES; i++) {
        d->state = strcmp(word, plim_device_state_text((enum plim_device_state)i)) == 0
                       ? (enum plim_device_state)i
                       : d->state;
    }
    get_text(o, "name", d->name, sizeof(d->name));
    get_text(o, "uuid", d->uuid, sizeof(d->uuid));
    get_text(o, "pci", d->pci, sizeof(d->pci));
    d->code = (int)(get_u32(o, "code", 0) & 0xffff);
    d->parent = get_u32(o, "parent", PLIM_NO_PARENT);
    d->divided = json_is_true(json_object_get(o, "divided"));
    d->unified = json_is_true(json_object_get(o, "unified"));
    d->odd = json_is_true(json_object_get(o, "odd"));
    for (int i = 0; i < PLIM_FIGURE_COUNT; i++) {
        uint64_t value;
        if (get_u64(o, plim_figure_key((enum plim_figure)i), &value)) {
            plim_set_figure(d, (enum plim_figure)i, value);
        }
    }
}

static void read_use(const json_t *o, struct plim_process_use *use)
{
    const json_t *list = json_object_get(o, "kinds");
    *use = (struct plim_process_use){.device = get_u32(o, "device", 0),
                                     .pid = get_u32(o, "pid", 0),
                                     .gpu_instance = get_u32(o, "gpu_instance", PLIM_NO_INSTANCE),
                                     .compute_instance =
                                         get_u32(o, "compute_instance", PLIM_NO_INSTANCE)};
    use->bytes_valid = get_u64(o, "bytes", &use->bytes);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *z = json_string_value(json_array_get(list, i));
        for (size_t k = 0; z != NULL && k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            use->kinds |= strcmp(z, kinds[k].key) == 0 ? kinds[k].bit : 0;
        }
    }
}

static void read_process(const json_t *o, struct plim_process_facts *p)
{
    *p = (struct plim_process_facts){.pid = get_u32(o, "pid", 0), .ppid = get_u32(o, "ppid", 0)};
    (void)get_u64(o, "start_ticks", &p->start_ticks);
    (void)get_u64(o, "rss_bytes", &p->rss);
#define PLIM__X(field, size, key) get_text(o, key, p->field, sizeof(p->field));
    PLIM_PROCESS_TEXT_MAP(PLIM__X)
#undef PLIM__X
}

static enum plim_status read_all(const json_t *root, struct plim_sample *out, struct plim_err *err)
{
    const json_t *devices = json_object_get(root, "devices"), *uses = json_object_get(root, "uses");
    const json_t *processes = json_object_get(root, "processes");
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (schema == NULL || strcmp(schema, "plimsoll.sample/1") != 0) {
        return plim__fail(err, PLIM_E_DATA, "not a line of samples: no schema plimsoll.sample/1");
    }
    if (json_array_size(devices) > DEVICES_MAX || json_array_size(uses) > USES_MAX ||
        json_array_size(processes) > USES_MAX) {
        return plim__fail(err, PLIM_E_BUDGET, "the sample is too large");
    }
    (void)get_u64(root, "time_ns", &out->time_ns);
    (void)get_u64(root, "host_total_bytes", &out->host_total);
    (void)get_u64(root, "host_available_bytes", &out->host_available);
    for (size_t i = 0; i < json_array_size(devices); i++) {
        struct plim_device_sample d;
        read_device(json_array_get(devices, i), &d);
        PLIM_TRY(plim_vec_push(&out->devices, err, d));
    }
    for (size_t i = 0; i < json_array_size(uses); i++) {
        struct plim_process_use use;
        read_use(json_array_get(uses, i), &use);
        if (use.device < out->devices.n) {
            PLIM_TRY(plim_vec_push(&out->uses, err, use));
        }
    }
    for (size_t i = 0; i < json_array_size(processes); i++) {
        struct plim_process_facts p;
        read_process(json_array_get(processes, i), &p);
        PLIM_TRY(plim_vec_push(&out->processes, err, p));
    }
    return PLIM_OK;
}

enum plim_status plim_sample_parse(struct plim_str line, struct plim_sample *out,
                                   struct plim_err *err)
{
    json_error_t fault;
    plim_sample_reset(out);
    json_t *root = json_loadb(line.p, line.n, JSON_REJECT_DUPLICATES, &fault);
    if (root == NULL) {
        return plim__fail(err, PLIM_E_DATA, "not JSON: %.150s", fault.text);
    }
    enum plim_status st = read_all(root, out, err);
    json_decref(root);
    return st;
}
