/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_OPTIONS_H
#define PLIM_CLI_OPTIONS_H

/*
 * The one table of verbs and options. Everything that a user can type is written here once and expanded
 * from here: parsing, the struct that a verb receives, `--help`, the man pages' OPTIONS blocks, the
 * completions of three shells and the JSON dump (`plimsoll help --format json`) that tests read.
 *
 * A verb is one row of PLIM_VERB_MAP:
 *   X(name, arguments for the synopsis, fewest, most, flags, one line about it)
 * and one list PLIM_OPTIONS_<name>(X, S) of rows
 *   X(S, field, KIND, "long-name", 'short' or 0, "ARGUMENT" or NULL, "default" or NULL, "help")
 * where S is the struct that the fields go to. Kinds and their C types are in verbs.h. The argument of a
 * CHOICE lists what is allowed, "text|json". An argument named FILE, DIR, SNAPSHOT, A or B completes
 * to file names.
 *
 * Each option `--some-name` but --help and --output can also be given as PLIMSOLL_SOME_NAME in the environment and as
 * `some-name = value` in the config file; the command line wins over the environment, that over the
 * config file, that over the default.
 */

#define PLIM_VERB_ANY_ARGS                                                                         \
    1000000U /* "most" of a verb that takes a command line or any number of files */

/* Flags of a verb. */
#define PLIM_VERB_COMMAND                                                                          \
    1U /* options end at the first argument: `plimsoll VERB [options] -- CMD ...` */

#define PLIM_VERB_MAP(X)                                                                           \
    X(diagnose, "SNAPSHOT", 1, 1, 0, "say why memory ran out, or whether a snapshot is healthy")   \
    X(explain, "[FILE|-]", 0, 1, 0,                                                                \
      "say what an out-of-memory message or log means, and what to do")                            \
    X(diff, "A B", 2, 2, 0, "say what grew between two snapshots")                                 \
    X(replay, "SNAPSHOT", 1, 1, 0,                                                                 \
      "run a recorded trace under other settings or on another device")                            \
    X(tune, "SNAPSHOT", 1, 1, 0, "find the settings under which a recorded trace runs best")       \
    X(soak, "[MODEL]", 0, 1, 0, "run hours of traffic through a server's memory in seconds")       \
    X(dryrun, "-- CMD [ARG...]", 0, PLIM_VERB_ANY_ARGS, PLIM_VERB_COMMAND,                         \
      "run an unmodified PyTorch program on a simulated GPU: does it fit?")                        \
    X(incident, "[INCIDENT|DIR]", 0, 1, 0,                                                         \
      "show, list, finish or pack what a failure left behind")                                     \
    X(record, "-- CMD [ARG...]", 0, PLIM_VERB_ANY_ARGS, PLIM_VERB_COMMAND,                         \
      "record every call that moves device memory, with its caller")                               \
    X(plan, "MODEL -- ENGINE_FLAGS", 0, PLIM_VERB_ANY_ARGS, 0,                                     \
      "say whether an engine will serve a model on a card, and what it will report")               \
    X(status, "", 0, 0, 0, "say once what holds the device memory of this machine")                \
    X(top, "", 0, 0, 0, "show device memory in a terminal, by device, engine and process")         \
    X(watch, "", 0, 0, 0, "watch all device memory of this machine, and say what goes wrong")      \
    X(gate, "", 0, 0, 0, "say whether a server has room for a request, before it starts")          \
    X(run, "-- CMD [ARG...]", 0, PLIM_VERB_ANY_ARGS, PLIM_VERB_COMMAND,                            \
      "keep a server alive: evidence, drain, a clear card, a restart one notch lower")             \
    X(history, "[series|subjects|events|findings]", 0, 1, 0,                                       \
      "show what a monitor kept: series by time, who was there, what happened")                    \
    X(doctor, "", 0, 0, 0, "say what is installed here, what is missing and what conflicts")       \
    X(help, "[VERB]", 0, 1, 0, "describe the program, or one verb")                                \
    X(completion, "bash|zsh|fish", 1, 1, 0, "print the completion script of a shell")              \
    X(export, "SNAPSHOT", 1, 1, 0, "write a snapshot in the form of another program")              \
    X(view, "SNAPSHOT", 1, 1, 0, "look at a snapshot in the browser, exact at any zoom")           \
    X(version, "", 0, 0, 0, "print the version and how the program was built")

/* Shared rows. Every verb has --help; PLIM_OPTIONS_OUTPUT gives --format (its choices), -o, --no-color. */
#define PLIM_OPTIONS_EVERY(X, S)                                                                   \
    X(S, help, FLAG, "help", 'h', NULL, NULL, "print this help and exit")

#define PLIM_OPTIONS_FILE(X, S)                                                                    \
    X(S, output, TEXT, "output", 'o', "FILE", NULL,                                                \
      "write to FILE instead of standard output; the file is replaced whole or not at all")

#define PLIM_OPTIONS_OUTPUT(X, S, choices)                                                         \
    X(S, format, CHOICE, "format", 'f', choices, "text", "form of the output")                     \
    PLIM_OPTIONS_FILE(X, S)                                                                        \
    X(S, no_color, FLAG, "no-color", 0, NULL, NULL,                                                \
      "no colours (also when NO_COLOR is set or the output is no terminal)")

#define PLIM_OPTIONS_DEVICE(X, S)                                                                  \
    X(S, device, COUNT, "device", 'd', "N", NULL, "look at device N only (0, 1, ...)")

#define PLIM_OPTIONS_READING(X, S)                                                                 \
    X(S, memory_budget, SIZE, "memory-budget", 0, "SIZE", NULL,                                    \
      "most memory that reading the input may take (default 16GiB)")                               \
    X(S, max_string, SIZE, "max-string", 0, "SIZE", NULL,                                          \
      "longest string that is accepted in the input (default 64MiB)")                              \
    X(S, max_memo, COUNT, "max-memo", 0, "N", NULL,                                                \
      "most entries of a pickle's memo (default 536870912)")                                       \
    X(S, max_nesting, COUNT, "max-nesting", 0, "N", NULL,                                          \
      "deepest nesting that is accepted in the input (default 100)")

#define PLIM_OPTIONS_HTML(X, S)                                                                    \
    X(S, html, TEXT, "html", 0, "FILE", NULL,                                                      \
      "also write an interactive report, one file of at most 5 MB; - writes it instead of the "    \
      "text")

/* The verbs' own rows. */
#define PLIM_OPTIONS_diff(X, S)                                                                    \
    X(S, rows, COUNT, "rows", 0, "N", NULL, "most sites in text and Markdown (default 15)")        \
    PLIM_OPTIONS_HTML(X, S)                                                                        \
    PLIM_OPTIONS_READING(X, S)                                                                     \
    PLIM_OPTIONS_DEVICE(X, S)                                                                      \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json|markdown")

/* What is judged, and what is known besides the snapshot. */
#define PLIM_OPTIONS_JUDGE(X, S)                                                                   \
    X(S, oom_text, TEXT, "oom-text", 0, "FILE", NULL,                                              \
      "the out-of-memory message that belongs to the snapshot: adds the device's side")            \
    X(S, trace, TEXT, "trace", 0, "FILE", NULL,                                                    \
      "the trace of plimsoll record that belongs to the snapshot: adds the memory outside the "    \
      "allocator, by owner")                                                                       \
    X(S, device_memory, SIZE, "device-memory", 0, "SIZE", NULL,                                    \
      "memory of the device, which a snapshot does not record: 24GiB")                             \
    X(S, external, SIZE, "external", 0, "SIZE", NULL,                                              \
      "memory used on the device outside this allocator, by anybody")                              \
    X(S, cap, SIZE, "cap", 0, "SIZE", NULL, "most memory this process was allowed to use")         \
    X(S, at, CHOICE, "at", 0, "auto|peak|end", "auto",                                             \
      "moment to judge: the last failure if there is one, else the end; or the peak")              \
    X(S, rows, COUNT, "rows", 0, "N", NULL,                                                        \
      "rows of blame and pinned segments in JSON and HTML (default 20)")                           \
    X(S, no_replay, FLAG, "no-replay", 0, NULL, NULL,                                              \
      "do not replay the trace under other settings for the advice")

#define PLIM_OPTIONS_diagnose(X, S)                                                                \
    PLIM_OPTIONS_JUDGE(X, S)                                                                       \
    PLIM_OPTIONS_HTML(X, S)                                                                        \
    X(S, check, FLAG, "check", 0, NULL, NULL, "exit with 1 unless the verdict is healthy")         \
    PLIM_OPTIONS_READING(X, S)                                                                     \
    PLIM_OPTIONS_DEVICE(X, S)                                                                      \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json|markdown")

#define PLIM_OPTIONS_export(X, S)                                                                  \
    X(S, format, CHOICE, "format", 'f', "memory-viz|perfetto|folded|sqlite", "memory-viz",         \
      "form of the output")                                                                        \
    X(S, from, COUNT, "from", 0, "N", NULL, "only events from number N on (of one device)")        \
    X(S, until, COUNT, "until", 0, "N", NULL,                                                      \
      "only events before number N; the heap is that after N events")                              \
    PLIM_OPTIONS_READING(X, S)                                                                     \
    PLIM_OPTIONS_DEVICE(X, S)                                                                      \
    PLIM_OPTIONS_FILE(X, S)

#define PLIM_OPTIONS_view(X, S)                                                                    \
    PLIM_OPTIONS_JUDGE(X, S)                                                                       \
    X(S, port, COUNT, "port", 'p', "PORT", NULL,                                                   \
      "port on 127.0.0.1; 0, the default, takes a free one")                                       \
    X(S, no_browser, FLAG, "no-browser", 0, NULL, NULL, "print the address only")                  \
    PLIM_OPTIONS_READING(X, S)                                                                     \
    PLIM_OPTIONS_DEVICE(X, S)

#define PLIM_OPTIONS_explain(X, S)                                                                 \
    X(S, check, FLAG, "check", 0, NULL, NULL, "exit with 1 when the text tells of a failure")      \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json|markdown")

/* What replay and tune run on. */
#define PLIM_OPTIONS_ON_DEVICE(X, S)                                                               \
    X(S, device_memory, SIZE, "device-memory", 0, "SIZE", NULL,                                    \
      "memory of the device: 24GiB; without it what a recorded failure tells, or no limit")        \
    X(S, external, SIZE, "external", 0, "SIZE", NULL,                                              \
      "memory of it used outside this allocator, by anybody (default 0)")                          \
    X(S, torch_version, TEXT, "torch-version", 0, "VERSION", NULL,                                 \
      "imitate this release of PyTorch, 2.1 to 2.14 (default: the one that recorded)")             \
    X(S, scale, REAL, "scale", 0, "FACTOR", NULL,                                                  \
      "let requests that are freed again grow by this factor: 1.2 is 20 % more")

/* Plimsoll's allocator, in each mode; the sizes of its blocks. */
#define PLIM_ALLOCATOR_WORDS "plimsoll|plimsoll:stitch|plimsoll:hybrid|plimsoll:pool"

#define PLIM_OPTIONS_PLAN(X, S)                                                                    \
    X(S, plan, TEXT, "plan", 0, "FILE", NULL,                                                      \
      "mode plan: the seating of blocks (default: made from this snapshot)")

#define PLIM_OPTIONS_SIZES(X, S)                                                                   \
    X(S, sizes, TEXT, "sizes", 0, "BYTES,...", NULL,                                               \
      "mode pool: the sizes of blocks, as in PLIMSOLL_ALLOC_SIZES, or @FILE with them in it")

#define PLIM_OPTIONS_replay(X, S)                                                                  \
    X(S, conf, TEXT, "conf", 'c', "SETTINGS", NULL,                                                \
      "allocator settings as in PYTORCH_ALLOC_CONF (default: those of the recording)")             \
    X(S, allocator, CHOICE, "allocator", 0, "pytorch|" PLIM_ALLOCATOR_WORDS "|plimsoll:plan",      \
      "pytorch",                                                                                   \
      "the caching allocator of PyTorch, or that of libplimsoll_alloc.so, which moves pages, in "  \
      "one of its modes")                                                                          \
    PLIM_OPTIONS_SIZES(X, S)                                                                       \
    PLIM_OPTIONS_PLAN(X, S)                                                                        \
    X(S, write_plan, TEXT, "write-plan", 0, "FILE", NULL,                                          \
      "mode plan: write the seating to FILE, for PLIMSOLL_ALLOC_PLAN")                             \
    PLIM_OPTIONS_ON_DEVICE(X, S)                                                                   \
    X(S, start, CHOICE, "start", 0, "as-was|anew", "as-was",                                       \
      "a history that begins in the middle starts with the heap as it was, or with its live "      \
      "blocks asked for anew")                                                                     \
    X(S, go_on, FLAG, "go-on", 0, NULL, NULL, "do not stop at the first request that fails")       \
    X(S, self_check, FLAG, "self-check", 0, NULL, NULL,                                            \
      "compare the model with the recording, entry by entry, under its own settings")              \
    X(S, check, FLAG, "check", 0, NULL, NULL,                                                      \
      "exit with 1 when a request fails, or when the self-check finds a difference")               \
    PLIM_OPTIONS_READING(X, S)                                                                     \
    PLIM_OPTIONS_DEVICE(X, S)                                                                      \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json|markdown")

#define PLIM_OPTIONS_tune(X, S)                                                                    \
    X(S, vary, TEXT, "vary", 0, "KEY", NULL,                                                       \
      "change only this setting, or device-memory: the smallest card that fits")                   \
    X(S, conf, TEXT, "conf", 'c', "SETTINGS", NULL,                                                \
      "with --vary: the settings that stay (default: those of the recording)")                     \
    X(S, allocator, CHOICE, "allocator", 0, PLIM_ALLOCATOR_WORDS "|plimsoll:plan", "plimsoll",     \
      "the mode of Plimsoll's allocator that stands beside the settings")                          \
    PLIM_OPTIONS_SIZES(X, S)                                                                       \
    PLIM_OPTIONS_PLAN(X, S)                                                                        \
    PLIM_OPTIONS_ON_DEVICE(X, S)                                                                   \
    X(S, threads, COUNT, "threads", 0, "N", NULL,                                                  \
      "replays at the same time (default: processors, at most 8)")                                 \
    X(S, rows, COUNT, "rows", 0, "N", NULL, "rows of the table in text and Markdown (default 20)") \
    PLIM_OPTIONS_HTML(X, S)                                                                        \
    X(S, check, FLAG, "check", 0, NULL, NULL, "exit with 1 when no setting serves every request")  \
    PLIM_OPTIONS_READING(X, S)                                                                     \
    PLIM_OPTIONS_DEVICE(X, S)                                                                      \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json|markdown")

#define PLIM_OPTIONS_soak(X, S)                                                                    \
    X(S, traffic, LIST, "traffic", 't', "TRAFFIC", NULL,                                           \
      "a traffic file, azure-conv (default), azure-code, mooncake, pictures, or a process such "   \
      "as "                                                                                        \
      "gamma:rate=5,cv=3; several times: mixed")                                                   \
    X(S, workload, CHOICE, "workload", 'w', "paged|dynamic|pictures", "paged",                     \
      "kind of server: vLLM, Hugging Face generate(), image generation")                           \
    X(S, conf, LIST, "conf", 'c', "SETTINGS", NULL,                                                \
      "allocator settings as in PYTORCH_ALLOC_CONF; several times: compare them")                  \
    X(S, allocator, CHOICE, "allocator", 0,                                                        \
      "pytorch|" PLIM_ALLOCATOR_WORDS "|both|both:stitch|both:hybrid|both:pool", "pytorch",        \
      "the caching allocator of PyTorch, that of libplimsoll_alloc.so, which moves pages, or "     \
      "the settings of the one and then the other; behind the colon its mode")                     \
    X(S, sizes, TEXT, "sizes", 0, "BYTES,...", NULL,                                               \
      "mode pool: the sizes of blocks, as in PLIMSOLL_ALLOC_SIZES, or @FILE with them in it "      \
      "(default: those that this very traffic needs)")                                             \
    X(S, hours, DURATION, "duration", 0, "TIME", "1h", "simulated time of arrivals: 24h, 3d")      \
    X(S, seeds, COUNT, "seeds", 0, "N", "3", "runs of each setting that differ by chance")         \
    X(S, seed, COUNT, "seed", 0, "N", "0",                                                         \
      "first seed; with 0 a recorded trace begins at its start")                                   \
    X(S, gpu, TEXT, "gpu", 'g', "CARD", "h100-80gb",                                               \
      "card by name, as dryrun --list-gpus shows them")                                            \
    X(S, device_memory, SIZE, "device-memory", 0, "SIZE", NULL, "memory of the device instead")    \
    X(S, external, SIZE, "external", 0, "SIZE", NULL,                                              \
      "memory of it used outside the allocator (default: a context on the card)")                  \
    X(S, torch_version, TEXT, "torch-version", 0, "VERSION", NULL,                                 \
      "imitate this release of PyTorch, 2.1 to 2.14 (default: the latest)")                        \
    X(S, rate, REAL, "rate", 0, "FACTOR", NULL, "let requests come so much faster: 2 is twice")    \
    X(S, length, REAL, "length", 0, "FACTOR", NULL, "let prompts and answers be so much longer")   \
    X(S, tail, TEXT, "tail", 0, "SHARE:P:O", NULL,                                                 \
      "let this share of requests have P prompt and O output tokens: 0.001:120000:4000")           \
    X(S, time_unit, CHOICE, "time-unit", 0, "s|ms|us|ns", NULL,                                    \
      "unit of numbers in a file's time column, when its name does not say")                       \
    X(S, strict, FLAG, "strict", 0, NULL, NULL,                                                    \
      "refuse a traffic file at its first fault instead of repairing and counting")                \
    X(S, max_seqs, COUNT, "max-seqs", 0, "N", NULL, "requests in a step or a batch")               \
    X(S, step_tokens, COUNT, "step-tokens", 0, "N", NULL, "paged: token budget of a step")         \
    X(S, max_length, COUNT, "max-length", 0, "N", NULL,                                            \
      "prompt and answer together; longer requests are refused (default: the model's)")            \
    X(S, block_tokens, COUNT, "block-tokens", 0, "N", NULL, "paged: tokens of a KV block (16)")    \
    X(S, utilization, REAL, "utilization", 0, "SHARE", NULL,                                       \
      "paged: of the device that the engine may use (0.92)")                                       \
    X(S, kv_bytes, SIZE, "kv-bytes", 0, "SIZE", NULL, "paged: size of the pool instead")           \
    X(S, eager, FLAG, "eager", 0, NULL, NULL, "paged: no CUDA graphs")                             \
    X(S, no_prefix_cache, FLAG, "no-prefix-cache", 0, NULL, NULL,                                  \
      "paged: compute prompts whole, whatever prefixes the traffic says they share")               \
    X(S, captures, TEXT, "captures", 0, "N,N,...", NULL, "paged: batch sizes of the graphs")       \
    X(S, batch_wait, DURATION, "batch-wait", 0, "TIME", NULL,                                      \
      "dynamic: how long an open batch waits for more (50ms)")                                     \
    X(S, prompt_edges, TEXT, "prompt-edges", 0, "N,N,...", NULL,                                   \
      "dynamic: pad prompts up to these lengths")                                                  \
    X(S, batch_edges, TEXT, "batch-edges", 0, "N,N,...", NULL, "dynamic: pad batches up to these") \
    X(S, side_edges, TEXT, "side-edges", 0, "N,N,...", NULL,                                       \
      "pictures: round both sides up to these pixels")                                             \
    X(S, denoising_steps, COUNT, "denoising-steps", 0, "N", NULL, "pictures: steps (28)")          \
    X(S, adapters, COUNT, "adapters", 0, "N", NULL, "adapters (LoRA) that requests ask for")       \
    X(S, adapters_held, COUNT, "adapters-held", 0, "N", NULL,                                      \
      "adapters at once on the device (8)")                                                        \
    X(S, adapter_rank, COUNT, "adapter-rank", 0, "N", NULL, "rank of the adapters (16)")           \
    X(S, buckets, CHOICE, "buckets", 0, "prompt|batch|capture|side", NULL,                         \
      "choose edges by replay under the first setting: padded prompts, padded batches, sizes of "  \
      "CUDA graphs, sides of pictures")                                                            \
    X(S, cost, TEXT, "cost", 0, "P:M:W", "1:1:0.1",                                                \
      "with --buckets: weights of padding, memory and wait")                                       \
    X(S, write_sizes, TEXT, "write-sizes", 0, "FILE", NULL,                                        \
      "find the sizes of blocks for mode pool of Plimsoll's allocator, with --buckets under the "  \
      "proposed edges, and write them for PLIMSOLL_ALLOC_SIZES=@FILE")                             \
    X(S, route, FLAG, "route", 0, NULL, NULL,                                                      \
      "find the prompt length at which to split traffic between two replicas")                     \
    X(S, gate, FLAG, "gate", 0, NULL, NULL,                                                        \
      "compare front doors: none, the best fixed limits, the gate's policies, an oracle")          \
    X(S, first_token, DURATION, "first-token", 0, "TIME", "2s",                                    \
      "with --gate: how late the first token may come")                                            \
    X(S, token_time, DURATION, "token-time", 0, "TIME", "100ms",                                   \
      "with --gate: how long each further token may take on average")                              \
    X(S, max_tokens, COUNT, "max-tokens", 0, "N", "2048",                                          \
      "with --gate: answer tokens that clients ask for at most")                                   \
    X(S, empty_cache, FLAG, "empty-cache", 0, NULL, NULL,                                          \
      "the server calls torch.cuda.empty_cache() after each batch, picture or failure")            \
    X(S, stop, FLAG, "stop", 0, NULL, NULL, "end a run at its first failure")                      \
    X(S, tflops, REAL, "tflops", 0, "N", NULL,                                                     \
      "10^12 operations a second that the card reaches (400)")                                     \
    X(S, bandwidth, SIZE, "bandwidth", 0, "SIZE", NULL,                                            \
      "bytes a second that its memory reaches (about 2TB)")                                        \
    X(S, assume, TEXT, "assume", 0, "ARCHITECTURE", NULL,                                          \
      "count an unknown model by the rule of this architecture")                                   \
    X(S, threads, COUNT, "threads", 0, "N", NULL,                                                  \
      "runs at the same time (default: processors, at most 8)")                                    \
    PLIM_OPTIONS_HTML(X, S)                                                                        \
    X(S, check, FLAG, "check", 0, NULL, NULL, "exit with 1 when no setting holds in every seed")   \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json")

#define PLIM_OPTIONS_dryrun(X, S)                                                                  \
    X(S, gpu, TEXT, "gpu", 'g', "CARD", "h100-80gb",                                               \
      "card by name (a100-80gb), size (24GiB), or both (a100-80gb@40GiB); KEY*2 for two")          \
    X(S, list_gpus, FLAG, "list-gpus", 0, NULL, NULL, "list the cards known by name and exit")     \
    X(S, find_smallest, FLAG, "find-smallest", 0, NULL, NULL,                                      \
      "run on several sizes of the card and say which is the smallest that fits")                  \
    X(S, conf, LIST, "conf", 'c', "SETTINGS", NULL,                                                \
      "allocator settings as in PYTORCH_ALLOC_CONF; several times: compare them")                  \
    X(S, external, SIZE, "external", 0, "SIZE", NULL,                                              \
      "memory of the card that others hold (default 0)")                                           \
    X(S, context, SIZE, "context", 0, "SIZE", NULL,                                                \
      "what a CUDA context costs each process (default: an estimate for the card)")                \
    X(S, kernel_time, DURATION, "kernel-time", 0, "TIME", NULL,                                    \
      "real time that each kernel takes: 100us (default: none)")                                   \
    X(S, timeout, DURATION, "timeout", 0, "TIME", NULL,                                            \
      "end the command after this time: 90s, 5m")                                                  \
    X(S, history, COUNT, "history", 0, "N", NULL,                                                  \
      "most events of the memory history to keep (default 400000)")                                \
    X(S, snapshot, TEXT, "snapshot", 's', "FILE", "dryrun.pickle",                                 \
      "where to leave the memory snapshot")                                                        \
    X(S, check, FLAG, "check", 0, NULL, NULL, "exit with 1 unless it fits")                        \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json")

#define PLIM_OPTIONS_incident(X, S)                                                                \
    X(S, finish, FLAG, "finish", 0, NULL, NULL,                                                    \
      "make incidents of what failed programs left in DIR")                                        \
    X(S, pack, FLAG, "pack", 0, NULL, NULL, "write INCIDENT.tar.zst")                              \
    X(S, keep_private, FLAG, "keep-private", 0, NULL, NULL,                                        \
      "with --finish: leave paths, names, arguments and secrets as they are")                      \
    X(S, max_incidents, COUNT, "max-incidents", 0, "N", "20",                                      \
      "with --finish: most incidents to keep in DIR; the oldest are removed")                      \
    X(S, max_bytes, SIZE, "max-bytes", 0, "SIZE", "8GiB",                                          \
      "with --finish: most bytes of all incidents in DIR; the oldest are removed")                 \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json|markdown")

#define PLIM_OPTIONS_record(X, S)                                                                  \
    X(S, trace, TEXT, "trace-file", 'o', "FILE", "record.plt", "where to write the trace")         \
    X(S, stacks, FLAG, "stacks", 0, NULL, NULL,                                                    \
      "record the native stack of each call, not only the library")                                \
    X(S, ring, SIZE, "ring", 0, "SIZE", NULL,                                                      \
      "shared memory for events of each process that are not written yet")                         \
    X(S, max_size, SIZE, "max-size", 0, "SIZE", NULL,                                              \
      "largest trace; the command goes on behind it, and events are counted")                      \
    X(S, max_time, DURATION, "max-time", 0, "TIME", NULL,                                          \
      "longest time to record: 90s, 5m; the command goes on behind it")                            \
    X(S, follow, FLAG, "follow", 0, NULL, NULL,                                                    \
      "stay until the last recorded process has ended, not only the command")                      \
    X(S, no_attach, FLAG, "no-attach", 0, NULL, NULL,                                              \
      "do not record the history of PyTorch's allocator, nor a snapshot when it fails")            \
    X(S, incidents, TEXT, "incidents", 0, "DIR", NULL,                                             \
      "folder for what a failure leaves behind (default plimsoll-incidents)")                      \
    X(S, no_incidents, FLAG, "no-incidents", 0, NULL, NULL, "leave nothing behind but the trace")  \
    X(S, keep_private, FLAG, "keep-private", 0, NULL, NULL,                                        \
      "in incidents leave paths, names, arguments and secrets as they are")                        \
    X(S, quiet, FLAG, "quiet", 'q', NULL, NULL, "no summary at the end")

/* The card that a plan is for. */
#define PLIM_OPTIONS_PLAN_CARD(X, S)                                                               \
    X(S, gpu, TEXT, "gpu", 'g', "CARD", NULL,                                                      \
      "card by name (h100-80gb), or one slice of it (h100-80gb/3g.40gb)")                          \
    X(S, list_gpus, FLAG, "list-gpus", 0, NULL, NULL, "list the cards known by name and exit")     \
    X(S, device_memory, SIZE, "device-memory", 0, "SIZE", NULL,                                    \
      "memory as cudaMemGetInfo reports it; without --gpu also --cc and --sms")                    \
    X(S, cc, REAL, "cc", 0, "CAPABILITY", NULL, "compute capability: 9.0")                         \
    X(S, sms, COUNT, "sms", 0, "N", NULL, "multiprocessors of the card")                           \
    X(S, gpu_name, TEXT, "gpu-name", 0, "NAME", NULL,                                              \
      "the card's name as the driver reports it: engines choose defaults by it")                   \
    X(S, context, SIZE, "context", 0, "SIZE", NULL,                                                \
      "what a CUDA context costs (default: an estimate for the card, 500 MiB without --gpu)")      \
    X(S, external, SIZE, "external", 0, "SIZE", NULL,                                              \
      "memory of the card that other processes hold (default 0)")

#define PLIM_OPTIONS_PLAN_TRAFFIC(X, S)                                                            \
    X(S, traffic, TEXT, "traffic", 't', "FILE", NULL,                                              \
      "requests to serve: Azure, BurstGPT, Mooncake, Bailian, CSV or JSON lines")                  \
    X(S, prompt, COUNT, "prompt", 0, "TOKENS", NULL, "mean tokens of a prompt")                    \
    X(S, output_tokens, COUNT, "output-tokens", 0, "TOKENS", NULL, "mean tokens of an answer")     \
    X(S, rate, REAL, "rate", 0, "N", NULL, "requests a second")                                    \
    X(S, speed, REAL, "speed", 0, "N", NULL,                                                       \
      "tokens a second that one request is given (default 30)")

#define PLIM_OPTIONS_plan(X, S)                                                                    \
    X(S, engine, CHOICE, "engine", 'e', "vllm|sglang|tensorrt-llm|tgi|llama.cpp|ollama", "vllm",   \
      "the engine")                                                                                \
    X(S, engine_version, TEXT, "engine-version", 0, "VERSION", NULL,                               \
      "its release (default: the one that is modelled)")                                           \
    PLIM_OPTIONS_PLAN_CARD(X, S)                                                                   \
    PLIM_OPTIONS_PLAN_TRAFFIC(X, S)                                                                \
    X(S, conf, TEXT, "conf", 'c', "SETTINGS", NULL,                                                \
      "allocator settings of the engine's process, as in PYTORCH_ALLOC_CONF")                      \
    X(S, assume, TEXT, "assume", 0, "NAME", NULL, "treat an unknown architecture like this one")   \
    X(S, largest_context, FLAG, "largest-context", 0, NULL, NULL, "also say the longest context")  \
    X(S, largest_batch, FLAG, "largest-batch", 0, NULL, NULL,                                      \
      "also say how many requests run at once, of the traffic's or the longest length")            \
    X(S, smallest_gpu, FLAG, "smallest-gpu", 0, NULL, NULL,                                        \
      "also say the smallest card known by name that serves this")                                 \
    X(S, replicas, FLAG, "replicas", 0, NULL, NULL,                                                \
      "also say how many replicas the traffic needs")                                              \
    X(S, calibrate, TEXT, "calibrate", 0, "FILE", NULL,                                            \
      "compare with the log of a start of the engine (or its /metrics) and keep the difference "   \
      "for this host")                                                                             \
    X(S, no_calibration, FLAG, "no-calibration", 0, NULL, NULL,                                    \
      "do not use what was learned about this host")                                               \
    X(S, forget, FLAG, "forget", 0, NULL, NULL, "first forget what was learned about this host")   \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json")

/* Where samples come from. */
#define PLIM_OPTIONS_SAMPLES(X, S)                                                                 \
    X(S, samples, TEXT, "samples", 0, "FILE", NULL,                                                \
      "take samples from this file (plimsoll.sample/1 lines) instead of asking drivers")

/* What is looked at besides drivers. */
#define PLIM_OPTIONS_ENGINES(X, S)                                                                 \
    X(S, engine_url, LIST, "engine-url", 0, "ADDRESS", NULL,                                       \
      "ask this serving engine for its metrics: [NAME=]HOST:PORT, http://..., unix:PATH; may be "  \
      "repeated")                                                                                  \
    X(S, engine_log, LIST, "engine-log", 0, "FILE", NULL,                                          \
      "follow this log of an engine: [NAME=]PATH, or - for standard input; may be repeated")       \
    X(S, no_discover, FLAG, "no-discover", 0, NULL, NULL,                                          \
      "do not look for engines on this machine's loopback")

#define PLIM_OPTIONS_watch(X, S)                                                                   \
    X(S, settings, TEXT, "settings", 0, "FILE", NULL, "settings file of the monitor")              \
    X(S, interval, DURATION, "interval", 'i', "TIME", NULL, "time between samples (default 1s)")   \
    X(S, listen, LIST, "listen", 'l', "ADDRESS", NULL,                                             \
      "serve there: 127.0.0.1:9754, [::1]:9754, unix:PATH, none; may be repeated")                 \
    X(S, db, TEXT, "db", 0, "FILE", NULL, "history; \"none\" keeps it in memory only")             \
    X(S, max_bytes, SIZE, "max-bytes", 0, "SIZE", NULL,                                            \
      "most disk space of the history (default 1GiB); the oldest goes first")                      \
    X(S, peer, LIST, "peer", 0, "URL", NULL,                                                       \
      "show this monitor too on the page of the fleet: http://HOST:PORT; may be repeated")         \
    PLIM_OPTIONS_SAMPLES(X, S)                                                                     \
    PLIM_OPTIONS_ENGINES(X, S)                                                                     \
    X(S, steps, COUNT, "steps", 0, "N", NULL, "end after so many samples (default: never)")        \
    X(S, host, TEXT, "host", 0, "NAME", NULL,                                                      \
      "name of this machine for others (default: its host name)")                                  \
    X(S, test_alert, TEXT, "test-alert", 0, "NAME", NULL,                                          \
      "only send a sample alert to the receiver [notify NAME] of the settings file")               \
    X(S, check_settings, FLAG, "check-settings", 0, NULL, NULL, "only check the settings file")    \
    X(S, example_settings, FLAG, "example-settings", 0, NULL, NULL,                                \
      "only print a settings file with every key and its meaning")

#define PLIM_OPTIONS_run(X, S)                                                                     \
    X(S, health, TEXT, "health", 0, "ADDRESS", NULL,                                               \
      "answers 200 while the server works: http://127.0.0.1:8000/health")                          \
    X(S, health_every, DURATION, "health-every", 0, "TIME", "5s", "time between two questions")    \
    X(S, health_misses, COUNT, "health-misses", 0, "N", "3", "missing answers that mean it hangs") \
    X(S, heartbeat, DURATION, "heartbeat", 0, "TIME", "2m",                                        \
      "a process of it that uses a device and gives no sign of life for so long hangs")            \
    X(S, start_timeout, DURATION, "start-timeout", 0, "TIME", "20m",                               \
      "longest time until it is healthy")                                                          \
    X(S, ledger, TEXT, "ledger", 0, "FILE", NULL,                                                  \
      "the gate's ledger, of the server's middleware: drains by it, and its breaker restarts")     \
    X(S, drain, DURATION, "drain", 0, "TIME", "30s", "longest time for requests to end")           \
    X(S, grace, DURATION, "grace", 0, "TIME", "30s", "time between SIGTERM and SIGKILL")           \
    X(S, clear, DURATION, "clear", 0, "TIME", "1m", "longest wait for the card to be free")        \
    X(S, restarts, COUNT, "restarts", 0, "N", "5", "restarts within the window, then it gives up") \
    X(S, window, DURATION, "window", 0, "TIME", "10m", "time in which restarts are counted")       \
    X(S, backoff, DURATION, "backoff", 0, "TIME", "1s",                                            \
      "before the first restart; doubles with each one, to 32 times")                              \
    X(S, notch, LIST, "notch", 0, "FLAG=STEP[:LIMIT]", NULL,                                       \
      "after memory ran out make this flag smaller: max-model-len=/2:4096; may be repeated")       \
    X(S, notch_reset, DURATION, "notch-reset", 0, "TIME", "24h",                                   \
      "good time after which a notch is taken back")                                               \
    X(S, stranded, REAL, "stranded", 0, "SHARE", NULL,                                             \
      "plan a restart when this share of reserved memory is stranded for ten minutes")             \
    X(S, restart_window, TEXT, "restart-window", 0, "FROM-TO", NULL,                               \
      "time of day of planned restarts: 02:00-05:00")                                              \
    X(S, no_lock, FLAG, "no-lock", 0, NULL, NULL,                                                  \
      "start beside another engine that starts on the same device")                                \
    X(S, bare, FLAG, "bare", 0, NULL, NULL, "do not record: no evidence is kept")                  \
    X(S, trace, TEXT, "trace-file", 'o', "FILE", NULL, "keep the recording of each turn here")     \
    X(S, incidents, TEXT, "incidents", 0, "DIR", NULL,                                             \
      "folder for what a failure leaves behind (default plimsoll-incidents)")

#define PLIM_OPTIONS_gate(X, S)                                                                    \
    X(S, engine_url, LIST, "engine-url", 0, "ADDRESS", NULL,                                       \
      "ask this engine for its figures: HOST:PORT, http://..., unix:PATH; may be repeated")        \
    X(S, ledger, TEXT, "ledger", 0, "FILE", NULL,                                                  \
      "ledger that is shared with the middleware in API servers (default: memory)")                \
    X(S, listen, LIST, "listen", 'l', "ADDRESS", NULL,                                             \
      "serve there: 127.0.0.1:9755, [::1]:9755, unix:PATH; may be repeated")                       \
    X(S, token_file, TEXT, "token-file", 0, "FILE", NULL,                                          \
      "file with the token that others than this machine must give")                               \
    X(S, agent, TEXT, "agent", 0, "ADDRESS", NULL, "answer HAProxy's agent checks there")          \
    X(S, capacity_tokens, COUNT, "capacity-tokens", 0, "N", NULL,                                  \
      "tokens that the KV cache has room for (default: the engine's)")                             \
    X(S, block_tokens, COUNT, "block-tokens", 0, "N", NULL,                                        \
      "tokens of a block of it (default 16)")                                                      \
    X(S, max_length, COUNT, "max-length", 0, "N", NULL,                                            \
      "most tokens of a request (default: the engine's)")                                          \
    X(S, max_requests, COUNT, "max-requests", 0, "N", NULL, "most requests at once")               \
    X(S, policy, CHOICE, "policy", 0, "expected|conservative|overcommit|unlimited", "expected",    \
      "how memory is judged")                                                                      \
    X(S, first_token, DURATION, "first-token", 0, "TIME", NULL,                                    \
      "refuse what would wait longer than this for its first token")                               \
    X(S, token_time, DURATION, "token-time", 0, "TIME", NULL,                                      \
      "take so many at once that each further token takes no longer than this")                    \
    X(S, lease, DURATION, "lease", 0, "TIME", NULL,                                                \
      "end a reservation that nobody renews for so long (default 1m)")                             \
    X(S, authz_lease, DURATION, "authz-lease", 0, "TIME", NULL,                                    \
      "the same for those made at /authz (default 10s)")                                           \
    X(S, queue, COUNT, "queue", 0, "N", NULL, "most requests that may wait (default: none)")       \
    X(S, work_token, SIZE, "work-token", 0, "SIZE", NULL,                                          \
      "workspace for each prompt token of a step")                                                 \
    X(S, work_image, SIZE, "work-image", 0, "SIZE", NULL,                                          \
      "workspace for each token of a picture while it is encoded")                                 \
    X(S, work_row, SIZE, "work-row", 0, "SIZE", NULL,                                              \
      "workspace for each prompt token whose log-probability is asked")                            \
    X(S, work_room, SIZE, "work-room", 0, "SIZE", NULL,                                            \
      "memory for workspace while nobody tells what the device has free")                          \
    X(S, step_tokens, COUNT, "step-tokens", 0, "N", NULL,                                          \
      "prompt tokens that the engine computes in a step at most")                                  \
    X(S, fail, CHOICE, "fail", 0, "open|closed", "closed",                                         \
      "what happens to requests while the gate cannot decide")                                     \
    X(S, steps, COUNT, "steps", 0, "N", NULL, "end after so many seconds (default: never)")

#define PLIM_OPTIONS_top(X, S)                                                                     \
    X(S, monitor, TEXT, "monitor", 0, "ADDRESS", NULL,                                             \
      "show what a running monitor sees: HOST:PORT or unix:PATH of plimsoll watch")                \
    X(S, interval, DURATION, "interval", 'i', "TIME", "1s", "time between two looks")              \
    X(S, batch, FLAG, "batch", 'b', NULL, NULL,                                                    \
      "plain text, screen after screen, for files and pipes: no terminal is needed")               \
    X(S, once, FLAG, "once", '1', NULL, NULL, "one screen of plain text, then end")                \
    X(S, steps, COUNT, "steps", 0, "N", NULL, "end after so many screens (default: never)")        \
    X(S, width, COUNT, "width", 0, "N", "120", "columns of the plain text")                        \
    X(S, sort, CHOICE, "sort", 's',                                                                \
      "memory|pid|device|kind|share|live|slack|stranded|outside|growth|host|name", "memory",       \
      "column that the processes are sorted by")                                                   \
    X(S, filter, TEXT, "filter", 0, "TEXT", NULL,                                                  \
      "only processes with this text in name, unit, container or pid")                             \
    X(S, tree, FLAG, "tree", 't', NULL, NULL, "processes under their parents")                     \
    PLIM_OPTIONS_DEVICE(X, S)                                                                      \
    PLIM_OPTIONS_SAMPLES(X, S)                                                                     \
    PLIM_OPTIONS_ENGINES(X, S)                                                                     \
    X(S, ascii, FLAG, "ascii", 0, NULL, NULL, "draw with ASCII only")                              \
    X(S, no_color, FLAG, "no-color", 0, NULL, NULL,                                                \
      "no colours (also when NO_COLOR is set or the output is no terminal)")

#define PLIM_OPTIONS_status(X, S)                                                                  \
    X(S, monitor, TEXT, "monitor", 0, "ADDRESS", NULL,                                             \
      "ask the monitor there: HOST:PORT, https://..., unix:PATH; none: look without one "          \
      "(default: "                                                                                 \
      "a monitor of this machine, if one runs)")                                                   \
    X(S, token_file, TEXT, "token-file", 0, "FILE", NULL, "file with the token of that monitor")   \
    X(S, replay, TEXT, "replay", 0, "FILE", NULL,                                                  \
      "judge a recorded history (plimsoll.sample/1 lines): its last sample, and all findings")     \
    PLIM_OPTIONS_SAMPLES(X, S)                                                                     \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json|prometheus|openmetrics")

#define PLIM_OPTIONS_history(X, S)                                                                 \
    X(S, db, TEXT, "db", 0, "FILE", NULL, "the history (default: where plimsoll watch keeps it)")  \
    X(S, monitor, TEXT, "monitor", 0, "ADDRESS", NULL,                                             \
      "ask the monitor there for its history: HOST:PORT, https://..., unix:PATH")                  \
    X(S, token_file, TEXT, "token-file", 0, "FILE", NULL, "file with the token of that monitor")   \
    X(S, since, TEXT, "since", 0, "TIME", NULL,                                                    \
      "from there: 2026-01-31T12:00:00Z, 2026-01-31, @SECONDS, or 2h for two hours ago")           \
    X(S, to, TEXT, "to", 0, "TIME", NULL, "to there (default: now)")                               \
    X(S, last, DURATION, "last", 0, "TIME", NULL, "so long, to the end (default 1h)")              \
    PLIM_OPTIONS_DEVICE(X, S)                                                                      \
    X(S, process, LIST, "process", 0, "NAME", NULL,                                                \
      "processes of this name (* and ?) or pid; may be repeated")                                  \
    X(S, serving, LIST, "serving", 0, "NAME", NULL,                                                \
      "serving engines of this name (* and ?); may be repeated")                                   \
    X(S, figure, LIST, "figure", 0, "NAME", NULL,                                                  \
      "figures of this name (* and ?); may be repeated (default: those that say most)")            \
    X(S, step, DURATION, "step", 0, "TIME", NULL, "time of each bin (default: by --points)")       \
    X(S, points, COUNT, "points", 0, "N", NULL, "most bins of a series (default 1000)")            \
    PLIM_OPTIONS_OUTPUT(X, S, "text|csv|jsonl|json")

#define PLIM_OPTIONS_doctor(X, S)                                                                  \
    PLIM_OPTIONS_OUTPUT(X, S, "text|json")                                                         \
    X(S, check, FLAG, "check", 0, NULL, NULL, "exit with 1 when there is something to look at")

#define PLIM_OPTIONS_help(X, S) PLIM_OPTIONS_OUTPUT(X, S, "text|json|scdoc")

#define PLIM_OPTIONS_completion(X, S) PLIM_OPTIONS_FILE(X, S)

#define PLIM_OPTIONS_version(X, S) PLIM_OPTIONS_OUTPUT(X, S, "text|json")

#endif
