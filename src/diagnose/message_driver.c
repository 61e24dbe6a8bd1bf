/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges of failures without an allocator's figures: bare driver errors, engines at start, ggml,
 * killed processes, and growth that somebody wrote down. Circumstances (the call that failed, the
 * phase, numbers printed nearby) decide what can be decided.
 */

#include "diagnose/message_internal.h"

/* nvidia-smi was pasted along and shows a full device. */
static bool pasted_full(struct plim__case *c)
{
    struct plim_amount used = plim__field(c, PLIM_OOM_SMI_USED),
                       total = plim__field(c, PLIM_OOM_SMI_TOTAL);
    if (!plim_known(used) || !plim_known(total) || used.bytes > total.bytes ||
        used.bytes < total.bytes / 10 * 9) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.55,
                  plim__say(c,
                            "nvidia-smi shows a device with %s of %s in use. Unless this program "
                            "was running when it was called, somebody else has that.",
                            plim__size(c, used.bytes), plim__size(c, total.bytes)));
    plim__evidence_amount(c, used,
                          plim__say(c, "nvidia-smi: %s of %s.", plim__size(c, used.bytes),
                                    plim__size(c, total.bytes)));
    plim__advise_external(c);
    plim__unknown(c, "whether the program uses that very device, and what is on it before the "
                     "start: CUDA_VISIBLE_DEVICES, `nvidia-smi`");
    return true;
}

void plim__judge_driver(struct plim__case *c)
{
    if (plim__saw(c, PLIM_OOM_MEANS_AT_PIN)) {
        plim__verdict(
            c, PLIM_CLASS_HOST_MEMORY, PLIM_SUBCLASS_PINNED_HOST, 0.8,
            "The failing call asks for page-locked host memory: the host refused, not the "
            "device, although the error text is the same.");
        plim__evidence(c, PLIM_HOW_MEASURED,
                       "A page-locking call (pin_memory, cudaHostAlloc, "
                       "cudaHostRegister) stands next to the error.");
        plim__advice(
            c,
            "Check `ulimit -l`, `free -m`, the cgroup's limit and vm.max_map_count; on WSL2 "
            "the memory= line of .wslconfig",
            "Page-locked memory is limited by each of these.");
        plim__advice(c, "Pin less: pin_memory=False, smaller prefetch, no pinned offload buffers",
                     "It cannot be swapped, so it is the first to run out.");
        return;
    }
    if (plim__saw(c, PLIM_OOM_MEANS_GROWTH_STATED)) {
        plim__judge_growth(c);
        return;
    }
    if (plim__saw(c, PLIM_OOM_MEANS_AT_INIT)) {
        plim__verdict(
            c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.7,
            "The very first call already failed: the device was full before this process had "
            "anything on it.");
        plim__evidence(c, PLIM_HOW_MEASURED, "The stack is inside CUDA initialization.");
        plim__advise_external(c);
        return;
    }
    bool engine =
        plim__saw(c, PLIM_OOM_MEANS_ENGINE_VLLM) || plim__saw(c, PLIM_OOM_MEANS_ENGINE_SGLANG);
    if (engine &&
        (plim__saw(c, PLIM_OOM_MEANS_AT_CAPTURE) || plim__saw(c, PLIM_OOM_MEANS_ENGINE_KV))) {
        plim__verdict(
            c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ENGINE_BUDGET, 0.65,
            "The driver refused memory outside PyTorch's allocator after the engine had taken "
            "its share for the KV cache: the share is too large.");
        plim__evidence(c, PLIM_HOW_MEASURED,
                       plim__saw(c, PLIM_OOM_MEANS_AT_CAPTURE)
                           ? "It failed while CUDA graphs were captured."
                           : "The KV cache had been sized before.");
        plim__advise_engine(c);
        return;
    }
    if (pasted_full(c)) {
        return;
    }
    plim__verdict(
        c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.3,
        "The driver refused memory outside the framework's allocator. The text has no figures; "
        "it can be device or page-locked host memory, full with anybody's data.");
    plim__advise_unknown(c);
    plim__unknown(
        c, "which call failed: the stack trace with CUDA_LAUNCH_BLOCKING=1. cudaHostAlloc or "
           "pin_memory means host memory; a first call means that the device was full before");
}

void plim__judge_cumem(struct plim__case *c)
{
    struct plim_amount reserved = plim__field(c, PLIM_OOM_STAT_RESERVED);
    const struct plim_oom_value *live = &c->facts->field[PLIM_OOM_STAT_ALLOCATED];
    if (plim_known(reserved) && live->set && reserved.bytes > live->n + 2 * PLIM_GIB) {
        plim__verdict(
            c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_SAME_PROCESS, 0.75,
            plim__say(c,
                      "Two allocators share the device: PyTorch's keeps %s cached that the "
                      "engine's sleep-mode allocator cannot reach.",
                      plim__size(c, reserved.bytes - live->n)));
        plim__evidence_amount(c, reserved,
                              plim__say(c, "PyTorch: %s reserved, %s allocated.",
                                        plim__size(c, reserved.bytes), plim__size(c, live->n)));
        plim__advice(
            c, "Call torch.cuda.empty_cache() on the training side before the engine wakes up",
            "Here it does help: wholly free segments of one allocator block the other.");
        return;
    }
    plim__verdict(
        c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
        "The engine's second allocator (sleep mode) was refused by the driver. Whether another "
        "allocator in the process, another process, or the model itself fills the device is not "
        "in the text.");
    plim__unknown(
        c, "what PyTorch's own allocator keeps at that moment: torch.cuda.memory_reserved() and "
           "memory_allocated(); and `nvidia-smi`");
}

/* The loader's lines tell how the model was spread over the devices. */
static void note_uneven_split(struct plim__case *c)
{
    struct plim_amount least = plim__field(c, PLIM_OOM_BUFFER_MIN);
    struct plim_amount most = plim__field(c, PLIM_OOM_BUFFER_MAX);
    if (plim_known(least) && plim_known(most) && most.bytes > 2 * least.bytes) {
        plim__evidence_amount(
            c, most,
            plim__say(c,
                      "The model is split unevenly: buffers from %s to %s for one "
                      "device.",
                      plim__size(c, least.bytes), plim__size(c, most.bytes)));
    }
}

void plim__judge_ggml(struct plim__case *c)
{
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST);
    struct plim_amount total = plim__field(c, PLIM_OOM_TOTAL), free = plim__field(c, PLIM_OOM_FREE);
    struct plim_amount plan = plim__field(c, PLIM_OOM_PLAN);
    c->set->ledger.request = request;
    c->set->ledger.total = total;
    if (c->facts->seen[PLIM_OOM_MEANS_RECOVERED] >= c->event->line) {
        plim__verdict(
            c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_WARNING_ONLY, 0.85,
            "A first attempt was refused memory; the program says that it tries again with less.");
        plim__advice(c, "Nothing has to be done if it starts after that",
                     "Without pipeline parallelism the compute buffers are smaller.");
        return;
    }
    note_uneven_split(c);
    struct plim_amount need = plim_known(plan) ? plan : request;
    struct plim_amount room = plim_known(free) ? free : total;
    bool beyond = plim_known(need) && plim_known(room) && need.bytes > room.bytes;
    bool huge = plim_known(request) && request.bytes >= PLIM__HUGE_REQUEST;
    if (beyond || huge) {
        plim__verdict(c, PLIM_CLASS_CAPACITY,
                      plim_known(plan) ? PLIM_SUBCLASS_WORKING_SET : PLIM_SUBCLASS_SINGLE_REQUEST,
                      beyond ? 0.8 : 0.65,
                      beyond ? "What was to be put on the device is more than it has free."
                             : "One buffer is larger than what nearly all devices have in all.");
        plim__evidence_amount(c, need,
                              beyond
                                  ? plim__say(c, "%s needed, %s there.", plim__size(c, need.bytes),
                                              plim__size(c, room.bytes))
                                  : plim__say(c, "%s in one buffer.", plim__size(c, need.bytes)));
    } else {
        plim__verdict(
            c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
            plim_known(request)
                ? plim__say(c,
                            "The device refused a buffer of %s; how much of it was free, and "
                            "who holds the rest, is not in the text.",
                            plim__size(c, request.bytes))
                : "The device refused memory; who holds it is not in the text.");
        plim__unknown(c,
                      "what was free before the model was loaded: `nvidia-smi`, and the loader's "
                      "lines `... buffer size = ...` for weights, KV cache and compute");
    }
    plim__advice(
        c,
        "Put less on the device: fewer layers (-ngl, num_gpu), a smaller context (-c, num_ctx), "
        "a smaller batch (-ub)",
        "Weights scale with the layers, KV cache with the context, the compute buffer with the "
        "batch.");
    plim__advice(
        c, "Halve the KV cache: --cache-type-k q8_0 --cache-type-v q8_0 with flash attention (-fa)",
        "Where quality allows it.");
}

/* Apple's GPUs: unified memory, of which the system lets one process keep a "working set" resident. */
void plim__judge_metal(struct plim__case *c)
{
    struct plim_amount used = plim__field(c, PLIM_OOM_IN_USE),
                       most = plim__field(c, PLIM_OOM_LIMIT);
    bool over = plim_known(used) && plim_known(most) && used.bytes > most.bytes;
    c->set->ledger.request = plim__field(c, PLIM_OOM_REQUEST);
    if (plim_known(used) && plim_known(most)) {
        c->set->ledger.capacity = most;
        plim__evidence_amount(c, used,
                              plim__say(c, "%s of Metal buffers, against a working set of %s.",
                                        plim__size(c, used.bytes), plim__size(c, most.bytes)));
    }
    if (c->event->meaning == PLIM_OOM_MEANS_METAL_OVERCOMMIT &&
        !plim__saw(c, PLIM_OOM_MEANS_METAL_FAILED)) {
        plim__verdict(c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_WARNING_ONLY, 0.8,
                      "A warning: more is allocated than the GPU should keep resident. The system "
                      "pages, and may refuse the next command.");
    } else if (over || c->event->meaning == PLIM_OOM_MEANS_METAL_OVERCOMMIT) {
        plim__verdict(c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.85,
                      "The buffers of the program are more than the GPU may keep resident, and a "
                      "command failed.");
    } else {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
                      "Metal had no memory for the GPU's command. It gives no figures, and unified "
                      "memory is shared with all other programs.");
        plim__unknown(c, "who uses the memory: Activity Monitor, `memory_pressure`, and what the "
                         "GPU may keep: `sysctl iogpu.wired_limit_mb`");
    }
    plim__advice(
        c,
        "Need less at once: a smaller or more strongly quantized model, a shorter context, "
        "a smaller batch (llama.cpp: -c, -ub; mlx: --max-kv-size, --prefill-step-size)",
        "Weights, KV cache and the buffers of one step have to be resident together.");
    plim__advice_full(
        c, &(struct plim_advice){.action = "Or let the GPU keep more: sudo sysctl "
                                           "iogpu.wired_limit_mb=N",
                                 .why = "By default it may keep two thirds to three quarters.",
                                 .risk = "the rest of the system has to live with what is left.",
                                 .applies_to = "macOS 14 and later."});
}

/* Free memory on start is less than the engine wants: somebody else's, or merely a context? */
void plim__judge_startup(struct plim__case *c)
{
    struct plim_amount free = plim__field(c, PLIM_OOM_FREE), total = plim__field(c, PLIM_OOM_TOTAL);
    struct plim_amount desired = plim__field(c, PLIM_OOM_DESIRED);
    const struct plim_oom_value *share = &c->facts->field[PLIM_OOM_UTILIZATION];
    c->set->ledger.moment = "before the engine started";
    c->set->ledger.total = total;
    c->set->ledger.request = desired;
    c->set->ledger.owner[PLIM_OWNER_FREE] = free;
    if (!plim_known(free) || !plim_known(total) || free.bytes > total.bytes) {
        plim__verdict(c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.6,
                      "The device was partly in use before the engine had allocated anything.");
        plim__advise_external(c);
        return;
    }
    struct plim_amount used = plim_amount(total.bytes - free.bytes, PLIM_HOW_COMPUTED);
    plim__evidence_amount(c, used,
                          plim__say(c, "%s total - %s free = %s in use before the start.",
                                    plim__size(c, total.bytes), plim__size(c, free.bytes),
                                    plim__size(c, used.bytes)));
    if (used.bytes <= PLIM__CONTEXT_MOST) {
        c->set->ledger.owner[PLIM_OWNER_PROCESS_OTHER] =
            plim_amount(used.bytes, PLIM_HOW_ESTIMATED);
        plim__verdict(
            c, PLIM_CLASS_CONFIGURATION, PLIM_SUBCLASS_ENGINE_BUDGET, 0.8,
            "Only a context is in use; the share asked for leaves no room even for that.");
        plim__advice(c,
                     share->set
                         ? plim__say(c, "Lower --gpu-memory-utilization from %.2f to %.2f",
                                     share->real, (double)free.bytes / (double)total.bytes - 0.01)
                         : "Lower --gpu-memory-utilization",
                     "It is a share of the whole device, context included.");
        return;
    }
    c->set->ledger.owner[PLIM_OWNER_OTHER_PROCESSES] = used;
    plim__verdict(
        c, PLIM_CLASS_EXTERNAL, PLIM_SUBCLASS_OTHER_PROCESS, 0.87,
        plim__say(c,
                  "%s of the device were in use before this engine allocated anything: they "
                  "belong to somebody else.",
                  plim__size(c, used.bytes)));
    if (plim_known(desired)) {
        plim__counterfactual(c, "no_other_processes", used.bytes, total.bytes >= desired.bytes,
                             plim__say(c, "without them: %s for the %s wanted",
                                       plim__size(c, total.bytes), plim__size(c, desired.bytes)));
    }
    plim__advise_external(c);
    plim__advice(c,
                 plim__say(c, "Or share the device: --gpu-memory-utilization %.2f",
                           (double)free.bytes / (double)total.bytes - 0.02),
                 "The share counts from the whole device, so it has to be below what is free.");
}

/* "Raise the share" and a CUDA failure in one text: no share works. */
void plim__judge_sglang(struct plim__case *c)
{
    plim__judge_fixed(c);
    if (!plim__saw(c, PLIM_OOM_MEANS_TORCH_OOM)) {
        return;
    }
    plim__verdict(
        c, PLIM_CLASS_CAPACITY, PLIM_SUBCLASS_WORKING_SET, 0.6,
        "With a smaller static share weights and cache do not fit, with a larger one the rest does "
        "not: the sum exceeds the device.");
    plim__evidence(c, PLIM_HOW_MEASURED, "Both opposite errors stand in the text.");
    c->set->advice.n = 0;
    plim__advice(c,
                 "Put fewer bytes on each device: a quantized model, --tp-size, a smaller "
                 "--chunked-prefill-size and --cuda-graph-max-bs",
                 "No value of --mem-fraction-static can help.");
}

void plim__judge_growth(struct plim__case *c)
{
    struct plim_amount first = plim__field(c, PLIM_OOM_GROWTH_FIRST);
    struct plim_amount last = plim__field(c, PLIM_OOM_GROWTH_LAST);
    if (plim_known(first) && plim_known(last) && last.bytes <= first.bytes + first.bytes / 20) {
        plim__verdict(c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_OTHER_ERROR, 0.6,
                      "The series of sizes in the text does not grow.");
        return;
    }
    plim__verdict(
        c, PLIM_CLASS_LEAK, PLIM_SUBCLASS_NONE, plim_known(first) ? 0.75 : 0.6,
        plim_known(first)
            ? plim__say(c, "Memory grew from %s to %s at unchanged work and did not level off.",
                        plim__size(c, first.bytes), plim__size(c, last.bytes))
            : "The text says that memory grows as the work goes on: something is kept that "
              "nobody uses any more.");
    if (plim_known(first)) {
        plim__evidence_amount(c, plim_amount(last.bytes - first.bytes, PLIM_HOW_COMPUTED),
                              plim__say(c, "%s more at the end of the series.",
                                        plim__size(c, last.bytes - first.bytes)));
    } else {
        plim__evidence(c, PLIM_HOW_GIVEN,
                       "Growth is stated in words; there are no two measurements.");
        plim__unknown(c, "two points in time: the same figure early and late, at the same work");
    }
    plim__advise_leak(c);
}

void plim__judge_killed(struct plim__case *c)
{
    struct plim_amount rss = plim__field(c, PLIM_OOM_HOST_RSS);
    struct plim_amount used = plim__field(c, PLIM_OOM_HOST_USED);
    struct plim_amount total = plim__field(c, PLIM_OOM_HOST_TOTAL);
    if (plim__saw(c, PLIM_OOM_MEANS_GROWTH_STATED) || plim__saw(c, PLIM_OOM_MEANS_HOST_GROWTH)) {
        plim__judge_growth(c);
        plim__evidence(c, PLIM_HOW_MEASURED,
                       "In the end the process was killed for the host's memory.");
        return;
    }
    if (c->event->meaning == PLIM_OOM_MEANS_HOST_KILLED &&
        plim__saw(c, PLIM_OOM_MEANS_NOT_OOMKILLED)) {
        plim__verdict(c, PLIM_CLASS_UNKNOWN, PLIM_SUBCLASS_NONE, 0.4,
                      "The container was killed (SIGKILL), but not marked OOMKilled: a failed "
                      "liveness probe, an eviction, or a kill of a child process do the same.");
        plim__unknown(c,
                      "who killed it: `kubectl describe pod` (Events), `kubectl get events`, and "
                      "`dmesg -T | grep -i oom` on the node");
        return;
    }
    plim__judge_fixed(c);
    if (plim_known(rss)) {
        plim__evidence_amount(
            c, rss, plim__say(c, "The process held %s of host memory.", plim__size(c, rss.bytes)));
    }
    if (plim_known(used) && plim_known(total)) {
        plim__evidence_amount(c, used,
                              plim__say(c, "The node used %s of %s.", plim__size(c, used.bytes),
                                        plim__size(c, total.bytes)));
    }
    const struct plim_oom_value *share = &c->facts->field[PLIM_OOM_HOST_SHARE];
    if (share->set && share->real <= 100) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       plim__say(c, "Host memory was %.0f %% full shortly before.", share->real));
    }
    if (plim__saw(c, PLIM_OOM_MEANS_AT_SAVE)) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       "Checkpoint shards of all ranks were being read into host "
                       "memory just before.");
    }
}
