/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of PyTorch's out-of-memory error, by release. One line, always the same order: request,
 * device, processes, cap, what PyTorch holds, advice.
 */

#include "alloc/torch.h"

#include <inttypes.h>

void plim_torch_size_text(uint64_t bytes, struct plim_buf *out)
{
    if (bytes <= PLIM_KIB) {
        plim_buf_printf(out, "%" PRIu64 " bytes", bytes);
    } else if (bytes <= PLIM_MIB) {
        plim_buf_printf(out, "%.2f KiB", (double)bytes / (double)PLIM_KIB);
    } else if (bytes <= PLIM_GIB) {
        plim_buf_printf(out, "%.2f MiB", (double)bytes / (double)PLIM_MIB);
    } else {
        plim_buf_printf(out, "%.2f GiB", (double)bytes / (double)PLIM_GIB);
    }
}

static void part(struct plim_buf *out, const char *before, uint64_t bytes, const char *after)
{
    plim_buf_text(out, before);
    plim_torch_size_text(bytes, out);
    plim_buf_text(out, after);
}

static const char *advice(enum plim_torch_oom_text kind)
{
    switch (kind) {
    case PLIM_TORCH_OOM_2_1:
        return " If reserved but unallocated memory is large try setting max_split_size_mb to "
               "avoid "
               "fragmentation.  See documentation for Memory Management and "
               "PYTORCH_CUDA_ALLOC_CONF";
    case PLIM_TORCH_OOM_2_2:
    case PLIM_TORCH_OOM_2_6:
        return " If reserved but unallocated memory is large try setting "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
               "documentation for Memory Management  "
               "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)";
    case PLIM_TORCH_OOM_2_10:
    default:
        return " If reserved but unallocated memory is large try setting "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
               "documentation for Memory Management  "
               "(https://docs.pytorch.org/docs/stable/notes/"
               "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
    }
}

static void processes_text(const struct plim_torch_process *processes, size_t n,
                           struct plim_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (processes[i].self) {
            plim_buf_text(out, "Including non-PyTorch memory, this process");
        } else {
            plim_buf_printf(out, "Process %" PRIu32, processes[i].pid);
        }
        part(out, " has ", processes[i].used, " memory in use. ");
    }
}

void plim_torch_oom_message(const struct plim_torch_failure *f, struct plim_torch_version version,
                            unsigned device, bool expandable,
                            const struct plim_torch_process *processes, size_t n,
                            struct plim_buf *out)
{
    struct plim_torch_rules rules = plim_torch_rules_of(version);
    plim_buf_text(out, "CUDA out of memory. ");
    if (f->kind == PLIM_TORCH_FAILED_TOO_LARGE) {
        plim_buf_text(out, "Tried to allocate more than 1EB memory.");
        return;
    }
    if (f->kind == PLIM_TORCH_FAILED_REJECTED) {
        part(out,
             "Allocation was preemptively rejected because it would exceed "
             "per_process_memory_fraction limit. Requested size: ",
             f->requested, "");
        return;
    }
    part(out, "Tried to allocate ", f->driver, ". ");
    plim_buf_printf(out, "GPU %u has a total %s of ", device,
                    rules.oom_text == PLIM_TORCH_OOM_2_1 ? "capacty" : "capacity");
    part(out, "", f->device_total, " of which ");
    part(out, "", f->device_free, " is free. ");
    processes_text(processes, n, out);
    if (f->cap != UINT64_MAX && rules.oom_text >= PLIM_TORCH_OOM_2_6) {
        part(out, "", f->cap, " allowed; ");
    }
    part(out, "Of the allocated memory ", f->allocated + f->private_free,
         " is allocated by PyTorch, ");
    if (f->private_free) {
        part(out, "with ", f->private_free, " allocated in private pools (e.g., CUDA Graphs), ");
    }
    part(out, "and ", f->reserved - f->allocated - f->private_free,
         " is reserved by PyTorch but unallocated.");
    if (!(rules.advice_needs_plain && expandable)) {
        plim_buf_text(out, advice(rules.oom_text));
    }
}
