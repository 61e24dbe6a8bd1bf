/* SPDX-License-Identifier: Apache-2.0 */
/* Writer of the column container; see columns.h and docs/format/report-data.md. */

#include "report/columns.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define MAGIC      "PLIMRPT1"
#define ALIGN      8u
#define HEAD_BYTES 16u
#define DIR_BYTES  40u
#define ZLIB_LEVEL 3 /* 1.5 million events: level 6 takes three times as long for 7 % less */

void plim_columns_init(struct plim_columns *columns)
{
    *columns = (struct plim_columns){0};
    plim_arena_init(&columns->arena, 0);
}

void plim_columns_fini(struct plim_columns *columns)
{
    plim_arena_fini(&columns->arena);
    plim_vec_fini(&columns->list);
}

static size_t width_of(enum plim_column_type type)
{
    return type == PLIM_COLUMN_F64 ? 8 : (size_t)1 << (type - 1);
}

static void *add(struct plim_columns *c, const char *prefix, const char *name, size_t n,
                 enum plim_column_type type)
{
    struct plim_column column = {.type = type, .n = n};
    if (c->err.status != PLIM_OK) {
        return NULL;
    }
    (void)snprintf(column.name, sizeof(column.name), "%s.%s", prefix, name);
    enum plim_status st = plim_arena_array(&c->arena, n, width_of(type), &column.values, &c->err);
    if (st == PLIM_OK) {
        st = plim_vec_push(&c->list, &c->err, column);
    }
    return st == PLIM_OK ? column.values : NULL;
}

uint8_t *plim_columns_u8(struct plim_columns *c, const char *prefix, const char *name, size_t n)
{
    return add(c, prefix, name, n, PLIM_COLUMN_U8);
}

uint16_t *plim_columns_u16(struct plim_columns *c, const char *prefix, const char *name, size_t n)
{
    return add(c, prefix, name, n, PLIM_COLUMN_U16);
}

uint32_t *plim_columns_u32(struct plim_columns *c, const char *prefix, const char *name, size_t n)
{
    return add(c, prefix, name, n, PLIM_COLUMN_U32);
}

double *plim_columns_f64(struct plim_columns *c, const char *prefix, const char *name, size_t n)
{
    return add(c, prefix, name, n, PLIM_COLUMN_F64);
}

void plim_columns_bytes(struct plim_columns *c, const char *prefix, const char *name,
                        struct plim_str bytes)
{
    uint8_t *p = plim_columns_u8(c, prefix, name, bytes.n);
    if (p && bytes.n > 0) {
        memcpy(p, bytes.p, bytes.n);
    }
}

static size_t padded(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void put_u32(struct plim_buf *out, uint32_t v)
{
    char bytes[4] = {(char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)};
    plim_buf_add(out, (struct plim_str){bytes, sizeof(bytes)});
}

static void put_directory(const struct plim_columns *c, struct plim_buf *out)
{
    size_t at = HEAD_BYTES + padded(c->list.n * DIR_BYTES);
    plim_vec_foreach (column, &c->list) {
        plim_buf_add(out, (struct plim_str){column->name, PLIM_COLUMN_NAME});
        put_u32(out, (uint32_t)column->type);
        put_u32(out, (uint32_t)column->n);
        put_u32(out, (uint32_t)at);
        put_u32(out, 0);
        put_u32(out, 0);
        at += padded(column->n * width_of(column->type));
    }
}

enum plim_status plim_columns_write(const struct plim_columns *columns, struct plim_buf *out,
                                    struct plim_err *err)
{
    static const char zeros[ALIGN] = {0};
    if (columns->err.status != PLIM_OK) {
        if (err) {
            *err = columns->err;
        }
        return columns->err.status;
    }
    plim_buf_add(out, PLIM_STR(MAGIC));
    put_u32(out, (uint32_t)columns->list.n);
    put_u32(out, 0);
    put_directory(columns, out);
    plim_vec_foreach (column, &columns->list) {
        size_t n = column->n * width_of(column->type);
        plim_buf_add(out, (struct plim_str){column->values, n});
        plim_buf_add(out, (struct plim_str){zeros, padded(n) - n});
    }
    return plim_buf_status(out, err);
}

enum plim_status plim_columns_deflate(const struct plim_columns *columns, struct plim_buf *out,
                                      struct plim_err *err)
{
    struct plim_buf raw = {0};
    enum plim_status st = plim_columns_write(columns, &raw, err);
    uLongf n = compressBound(raw.n);
    Bytef *packed = st == PLIM_OK ? malloc(n) : NULL;
    if (st == PLIM_OK &&
        (!packed || compress2(packed, &n, (const Bytef *)raw.p, raw.n, ZLIB_LEVEL) != Z_OK)) {
        st = plim__fail(err, PLIM_E_NOMEM, "no memory to compress %zu bytes", raw.n);
    }
    if (st == PLIM_OK) {
        plim_buf_add(out, (struct plim_str){(const char *)packed, n});
        st = plim_buf_status(out, err);
    }
    free(packed);
    plim_buf_fini(&raw);
    return st;
}

void plim_base64(struct plim_buf *out, struct plim_str bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)bytes.p;
    char chunk[4096];
    size_t fill = 0;
    for (size_t i = 0; i < bytes.n; i += 3) {
        unsigned a = p[i], b = i + 1 < bytes.n ? p[i + 1] : 0, c = i + 2 < bytes.n ? p[i + 2] : 0;
        chunk[fill++] = digits[a >> 2];
        chunk[fill++] = digits[(a & 3u) << 4 | b >> 4];
        chunk[fill++] = i + 1 < bytes.n ? digits[(b & 15u) << 2 | c >> 6] : '=';
        chunk[fill++] = i + 2 < bytes.n ? digits[c & 63u] : '=';
        if (fill == sizeof(chunk)) {
            plim_buf_add(out, (struct plim_str){chunk, fill});
            fill = 0;
        }
    }
    plim_buf_add(out, (struct plim_str){chunk, fill});
}
