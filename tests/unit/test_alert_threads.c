/* SPDX-License-Identifier: Apache-2.0 */
/* Alerts while several threads use them: the loop, clients, receivers that work and receivers that fail. */

#include "unit.h"
#include "watch/alert.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RULES                                                                                      \
    "[watch]\ndefault-alerts = no\n"                                                               \
    "[alert low]\nfigure = host.available_bytes\nbelow = 10\nfor = 0\nclear-for = 0\n"             \
    "[notify good]\nkind = script\nprogram = /bin/true\ngroup-wait = 0\n"                          \
    "[notify bad]\nkind = script\nprogram = /bin/false\ngroup-wait = 0\n"                          \
    "[notify away]\nkind = script\nprogram = /nonexistent/program\ngroup-wait = 0\n"

struct setting {
    struct plim_alerts *alerts;
    bool done; /* (atomic) */
};

static void tell(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static void read_rules(const char *folder, struct plim_settings **out)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/settings", folder);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(RULES, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_ok(plim_settings_read(path, out, NULL));
    (void)unlink(path);
}

/* What a client sees; free with json_decref(). */
static json_t *shown(struct plim_alerts *alerts)
{
    struct plim_buf text = {0};
    struct plim_jsonw w;
    plim_jsonw_init(&w, &text, true);
    plim_alerts_json(alerts, &w);
    json_t *root = json_loadb(text.p, text.n, 0, NULL);
    plim_buf_fini(&text);
    return root;
}

static void *client(void *arg)
{
    struct setting *s = arg;
    struct plim_silence silence = {.until_ns = UINT64_MAX / 2, .rule = "another"};
    while (!__atomic_load_n(&s->done, __ATOMIC_ACQUIRE)) {
        uint64_t id = 0;
        json_decref(shown(s->alerts));
        if (plim_alerts_silence(s->alerts, &silence, &id, NULL) == PLIM_OK) {
            (void)!plim_alerts_unsilence(s->alerts, id, NULL);
        }
    }
    return NULL;
}

static void step(struct plim_alerts *alerts, uint64_t available)
{
    struct plim_observation now = {0};
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    now.mono_ns = (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
    now.sample.host_total = 100;
    now.sample.host_available = available;
    plim_alerts_step(alerts, &now, NULL, 0);
}

static json_int_t figure(struct plim_alerts *alerts, size_t receiver, const char *key)
{
    json_t *root = shown(alerts);
    const json_t *r = json_array_get(json_object_get(root, "receivers"), receiver);
    json_int_t value = json_integer_value(json_object_get(r, key));
    json_decref(root);
    return value;
}

static void what_fires_is_told_while_others_look_silence_and_read_settings_again(void **state)
{
    (void)state;
    char folder[] = "/tmp/plimsoll-alerts-XXXXXX";
    char kept[64];
    struct plim_settings *settings = NULL;
    struct setting s = {0};
    pthread_t thread;
    assert_non_null(mkdtemp(folder));
    snprintf(kept, sizeof(kept), "%s/alerts.json", folder);
    read_rules(folder, &settings);
    struct plim_alerts_options options = {
        .settings = settings, .host = "h", .version = "1", .state_path = kept, .tell = tell};
    assert_ok(plim_alerts_open(&options, &s.alerts, NULL));
    assert_int_equal(pthread_create(&thread, NULL, client, &s), 0);
    for (uint64_t i = 0; figure(s.alerts, 0, "sent") < 4 || figure(s.alerts, 1, "failed") < 1 ||
                         figure(s.alerts, 2, "failed") < 1;
         i++) {
        assert_true(i < 1000000);
        step(s.alerts, i / 8 % 2 ? 50 : 0);
        if (i % 64 == 0) {
            assert_ok(plim_alerts_reload(s.alerts, settings, NULL));
        }
    }
    __atomic_store_n(&s.done, true, __ATOMIC_RELEASE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    plim_alerts_close(s.alerts);
    assert_int_equal(access(kept, F_OK), 0);
    plim_settings_free(settings);
    (void)unlink(kept);
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fires_is_told_while_others_look_silence_and_read_settings_again),
    };
    return PLIM_RUN_TESTS("alert_threads", tests);
}
