// SPDX-License-Identifier: Apache-2.0
/*
 * The connection to the monitor: the newest state by server-sent events, questions by fetch, logging in, and how old what
 * is shown is. Addresses are relative: the page may lie below any path of a proxy.
 */
'use strict';

/** @typedef {Object<string, any>} Status the document "plimsoll.status/1" */

/** What tests reach into. */
Plim.tested = {};

Plim.live = {
  /** @type {Status|null} */
  status: null,
  /** When the newest state came, by this browser's clock. */
  came: 0,
  /** 'connecting', 'live', 'lost' or 'locked'. */
  link: 'connecting',
  /** Called with each new state. @type {Array<(status: Status) => void>} */
  onStatus: [],
  /** Called when the link or the age of the state changes. @type {Array<() => void>} */
  onLink: [],
};

(function () {
  const live = Plim.live;
  const STALE_MS = 5000;
  const RETRY_MS = [1000, 2000, 4000, 8000];
  /** @type {EventSource|null} */
  let source = null;
  let tries = 0;
  let timer = 0;

  function setLink(link) {
    if (live.link !== link) {
      live.link = link;
      for (const f of live.onLink) { f(); }
    }
  }

  /* Texts of strangers: control characters, and signs that turn the direction of what follows, become visible. */
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
  const parse = (text) => JSON.parse(text, (_, v) => (typeof v === 'string' ? v.replace(UNSEEN, '\ufffd') : v));

  function take(status) {
    if (!status || !Array.isArray(status.devices) || !Array.isArray(status.uses)) { return; }
    live.status = status;
    live.came = Date.now();
    tries = 0;
    setLink('live');
    for (const f of live.onStatus) { f(status); }
  }

  /** Whether what is shown is old. */
  live.stale = () => live.link !== 'live' || Date.now() - live.came > STALE_MS;

  /** Seconds since the newest state came. */
  live.age = () => (live.came ? Math.max(0, (Date.now() - live.came) / 1000) : 0);

  /** An answer of the server as JSON; throws an Error with `code` and the server's own words. @param {string} path @param {Dict} [options] */
  live.ask = async function (path, options) {
    const answer = await fetch(path, options);
    if (answer.status === 401 && (!options || !options.method)) { setLink('locked'); }
    if (!answer.ok) {
      let said = {};
      try { said = parse(await answer.text()).error || {}; } catch (_) { /* a proxy's own page */ }
      throw Object.assign(new Error(said.message || 'the server answered ' + answer.status), { code: answer.status, hint: said.hint });
    }
    return answer.status === 204 ? null : parse(await answer.text());
  };

  /** Change something. @param {string} path @param {Dict} body */
  live.change = (path, body) => live.ask(path, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
  });

  /** Trade the token for a cookie that scripts cannot read. @param {string} token */
  live.login = async function (token) {
    await live.ask('login', { method: 'POST', headers: { Authorization: 'Bearer ' + token } });
    tries = 0;
    connect();
  };

  function retry() {
    clearTimeout(timer);
    timer = setTimeout(connect, RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]);
  }

  /* An EventSource gives up for good when the answer is no stream (a proxy's error page, 401), and tells nobody why: then
   * the state is asked for by fetch, which knows. */
  async function connect() {
    clearTimeout(timer);
    if (source) { source.close(); }
    try {
      take(await live.ask('api/v1/status'));
    } catch (e) {
      if (e.code === 401) { return; } /* waits for the token */
      setLink('lost');
      retry();
      return;
    }
    source = new EventSource('api/v1/live');
    source.addEventListener('status', (e) => {
      let status = null;
      try { status = parse(e.data); } catch (_) { return; }
      take(status);
    });
    source.addEventListener('error', () => {
      setLink('lost');
      if (source && source.readyState === EventSource.CLOSED) { retry(); }
    });
  }

  live.connect = connect;
  setInterval(() => { for (const f of live.onLink) { f(); } }, 1000);
})();

/* ---- times: kept in nanoseconds since 1970, shown in the zone that the user chose ---- */

Plim.zone = { utc: false };

(function () {
  const formats = new Map();
  function format(options) {
    const key = JSON.stringify(options) + Plim.zone.utc;
    if (!formats.has(key)) {
      formats.set(key, new Intl.DateTimeFormat('en-GB', Plim.zone.utc ? { ...options, timeZone: 'UTC' } : options));
    }
    return formats.get(key);
  }
  const CLOCK = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };
  const DAY = { day: '2-digit', month: 'short', year: 'numeric' };

  /** "29 Nov 2026, 23:51:19". @param {number} ns since 1970 */
  Plim.time = (ns) => (Number.isFinite(ns) && ns > 0 ? format({ ...DAY, ...CLOCK }).format(ns / 1e6) : 'unknown');

  /** The same as short as a span of time allows. @param {number} ns @param {number} span ns */
  Plim.timeTick = function (ns, span) {
    const day = 86400e9;
    if (span > 20 * day) { return format({ day: 'numeric', month: 'short', year: span > 200 * day ? '2-digit' : undefined }).format(ns / 1e6); }
    if (span > 2 * day) { return format({ day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }).format(ns / 1e6); }
    const base = format(span > 600e9 ? { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } : CLOCK).format(ns / 1e6);
    return span < 5e9 ? base + '.' + String(Math.floor(ns / 1e8) % 10) : base;
  };

  /** Name of the zone: "UTC" or the browser's. */
  Plim.zoneName = () => (Plim.zone.utc ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone || 'local time');

  /** "2 h 3 min" of seconds. @param {number} s */
  Plim.seconds = (s) => (s >= 172800 ? Math.round(s / 86400) + ' days' : s >= 1 ? Plim.duration(Math.round(s) * 1e6) : 'less than 1 s');
})();
