/* SPDX-License-Identifier: Apache-2.0 */

/* Applying the rules to text, command lines, environments and pickles; the list of what was
 * removed. */

#include "incident/redact.h"

#include "base/num.h"
#include "format/pickle_ops.h"
#include "format/words.h"
#include "heap/snapshot.h"

#include <ctype.h>

const char *plim_private_text(enum plim_private kind)
{
    static const char *const texts[] = {
#define PLIM__X(name, text, meaning) text,
        PLIM_PRIVATE_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)kind < PLIM_PRIVATE_COUNT ? texts[kind] : "unknown";
}

void plim_redactor_fini(struct plim_redactor *r)
{
    plim_vec_fini(&r->removals);
}

void plim_redact_note(struct plim_redactor *r, const char *file, enum plim_private kind,
                      uint64_t count)
{
    plim_vec_foreach (old, &r->removals) {
        if (old->kind == kind && strcmp(old->file, file) == 0) {
            old->count += count;
            return;
        }
    }
    struct plim_str copy;
    struct plim_removal removal = {.kind = kind, .count = count};
    if (plim_arena_str(r->arena, plim_str_from(file), &copy, NULL) != PLIM_OK) {
        r->failed = true;
        return;
    }
    removal.file = copy.p;
    r->failed = plim_vec_push(&r->removals, NULL, removal) != PLIM_OK || r->failed;
}

void plim_redact_text(struct plim_redactor *r, const char *file, struct plim_str text,
                      struct plim_buf *out)
{
    struct plim_span span;
    size_t from = 0;
    while (!r->off && plim__redact_next(&r->identity, text, from, &span)) {
        plim_buf_add(out, (struct plim_str){text.p + from, span.at - from});
        plim_buf_text(out, span.instead);
        plim_redact_note(r, file, span.kind, 1);
        from = span.at + span.n;
    }
    plim_buf_add(out, plim_str_skip(text, from));
}

const char *plim_redact_z(struct plim_redactor *r, const char *file, const char *text)
{
    struct plim_buf buf = {0};
    if (text == NULL) {
        return NULL;
    }
    plim_redact_text(r, file, plim_str_from(text), &buf);
    struct plim_str s = plim_buf_str(&buf);
    const char *copy = plim_arena_sayf(r->arena, "%.*s", PLIM_STR_ARG(s));
    plim_buf_fini(&buf);
    return copy;
}

/* ---- command lines and environments ---- */

#define REMOVED "<removed>"

static bool is_option_name(const char *s, size_t n)
{
    if (n < 2 || n > 48 || s[0] != '-') {
        return false;
    }
    for (size_t i = 1; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && s[i] != '-' && s[i] != '_' && s[i] != '.') {
            return false;
        }
    }
    return true;
}

/* A number with an optional unit, or a word of which everybody uses the same few. */
static bool is_harmless_value(const char *s)
{
    static const char *const words[] = {
        "auto",     "true",     "false",      "True",   "False",   "on",       "off",     "yes",
        "no",       "none",     "None",       "half",   "float16", "bfloat16", "float32", "float",
        "fp8",      "fp16",     "bf16",       "fp32",   "int8",    "int4",     "awq",     "gptq",
        "fp8_e4m3", "fp8_e5m2", "cuda",       "cpu",    "ray",     "mp",       "nccl",    "gloo",
        "eager",    "flash",    "flashinfer", "triton", "full",    "all"};
    for (size_t i = 0; i < PLIM_COUNT_OF(words); i++) {
        if (strcmp(s, words[i]) == 0) {
            return true;
        }
    }
    size_t digits = strspn(s, "0123456789.,eE+-x");
    size_t unit = strspn(s + digits, "KMGTkmgtiBb");
    return digits > 0 && isdigit((unsigned char)s[0]) && unit <= 3 && s[digits + unit] == '\0' &&
           digits <= 20;
}

/* One argument behind the program. @name: of the option that it may be the value of; n letters, or
 * none. */
static const char *clean_argument(struct plim_redactor *r, const char *arg, const char *name,
                                  size_t n)
{
    const char *equals = strchr(arg, '=');
    size_t own = equals != NULL ? (size_t)(equals - arg) : strlen(arg);
    if (is_option_name(arg, own)) {
        if (equals == NULL) {
            return arg;
        }
        bool keep = is_harmless_value(equals + 1) && !plim__redact_is_secret_name(arg, own);
        return keep ? arg : plim_arena_sayf(r->arena, "%.*s=" REMOVED, (int)own, arg);
    }
    bool keep = is_harmless_value(arg) && !plim__redact_is_secret_name(name, n);
    return keep ? arg : REMOVED;
}

enum plim_status plim_redact_argv(struct plim_redactor *r, const char *file,
                                  const char *const *argv, const char ***out, size_t *n,
                                  struct plim_err *err)
{
    size_t count = 0;
    void *array;
    while (argv[count] != NULL) {
        count++;
    }
    PLIM_TRY(plim_arena_array(r->arena, count + 1, sizeof(char *), &array, err));
    const char **kept = array;
    const char *name = "";
    for (size_t i = 0; i < count; i++) {
        const char *slash = strrchr(argv[i], '/');
        if (r->off) {
            kept[i] = argv[i];
        } else if (i == 0) {
            kept[i] = slash != NULL ? slash + 1 : argv[i];
        } else {
            kept[i] = clean_argument(r, argv[i], name, strlen(name));
        }
        if (kept[i] != argv[i] && i > 0) {
            plim_redact_note(r, file, PLIM_PRIVATE_ARGUMENT, 1);
        }
        name = argv[i][0] == '-' ? argv[i] : "";
    }
    PLIM_TRY(plim_arena_status(r->arena, err));
    *out = kept;
    *n = count;
    return PLIM_OK;
}

bool plim_redact_keeps_variable(const char *name, size_t n)
{
    static const char *const starts[] = {"PYTORCH_", "TORCH_", "CUDA_",   "NVIDIA_",   "NCCL_",
                                         "CUBLAS_",  "CUDNN_", "VLLM_",   "SGLANG_",   "SGL_",
                                         "HIP_",     "HSA_",   "ROCR_",   "PLIMSOLL_", "OMP_",
                                         "XLA_",     "GGML_",  "OLLAMA_", "TRITON_"};
    static const char *const names[] = {
        "RANK",      "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TF_FORCE_GPU_ALLOW_GROWTH",
        "LD_PRELOAD"};
    static const char *const never[] = {"TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH"};
    for (size_t i = 0; i < PLIM_COUNT_OF(never); i++) {
        if (memmem(name, n, never[i], strlen(never[i])) != NULL) {
            return false;
        }
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(starts); i++) {
        size_t k = strlen(starts[i]);
        if (n > k && memcmp(name, starts[i], k) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        if (strlen(names[i]) == n && memcmp(name, names[i], n) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- pickles ---- */

static bool is_structure(struct plim_str s)
{
    static const struct plim_str words[] = {
#define PLIM__X(name, text) PLIM_STR(text),
        PLIM_KEY_MAP(PLIM__X) PLIM_VALUE_WORD_MAP(PLIM__X) PLIM_ACTION_MAP(PLIM__X)
#undef PLIM__X
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(words); i++) {
        if (plim_str_eq(s, words[i])) {
            return true;
        }
    }
    return false;
}

static void mask(struct plim_redactor *r, const char *file, char *p, size_t n)
{
    struct plim_str text = {p, n};
    struct plim_span span;
    size_t from = 0;
    if (is_structure(text)) {
        return;
    }
    while (plim__redact_next(&r->identity, text, from, &span)) {
        for (size_t i = span.at; i < span.at + span.n; i++) {
            p[i] = p[i] == '/' ? '/' : 'x';
        }
        plim_redact_note(r, file, span.kind, 1);
        from = span.at + span.n;
    }
}

static uint64_t little_endian(const char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) {
        v = v << 8 | (unsigned char)p[i];
    }
    return v;
}

/* What follows an opcode: bytes of fixed size, then perhaps a body of that many bytes, or a line.
 * */
enum body {
    BODY_NONE,
    BODY_STRING, /* the operand is its length */
    BODY_OTHER,  /* the same, and it is no text */
    BODY_LINE,
    BODY_REFUSED
};

static enum body body_of(unsigned op, size_t *operand)
{
    static const uint8_t operands[256] = {
#define PLIM__X(name, byte, operand, cls) [byte] = (operand) + 1,
        PLIM_PICKLE_OP_MAP(PLIM__X)
#undef PLIM__X
    };
    static const bool refused[256] = {
#define DATA                              false
#define CODE                              true
#define BUFFER                            true
#define PLIM__X(name, byte, operand, cls) [byte] = cls,
        PLIM_PICKLE_OP_MAP(PLIM__X)
#undef PLIM__X
#undef DATA
#undef CODE
#undef BUFFER
    };
    if (operands[op] == 0 || refused[op]) {
        return BODY_REFUSED;
    }
    *operand = operands[op] - 1U;
    switch (op) {
    case PLIM_OP_BINSTRING:
    case PLIM_OP_SHORT_BINSTRING:
    case PLIM_OP_BINUNICODE:
    case PLIM_OP_SHORT_BINUNICODE:
    case PLIM_OP_BINUNICODE8:
    case PLIM_OP_BINBYTES:
    case PLIM_OP_SHORT_BINBYTES:
    case PLIM_OP_BINBYTES8:
    case PLIM_OP_BYTEARRAY8:
        return BODY_STRING;
    case PLIM_OP_LONG1:
    case PLIM_OP_LONG4:
        return BODY_OTHER;
    case PLIM_OP_FLOAT:
    case PLIM_OP_INT:
    case PLIM_OP_LONG:
    case PLIM_OP_STRING:
    case PLIM_OP_UNICODE:
    case PLIM_OP_GET:
    case PLIM_OP_PUT:
        return BODY_LINE;
    default:
        return BODY_NONE;
    }
}

static enum plim_status pickle_fault(struct plim_err *err, enum plim_status status, size_t at)
{
    enum plim_status st = plim__fail(err, status,
                                     status == PLIM_E_TRUNCATED ? "the pickle ends too early"
                                                                : "not a pickle of plain data");
    plim__err_at(err, at);
    return st;
}

enum plim_status plim_redact_pickle(struct plim_redactor *r, const char *file, char *bytes,
                                    size_t n, struct plim_err *err)
{
    size_t at = 0;
    while (!r->off) {
        size_t operand = 0, op_at = at;
        if (at >= n) {
            return pickle_fault(err, PLIM_E_TRUNCATED, at);
        }
        unsigned op = (unsigned char)bytes[at++];
        enum body body = body_of(op, &operand);
        if (body == BODY_REFUSED) {
            return pickle_fault(err, PLIM_E_DATA, op_at);
        }
        uint64_t length =
            body == BODY_NONE ? 0 : little_endian(bytes + at, n - at < operand ? 0 : operand);
        if (body == BODY_LINE) {
            const char *end = memchr(bytes + at, '\n', n - at);
            length = end != NULL ? (uint64_t)(end - (bytes + at)) + 1 : n;
        }
        if (n - at < operand || length > n - at - operand) {
            return pickle_fault(err, PLIM_E_TRUNCATED, op_at);
        }
        at += operand;
        if (body == BODY_STRING || op == PLIM_OP_STRING || op == PLIM_OP_UNICODE) {
            mask(r, file, bytes + at, (size_t)length);
        }
        at += (size_t)length;
        if (op == PLIM_OP_STOP) {
            /* What stands behind a pickle is none of it: it goes. */
            memset(bytes + at, 0, n - at);
            break;
        }
    }
    return PLIM_OK;
}

void plim_redact_json(const struct plim_redactor *r, struct plim_jsonw *w)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.removed/1");
    plim_jsonw_kv_bool(w, "redacted", !r->off);
    plim_jsonw_key(w, "removed");
    plim_jsonw_array(w);
    plim_vec_foreach (removal, &r->removals) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "file", removal->file);
        plim_jsonw_kv_text(w, "kind", plim_private_text(removal->kind));
        plim_jsonw_kv_u64(w, "count", removal->count);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}
