/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grammars: one row for each text that programs print when memory runs out, or that is mistaken
 * for it, and for each circumstance that helps to judge it. The pattern language is described at
 * struct plim_oom_row. Wording was taken from the programs' sources and from public reports; the
 * versions named by PyTorch clauses may be off by one minor release.
 *
 * When the matches of two rows overlap, the one that contains the other counts. Keep rows sorted by
 * program; the order carries no meaning, but for the `format` of clauses: the last one that matches
 * names the version.
 */

#include "format/oomtext_internal.h"

#include "base/num.h"

#define ROW(format, family, role, meaning, pattern)                                                \
    {                                                                                              \
        format, PLIM_OOM_FAMILY_##family, PLIM_OOM_##role, PLIM_OOM_MEANS_##meaning, pattern       \
    }
#define FAIL(format, family, meaning, pattern) ROW(format, family, FAILURE, meaning, pattern)
#define CLAUSE(family, pattern)                ROW(NULL, family, CLAUSE, NOTHING, pattern)
#define VERSION(family, versions, pattern)     ROW(versions, family, CLAUSE, NOTHING, pattern)
#define NEAR(meaning, pattern)                 ROW(NULL, ANY, NEAR, meaning, pattern)
#define SESSION(meaning, pattern)              ROW(NULL, ANY, SESSION, meaning, pattern)
#define HEADER(meaning, pattern)               ROW(NULL, ANY, HEADER, meaning, pattern)
#define TABLE(pattern)                         ROW(NULL, ANY, TABLE, NOTHING, pattern)

static const struct plim_oom_row rows[] = {
    /* PyTorch, native allocator. */
    FAIL("torch-cuda", TORCH, TORCH_OOM, "CUDA out of memory"),
    FAIL("torch-hip", TORCH, TORCH_OOM, "HIP out of memory"),
    FAIL("torch-xpu", TORCH, TORCH_OOM, "XPU out of memory"),
    FAIL("torch-npu", TORCH, TORCH_OOM, "NPU out of memory"),
    FAIL("torch-musa", TORCH, TORCH_OOM, "MUSA out of memory"),
    FAIL("torch-mlu", TORCH, TORCH_OOM, "MLU out of memory"),
    FAIL("torch", TORCH, TORCH_OOM, "Tried to allocate {request:size}"),
    FAIL("torch", TORCH, TORCH_OOM, "has a total <capacity|capacty> of {total:size}"),
    FAIL("torch", TORCH, TORCH_OOM, "reserved by PyTorch but unallocated"),
    FAIL("torch", TORCH, TORCH_OOM, "{reserved:size} reserved in total by PyTorch"),
    FAIL("torch", TORCH, TORCH_IMPOSSIBLE, "Tried to allocate more than 1EB memory"),
    FAIL("torch", TORCH, TORCH_PREEMPTIVE,
         "out of memory. Allocation was preemptively rejected because it would exceed *limit"
         "[. Requested size: {request:size}]"),
    FAIL("torch", TORCH, TORCH_PREEMPTIVE,
         "Preemptively rejecting allocation: requested {request:size}[ but total_allocated_memory"
         " ({in_use:size}) + requested size would exceed memory limit ({limit:size}]"),
    FAIL("torch-xpu", TORCH, XPU_BLOCK_LIMIT,
         "can NOT allocate memory block with size larger than {limit:size}"),
    FAIL("torch-log", TORCH, DRIVER_OOM,
         "memory allocation failed with OOM on device {device:int}[ while trying to allocate "
         "{request:bytes} bytes][ (free: {free:bytes}, total: {total:bytes})]"),
    FAIL("torch-log", TORCH, DRIVER_OOM, "memory mapping failed with OOM on device {device:int}"),
    CLAUSE(TORCH, "Tried to allocate {request:size}"),
    CLAUSE(TORCH, "Requested size: {request:size}"),
    CLAUSE(TORCH, "(GPU {device:int};"),
    CLAUSE(TORCH, "{device:int} has a total"),
    CLAUSE(TORCH, "{total:size} total capacity"),
    CLAUSE(TORCH, "has a total <capacity|capacty> of {total:size}"),
    CLAUSE(TORCH, "{allocated:size} already allocated"),
    CLAUSE(TORCH, "{free:size} free;"),
    CLAUSE(TORCH, "of which {free:size} is free"),
    CLAUSE(TORCH, "{allowed:size} allowed;"),
    CLAUSE(TORCH, "Of the allocated memory {allocated:size}"),
    CLAUSE(TORCH, "with {private:size} allocated in private pools"),
    CLAUSE(TORCH, "{unallocated:size} is reserved by PyTorch but unallocated"),
    CLAUSE(TORCH, "this process has {own:size} memory in use"),
    CLAUSE(TORCH, "Process {pid:int} has {process:size} memory in use"),
    VERSION(TORCH, "1.0 to 1.3", "{cached:size} cached)"),
    VERSION(TORCH, "1.0 to 1.3", "{cached:size} cached$"),
    VERSION(TORCH, "1.4 to 1.10", "{reserved:size} reserved in total by"),
    VERSION(TORCH, "1.10 to 2.0", "If reserved memory is \\>\\> allocated"),
    VERSION(TORCH, "2.1 and later", "has a total capacity of"),
    VERSION(TORCH, "2.1 to 2.2", "has a total capacty of"),
    VERSION(TORCH, "2.2 to 2.9", "try setting PYTORCH_<CUDA|HIP>_ALLOC_CONF=expandable_segments"),
    VERSION(TORCH, "2.4 to 2.9", "torch.OutOfMemoryError: * has a total capacity of"),
    VERSION(TORCH, "2.10 and later", "try setting PYTORCH_ALLOC_CONF=expandable_segments"),
    NEAR(ADVICE_PRINTED, "try setting <PYTORCH_ALLOC_CONF|PYTORCH_CUDA_ALLOC_CONF|"
                         "PYTORCH_HIP_ALLOC_CONF>=expandable_segments:True"),
    NEAR(ADVICE_PRINTED, "try setting max_split_size_mb"),
    SESSION(EXPANDABLE_ON, "expandable_segments:True"),
    SESSION(EXPANDABLE_ON, "expandable_segments:1"),
    SESSION(SPLIT_SET, "max_split_size_mb:{count:int}"),

    /* PyTorch: asserts that hide a failure, or follow from one. */
    FAIL("torch-assert", TORCH, HIDDEN_ASSERT, "NVML_SUCCESS == r INTERNAL ASSERT FAILED"),
    FAIL("torch-assert", TORCH, HIDDEN_ASSERT, "handles_.at(i) INTERNAL ASSERT FAILED"),
    FAIL("torch-assert", TORCH, EXPANDABLE_ASSERT, "expandable_segment_ INTERNAL ASSERT FAILED"),

    /* PyTorch, cudaMallocAsync backend; ComfyUI's default. */
    FAIL("torch-async", ASYNC, ASYNC_OOM, "Allocation on device {device:int}"),
    FAIL("torch-async", ASYNC, ASYNC_OOM, "Allocation on device"),
    FAIL("torch-async", ASYNC, ASYNC_OOM, "would exceed allowed memory. (out of memory)"),
    CLAUSE(ASYNC, "Currently allocated~{allocated:size}"),
    CLAUSE(ASYNC, "Requested~{request:size}"),
    CLAUSE(ASYNC, "Device limit~{total:size}"),
    CLAUSE(ASYNC, "Free (according to CUDA)~{free:size}"),
    CLAUSE(ASYNC, "PyTorch limit (set by user-supplied memory fraction)~{allowed:size}"),

    /* PyTorch on Apple. */
    FAIL("torch-mps", MPS, MPS_OOM, "MPS backend out of memory"),
    CLAUSE(MPS, "MPS allocated: {in_use:size}"),
    CLAUSE(MPS, "other allocations: {other:size}"),
    CLAUSE(MPS, "max allowed: {limit:size}"),
    CLAUSE(MPS, "Tried to allocate {request:size}"),
    FAIL("mps-buffer", MPS, TRT_REQUEST, "Invalid buffer size: {request:size}"),

    /* The driver, without figures. */
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "CUDA error: out of memory"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "CUDA driver error: out of memory"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "HIP error: out of memory"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "cuda runtime error (2) : out of memory"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "error=2 : out of memory"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "cudaErrorMemoryAllocation"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "hipErrorOutOfMemory"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "CUDA_ERROR_OUT_OF_MEMORY"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "CUDA failure 2: out of memory"),
    FAIL("cuda-error", DRIVER, DRIVER_OOM, "Error out of memory at line # in file"),
    FAIL("level-zero", DRIVER, DRIVER_OOM, "ERROR_OUT_OF_DEVICE_MEMORY"),
    FAIL("level-zero", DRIVER, DRIVER_OOM, "UR_RESULT_ERROR_OUT_OF_RESOURCES"),
    FAIL("vulkan", GGML, GGML_OOM, "ErrorOutOfDeviceMemory"),
    FAIL("opencl", DRIVER, DRIVER_OOM, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    FAIL("numba", DRIVER, DRIVER_OOM,
         "Call to <cuMemAllocManaged|cuMemAlloc> results in <CUDA_ERROR_OUT_OF_MEMORY>"),
    FAIL("numba", HOST, HOST_PINNED,
         "Call to <cuMemHostAlloc|cuMemHostRegister> results in CUDA_ERROR_OUT_OF_MEMORY"),
    FAIL("cuda-context", DRIVER, CONTEXT_OOM,
         "cuDevicePrimaryCtxRetain*OUT_OF_MEMORY[: out of memory; total memory reported: "
         "{total:bytes}]"),
    FAIL("cuda-context", DRIVER, CONTEXT_OOM, "cuCtxCreate*OUT_OF_MEMORY"),
    FAIL("cuda-context", DRIVER, CONTEXT_OOM, "cuCtxCreate*out of memory"),
    FAIL("bitsandbytes", HOST, HOST_MANAGED,
         "Error out of memory at line # in file *pythonInterface"),
    FAIL("vllm-cumem", ENGINE, CUMEM_OOM, "CUDA Error: out of memory at *cumem_allocator"),
    FAIL("vllm-cumem", ENGINE, CUMEM_INVALID, "CUDA Error: invalid argument at *cumem_allocator"),
    FAIL("tegra", DRIVER, TEGRA_OOM, "NvMapMemAlloc* error 12"),
    FAIL("tegra", DRIVER, TEGRA_OOM, "NvMapMemAllocInternalTagged: {request:bytes} error 12"),

    /* Libraries that need memory of their own and hide why they cannot start. */
    FAIL("cublas", DRIVER, LIBRARY_OOM, "CUBLAS_STATUS_ALLOC_FAILED"),
    FAIL("cublas", DRIVER, LIBRARY_OOM, "CUBLAS_STATUS_NOT_INITIALIZED"),
    FAIL("cublas", DRIVER, LIBRARY_OOM, "Create cublas handle failed"),
    FAIL("cudnn", DRIVER, LIBRARY_OOM, "CUDNN_STATUS_ALLOC_FAILED"),
    FAIL("cudnn", DRIVER, LIBRARY_OOM, "CUDNN_STATUS_NOT_INITIALIZED"),
    FAIL("cudnn", DRIVER, LIBRARY_OOM, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    FAIL("curand", DRIVER, LIBRARY_OOM, "CURAND_STATUS_ALLOCATION_FAILED"),
    FAIL("cufft", DRIVER, LIBRARY_OOM, "CUFFT_ALLOC_FAILED"),
    FAIL("cusolver", DRIVER, LIBRARY_OOM, "CUSOLVER_STATUS_ALLOC_FAILED"),
    FAIL("cusparse", DRIVER, LIBRARY_OOM, "CUSPARSE_STATUS_ALLOC_FAILED"),
    FAIL("cusparse", DRIVER, LIBRARY_OOM, "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"),
    FAIL("hipblas", DRIVER, LIBRARY_OOM, "HIPBLAS_STATUS_ALLOC_FAILED"),
    FAIL("miopen", DRIVER, LIBRARY_OOM, "miopenStatusAllocFailed"),

    /* vLLM. */
    FAIL("vllm", ENGINE, VLLM_NO_BLOCKS, "No available memory for the cache blocks"),
    FAIL("vllm", ENGINE, VLLM_NO_BLOCKS, "Cannot auto-fit max_model_len: not enough GPU memory"),
    FAIL("vllm", ENGINE, VLLM_MODEL_LEN,
         "max seq len ({model_len:bytes})[ is larger than the maximum number of tokens that can be "
         "stored in KV cache ({kv_tokens:bytes})]"),
    FAIL("vllm", ENGINE, VLLM_MODEL_LEN,
         "max seq len ({model_len:bytes}), ({kv_needed:size} KV cache is needed"),
    FAIL("vllm", ENGINE, VLLM_STARTUP_FREE,
         "Free memory on device[ cuda:{device:int}][ xpu:{device:int}] ({free:gib}[ GiB]/"
         "{total:gib}[ GiB])[ GiB] on startup is less than desired[ GPU memory utilization"
         "[ ({utilization:real}, {desired:size}]]"),
    FAIL("vllm", ENGINE, VLLM_STARTUP_FREE, "Externally held weights on device * exceed"),
    FAIL("vllm", ENGINE, VLLM_PROFILING,
         "Error in memory profiling[. Initial free memory {free:size}]"),
    FAIL("vllm", ENGINE, VLLM_WARMUP, "out of memory occurred when warming up <sampler|pooler>"),
    FAIL("vllm", ENGINE, VLLM_LOAD, "Failed to load model - not enough GPU memory"),
    FAIL("vllm", ENGINE, SETTINGS_CONFLICT,
         "is incompatible with <PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF>=expandable_segments"),
    FAIL("vllm", ENGINE, SETTINGS_CONFLICT, "Expandable segments are not compatible with"),
    FAIL("vllm", ENGINE, SETTINGS_CONFLICT, "CuMem allocator can only be used for one instance"),
    FAIL("vllm", ENGINE, SETTINGS_CONFLICT, "Memory usage increased after sleeping"),
    FAIL("vllm", ENGINE, RECOVERED, "not enough KV cache space"),
    CLAUSE(ENGINE, "the available KV cache memory ({kv_available:size}"),
    CLAUSE(ENGINE, "available KV cache memory ({kv_available:size}"),
    CLAUSE(ENGINE, "({kv_needed:size} KV cache is needed"),
    CLAUSE(ENGINE, "estimated maximum model length is {fitting_len:bytes}"),
    CLAUSE(ENGINE, "current free memory {in_use:size}"),
    SESSION(ENGINE_VLLM, "the current vLLM instance can use total_gpu_memory ({total:size}) x "
                         "gpu_memory_utilization ({utilization:real}) = {desired:size}"),
    SESSION(ENGINE_KV, "model weights take {weights:size}; non_torch_memory takes {non_torch:size};"
                       " PyTorch activation peak memory takes {activation:size}; the rest of the "
                       "memory reserved for KV Cache is {kv_available:size}"),
    SESSION(ENGINE_KV, "Available KV cache memory: {kv_available:size}"),
    SESSION(ENGINE_KV, "GPU KV cache size: {kv_tokens:bytes} tokens"),
    SESSION(ENGINE_KV, "\\# GPU blocks: {count:bytes}"),
    SESSION(ENGINE_KV, "Maximum concurrency for {model_len:bytes} tokens"),
    SESSION(ENGINE_VLLM, "Model loading took {weights:size}"),
    SESSION(ENGINE_VLLM, "model weights take {weights:size}"),
    SESSION(ENGINE_VLLM, "Graph capturing finished in *, took {graph:size}"),
    SESSION(ENGINE_VLLM, "Estimated CUDA graph memory: {graph:size}"),
    SESSION(ENGINE_VLLM, "on startup. Desired GPU memory utilization is ({utilization:real}, "
                         "{desired:size}). Actual usage is {weights:size} for *, {activation:size} "
                         "for peak activation, and {graph:size} for CUDAGraph memory"),
    SESSION(ENGINE_VLLM, "gpu_memory_utilization={utilization:real}"),
    SESSION(ENGINE_VLLM, "--gpu-memory-utilization[=]~{utilization:real}"),
    SESSION(ENGINE_VLLM, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"),
    SESSION(SLEEP_MODE, "enable_sleep_mode=True"),
    SESSION(SLEEP_MODE, "--enable-sleep-mode"),
    SESSION(EAGER_ON, "enforce_eager=True"),
    SESSION(EAGER_ON, "--enforce-eager"),
    NEAR(ENGINE_VLLM, "/vllm/"),
    NEAR(ENGINE_VLLM, "EngineDeadError"),
    NEAR(ENGINE_VLLM, "multiproc_executor.py"),
    NEAR(ENGINE_VLLM, "Starting vLLM"),
    NEAR(ENGINE_VLLM, "RayWorkerVllm"),

    /* SGLang, TGI, TensorRT-LLM. */
    FAIL("sglang", ENGINE, SGLANG_START,
         "Please try to increase --mem-fraction-static"
         "[. Current value: mem_fraction_static={utilization:real}]"),
    FAIL("sglang", ENGINE, SGLANG_START,
         "leave no GPU memory for the KV cache under "
         "--mem-fraction-static[={utilization:real}]"),
    FAIL("sglang", ENGINE, SGLANG_START,
         "max_total_tokens={count:int} is larger than the profiled value"),
    FAIL("sglang", ENGINE, SGLANG_RUN, "Prefill out of memory. Try to lower your batch size"),
    FAIL("sglang", ENGINE, SGLANG_RUN, "Decode out of memory. Try to lower your batch size"),
    FAIL("sglang", ENGINE, SGLANG_RUN, "Out of memory even after retracting all other requests"),
    FAIL("sglang", ENGINE, SGLANG_RUN, "alloc_req_slots runs out of memory"),
    FAIL("sglang", ENGINE, SGLANG_RUN, "Capture cuda graph failed*out of memory"),
    FAIL("sglang", ENGINE, RECOVERED, "KV cache pool is full. Retract requests"),
    CLAUSE(ENGINE, "Try to allocate {tokens:bytes} tokens"),
    SESSION(ENGINE_SGLANG, "mem_fraction_static={utilization:real}"),
    SESSION(ENGINE_SGLANG, "--mem-fraction-static[=]~{utilization:real}"),
    SESSION(ENGINE_KV, "KV Cache is allocated. \\#tokens: {kv_tokens:bytes}"),
    NEAR(ENGINE_SGLANG, "/sglang/"),
    FAIL("tgi", ENGINE, TGI_PREFILL,
         "Not enough memory to handle {tokens:bytes} <prefill|total> "
         "tokens"),
    FAIL("tgi", ENGINE, TGI_PREFILL, "Not enough memory to run the prefill"),
    FAIL("trtllm", ENGINE, ENGINE_POOL_FULL, "Can't allocate new blocks. No free blocks left"),

    /* llama.cpp, Ollama and other users of ggml. */
    FAIL("ggml", GGML, GGML_OOM,
         "buffer_type_alloc_buffer: allocating {request:size} on device "
         "{device:int}"),
    FAIL("ggml", GGML, GGML_OOM, "cudaMalloc failed: out of memory"),
    FAIL("ggml", GGML, GGML_OOM, "hipMalloc failed: out of memory"),
    FAIL("ggml", GGML, GGML_OOM, "failed to allocate * buffer of size {request:bytes}"),
    FAIL("ggml", GGML, GGML_OOM, "failed to allocate buffer, size = {request:size}"),
    FAIL("ggml", GGML, GGML_OOM, "unable to allocate * buffer"),
    FAIL("ggml", GGML, GGML_OOM, "failed to allocate compute * buffers"),
    FAIL("ggml", GGML, GGML_OOM, "failed to allocate compute buffers"),
    FAIL("ggml", GGML, GGML_OOM, "CUDA error # at *ggml*: out of memory"),
    FAIL("ggml", GGML, GGML_OOM, "Device memory allocation of size {request:bytes} failed"),
    FAIL("ggml", GGML, GGML_OOM, "kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    FAIL("ggml", GGML, GGML_ADDRESS_SPACE, "cuMemAddressReserve("),
    FAIL("ggml", HOST, HOST_ALLOC,
         "failed to allocate <CPU|CPU_Mapped|CUDA_Host|ROCm_Host> buffer of size {request:bytes}"),
    FAIL("ggml", HOST, HOST_ALLOC, "unable to allocate <CPU|CPU_Mapped|CUDA_Host> buffer"),
    FAIL("ggml", HOST, HOST_ALLOC, "insufficient memory (attempted to allocate {request:size}"),
    FAIL("ggml", HOST, HOST_PINNED, "failed to allocate {request:size} of pinned memory"),
    FAIL("llama.cpp", GGML, ENGINE_FIT, "failed to fit params to free device memory"),
    FAIL("llama.cpp", GGML, RECOVERED, "retrying without pipeline parallelism"),
    FAIL("ollama", GGML, RUNNER_OOM, "runner process has terminated: *out of memory"),
    FAIL("ollama", GGML, RUNNER_OOM, "runner process has terminated: *failed to allocate"),
    FAIL("ollama", HOST, HOST_KILLED, "runner process has terminated: signal: killed"),
    FAIL("ollama", HOST, OLLAMA_HOST,
         "model requires more system memory[ ({request:size}) than is available ({free:size})]"),
    SESSION(NOTHING, "model buffer size = {buffer:size}"),
    SESSION(NOTHING, "KV buffer size = {kv_available:size}"),
    SESSION(NOTHING, "memory.required.full=~{plan:size}"),
    SESSION(NOTHING, "memory.available=\"\\[{free:size}"),

    /* ComfyUI, web UIs, diffusers. */
    FAIL("comfyui", ASYNC, RECOVERED, "Ran out of memory when regular VAE"),
    NEAR(ENGINE_COMFY, "Got an OOM, unloading all loaded models"),
    NEAR(ENGINE_COMFY, "This error means you ran out of memory on your GPU"),
    NEAR(ENGINE_COMFY, "ComfyUI"),
    NEAR(ENGINE_COMFY, "comfy/"),
    NEAR(ENGINE_DIFFUSERS, "/diffusers/"),
    NEAR(ENGINE_DIFFUSERS, "stable-diffusion"),

    /* JAX, XLA. */
    FAIL("xla", XLA, XLA_OOM, "Out of memory while trying to allocate {request:bytes} bytes"),
    FAIL("xla", XLA, XLA_OOM, "Out of memory while trying to allocate {request:size}"),
    FAIL("xla", XLA, XLA_OOM, "Out of memory allocating {request:bytes} bytes"),
    FAIL("xla", XLA, XLA_OOM, "Failed to allocate request for {request:size}"),
    FAIL("xla", XLA, XLA_OOM, "RESOURCE_EXHAUSTED: Out of memory"),
    FAIL("xla", XLA, XLA_ONCHIP, "Ran out of memory in memory space <vmem|smem|cmem|sflag>"),
    FAIL("xla", XLA, XLA_HBM,
         "Ran out of memory in memory space hbm[. Used {plan:size} of "
         "{limit:size} hbm][. Exceeded hbm capacity by {exceeds:size}]"),
    FAIL("xla", XLA, XLA_HBM,
         "Attempting to <reserve|allocate> {request:size}[ at the bottom of "
         "memory]. That was not possible. There are {free:size} free"),
    FAIL("xla", DRIVER, PREALLOC_OOM,
         "failed to allocate {request:size} ({count:bytes} bytes) from device: CUDA_ERROR_OUT_OF"),
    CLAUSE(XLA, "total allocation: {plan:size}"),
    CLAUSE(XLA, "total hbm usage \\>= {plan:size}"),
    CLAUSE(XLA, "bytes_limit~{limit:bytes}"),

    /* TensorFlow. */
    FAIL("tensorflow", TF, TF_OOM, "ran out of memory trying to allocate {request:size}"),
    FAIL("tensorflow", TF, TF_WARNING,
         "ran out of memory trying to allocate * The caller indicates that this is not a failure"),
    FAIL("tensorflow", TF, TF_OOM, "OOM when allocating tensor"),
    FAIL("tensorflow", HOST, HOST_ALLOC, "OOM when allocating tensor * by allocator <mklcpu|cpu>"),
    SESSION(NOTHING, "Sum Total of in-use chunks: {in_use:size}"),
    SESSION(NOTHING, "memory_limit_: {limit:bytes}"),
    SESSION(NOTHING, "LargestFreeBlock: {largest_free:bytes}"),
    HEADER(NOTHING, "bfc_allocator.cc*Stats:"),
    TABLE("Limit: {limit:bytes}"),
    TABLE("InUse: {in_use:bytes}"),

    /* ONNX Runtime, TensorRT. */
    FAIL("onnxruntime", ORT, ORT_OOM,
         "Failed to allocate memory for requested buffer of size {request:bytes}"),
    FAIL("onnxruntime", ORT, ORT_LIMIT,
         "Available memory of {free:bytes} is smaller than requested bytes of {request:bytes}"),
    FAIL("tensorrt", TRT, TRT_OOM, "Cuda Error in allocate: 2 (out of memory)"),
    FAIL("tensorrt", TRT, TRT_OOM, "Cuda Runtime (out of memory)"),
    FAIL("tensorrt", TRT, TRT_OOM, "OutOfMemory Error in"),
    FAIL("tensorrt", TRT, TRT_REQUEST,
         "Requested amount of GPU memory ({request:bytes} bytes) could not be allocated"),
    FAIL("tensorrt", TRT, TRT_OOM,
         "Requested amount of memory ({request:bytes} bytes) could not be allocated"),
    FAIL("tensorrt", TRT, TRT_TACTIC, "Skipping tactic * due to <insufficient memory|oom>"),
    FAIL("tensorrt", TRT, TRT_TACTIC, "Some tactics do not have sufficient memory to run"),
    FAIL("tensorrt", TRT, TRT_TACTIC, "Device memory is insufficient to use tactic"),

    /* CuPy, RMM, Paddle, DyNet. */
    FAIL("cupy", CUPY, CUPY_OOM_TOTAL,
         "out of memory to allocate {request:bytes} bytes[ (total "
         "{in_use:bytes} bytes[, limit set to {limit:bytes} bytes]]"),
    FAIL("cupy", CUPY, CUPY_OOM,
         "Out of memory allocating {request:bytes} bytes (allocated so far: {in_use:bytes} bytes"
         "[, limit set to: {limit:bytes} bytes]"),
    FAIL("rmm", RMM, RMM_OOM, "std::bad_alloc: [out_of_memory: ]CUDA error at"),
    FAIL("rmm", RMM, RMM_OOM, "out_of_memory: CUDA error"),
    FAIL("rmm", RMM, RMM_POOL_LIMIT,
         "Maximum pool size exceeded[ (failed to allocate {request:size})]"),
    FAIL("rmm", RMM, RMM_POOL_LIMIT, "RMM failure at*Exceeded memory limit"),
    FAIL("paddle", PADDLE, PADDLE_OOM,
         "Out of memory error on GPU {device:int}[. Cannot allocate {request:size} memory on GPU #]"
         "[, {allocated:size} memory has been allocated][ and][,][ available memory is only "
         "{free:size}]"),

    /* NCCL, vGPU quotas. */
    FAIL("nccl", NCCL, NCCL_OOM,
         "Failed to CUDA <calloc async|calloc|malloc async|malloc> "
         "{request:bytes} bytes"),
    FAIL("nccl", NCCL, NCCL_OOM, "NCCL WARN Cuda failure*out of memory"),
    FAIL("nccl", NCCL, NCCL_OOM, "NCCL WARN Cuda failure 2"),
    FAIL("nccl", NCCL, NCCL_OOM, "ncclUnhandledCudaError*out of memory"),
    FAIL("nccl", HOST, HOST_PINNED,
         "Failed to CUDA host <calloc|alloc|malloc>[ async][ {request:bytes} bytes]"),
    FAIL("nccl", HOST, HOST_SHM, "Error while creating shared memory segment"),
    FAIL("nccl", HOST, HOST_SHM, "posix_fallocate failed : No space left on device"),
    FAIL("hami", VGPU, VGPU_LIMIT, "Device {device:int} OOM {in_use:bytes} / {limit:bytes}"),

    /* The host's memory. */
    FAIL("torch-cpu", HOST, HOST_ALLOC,
         "DefaultCPUAllocator: <not enough memory|can't allocate memory>[: you tried to allocate "
         "{request:bytes} bytes]"),
    FAIL("numpy", HOST, HOST_ALLOC, "Unable to allocate {request:size} for an array"),
    FAIL("python", HOST, HOST_ALLOC, "^MemoryError$"),
    FAIL("c++", HOST, HOST_ALLOC, "throwing an instance of 'std::bad_alloc'"),
    FAIL("errno-12", HOST, HOST_ALLOC, "Cannot allocate memory"),
    FAIL("dynet", HOST, HOST_ALLOC, "CPU memory allocation failed[ n={request:bytes}]"),
    FAIL("java", HOST, HOST_ALLOC, "java.lang.OutOfMemoryError"),
    FAIL("node.js", HOST, HOST_ALLOC, "JavaScript heap out of memory"),
    FAIL("vulkan", HOST, HOST_ALLOC, "ERROR_OUT_OF_HOST_MEMORY"),
    FAIL("linux-oom-killer", HOST, HOST_KILLED,
         "Out of memory: <Killed|Kill> process {pid:int}[*anon-rss:{rss:size}]"),
    FAIL("linux-oom-killer", HOST, HOST_KILLED, "invoked oom-killer"),
    FAIL("linux-oom-killer", HOST, HOST_KILLED, "killed by the OOM killer"),
    FAIL("systemd-oomd", HOST, HOST_KILLED, "systemd-oomd*killed"),
    FAIL("linux-oom-killer", HOST, HOST_CGROUP,
         "Memory cgroup out of memory[: <Killed|Kill> process {pid:int}[*anon-rss:{rss:size}]]"),
    FAIL("kubernetes", HOST, HOST_CGROUP, "OOMKilled"),
    FAIL("kubernetes", HOST, HOST_CGROUP, "The node was low on resource: memory"),
    FAIL("slurm", HOST, HOST_CGROUP, "Detected {count:int} <oom_kill|oom-kill|oom kill> event"),
    FAIL("slurm", HOST, HOST_CGROUP, "killed by the cgroup out-of-memory handler"),
    FAIL("slurm", HOST, HOST_CGROUP, "Exceeded job memory limit"),
    FAIL("slurm", HOST, HOST_CGROUP, "State=OUT_OF_MEMORY"),
    FAIL("yarn", HOST, HOST_CGROUP, "Container killed by YARN for exceeding*memory limits"),
    FAIL("colab", HOST, HOST_KILLED, "session crashed after using all available RAM"),
    FAIL("exit-9", HOST, HOST_KILLED, "return code = -9"),
    FAIL("exit-9", HOST, HOST_KILLED, "exitcode~-9"),
    FAIL("exit-9", HOST, HOST_KILLED, "exit code~-9"),
    FAIL("exit-9", HOST, HOST_KILLED, "Signal 9 (SIGKILL)"),
    FAIL("exit-9", HOST, HOST_KILLED, "Signals.SIGKILL: 9"),
    FAIL("exit-9", HOST, HOST_KILLED, "exit code~137"),
    FAIL("exit-9", HOST, HOST_KILLED, "exit status~137"),
    FAIL("exit-9", HOST, HOST_KILLED, "exited with code 137"),
    FAIL("exit-9", HOST, HOST_KILLED, "^Killed$"),
    FAIL("exit-9", HOST, HOST_KILLED, "process is Killed"),
    FAIL("exit-9", HOST, HOST_KILLED, ": line #: {pid:int} Killed"),
    FAIL("ray", HOST, HOST_RAY, "killed due to the node running low on memory"),
    FAIL("ray", HOST, HOST_RAY,
         "was running was {host_used:size} / {host_total:size} (*), which "
         "exceeds the memory usage threshold"),
    FAIL("ray", HOST, HOST_RAY, "killed due to memory pressure (OOM)"),
    CLAUSE(HOST, "memory used={rss:size}"),
    CLAUSE(HOST, "anon-rss:{rss:size}"),
    FAIL("dataloader", HOST, HOST_SHM, "DataLoader worker *killed by signal: Bus error"),
    FAIL("dataloader", HOST, HOST_SHM, "insufficient shared memory (shm)"),
    FAIL("dataloader", HOST, HOST_SHM, "unable to open shared memory object"),
    FAIL("dataloader", HOST, HOST_SHM, "unable to write to file \\</torch_"),
    FAIL("dataloader", HOST, HOST_KILLED, "DataLoader worker *killed by signal: Killed"),
    FAIL("windows", HOST, HOST_PAGEFILE, "WinError 1455"),
    FAIL("windows", HOST, HOST_PAGEFILE, "os error 1455"),
    FAIL("windows", HOST, HOST_PAGEFILE, "paging file is too small"),

    /* Growth that somebody wrote down. */
    FAIL("growth", HOST, HOST_GROWTH, " RSS {growth_first:size} -\\> *-\\> {growth_last:size}"),
    FAIL("growth", HOST, HOST_GROWTH, " RSS {growth_first:size} -\\> {growth_last:size}"),
    FAIL("growth", OTHER, DEVICE_GROWTH, " VRAM {growth_first:size} -\\> *-\\> {growth_last:size}"),
    FAIL("growth", OTHER, DEVICE_GROWTH, " VRAM {growth_first:size} -\\> {growth_last:size}"),
    FAIL("growth", OTHER, GROWTH_STATED,
         " grows <each|every|with each|with every|over time|until|"
         "steadily|continuously|indefinitely|without bound>"),
    FAIL("growth", OTHER, GROWTH_STATED,
         " increases <each|every|with each|with every|over time|"
         "until|steadily|continuously|indefinitely>"),
    FAIL("growth", OTHER, GROWTH_STATED, " keeps <growing|increasing|rising|climbing>"),
    FAIL("growth", OTHER, GROWTH_STATED, " falls over <hours|days|time>"),

    /* Not a shortage of memory. */
    FAIL("triton", OTHER, KERNEL_RESOURCE,
         "out of resource: <shared memory|registers|threads|tensor memory>[, Required: "
         "{request:bytes}, Hardware limit: {limit:bytes}]"),
    FAIL("cuda-launch", OTHER, KERNEL_RESOURCE, "too many resources requested for launch"),
    FAIL("ptxas", OTHER, KERNEL_RESOURCE, "uses too much shared data"),
    FAIL("cuda-fault", OTHER, ILLEGAL_ACCESS, "an illegal memory access was encountered"),
    FAIL("cuda-fault", OTHER, ILLEGAL_ACCESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    FAIL("cuda-fault", OTHER, ILLEGAL_ACCESS, "Memory access fault by GPU"),
    FAIL("cuda-fault", OTHER, ILLEGAL_ACCESS, "device-side assert triggered"),
    FAIL("cuda-fault", OTHER, ILLEGAL_ACCESS, "uncorrectable ECC error"),
    FAIL("cuda-busy", OTHER, DEVICE_BUSY, "all CUDA-capable devices are busy or unavailable"),
    FAIL("disk", OTHER, DISK, "No space left on device"),
    FAIL("disk", OTHER, DISK, "PytorchStreamWriter failed writing"),
    FAIL("disk", OTHER, DISK, "enforce fail at inline_container.cc"),

    /* Anything else that says so. */
    FAIL("generic", OTHER, GENERIC_OOM, "out of memory"),
    FAIL("generic", OTHER, GENERIC_OOM, "OutOfMemoryError"),
    FAIL("generic", OTHER, GENERIC_OOM, "out_of_memory"),
    FAIL("generic", OTHER, GENERIC_OOM, "out-of-memory"),
    FAIL("generic", OTHER, GENERIC_OOM, "not enough memory"),
    FAIL("generic", OTHER, GENERIC_OOM, "insufficient memory"),
    FAIL("generic", OTHER, GENERIC_OOM, "memory allocation failed"),
    FAIL("generic", OTHER, GENERIC_OOM, "failed to allocate memory"),
    FAIL("generic", OTHER, GENERIC_OOM, "failed to allocate {request:size}"),
    FAIL("generic", OTHER, GENERIC_OOM, "failed to allocate {request:bytes} bytes"),

    /* Where it happened: stack frames and the like. */
    NEAR(AT_LOAD, "load_state_dict"),
    NEAR(AT_LOAD, "from_pretrained"),
    NEAR(AT_LOAD, "load_model"),
    NEAR(AT_LOAD, "load_weights"),
    NEAR(AT_LOAD, "caching_allocator_warmup"),
    NEAR(AT_LOAD, "model.to("),
    NEAR(AT_PROFILE, "profile_run"),
    NEAR(AT_PROFILE, "determine_available_memory"),
    NEAR(AT_PROFILE, "determine_num_available_blocks"),
    NEAR(AT_CAPTURE, "capture_end"),
    NEAR(AT_CAPTURE, "capture_begin"),
    NEAR(AT_CAPTURE, "capture_model"),
    NEAR(AT_CAPTURE, "Capturing cudagraph"),
    NEAR(AT_CAPTURE, "Capturing CUDA graph"),
    NEAR(AT_CAPTURE, "Capture cuda graph"),
    NEAR(AT_PIN, "pin_memory"),
    NEAR(AT_PIN, "cudaHostAlloc"),
    NEAR(AT_PIN, "cudaHostRegister"),
    NEAR(AT_PIN, "cudaMallocHost"),
    NEAR(AT_PIN, "hipHostMalloc"),
    NEAR(AT_PIN, "cuMemHostAlloc"),
    NEAR(AT_INIT, "torch._C._cuda_init"),
    NEAR(AT_INIT, "_lazy_init"),
    NEAR(AT_INIT, "cudaSetDevice"),
    NEAR(AT_INIT, "_cuda_setDevice"),
    NEAR(AT_INIT, "torch.cuda.set_device"),
    NEAR(AT_BACKWARD, "run_backward"),
    NEAR(AT_BACKWARD, ".backward("),
    NEAR(AT_OPTIMIZER, "optimizer.step"),
    NEAR(AT_OPTIMIZER, "torch/optim/"),
    NEAR(AT_ATTENTION, "scaled_dot_product"),
    NEAR(AT_ATTENTION, "attn_weights"),
    NEAR(AT_ATTENTION, "attention_scores"),
    NEAR(AT_LOGITS, "cross_entropy"),
    NEAR(AT_LOGITS, "logits.float"),
    NEAR(AT_LOGITS, "log_softmax"),
    NEAR(AT_VAE, "decode_first_stage"),
    NEAR(AT_VAE, "vae.decode"),
    NEAR(AT_VAE, "VAEDecode"),
    NEAR(AT_GATHER, "all_gather_object"),
    NEAR(AT_SAVE, "zero_checkpoint_state_dict"),
    NEAR(ENGINE_DEEPSPEED, "/deepspeed/"),
    SESSION(ENGINE_DEEPSPEED, "Max_MA {stat_peak:size} CA {stat_reserved:size}"),
    NEAR(ON_WINDOWS, "\\\\Users\\\\"),
    NEAR(ON_WINDOWS, "\\\\site-packages\\\\"),
    NEAR(ON_WINDOWS, "WinError"),
    NEAR(ON_WSL, " WSL2"),
    NEAR(CHECKPOINTING_ON, "torch/utils/checkpoint.py"),
    NEAR(EMPTY_CACHE_TRIED, "torch.cuda.empty_cache()"),
    NEAR(RESTARTED, "Restarting worker"),
    NEAR(RESTARTED, "Restarting process"),
    NEAR(RESTARTED, "Started server process"),
    NEAR(RESTARTED, "torchrun "),

    /* Pasted tables. */
    HEADER(STATS_SEEN, "memory summary, device"),
    HEADER(STATS_SEEN, "CUDA OOMs:~{stat_ooms:int}"),
    HEADER(STATS_SEEN, "Metric~Cur Usage"),
    TABLE("cudaMalloc retries:~{stat_retries:int}"),
    TABLE("Allocated memory~{stat_allocated:size}~{stat_peak:size}"),
    TABLE("GPU reserved memory~{stat_reserved:size}"),
    TABLE("Non-releasable memory~{stat_inactive:size}"),
    SESSION(STATS_SEEN, "allocated_bytes.all.current~{stat_allocated:bytes}"),
    SESSION(STATS_SEEN, "allocated_bytes.all.peak~{stat_peak:bytes}"),
    SESSION(STATS_SEEN, "reserved_bytes.all.current~{stat_reserved:bytes}"),
    SESSION(STATS_SEEN, "inactive_split_bytes.all.current~{stat_inactive:bytes}"),
    SESSION(STATS_SEEN, "num_alloc_retries~{stat_retries:bytes}"),
    SESSION(STATS_SEEN, "num_ooms~{stat_ooms:bytes}"),
    SESSION(STATS_SEEN, "torch: reserved {stat_reserved:size}, allocated {stat_allocated:size}"),
    HEADER(SMI_SEEN, "NVIDIA-SMI"),
    HEADER(SMI_SEEN, "Memory-Usage"),
    HEADER(SMI_SEEN, "memory.used"),
    TABLE("{smi_used:mib}MiB / {smi_total:mib}MiB"),
    TABLE("{smi_used:mib} MiB, {smi_total:mib} MiB"),
    TABLE("N/A {pid:int} <C\\+G|C|G> *{smi_process:mib}MiB"),
};

const struct plim_oom_row *plim__oom_rows(size_t *n)
{
    *n = PLIM_COUNT_OF(rows);
    return rows;
}
