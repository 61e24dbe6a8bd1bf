/* SPDX-License-Identifier: Apache-2.0 */

/* The screen of plimsoll top, without a terminal: what stands where, and what keys do. */

#include "top/layout.h"
#include "unit.h"

#include <stdio.h>

static struct plim_observation now;
static struct plim_finding finding;
static struct plim_state state;
static struct plim_top_model model;
static struct plim_top_view view;
static struct plim_top_list list;
static struct plim_top_canvas canvas;
static struct plim_buf text;

static void add_process(uint32_t device, uint32_t pid, uint32_t ppid, const char *name,
                        uint64_t gib)
{
    struct plim_process_use use = {.device = device,
                                   .pid = pid,
                                   .gpu_instance = PLIM_NO_INSTANCE,
                                   .compute_instance = PLIM_NO_INSTANCE,
                                   .kinds = PLIM_USE_COMPUTE,
                                   .bytes_valid = true,
                                   .bytes = gib * PLIM_GIB,
                                   .counted = gib * PLIM_GIB};
    struct plim_process_facts facts = {
        .pid = pid, .ppid = ppid, .start_ticks = pid * 10, .rss = PLIM_GIB};
    (void)snprintf(facts.name, sizeof(facts.name), "%s", name);
    assert_ok(plim_vec_push(&now.sample.uses, NULL, use));
    if (plim_sample_process(&now.sample, pid) == NULL) {
        assert_ok(plim_vec_push(&now.sample.processes, NULL, facts));
    }
}

static void add_device(uint64_t used, uint64_t total)
{
    struct plim_device_sample d = {.parent = PLIM_NO_PARENT, .state = PLIM_DEVICE_OK};
    (void)snprintf(d.name, sizeof(d.name), "Test GPU");
    plim_set_figure(&d, PLIM_FIGURE_TOTAL, total * PLIM_GIB);
    plim_set_figure(&d, PLIM_FIGURE_USED, used * PLIM_GIB);
    plim_set_figure(&d, PLIM_FIGURE_FREE, (total - used) * PLIM_GIB);
    assert_ok(plim_vec_push(&now.sample.devices, NULL, d));
}

static void add_allocator(uint32_t pid, uint64_t allocated, uint64_t reserved, uint64_t split)
{
    struct plim_allocator_now a = {.pid = pid, .device = 0};
    a.figure[PLIM_ALLOCATOR_ALLOCATED] = allocated * PLIM_GIB;
    a.figure[PLIM_ALLOCATOR_RESERVED] = reserved * PLIM_GIB;
    a.figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] = split * PLIM_GIB;
    a.valid = 1u << PLIM_ALLOCATOR_ALLOCATED | 1u << PLIM_ALLOCATOR_RESERVED |
              1u << PLIM_ALLOCATOR_INACTIVE_SPLIT;
    assert_ok(plim_vec_push(&now.allocators, NULL, a));
}

/* Two devices of 80 GiB; on the first a process that tells its books (10 live, 6 slack of which 4 stranded, 2
 * outside), its child, and somebody else; on the second one more. */
static void make_world(void)
{
    static uint64_t clock_ns;
    plim_observation_reset(&now);
    clock_ns += UINT64_C(10000000000);
    now.sample.time_ns = UINT64_C(1700000000) * 1000000000;
    now.mono_ns = clock_ns;
    add_device(40, 80);
    add_device(79, 80);
    add_process(0, 100, 1, "trainer", 18);
    add_process(0, 101, 100, "worker", 1);
    add_process(0, 50, 1, "stranger", 20);
    add_process(1, 200, 1, "vllm", 79);
    add_allocator(100, 10, 16, 4);
    struct plim_engine_now e = {.kind = PLIM_ENGINE_KIND_VLLM, .up = true};
    (void)snprintf(e.name, sizeof(e.name), "main");
    e.figure[PLIM_ENGINE_FIGURE_KV_USAGE] = 0.25;
    e.figure[PLIM_ENGINE_FIGURE_RUNNING] = 3;
    e.valid = 1u << PLIM_ENGINE_FIGURE_KV_USAGE | 1u << PLIM_ENGINE_FIGURE_RUNNING;
    assert_ok(plim_vec_push(&now.engines, NULL, e));
    finding = (struct plim_finding){.class = PLIM_FINDING_LEAK,
                                    .severity = PLIM_SEVERITY_CRITICAL,
                                    .active = true,
                                    .subject = {.device = 0, .pid = 100},
                                    .summary = "trainer (100) leaks",
                                    .evidence = "live grew by 1 GiB\nover one hour",
                                    .next_step = "look at its snapshot"};
    state = (struct plim_state){
        .now = &now, .findings = &finding, .n_findings = 1, .host = "host", .version = "0"};
}

static void draw(unsigned width, unsigned height)
{
    assert_ok(plim_top_canvas_size(&canvas, width, height, NULL));
    assert_ok(plim_top_list_make(&model, &view, &list, NULL));
    plim_top_layout(&model, &view, &list, &canvas);
    plim_buf_reset(&text);
    plim_top_canvas_text(&canvas, &text);
    plim_buf_char(&text, '\0');
}

static int begin(void **unused)
{
    (void)unused;
    view = (struct plim_top_view){.sort = PLIM_TOP_COLUMN_MEMORY,
                                  .device = PLIM_TOP_ALL_DEVICES,
                                  .interval_ns = UINT64_C(1000000000)};
    canvas.ascii = true;
    make_world();
    assert_ok(plim_top_model_update(&model, &state, NULL));
    draw(150, 30);
    return 0;
}

static int end(void **unused)
{
    (void)unused;
    plim_observation_fini(&now);
    plim_top_model_fini(&model);
    plim_top_list_fini(&list);
    plim_top_canvas_fini(&canvas);
    plim_buf_fini(&text);
    memset(&model, 0, sizeof(model));
    memset(&list, 0, sizeof(list));
    memset(&canvas, 0, sizeof(canvas));
    return 0;
}

static bool shows(const char *what)
{
    return strstr(text.p, what) != NULL;
}

static void press(uint32_t key)
{
    (void)plim_top_key(&model, &view, &list, key);
    draw(150, 30);
}

/* Pids of the list, from top to bottom. */
static void assert_rows(const uint32_t *pids, size_t n)
{
    assert_int_equal(list.rows.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(model.processes.items[list.rows.items[i]].use->pid, pids[i]);
    }
}

#define ASSERT_ROWS(...)                                                                           \
    assert_rows((const uint32_t[]){__VA_ARGS__}, PLIM_COUNT_OF(((const uint32_t[]){__VA_ARGS__})))

static void parts_of_a_device_add_up_to_its_total(void **unused)
{
    (void)unused;
    plim_vec_foreach (d, &model.devices) {
        uint64_t sum = 0;
        for (unsigned i = 0; i < PLIM_TOP_PARTS; i++) {
            sum += d->part[i];
        }
        assert_int_equal(sum, d->total);
    }
    const uint64_t *part = model.devices.items[0].part;
    assert_int_equal(part[PLIM_TOP_PART_LIVE], 10 * PLIM_GIB);
    assert_int_equal(part[PLIM_TOP_PART_STRANDED], 4 * PLIM_GIB);
    assert_int_equal(part[PLIM_TOP_PART_RELEASABLE], 2 * PLIM_GIB);
    assert_int_equal(part[PLIM_TOP_PART_OUTSIDE], 2 * PLIM_GIB);
    assert_int_equal(part[PLIM_TOP_PART_OTHERS], 21 * PLIM_GIB);
    assert_int_equal(part[PLIM_TOP_PART_UNKNOWN], 1 * PLIM_GIB);
}

static void the_screen_says_what_is_known(void **unused)
{
    (void)unused;
    assert_true(shows("0 Test GPU  40.00 GiB of 80.00 GiB  50%"));
    assert_true(shows("# live 10.00 GiB % stranded 4.00 GiB = releasable 2.00 GiB"));
    assert_true(shows("! critical trainer (100) leaks"));
    assert_true(shows("main vllm  KV 25%  3 running"));
    assert_true(shows("F1 Help"));
    assert_true(shows("119.0 GiB of 160.0 GiB used"));
}

static void the_bar_shares_its_cells_by_bytes(void **unused)
{
    (void)unused;
    draw(106, 30); /* a bar of 40 cells for 80 GiB */
    assert_true(shows("[#####%%=+oooooooooo?....................]") ||
                shows("[#####%%=+ooooooooooo?...................]"));
}

static void rows_are_sorted_by_any_column(void **unused)
{
    (void)unused;
    ASSERT_ROWS(200, 50, 100, 101);
    press('P');
    ASSERT_ROWS(50, 100, 101, 200);
    press('r');
    ASSERT_ROWS(200, 101, 100, 50);
    press('N');
    ASSERT_ROWS(50, 100, 200, 101);
    press('L');
    ASSERT_ROWS(100, 50, 101, 200);
    press('M');
    press('>');
    assert_int_equal(view.sort, PLIM_TOP_COLUMN_SHARE);
    press('<');
    press('<');
    assert_int_equal(view.sort, PLIM_TOP_COLUMN_KIND);
}

static void a_tree_hangs_children_under_their_parents(void **unused)
{
    (void)unused;
    press('t');
    ASSERT_ROWS(200, 50, 100, 101);
    press('P');
    press('r');
    ASSERT_ROWS(200, 100, 101, 50);
    assert_true(shows("`-worker"));
}

static void processes_that_call_each_other_parent_are_still_shown(void **unused)
{
    (void)unused;
    now.sample.processes.items[0].ppid = 101; /* 100 and 101 in a circle */
    assert_ok(plim_top_model_update(&model, &state, NULL));
    press('t');
    assert_int_equal(list.rows.n, 4);
}

static void a_filter_narrows_and_escape_ends_it(void **unused)
{
    (void)unused;
    press('/');
    for (const char *p = "WORKX"; *p != '\0'; p++) {
        press((uint32_t)*p);
    }
    assert_int_equal(list.rows.n, 0);
    assert_true(shows("no process has this text"));
    press(PLIM_TOP_KEY_BACKSPACE);
    assert_true(shows("Filter: WORK"));
    press(PLIM_TOP_KEY_ENTER);
    ASSERT_ROWS(101);
    assert_true(shows("only \"WORK\""));
    press(PLIM_TOP_KEY_ESCAPE);
    assert_int_equal(list.rows.n, 4);
    press('1');
    ASSERT_ROWS(200);
    press('a');
    assert_int_equal(list.rows.n, 4);
}

static void the_selected_process_stays_selected_when_rows_move(void **unused)
{
    (void)unused;
    press(PLIM_TOP_KEY_DOWN);
    assert_int_equal(view.pid, 200);
    press('j');
    assert_int_equal(view.pid, 50);
    press('P');
    assert_int_equal(view.pid, 50);
    assert_int_equal(list.selected, 0);
    press('G');
    assert_int_equal(view.pid, 200);
    press(PLIM_TOP_KEY_UP);
    assert_int_equal(view.pid, 101);
    press('g');
    assert_int_equal(view.pid, 50);
}

static void details_tell_books_and_findings(void **unused)
{
    (void)unused;
    view.pid = 100;
    draw(120, 40);
    press('i');
    draw(120, 40);
    assert_true(shows("trainer, process 100 on device 0"));
    assert_true(shows("slack, stranded"));
    assert_true(shows("live grew by 1 GiB"));
    assert_true(shows("look at its snapshot"));
    press(PLIM_TOP_KEY_ESCAPE);
    assert_false(shows("slack, stranded"));
}

static void help_lists_keys_and_any_key_ends_it(void **unused)
{
    (void)unused;
    press('?');
    draw(120, 60);
    assert_true(shows("Keys and columns"));
    assert_true(shows("reverse the order"));
    assert_true(shows("STRANDED"));
    press('x');
    assert_false(shows("Keys and columns"));
}

static void panels_can_be_hidden(void **unused)
{
    (void)unused;
    press('D');
    assert_false(shows("Test GPU"));
    press('F');
    assert_false(shows("critical"));
    press('E');
    assert_false(shows("KV 25%"));
}

static void the_interval_has_steps(void **unused)
{
    (void)unused;
    assert_int_equal(plim_top_key(&model, &view, &list, '-'), PLIM_TOP_RETIME);
    assert_int_equal(view.interval_ns, UINT64_C(2000000000));
    for (int i = 0; i < 20; i++) {
        (void)plim_top_key(&model, &view, &list, '+');
    }
    assert_int_equal(view.interval_ns, UINT64_C(100000000));
    for (int i = 0; i < 20; i++) {
        (void)plim_top_key(&model, &view, &list, '-');
    }
    assert_int_equal(view.interval_ns, UINT64_C(60000000000));
}

static void keys_that_end_and_redraw_say_so(void **unused)
{
    (void)unused;
    assert_int_equal(plim_top_key(&model, &view, &list, 'q'), PLIM_TOP_QUIT);
    assert_int_equal(plim_top_key(&model, &view, &list, PLIM_TOP_KEY_F0 + 10), PLIM_TOP_QUIT);
    assert_int_equal(plim_top_key(&model, &view, &list, 3), PLIM_TOP_QUIT);
    assert_int_equal(plim_top_key(&model, &view, &list, 12), PLIM_TOP_REDRAW);
    assert_int_equal(plim_top_key(&model, &view, &list, 'Z'), PLIM_TOP_NOTHING);
    (void)plim_top_key(&model, &view, &list, '/');
    assert_int_equal(plim_top_key(&model, &view, &list, 'q'), PLIM_TOP_CHANGED);
    assert_string_equal(view.filter, "q");
}

static void every_size_can_be_drawn(void **unused)
{
    (void)unused;
    static const unsigned sizes[] = {0, 1, 2, 3, 5, 8, 13, 24, 40, 80, 100, 132, 300};
    view.pid = 100;
    for (int mode = 0; mode < 8; mode++) {
        canvas.ascii = (mode & 1) != 0;
        view.help = (mode & 2) != 0;
        view.details = (mode & 4) != 0;
        for (size_t w = 0; w < PLIM_COUNT_OF(sizes); w++) {
            for (size_t h = 0; h < PLIM_COUNT_OF(sizes); h++) {
                draw(sizes[w], sizes[h]);
                assert_int_equal(canvas.cells.n, sizes[w] * sizes[h]);
            }
        }
    }
}

static void a_small_screen_keeps_the_list(void **unused)
{
    (void)unused;
    draw(80, 8);
    assert_true(shows("and 1 more") || shows("Test GPU"));
    assert_true(shows("200"));
    assert_true(shows("MEMORYv"));
}

static void wide_and_foreign_names_keep_their_columns(void **unused)
{
    (void)unused;
    (void)snprintf(now.sample.processes.items[0].name, sizeof(now.sample.processes.items[0].name),
                   "推理\xff\x1b[m");
    canvas.ascii = false;
    draw(150, 30);
    assert_true(shows("推理? [m"));
    canvas.ascii = true;
    draw(150, 30);
    assert_true(shows("??? [m"));
}

static void growth_needs_some_seconds_and_follows_the_process(void **unused)
{
    (void)unused;
    assert_false(model.processes.items[0].growth_valid);
    make_world();
    now.sample.uses.items[0].counted = now.sample.uses.items[0].bytes = 19 * PLIM_GIB;
    assert_ok(plim_top_model_update(&model, &state, NULL));
    assert_true(model.processes.items[0].growth_valid);
    draw(150, 30);
    assert_true(shows("+6.00 GiB")); /* a GiB in ten seconds */
    press('T');
    assert_int_equal(model.processes.items[list.rows.items[0]].use->pid, 100);
    make_world();
    now.sample.processes.items[0].start_ticks = 5; /* another process with that pid */
    assert_ok(plim_top_model_update(&model, &state, NULL));
    assert_false(model.processes.items[0].growth_valid);
}

static void rates_of_engines_come_from_two_states(void **unused)
{
    (void)unused;
    double rate;
    struct plim_engine_now *e = &now.engines.items[0];
    e->figure[PLIM_ENGINE_FIGURE_PROMPT_TOKENS] = 100;
    e->valid |= 1u << PLIM_ENGINE_FIGURE_PROMPT_TOKENS;
    e->told_ns = UINT64_C(10000000000);
    assert_ok(plim_top_model_update(&model, &state, NULL));
    assert_ok(plim_top_model_update(&model, &state, NULL)); /* the same answer again */
    make_world();
    e = &now.engines.items[0];
    e->told_ns = UINT64_C(20000000000);
    e->figure[PLIM_ENGINE_FIGURE_PROMPT_TOKENS] = 150;
    e->valid |= 1u << PLIM_ENGINE_FIGURE_PROMPT_TOKENS;
    assert_ok(plim_top_model_update(&model, &state, NULL));
    assert_true(plim_top_rate(&model, e, PLIM_ENGINE_FIGURE_PROMPT_TOKENS, &rate));
    assert_true(rate > 4.99 && rate < 5.01);
    e->figure[PLIM_ENGINE_FIGURE_PROMPT_TOKENS] = 3; /* it began anew */
    e->told_ns = UINT64_C(30000000000);
    assert_ok(plim_top_model_update(&model, &state, NULL));
    assert_false(plim_top_rate(&model, e, PLIM_ENGINE_FIGURE_PROMPT_TOKENS, &rate));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(parts_of_a_device_add_up_to_its_total),
        TEST(the_screen_says_what_is_known),
        TEST(the_bar_shares_its_cells_by_bytes),
        TEST(rows_are_sorted_by_any_column),
        TEST(a_tree_hangs_children_under_their_parents),
        TEST(processes_that_call_each_other_parent_are_still_shown),
        TEST(a_filter_narrows_and_escape_ends_it),
        TEST(the_selected_process_stays_selected_when_rows_move),
        TEST(details_tell_books_and_findings),
        TEST(help_lists_keys_and_any_key_ends_it),
        TEST(panels_can_be_hidden),
        TEST(the_interval_has_steps),
        TEST(keys_that_end_and_redraw_say_so),
        TEST(every_size_can_be_drawn),
        TEST(a_small_screen_keeps_the_list),
        TEST(wide_and_foreign_names_keep_their_columns),
        TEST(growth_needs_some_seconds_and_follows_the_process),
        TEST(rates_of_engines_come_from_two_states),
    };
    return PLIM_RUN_TESTS("top", tests);
}
