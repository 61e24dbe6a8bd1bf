/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_SERVE_H
#define PLIM_REPORT_SERVE_H

/*
 * The interactive report from a local server, with any part of the trace exactly on demand.
 *
 * It listens on 127.0.0.1 only. Every address begins with a token of 128 random bits, so that other
 * users and other web pages of this machine cannot read the snapshot; a request whose Host is not
 * the loopback one is refused (DNS rebinding). Answers, under /TOKEN/:
 *
 *   (nothing)                      the page
 *   series?from=F&to=T&bins=N      columns "se.*": the ledger over [F, T), N at most PLIM_SERVE_BINS
 *   events?from=F&to=T             columns "ev.*": events F to T, PLIM_SERVE_EVENTS at most
 *   heap?at=P                      columns "bl.*", "sg.*": everything that exists at position P
 *
 * each of the first device, or with device=N of that one.
 *
 * Columns are those of docs/format/report-data.md, not compressed, with the stacks that they refer
 * to.
 * Threads: those of http/http.h; the details belong to the server while it runs.
 */

#include "report/html.h"

#define PLIM_SERVE_BINS   20000u
#define PLIM_SERVE_EVENTS 50000u

struct plim_server;

/**
 * plim_server_start() - begin to answer.
 * @details: [n] one of each device, borrowed until plim_server_stop(); the first is shown first.
 * @source: name of the snapshot, for people.
 * @port: 0 for any. Errors: PLIM_E_OS when the port is taken; those of plim_html_page().
 */
PLIM_MUST_USE enum plim_status plim_server_start(struct plim_detail *details, size_t n,
                                                 const char *source, uint16_t port,
                                                 struct plim_server **out, struct plim_err *err);
void plim_server_stop(struct plim_server *server);

/** plim_server_url() - "http://127.0.0.1:PORT/TOKEN/", borrowed. */
const char *plim_server_url(const struct plim_server *server);

#endif
