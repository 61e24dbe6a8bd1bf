/* SPDX-License-Identifier: Apache-2.0 */

/* What a plan assumes, what would break it first, and the command to run. */

#include "serving/plan_int.h"
#include "serving/vllm_run.h"

#include <inttypes.h>

#define GIB(bytes) ((double)(bytes) / (double)PLIM_GIB)

static void assume(struct plim_plan *p, const char *text)
{
    if (p->n_assumptions < PLIM_COUNT_OF(p->assumptions) && text != NULL) {
        p->assumptions[p->n_assumptions++] = text;
    }
}

static void assume_flags(struct plim_arena *arena, struct plim_plan *p)
{
    for (size_t i = 0; i < p->flags.n_unknown; i++) {
        assume(p, plim_arena_sayf(arena,
                                  "%s is not a flag of vLLM %s that is known here: nothing "
                                  "was planned for it.",
                                  p->flags.unknown[i], p->request->engine_version));
    }
    for (size_t i = 0; i < p->flags.n; i++) {
        if (p->flags.items[i].effect == PLIM_VLLM_EFFECT_SOME) {
            assume(p, plim_arena_sayf(arena,
                                      "--%s takes device memory that is not modelled: the "
                                      "engine will find less than planned.",
                                      p->flags.items[i].name));
        }
    }
}

static void assume_conversion(struct plim_arena *arena, struct plim_plan *p)
{
    const char *unknown = plim__vllm_unconverted(p->request->geometry, &p->flags);
    if (unknown != NULL) {
        assume(p, plim_arena_sayf(arena,
                                  "What --quantization %s makes of a checkpoint that is not "
                                  "quantized is not modelled: weights are counted as stored.",
                                  unknown));
    }
}

static void assume_model(struct plim_arena *arena, struct plim_plan *p)
{
    const struct plim_geometry *g = p->request->geometry;
    if (!p->known_family) {
        bool known;
        const struct plim__vllm_family *like = plim__vllm_family_of(g, &known);
        assume(p,
               plim_arena_sayf(arena,
                               "Activations of %s are taken to be like those of %s: a quarter "
                               "may be wrong.",
                               g->architecture[0] != '\0' ? g->architecture : g->model_type,
                               like->architecture[0] != '\0' ? like->architecture : "most models"));
    }
    if (g->vision.depth > 0 && !p->start.settings.at.no_vision) {
        assume(p, "The encoder's activations at the largest image are not in the profile: add them "
                  "or limit the images (--limit-mm-per-prompt).");
    }
    for (uint32_t i = 0; i < g->n_notes; i++) {
        assume(p, g->notes[i]);
    }
}

static void assume_parallel(struct plim_arena *arena, struct plim_plan *p)
{
    const struct plim_placement *at = &p->start.settings.at;
    if (at->tp > 1) {
        assume(p, plim_arena_sayf(arena,
                                  "Numbers are those of one of %u cards; NCCL and the custom "
                                  "all-reduce take some hundred MiB on each before the "
                                  "baseline.",
                                  at->tp));
    }
    if (at->pp > 1) {
        assume(p, "Pipeline stages differ; these are the first one's numbers.");
    }
}

static void assumptions(struct plim_arena *arena, struct plim_plan *p)
{
    const struct plim_vllm_settings *s = &p->start.settings;
    if (!p->flags.serve && (plim_vllm_flag(&p->flags, "max-num-batched-tokens") == NULL ||
                            plim_vllm_flag(&p->flags, "max-num-seqs") == NULL)) {
        assume(p,
               plim_arena_sayf(arena,
                               "Batch sizes that were not given are those of the LLM class "
                               "(%" PRIu64 " tokens, %" PRIu64 " sequences); put `vllm serve` in "
                               "front of the flags for the server's.",
                               s->batched_tokens, s->seqs));
    }
    assume_flags(arena, p);
    assume_conversion(arena, p);
    assume_model(arena, p);
    assume_parallel(arena, p);
    if (s->compiled) {
        assume(p, "The first start compiles: Inductor times its kernels on a copy of the embedding "
                  "matrix. Later starts may find more cache.");
    }
    if (p->request->calibration == NULL) {
        assume(p, "Kernels and libraries outside the allocator are not planned for; --calibrate "
                  "with the engine's log measures them once for this host.");
    }
    if (p->request->card.unified) {
        assume(p, "Memory is shared with the host: what is free is what the system has available.");
    }
}

static const char *breaks_first(struct plim_arena *arena, const struct plim_plan *p)
{
    const struct plim_vllm_start *s = &p->start;
    if (!p->fits) {
        return NULL;
    }
    int64_t start_margin = (int64_t)s->baseline_free - (int64_t)s->requested;
    if (s->settings.kv_bytes == 0 && start_margin < p->margin_bytes) {
        return plim_arena_sayf(arena,
                               "Neighbours that take %.2f GiB before the start: the engine "
                               "then refuses.",
                               (double)start_margin / (double)PLIM_GIB);
    }
    if (s->settings.auto_len) {
        return plim_arena_sayf(arena, "Every %.0f MiB taken elsewhere shorten the longest request.",
                               (double)s->block_bytes / (double)PLIM_MIB);
    }
    return plim_arena_sayf(arena,
                           "%.2f GiB less for the cache: one request of %" PRIu64
                           " tokens would no longer fit.",
                           (double)p->margin_bytes / (double)PLIM_GIB, s->max_model_len);
}

#define SHELL_SIGNS " '{}[]()<>|;&\"\\$*?~#`\n\t"

/* A word as a shell takes it. */
static const char *shell_word(struct plim_arena *arena, const char *text)
{
    if (*text != '\0' && strpbrk(text, SHELL_SIGNS) == NULL) {
        return text;
    }
    const char *out = "'";
    for (const char *p = text; *p != '\0'; p++) {
        out = *p == '\'' ? plim_arena_sayf(arena, "%s'\\''", out)
                         : plim_arena_sayf(arena, "%s%c", out, *p);
    }
    return plim_arena_sayf(arena, "%s'", out);
}

/* Whether the flag of that name is set again by what is appended. */
static bool replaced(const char *flags, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = flags; (at = strstr(at, "--")) != NULL; at += 2) {
        if (strncmp(at + 2, name, n) == 0 && (at[2 + n] == ' ' || at[2 + n] == '\0')) {
            return true;
        }
    }
    return false;
}

/* The flags as given, with batch sizes spelled out so that the command means the same everywhere. */
static const char *command(struct plim_arena *arena, const struct plim_plan *p)
{
    const struct plim_vllm_settings *s = &p->start.settings;
    const char *text = "";
    const char *change = !p->fits && p->n_changes > 0 ? p->changes[0].flags : "";
    bool plain = p->flags.serve;
    for (size_t i = 0; i < p->flags.n_environment; i++) {
        text = plim_arena_sayf(arena, "%s%s ", text, p->flags.environment[i]);
    }
    text = plim_arena_sayf(arena, "%svllm serve %s", text, shell_word(arena, p->request->model));
    for (size_t i = 0; i < p->flags.n; i++) {
        const struct plim_vllm_flag *f = &p->flags.items[i];
        if (replaced(change, f->name)) {
            continue;
        }
        text = plim_arena_sayf(arena, "%s %s%s%s%s%s%s", text, f->on ? "--" : "--no-", f->name,
                               f->part != NULL ? "." : "", f->part != NULL ? f->part : "",
                               f->value != NULL ? " " : "",
                               f->value != NULL ? shell_word(arena, f->value) : "");
    }
    if (!plain && plim_vllm_flag(&p->flags, "max-num-batched-tokens") == NULL &&
        !replaced(change, "max-num-batched-tokens")) {
        text =
            plim_arena_sayf(arena, "%s --max-num-batched-tokens %" PRIu64, text, s->batched_tokens);
    }
    if (!plain && plim_vllm_flag(&p->flags, "max-num-seqs") == NULL &&
        !replaced(change, "max-num-seqs")) {
        text = plim_arena_sayf(arena, "%s --max-num-seqs %" PRIu64, text, s->seqs);
    }
    return *change != '\0' ? plim_arena_sayf(arena, "%s %s", text, change) : text;
}

void plim__plan_words(struct plim_arena *arena, struct plim_plan *p)
{
    assumptions(arena, p);
    p->breaks_first = breaks_first(arena, p);
    p->command = p->fits || p->n_changes > 0 ? command(arena, p) : NULL;
}
