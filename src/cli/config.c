/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The config file: INI, read by base/ini.h. Keys before the first section apply to every verb that has the
 * option; keys of [verb] only to that verb, and win. Every key is checked when the file is read, so that
 * a misspelt one is an error with its line and not a setting that silently does nothing.
 *
 *     no-color = yes
 *     [diagnose]
 *     format = markdown
 */

#include "base/ini.h"
#include "cli/parse.h"

#include <stdio.h>
#include <string.h>

struct reader {
    struct plim_config *config;
    struct plim_arena *arena;
};

/* Whether `key` is an option of the verb `section`, or of any verb when section is "". */
static enum plim_status check_key(const char *section, const char *key, struct plim_err *err)
{
    size_t n = 0;
    const struct plim_verb *verbs = plim_verbs(&n);
    if (section[0] != '\0' && plim_verb_find(section) == NULL) {
        return plim__fail(err, PLIM_E_USAGE, "section [%s] is no verb", section);
    }
    for (size_t i = 0; i < n; i++) {
        bool here = section[0] == '\0' || strcmp(verbs[i].name, section) == 0;
        if (here && plim_option_find(&verbs[i], key, strlen(key)) != NULL) {
            return PLIM_OK;
        }
    }
    return plim__fail(err, PLIM_E_USAGE, "unknown key '%s'", key);
}

static enum plim_status add_entry(void *user, const char *section, const char *key,
                                  const char *value, int line, struct plim_err *err)
{
    struct reader *r = user;
    struct plim_config_entry entry = {.line = line};
    PLIM_TRY(check_key(section, key, err));
    PLIM_TRY(plim_arena_text(r->arena, section, &entry.section, err));
    PLIM_TRY(plim_arena_text(r->arena, key, &entry.key, err));
    PLIM_TRY(plim_arena_text(r->arena, value, &entry.value, err));
    return plim_vec_push(&r->config->entries, err, entry);
}

static enum plim_status load(const char *path, struct plim_arena *arena, struct plim_config *out,
                             struct plim_err *err)
{
    struct reader reader = {.config = out, .arena = arena};
    return plim_ini_read(path, add_entry, &reader, err);
}

/* Where the file is, in `buf`; false when there is none to look for. */
static bool config_path(const char *(*getenv)(const char *), char *buf, size_t n, bool *named)
{
    const char *own = getenv("PLIMSOLL_CONFIG");
    const char *xdg = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    int len = -1;
    *named = own != NULL;
    if (own != NULL) {
        len = own[0] ? snprintf(buf, n, "%s", own) : -1;
    } else if (xdg != NULL && xdg[0] == '/') {
        len = snprintf(buf, n, "%s/plimsoll/config", xdg);
    } else if (home != NULL && home[0] == '/') {
        len = snprintf(buf, n, "%s/.config/plimsoll/config", home);
    }
    return len > 0 && (size_t)len < n;
}

enum plim_status plim_config_load(const char *(*getenv)(const char *), struct plim_arena *arena,
                                  struct plim_config *out, struct plim_err *err)
{
    char path[4096];
    bool named = false;
    *out = (struct plim_config){0};
    if (!config_path(getenv, path, sizeof(path), &named)) {
        return PLIM_OK;
    }
    struct plim_err why = {0};
    PLIM_TRY(plim_arena_text(arena, path, &out->path, err));
    enum plim_status st = load(path, arena, out, &why);
    if (st == PLIM_E_NOINPUT && !named) {
        return PLIM_OK;
    }
    if (st != PLIM_OK && err != NULL) {
        *err = why;
    }
    if (st != PLIM_OK) {
        plim_config_fini(out);
    }
    return st;
}

void plim_config_fini(struct plim_config *config)
{
    plim_vec_fini(&config->entries);
    config->path = NULL;
}

const struct plim_config_entry *plim_config_find(const struct plim_config *config,
                                                 const struct plim_verb *verb,
                                                 const struct plim_option *option)
{
    const struct plim_config_entry *general = NULL;
    const struct plim_config_entry *own = NULL;
    plim_vec_foreach (entry, &config->entries) {
        if (strcmp(entry->key, option->name) != 0) {
            continue;
        }
        if (strcmp(entry->section, verb->name) == 0) {
            own = entry;
        } else if (entry->section[0] == '\0') {
            general = entry;
        }
    }
    return own ? own : general;
}
