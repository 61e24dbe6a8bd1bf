/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice for each class, with the direction in which to turn each knob, and only where it applies:
 * nothing that the text shows to be set already, nothing that the version or platform does not have,
 * nothing that the engine forbids.
 */

#include "diagnose/message_internal.h"

/* What differs between the builds of PyTorch for other devices. */
struct build {
    const char *format;   /* of their messages */
    const char *variable; /* of the environment, with allocator settings; NULL when none helps */
    const char *module;   /* with _record_memory_history(); NULL when not known */
};

static const struct build *build_of(const struct plim__case *c)
{
    static const struct build builds[] = {
        {"torch-cuda", "PYTORCH_CUDA_ALLOC_CONF", "torch.cuda.memory"},
        {"torch-hip", "PYTORCH_HIP_ALLOC_CONF", "torch.cuda.memory"},
        {"torch-npu", "PYTORCH_NPU_ALLOC_CONF", "torch_npu.npu.memory"},
        {"torch-musa", "PYTORCH_MUSA_ALLOC_CONF", NULL},
        {"torch-mlu", "PYTORCH_MLU_ALLOC_CONF", NULL},
        {"torch-xpu", NULL, NULL},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(builds); i++) {
        if (strcmp(c->event->format, builds[i].format) == 0) {
            return &builds[i];
        }
    }
    return &builds[0];
}

/* The environment variable that this version of the build reads for allocator settings, or NULL. */
static const char *conf_variable(const struct plim__case *c)
{
    const char *versions = c->event->versions ? c->event->versions : "";
    return strcmp(versions, "2.10 and later") == 0 ? "PYTORCH_ALLOC_CONF" : build_of(c)->variable;
}

static bool older_than_2_1(const struct plim__case *c)
{
    return c->event->versions && (c->event->versions[0] == '1');
}

/* A circumstance and what helps there; the first that was seen is used. */
struct circumstance {
    enum plim_oom_meaning seen;
    const char *action;
    const char *why;
};

static const struct circumstance capacity_steps[] = {
    {PLIM_OOM_MEANS_AT_LOAD,
     "Load fewer or smaller weights: quantize (8 or 4 bit), device_map=\"auto\" with offload, or "
     "more "
     "devices",
     "It failed while the model was loaded, before any work."},
    {PLIM_OOM_MEANS_AT_PROFILE,
     "Lower what the profile run uses: max_num_batched_tokens, max_num_seqs, images per prompt",
     "It failed in the engine's profile run, which uses the largest batch allowed."},
    {PLIM_OOM_MEANS_AT_VAE,
     "Decode in tiles or slices (vae.enable_tiling(), tiled VAE decode node)",
     "The VAE's activations grow with the pixels and are the peak of most image pipelines."},
    {PLIM_OOM_MEANS_AT_LOGITS, "Compute the loss in chunks, or on fewer positions",
     "Logits are batch x sequence x vocabulary, often the largest single tensor."},
    {PLIM_OOM_MEANS_AT_ATTENTION,
     "Use memory-efficient attention (scaled_dot_product_attention, flash attention, slicing)",
     "Plain attention needs memory that grows with the square of the sequence."},
    {PLIM_OOM_MEANS_AT_SDPA,
     "Shorten what one attention call sees: sequence, resolution, batch; or slice it",
     "The memory-efficient kernels are in use already (unless a mask or data type rules them "
     "out)."},
    {PLIM_OOM_MEANS_AT_OPTIMIZER,
     "Use a smaller optimizer state (8-bit Adam, Adafactor) or shard it (ZeRO, FSDP)",
     "It failed in the optimizer's step: Adam keeps two more copies of the parameters."},
    {PLIM_OOM_MEANS_AT_BACKWARD,
     "Checkpoint activations (gradient_checkpointing_enable()) or use a smaller micro-batch with "
     "gradient accumulation",
     "It failed in the backward pass, where activations of all layers are alive."},
};

void plim__advise_capacity(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    uint64_t missing = plim_known(b->request) && plim_known(b->free)
                           ? plim_sub_sat(b->request.bytes, b->free.bytes)
                           : 0;
    struct plim_amount effect =
        missing ? plim_amount(missing, PLIM_HOW_COMPUTED) : (struct plim_amount){0};
    bool engine =
        plim__saw(c, PLIM_OOM_MEANS_ENGINE_VLLM) || plim__saw(c, PLIM_OOM_MEANS_ENGINE_SGLANG);
    /* Engines build their layers inside `with device:`, and nothing else. */
    bool loading = plim__saw(c, PLIM_OOM_MEANS_AT_LOAD) || plim__saw(c, PLIM_OOM_MEANS_AT_BUILD);
    if (engine && loading) {
        plim__advice(
            c,
            "Put fewer bytes of weights on each device: a quantized model, or more devices "
            "(--tensor-parallel-size, --tp-size)",
            "It failed while weights were loaded; the memory share of the engine does not matter "
            "yet.");
        return;
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(capacity_steps); i++) {
        const struct circumstance *step = &capacity_steps[i];
        bool done = step->seen == PLIM_OOM_MEANS_AT_BACKWARD &&
                    plim__saw(c, PLIM_OOM_MEANS_CHECKPOINTING_ON);
        if (plim__saw(c, step->seen) && !done) {
            plim__advice(c, step->action, step->why);
            break;
        }
    }
    plim__advice_full(
        c, &(struct plim_advice){
               .action = missing ? plim__say(c,
                                             "Need less at once, by at least %s: smaller batch, "
                                             "shorter sequence, lower resolution or precision",
                                             plim__size(c, missing))
                                 : "Need less at once: smaller batch, shorter sequence, lower "
                                   "resolution or precision",
               .why = "The bytes have to live at the same time; allocator settings and "
                      "empty_cache() cannot change that.",
               .effect = effect});
    if (plim__saw(c, PLIM_OOM_MEANS_ENGINE_COMFY) ||
        plim__saw(c, PLIM_OOM_MEANS_ENGINE_DIFFUSERS)) {
        plim__advice(c,
                     "Keep only one component on the device: --lowvram, enable_model_cpu_offload()",
                     "Text encoder, denoiser and VAE are not needed at the same time.");
    }
    if (b->live.how && b->total.how && b->live.bytes > b->total.bytes) {
        plim__advice(c, "Turn off \"CUDA - Sysmem Fallback Policy\" in the NVIDIA control panel",
                     "Then it fails early instead of running many times slower from host memory.");
    }
}

/* The allocator's own setting against fragmentation, where the build and the engine allow one. */
static void advise_setting(struct plim__case *c)
{
    bool windows = plim__saw(c, PLIM_OOM_MEANS_ON_WINDOWS);
    bool forbidden =
        plim__saw(c, PLIM_OOM_MEANS_SLEEP_MODE) || plim__saw(c, PLIM_OOM_MEANS_CUMEM_OOM);
    bool on = plim__saw(c, PLIM_OOM_MEANS_EXPANDABLE_ON);
    bool split = plim__saw(c, PLIM_OOM_MEANS_SPLIT_SET);
    const char *conf = conf_variable(c);
    struct plim_amount effect = c->books.gap;
    effect.how = plim_known(effect) ? PLIM_HOW_ESTIMATED : PLIM_HOW_UNKNOWN;
    if (!on && !forbidden && !windows && !older_than_2_1(c)) {
        plim__advice_full(
            c, &(struct plim_advice){
                   .action = plim__say(c, "%s=expandable_segments:True", conf),
                   .why = "Segments then grow in place, and free pages of partly used segments can "
                          "serve a large request.",
                   .effect = effect,
                   .risk = "not with CUDA IPC between processes (custom all-reduce, some "
                           "dataloaders) or an engine's sleep mode.",
                   .applies_to = "PyTorch 2.1 and later, Linux."});
    } else if (!on && !split) {
        plim__advice_full(
            c, &(struct plim_advice){
                   .action = plim__say(c, "%s=max_split_size_mb:256", conf),
                   .why = "Blocks above that size are not split, so that large requests find large "
                          "blocks again.",
                   .effect = effect,
                   .risk = "more memory held for the same work when the value is small.",
                   .applies_to = windows     ? "Windows, where expandable segments do not exist."
                                 : forbidden ? "engines with their own virtual memory allocator, "
                                               "which forbid expandable segments."
                                             : "PyTorch 1.10 to 2.0; from 2.1 on prefer "
                                               "expandable_segments."});
    }
}

void plim__advise_fragmentation(struct plim__case *c)
{
    if (conf_variable(c)) {
        advise_setting(c);
    }
    if (plim__saw(c, PLIM_OOM_MEANS_EXPANDABLE_ON) || !conf_variable(c)) {
        plim__advice(c, "Make shapes repeat: pad to a few sizes, warm up with the largest first",
                     "No setting is left to turn; what remains comes from many different sizes "
                     "kept alive together.");
    }
    if (c->set->verdict.subclass == PLIM_SUBCLASS_PRIVATE_POOL) {
        plim__advice(c, "Capture fewer graph sizes, or let them share one pool",
                     "Free blocks of a private pool can serve nobody else.");
    }
    if (build_of(c)->module) {
        plim__advice(c,
                     plim__say(c,
                               "Record a snapshot and run `plimsoll diagnose snapshot.pickle`: "
                               "%s._record_memory_history(), then _dump_snapshot() in the handler",
                               build_of(c)->module),
                     "It names the blocks that pin the segments, with their stacks.");
    }
}

void plim__advise_external(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    if (c->set->verdict.subclass == PLIM_SUBCLASS_SAME_PROCESS) {
        plim__advice(
            c,
            "Find the library: compare `nvidia-smi` with torch.cuda.memory_reserved() after "
            "each initialization step",
            "Candidates: tiny-cuda-nn, cuDNN and cuBLAS workspaces, NCCL, CUDA graphs, "
            "another framework in the same process.");
        plim__advice(
            c,
            "Leave room: torch.cuda.set_per_process_memory_fraction(f) before that library "
            "starts",
            "PyTorch's cache otherwise grows into what the other allocator needs.");
        return;
    }
    uint64_t worst = 0, pid = 0;
    for (size_t i = 0; i < c->facts->processes; i++) {
        const struct plim_oom_process *p = &c->facts->process[i];
        if (p->bytes > worst && p->bytes < PLIM__NO_SIZE &&
            !(b->own_by_arithmetic && p->bytes == b->own.bytes)) {
            worst = p->bytes;
            pid = p->pid;
        }
    }
    if (worst > 0 && pid > 0) {
        plim__advice_full(
            c, &(struct plim_advice){
                   .action = plim__say(c,
                                       "Look at process %llu (`ps -fp %llu`) and stop it if it is "
                                       "not needed",
                                       (unsigned long long)pid, (unsigned long long)pid),
                   .why = "It holds the most of what others have.",
                   .effect = plim_amount(worst, PLIM_HOW_MEASURED)});
    }
    plim__advice(
        c,
        "See who is there: `nvidia-smi --query-compute-apps=pid,used_memory --format=csv` on "
        "the host (`rocm-smi --showpids` on AMD)",
        "Leftover workers of an earlier run are the usual find; inside a container the list "
        "is empty.");
    plim__advice(c, "Use another device: CUDA_VISIBLE_DEVICES=N",
                 "One rank for each device, and no default device 0 for all of them.");
}

void plim__advise_leak(struct plim__case *c)
{
    plim__advice(
        c,
        "Record what grows: torch.cuda.memory._record_memory_history(max_entries=1000000), "
        "_dump_snapshot(\"a.pickle\") early and \"b.pickle\" late, then `plimsoll diff "
        "a.pickle b.pickle`",
        "It lists the stacks whose live bytes grew.");
    plim__advice(
        c,
        "Keep numbers, not graphs: loss.item(), tensor.detach().cpu(); clear the exception "
        "before trying again (sys.last_traceback, `except` blocks)",
        "A tensor kept with its history, or by the frames of a caught exception, keeps "
        "everything it was computed from.");
}

void plim__advise_engine(struct plim__case *c)
{
    const struct plim__books *b = &c->books;
    const struct plim_oom_value *now = &c->facts->field[PLIM_OOM_UTILIZATION];
    bool sglang = plim__saw(c, PLIM_OOM_MEANS_ENGINE_SGLANG);
    const char *flag = sglang ? "--mem-fraction-static" : "--gpu-memory-utilization";
    double step = 0.03;
    if (plim_known(b->request) && plim_known(b->total) && b->total.bytes > 0) {
        double exact = (double)b->request.bytes / (double)b->total.bytes;
        step = exact > step ? exact + 0.01 : step;
    }
    if (now->set && now->real > step && now->real <= 1) {
        plim__advice(
            c, plim__say(c, "Lower %s from %.2f to about %.2f", flag, now->real, now->real - step),
            "Lower, not raise: this was a run-time failure outside the KV cache; less cache "
            "leaves room for it.");
    } else {
        plim__advice(c, plim__say(c, "Lower %s by %.2f or more", flag, step),
                     "Lower, not raise: this was a failure outside the KV cache; less cache leaves "
                     "room for it.");
    }
    if (plim__saw(c, PLIM_OOM_MEANS_AT_CAPTURE) && !plim__saw(c, PLIM_OOM_MEANS_EAGER_ON)) {
        plim__advice(
            c,
            sglang ? "Or capture fewer graphs: --cuda-graph-max-bs 32"
                   : "Or capture fewer graphs: --max-num-seqs lower, or --enforce-eager",
            "It failed while CUDA graphs were captured; their memory is outside the budget.");
    }
}

void plim__advise_unknown(struct plim__case *c)
{
    bool windows = plim__saw(c, PLIM_OOM_MEANS_ON_WINDOWS) || plim__saw(c, PLIM_OOM_MEANS_ON_WSL);
    plim__unknown(c, "who holds the device's memory: run `nvidia-smi` (on the host, not in the "
                     "container) while the program is alive, and paste it below the message");
    plim__unknown(
        c, "what the program holds: print torch.cuda.memory_summary() in the handler, or dump a "
           "snapshot and run `plimsoll diagnose`");
    if (plim_known(c->books.free)) {
        plim__unknown(
            c, windows ? "the commit charge: Task Manager, Performance, Memory, \"Committed\"; "
                         "the page file has to back device memory"
                       : "the host's side: `free -m`, `ulimit -l`, `dmesg | tail`, and which "
                         "driver call failed (CUDA_LAUNCH_BLOCKING=1)");
    }
}
