/* SPDX-License-Identifier: Apache-2.0 */
/* The three renderers on one finding, and on an empty one. */

#include "report/json.h"
#include "report/markdown.h"
#include "report/text.h"
#include "unit.h"

#include "base/num.h"

#include <jansson.h>

#define MEASURED(bytes) plim_amount((bytes), PLIM_HOW_MEASURED)

static void fill(struct plim_finding_set *set)
{
    *set = (struct plim_finding_set){0};
    set->ledger.moment = "at the failure";
    set->ledger.total = MEASURED(24 * PLIM_GIB);
    set->ledger.request = MEASURED(3 * PLIM_GIB);
    set->ledger.owner[PLIM_OWNER_LIVE] = MEASURED(12 * PLIM_GIB);
    set->ledger.owner[PLIM_OWNER_STRANDED] = MEASURED(6 * PLIM_GIB);
    set->ledger.owner[PLIM_OWNER_PROCESS_OTHER] = plim_amount(PLIM_MIB, PLIM_HOW_ESTIMATED);
    set->verdict = (struct plim_verdict){PLIM_CLASS_FRAGMENTATION, PLIM_SUBCLASS_STRANDED, 0.875,
                                         "No hole takes <3 GiB> | see \033[31mbelow."};
    assert_int_equal(
        plim_vec_push(&set->counterfactuals, NULL,
                      (struct plim_counterfactual){"no_stranded", "6 GiB >= 3 GiB",
                                                   MEASURED(6 * PLIM_GIB), PLIM_FITS_YES}),
        PLIM_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(plim_vec_push(&set->evidence, NULL,
                                       (struct plim_evidence){"a fact", PLIM_HOW_COMPUTED, {0}}),
                         PLIM_OK);
    }
    assert_int_equal(plim_vec_push(&set->advice, NULL,
                                   (struct plim_advice){.action = "set `a_b`", .why = "because."}),
                     PLIM_OK);
    assert_int_equal(plim_vec_push(&set->unknowns, NULL, "the other processes"), PLIM_OK);
}

static void text_fits_the_width_and_keeps_escapes_out(void **state)
{
    (void)state;
    struct plim_finding_set set;
    struct plim_buf out = {0};
    fill(&set);
    for (unsigned width = 40; width <= 120; width += 8) {
        struct plim_text_style style = {.width = width, .unicode = width % 16 == 0};
        plim_buf_reset(&out);
        plim_text_finding(&out, &set, &style);
        assert_null(strchr(out.p, '\033'));
        struct plim_str rest = plim_buf_str(&out);
        while (width >= 80 && rest.n > 0) {
            size_t n = plim_str_find(rest, PLIM_STR("\n"));
            assert_true(plim_text_columns((struct plim_str){rest.p, n}) <= width);
            rest = plim_str_skip(rest, n + 1);
        }
    }
    assert_non_null(strstr(out.p, "FRAGMENTATION, stranded (confidence 88 %)"));
    plim_buf_fini(&out);
    plim_finding_set_fini(&set);
}

static void text_shows_three_pieces_of_evidence(void **state)
{
    (void)state;
    struct plim_finding_set set;
    struct plim_buf out = {0};
    struct plim_text_style style = {0};
    size_t shown = 0;
    fill(&set);
    plim_text_finding(&out, &set, &style);
    for (const char *p = out.p; (p = strstr(p, "a fact")) != NULL; p++) {
        shown++;
    }
    assert_int_equal(shown, 3);
    plim_buf_fini(&out);
    plim_finding_set_fini(&set);
}

static void color_appears_only_when_asked_for(void **state)
{
    (void)state;
    struct plim_finding_set set;
    struct plim_buf out = {0};
    struct plim_text_style style = {.color = true};
    fill(&set);
    plim_text_finding(&out, &set, &style);
    assert_non_null(strstr(out.p, "\033[1;31mFRAGMENTATION\033[0m"));
    plim_buf_fini(&out);
    plim_finding_set_fini(&set);
}

static void markdown_escapes_markup_but_keeps_code(void **state)
{
    (void)state;
    struct plim_finding_set set;
    struct plim_buf out = {0};
    fill(&set);
    plim_markdown_finding(&out, "Out of memory", &set);
    assert_non_null(strstr(out.p, "### Out of memory"));
    assert_non_null(strstr(out.p, "&lt;3 GiB&gt; \\|"));
    assert_non_null(strstr(out.p, "set `a_b`"));
    assert_non_null(strstr(out.p, "| stranded | 6.00 GiB | 25 % | measured |"));
    plim_buf_fini(&out);
    plim_finding_set_fini(&set);
}

static void json_leaves_unknown_amounts_out(void **state)
{
    (void)state;
    struct plim_finding_set set;
    struct plim_buf out = {0};
    struct plim_jsonw w;
    fill(&set);
    plim_jsonw_init(&w, &out, false);
    plim_jsonw_object(&w);
    plim_json_verdict(&w, &set.verdict);
    plim_json_finding(&w, &set);
    plim_jsonw_end(&w);
    json_t *root = json_loadb(out.p, out.n, 0, NULL);
    assert_non_null(root);
    json_t *ledger = json_object_get(root, "ledger");
    json_t *owners = json_object_get(ledger, "owners");
    assert_null(json_object_get(ledger, "reserved"));
    assert_null(json_object_get(owners, "free"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(owners, "live"), "bytes")),
                     12 * PLIM_GIB);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(root, "verdict"), "class")),
        "fragmentation");
    assert_int_equal(json_array_size(json_object_get(root, "evidence")), 5);
    json_decref(root);
    plim_buf_fini(&out);
    plim_finding_set_fini(&set);
}

static void an_empty_finding_renders_without_sections(void **state)
{
    (void)state;
    struct plim_finding_set set = {0};
    struct plim_buf out = {0};
    struct plim_text_style style = {0};
    plim_text_finding(&out, &set, &style);
    assert_string_equal(out.p, "UNKNOWN (confidence 0 %)\n");
    plim_buf_reset(&out);
    plim_markdown_finding(&out, NULL, &set);
    assert_string_equal(out.p, "**Verdict: `unknown`** (confidence 0 %)\n\n");
    plim_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_fits_the_width_and_keeps_escapes_out),
        cmocka_unit_test(text_shows_three_pieces_of_evidence),
        cmocka_unit_test(color_appears_only_when_asked_for),
        cmocka_unit_test(markdown_escapes_markup_but_keeps_code),
        cmocka_unit_test(json_leaves_unknown_amounts_out),
        cmocka_unit_test(an_empty_finding_renders_without_sections),
    };
    return PLIM_RUN_TESTS("report", tests);
}
