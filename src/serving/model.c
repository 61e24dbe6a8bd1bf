/* SPDX-License-Identifier: Apache-2.0 */
/* See model.h. */

#include "serving/model.h"

#include "base/file.h"
#include "base/num.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "serving/gguf_model.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_MAX   (UINT64_C(64) << 20) /* bytes of a JSON file */
#define SHARDS_MAX 4096u

struct opening {
    struct plim_arena *arena;
    const char *path;
    char folder[4096]; /* of the files, with the slash; "" is the working folder */
    struct plim_geometry_options opts;
    struct plim_model model;
    struct plim_err *err;
};

static enum plim_status path_of(const struct opening *o, const char *name, char *out, size_t n)
{
    int used = snprintf(out, n, "%s%s", o->folder, name);
    return used > 0 && (size_t)used < n
               ? PLIM_OK
               : plim__fail(o->err, PLIM_E_RANGE, "the path to %.100s is too long", name);
}

/* ---- texts */

/* A file of the folder; *found false and no error when it isn't there. The text is the caller's to free(). */
static enum plim_status read_beside(struct opening *o, const char *name, struct plim_str *text,
                                    bool *found)
{
    char path[4224];
    struct plim_err err;
    PLIM_TRY(path_of(o, name, path, sizeof path));
    enum plim_status st = plim_file_read(path, TEXT_MAX, text, &err);
    *found = st == PLIM_OK;
    if (st == PLIM_OK || st == PLIM_E_NOINPUT) {
        return PLIM_OK;
    }
    if (o->err != NULL) {
        *o->err = err;
    }
    return st;
}

static enum plim_status read_config(struct opening *o, const char *name)
{
    struct plim_str text = {NULL, 0};
    struct plim_str quant = {NULL, 0};
    char path[4224];
    bool found = false;
    PLIM_TRY(path_of(o, name, path, sizeof path));
    PLIM_TRY(read_beside(o, "hf_quant_config.json", &quant, &found));
    enum plim_status st = plim_file_read(path, TEXT_MAX, &text, o->err);
    if (st == PLIM_OK) {
        struct plim_geometry_options opts = o->opts;
        opts.quant = found ? quant : (struct plim_str){"", 0};
        st = plim_geometry_from_config(o->arena, text, path, &opts, &o->model.geometry, o->err);
    }
    free((void *)(uintptr_t)text.p);
    free((void *)(uintptr_t)quant.p);
    return st;
}

/* ---- headers */

static void add_tensors(struct plim_model *m, const struct plim_tensors *t)
{
    uint64_t packed = 0;
    for (size_t i = 0; i < t->n; i++) {
        m->stored_parameters = plim_add_sat(m->stored_parameters, t->items[i].elements);
        packed = plim_add_sat(packed, t->items[i].bytes);
        m->stored_dtype_bytes[t->items[i].dtype] =
            plim_add_sat(m->stored_dtype_bytes[t->items[i].dtype], t->items[i].bytes);
    }
    m->stored_bytes = plim_add_sat(m->stored_bytes, packed);
    m->largest_shard_bytes = plim_max_u64(m->largest_shard_bytes, packed);
    m->stored_tensors += t->n;
    m->has_stored = true;
    m->shards++;
}

static enum plim_status read_safetensors(struct opening *o, const char *name, bool *found)
{
    char path[4224];
    struct plim_source source;
    struct plim_tensors tensors;
    PLIM_TRY(path_of(o, name, path, sizeof path));
    enum plim_status st = plim_source_open(path, &source, o->err);
    *found = st != PLIM_E_NOINPUT;
    if (st != PLIM_OK) {
        return st == PLIM_E_NOINPUT ? PLIM_OK : st;
    }
    struct plim_arena_mark mark = plim_arena_mark(o->arena); /* only sums of the table are kept */
    st = plim_safetensors_read(o->arena, &source, &tensors, o->err);
    if (st == PLIM_OK) {
        add_tensors(&o->model, &tensors);
        o->model.kind = PLIM_MODEL_SAFETENSORS;
    } else {
        plim__err_where(o->err, "%s", name);
    }
    plim_arena_rewind(o->arena, mark);
    plim_source_close(&source);
    return st;
}

static enum plim_status read_shards(struct opening *o, const struct plim_safetensors_index *index)
{
    size_t present = 0;
    const char *missing = NULL;
    if (index->n_shards > SHARDS_MAX) {
        return plim__fail(o->err, PLIM_E_RANGE, "an index of %zu files", index->n_shards);
    }
    for (size_t i = 0; i < index->n_shards; i++) {
        bool found = false;
        PLIM_TRY(read_safetensors(o, index->shards[i], &found));
        present += found;
        missing = found ? missing : index->shards[i];
    }
    if (present == 0) { /* the index alone was fetched: its own sum is all there is */
        o->model.kind = PLIM_MODEL_INDEX;
        o->model.has_stored = index->total_size != 0;
        o->model.stored_bytes = index->total_size;
        o->model.stored_tensors = index->n_tensors;
        o->model.shards = (uint32_t)index->n_shards;
        return PLIM_OK;
    }
    if (missing != NULL) {
        (void)plim__fail(o->err, PLIM_E_NOINPUT, "%.200s is named by the index, and missing",
                         missing);
        plim__err_hint(o->err,
                       "fetch the file, or remove all of them to plan from the index alone");
        return PLIM_E_NOINPUT;
    }
    return PLIM_OK;
}

static enum plim_status read_index(struct opening *o, const char *name, bool *found)
{
    struct plim_str text = {NULL, 0};
    struct plim_safetensors_index index;
    PLIM_TRY(read_beside(o, name, &text, found));
    if (!*found) {
        return PLIM_OK;
    }
    enum plim_status st = plim_safetensors_index_read(o->arena, text, &index, o->err);
    free((void *)(uintptr_t)text.p);
    return st == PLIM_OK ? read_shards(o, &index) : st;
}

static enum plim_status read_folder(struct opening *o)
{
    static const char *const files[] = {"model.safetensors", "consolidated.safetensors",
                                        "diffusion_pytorch_model.safetensors"};
    bool found = false;
    PLIM_TRY(read_config(o, "config.json"));
    PLIM_TRY(read_index(o, "model.safetensors.index.json", &found));
    for (size_t i = 0; i < PLIM_COUNT_OF(files) && !found; i++) {
        PLIM_TRY(read_safetensors(o, files[i], &found));
    }
    return found ? PLIM_OK : read_index(o, "pytorch_model.bin.index.json", &found);
}

/* ---- GGUF */

/* Put all tables of a split file into one. */
static enum plim_status join(struct opening *o, const struct plim_tensors *part)
{
    struct plim_tensors *all = &o->model.tensors;
    void *items = NULL;
    PLIM_TRY(plim_arena_array(o->arena, all->n + part->n, sizeof *all->items, &items, o->err));
    if (all->n > 0) {
        memcpy(items, all->items, all->n * sizeof *all->items);
    }
    if (part->n > 0) {
        memcpy((struct plim_tensor *)items + all->n, part->items, part->n * sizeof *part->items);
    }
    all->items = items;
    all->n += part->n;
    all->bytes = plim_add_sat(all->bytes, part->bytes);
    all->header_bytes = plim_add_sat(all->header_bytes, part->header_bytes);
    add_tensors(&o->model, part);
    return PLIM_OK;
}

static enum plim_status read_gguf(struct opening *o, const char *path, struct plim_gguf *file)
{
    struct plim_source source;
    PLIM_TRY(plim_source_open(path, &source, o->err));
    enum plim_status st = plim_gguf_read(o->arena, &source, file, o->err);
    plim_source_close(&source);
    return st == PLIM_OK ? join(o, &file->tensors) : st;
}

/* "x-00001-of-00003.gguf": the other parts. */
static enum plim_status read_parts(struct opening *o, uint64_t count)
{
    size_t n = strlen(o->path);
    char path[4224];
    if (count <= 1) {
        return PLIM_OK;
    }
    if (count > SHARDS_MAX || n < 20 || n >= sizeof path ||
        strncmp(o->path + n - 20, "-00001-of-", 10) != 0) {
        (void)plim__fail(o->err, PLIM_E_DATA, "one of %u parts, but not named as the first",
                         (unsigned)plim_min_u64(count, UINT32_MAX));
        plim__err_hint(o->err, "name the part that ends in -00001-of-%05u.gguf",
                       (unsigned)plim_min_u64(count, 99999));
        return PLIM_E_DATA;
    }
    for (uint64_t i = 2; i <= count; i++) {
        struct plim_gguf part;
        snprintf(path, sizeof path, "%.*s-%05u-of-%05u.gguf", (int)(n - 20), o->path, (unsigned)i,
                 (unsigned)count);
        PLIM_TRY(read_gguf(o, path, &part));
    }
    return PLIM_OK;
}

static enum plim_status open_gguf(struct opening *o)
{
    struct plim_gguf file;
    PLIM_TRY(read_gguf(o, o->path, &file));
    PLIM_TRY(plim_geometry_from_gguf(o->arena, &file, &o->model.geometry, o->err));
    const struct plim_gguf_value *count = plim_gguf_find(&file, "split.count");
    o->model.kind = PLIM_MODEL_GGUF;
    return read_parts(o, count != NULL && count->kind == PLIM_GGUF_UINT ? count->u : 1);
}

/* ---- which kind */

static void split_path(struct opening *o, const char **file)
{
    const char *slash = strrchr(o->path, '/');
    *file = slash != NULL ? slash + 1 : o->path;
    snprintf(o->folder, sizeof o->folder, "%.*s", (int)(*file - o->path), o->path);
}

static bool is_folder(struct opening *o)
{
    struct plim_source source;
    char path[4224];
    size_t n = strlen(o->path);
    snprintf(path, sizeof path, "%s%sconfig.json", o->path,
             n > 0 && o->path[n - 1] == '/' ? "" : "/");
    if (plim_source_open(path, &source, NULL) != PLIM_OK) {
        return false;
    }
    plim_source_close(&source);
    snprintf(o->folder, sizeof o->folder, "%.*s", (int)(strlen(path) - strlen("config.json")),
             path);
    return true;
}

static enum plim_status open_any(struct opening *o)
{
    const char *file;
    bool found = false;
    if (strlen(o->path) >= sizeof o->folder - 16) {
        return plim__fail(o->err, PLIM_E_RANGE, "the path is too long");
    }
    if (is_folder(o)) {
        return read_folder(o);
    }
    split_path(o, &file);
    if (plim_ends_with(file, ".gguf")) {
        return open_gguf(o);
    }
    if (plim_ends_with(file, ".index.json")) {
        PLIM_TRY(read_config(o, "config.json"));
        return read_index(o, file, &found);
    }
    if (plim_ends_with(file, ".safetensors")) {
        PLIM_TRY(read_config(o, "config.json"));
        PLIM_TRY(read_safetensors(o, file, &found));
        return found ? PLIM_OK : plim__fail(o->err, PLIM_E_NOINPUT, "cannot open %.200s", o->path);
    }
    return read_config(o, file);
}

enum plim_status plim_model_open(struct plim_arena *arena, const char *path,
                                 const struct plim_geometry_options *opts, struct plim_model *out,
                                 struct plim_err *err)
{
    static const struct plim_geometry_options none;
    struct opening *o = NULL;
    void *storage = NULL;
    PLIM_TRY(plim_arena_alloc(arena, sizeof *o, &storage, err));
    o = storage;
    *o = (struct opening){
        .arena = arena, .path = path, .opts = opts != NULL ? *opts : none, .err = err};
    o->model.path = path;
    PLIM_TRY(open_any(o));
    *out = o->model;
    return PLIM_OK;
}
