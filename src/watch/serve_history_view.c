/* SPDX-License-Identifier: Apache-2.0 */
/* The history as `plimsoll history` shows it, for those who ask a monitor instead of reading its file. */

#include "base/num.h"
#include "report/history.h"
#include "watch/serve_int.h"

#define NAMES_MOST  64u
#define ANSWER_MOST ((size_t)64 << 20)
#define WIDTH_MOST  1000u

struct view {
    struct plim_arena arena;
    struct plim_history_request request;
    const char *processes[NAMES_MOST], *engines[NAMES_MOST], *figures[NAMES_MOST];
};

/* Of a word among few; absent: as it is. */
#define READ_WORD(view, request, key, parse, out, err)                                             \
    do {                                                                                           \
        const char *word = NULL;                                                                   \
        size_t n = 0;                                                                              \
        PLIM_TRY(plim_http_query_all(request, key, &(view)->arena, 1, &word, &n, err));            \
        if (n > 0 && !parse(word, out)) {                                                          \
            return plim__fail(err, PLIM_E_USAGE, "%s=%.60s is not known", key, word);              \
        }                                                                                          \
    } while (0)

static enum plim_status read_names(struct view *v, const struct plim_http_request *request,
                                   struct plim_err *err)
{
    struct plim_history_request *r = &v->request;
    PLIM_TRY(plim_http_query_all(request, "process", &v->arena, NAMES_MOST, v->processes,
                                 &r->n_processes, err));
    PLIM_TRY(plim_http_query_all(request, "serving", &v->arena, NAMES_MOST, v->engines,
                                 &r->n_engines, err));
    PLIM_TRY(plim_http_query_all(request, "figure", &v->arena, NAMES_MOST, v->figures,
                                 &r->n_figures, err));
    r->processes = v->processes;
    r->engines = v->engines;
    r->figures = v->figures;
    return PLIM_OK;
}

static enum plim_status read_request(struct view *v, const struct plim_http_request *request,
                                     struct plim_err *err)
{
    struct plim_history_request *r = &v->request;
    struct plim__serve_window window;
    struct plim_str device;
    uint64_t points, width, color;
    PLIM_TRY(plim__serve_window(request, &window, err));
    PLIM_TRY(plim_http_query_u64(request, "points", PLIM_HISTORY_POINTS, &points, err));
    PLIM_TRY(plim_http_query_u64(request, "step", 0, &r->step_ns, err));
    PLIM_TRY(plim_http_query_u64(request, "device", 0, &r->device, err));
    PLIM_TRY(plim_http_query_u64(request, "width", 0, &width, err));
    PLIM_TRY(plim_http_query_u64(request, "color", 0, &color, err));
    READ_WORD(v, request, "what", plim_history_what_of, &r->what, err);
    READ_WORD(v, request, "form", plim_history_form_of, &r->form, err);
    r->from_ns = window.from;
    r->to_ns = window.to == INT64_MAX ? 0 : window.to;
    r->points = (uint32_t)plim_max_u64(1, plim_min_u64(points, PLIM_HISTORY_POINTS_MOST));
    r->has_device = plim_http_query(request, "device", &device);
    r->most = ANSWER_MOST;
    r->style = (struct plim_text_style){
        .color = color != 0, .unicode = true, .width = (unsigned)plim_min_u64(width, WIDTH_MOST)};
    return read_names(v, request, err);
}

/* GET /api/v1/history?what&form&from&to&step|points&device&process&serving&figure&width&color */
PLIM__HANDLER(history)
{
    static const char *const types[] = {
        [PLIM_HISTORY_TEXT] = "text/plain; charset=utf-8",
        [PLIM_HISTORY_CSV] = "text/csv; charset=utf-8",
        [PLIM_HISTORY_JSONL] = "application/jsonl",
        [PLIM_HISTORY_JSON] = "application/json",
    };
    struct plim__serve *s = self;
    struct view v = {.request = {.path = s->watch->history}};
    plim_arena_init(&v.arena, 1u << 20);
    enum plim_status st = read_request(&v, request, err);
    st = st == PLIM_OK ? plim__serve_history_open(s, err) : st;
    if (st == PLIM_OK) {
        answer->type = types[v.request.form];
        st = plim_history_write(&answer->text, s->store, &v.request, err);
    }
    plim_arena_fini(&v.arena);
    return plim__serve_history_checked(s, st);
}
