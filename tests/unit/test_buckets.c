/* SPDX-License-Identifier: Apache-2.0 */
/* Edges: the least padding there is, found exactly; policies and routes ranked by what a replay shows. */

#include "serving/buckets.h"

#include "fail_alloc.h"
#include "unit.h"

#define SECOND UINT64_C(1000000000)

static double padding(const uint32_t *sizes, const uint64_t *counts, size_t n,
                      const struct plim_edges *e)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)counts[i] * (plim_edges_up(e, sizes[i]) - sizes[i]);
    }
    return sum;
}

/* Every choice of k of the n sizes that has the last one. */
static double least_by_trying(const uint32_t *sizes, const uint64_t *counts, size_t n, uint32_t k)
{
    double least = 1e300;
    for (uint32_t set = 1U << (n - 1); set < 1U << n; set++) {
        struct plim_edges e = {0};
        if ((uint32_t)__builtin_popcount(set) != k) {
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            if (set >> i & 1) {
                e.edge[e.n++] = sizes[i];
            }
        }
        double p = padding(sizes, counts, n, &e);
        least = p < least ? p : least;
    }
    return least;
}

static void the_padding_is_the_least_of_all_choices(void **state)
{
    uint64_t random = 5;
    (void)state;
    for (int round = 0; round < 200; round++) {
        uint32_t sizes[10], n = 1 + (uint32_t)(random % 10);
        uint64_t counts[10];
        for (uint32_t i = 0, size = 0; i < n; i++) {
            random = plim_hash_u64(random + 1);
            size += 1 + (uint32_t)(random % 50);
            sizes[i] = size;
            counts[i] = 1 + random % 7;
        }
        for (uint32_t k = 1; k <= n; k++) {
            struct plim_edges e;
            assert_ok(plim_edges_least_padding(sizes, counts, n, k, &e, NULL));
            assert_int_equal(e.n, k);
            assert_int_equal(e.edge[k - 1], sizes[n - 1]);
            assert_true(padding(sizes, counts, n, &e) == least_by_trying(sizes, counts, n, k));
        }
    }
}

static void more_edges_than_sizes_are_the_sizes(void **state)
{
    static const uint32_t sizes[] = {3, 9};
    static const uint64_t counts[] = {1, 1};
    struct plim_edges e;
    (void)state;
    assert_ok(plim_edges_least_padding(sizes, counts, 2, 30, &e, NULL));
    assert_int_equal(e.n, 2);
}

struct scene {
    struct plim_flow_source source;
    struct plim_flow_options flow;
    struct plim_server server;
    struct plim_conf conf;
    struct plim_soak_setup setup;
};

static void prepare(struct scene *s)
{
    bool known;
    *s = (struct scene){0};
    assert_ok(plim_flow_parse(PLIM_STR("pictures"), &s->source, &known, NULL));
    s->flow =
        (struct plim_flow_options){.sources = &s->source, .n_sources = 1, .span_ns = 300 * SECOND};
    plim_server_defaults(&s->server, PLIM_WORKLOAD_PICTURES, NULL, 24 * PLIM_GIB);
    plim_conf_init(&s->conf, PLIM_TORCH_LATEST);
    s->setup = (struct plim_soak_setup){.server = &s->server,
                                        .flow = &s->flow,
                                        .conf = &s->conf,
                                        .capacity = 24 * PLIM_GIB,
                                        .external = 500 * PLIM_MIB};
}

static void the_proposal_costs_least_and_the_front_is_not_beaten(void **state)
{
    static struct scene s;
    static struct plim_bucket_choice c;
    struct plim_bucket_weights weights = {0};
    (void)state;
    prepare(&s);
    assert_ok(plim_buckets_choose(&s.setup, PLIM_BUCKET_SIDE, &weights, &c, NULL));
    assert_true(c.n > 5);
    assert_string_equal(c.policies[0].name, "today");
    for (uint32_t i = 0; i < c.n; i++) {
        assert_true(c.policies[i].cost >= c.policies[c.proposed].cost);
        assert_true(c.policies[i].padding >= 0 && c.policies[i].padding < 1);
    }
    weights.memory = 1; /* memory alone: nothing needs less than the one that needs least */
    assert_ok(plim_buckets_choose(&s.setup, PLIM_BUCKET_SIDE, &weights, &c, NULL));
    for (uint32_t i = 0; i < c.n; i++) {
        assert_true(c.policies[i].result.peak.reserved >=
                    c.policies[c.proposed].result.peak.reserved);
    }
}

static void edges_that_a_server_does_not_have_are_refused(void **state)
{
    static struct scene s;
    static struct plim_bucket_choice c;
    struct plim_bucket_weights weights = {0};
    (void)state;
    prepare(&s);
    assert_int_equal(plim_buckets_choose(&s.setup, PLIM_BUCKET_PROMPT, &weights, &c, NULL),
                     PLIM_E_USAGE);
}

static void every_request_goes_to_one_of_two_pools(void **state)
{
    static struct scene s;
    static struct plim_route_choice c;
    static struct plim_soak_result all;
    (void)state;
    prepare(&s);
    assert_ok(plim_soak_run(&s.setup, &all, NULL));
    assert_ok(plim_route_choose(&s.setup, &c, NULL));
    assert_true(c.n > 2);
    for (uint32_t i = 0; i < c.n; i++) {
        const struct plim_route *r = &c.routes[i];
        assert_int_equal(r->pool[0].arrivals + r->pool[1].arrivals, all.arrivals);
        assert_true(r->wait_ns >= r->pool[0].latency.first_p99);
    }
    assert_true(c.routes[0].pool[0].arrivals - c.routes[0].pool[1].arrivals <= 1);
}

static enum plim_status choose(void *arg)
{
    static struct plim_bucket_choice c;
    struct plim_bucket_weights weights = {0};
    struct scene *s = arg;
    return plim_buckets_choose(&s->setup, PLIM_BUCKET_SIDE, &weights, &c, NULL);
}

static void failing_allocations_are_reported_and_leak_nothing(void **state)
{
    static struct scene s;
    (void)state;
    prepare(&s);
    s.flow.span_ns = 12 * SECOND;
    fail_alloc_sweep(choose, &s, 20000, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_padding_is_the_least_of_all_choices),
        cmocka_unit_test(more_edges_than_sizes_are_the_sizes),
        cmocka_unit_test(the_proposal_costs_least_and_the_front_is_not_beaten),
        cmocka_unit_test(edges_that_a_server_does_not_have_are_refused),
        cmocka_unit_test(every_request_goes_to_one_of_two_pools),
        cmocka_unit_test(failing_allocations_are_reported_and_leak_nothing),
    };
    return PLIM_RUN_TESTS("bucket edges", tests);
}
