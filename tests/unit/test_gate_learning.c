/* SPDX-License-Identifier: Apache-2.0 */
/* What the gate learns: prices, lengths, first tokens, pace. */

#include "gate_steps.h"

#include <math.h>

#define MS UINT64_C(1000000)

/* One that runs from its first token at `first` to its end at `end` after being admitted. */
static void serve(struct bench *b, uint32_t prompt, uint32_t output, uint64_t first,
                  uint64_t end_ns)
{
    struct plimsoll_gate_decision d =
        ask(b, (struct plimsoll_gate_request){.prompt_tokens = prompt, .max_tokens = 4096});
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT);
    b->now += first;
    assert_int_equal(plimsoll_gate_extend(&b->gate, d.id, 1, b->now), 0);
    b->now += end_ns - first;
    release(b, d.id, output, PLIMSOLL_GATE_STOPPED);
}

/* ---- prices */

static void samples_share_the_whole_blocks_of_their_prompt(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(10000);
    begin(&b, &c);
    struct plimsoll_gate_decision d = ask(&b, (struct plimsoll_gate_request){
                                                  .prompt_tokens = 164,
                                                  .max_tokens = 60,
                                                  .samples = 4,
                                              });
    assert_int_equal(d.now_units, 10 + 4); /* ten whole blocks, and each its own eleventh */
    assert_int_equal(d.peak_units, 10 + 4 * 4);
    d = ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 164,
                                               .max_tokens = 60,
                                               .samples = 4,
                                               .flags = PLIMSOLL_GATE_APART});
    assert_int_equal(d.now_units, 4 * 11); /* a batch: four prompts */
    assert_int_equal(d.peak_units, 4 * 14);
    struct plimsoll_gate_state s;
    assert_int_equal(plimsoll_gate_read(&b.gate, &s, b.now), 0);
    assert_int_equal(s.queued_tokens, 164 + 4 * 164);
    d = ask(&b, (struct plimsoll_gate_request){
                    .prompt_tokens = 164, .max_tokens = 60, .shared_tokens = 100});
    assert_int_equal(d.now_units, 11 - 6); /* six whole blocks are there already */
    d = ask(&b, (struct plimsoll_gate_request){
                    .prompt_tokens = 164, .max_tokens = 60, .cached_tokens = 100});
    assert_int_equal(d.now_units, 11); /* computed before, but its blocks were free ones */
    end(&b);
}

static void a_batch_is_refused_for_ever_for_its_longest_prompt(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(100);
    c.max_length = 1000;
    begin(&b, &c);
    struct plimsoll_gate_request batch = {.prompt_tokens = 16,
                                          .max_tokens = 8,
                                          .samples = 3,
                                          .longest_tokens = 999,
                                          .flags = PLIMSOLL_GATE_APART};
    struct plimsoll_gate_decision d = ask(&b, batch);
    assert_int_equal(d.verdict, PLIMSOLL_GATE_ADMIT); /* it has room by itself */
    assert_int_equal(d.now_units, 3);
    batch.longest_tokens = 1000;
    d = ask(&b, batch);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_TOO_LONG);
    batch.flags = 0; /* no batch: all samples have one prompt */
    assert_int_equal(ask(&b, batch).verdict, PLIMSOLL_GATE_ADMIT);
    end(&b);

    c.max_length = 0;
    begin(&b, &c);
    batch.flags = PLIMSOLL_GATE_APART;
    batch.longest_tokens = 100 * 16 - 1;
    assert_int_equal(ask(&b, batch).verdict, PLIMSOLL_GATE_ADMIT);
    batch.longest_tokens = 100 * 16;
    assert_int_equal(ask(&b, batch).reason, PLIMSOLL_GATE_WHY_TOO_LARGE);
    end(&b);

    c.capacity_units = 100000;
    begin(&b, &c);
    d = ask(&b, (struct plimsoll_gate_request){
                    .prompt_tokens = 15, .known_output = 1, .samples = 5000, .flags = 8});
    assert_int_equal(d.now_units, 5000); /* each prompt of a large one counts */
    end(&b);
}

static void a_known_length_is_expected_for_certain(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(10000);
    begin(&b, &c);
    struct plimsoll_gate_decision d =
        ask(&b, (struct plimsoll_gate_request){
                    .prompt_tokens = 160, .max_tokens = 8000, .known_output = 320});
    assert_int_equal(d.peak_units, 30);
    assert_true(d.expected_units >= 26 && d.expected_units <= 30);
    end(&b);
}

/* ---- lengths */

static void lengths_are_learned_by_class(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000000);
    struct plimsoll_gate_class read;
    begin(&b, &c);
    uint32_t curt = plimsoll_gate_class(&b.gate, "curt", b.now);
    uint32_t wordy = plimsoll_gate_class(&b.gate, "wordy", b.now);
    assert_int_equal(curt, plimsoll_gate_class(&b.gate, "curt", b.now));
    assert_true(curt != wordy && curt > 0 && wordy > 0);
    for (unsigned i = 0; i < 600; i++) {
        struct plimsoll_gate_request r = {.prompt_tokens = 100, .max_tokens = 8000};
        r.class_id = i % 2 ? curt : wordy;
        uint64_t id = ask(&b, r).id;
        release(&b, id, i % 2 ? 10 + i % 20 : 900 + i % 200, PLIMSOLL_GATE_STOPPED);
    }
    assert_int_equal(plimsoll_gate_class_read(&b.gate, curt, &read, b.now), 0);
    assert_string_equal(read.name, "curt");
    assert_true(read.output_p50 >= 15 && read.output_p50 <= 25);
    assert_int_equal(plimsoll_gate_class_read(&b.gate, wordy, &read, b.now), 0);
    assert_true(read.output_p50 >= 900 && read.output_p50 <= 1100);
    assert_true(read.output_mean > 850 && read.output_mean < 1250);
    struct plimsoll_gate_request r = {.prompt_tokens = 100, .max_tokens = 8000, .class_id = curt};
    assert_true(ask(&b, r).expected_units < 20);
    r.class_id = wordy;
    assert_true(ask(&b, r).expected_units > 50);
    r.max_tokens = 50; /* no expectation goes beyond what was asked for */
    assert_true(ask(&b, r).expected_units <= 10);
    assert_int_equal(plimsoll_gate_class_read(&b.gate, 60, &read, b.now), PLIMSOLL_GATE_UNKNOWN);
    end(&b);
}

static void answers_that_were_cut_off_are_not_taken_for_short_ones(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000000);
    struct plimsoll_gate_class read;
    begin(&b, &c);
    for (unsigned i = 0; i < 1000;
         i++) { /* half of them leave after 20 tokens, the others end at 500 */
        uint64_t id =
            ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 50, .max_tokens = 4000}).id;
        release(&b, id, i % 2 ? 20 : 500, i % 2 ? PLIMSOLL_GATE_CANCELLED : PLIMSOLL_GATE_STOPPED);
    }
    assert_int_equal(plimsoll_gate_class_read(&b.gate, 0, &read, b.now), 0);
    assert_true(read.output_p50 >= 400 && read.output_p50 <= 520);
    end(&b);
}

/* ---- first token and pace */

static void a_request_that_would_wait_too_long_is_refused_with_the_time_to_come_back(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000000);
    c.first_token_ns = 2 * SECOND;
    c.step_tokens = 2048;
    begin(&b, &c);
    for (unsigned i = 0; i < 40; i++) { /* 10,000 prompt tokens a second, 50 ms at the least */
        uint32_t prompt = 500 + 100 * (i % 10);
        serve(&b, prompt, 10, 50 * MS + prompt * (SECOND / 10000), 2 * SECOND);
    }
    struct plimsoll_gate_state s = state_of(&b);
    assert_true(s.prefill_tokens_s > 8000 && s.prefill_tokens_s < 12500);
    unsigned n = 0;
    struct plimsoll_gate_decision d;
    struct plimsoll_gate_request r = {.prompt_tokens = 1000, .max_tokens = 100};
    while ((d = ask(&b, r)).verdict == PLIMSOLL_GATE_ADMIT) {
        n++;
    }
    assert_true(n >= 17 && n <= 20);
    assert_int_equal(d.reason, PLIMSOLL_GATE_WHY_FIRST_TOKEN);
    assert_int_equal(d.http, 429);
    assert_true(d.retry_after_ms >= 1000 && d.retry_after_ms <= 60000);
    end(&b);
}

static void a_prompt_longer_than_the_target_may_start_when_nothing_is_ahead(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000000);
    c.first_token_ns = 2 * SECOND;
    c.prefill_tokens_s = 10000;
    begin(&b, &c);
    struct plimsoll_gate_request r = {.prompt_tokens = 60000, .max_tokens = 10};
    struct plimsoll_gate_request tiny = {.prompt_tokens = 500, .max_tokens = 10};
    uint64_t first = ask(&b, tiny).id;
    assert_int_equal(ask(&b, r).verdict, PLIMSOLL_GATE_ADMIT);
    assert_int_equal(ask(&b, r).reason, PLIMSOLL_GATE_WHY_FIRST_TOKEN);
    assert_true(first != 0);
    end(&b);
}

static void slow_tokens_lower_the_number_of_requests_and_fast_ones_raise_it(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(1000000);
    uint64_t ids[100];
    c.token_ns = 50 * MS;
    begin(&b, &c);
    for (unsigned round = 0; round < 30;
         round++) { /* 100 at once are too many, as many as get in */
        struct plimsoll_gate_request r = {.prompt_tokens = 100, .max_tokens = 100};
        unsigned n = 0;
        for (unsigned i = 0; i < 100; i++) {
            struct plimsoll_gate_decision d = ask(&b, r);
            assert_true(d.verdict == PLIMSOLL_GATE_ADMIT || d.reason == PLIMSOLL_GATE_WHY_PACE);
            if (d.id != 0) {
                ids[n++] = d.id;
            }
        }
        b.now += SECOND;
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(plimsoll_gate_extend(&b.gate, ids[i], 1, b.now), 0);
        }
        b.now += 100 * n * MS; /* 1 ms a token for each request: 50 fit */
        for (unsigned i = 0; i < n; i++) {
            release(&b, ids[i], 101, PLIMSOLL_GATE_STOPPED);
        }
    }
    uint32_t limit = state_of(&b).limit_requests;
    assert_true(limit >= 35 && limit <= 65);
    end(&b);
}

static void an_answer_in_one_piece_is_reckoned_until_it_is_over(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(100000);
    struct plimsoll_gate_class read;
    begin(&b, &c);
    for (unsigned i = 0; i < 40; i++) { /* 10,000 prompt tokens and 20 answer tokens a second */
        uint32_t prompt = 500 + 100 * (i % 10);
        serve(&b, prompt, 41, prompt * (SECOND / 10000), prompt * (SECOND / 10000) + 2 * SECOND);
    }
    uint64_t id =
        ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 1600, .max_tokens = 4000}).id;
    assert_int_equal(state_of(&b).queued_tokens, 1600);
    for (unsigned i = 0; i < 22; i++) {
        b.now += SECOND;
        assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
        assert_null(plimsoll_gate_check(&b.gate));
    }
    struct plimsoll_gate_state s = state_of(&b);
    assert_int_equal(s.queued_tokens, 0);
    assert_int_equal(s.begun, 1);
    assert_true(s.held_units >= 100 + 22 && s.held_units <= 100 + 28); /* some 400 tokens */
    double token_s = s.token_s;
    release(&b, id, 30, PLIMSOLL_GATE_STOPPED); /* it was slow in fact: that is what is learned */
    assert_true(state_of(&b).token_s == token_s);
    assert_int_equal(plimsoll_gate_class_read(&b.gate, 0, &read, b.now), 0);
    assert_true(read.output_p99 < 2000);
    end(&b);
}

static void a_request_counts_as_going_on_between_two_reports(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(100000);
    begin(&b, &c);
    serve(&b, 160, 41, SECOND / 10, 2 * SECOND + SECOND / 10); /* 20 tokens a second */
    uint64_t id =
        ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 160, .max_tokens = 4000}).id;
    b.now += 10 * SECOND; /* nothing comes before the first token */
    assert_int_equal(state_of(&b).held_units, 10);
    assert_int_equal(plimsoll_gate_extend(&b.gate, id, 1, b.now), 0);
    assert_int_equal(state_of(&b).held_units, 11);
    b.now += 17 * SECOND / 20;
    assert_int_equal(state_of(&b).held_units, 12);
    assert_true(state_of(&b).expected_units >= 12);
    b.now += 3600 * SECOND; /* whoever says nothing for so long stands still */
    assert_int_equal(state_of(&b).held_units, 11 + 4);
    assert_int_equal(plimsoll_gate_extend(&b.gate, id, 50, b.now), 0);
    assert_int_equal(state_of(&b).held_units, 14);
    figures(&b, (struct plimsoll_gate_figures){.has = PLIMSOLL_GATE_HAS_USAGE, .usage = 14e-5});
    assert_int_equal(state_of(&b).drift_units, 0);
    assert_null(plimsoll_gate_check(&b.gate));
    release(&b, id, 50, PLIMSOLL_GATE_STOPPED);
    b.now += SECOND;
    assert_int_equal(state_of(&b).held_units, 0);
    end(&b);
}

static void an_answer_in_one_piece_begins_when_its_first_token_is_due(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(100000);
    begin(&b, &c);
    for (unsigned i = 0; i < 40; i++) { /* 10,000 prompt tokens and 20 answer tokens a second */
        uint32_t prompt = 500 + 100 * (i % 10);
        serve(&b, prompt, 41, prompt * (SECOND / 10000), prompt * (SECOND / 10000) + 2 * SECOND);
    }
    struct plimsoll_gate_request r = {
        .prompt_tokens = 1600, .max_tokens = 100, .flags = PLIMSOLL_GATE_WHOLE};
    uint64_t id = ask(&b, r).id;
    b.now += SECOND / 10;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(state_of(&b).begun, 0);
    b.now += SECOND / 10;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(state_of(&b).begun, 1);
    b.now += 2 * SECOND; /* 41 tokens more */
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(state_of(&b).held_units, 100 + 3);
    b.now += 8 * SECOND; /* it has had all that it can */
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_true(state_of(&b).held_units <= 100 + 7);
    release(&b, id, 100, PLIMSOLL_GATE_LENGTH);
    end(&b);
}

static void answers_in_one_piece_teach_the_pace_where_there_are_no_others(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(100000);
    struct plimsoll_gate_request r = {
        .prompt_tokens = 160, .max_tokens = 4000, .flags = PLIMSOLL_GATE_WHOLE};
    begin(&b, &c);
    uint64_t id = ask(&b, r).id;
    assert_true(state_of(&b).token_s == 0);
    b.now += 4 * SECOND;
    release(&b, id, 40, PLIMSOLL_GATE_STOPPED);
    assert_true(state_of(&b).token_s > 0.099 && state_of(&b).token_s < 0.101);
    id = ask(&b, r).id;
    b.now += 8 * SECOND;
    assert_int_equal(plimsoll_gate_tick(&b.gate, b.now), 0);
    assert_int_equal(state_of(&b).held_units, 16); /* 160 and 81 */
    release(&b, id, 80, PLIMSOLL_GATE_STOPPED);
    end(&b);
}

/* How many requests of 110 and at most 350 tokens fit at once; all are over afterwards. */
static unsigned room_for(struct bench *b)
{
    uint64_t ids[400];
    unsigned n = 0;
    struct plimsoll_gate_request r = {.prompt_tokens = 110, .max_tokens = 350};
    while (n < 400 && (ids[n] = ask(b, r).id) != 0) {
        n++;
    }
    for (unsigned i = 0; i < n; i++) {
        release(b, ids[i], 0, PLIMSOLL_GATE_CANCELLED);
    }
    return n;
}

/* Answers of a length, one after the other. */
static void teach(struct bench *b, unsigned n, uint32_t most, uint32_t length, uint32_t outcome)
{
    struct plimsoll_gate_request r = {.prompt_tokens = 110, .max_tokens = most};
    for (unsigned i = 0; i < n; i++) {
        release(b, ask(b, r).id, length, outcome);
    }
}

static void before_any_answer_was_seen_requests_count_with_all_that_they_may_become(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(400);
    begin(&b, &c);
    unsigned fresh = room_for(&b);
    assert_true(fresh * 29 <= 400 && fresh >= 12); /* 460 tokens are 29 blocks */
    teach(&b, 200, 350, 350, PLIMSOLL_GATE_LENGTH);
    unsigned proven = room_for(&b);
    assert_true(proven * 29 <= 400 && proven >= 12); /* nor any more when they do become that */
    end(&b);
}

static void each_answer_that_ends_early_makes_room_for_more(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(400);
    begin(&b, &c);
    unsigned before = room_for(&b);
    for (unsigned seen = 2; seen <= 32; seen *= 4) {
        teach(&b, seen, 350, 20, PLIMSOLL_GATE_STOPPED);
        unsigned now = room_for(&b);
        assert_true(now > before);
        before = now;
    }
    assert_true(before > 40 && before * 7 <= 400); /* seven blocks for the prompt alone */
    end(&b);
}

static void answers_that_were_cut_short_say_nothing_of_longer_ones(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(400);
    begin(&b, &c);
    unsigned fresh = room_for(&b);
    teach(&b, 500, 40, 40, PLIMSOLL_GATE_LENGTH);
    assert_true(room_for(&b) <=
                fresh); /* how many get from 41 tokens to 350 is as open as before */
    end(&b);
}

static void who_is_refused_for_want_of_experience_comes_back_when_the_next_answer_ends(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(400);
    struct plimsoll_gate_request r = {.prompt_tokens = 110, .max_tokens = 1500};
    begin(&b, &c);
    uint64_t first = ask(&b, r).id;
    while (ask(&b, r).verdict == PLIMSOLL_GATE_ADMIT) {
    }
    b.now += SECOND;
    release(&b, first, 20, PLIMSOLL_GATE_STOPPED);
    for (unsigned refused = 0;
         refused < 40;) { /* they do not stand in a line for each other's units */
        struct plimsoll_gate_decision d = ask(&b, r);
        refused += d.verdict == PLIMSOLL_GATE_LATER;
        assert_true(d.verdict == PLIMSOLL_GATE_ADMIT || d.retry_after_ms <= 1200);
    }
    end(&b);
}

static void a_new_class_begins_with_what_all_others_have_taught(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(400);
    struct plimsoll_gate_class read;
    begin(&b, &c);
    teach(&b, 500, 350, 20, PLIMSOLL_GATE_STOPPED);
    uint32_t late = plimsoll_gate_class(&b.gate, "late", b.now);
    assert_int_equal(plimsoll_gate_class_read(&b.gate, late, &read, b.now), 0);
    assert_true(read.output_p50 >= 18 && read.output_p50 <= 22);
    end(&b);
}

static void what_little_experience_leaves_open_is_kept_free(void **state)
{
    (void)state;
    struct bench b;
    struct plimsoll_gate_config c = wide(400);
    begin(&b, &c);
    unsigned fresh = room_for(&b);
    for (unsigned i = 0; i < 1000;
         i++) { /* answers of just the lengths that were guessed at the start */
        double q = (i + 0.5) / 1000;
        double length = 1024 * (1 / sqrt(sqrt(q)) - 1);
        uint64_t id = ask(&b, (struct plimsoll_gate_request){.prompt_tokens = 16}).id;
        release(&b, id, length < 1 ? 1 : (uint32_t)length, PLIMSOLL_GATE_STOPPED);
    }
    unsigned sure = room_for(&b);
    assert_true(sure * 10 >= fresh * 11);
    assert_true(sure < 400 / 8); /* they need eight when they begin */
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_share_the_whole_blocks_of_their_prompt),
        cmocka_unit_test(a_batch_is_refused_for_ever_for_its_longest_prompt),
        cmocka_unit_test(a_known_length_is_expected_for_certain),
        cmocka_unit_test(lengths_are_learned_by_class),
        cmocka_unit_test(answers_that_were_cut_off_are_not_taken_for_short_ones),
        cmocka_unit_test(a_request_that_would_wait_too_long_is_refused_with_the_time_to_come_back),
        cmocka_unit_test(a_prompt_longer_than_the_target_may_start_when_nothing_is_ahead),
        cmocka_unit_test(slow_tokens_lower_the_number_of_requests_and_fast_ones_raise_it),
        cmocka_unit_test(an_answer_in_one_piece_is_reckoned_until_it_is_over),
        cmocka_unit_test(a_request_counts_as_going_on_between_two_reports),
        cmocka_unit_test(an_answer_in_one_piece_begins_when_its_first_token_is_due),
        cmocka_unit_test(answers_in_one_piece_teach_the_pace_where_there_are_no_others),
        cmocka_unit_test(before_any_answer_was_seen_requests_count_with_all_that_they_may_become),
        cmocka_unit_test(each_answer_that_ends_early_makes_room_for_more),
        cmocka_unit_test(answers_that_were_cut_short_say_nothing_of_longer_ones),
        cmocka_unit_test(
            who_is_refused_for_want_of_experience_comes_back_when_the_next_answer_ends),
        cmocka_unit_test(a_new_class_begins_with_what_all_others_have_taught),
        cmocka_unit_test(what_little_experience_leaves_open_is_kept_free),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
