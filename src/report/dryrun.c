/* SPDX-License-Identifier: Apache-2.0 */
/* A dry run for a terminal and as JSON. */

#include "report/dryrun.h"

#include "base/bytes.h"
#include "base/intern.h"
#include "report/diagnosis.h"

#include <inttypes.h>
#include <string.h>

/* What every report says: what the numbers are worth. */
static const char *const notes[] = {
    "Memory was accounted for as on the card; nothing was computed. Kernels did nothing and every "
    "value "
    "read from the device was 0.",
    "Losses, generated text and random numbers mean nothing, and code that decides by values on "
    "the "
    "device may take another way than on a GPU.",
    "The context's size is an estimate. Memory that libraries take behind PyTorch's back (cuBLAS, "
    "NCCL, "
    "lazily loaded kernels) is not in it: leave some hundred MiB of headroom.",
};

#define N_NOTES (sizeof(notes) / sizeof(notes[0]))

static void bytes(struct plim_buf *out, const char *label, uint64_t n)
{
    char buf[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "  %-34s %12s\n", label, plim_bytes_format(buf, n));
}

static const struct plim_dryrun_process *main_of(const struct plim_dryrun_run *run)
{
    return run->main == PLIM_NO_ID ? NULL : &run->processes.items[run->main];
}

static void command(struct plim_buf *out, const struct plim_dryrun_ask *ask)
{
    for (size_t i = 0; i < ask->setup.n_command; i++) {
        plim_buf_printf(out, "%s%s", i == 0 ? "" : " ", ask->setup.command[i]);
    }
}

/* ---- text */

static void outcome_text(struct plim_buf *out, const struct plim_dryrun_run *run)
{
    char buf[PLIM_BYTES_TEXT];
    const struct plim_dryrun_process *p = main_of(run);
    switch (run->outcome) {
    case PLIM_DRYRUN_FITS:
        plim_buf_printf(out, "FITS%s", run->stopped ? " (until it was stopped)" : "");
        if (p != NULL && p->ooms > 0) {
            plim_buf_printf(out,
                            ", after %" PRIu64 " out-of-memory error%s that the program caught",
                            p->ooms, p->ooms == 1 ? "" : "s");
        }
        break;
    case PLIM_DRYRUN_OUT_OF_MEMORY:
        plim_buf_text(out, "DOES NOT FIT: out of memory");
        for (uint32_t i = 0; i < run->processes.n; i++) {
            if (run->processes.items[i].oom_request > 0) {
                plim_buf_printf(out, " at a request of %s",
                                plim_bytes_format(buf, run->processes.items[i].oom_request));
                break;
            }
        }
        break;
    case PLIM_DRYRUN_FAILED:
        plim_buf_printf(out, "FAILED with exit status %d, not by running out of memory",
                        run->exit_status);
        break;
    case PLIM_DRYRUN_CRASHED:
        plim_buf_printf(out, "CRASHED: ended by signal %d; below is what was recorded until then",
                        run->signal);
        break;
    case PLIM_DRYRUN_TIMED_OUT:
        plim_buf_text(out,
                      "DID NOT END in the time given (--timeout). It may wait for a value that "
                      "only a real device computes");
        break;
    case PLIM_DRYRUN_NO_CUDA:
        plim_buf_text(out, "DID NOT USE THE GPU");
        break;
    case PLIM_DRYRUN_CPU_BUILD:
        plim_buf_text(out, "PYTORCH HAS NO CUDA HERE");
        break;
    }
    plim_buf_char(out, '\n');
}

static void error_text(struct plim_buf *out, const struct plim_dryrun_run *run,
                       const struct plim_text_style *style)
{
    for (uint32_t i = 0; i < run->processes.n; i++) {
        const struct plim_dryrun_process *p = &run->processes.items[i];
        if (run->outcome == PLIM_DRYRUN_CPU_BUILD && p->build[0] != '\0') {
            plim_buf_printf(out,
                            "  torch %s is a %s build, which no GPU can help, simulated or real.\n",
                            p->torch, strcmp(p->build, "rocm") == 0 ? "ROCm" : "CPU");
            plim_buf_text(out, "  Install the CUDA build: pip install torch (without +cpu), or "
                               "pip install --no-deps for the wheel alone.\n");
            return;
        }
        if (run->outcome != PLIM_DRYRUN_FITS && p->error[0] != '\0') {
            plim_text_wrap(out, "  ended by: ", p->error, style);
            return;
        }
    }
}

static void numbers_text(struct plim_buf *out, const struct plim_dryrun_run *run)
{
    const struct plim_dryrun_process *p = main_of(run);
    if (run->total == 0) {
        return;
    }
    if (p != NULL) {
        bytes(out, "peak allocated by PyTorch", p->peak_allocated);
        bytes(out, "peak reserved by PyTorch", p->peak_reserved);
    }
    bytes(out, "context of each process (estimate)", run->context);
    if (run->external > 0) {
        bytes(out, "held by others", run->external);
    }
    bytes(out, "peak use of the device", run->device_peak);
    bytes(out, "device", run->total);
    bytes(out, "headroom", plim_dryrun_headroom(run));
}

static void processes_text(struct plim_buf *out, const struct plim_dryrun_run *run)
{
    char a[PLIM_BYTES_TEXT];
    uint32_t users = 0;
    for (uint32_t i = 0; i < run->processes.n; i++) {
        users += run->processes.items[i].used_cuda;
    }
    for (uint32_t i = 0; users > 1 && i < run->processes.n; i++) {
        const struct plim_dryrun_process *p = &run->processes.items[i];
        if (p->used_cuda) {
            plim_buf_printf(out, "  process %" PRIu64 ": peak reserved %s, %.60s\n", p->pid,
                            plim_bytes_format(a, p->peak_reserved), p->command);
        }
    }
}

static void missing_text(struct plim_buf *out, const struct plim_dryrun_run *run)
{
    for (uint32_t i = 0; i < run->n_missing; i++) {
        plim_buf_printf(out, "  %s was called, which the simulated GPU does not have: it refused\n",
                        run->missing[i]);
    }
}

static void run_name(struct plim_buf *out, const struct plim_dryrun_run *run)
{
    if (run->nominal_gib > 0) {
        plim_buf_printf(out, "%" PRIu32 " GiB card", run->nominal_gib);
    } else {
        plim_buf_printf(out, "%s",
                        run->conf == NULL || run->conf[0] == '\0' ? "default settings" : run->conf);
    }
}

static void table_text(struct plim_buf *out, const struct plim_dryrun_answer *a)
{
    char x[PLIM_BYTES_TEXT], y[PLIM_BYTES_TEXT], z[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "\n  %-38s %11s %11s %11s %8s\n", "", "allocated", "reserved", "headroom",
                    "retries");
    for (uint32_t i = 0; i < a->runs.n; i++) {
        const struct plim_dryrun_run *run = &a->runs.items[i];
        const struct plim_dryrun_process *p = main_of(run);
        struct plim_buf name = {0};
        run_name(&name, run);
        plim_buf_printf(out, "  %-38.38s %11s %11s %11s %8" PRIu64 "  %s\n",
                        name.p == NULL ? "" : name.p,
                        plim_bytes_format(x, p == NULL ? 0 : p->peak_allocated),
                        plim_bytes_format(y, p == NULL ? 0 : p->peak_reserved),
                        plim_bytes_format(z, plim_dryrun_headroom(run)),
                        p == NULL ? 0 : p->alloc_retries, plim_dryrun_outcome_text(run->outcome));
        plim_buf_fini(&name);
    }
}

static void smallest_text(struct plim_buf *out, const struct plim_dryrun_answer *a)
{
    char buf[PLIM_BYTES_TEXT];
    if (a->smallest == PLIM_NO_ID) {
        plim_buf_text(out, "\nNo card fits.\n");
        return;
    }
    const struct plim_dryrun_run *run = &a->runs.items[a->smallest];
    plim_buf_printf(out, "\nSmallest card that fits: %" PRIu32 " GiB (%s usable", run->nominal_gib,
                    plim_bytes_format(buf, run->total));
    plim_buf_printf(out, ", %s left).\n", plim_bytes_format(buf, plim_dryrun_headroom(run)));
}

static void one_text(struct plim_buf *out, const struct plim_dryrun_run *run,
                     const struct plim_text_style *style)
{
    outcome_text(out, run);
    error_text(out, run, style);
    numbers_text(out, run);
    processes_text(out, run);
    missing_text(out, run);
}

void plim_text_dryrun(struct plim_buf *out, const struct plim_dryrun_answer *a,
                      const struct plim_text_style *style)
{
    const struct plim_dryrun_run *last = &a->runs.items[a->runs.n - 1];
    char buf[PLIM_BYTES_TEXT];
    plim_buf_text(out, "Dry run of ");
    command(out, &a->ask);
    if (last->total > 0 && !a->ask.find_smallest) {
        plim_buf_printf(out, "\non a simulated %s of %s%s\n\n",
                        strcmp(last->card, "Simulated GPU") == 0 ? "GPU" : last->card,
                        plim_bytes_format(buf, last->total),
                        last->n_devices > 1 ? ", and others" : "");
    } else {
        plim_buf_text(out, "\n\n");
    }
    if (a->runs.n == 1) {
        one_text(out, last, style);
    } else {
        table_text(out, a);
    }
    if (a->ask.find_smallest) {
        smallest_text(out, a);
    }
    if (a->judged != PLIM_NO_ID) {
        if (a->runs.n > 1) {
            plim_buf_text(out, "\nOf these, ");
            run_name(out, &a->runs.items[a->judged]);
            plim_buf_text(out, ":\n");
        }
        plim_text_heading(out, "Diagnosis", style);
        plim_text_diagnosis(out, &a->snapshot, &a->diagnosis, style);
        if (a->runs.items[a->judged].has_snapshot) {
            plim_buf_printf(out, "\nSnapshot: %s\n", a->ask.snapshot);
        }
    }
    plim_text_heading(out, "What this is worth", style);
    for (size_t i = 0; i < N_NOTES; i++) {
        plim_text_wrap(out, "  - ", notes[i], style);
    }
}

void plim_text_gpus(struct plim_buf *out)
{
    const char *name, *key;
    uint64_t total;
    char buf[PLIM_BYTES_TEXT];
    for (uint32_t i = 0; (key = plim_dryrun_card_key(i, &name, &total)) != NULL; i++) {
        plim_buf_printf(out, "%-18s %11s  %s\n", key, plim_bytes_format(buf, total), name);
    }
}

/* ---- JSON */

static void json_process(struct plim_jsonw *w, const struct plim_dryrun_process *p)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "pid", p->pid);
    plim_jsonw_kv_text(w, "command", p->command);
    plim_jsonw_kv_text(w, "torch", p->torch);
    plim_jsonw_kv_text(w, "build", p->build);
    plim_jsonw_kv_bool(w, "used_cuda", p->used_cuda);
    plim_jsonw_kv_bool(w, "ended", p->ended);
    if (p->used_cuda) {
        plim_jsonw_kv_u64(w, "device", p->device);
        plim_jsonw_kv_u64(w, "peak_allocated_bytes", p->peak_allocated);
        plim_jsonw_kv_u64(w, "peak_reserved_bytes", p->peak_reserved);
        plim_jsonw_kv_u64(w, "num_alloc_retries", p->alloc_retries);
        plim_jsonw_kv_u64(w, "num_ooms", p->ooms);
    }
    if (p->oom_request > 0) {
        plim_jsonw_kv_u64(w, "oom_request_bytes", p->oom_request);
        plim_jsonw_kv_u64(w, "oom_free_bytes", p->oom_free);
    }
    if (p->error[0] != '\0') {
        plim_jsonw_kv_text(w, "error", p->error);
    }
    plim_jsonw_end(w);
}

static void json_device(struct plim_jsonw *w, const struct plim_dryrun_run *run)
{
    const struct plim_dryrun_process *p = main_of(run);
    plim_jsonw_kv_text(w, "card", run->card);
    plim_jsonw_kv_u64(w, "total_bytes", run->total);
    plim_jsonw_kv_u64(w, "nvml_total_bytes", run->nvml_total);
    plim_jsonw_kv_u64(w, "context_bytes", run->context);
    plim_jsonw_kv_u64(w, "external_bytes", run->external);
    plim_jsonw_key(w, "peak");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "device_bytes", run->device_peak);
    if (p != NULL) {
        plim_jsonw_kv_u64(w, "allocated_bytes", p->peak_allocated);
        plim_jsonw_kv_u64(w, "reserved_bytes", p->peak_reserved);
    }
    plim_jsonw_end(w);
    plim_jsonw_kv_u64(w, "headroom_bytes", plim_dryrun_headroom(run));
}

static void json_run(struct plim_jsonw *w, const struct plim_dryrun_run *run)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "gpu", run->gpu);
    plim_jsonw_kv_text(w, "conf", run->conf);
    plim_jsonw_kv_text(w, "outcome", plim_dryrun_outcome_text(run->outcome));
    plim_jsonw_kv_bool(w, "fits", plim_dryrun_fits(run));
    if (run->signal != 0) {
        plim_jsonw_kv_i64(w, "signal", run->signal);
    } else {
        plim_jsonw_kv_i64(w, "exit_status", run->exit_status);
    }
    plim_jsonw_kv_real(w, "seconds", (double)run->wall_ns / 1e9);
    if (run->nominal_gib > 0) {
        plim_jsonw_kv_u64(w, "nominal_gib", run->nominal_gib);
    }
    if (run->total > 0) {
        json_device(w, run);
    }
    plim_jsonw_key(w, "processes");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < run->processes.n; i++) {
        json_process(w, &run->processes.items[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "missing");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < run->n_missing; i++) {
        plim_jsonw_text(w, run->missing[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

static void json_judged(struct plim_jsonw *w, const struct plim_dryrun_answer *a)
{
    plim_jsonw_key(w, "judged_run");
    if (a->judged == PLIM_NO_ID) {
        plim_jsonw_null(w);
        return;
    }
    plim_jsonw_u64(w, a->judged);
    plim_json_verdict(w, &a->diagnosis.set.verdict);
    plim_json_finding(w, &a->diagnosis.set);
    if (a->runs.items[a->judged].has_snapshot) {
        plim_jsonw_kv_text(w, "snapshot", a->ask.snapshot);
    }
}

void plim_json_dryrun(struct plim_jsonw *w, const struct plim_dryrun_answer *a)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.dryrun/1");
    plim_jsonw_key(w, "command");
    plim_jsonw_array(w);
    for (size_t i = 0; i < a->ask.setup.n_command; i++) {
        plim_jsonw_text(w, a->ask.setup.command[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "runs");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < a->runs.n; i++) {
        json_run(w, &a->runs.items[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_key(w, "smallest_gib");
    if (a->smallest == PLIM_NO_ID) {
        plim_jsonw_null(w);
    } else {
        plim_jsonw_u64(w, a->runs.items[a->smallest].nominal_gib);
    }
    json_judged(w, a);
    plim_jsonw_key(w, "notes");
    plim_jsonw_array(w);
    for (size_t i = 0; i < N_NOTES; i++) {
        plim_jsonw_text(w, notes[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}
