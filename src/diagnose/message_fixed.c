/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meanings whose verdict does not depend on figures: one table of class, confidence, sentence and
 * advice. A meaning that needs arithmetic has a judge of its own (plim__judge_of).
 */

#include "diagnose/message_internal.h"

#define HOST_IMPOSSIBLE (UINT64_C(1) << 46) /* 64 TiB: more than single hosts have */

struct fixed {
    enum plim_oom_meaning meaning;
    enum plim_class cls;
    enum plim_subclass sub;
    double confidence;
    const char *summary;
    const char *action; /* nullable */
    const char *why;
    const char *action2; /* nullable */
    const char *why2;
    const char *unknown; /* nullable: what would tell more, with the command */
};

#define FIXED(meaning, cls, sub, confidence)                                                       \
    PLIM_OOM_MEANS_##meaning, PLIM_CLASS_##cls, PLIM_SUBCLASS_##sub, confidence

static const struct fixed table[] = {
    /* Engines. */
    {FIXED(VLLM_NO_BLOCKS, CONFIGURATION, ENGINE_BUDGET, 0.92),
     "Weights and activations use up the engine's budget; nothing is left for the KV cache. The "
     "device "
     "refused nothing.",
     "Raise --gpu-memory-utilization, if the device has more to give",
     "The budget is that share of the device; at start-up the direction is up.",
     "Or need less: a quantized model, --tensor-parallel-size, smaller --max-num-batched-tokens",
     "The budget has to hold weights, peak activations and graphs before any cache.", NULL},
    {FIXED(VLLM_MODEL_LEN, CONFIGURATION, ENGINE_BUDGET, 0.92),
     "The KV cache is too small for one request of the longest length; the engine checks that "
     "before it "
     "serves. The device refused nothing.",
     "Lower --max-model-len to what the cache holds, or raise --gpu-memory-utilization",
     "Shorter contexts need less cache; a larger share makes the cache larger.",
     "Or halve the cache's bytes: --kv-cache-dtype fp8", "Half the bytes for each token.", NULL},
    {FIXED(VLLM_PROFILING, EXTERNAL, OTHER_PROCESS, 0.85),
     "Free memory changed while the engine was measuring: another process on the device started or "
     "stopped.",
     "Start engines on one device one after another, and stop leftovers first",
     "The engine's arithmetic needs the others to stand still.", NULL, NULL,
     "who shares the device: `nvidia-smi` on the host"},
    {FIXED(VLLM_WARMUP, CONFIGURATION, ENGINE_BUDGET, 0.85),
     "The engine failed in its warm-up of the sampler with the largest number of sequences.",
     "Lower --max-num-seqs (it sizes the logits), or lower --gpu-memory-utilization",
     "The sampler's buffers are rows x vocabulary x 4 bytes, outside the KV cache.", NULL, NULL,
     NULL},
    {FIXED(SGLANG_START, CONFIGURATION, ENGINE_BUDGET, 0.85),
     "Weights leave no room for the KV cache inside the static share. It is the share, not a "
     "failed "
     "allocation.",
     "Raise --mem-fraction-static (direction at start: up)",
     "It covers weights and KV cache; what is left over is for activations and graphs.",
     "If raising it leads to CUDA out of memory at run time, no share works: fewer bytes for "
     "weights, or "
     "more devices (--tp-size)",
     "Both errors close together prove that the sum exceeds the device.", NULL},
    {FIXED(ENGINE_UNBALANCED, EXTERNAL, OTHER_PROCESS, 0.7),
     "When the engine started, one device had far less free memory than another: an earlier run or "
     "another process is on it. Devices of different sizes give the same error.",
     "See who is there and stop it: `nvidia-smi` on the host, in all containers",
     "A process that died badly can leave children that hold the device.",
     "With devices of different sizes, use those of one size, or run one engine on each",
     "The engine splits its memory evenly.", "the free bytes of each device before the start"},
    {FIXED(ENGINE_START, CONFIGURATION, ENGINE_BUDGET, 0.75),
     "A component of the engine found no room beside the ones that were created before it; the "
     "device had memory, but not enough of it was left by the budget.",
     "Leave more room: lower free_gpu_memory_fraction of the KV cache, --max_batch_size, "
     "--max_num_tokens or --max_seq_len",
     "The sizes of the KV cache, of activations and of draft models follow from these.",
     "Or hold fewer bytes of weights on each device: quantized weights, more devices (--tp_size)",
     "The list in the message says how much each component took.", NULL},
    {FIXED(SGLANG_RUN, CONFIGURATION, ENGINE_BUDGET, 0.8),
     "The token pool of the server ran out while it was serving.",
     "Lower --max-running-requests, or raise --schedule-conservativeness",
     "Fewer requests at a time need fewer tokens of cache.",
     "For a CUDA out of memory at run time lower --mem-fraction-static",
     "Direction at run time: down; the static share leaves too little for activations.", NULL},
    {FIXED(ENGINE_POOL_FULL, CONFIGURATION, ENGINE_BUDGET, 0.8),
     "The engine's pool of KV blocks is used up; the device refused nothing.",
     "Admit fewer requests, or give the pool a larger share of free memory",
     "free_gpu_memory_fraction or max_tokens sizes the pool.", NULL, NULL, NULL},
    {FIXED(CONTEXT_FULL, CONFIGURATION, ENGINE_BUDGET, 0.7),
     "The cells of the KV cache are all taken by tokens of running requests. The cache has a fixed "
     "size, the context; the device refused nothing.",
     "Raise the context (-c, num_ctx), or run fewer requests at a time (-np, OLLAMA_NUM_PARALLEL)",
     "All slots share the cells of one context.",
     "Or let each request use less: shorter prompts, a limit on the tokens to generate (-n)",
     "A request that never ends takes cells until none is left.", NULL},
    {FIXED(WORKSPACE_FULL, CONFIGURATION, ENGINE_BUDGET, 0.85),
     "FlashInfer's workspace, a buffer that the engine takes once at its start, is too small for "
     "this batch. The device was not asked.",
     "Enlarge it: SGLANG_FLASHINFER_WORKSPACE_SIZE, VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE (bytes)",
     "The temporary results of split attention have to fit into it.",
     "Or send less at once: a smaller --chunked-prefill-size, --max-num-batched-tokens or "
     "--cuda-graph-max-bs",
     "They grow with the rows of a batch and the heads on a device.", NULL},
    {FIXED(TGI_PREFILL, CONFIGURATION, ENGINE_BUDGET, 0.9),
     "The largest prefill that the server allows does not fit; it found out in its warm-up.",
     "Lower --max-batch-prefill-tokens (and --max-input-tokens)",
     "Peak activations scale with the tokens of one prefill.", NULL, NULL, NULL},
    {FIXED(ENGINE_FIT, CONFIGURATION, ENGINE_BUDGET, 0.75),
     "The program could not find a split of the model that fits the free memory under the options "
     "given.",
     "Remove fixed options (-ngl, -c, tensor split) so that it can adapt, or free memory first",
     "Fixed options leave nothing to adapt.", NULL, NULL,
     "what is free on each device: `nvidia-smi`"},
    {FIXED(OLLAMA_HOST, HOST_MEMORY, HOST_ALLOCATION, 0.92),
     "The part of the model that stays on the host needs more system memory than is free.",
     "Use a smaller model or quantization, a shorter context (num_ctx), or close other programs",
     "The check is about system memory, not about the device.", NULL, NULL, NULL},
    {FIXED(GGML_ADDRESS_SPACE, CONFIGURATION, SETTINGS_CONFLICT, 0.75),
     "What was refused is a reservation of address space for the memory pool's largest size, not "
     "memory.",
     "Build with the pool switched off (GGML_CUDA_NO_VMM=1), or use a newer build",
     "The reservation's size is a constant of the build, larger than this device's address space.",
     NULL, NULL, NULL},
    {FIXED(SETTINGS_CONFLICT, CONFIGURATION, SETTINGS_CONFLICT, 0.85),
     "Two settings exclude each other; the engine refused to start.",
     "Remove one of the two settings that the message names",
     "Sleep mode and some connectors cannot work with expandable segments.", NULL, NULL, NULL},
    {FIXED(EXPANDABLE_ASSERT, CONFIGURATION, SETTINGS_CONFLICT, 0.6),
     "An assertion of the allocator about expandable segments: a combination of settings (IPC, "
     "graphs, a "
     "second pool), not a shortage.",
     "Turn expandable segments off (expandable_segments:False) and report the combination",
     "The assertion guards against using such a block where it cannot be used.", NULL, NULL, NULL},
    {FIXED(HIDDEN_ASSERT, UNKNOWN, NONE, 0.4),
     "An assertion failed while PyTorch was composing or handling an out-of-memory error, and "
     "hides its "
     "figures. Most often an ordinary shortage stands behind it.",
     "Use PyTorch 2.13 or later, where a failing NVML query no longer hides the message",
     "On MIG slices, Jetson and in containers the query for other processes is not permitted.",
     NULL, NULL, "the hidden figures: print torch.cuda.memory_summary() before the failing step"},

    {FIXED(NOT_FITTING, CAPACITY, WORKING_SET, 0.8),
     "The program itself found that what it has to put on the device is more than is free there.",
     "Use a smaller or more strongly quantized model, lower resolution, or let parts stay on the "
     "host",
     "What has to be on the device at the same time does not fit.", NULL, NULL,
     "whether the device was empty: `nvidia-smi` before the start"},
    {FIXED(SCENE_FULL, CAPACITY, WORKING_SET, 0.7),
     "A program that draws (a renderer, an editor, a game) filled the device with its scene: "
     "geometry, textures, buffers of the frame.",
     "Use smaller textures, a lower resolution, less subdivision or fewer effects at a time",
     "They are what such a program keeps on the device.",
     "Or close other programs that draw or compute on the same device",
     "Browsers, viewers and a second renderer often hold 1 to 2 GiB.",
     "who holds the device: `nvidia-smi`, or the GPU page of the system's task manager"},
    {FIXED(BUFFER_LIMIT, CAPACITY, SINGLE_REQUEST, 0.8),
     "One buffer is larger than the device allows for a single one; usually a tensor that grows "
     "with the "
     "square of the sequence or the image.",
     "Make the largest tensor smaller: sliced or tiled attention, lower resolution, shorter "
     "sequence, "
     "smaller batch",
     "The limit is on one buffer; free memory does not help.", NULL, NULL, NULL},

    {FIXED(BUFFER_COUNT, CONFIGURATION, ALLOCATOR_LIMIT, 0.8),
     "Too many Metal buffers are alive: their number reached the system's limit, not their bytes.",
     "Evaluate sooner and keep less: mx.eval() inside loops, fewer small arrays, mx.clear_cache()",
     "Each array and each cached block is a buffer of its own.", NULL, NULL, NULL},
    {FIXED(TRT_WORKSPACE, CONFIGURATION, ALLOCATOR_LIMIT, 0.6),
     "The builder found no implementation of a layer that works within the workspace it may use "
     "and the memory it could get.",
     "Raise the workspace limit (setMemoryPoolLimit, trtexec --memPoolSize=workspace:N)",
     "Each tactic states how much workspace it needs.",
     "Or build with more of the device free, or smaller maximum shapes",
     "A tactic is dropped as well when the device cannot give its workspace.",
     "whether the device or the limit refused: a line \"out of memory\" or \"Skipping tactic\" "
     "above "
     "it, and `nvidia-smi` while it builds"},

    /* Pools with a limit. */
    {FIXED(ORT_LIMIT, CONFIGURATION, ALLOCATOR_LIMIT, 0.87),
     "The arena's own limit was reached before the device's.",
     "Raise gpu_mem_limit in the CUDA provider's options",
     "The arena may hold no more than that, whatever the device has.",
     "Or set arena_extend_strategy to kSameAsRequested", "Powers of two waste up to half.", NULL},
    {FIXED(RMM_POOL_LIMIT, CONFIGURATION, ALLOCATOR_LIMIT, 0.9),
     "The memory pool's maximum size was reached, or asked for more than the device has.",
     "Raise maximum_pool_size, or lower initial_pool_size below what is free",
     "The pool refused, not the device.", NULL, NULL, NULL},
    {FIXED(RMM_OOM, UNKNOWN, NONE, 0.4),
     "The pool asked the driver for more and was refused. A pool that grows by doubling asks for "
     "more "
     "than the request needs.",
     NULL, NULL, NULL, NULL,
     "the pool's size and growth: rmm.statistics, and `nvidia-smi` for the rest of the device"},
    {FIXED(XLA_HBM, CAPACITY, WORKING_SET, 0.88),
     "The compiled program needs more device memory (HBM) than there is.",
     "Shard or remat more, use a smaller batch, donate arguments",
     "The plan is made at compile time.", NULL, NULL, NULL},

    /* Outside the framework's allocator. */
    {FIXED(NCCL_OOM, EXTERNAL, SAME_PROCESS, 0.75),
     "NCCL could not get memory for its own buffers, which come from the driver, not from the "
     "framework's "
     "allocator: the cache has grown over everything.",
     "Leave room: torch.cuda.set_per_process_memory_fraction(0.95), or a smaller memory share of "
     "the engine",
     "NCCL needs some 10 MiB for each channel and peer, at the first collective.",
     "Create communicators early (a small all_reduce right after init), or lower "
     "NCCL_MAX_NCHANNELS",
     "Then they find memory before the cache takes it.",
     "who fills the device: `nvidia-smi`, and torch.cuda.memory_reserved() on that rank"},
    {FIXED(CONTEXT_OOM, EXTERNAL, OTHER_PROCESS, 0.8),
     "Creating the context already failed: the device was full before this process had anything on "
     "it, or "
     "it is not the device that was meant.",
     "Choose an empty device: CUDA_VISIBLE_DEVICES=N", "A context needs a few hundred MiB.",
     "See who is there: `nvidia-smi` on the host",
     "Jobs of others, or leftovers of an earlier run.", NULL},
    {FIXED(PREALLOC_OOM, EXTERNAL, OTHER_PROCESS, 0.5),
     "The framework takes most of the device at its start, and the driver had less: somebody else "
     "is on "
     "the device. It usually goes on with less.",
     "See who is there: `nvidia-smi` on the host",
     "Two such frameworks cannot both take most of it.",
     "Or let it grow: XLA_PYTHON_CLIENT_MEM_FRACTION=.5, TF_FORCE_GPU_ALLOW_GROWTH=true",
     "Then both fit, if their work does.", NULL},
    {FIXED(TEGRA_OOM, EXTERNAL, DRIVER_RESERVED, 0.5),
     "The memory manager under CUDA on this unified-memory board refused (ENOMEM): system memory, "
     "its "
     "carve-outs or the driver, not the framework.",
     "Free system memory (desktop, caches), add swap, and try smaller single buffers",
     "Device and host share one memory here.", NULL, NULL,
     "what is free in one piece: `cat /proc/meminfo`, `sudo cat "
     "/sys/kernel/debug/nvmap/iovmm/clients`, and "
     "whether the driver was updated"},
    {FIXED(LIBRARY_OOM, UNKNOWN, NONE, 0.35),
     "A library could not start. Usually no memory was left for its handle or workspace outside "
     "the "
     "framework's allocator; an earlier fault on the device gives the same error.",
     "Free some of the device before the library starts: smaller share or cache, or another device",
     "Handles and workspaces need 10 to a few hundred MiB.", NULL, NULL,
     "which of the two: the first error of the log with CUDA_LAUNCH_BLOCKING=1, and `nvidia-smi`"},
    {FIXED(RUNNER_OOM, UNKNOWN, NONE, 0.35),
     "The model runner died of a refused allocation; which memory, and who holds it, is not in the "
     "text.",
     "Offload fewer layers (num_gpu), or use a shorter context (num_ctx)",
     "Weights scale with the layers on the device, the cache with the context.", NULL, NULL,
     "the runner's own lines above (`buffer size`, `memory.available`, `memory.required`): "
     "`journalctl -u "
     "ollama`, OLLAMA_DEBUG=1"},
    {FIXED(GENERIC_OOM, UNKNOWN, NONE, 0.25),
     "The text says that memory ran out; whose, and why, it does not say.", NULL, NULL, NULL, NULL,
     "which memory: `nvidia-smi` for the device, `dmesg | tail` and `free -m` for the host; and "
     "more of "
     "the log around the message"},

    /* The host. */
    {FIXED(HOST_ALLOC, HOST_MEMORY, HOST_ALLOCATION, 0.92),
     "An allocation in the host's memory failed. The device is not involved.",
     "Check `free -m`, the cgroup's limit (memory.max) and, on Windows, the page file",
     "Physical memory, the limit of the container, or the commit limit was reached.",
     "Load in pieces: memory-mapped or sharded checkpoints, fewer worker processes",
     "Peaks come from copies that exist at the same time.", NULL},
    {FIXED(HOST_PINNED, HOST_MEMORY, PINNED_HOST, 0.85),
     "Page-locked host memory could not be had. The device is not involved.",
     "Check `ulimit -l`, `free -m` and, on WSL2, memory= in .wslconfig; pin less",
     "Page-locked memory is limited separately from the rest.", NULL, NULL, NULL},
    {FIXED(HOST_MANAGED, HOST_MEMORY, HOST_ALLOCATION, 0.8),
     "Managed (paged) memory could not be had; its backing is the host's memory.",
     "Free host memory, or use the non-paged variant of the optimizer",
     "Paged optimizer states live on the host until they are needed.", NULL, NULL, NULL},
    {FIXED(HOST_KILLED, HOST_MEMORY, PROCESS_KILLED, 0.82),
     "The process was killed from outside (SIGKILL), as the kernel does when the host's memory "
     "runs out.",
     "Confirm it: `dmesg -T | grep -i -E 'oom|killed process'`, `journalctl -k`",
     "SIGKILL leaves no message of the program; the kernel's log says who was killed and why.",
     "Reduce host memory: fewer workers and ranks loading at once, mmap, no optimizer offload; "
     "when "
     "compiling, fewer jobs (MAX_JOBS=2)",
     "Each process holds its own copy while it loads.", NULL},
    {FIXED(HOST_OOM_KILLER, HOST_MEMORY, PROCESS_KILLED, 0.95),
     "The host ran out of memory, and the system's out-of-memory killer ended a process. The "
     "device "
     "is not involved.",
     "Reduce host memory: fewer workers and ranks loading at once, mmap, no optimizer offload",
     "Each process holds its own copy while it loads; the killer takes the largest process, which "
     "need not be the one that grew.",
     "Or give the host more: memory, swap, or fewer other programs", NULL,
     "what held the memory: the table of tasks above the line in `dmesg -T`"},
    {FIXED(BROWSER_HEAP, HOST_MEMORY, HOST_ALLOCATION, 0.75),
     "The browser could not give WebAssembly one buffer of that size: its heap is limited (4 GiB "
     "at "
     "most), and so is a single array. The device is not involved.",
     "Use a smaller or quantized model (q4, q8), or one split into external data files",
     "The whole file is copied into the heap before it goes to the device.", NULL, NULL, NULL},
    {FIXED(HOST_CGROUP, HOST_MEMORY, PROCESS_KILLED, 0.92),
     "The memory limit of the container or job was reached and the kernel killed it. The device is "
     "not "
     "involved.",
     "Raise the limit (resources.limits.memory, --mem, memory.max), or use less host memory",
     "The limit counts page cache in use, shared memory and all processes of the group.", NULL,
     NULL, NULL},
    {FIXED(WORKER_DIED, UNKNOWN, NONE, 0.4),
     "A worker process died without a word. Often the kernel killed it for the host's memory, or "
     "shared "
     "memory ran out; it can also have crashed by itself.",
     "Run once with num_workers=0: then the worker's own error is shown",
     "A killed process cannot say why.", NULL, NULL,
     "whether it was killed: `dmesg -T | grep -i -E 'oom|killed process'`, `df -h /dev/shm`"},
    {FIXED(HOST_RAY, HOST_MEMORY, PROCESS_KILLED, 0.9),
     "Ray's monitor killed a worker because the node's memory was nearly full. The device is not "
     "involved.",
     "Use less host memory on that node: fewer actors, a smaller object store, no CPU backup of "
     "weights",
     "The worker that was killed is the newest one, not necessarily the largest.",
     "Raise RAY_memory_usage_threshold only if the kernel's killer is a better outcome",
     "The monitor acts before the kernel does.",
     "whether it grows: the worker's RSS early and late"},
    {FIXED(HOST_SHM, HOST_MEMORY, SHARED_MEMORY, 0.9),
     "Shared memory (/dev/shm) is too small for what processes exchange through it.",
     "Give the container more: --shm-size=8g, --ipc=host, or an emptyDir with medium: Memory",
     "Containers get 64 MiB by default; `df -h /dev/shm` shows the use.",
     "Or exchange less: fewer DataLoader workers, smaller prefetch_factor",
     "Each worker keeps whole batches there.", NULL},
    {FIXED(HOST_PAGEFILE, HOST_MEMORY, SHARED_MEMORY, 0.93),
     "The page file (Windows' commit limit) is too small.",
     "Enlarge the page file, or start fewer processes (num_workers)",
     "Every process commits several GB for the CUDA libraries alone.", NULL, NULL, NULL},

    /* Not a shortage. */
    {FIXED(KERNEL_RESOURCE, NOT_OOM, KERNEL_RESOURCE, 0.95),
     "A kernel needs more on-chip resources (shared memory, registers) than one block may have. "
     "Device "
     "memory is not involved.",
     "Use smaller block sizes or fewer stages (num_stages), or a kernel configuration for this "
     "device",
     "The limit is that of the chip.", NULL, NULL, NULL},
    {FIXED(XLA_ONCHIP, NOT_OOM, KERNEL_RESOURCE, 0.93),
     "The program needs more of a small on-chip memory (vmem, smem) than the core has. Device "
     "memory (HBM) "
     "is not involved.",
     "Use smaller tiles or block tables (shorter maximum length, smaller pages)",
     "The limit is that of the chip.", NULL, NULL, NULL},
    {FIXED(ILLEGAL_ACCESS, NOT_OOM, OTHER_ERROR, 0.92),
     "A kernel touched an address it may not touch, or the device faulted. That is a defect, not a "
     "shortage; \"memory\" in the text means an address.",
     "Find the kernel: CUDA_LAUNCH_BLOCKING=1, or compute-sanitizer",
     "The error is reported later than it happens.", NULL, NULL, NULL},
    {FIXED(OTHER_ERROR, NOT_OOM, OTHER_ERROR, 0.8),
     "The allocation failed for another reason, which the text names. Memory is not what is "
     "missing.",
     "Follow the reason in the message: driver, device selection, or a wrong argument",
     "It is no shortage.", NULL, NULL, NULL},
    {FIXED(DEVICE_BUSY, NOT_OOM, OTHER_ERROR, 0.88),
     "The device refused a context: exclusive compute mode, MPS or a lost device. Memory is not "
     "involved.",
     "Check `nvidia-smi -q -d COMPUTE`: in exclusive mode only one process may use the device",
     "Or the MPS server is not reachable, or has its full number of clients.", NULL, NULL, NULL},
    {FIXED(DISK, NOT_OOM, DISK, 0.9),
     "A disk is full or a file could not be written. Memory is not involved.",
     "Check `df -h` and `df -i` for the path in the message", "Checkpoints and caches fill disks.",
     NULL, NULL, NULL},
    {FIXED(TF_WARNING, NOT_OOM, WARNING_ONLY, 0.93),
     "Only a warning: the caller asked for more than it needs and says itself that it goes on.",
     "Nothing has to be done; with more free memory it may run faster",
     "Algorithm searches try large workspaces first.", NULL, NULL, NULL},
    {FIXED(TRT_TACTIC, NOT_OOM, WARNING_ONLY, 0.85),
     "Only a warning: the builder skips tactics that need more memory and goes on with others.",
     "Allow a larger workspace (memory pool limit) if the fastest tactic matters",
     "Skipped tactics can be the faster ones.", NULL, NULL, NULL},
    {FIXED(RECOVERED, NOT_OOM, WARNING_ONLY, 0.85),
     "The program ran short of memory, noticed it, and went on in another way.",
     "Nothing has to be done; choose the smaller way from the start to save the time",
     "For example tiled decoding, fewer requests at a time.", NULL, NULL, NULL},
    {FIXED(CUMEM_INVALID, NOT_OOM, OTHER_ERROR, 0.8),
     "A call of the engine's allocator was wrong (invalid argument): a defect, not a shortage.",
     "Report or update the engine; until then run without sleep mode",
     "Out-of-memory texts that follow it are its echoes.", NULL, NULL, NULL},
};

/* Judges for the meanings that need arithmetic or circumstances. */
static const struct {
    enum plim_oom_meaning meaning;
    plim__judge judge;
} judges[] = {
    {PLIM_OOM_MEANS_TORCH_OOM, plim__judge_torch},
    {PLIM_OOM_MEANS_TORCH_PREEMPTIVE, plim__judge_torch},
    {PLIM_OOM_MEANS_TORCH_IMPOSSIBLE, plim__judge_torch},
    {PLIM_OOM_MEANS_XPU_BLOCK_LIMIT, plim__judge_torch},
    {PLIM_OOM_MEANS_VLLM_LOAD, plim__judge_torch},
    {PLIM_OOM_MEANS_ASYNC_OOM, plim__judge_async},
    {PLIM_OOM_MEANS_MPS_OOM, plim__judge_mps},
    {PLIM_OOM_MEANS_XLA_OOM, plim__judge_xla},
    {PLIM_OOM_MEANS_XLA_RUNTIME, plim__judge_xla_runtime},
    {PLIM_OOM_MEANS_OWN_POOL, plim__judge_own_pool},
    {PLIM_OOM_MEANS_TF_OOM, plim__judge_tf},
    {PLIM_OOM_MEANS_CUPY_OOM, plim__judge_cupy},
    {PLIM_OOM_MEANS_CUPY_OOM_TOTAL, plim__judge_cupy},
    {PLIM_OOM_MEANS_PADDLE_OOM, plim__judge_paddle},
    {PLIM_OOM_MEANS_ORT_OOM, plim__judge_request},
    {PLIM_OOM_MEANS_LONE_REQUEST, plim__judge_request},
    {PLIM_OOM_MEANS_JULIA_OOM, plim__judge_julia},
    {PLIM_OOM_MEANS_TRT_REQUEST, plim__judge_tensorrt},
    {PLIM_OOM_MEANS_TRT_OOM, plim__judge_tensorrt},
    {PLIM_OOM_MEANS_VGPU_LIMIT, plim__judge_vgpu},
    {PLIM_OOM_MEANS_DRIVER_OOM, plim__judge_driver},
    {PLIM_OOM_MEANS_CUMEM_OOM, plim__judge_cumem},
    {PLIM_OOM_MEANS_GGML_OOM, plim__judge_ggml},
    {PLIM_OOM_MEANS_RUNNER_OOM, plim__judge_ggml},
    {PLIM_OOM_MEANS_METAL_OOM, plim__judge_metal},
    {PLIM_OOM_MEANS_METAL_OVERCOMMIT, plim__judge_metal},
    {PLIM_OOM_MEANS_SGLANG_START, plim__judge_sglang},
    {PLIM_OOM_MEANS_VLLM_STARTUP_FREE, plim__judge_startup},
    {PLIM_OOM_MEANS_HOST_KILLED, plim__judge_killed},
    {PLIM_OOM_MEANS_HOST_OOM_KILLER, plim__judge_killed},
    {PLIM_OOM_MEANS_HOST_CGROUP, plim__judge_killed},
    {PLIM_OOM_MEANS_HOST_RAY, plim__judge_killed},
    {PLIM_OOM_MEANS_HOST_GROWTH, plim__judge_growth},
    {PLIM_OOM_MEANS_DEVICE_GROWTH, plim__judge_growth},
    {PLIM_OOM_MEANS_GROWTH_STATED, plim__judge_growth},
};

plim__judge plim__judge_of(enum plim_oom_meaning meaning)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(judges); i++) {
        if (judges[i].meaning == meaning) {
            return judges[i].judge;
        }
    }
    return NULL;
}

static const struct fixed *fixed_of(enum plim_oom_meaning meaning)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(table); i++) {
        if (table[i].meaning == meaning) {
            return &table[i];
        }
    }
    return meaning == PLIM_OOM_MEANS_GENERIC_OOM ? &table[0] : fixed_of(PLIM_OOM_MEANS_GENERIC_OOM);
}

/* What the engine's own lines say, as evidence for its verdict. */
static void engine_figures(struct plim__case *c)
{
    static const struct {
        enum plim_oom_field field;
        const char *what;
    } figures[] = {
        {PLIM_OOM_KV_NEEDED, "needed as KV cache for one request"},
        {PLIM_OOM_KV_AVAILABLE, "available for the KV cache"},
        {PLIM_OOM_WEIGHTS, "taken by weights"},
        {PLIM_OOM_ACTIVATION, "peak of activations"},
        {PLIM_OOM_EXCEEDS, "over the limit"},
    };
    const struct plim_oom_value *length = &c->facts->field[PLIM_OOM_MODEL_LEN];
    const struct plim_oom_value *tokens = &c->facts->field[PLIM_OOM_KV_TOKENS];
    if (length->set && tokens->set) {
        plim__evidence(c, PLIM_HOW_MEASURED,
                       plim__say(c, "longest sequence %llu tokens, KV cache %llu tokens.",
                                 (unsigned long long)length->n, (unsigned long long)tokens->n));
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(figures); i++) {
        struct plim_amount amount = plim__field(c, figures[i].field);
        if (plim_known(amount)) {
            plim__evidence_amount(
                c, amount, plim__say(c, "%s %s.", plim__size(c, amount.bytes), figures[i].what));
        }
    }
}

/* A size that no machine has: a wrong number reached the allocator. */
static bool impossible_on_hosts(struct plim__case *c)
{
    const struct plim_oom_value *request = &c->facts->field[PLIM_OOM_REQUEST];
    if (c->event->meaning != PLIM_OOM_MEANS_HOST_ALLOC || !request->set ||
        request->n < HOST_IMPOSSIBLE) {
        return false;
    }
    plim__verdict(c, PLIM_CLASS_NOT_OOM, PLIM_SUBCLASS_CORRUPT_SIZE, 0.85,
                  plim__say(c,
                            "No machine has %s: a wrong size reached the allocator, from a shape, "
                            "an overflow, or a library that does not match.",
                            plim__size(c, request->n)));
    plim__advice(c, "Print the shapes and types in front of the failing call",
                 "One axis too many, or a broadcast of two long ones, gives such sizes.");
    return true;
}

void plim__judge_fixed(struct plim__case *c)
{
    const struct fixed *fixed = fixed_of(c->event->meaning);
    struct plim_amount request = plim__field(c, PLIM_OOM_REQUEST);
    if (impossible_on_hosts(c)) {
        return;
    }
    c->set->ledger.moment = "at the failure";
    c->set->ledger.request = request;
    plim__verdict(c, fixed->cls, fixed->sub, fixed->confidence, fixed->summary);
    if (plim_known(request)) {
        plim__evidence_amount(c, request,
                              plim__say(c, "%s were asked for.", plim__size(c, request.bytes)));
    }
    engine_figures(c);
    const struct plim_oom_value *fitting = &c->facts->field[PLIM_OOM_FITTING_LEN];
    if (c->event->meaning == PLIM_OOM_MEANS_VLLM_MODEL_LEN && fitting->set) {
        plim__advice(c,
                     plim__say(c,
                               "Lower --max-model-len to %llu, or raise --gpu-memory-utilization",
                               (unsigned long long)fitting->n),
                     "The engine itself estimates that length for the cache that it has.");
    } else if (fixed->action) {
        plim__advice(c, fixed->action, fixed->why);
    }
    if (fixed->action2) {
        plim__advice(c, fixed->action2, fixed->why2);
    }
    if (fixed->unknown) {
        plim__unknown(c, fixed->unknown);
    }
}
