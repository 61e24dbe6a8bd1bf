/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Room: what is older than its level is kept goes; when the file is still too large, the oldest span of the finest
 * level that the next level has already taken over, again and again. The limit holds for the database and its
 * write-ahead log together: the database may have what the log's share leaves, and SQLite itself refuses to make it
 * larger (max_page_count). Freed pages are used again; only when the limit was lowered are they given back.
 */

#include "store/store_int.h"

#include "base/num.h"

#include <stdio.h>
#include <sys/stat.h>

#define PAGE        4096
#define EVENTS_MAX  200000             /* newest events kept */
#define SWEEP_EVERY (24 * 3600 * 1000) /* ms */
#define SWEEP_SOON  (3600 * 1000)      /* ms, when room is short */

uint64_t plim__log_limit(const struct plim_store *store)
{
    return plim_max_u64(store->max_bytes / 16, 4 * PLIM_MIB);
}

static int64_t page_limit(const struct plim_store *store)
{
    return (int64_t)((store->max_bytes - plim__log_limit(store)) / PAGE);
}

uint64_t plim__file_bytes(const struct plim_store *store, const char *suffix)
{
    char path[4096];
    struct stat info;
    int n = snprintf(path, sizeof(path), "%s%s", store->path, suffix);
    return n > 0 && (size_t)n < sizeof(path) && stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

enum plim_status plim__log_fits(struct plim_store *store, struct plim_err *err)
{
    if (plim__file_bytes(store, "-wal") <= plim__log_limit(store) / 2) {
        return PLIM_OK;
    }
    (void)sqlite3_busy_timeout(store->db,
                               0); /* a reader in the way is not waited for, every second */
    (void)sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    (void)sqlite3_busy_timeout(store->db, PLIM_STORE_BUSY_MS);
    if (plim__file_bytes(store, "-wal") <= plim__log_limit(store)) {
        return PLIM_OK;
    }
    store->state.fault = PLIM_STORE_BLOCKED;
    (void)snprintf(store->state.why, sizeof(store->state.why),
                   "another program has been reading for long");
    return plim__fail(err, PLIM_E_IO, "history '%.120s': %s", store->path,
                      plim_store_fault_text(PLIM_STORE_BLOCKED));
}

static enum plim_status used_pages(struct plim_store *store, int64_t *used, int64_t *all,
                                   struct plim_err *err)
{
    int64_t unused = 0;
    bool found;
    PLIM_TRY(plim__ask(store, PLIM__SQL_PAGES, PLIM__ARGS(0, 0, 0), all, &found, err));
    PLIM_TRY(plim__ask(store, PLIM__SQL_FREE_PAGES, PLIM__ARGS(0, 0, 0), &unused, &found, err));
    *used = *all - unused;
    return PLIM_OK;
}

/* Before this, the next level has everything of level k. */
static int64_t taken_over(const struct plim_store *store, size_t k)
{
    return k + 1 < store->n_levels ? store->level[k + 1].done : INT64_MAX;
}

/* Drop chunks of level k before `before`. */
static enum plim_status drop_before(struct plim_store *store, size_t k, int64_t before,
                                    struct plim_err *err)
{
    return plim__run(store, PLIM__SQL_DROP_CHUNKS, store->level[k].step,
                     plim__floor_to(before, store->level[k].span), 0, err);
}

static enum plim_status drop_old(struct plim_store *store, int64_t now, struct plim_err *err)
{
    const struct plim__level *coarsest = &store->level[store->n_levels - 1];
    for (size_t k = 0; k < store->n_levels; k++) {
        int64_t before = now - store->level[k].keep, taken = taken_over(store, k);
        PLIM_TRY(drop_before(store, k, before < taken ? before : taken, err));
    }
    PLIM_TRY(plim__run(store, PLIM__SQL_DROP_EVENTS, now - coarsest->keep, 0, 0, err));
    PLIM_TRY(plim__run(store, PLIM__SQL_CROP_EVENTS, EVENTS_MAX, 0, 0, err));
    return plim__run(store, PLIM__SQL_DROP_ERAS, now - coarsest->keep, 0, 0, err);
}

/* The oldest span of the finest level that the next one has taken over; when there is none, because a few hours are more
 * than the limit, the oldest of all. */
static enum plim_status drop_oldest(struct plim_store *store, bool *dropped, struct plim_err *err)
{
    size_t chosen = store->n_levels;
    int64_t oldest = INT64_MAX;
    for (size_t k = 0; k < store->n_levels; k++) {
        int64_t first = 0;
        bool found;
        PLIM_TRY(plim__ask(store, PLIM__SQL_FIRST_CHUNK, PLIM__ARGS(store->level[k].step, 0, 0),
                           &first, &found, err));
        bool taken = found && first + store->level[k].span <= taken_over(store, k);
        if (found && (taken || first < oldest)) {
            chosen = k;
            oldest = first;
        }
        if (taken) {
            break;
        }
    }
    *dropped = chosen < store->n_levels;
    return *dropped ? drop_before(store, chosen, oldest + store->level[chosen].span, err) : PLIM_OK;
}

static enum plim_status sweep_subjects(struct plim_store *store, int64_t now, int64_t every,
                                       struct plim_err *err)
{
    if (now - store->swept < every) {
        return PLIM_OK;
    }
    store->swept = now;
    plim_map_fini(&store->known);
    store->known_list.n = 0;
    return plim__run(store, PLIM__SQL_DROP_SUBJECTS, store->level[0].done, 0, 0, err);
}

enum plim_status plim__apply_limit(struct plim_store *store, struct plim_err *err)
{
    char sql[128];
    (void)snprintf(sql, sizeof(sql),
                   "PRAGMA journal_size_limit = %llu; PRAGMA max_page_count = %lld",
                   (unsigned long long)plim__log_limit(store) / 2, (long long)page_limit(store));
    return plim__pragma(store, sql, err);
}

/* The limit was lowered: give pages back, and let SQLite keep the file there from now on. */
static enum plim_status give_back(struct plim_store *store, int64_t pages, struct plim_err *err)
{
    char sql[96];
    (void)snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%lld)", (long long)pages);
    PLIM_TRY(plim__pragma(store, sql, err));
    return plim__apply_limit(store, err);
}

enum plim_status plim_store_limit(struct plim_store *store, uint64_t max_bytes,
                                  struct plim_err *err)
{
    max_bytes = max_bytes != 0 ? max_bytes : PLIM_STORE_MAX_BYTES;
    PLIM_TRY(plim_store_limit_check(max_bytes, err));
    bool lower = max_bytes < store->max_bytes;
    store->max_bytes = max_bytes;
    if (store->db == NULL) {
        return PLIM_OK; /* it will be opened with the new limit */
    }
    enum plim_status st = plim__apply_limit(store, err);
    st = st == PLIM_OK && lower ? plim__make_room(store, false, err) : st;
    if (st != PLIM_OK) {
        plim__rollback(store);
        store->stale = true;
    }
    return st;
}

enum plim_status plim__make_room(struct plim_store *store, bool full, struct plim_err *err)
{
    int64_t used = 0, all = 0, limit = page_limit(store), now;
    int64_t target =
        limit - limit / (full ? 4 : 16); /* packing needs room before it gives some back */
    bool dropped = true, short_of = false;
    if (store->stale) {
        PLIM_TRY(plim__recall(store, err));
    }
    now = store->last;
    if (now == INT64_MIN) {
        return PLIM_OK; /* nothing there */
    }
    PLIM_TRY(drop_old(store, now, err));
    PLIM_TRY(used_pages(store, &used, &all, err));
    while (used > target && dropped) {
        short_of = true;
        PLIM_TRY(drop_oldest(store, &dropped, err));
        PLIM_TRY(used_pages(store, &used, &all, err));
        PLIM_TRY(plim__log_fits(store, err));
    }
    PLIM_TRY(sweep_subjects(store, now, short_of ? SWEEP_SOON : SWEEP_EVERY, err));
    return all > limit ? give_back(store, all - limit, err) : PLIM_OK;
}
