/* SPDX-License-Identifier: Apache-2.0 */
/* The page as a whole; see html.h. */

#include "report/html.h"

#include "base/num.h"
#include "report/web_assets.h"

#include <stdio.h>

#define BASE_BINS 12000u       /* of the ledger over the whole trace */
#define WINDOW    2000u        /* events of an exact series around a moment */
#define ROOM      (96u * 1024) /* for the parts of the page that grow a little between attempts */

static const struct plim_detail_budget full_budget = {
    .blocks = 90000,
    .events = 40000,
    .text = 1000 * 1000,
};

void plim_html_text(struct plim_buf *out, struct plim_str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        switch (c) {
        case '<':
            plim_buf_text(out, "&lt;");
            break;
        case '>':
            plim_buf_text(out, "&gt;");
            break;
        case '&':
            plim_buf_text(out, "&amp;");
            break;
        case '"':
            plim_buf_text(out, "&quot;");
            break;
        case '\'':
            plim_buf_text(out, "&#39;");
            break;
        default:
            plim_buf_char(out, c < 0x20 || c == 0x7f ? ' ' : (char)c);
        }
    }
}

static void head(struct plim_buf *out, const struct plim_detail *detail,
                 const struct plim_html_options *options)
{
    const struct plim_web_assets *web = &plim__web_assets;
    const struct plim_verdict *v = &detail->diagnosis->set.verdict;
    plim_buf_printf(out,
                    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                    "script-src 'sha256-%s'; style-src 'sha256-%s'; %s"
                    "base-uri 'none'; form-action 'none'\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<meta name=\"color-scheme\" content=\"light dark\">\n<title>%s: ",
                    web->script_sha256, web->style_sha256,
                    options->served ? "connect-src 'self'; " : "", plim_class_text(v->cls));
    plim_html_text(out, plim_str_from(options->source ? options->source : "snapshot"));
    plim_buf_text(out, " - Plimsoll</title>\n<style>");
    plim_buf_add(out, web->style);
    plim_buf_text(out, "</style></head>\n");
}

static void banner(struct plim_buf *out, const struct plim_detail *detail,
                   const struct plim_html_options *options)
{
    const struct plim_snapshot *s = detail->snapshot;
    plim_buf_text(out, "<body><a class=\"skip\" href=\"#views\">Skip to the views</a>\n"
                       "<header><h1>Plimsoll</h1><p class=\"source\">");
    plim_html_text(out, plim_str_from(options->source ? options->source : "snapshot"));
    plim_buf_printf(out, " &middot; device %u &middot; %zu events &middot; ",
                    detail->diagnosis->device, detail->device->trace.events.n);
    plim_html_text(out, plim_str_from(s->layout));
    plim_buf_text(out, "</p></header>\n<main>\n");
}

/* Short exact series around the moments that have a name, when the base series is coarser. */
static enum plim_status put_windows(const struct plim_detail *detail, struct plim_columns *columns,
                                    struct plim_err *err)
{
    unsigned windows = 0;
    for (size_t i = 0; detail->base.width > 1 && i < PLIM_DETAIL_NAMED; i++) {
        uint32_t at = detail->named[i];
        uint32_t from = at > WINDOW / 2 ? at - WINDOW / 2 : 0;
        struct plim_detail_series series;
        char prefix[8];
        if (at == UINT32_MAX || from + WINDOW > detail->base.to) {
            from = detail->base.to > WINDOW ? detail->base.to - WINDOW : 0;
        }
        if (at == UINT32_MAX || (i > 0 && at == detail->named[0])) {
            continue;
        }
        PLIM_TRY(plim_detail_series_of(detail, from, from + WINDOW, WINDOW, &series, err));
        (void)snprintf(prefix, sizeof(prefix), "w%u", windows++);
        plim_detail_put_series(detail, &series, prefix, columns);
        plim_vec_fini(&series.bins);
    }
    return PLIM_OK;
}

/* The ledger over the whole trace; the base series may be finer than a page needs. */
static enum plim_status put_whole(const struct plim_detail *detail, struct plim_columns *columns,
                                  struct plim_err *err)
{
    struct plim_detail_series whole;
    if (detail->base.bins.n <= BASE_BINS) {
        plim_detail_put_series(detail, &detail->base, "se", columns);
        return PLIM_OK;
    }
    PLIM_TRY(plim_detail_series_of(detail, 0, detail->base.to, BASE_BINS, &whole, err));
    plim_detail_put_series(detail, &whole, "se", columns);
    plim_vec_fini(&whole.bins);
    return PLIM_OK;
}

static enum plim_status fill_columns(struct plim_detail *detail,
                                     const struct plim_html_options *options,
                                     const struct plim_detail_budget *budget,
                                     struct plim_columns *columns, struct plim_err *err)
{
    struct plim_detail_chosen chosen = {0};
    struct plim_buf meta = {0};
    uint32_t *events;
    size_t n_events;
    PLIM_TRY(plim_detail_events_of_interest(detail, budget->events, &events, &n_events, err));
    chosen.all_events = n_events == detail->device->trace.events.n;
    plim_detail_put_events(detail, events, n_events, columns);
    free(events);
    PLIM_TRY(plim_detail_put_rows(detail, budget, columns, &chosen, err));
    PLIM_TRY(put_whole(detail, columns, err));
    PLIM_TRY(put_windows(detail, columns, err));
    plim_detail_put_lifetimes(detail, columns);
    PLIM_TRY(plim_detail_put_stacks(detail, budget->text, columns, &chosen, err));
    plim__html_meta(&meta, detail, &chosen, options);
    plim_columns_bytes(columns, "page", "meta", plim_buf_str(&meta));
    enum plim_status st = plim_buf_status(&meta, err);
    plim_buf_fini(&meta);
    return st;
}

/* The columns, compressed, in at most `most` bytes: with fewer rows until they fit. */
static enum plim_status pack(struct plim_detail *detail, const struct plim_html_options *options,
                             uint64_t most, struct plim_buf *packed, struct plim_err *err)
{
    struct plim_detail_budget budget = full_budget;
    for (;;) {
        struct plim_columns columns;
        plim_columns_init(&columns);
        plim_detail_forget_stacks(detail);
        plim_buf_reset(packed);
        enum plim_status st = fill_columns(detail, options, &budget, &columns, err);
        if (st == PLIM_OK) {
            st = plim_columns_deflate(&columns, packed, err);
        }
        plim_columns_fini(&columns);
        PLIM_TRY(st);
        if (packed->n <= most || budget.blocks < 100) {
            return PLIM_OK;
        }
        budget.blocks /= 2;
        budget.events /= 2;
        budget.text /= 2;
    }
}

enum plim_status plim_html_page(struct plim_buf *out, struct plim_detail *detail,
                                const struct plim_html_options *options, struct plim_err *err)
{
    struct plim_buf packed = {0};
    uint64_t limit = options->limit ? options->limit : PLIM_HTML_LIMIT;
    head(out, detail, options);
    banner(out, detail, options);
    plim__html_findings(out, detail->diagnosis);
    plim_buf_text(out, "<section id=\"views\" aria-label=\"Views\" tabindex=\"-1\"><noscript>"
                       "The drawings need JavaScript; everything else of this page does not."
                       "</noscript></section>\n");
    plim__html_tables(out, detail->snapshot, detail->diagnosis);
    plim_buf_text(out, "</main>\n<script type=\"application/octet-stream\" id=\"plimsoll-data\">");
    uint64_t used = out->n + plim__web_assets.script.n + ROOM;
    enum plim_status st = pack(detail, options, plim_sub_sat(limit, used) / 4 * 3, &packed, err);
    if (st == PLIM_OK) {
        plim_base64(out, plim_buf_str(&packed));
        plim_buf_text(out, "</script>\n<script>");
        plim_buf_add(out, plim__web_assets.script);
        plim_buf_text(out, "</script>\n</body></html>\n");
        st = plim_buf_status(out, err);
    }
    plim_buf_fini(&packed);
    return st;
}

enum plim_status plim_html_report(struct plim_buf *out, const struct plim_snapshot *snapshot,
                                  const struct plim_diagnosis *diagnosis,
                                  const struct plim_html_options *options, struct plim_err *err)
{
    struct plim_detail detail;
    PLIM_TRY(plim_detail_init(&detail, snapshot, diagnosis, BASE_BINS, err));
    enum plim_status st = plim_html_page(out, &detail, options, err);
    plim_detail_fini(&detail);
    return st;
}
