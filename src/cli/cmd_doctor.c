/* SPDX-License-Identifier: Apache-2.0 */

/*
 * plimsoll doctor: what is installed here, what is missing, what conflicts. The checks come from
 * src/device; the contents of the allocator settings are judged by the settings parser of src/alloc.
 */

#include "alloc/conf.h"
#include "cli/verbs.h"
#include "device/doctor.h"
#include "report/text.h"

#include <limits.h>
#include <stdlib.h>

#define PYTHON_TIMEOUT_MS 10000

static const char *environment(const char *name)
{
    return getenv(name); // NOLINT(concurrency-mt-unsafe): before any thread starts
}

/* "2.14.1+cu130" as {2, 14}; the newest known one when there is no PyTorch or its text is odd. */
static struct plim_torch_version release(const struct plim_python *python)
{
    char *end = NULL;
    unsigned long major = python ? strtoul(python->torch, &end, 10) : 0;
    unsigned long minor = major == 2 && *end == '.' ? strtoul(end + 1, NULL, 10) : ULONG_MAX;
    if (minor > 99) {
        return PLIM_TORCH_LATEST;
    }
    return (struct plim_torch_version){(uint16_t)major, (uint16_t)minor};
}

/* Settings that do not work together, or not with this engine. NULL when there are none. */
static const char *conflict(const struct plim_conf *conf, const struct plim_python *python)
{
    if (conf->backend == PLIM_CONF_MALLOC_ASYNC && conf->expandable) {
        return "backend:cudaMallocAsync has no segments: expandable_segments does nothing with it";
    }
    if (conf->backend == PLIM_CONF_MALLOC_ASYNC && conf->max_split != UINT64_MAX) {
        return "backend:cudaMallocAsync has no segments: max_split_size_mb does nothing with it";
    }
    if (conf->expandable && python != NULL && python->vllm[0] != '\0') {
        return "vLLM's sleep mode and custom all-reduce cannot use expandable segments: they fail "
               "or "
               "turn them off";
    }
    return NULL;
}

static enum plim_status check_settings(struct plim_checks *checks, const struct plim_world *world,
                                       const struct plim_python *python, struct plim_err *err)
{
    struct plim_alloc_variable read = plim_doctor_alloc_variable(world);
    struct plim_torch_version version = release(python);
    struct plim_check check = {.id = "alloc.settings", .title = "Allocator settings"};
    struct plim_conf conf;
    struct plim_err wrong;
    if (read.name == NULL) {
        check.detail = "none: PyTorch's defaults";
        return plim_check_add(checks, check, err);
    }
    plim_conf_init(&conf, version);
    if (plim_conf_parse(&conf, plim_str_from(read.value), &wrong) != PLIM_OK) {
        check.status = PLIM_CHECK_WARN;
        PLIM_TRY(plim_check_text(checks, &check.detail, err, "%s='%s': %s", read.name, read.value,
                                 wrong.message));
        PLIM_TRY(plim_check_text(checks, &check.advice, err, "%s",
                                 wrong.hint[0] ? wrong.hint
                                               : "PyTorch stops at it when CUDA is first used"));
    } else {
        check.advice = conflict(&conf, python);
        check.status = check.advice ? PLIM_CHECK_WARN : PLIM_CHECK_OK;
        PLIM_TRY(plim_check_text(checks, &check.detail, err, "%s='%s', read as PyTorch %u.%u does",
                                 read.name, read.value, version.major, version.minor));
    }
    return plim_check_add(checks, check, err);
}

static enum plim_status run_checks(struct plim_checks *checks, struct plim_err *err)
{
    struct plim_world world = {"", environment};
    struct plim_python found;
    int cuda_version = 0;
    PLIM_TRY(plim_doctor_gpu(checks, &world, &cuda_version, err));
    PLIM_TRY(plim_doctor_recorder(checks, err));
    bool some = plim_python_find(PYTHON_TIMEOUT_MS, &found, NULL) == PLIM_OK;
    const struct plim_python *python = some ? &found : NULL;
    PLIM_TRY(plim_doctor_python(checks, python, cuda_version, err));
    PLIM_TRY(check_settings(checks, &world, python, err));
    PLIM_TRY(plim_doctor_variables(checks, &world, err));
    return plim_doctor_host(checks, &world, err);
}

static size_t count(const struct plim_checks *checks, enum plim_check_status status)
{
    size_t n = 0;
    plim_vec_foreach (check, &checks->list) {
        n += check->status == status;
    }
    return n;
}

#define STATUS 8 /* columns */

static void write_text(struct plim_cli *cli, const struct plim_checks *checks)
{
    static const char *const colors[] = {"\033[32m", "\033[33m", "\033[2m"};
    struct plim_text_style style = {.unicode = true, .width = cli->width};
    plim_vec_foreach (check, &checks->list) {
        struct plim_buf line = {0};
        const char *first = plim_arena_sayf(&cli->arena, "%*s%-26s ", STATUS, "", check->title);
        plim_text_wrap(&line, first, check->detail, &style);
        plim_buf_printf(&cli->out, "%s%-*s%s", cli->color ? colors[check->status] : "", STATUS,
                        plim_check_status_text(check->status), cli->color ? "\033[0m" : "");
        plim_buf_add(&cli->out, plim_str_skip(plim_buf_str(&line), STATUS));
        plim_buf_fini(&line);
        if (check->advice != NULL) {
            plim_text_wrap(&cli->out, "          ", check->advice, &style);
        }
    }
    plim_buf_printf(&cli->out, "\n%zu ok, %zu to look at, %zu missing\n",
                    count(checks, PLIM_CHECK_OK), count(checks, PLIM_CHECK_WARN),
                    count(checks, PLIM_CHECK_MISSING));
}

static void write_json(struct plim_cli *cli, const struct plim_checks *checks)
{
    struct plim_jsonw w;
    plim_jsonw_init(&w, &cli->out, false);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.doctor/1");
    plim_jsonw_key(&w, "checks");
    plim_jsonw_array(&w);
    plim_vec_foreach (check, &checks->list) {
        plim_jsonw_object(&w);
        plim_jsonw_kv_text(&w, "id", check->id);
        plim_jsonw_kv_text(&w, "status", plim_check_status_text(check->status));
        plim_jsonw_kv_text(&w, "title", check->title);
        plim_jsonw_kv_text(&w, "detail", check->detail);
        plim_jsonw_kv_text(&w, "advice", check->advice);
        plim_jsonw_end(&w);
    }
    plim_jsonw_end(&w);
    plim_jsonw_key(&w, "summary");
    plim_jsonw_object(&w);
    for (int i = 0; i < PLIM_CHECK_COUNT; i++) {
        enum plim_check_status status = (enum plim_check_status)i;
        plim_jsonw_kv_u64(&w, plim_check_status_text(status), count(checks, status));
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
}

enum plim_status plim_cmd_doctor(struct plim_cli *cli, const struct plim_opts_doctor *opts,
                                 struct plim_err *err)
{
    struct plim_checks checks = {.arena = &cli->arena};
    enum plim_status st = run_checks(&checks, err);
    if (st == PLIM_OK && plim_cli_is(opts->format, "json")) {
        write_json(cli, &checks);
    } else if (st == PLIM_OK) {
        write_text(cli, &checks);
    }
    if (st == PLIM_OK && opts->check && count(&checks, PLIM_CHECK_WARN) > 0) {
        cli->exit_code = 1;
    }
    plim_checks_fini(&checks);
    return st;
}
