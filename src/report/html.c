/* SPDX-License-Identifier: Apache-2.0 */
/* The page as a whole; see html.h. */

#include "report/html.h"

#include "base/bytes.h"
#include "base/num.h"
#include "report/web_assets.h"

#include <stdio.h>

#define BASE_BINS     12000u       /* of the ledger over the whole trace */
#define WINDOW        2000u        /* events of an exact series around a moment */
#define ROOM          (96u * 1024) /* for what grows a little between attempts */
#define SECTIONS_ROOM (64u * 1024) /* for findings and tables of each device still to come */

static const struct plim_detail_budget full_budget = {
    .blocks = 90000,
    .events = 40000,
    .text = 1000 * 1000,
};

static const char *source_of(const struct plim_html_options *options)
{
    return options->source ? options->source : "snapshot";
}

static void head(struct plim_buf *out, const char *title, const struct plim_html_options *options)
{
    const struct plim_web_assets *web = &plim__web_assets;
    plim_buf_printf(out,
                    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                    "script-src 'sha256-%s'; style-src 'sha256-%s'; %s"
                    "base-uri 'none'; form-action 'none'\">\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                    "<meta name=\"color-scheme\" content=\"light dark\">\n<title>%s: ",
                    web->script_sha256, web->style_sha256,
                    options->served ? "connect-src 'self'; " : "", title);
    plim_html_say(out, source_of(options));
    plim_buf_text(out, " - Plimsoll</title>\n<style>");
    plim_buf_add(out, web->style);
    plim_buf_text(out, "</style></head>\n");
}

static void end(struct plim_buf *out)
{
    plim_buf_text(out, "<script>");
    plim_buf_add(out, plim__web_assets.script);
    plim_buf_text(out, "</script>\n</body></html>\n");
}

/* ---- devices ---- */

static bool has_anything(const struct plim_device *device)
{
    return device->trace.events.n > 0 || device->heap.segments.n > 0;
}

size_t plim_html_devices(const struct plim_snapshot *snapshot, uint32_t first,
                         uint32_t out[PLIM_HTML_DEVICES])
{
    size_t n = 0;
    out[n++] = first;
    for (uint32_t i = 0; i < snapshot->devices.n && n < PLIM_HTML_DEVICES; i++) {
        if (i != first && has_anything(&snapshot->devices.items[i])) {
            out[n++] = i;
        }
    }
    return n;
}

/* What a device is recognized by: its number, and how much of it there is. */
static void device_words(struct plim_buf *out, const struct plim_snapshot *snapshot, uint32_t index)
{
    const struct plim_device *device = &snapshot->devices.items[index];
    char text[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "device %u &middot; %zu events &middot; %s reserved", index,
                    device->trace.events.n,
                    plim_bytes_format(text, plim_totals_of_heap(&device->heap).reserved));
}

static bool has_failed(const struct plim_device *device)
{
    plim_vec_foreach (e, &device->trace.events) {
        if (e->action == PLIM_ACTION_OOM) {
            return true;
        }
    }
    return false;
}

/* Links to the devices of the page, in their order; the first is shown. */
static void device_links(struct plim_buf *out, const struct plim_snapshot *snapshot,
                         const uint32_t *devices, size_t n)
{
    plim_buf_text(out, "<nav id=\"devices\" aria-label=\"Devices\">");
    for (uint32_t d = 0; d < snapshot->devices.n; d++) {
        for (size_t i = 0; i < n; i++) {
            if (devices[i] == d) {
                plim_buf_printf(out, "<a href=\"#device=%u\" data-device=\"%u\"%s>", d, d,
                                i == 0 ? " aria-current=\"page\"" : "");
                device_words(out, snapshot, d);
                plim_buf_text(out, has_failed(&snapshot->devices.items[d])
                                       ? " &middot; out of memory</a>"
                                       : "</a>");
            }
        }
    }
    plim_buf_text(out, "<noscript> Choosing a device needs JavaScript.</noscript></nav>");
}

static void banner(struct plim_buf *out, const struct plim_snapshot *snapshot,
                   const uint32_t *devices, size_t n, const struct plim_html_options *options)
{
    plim_buf_text(out, "<body><a class=\"skip\" href=\"#views\">Skip to the views</a>\n"
                       "<header><h1>Plimsoll</h1><p class=\"source\">");
    plim_html_say(out, source_of(options));
    plim_buf_text(out, " &middot; ");
    if (n == 1) {
        device_words(out, snapshot, devices[0]);
        plim_buf_text(out, " &middot; ");
    }
    plim_html_say(out, snapshot->layout);
    plim_buf_text(out, "</p>");
    if (n > 1) {
        device_links(out, snapshot, devices, n);
    }
    plim_buf_text(out, "</header>\n<main>\n");
}

/* ---- the columns of a device ---- */

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
    if (options->before) {
        PLIM_TRY(plim_detail_put_before(options->before, budget->text, columns, &chosen, err));
    }
    plim__html_meta(&meta, detail, &chosen, options);
    plim_columns_bytes(columns, "page", "meta", plim_buf_str(&meta));
    enum plim_status st = plim_buf_status(&meta, err);
    plim_buf_fini(&meta);
    return st;
}

/* The columns, compressed, in at most `most` bytes: with fewer rows until they fit. @share: of the
 * full budget. */
static enum plim_status pack(struct plim_detail *detail, const struct plim_html_options *options,
                             uint64_t most, size_t share, struct plim_buf *packed,
                             struct plim_err *err)
{
    struct plim_detail_budget budget = {
        .blocks = full_budget.blocks / share,
        .events = full_budget.events / share,
        .text = full_budget.text / share,
    };
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

/* ---- the page ---- */

/*
 * One device, number `i` of `n`: its findings, a place for the views, its tables and its columns.
 * They may take an equal share of what the page has left.
 */
static enum plim_status device(struct plim_buf *out, struct plim_detail *detail, size_t i, size_t n,
                               const struct plim_html_options *options, struct plim_err *err)
{
    struct plim_buf packed = {0};
    uint64_t limit = options->limit ? options->limit : PLIM_HTML_LIMIT;
    if (i > 0) {
        plim_buf_printf(out, "<template data-device=\"%u\">\n", detail->diagnosis->device);
    }
    if (options->part) {
        options->part->write(out, options->part->view);
    }
    plim__html_findings(out, detail->diagnosis);
    plim_buf_text(out, "<section id=\"views\" aria-label=\"Views\" tabindex=\"-1\"><noscript>"
                       "The drawings need JavaScript; everything else of this page does not."
                       "</noscript></section>\n");
    plim__html_tables(out, detail->snapshot, detail->diagnosis);
    plim_buf_text(out, "<script type=\"application/octet-stream\" id=\"plimsoll-data\">");
    uint64_t used = out->n + plim__web_assets.script.n + ROOM + (n - i - 1) * SECTIONS_ROOM;
    uint64_t most = plim_sub_sat(limit, used) / 4 * 3 / (n - i);
    enum plim_status st = pack(detail, options, most, n, &packed, err);
    if (st == PLIM_OK) {
        plim_base64(out, plim_buf_str(&packed));
        plim_buf_text(out, i == 0 ? "</script>\n</main>\n" : "</script>\n</template>\n");
    }
    plim_buf_fini(&packed);
    return st;
}

static void begin(struct plim_buf *out, const struct plim_snapshot *snapshot,
                  const struct plim_diagnosis *first, const uint32_t *devices, size_t n,
                  const struct plim_html_options *options)
{
    head(out, plim_class_text(first->set.verdict.cls), options);
    banner(out, snapshot, devices, n, options);
}

enum plim_status plim_html_page(struct plim_buf *out, struct plim_detail *details, size_t n,
                                const struct plim_html_options *options, struct plim_err *err)
{
    uint32_t devices[PLIM_HTML_DEVICES] = {0};
    n = plim_min_u64(n, PLIM_HTML_DEVICES);
    for (size_t i = 0; i < n; i++) {
        devices[i] = details[i].diagnosis->device;
    }
    begin(out, details[0].snapshot, details[0].diagnosis, devices, n, options);
    for (size_t i = 0; i < n; i++) {
        PLIM_TRY(device(out, &details[i], i, n, options, err));
    }
    end(out);
    return plim_buf_status(out, err);
}

/* A device's detail, its part of the page, and nothing of it left behind. */
static enum plim_status report_device(struct plim_buf *out, const struct plim_snapshot *snapshot,
                                      const struct plim_diagnosis *diagnosis, size_t i, size_t n,
                                      const struct plim_html_options *options, struct plim_err *err)
{
    struct plim_detail detail;
    PLIM_TRY(plim_detail_init(&detail, snapshot, diagnosis, BASE_BINS, err));
    enum plim_status st = device(out, &detail, i, n, options, err);
    plim_detail_fini(&detail);
    return st;
}

enum plim_status plim_html_report(struct plim_buf *out, const struct plim_snapshot *snapshot,
                                  const struct plim_diagnosis *diagnosis,
                                  const struct plim_html_options *options, struct plim_err *err)
{
    uint32_t devices[PLIM_HTML_DEVICES];
    size_t n = options->other ? plim_html_devices(snapshot, diagnosis->device, devices) : 1;
    devices[0] = diagnosis->device;
    begin(out, snapshot, diagnosis, devices, n, options);
    PLIM_TRY(report_device(out, snapshot, diagnosis, 0, n, options, err));
    for (size_t i = 1; i < n; i++) {
        struct plim_diagnose_options how = *options->other;
        struct plim_diagnosis other;
        how.device = devices[i];
        PLIM_TRY(plim_diagnose(snapshot, &how, &other, err));
        enum plim_status st = report_device(out, snapshot, &other, i, n, options, err);
        plim_diagnosis_fini(&other);
        PLIM_TRY(st);
    }
    end(out);
    return plim_buf_status(out, err);
}

enum plim_status plim_html_plain(struct plim_buf *out, const char *title,
                                 const struct plim_html_options *options, struct plim_err *err)
{
    head(out, title, options);
    plim_buf_text(out, "<body><header><h1>Plimsoll</h1><p class=\"source\">");
    plim_html_say(out, source_of(options));
    plim_buf_text(out, "</p></header>\n<main>\n");
    options->part->write(out, options->part->view);
    plim_buf_text(out, "</main>\n");
    end(out);
    return plim_buf_status(out, err);
}
