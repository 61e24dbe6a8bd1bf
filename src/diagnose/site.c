/* SPDX-License-Identifier: Apache-2.0 */
/* Which frames tell something, which name a kind of memory, and the grouping by them. */

#include "diagnose/site.h"

#include "base/num.h"

/* Where installed packages lie. Paths are compared with every back-slash read as a slash. */
static const char *const package_folders[] = {"site-packages/", "dist-packages/"};

/* Parts of a path that mark PyTorch's own code, installed or in a source tree. */
static const char *const framework_paths[] = {
    "-packages/torch/",    "torch/nn/modules/", "torch/nn/functional.py", "torch/_ops.py",
    "torch/functional.py", "torch/_tensor.py",  "torch/utils/",           "torch/optim/",
    "torch/autograd/",     "torch/cuda/",       "torch/_dynamo/",         "torch/_inductor/",
    "torch/fx/",           "torch/_prims",      "torch/_refs/",           "torch/_compile.py",
    "torch/overrides.py",  "<frozen ",          "<__array_function",
};

/* The standard library and code without a file. */
static const char *const standard_paths[] = {"/lib/python", "/Lib/", "<string>", "<stdin>", "??"};

/* Extensions and files of compiled code, whose frames say little to a Python user. */
static const char *const native_files[] = {".cpp", ".cc", ".cu", ".h",   ".c",
                                           ".so",  ".S",  ".s",  ".inl", ".hpp"};

/* A node of the backward graph: torch::autograd::generated::AddmmBackward0::apply(...). Its thread has no
 * Python frames, and the node's name says which operation's gradient is computed. */
#define NODE_PREFIX "torch::autograd::"
#define NODE_METHOD "::apply("

/* Native functions that are about recording or the allocator itself, never about the caller. */
static const char *const noise_names[] = {
    "torch::unwind",
    "CapturedTraceback",
    "gather_with_cpp",
    "CUDACachingAllocator",
    "c10::StorageImpl",
    "at::detail::empty",
    "c10::impl",
    "_PyEval",
    "_PyObject",
    "PyObject_",
    "_Py",
    "PyEval",
    "__libc_start",
    "_start",
    "cfunction",
    "method_vectorcall",
};

/* What a name suggests. Order matters: the first row that matches any frame wins. */
static const struct {
    const char
        *part; /* lower-case part of a function or file name; "=x": the whole function name */
    enum plim_category category;
} hints[] = {
    {"nccl", PLIM_CATEGORY_COMMUNICATION},       {"all_reduce", PLIM_CATEGORY_COMMUNICATION},
    {"all_gather", PLIM_CATEGORY_COMMUNICATION}, {"reduce_scatter", PLIM_CATEGORY_COMMUNICATION},
    {"torch/optim/", PLIM_CATEGORY_OPTIMIZER},   {"torch\\optim\\", PLIM_CATEGORY_OPTIMIZER},
    {"_init_group", PLIM_CATEGORY_OPTIMIZER},    {"optimizer", PLIM_CATEGORY_OPTIMIZER},
    {"kv_cache", PLIM_CATEGORY_KV_CACHE},        {"kvcache", PLIM_CATEGORY_KV_CACHE},
    {"cache_utils", PLIM_CATEGORY_KV_CACHE},     {"past_key_value", PLIM_CATEGORY_KV_CACHE},
    {"dynamiccache", PLIM_CATEGORY_KV_CACHE},    {"paged_attention", PLIM_CATEGORY_KV_CACHE},
    {"load_state_dict", PLIM_CATEGORY_WEIGHTS},  {"from_pretrained", PLIM_CATEGORY_WEIGHTS},
    {"load_model", PLIM_CATEGORY_WEIGHTS},       {"load_weights", PLIM_CATEGORY_WEIGHTS},
    {"create_weights", PLIM_CATEGORY_WEIGHTS},   {"safetensors", PLIM_CATEGORY_WEIGHTS},
    {"load_checkpoint", PLIM_CATEGORY_WEIGHTS},  {"load_tensor", PLIM_CATEGORY_WEIGHTS},
    {"quantiz", PLIM_CATEGORY_WEIGHTS},          {"=load", PLIM_CATEGORY_WEIGHTS},
    {"reset_parameters", PLIM_CATEGORY_WEIGHTS}, {"=_apply", PLIM_CATEGORY_WEIGHTS},
    {"to_empty", PLIM_CATEGORY_WEIGHTS},         {"init_weights", PLIM_CATEGORY_WEIGHTS},
    {"workspace", PLIM_CATEGORY_WORKSPACE},      {"cublas", PLIM_CATEGORY_WORKSPACE},
    {"cudnn", PLIM_CATEGORY_WORKSPACE},          {"backward", PLIM_CATEGORY_GRADIENTS},
    {"accumulategrad", PLIM_CATEGORY_GRADIENTS}, {"=forward", PLIM_CATEGORY_ACTIVATIONS},
    {"_call_impl", PLIM_CATEGORY_ACTIVATIONS},   {"generate", PLIM_CATEGORY_ACTIVATIONS},
};

const char *plim_category_text(enum plim_category category)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_CATEGORY_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)category < PLIM_CATEGORY_COUNT ? texts[category] : "unknown";
}

/* Whether s holds one of the parts; '\\' in s counts as '/'. */
static bool contains_any(struct plim_str s, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(parts[i]);
        for (size_t at = 0; at + length <= s.n; at++) {
            size_t k = 0;
            while (k < length && (s.p[at + k] == '\\' ? '/' : s.p[at + k]) == parts[i][k]) {
                k++;
            }
            if (k == length) {
                return true;
            }
        }
    }
    return false;
}

static bool is_native(struct plim_str file)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(native_files); i++) {
        if (plim_str_ends(file, plim_str_from(native_files[i]))) {
            return true;
        }
    }
    return file.n == 0;
}

/* What one frame is; see site.h. */
enum frame_kind {
    FRAME_NOISE,
    FRAME_FRAMEWORK,
    FRAME_NODE, /* of the backward graph */
    FRAME_PACKAGE,
    FRAME_USER
};

static enum frame_kind kind_of_file(struct plim_str file)
{
    bool installed = contains_any(file, package_folders, PLIM_COUNT_OF(package_folders));
    if (is_native(file) || contains_any(file, framework_paths, PLIM_COUNT_OF(framework_paths))) {
        return FRAME_FRAMEWORK;
    }
    if (!installed && contains_any(file, standard_paths, PLIM_COUNT_OF(standard_paths))) {
        return FRAME_FRAMEWORK;
    }
    return installed ? FRAME_PACKAGE : FRAME_USER;
}

static bool is_noise(struct plim_str name)
{
    return contains_any(name, noise_names, PLIM_COUNT_OF(noise_names));
}

static bool is_backward_node(struct plim_str name)
{
    size_t n = strlen(NODE_PREFIX);
    return name.n > n && memcmp(name.p, NODE_PREFIX, n) == 0 &&
           plim_str_find(name, PLIM_STR(NODE_METHOD)) != SIZE_MAX;
}

bool plim_frame_is_program(const struct plim_snapshot *snapshot, uint32_t frame)
{
    const struct plim_frame *f = &snapshot->stacks.frames.items[frame];
    struct plim_str name = plim_intern_str(&snapshot->strings, f->name);
    return !is_noise(name) && !is_backward_node(name) &&
           kind_of_file(plim_intern_str(&snapshot->strings, f->file)) >= FRAME_PACKAGE;
}

static bool equals_ignoring_case(const char *p, const char *lower_case, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] | 0x20) : p[i];
        if (c != lower_case[i]) {
            return false;
        }
    }
    return true;
}

static bool has_hint(struct plim_str s, const char *part)
{
    size_t n = strlen(part);
    if (part[0] == '=') {
        return s.n == n - 1 && equals_ignoring_case(s.p, part + 1, n - 1);
    }
    for (size_t i = 0; i + n <= s.n; i++) {
        if (equals_ignoring_case(s.p + i, part, n)) {
            return true;
        }
    }
    return false;
}

/* The first row of `hints` that a string matches, or their number. */
static uint8_t hint_of_string(struct plim_str s)
{
    uint8_t i = 0;
    while (i < PLIM_COUNT_OF(hints) && !has_hint(s, hints[i].part)) {
        i++;
    }
    return i;
}

#define NOT_LOOKED_AT UINT8_MAX

struct builder {
    const struct plim_snapshot *snapshot;
    struct plim_sites *sites;
    uint8_t *kinds;        /* owned: frame id -> enum frame_kind */
    uint64_t *hashes;      /* owned: frame id -> hash of its texts */
    uint8_t *hints;        /* owned: string id -> row of hints, NOT_LOOKED_AT until needed */
    uint8_t *file_kinds;   /* in hints' storage: string id as a file -> enum frame_kind, the same */
    uint8_t *noise;        /* in hints' storage: string id as a function name -> 0 or 1, the same */
    struct plim_map index; /* hash of the grouping frames -> site */
};

static enum frame_kind kind_of(const struct builder *b, const struct plim_frame *frame)
{
    struct plim_str name = plim_intern_str(&b->snapshot->strings, frame->name);
    struct plim_str file = plim_intern_str(&b->snapshot->strings, frame->file);
    size_t strings = b->snapshot->strings.strs.n;
    if (frame->name < strings && b->noise[frame->name] == NOT_LOOKED_AT) {
        b->noise[frame->name] = is_noise(name);
    }
    if (frame->file < strings && b->file_kinds[frame->file] == NOT_LOOKED_AT) {
        b->file_kinds[frame->file] = (uint8_t)kind_of_file(file);
    }
    if (frame->name < strings && b->noise[frame->name] == 1) {
        return FRAME_NOISE;
    }
    if (is_backward_node(name)) {
        return FRAME_NODE;
    }
    return frame->file < strings ? (enum frame_kind)b->file_kinds[frame->file] : FRAME_FRAMEWORK;
}

static uint64_t hash_of(const struct plim_intern *strings, const struct plim_frame *frame)
{
    uint64_t name = frame->name < strings->hashes.n ? strings->hashes.items[frame->name] : 0;
    uint64_t file = frame->file < strings->hashes.n ? strings->hashes.items[frame->file] : 0;
    return plim_hash_u64(name + plim_hash_u64(file + frame->line));
}

static enum plim_status classify_frames(struct builder *b, struct plim_err *err)
{
    size_t n = b->snapshot->stacks.frames.n, strings = b->snapshot->strings.strs.n;
    b->kinds = malloc(n + 1);
    b->hashes = calloc(n + 1, sizeof(b->hashes[0]));
    b->hints = malloc(3 * (strings + 1));
    if (!b->kinds || !b->hashes || !b->hints) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu frames", n);
    }
    b->file_kinds = b->hints + strings + 1;
    b->noise = b->file_kinds + strings + 1;
    memset(b->hints, NOT_LOOKED_AT, 3 * (strings + 1));
    for (size_t i = 0; i < n; i++) {
        b->kinds[i] = (uint8_t)kind_of(b, &b->snapshot->stacks.frames.items[i]);
        b->hashes[i] = hash_of(&b->snapshot->strings, &b->snapshot->stacks.frames.items[i]);
    }
    return PLIM_OK;
}

static uint8_t hint_of(const struct builder *b, uint32_t string)
{
    if (string >= b->snapshot->strings.strs.n) {
        return PLIM_COUNT_OF(hints);
    }
    if (b->hints[string] == NOT_LOOKED_AT) {
        b->hints[string] = hint_of_string(plim_intern_str(&b->snapshot->strings, string));
    }
    return b->hints[string];
}

/* The category that the frames of a stack suggest: the strongest hint of any of them. */
static enum plim_category category_of(const struct builder *b, const uint32_t *ids, size_t n)
{
    uint8_t best = PLIM_COUNT_OF(hints);
    for (size_t i = 0; i < n; i++) {
        const struct plim_frame *f = &b->snapshot->stacks.frames.items[ids[i]];
        uint8_t name = hint_of(b, f->name), file = hint_of(b, f->file);
        best = name < best ? name : best;
        best = file < best ? file : best;
    }
    return best < PLIM_COUNT_OF(hints) ? hints[best].category : PLIM_CATEGORY_UNKNOWN;
}

/* Keep a frame for showing; the last place is for the user's own code. */
static void show_frame(const struct builder *b, uint32_t frame, struct plim_site *site)
{
    bool user = b->kinds[frame] == FRAME_USER;
    if (site->n_frames < PLIM_SITE_FRAMES - 1 || (site->n_frames < PLIM_SITE_FRAMES && user)) {
        site->frames[site->n_frames++] = frame;
    }
}

/* Hash over the frames of at least this kind, at most `most` of them; 0 when there is none. */
static uint64_t collect(const struct builder *b, const uint32_t *ids, size_t n,
                        enum frame_kind from, size_t most, struct plim_site *site)
{
    uint64_t hash = plim_hash_u64((uint64_t)from + 1);
    size_t taken = 0;
    for (size_t i = 0; i < n && taken < most; i++) {
        if (b->kinds[ids[i]] >= from) {
            hash = plim_hash_u64(hash ^ b->hashes[ids[i]]);
            show_frame(b, ids[i], site);
            taken++;
        }
    }
    return taken ? hash : 0;
}

static enum plim_status site_for_stack(struct builder *b, uint32_t stack, uint32_t *out,
                                       struct plim_err *err)
{
    size_t n;
    const uint32_t *ids = plim_stacks_frames(&b->snapshot->stacks, stack, &n);
    struct plim_site site = {.stack = stack};
    uint64_t hash = collect(b, ids, n, FRAME_PACKAGE, SIZE_MAX, &site);
    if (hash == 0) {
        hash = collect(b, ids, n, FRAME_NODE, 1, &site);
    }
    if (hash == 0) {
        hash = collect(b, ids, n, FRAME_FRAMEWORK, 2, &site);
    }
    site.category = category_of(b, ids, n);
    if (hash == 0) {
        *out = 0;
        return PLIM_OK;
    }
    site.key = plim_hash_u64(hash + (uint64_t)site.category) >> 1; /* never PLIM_MAP_NO_KEY */
    uint64_t *found = plim_map_get(&b->index, site.key);
    if (found) {
        *out = (uint32_t)*found;
        return PLIM_OK;
    }
    *out = (uint32_t)b->sites->sites.n;
    PLIM_TRY(plim_map_put(&b->index, site.key, *out, err));
    return plim_vec_push(&b->sites->sites, err, site);
}

static enum plim_status build(struct builder *b, struct plim_err *err)
{
    size_t n = b->snapshot->stacks.stacks.n;
    PLIM_TRY(classify_frames(b, err));
    PLIM_TRY(plim_vec_push(&b->sites->sites, err, (struct plim_site){.stack = PLIM_NO_STACK}));
    PLIM_TRY(plim_vec_reserve(&b->sites->of_stack, n, err));
    for (uint32_t stack = 0; stack < n; stack++) {
        uint32_t site;
        PLIM_TRY(site_for_stack(b, stack, &site, err));
        b->sites->of_stack.items[b->sites->of_stack.n++] = site;
    }
    return PLIM_OK;
}

enum plim_status plim_sites_build(const struct plim_snapshot *snapshot, struct plim_sites *out,
                                  struct plim_err *err)
{
    struct plim_sites sites = {0};
    struct builder b = {.snapshot = snapshot, .sites = &sites};
    enum plim_status st = build(&b, err);
    free(b.kinds);
    free(b.hashes);
    free(b.hints);
    plim_map_fini(&b.index);
    if (st != PLIM_OK) {
        plim_sites_fini(&sites);
        return st;
    }
    *out = sites;
    return PLIM_OK;
}

void plim_sites_fini(struct plim_sites *sites)
{
    plim_vec_fini(&sites->sites);
    plim_vec_fini(&sites->of_stack);
}

uint32_t plim_site_of(const struct plim_sites *sites, uint32_t stack)
{
    return stack < sites->of_stack.n ? sites->of_stack.items[stack] : 0;
}

/* The last two parts of a path: enough to find the file, short enough for a line. */
static struct plim_str short_path(struct plim_str path)
{
    size_t at = path.n, slashes = 0;
    while (at > 0) {
        slashes += path.p[at - 1] == '/' || path.p[at - 1] == '\\';
        if (slashes == 2) {
            break;
        }
        at--;
    }
    return plim_str_skip(path, at);
}

/* "AddmmBackward0" of a backward node; else a C++ signature without its arguments, or the name itself. */
static struct plim_str short_name(struct plim_str name)
{
    size_t at = is_backward_node(name) ? plim_str_find(name, PLIM_STR(NODE_METHOD)) : SIZE_MAX;
    if (at != SIZE_MAX) {
        size_t start = at;
        while (start > 0 && name.p[start - 1] != ':') {
            start--;
        }
        return (struct plim_str){name.p + start, at - start};
    }
    if (plim_str_find(name, PLIM_STR("::")) == SIZE_MAX) {
        return name;
    }
    at = 0;
    while (at < name.n && (name.p[at] != '(' || (at > 0 && name.p[at - 1] == ':'))) {
        at++; /* "::(anonymous namespace)::" is no list of arguments */
    }
    return (struct plim_str){name.p, at};
}

const char *plim_frame_text(const struct plim_snapshot *snapshot, uint32_t frame,
                            struct plim_arena *arena)
{
    const struct plim_frame *f = &snapshot->stacks.frames.items[frame];
    struct plim_str name = short_name(plim_intern_str(&snapshot->strings, f->name));
    struct plim_str file = short_path(plim_intern_str(&snapshot->strings, f->file));
    if (f->line == 0) {
        return plim_arena_sayf(arena, "%.*s", PLIM_STR_ARG(name));
    }
    return plim_arena_sayf(arena, "%.*s %.*s:%u", PLIM_STR_ARG(name), PLIM_STR_ARG(file), f->line);
}

const char *plim_site_text(const struct plim_snapshot *snapshot, const struct plim_site *site,
                           struct plim_arena *arena)
{
    const char *text = "(no stack recorded)";
    for (uint32_t i = 0; i < site->n_frames; i++) {
        const char *frame = plim_frame_text(snapshot, site->frames[i], arena);
        text = i == 0 ? frame : plim_arena_sayf(arena, "%s < %s", text, frame);
    }
    return text;
}
