/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dashboard's three files: the page, its script and its style sheet, put into the program at
 * build time. They tell nothing about the machine, so everybody may have them; what they show they
 * ask for. Addresses in them are relative, so that a proxy may serve them below any path.
 */

#include "report/web_assets.h"
#include "watch/serve_int.h"

#include "base/num.h"

/* Scripts, styles and requests of this server only; no markup that was not in the page. */
#define PAGE_CSP                                                                                   \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' " \
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

extern const struct plim_web_assets plim__dashboard_assets;

static const char page[] =
    "<!doctype html>\n"
    "<html lang=\"en\">\n"
    "<head>\n"
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<title>Plimsoll</title>\n"
    "<link rel=\"icon\" href=\"data:,\">\n"
    "<link rel=\"stylesheet\" href=\"dashboard.css\">\n"
    "<script src=\"dashboard.js\" defer></script>\n"
    "</head>\n"
    "<body>\n"
    "<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
    "<header id=\"head\"></header>\n"
    "<main id=\"main\" tabindex=\"-1\"><noscript>The dashboard needs JavaScript. The same is at "
    "<a href=\"metrics\">metrics</a> and <a href=\"api/v1/status\">api/v1/status</a>."
    "</noscript></main>\n"
    "</body>\n"
    "</html>\n";

enum plim_status plim__serve_pages_open(struct plim__serve *s, struct plim_err *err)
{
    const struct plim_web_assets *assets = &plim__dashboard_assets;
    const struct {
        const char *path, *type;
        struct plim_str bytes;
    } files[PLIM__SERVE_PAGES] = {
        {"/", "text/html; charset=utf-8", {page, sizeof(page) - 1}},
        {"/dashboard.js", "text/javascript; charset=utf-8", assets->script},
        {"/dashboard.css", "text/css; charset=utf-8", assets->style},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(files); i++) {
        struct plim_buf text = {0};
        plim_buf_add(&text, files[i].bytes);
        s->pages[i].path = files[i].path;
        PLIM_TRY(plim_http_body_new(files[i].type, PAGE_CSP, &text, &s->pages[i].body, err));
    }
    return PLIM_OK;
}

void plim__serve_pages_close(struct plim__serve *s)
{
    for (size_t i = 0; i < PLIM__SERVE_PAGES; i++) {
        plim_http_body_unref(s->pages[i].body);
    }
}

PLIM__HANDLER(page)
{
    struct plim__serve *s = self;
    for (size_t i = 0; i < PLIM__SERVE_PAGES; i++) {
        if (plim_str_eq(request->path, plim_str_from(s->pages[i].path))) {
            answer->body = plim_http_body_ref(s->pages[i].body);
            return PLIM_OK;
        }
    }
    return plim__fail(err, PLIM_E_NOTFOUND, "there is no such page");
}
