/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The rules that find private pieces in text: one table, tried in order at every place where a word
 * can begin. A rule looks at the text from there and says which bytes go and what stands for them.
 *
 * Word: a run of letters, digits and "._-+@=~%". A rule never looks at what was already taken.
 * Sources: the beginnings of tokens are the ones that their issuers document for secret scanning
 * (GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS, Google, NVIDIA, npm, PyPI, SendGrid); JSON Web
 * Token: RFC 7519.
 */

#include "base/num.h"
#include "incident/redact.h"

#include <ctype.h>
#include <strings.h>

struct view {
    const struct plim_identity *who;
    const char *text; /* whole text */
    size_t n;
    size_t at; /* where the rule looks */
};

typedef bool (*rule_fn)(const struct view *v, struct plim_span *span);

static bool is_alnum(char c)
{
    return isalnum((unsigned char)c) != 0;
}

static bool is_word(char c)
{
    return is_alnum(c) || (c != '\0' && strchr("._-+@=~%", c) != NULL) || (unsigned char)c >= 0x80;
}

/* Bytes of the run that begins at `at` for which `is` holds. */
static size_t run(const struct view *v, size_t at, bool (*is)(char))
{
    size_t end = at;
    while (end < v->n && is(v->text[end])) {
        end++;
    }
    return end - at;
}

static bool begins(const struct view *v, size_t at, const char *word)
{
    size_t n = strlen(word);
    return v->n - at >= n && memcmp(v->text + at, word, n) == 0;
}

static bool take(struct plim_span *span, size_t at, size_t n, enum plim_private kind,
                 const char *instead)
{
    *span = (struct plim_span){.at = at, .n = n, .kind = kind, .instead = instead};
    return n > 0;
}

/* ---- paths ---- */

static bool is_path(char c)
{
    return is_alnum(c) || (c != '\0' && strchr("/._-+@=~%#$", c) != NULL) ||
           (unsigned char)c >= 0x80;
}

/* Length of the path at `at`; inside quotes it goes to the closing one, blanks included. */
static size_t path_length(const struct view *v, size_t at)
{
    char quote = at > 0 ? v->text[at - 1] : '\0';
    if (quote == '"' || quote == '\'' || quote == '`') {
        for (size_t end = at; end < v->n && v->text[end] != '\n'; end++) {
            if (v->text[end] == quote || v->text[end] == '\\') {
                return end - at; /* or at an escape, so that JSON stays JSON */
            }
        }
    }
    size_t n = run(v, at, is_path);
    while (n > 1 && (v->text[at + n - 1] == '.' || v->text[at + n - 1] == '=')) {
        n--; /* the end of a sentence */
    }
    return n;
}

/* Where packages are installed: what stands behind is the same on every machine. */
static size_t package_part(const char *p, size_t n)
{
    static const char *const marks[] = {
        "/site-packages/", "/dist-packages/", "/torch/nn/",       "/torch/optim/",  "/torch/cuda/",
        "/torch/_",        "/torch/utils/",   "/torch/autograd/", "/transformers/", "/vllm/",
        "/sglang/",        "/diffusers/",     "/accelerate/",     "/deepspeed/",    "/triton/"};
    for (size_t i = 0; i < PLIM_COUNT_OF(marks); i++) {
        const char *hit = memmem(p, n, marks[i], strlen(marks[i]));
        if (hit != NULL) {
            return (size_t)(hit - p) + 1;
        }
    }
    const char *lib = memmem(p, n, "/lib/python3.", 13);
    return lib != NULL ? (size_t)(lib - p) + 1 : 0;
}

/* Places that tell nothing about anybody. */
static bool is_public_path(const char *p, size_t n)
{
    static const char *const roots[] = {"/usr/lib/",   "/usr/local/cuda", "/usr/lib64/",
                                        "/usr/bin/",   "/lib/",           "/lib64/",
                                        "/dev/nvidia", "/dev/dri/",       "/dev/shm",
                                        "/bin/",       "/proc/sys/",      "/sys/class/drm/"};
    for (size_t i = 0; i < PLIM_COUNT_OF(roots); i++) {
        size_t k = strlen(roots[i]);
        if (n >= k && memcmp(p, roots[i], k) == 0) {
            return memmem(p, n, "/../", 4) == NULL;
        }
    }
    return false;
}

static bool is_source(const char *p, size_t n)
{
    static const char *const ends[] = {".py", ".pyx", ".pyc",   ".c",    ".cc", ".cpp", ".cu",
                                       ".h",  ".hpp", ".cuh",   ".rs",   ".go", ".so",  ".js",
                                       ".ts", ".jl",  ".ipynb", ".java", ".pxd"};
    for (size_t i = 0; i < PLIM_COUNT_OF(ends); i++) {
        size_t k = strlen(ends[i]);
        if (n > k && memcmp(p + n - k, ends[i], k) == 0) {
            return true;
        }
    }
    return memmem(p, n, ".so.", 4) != NULL; /* libcudart.so.13 */
}

/* "/home/ann/x/train.py:12": the name of the file is the run behind the last slash. */
static size_t folder_length(const char *p, size_t n)
{
    const char *slash = memrchr(p, '/', n);
    return slash != NULL ? (size_t)(slash - p) : 0;
}

/* "/xxx/xx": masked before. */
static bool is_masked(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 'x' && p[i] != '/') {
            return false;
        }
    }
    return n > 1;
}

static bool below(const char *p, size_t n, const char *folder)
{
    size_t k = folder != NULL ? strlen(folder) : 0;
    return k > 1 && n >= k && memcmp(p, folder, k) == 0 && (n == k || p[k] == '/');
}

static bool rule_path(const struct view *v, struct plim_span *span)
{
    const char *p = v->text + v->at;
    char before = v->at > 0 ? v->text[v->at - 1] : ' ';
    bool home = *p == '~' && v->n - v->at > 1 && p[1] == '/';
    if ((*p != '/' && !home) || is_alnum(before) || strchr("._-/~<>", before) != NULL) {
        return false; /* in the middle of a relative path, or behind a piece that was taken */
    }
    if (v->at >= 4 && memcmp(p - 4, "&gt;", 4) == 0) {
        return false; /* the same in HTML */
    }
    if (before == ':' && v->n - v->at > 1 && p[1] == '/') {
        return false; /* the rest of a URL: its own rule has seen it */
    }
    size_t n = path_length(v, v->at);
    if (n < 2 || is_public_path(p, n)) {
        return false;
    }
    size_t package = package_part(p, n);
    if (package > 0) {
        return !is_masked(p, package) && take(span, v->at, package, PLIM_PRIVATE_PATH, "");
    }
    if (below(p, n, v->who->project)) {
        return take(span, v->at, strlen(v->who->project), PLIM_PRIVATE_PROJECT_PATH, "<project>");
    }
    size_t folder = folder_length(p, n);
    if (is_masked(p, folder > 0 ? folder : n)) {
        return false;
    }
    bool source = folder > 0 && is_source(p + folder, n - folder);
    return take(span, v->at, source ? folder : n, PLIM_PRIVATE_PATH, "<path>");
}

/* C:\Users\ann\x.py */
static bool rule_windows_path(const struct view *v, struct plim_span *span)
{
    const char *p = v->text + v->at;
    if (v->n - v->at < 4 || !isalpha((unsigned char)*p) || p[1] != ':' || p[2] != '\\') {
        return false;
    }
    size_t n = 3;
    while (v->at + n < v->n && (is_path(p[n]) || p[n] == '\\')) {
        n++;
    }
    while (n > 3 && p[n - 1] == '\\') {
        n--;
    }
    const char *slash = memrchr(p, '\\', n);
    size_t folder = (size_t)(slash - p);
    return take(span, v->at, is_source(p + folder, n - folder) ? folder : n, PLIM_PRIVATE_PATH,
                "<path>");
}

/* ---- URLs ---- */

static bool is_url(char c)
{
    return is_path(c) || (c != '\0' && strchr(":?&,;!()*", c) != NULL);
}

static bool is_loopback(const char *p, size_t n)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "0.0.0.0", "[::1]", "[::]"};
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        size_t k = strlen(names[i]);
        if (n >= k && memcmp(p, names[i], k) == 0 && (n == k || p[k] == ':' || p[k] == '/')) {
            return true;
        }
    }
    return false;
}

static bool is_public_host(const char *p, size_t n)
{
    static const char *const names[] = {"pytorch.org",    "github.com",    "huggingface.co",
                                        "hf.co",          "nvidia.com",    "vllm.ai",
                                        "python.org",     "sglang.ai",     "readthedocs.io",
                                        "tensorflow.org", "kubernetes.io", "amd.com"};
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        size_t k = strlen(names[i]);
        if (n >= k && memcmp(p + n - k, names[i], k) == 0 && (n == k || p[n - k - 1] == '.')) {
            return true;
        }
    }
    return false;
}

/* At the "://" of a URL: credentials go, and all of it when the host is not known to the public. */
static bool rule_url(const struct view *v, struct plim_span *span)
{
    if (!begins(v, v->at, "://")) {
        return false;
    }
    size_t at = v->at + 3;
    size_t n = run(v, at, is_url);
    const char *p = v->text + at;
    size_t authority = 0;
    while (authority < n && p[authority] != '/' && p[authority] != '?' && p[authority] != '#') {
        authority++;
    }
    const char *sign = memrchr(p, '@', authority);
    size_t host = sign != NULL ? (size_t)(sign - p) + 1 : 0, end = host;
    while (end < authority && p[end] != ':') {
        end++;
    }
    bool known = is_loopback(p + host, authority - host) || is_public_host(p + host, end - host);
    if (sign != NULL) {
        return take(span, at, known ? host - 1 : n, PLIM_PRIVATE_CREDENTIALS, "<secret>");
    }
    if (!known) {
        return take(span, at, n, PLIM_PRIVATE_HOST, "<host>");
    }
    const char *query = memchr(p, '?', n);
    return query != NULL && take(span, at + (size_t)(query - p) + 1, n - (size_t)(query - p) - 1,
                                 PLIM_PRIVATE_SECRET, "<secret>");
}

/* ---- secrets ---- */

static bool is_name(char c)
{
    return is_alnum(c) || c == '_' || c == '-' || c == '.';
}

static bool is_token(char c)
{
    return is_name(c) || c == '+' || c == '=';
}

static bool rule_known_token(const struct view *v, struct plim_span *span)
{
    static const char *const starts[] = {
        "hf_",  "sk-",  "sk_",    "pk_",   "rk_",    "ghp_",     "gho_",        "ghu_",
        "ghs_", "ghr_", "glpat-", "xoxb-", "xoxp-",  "xapp-",    "github_pat_", "AKIA",
        "ASIA", "AIza", "ya29.",  "eyJ",   "nvapi-", "npm_",     "pypi-",       "SG.",
        "dapi", "gsk_", "r8_",    "xai-",  "tskey-", "dckr_pat_"};
    for (size_t i = 0; i < PLIM_COUNT_OF(starts); i++) {
        if (begins(v, v->at, starts[i])) {
            /* '+' and '=' do not make a short word long: a path behind them may have been cut */
            bool long_enough = run(v, v->at, is_name) >= 16;
            size_t n = run(v, v->at, is_token);
            return long_enough && take(span, v->at, n, PLIM_PRIVATE_SECRET, "<secret>");
        }
    }
    return false;
}

static bool part_is(const char *p, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(p, word, n) == 0;
}

bool plim__redact_is_secret_name(const char *name, size_t n)
{
    static const char *const parts[] = {"token",  "secret",      "password",      "passwd",
                                        "pwd",    "apikey",      "passphrase",    "credential",
                                        "key",    "credentials", "authorization", "auth",
                                        "bearer", "cookie",      "secrets",       "pass"};
    size_t start = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && name[i] != '_' && name[i] != '-' && name[i] != '.') {
            continue;
        }
        for (size_t k = 0; k < PLIM_COUNT_OF(parts); k++) {
            if (part_is(name + start, i - start, parts[k])) {
                return true;
            }
        }
        start = i + 1;
    }
    return false;
}

static bool is_value(char c)
{
    return !isspace((unsigned char)c) && c != '\0' && strchr("\"'`,;)}]<>\\", c) == NULL;
}

static bool is_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)p[i]) && p[i] != '.') {
            return false;
        }
    }
    return n > 0;
}

/* Between a secret's name and its value: blanks and quotes around one '=' or ':'; for an option a
 * blank. */
static size_t to_value(const struct view *v, size_t at, bool option)
{
    size_t end = at;
    bool sign = false;
    while (end < v->n && end - at < 8) {
        char c = v->text[end];
        if ((c == '=' || c == ':') && !sign) {
            sign = true;
        } else if (c != ' ' && c != '"' && c != '\'' && c != '\t') {
            break;
        }
        end++;
    }
    return sign || (option && end > at) ? end : 0;
}

/* "api_key": "abc", HF_TOKEN=abc, --token abc, Authorization: Bearer abc. */
static bool rule_named_secret(const struct view *v, struct plim_span *span)
{
    size_t n = run(v, v->at, is_name);
    const char *p = v->text + v->at;
    if (n == 0 || !plim__redact_is_secret_name(p, n)) {
        return false;
    }
    bool bearer = part_is(p, n, "bearer");
    size_t value = to_value(v, v->at + n, p[0] == '-' || bearer);
    if (value == 0) {
        return false;
    }
    size_t length = run(v, value, is_value);
    static const char *const schemes[] = {"Bearer ", "Basic ", "Token ", "bearer ", "basic "};
    for (size_t i = 0; i < PLIM_COUNT_OF(schemes); i++) {
        if (begins(v, value, schemes[i])) {
            value += strlen(schemes[i]);
            length = run(v, value, is_value);
        }
    }
    const char *last = memrchr(p, '_', n);
    bool tokens =
        part_is(p, n, "token") || (last != NULL && part_is(last, n - (size_t)(last - p), "_token"));
    if (length == 0 || begins(v, value, "<") ||
        (tokens && is_digits(v->text + value, length) && length < 8)) {
        return false; /* "token: 4096" counts words */
    }
    return take(span, value, length, PLIM_PRIVATE_SECRET, "<secret>");
}

static bool is_random_letter(char c)
{
    return is_alnum(c) || c == '+' || c == '=' || c == '/';
}

static int letter_class(char c)
{
    return isdigit((unsigned char)c)   ? 0
           : isupper((unsigned char)c) ? 1
           : isalpha((unsigned char)c) ? 2
                                       : 3;
}

/* 32 letters or more: hexadecimal, or of changing kinds. In random letters more than every second
 * one is of another kind than the one before, in names made of words every third at most. */
static bool rule_random(const struct view *v, struct plim_span *span)
{
    size_t n = run(v, v->at, is_random_letter);
    const char *p = v->text + v->at;
    size_t digits = 0, hex = 0, changes = 0;
    for (size_t i = 0; i < n; i++) {
        digits += isdigit((unsigned char)p[i]) != 0;
        hex += isxdigit((unsigned char)p[i]) != 0;
        changes += i > 0 && letter_class(p[i]) != letter_class(p[i - 1]);
    }
    bool looks = (digits >= 2 && changes * 5 >= n * 2) || (hex == n && digits >= 4 && digits < n);
    return n >= 32 && looks && take(span, v->at, n, PLIM_PRIVATE_SECRET, "<secret>");
}

/* ---- people and machines ---- */

static bool is_email(char c)
{
    return is_alnum(c) || c == '.' || c == '_' || c == '-' || c == '+' || c == '@';
}

static bool rule_email(const struct view *v, struct plim_span *span)
{
    size_t n = run(v, v->at, is_email);
    while (n > 0 && v->text[v->at + n - 1] == '.') {
        n--;
    }
    const char *p = v->text + v->at;
    const char *sign = memchr(p, '@', n);
    if (sign == NULL || sign == p || memchr(sign, '.', n - (size_t)(sign - p)) == NULL) {
        return false;
    }
    return take(span, v->at, n, PLIM_PRIVATE_EMAIL, "<email>");
}

static bool is_any(const char *p, size_t n, const char *const names[PLIM_IDENTITY_NAMES])
{
    for (size_t i = 0; i < PLIM_IDENTITY_NAMES; i++) {
        if (names[i] != NULL && strlen(names[i]) == n && strncasecmp(p, names[i], n) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_host_letter(char c)
{
    return is_alnum(c) || c == '-' || c == '.' || c == '_';
}

static bool rule_identity(const struct view *v, struct plim_span *span)
{
    const char *p = v->text + v->at;
    size_t whole = run(v, v->at, is_host_letter);
    while (whole > 0 && (p[whole - 1] == '.' || p[whole - 1] == '-')) {
        whole--;
    }
    if (is_any(p, whole, v->who->host)) {
        return take(span, v->at, whole, PLIM_PRIVATE_HOST, "<host>");
    }
    size_t n = run(v, v->at, is_alnum);
    for (size_t i = n; i <= whole;
         i++) { /* the name, up to any boundary: "ann", "ann-laptop", "ann_x" */
        if ((i == whole || !is_alnum(p[i])) && is_any(p, i, v->who->host)) {
            return take(span, v->at, i, PLIM_PRIVATE_HOST, "<host>");
        }
        if ((i == whole || !is_alnum(p[i])) && is_any(p, i, v->who->user)) {
            return take(span, v->at, i, PLIM_PRIVATE_USER, "<user>");
        }
    }
    return false;
}

static bool is_ip_letter(char c)
{
    return isdigit((unsigned char)c) || c == '.';
}

/* Four numbers up to 255 that are no loopback: 10.0.3.17. */
static bool rule_address(const struct view *v, struct plim_span *span)
{
    size_t n = run(v, v->at, is_ip_letter);
    const char *p = v->text + v->at;
    unsigned parts = 0, value = 0, digits = 0;
    while (n > 0 && p[n - 1] == '.') {
        n--;
    }
    for (size_t i = 0; i <= n; i++) {
        if (i < n && p[i] != '.') {
            value = value * 10 + (unsigned)(p[i] - '0');
            digits++;
            if (digits > 3) {
                return false;
            }
            continue;
        }
        if (digits == 0 || value > 255) {
            return false;
        }
        parts++;
        value = digits = 0;
    }
    bool word = v->at + n < v->n && (is_alnum(v->text[v->at + n]) || v->text[v->at + n] == '-');
    if (parts != 4 || word || begins(v, v->at, "127.") || begins(v, v->at, "0.")) {
        return false;
    }
    return take(span, v->at, n, PLIM_PRIVATE_HOST, "<host>");
}

/* GPU-8-4-4-4-12 and MIG-... */
static bool rule_uuid(const struct view *v, struct plim_span *span)
{
    if (!begins(v, v->at, "GPU-") && !begins(v, v->at, "MIG-")) {
        return false;
    }
    size_t n = 4;
    while (v->at + n < v->n &&
           (isxdigit((unsigned char)v->text[v->at + n]) || v->text[v->at + n] == '-')) {
        n++;
    }
    return n >= 40 && take(span, v->at, n, PLIM_PRIVATE_UUID, "<uuid>");
}

/* In this order at each place; `anywhere` rules do not need the beginning of a word. */
static const struct {
    rule_fn find;
    bool anywhere;
} rules[] = {
    {rule_url, true},          {rule_path, true},     {rule_windows_path, false},
    {rule_known_token, false}, {rule_uuid, false},    {rule_named_secret, false},
    {rule_email, false},       {rule_address, false}, {rule_identity, false},
    {rule_random, false},
};

bool plim__redact_next(const struct plim_identity *who, struct plim_str text, size_t from,
                       struct plim_span *span)
{
    struct view v = {.who = who, .text = text.p, .n = text.n};
    for (v.at = from; v.at < v.n; v.at++) {
        char c = v.text[v.at];
        bool begin = (is_word(c) && (v.at == 0 || !is_alnum(v.text[v.at - 1]))) || c == '/';
        if (!begin && c != ':') {
            continue;
        }
        for (size_t i = 0; i < PLIM_COUNT_OF(rules); i++) {
            if ((begin || rules[i].anywhere) && rules[i].find(&v, span)) {
                return true;
            }
        }
    }
    return false;
}
