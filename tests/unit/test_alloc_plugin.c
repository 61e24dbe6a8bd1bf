/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plug-in with a made-up driver in this program: device memory is host memory whose contents are lost
 * when it is unmapped. In every mode it does what its model does. Eight threads at once, which ThreadSanitizer watches; memory given back for a time;
 * the context that a thread had comes back.
 */

#include "alloc_driver.h"
#include "unit.h"

#include "alloc/moving.h"
#include "format/seating.h"

#include <plimsoll/alloc.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS  4000
#define HELD    24

/* ---- the model ------------------------------------------------------------------------------------ */

struct pair { /* the same block, there and here */
    char *ours;
    uint64_t modelled;
};

static bool same_figures(const struct plim_moving *m, const struct plim_devmodel *device)
{
    struct plimsoll_alloc_stats real;
    struct plim_engine_stats model;
    plim_engine_stats(m->engine, &model);
    return plimsoll_alloc_stats(0, &real, sizeof real) && real.requested == model.requested &&
           real.allocated == model.live && real.reserved == model.reserved &&
           real.pages_made == model.created && real.pages_moved == model.moved &&
           real.failures == model.failures && device->used == model.reserved &&
           real.placed == model.placed && real.displaced == model.displaced &&
           real.astray == model.astray;
}

/* Random requests of both: the same ones fail, blocks of a size class lie at the same distances. */
static bool same_placements(struct plim_moving *m, const struct plim_devmodel *device,
                            const struct plim_engine_rounding *rounding)
{
    struct pair pair[HELD * 2] = {{0}}, first[2] = {{0}};
    uint64_t random = 7;
    for (unsigned i = 0; i < 10 * ROUNDS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        struct pair *p = &pair[random % (sizeof pair / sizeof pair[0])];
        size_t size =
            random >> 8 & 1 ? (random >> 16) % (64 * MIB) + MIB + 1 : (random >> 16) % MIB + 1;
        if (p->ours) {
            plimsoll_free(p->ours, 0, 0, NULL);
            if (plim_moving_free(m, p->modelled, NULL) != PLIM_OK) {
                return false;
            }
            p->ours = NULL;
            continue;
        }
        p->ours = plimsoll_pool_alloc(size, 0, NULL);
        if (plim_moving_alloc(m, size, 0, 0, &p->modelled, NULL) != PLIM_OK) {
            return false;
        }
        bool large = plim_engine_round(rounding, size) > PLIM_ENGINE_SMALL;
        first[large] = first[large].ours ? first[large] : *p;
        bool both = p->ours && p->modelled, none = !p->ours && !p->modelled;
        if (!none && !(both && (uint64_t)(p->ours - first[large].ours) ==
                                   p->modelled - first[large].modelled)) {
            return false;
        }
        if (i % 100 == 0 && !same_figures(m, device)) {
            return false;
        }
    }
    struct plim_engine_stats s;
    plim_engine_stats(m->engine, &s);
    return s.moved > 100 && s.failures > 100 && same_figures(m, device); /* it came to that */
}

/* In a child, since the plug-in reads its settings once. */
static bool the_model_agrees(const struct plim_moving_options *options)
{
    struct plim_devmodel_config config = {.total = TOTAL};
    struct plim_devmodel device;
    struct plim_moving m;
    if (plim_devmodel_init(&device, &config, NULL) != PLIM_OK ||
        plim_moving_init(&m, &device, options, NULL) != PLIM_OK) {
        return false;
    }
    bool same = same_placements(&m, &device, &options->rounding);
    plim_moving_fini(&m);
    plim_devmodel_fini(&device);
    return same;
}

static void in_each_mode_the_model_places_as_the_plugin_does(void **state)
{
    (void)state;
    const char *sizes = "4096,65536,300000,5000000,13000000,26000000,60000000";
    for (unsigned mode = 0; mode < PLIM_ENGINE_MODES; mode++) {
        struct plim_moving_options options = {.rounding.mode = (enum plim_engine_mode)mode};
        assert_null(plim_engine_sizes_parse(sizes, &options.rounding));
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            setenv("PLIMSOLL_ALLOC_MODE", plim_engine_mode_text(options.rounding.mode), 1);
            setenv("PLIMSOLL_ALLOC_SIZES", sizes, 1);
            _exit(the_model_agrees(&options) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* A plan whose places are anywhere, in part at the same time. */
static void some_plan(struct plim_seating *p, uint64_t random)
{
    for (uint32_t i = 0; i < p->n; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        p->requests[i].size = (1 + random % (random >> 60 ? 9000 : 100)) * 512;
        p->requests[i].place = (random >> 20) % 60000 * 512;
    }
    p->lanes = 1;
    p->repeat = p->n / 3;
    assert_true(plim_seating_index(p));
}

/* A program that follows the plan for the most part: in both the same requests get their places. */
static bool same_places(struct plim_moving *m, const struct plim_devmodel *device,
                        const struct plim_seating *plan)
{
    struct pair pair[8] = {{0}};
    uint32_t at = 0;
    for (unsigned i = 0; i < 4000; i++) {
        struct pair *p = &pair[i % 8];
        size_t size = plan->requests[at].size + (i % 97 == 96 ? 512 : 0);
        at += i % 61 == 60 ? 2 : 1;
        at = at < plan->n ? at : plan->repeat;
        if (p->ours) {
            plimsoll_free(p->ours, 0, 0, NULL);
            assert_int_equal(plim_moving_free(m, p->modelled, NULL), PLIM_OK);
        }
        p->ours = plimsoll_pool_alloc(size, 0, NULL);
        assert_int_equal(plim_moving_alloc(m, size, 0, 0, &p->modelled, NULL), PLIM_OK);
        if ((p->ours != NULL) != (p->modelled != 0) || !same_figures(m, device)) {
            return false;
        }
    }
    struct plim_engine_stats s;
    plim_engine_stats(m->engine, &s);
    return s.placed > 1000 && s.displaced > 100 && s.astray > 50; /* it came to that */
}

/* In a child, as above. */
static bool follows_as_the_model(const struct plim_seating *plan, const char *path)
{
    struct plim_devmodel_config config = {.total = TOTAL};
    struct plim_moving_options options = {.rounding.mode = PLIM_ENGINE_PLAN, .plan = plan};
    struct plim_devmodel device;
    struct plim_moving m;
    setenv("PLIMSOLL_ALLOC_MODE", "plan", 1);
    setenv("PLIMSOLL_ALLOC_PLAN", path, 1);
    return plim_devmodel_init(&device, &config, NULL) == PLIM_OK &&
           plim_moving_init(&m, &device, &options, NULL) == PLIM_OK &&
           same_places(&m, &device, plan);
}

static void a_plan_is_followed_as_the_model_says(void **state)
{
    (void)state;
    char path[] = "/tmp/plimsoll-plan-XXXXXX";
    struct plim_buf text = {0};
    struct plim_seating plan = {.n = 120};
    plan.requests = calloc(plan.n, sizeof *plan.requests);
    assert_non_null(plan.requests);
    some_plan(&plan, 11);
    plim_seating_write(&plan, &text);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text.p, text.n) == (ssize_t)text.n);
    close(fd);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(follows_as_the_model(&plan, path) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    unlink(path);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    plim_buf_fini(&text);
    plim_seating_free(&plan);
}

/* ---- threads ------------------------------------------------------------------------------------- */

struct held {
    unsigned char *at;
    size_t size;
    unsigned char mark;
};

static void note_balance(void)
{
    if (depth != 0) {
        atomic_store(&balance_broken, 1);
    }
}

/* The ends of a block hold its mark as long as nobody else has it. */
static bool intact(const struct held *h)
{
    return h->at[0] == h->mark && h->at[h->size - 1] == h->mark;
}

static void drop(struct held *h, unsigned stream, int *broken)
{
    *broken += !intact(h);
    plimsoll_free(h->at, h->size, 0, (void *)(uintptr_t)stream);
    h->at = NULL;
}

static void *work(void *arg)
{
    uint64_t random = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15u | 1;
    unsigned stream = (unsigned)(uintptr_t)arg % 3;
    struct held held[HELD] = {{0}};
    int broken = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        struct held *h = &held[random % HELD];
        size_t size = random >> 8 & 7 ? (random >> 16) % 65536 + 1 : (random >> 16) % (6 * MIB) + 1;
        if (h->at) {
            drop(h, stream, &broken);
        } else {
            h->at = plimsoll_pool_alloc(size, 0, (void *)(uintptr_t)stream);
            h->size = size;
            h->mark = (unsigned char)(random >> 40);
            if (h->at) {
                h->at[0] = h->at[size - 1] = h->mark;
            }
        }
        if (i % 64 == 0 && h->at) {
            plimsoll_alloc_record_stream(h->at, (void *)(uintptr_t)(stream + 1));
        }
        if (i % 1000 == 999) {
            struct plimsoll_alloc_stats stats;
            plimsoll_alloc_stats(0, &stats, sizeof stats);
            plimsoll_alloc_reset();
        }
        note_balance();
    }
    for (unsigned i = 0; i < HELD; i++) {
        if (held[i].at) {
            drop(&held[i], stream, &broken);
        }
    }
    return (void *)(uintptr_t)broken;
}

static void eight_threads_never_get_the_same_memory(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, (void *)(i + 1)), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *broken;
        pthread_join(thread[i], &broken);
        assert_null(broken);
    }
    struct plimsoll_alloc_stats s;
    assert_true(plimsoll_alloc_stats(0, &s, sizeof s));
    assert_int_equal(s.wrong_frees, 0);
    assert_int_equal(s.blocks, 0);
    assert_true(s.allocs > THREADS * ROUNDS / 4);
    assert_null(plimsoll_alloc_check(0));
    assert_int_equal(atomic_load(&balance_broken), 0);
}

/* ---- memory given back for a time -------------------------------------------------------------------- */

static void tagged_memory_comes_back_at_its_address_with_its_contents(void **state)
{
    (void)state;
    plimsoll_alloc_reset();
    assert_int_equal(plimsoll_alloc_tag(3), 0);
    char *a = plimsoll_pool_alloc(20 * MIB, 0, NULL), *b = plimsoll_pool_alloc(100, 0, NULL);
    assert_int_equal(plimsoll_alloc_tag(0), 3);
    char *other = plimsoll_pool_alloc(5 * MIB, 0, NULL);
    strcpy(a + 10 * MIB, "here");
    strcpy(b, "there");
    strcpy(other, "elsewhere");
    size_t before = used;
    uint64_t given = plimsoll_alloc_pause(0, 3, true);
    assert_true(given >= 20 * MIB);
    assert_int_equal(before - used, given);
    assert_string_equal(other, "elsewhere");
    assert_true(plimsoll_alloc_resume(0, 3));
    assert_string_equal(a + 10 * MIB, "here");
    assert_string_equal(b, "there");
    assert_true(plimsoll_alloc_pause(0, 3, false) > 0);    /* and now without */
    assert_int_equal(plimsoll_alloc_pause(0, 3, true), 0); /* nothing is left to keep */
    assert_true(plimsoll_alloc_resume(0, 3));
    assert_string_equal(a + 10 * MIB, "");
    assert_null(plimsoll_alloc_check(0));
    plimsoll_free(a, 0, 0, NULL);
    plimsoll_free(b, 0, 0, NULL);
    plimsoll_free(other, 0, 0, NULL);
}

static void what_cannot_come_back_yet_stays_paused(void **state)
{
    (void)state;
    plimsoll_alloc_tag(4);
    char *a = plimsoll_pool_alloc(300 * MIB, 0, NULL);
    plimsoll_alloc_tag(0);
    strcpy(a, "kept");
    assert_true(plimsoll_alloc_pause(0, 4, true) >= 300 * MIB);
    char *b = plimsoll_pool_alloc(400 * MIB, 0, NULL);
    assert_non_null(b);
    assert_false(plimsoll_alloc_resume(0, 4));
    plimsoll_free(b, 0, 0, NULL);
    plimsoll_alloc_reset();
    assert_true(plimsoll_alloc_resume(0, 4));
    assert_string_equal(a, "kept");
    plimsoll_free(a, 0, 0, NULL);
    assert_null(plimsoll_alloc_check(0));
}

/* ---- the hooks --------------------------------------------------------------------------------------- */

static struct plimsoll_alloc_stats now(void)
{
    struct plimsoll_alloc_stats s;
    assert_true(plimsoll_alloc_stats(0, &s, sizeof s));
    return s;
}

static void wrong_frees_are_counted_and_do_nothing(void **state)
{
    (void)state;
    static int foreign;
    uint64_t before = now().wrong_frees;
    char *a = plimsoll_pool_alloc(3 * MIB, 0, NULL);
    plimsoll_free(a + 512, 3 * MIB, 0, NULL); /* inside of it */
    plimsoll_free(&foreign, 4, 0, NULL);
    plimsoll_free(a, 3 * MIB, 99, NULL); /* there is no such device */
    plimsoll_free(a, 3 * MIB, 1, NULL);  /* it has no memory */
    plimsoll_free(NULL, 0, 0, NULL);
    assert_int_equal(now().wrong_frees, before + 2);
    assert_int_equal(now().blocks, 1);
    plimsoll_free(a, 3 * MIB, 0, NULL);
    plimsoll_free(a, 3 * MIB, 0, NULL); /* twice */
    assert_int_equal(now().wrong_frees, before + 3);
    assert_int_equal(now().blocks, 0);
    assert_null(plimsoll_alloc_check(0));
    assert_null(plimsoll_pool_alloc(0, 0, NULL));
    assert_null(plimsoll_pool_alloc(MIB, -1, NULL));
}

static void a_fraction_is_a_cap_until_the_next_one(void **state)
{
    (void)state;
    plimsoll_alloc_reset();
    assert_int_equal(used, 0); /* empty_cache() gives all of it back */
    plimsoll_alloc_fraction(0.25, 0);
    assert_int_equal(now().cap, TOTAL / 4);
    assert_null(plimsoll_pool_alloc(200 * MIB, 0, NULL));
    plimsoll_alloc_fraction(1.5, 0); /* no fraction: nothing changes */
    assert_int_equal(now().cap, TOTAL / 4);
    plimsoll_alloc_fraction(1, 0);
    char *a = plimsoll_pool_alloc(200 * MIB, 0, NULL);
    assert_non_null(a);
    plimsoll_free(a, 0, 0, NULL);
}

static void the_block_behind_a_pointer_is_found(void **state)
{
    (void)state;
    size_t size = 7;
    char *a = plimsoll_pool_alloc(5 * MIB, 0, NULL);
    assert_ptr_equal(plimsoll_alloc_base(a + 3 * MIB + 1, &size), a);
    assert_int_equal(size, 5 * MIB);
    size = 7;
    assert_ptr_equal(plimsoll_alloc_base(&size, &size), &size); /* not ours: as it is */
    assert_int_equal(size, 7);
    plimsoll_free(a, 0, 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            in_each_mode_the_model_places_as_the_plugin_does), /* before this process has a device */
        cmocka_unit_test(a_plan_is_followed_as_the_model_says), /* and this one */
        cmocka_unit_test(eight_threads_never_get_the_same_memory),
        cmocka_unit_test(wrong_frees_are_counted_and_do_nothing),
        cmocka_unit_test(a_fraction_is_a_cap_until_the_next_one),
        cmocka_unit_test(the_block_behind_a_pointer_is_found),
        cmocka_unit_test(tagged_memory_comes_back_at_its_address_with_its_contents),
        cmocka_unit_test(what_cannot_come_back_yet_stays_paused),
    };
    return PLIM_RUN_TESTS("alloc_plugin", tests);
}
