// SPDX-License-Identifier: Apache-2.0
/* The monitor's dashboard in a real browser: a real monitor on made-up samples, or one behind a stand-in with richer states. */
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { check, drive, equal, folder, open, run, settle, test, until, violations } from './harness.mjs';
import { mock, richState } from './mock.mjs';
import { monitor } from './monitor.mjs';

const TOKEN = 'a-token-of-24-characters';
const tokenFile = path.join(folder, 'token');
fs.writeFileSync(tokenFile, TOKEN + '\n');

const rows = (page, label) => page.evaluate((l) => [...document.querySelectorAll('table[aria-label="' + l + '"] tbody tr')].map((r) => [...r.cells].map((c) => c.textContent)), label);
const steps = (page) => page.evaluate(() => Plim.live.status.monitor.samples);

async function behind(answers, body, hash = '', options = {}) {
  const m = await monitor('machine');
  const front = await mock(m.url, answers);
  const page = await open(front.url + hash, options);
  try { await body(page, m); } finally { await page.context().close(); front.stop(); await m.stop(); }
}

async function real(kind, options, body, hash = '') {
  const m = await monitor(kind, options);
  const page = await open(m.url + hash);
  try { await body(page, m); } finally { await page.context().close(); await m.stop(); }
}

test('devices and processes are shown and follow the monitor without a word of complaint', () => real('machine', {}, async (page, m) => {
  const first = await steps(page);
  await until(page, `Plim.live.status.monitor.samples > ${first} + 3`);
  equal(await page.evaluate(() => document.querySelectorAll('.card').length), 2);
  equal((await rows(page, 'Processes')).map((r) => r[2]).sort().slice(-2), ['train', 'vllm']);
  equal(await page.evaluate(() => document.querySelector('.link').textContent), 'live');
  equal(page.complaints, []);
  check(page.requests.every((r) => r.startsWith(m.url) || r.startsWith('data:')), 'it asked elsewhere: ' + page.requests);
}));

test('order, focus and filter of the processes survive updates', () => real('machine', {}, async (page) => {
  await page.click('th button:text-is("pid")');
  await page.click('th button:text-is("pid")');
  await page.focus('input[type="search"]');
  await page.keyboard.type('1');
  const before = await steps(page);
  await until(page, `Plim.live.status.monitor.samples > ${before} + 4`);
  const pids = (await rows(page, 'Processes')).map((r) => Number(r[1]));
  equal(pids, pids.slice().sort((a, b) => a - b));
  equal(await page.evaluate(() => document.activeElement.type), 'search');
  await page.fill('input[type="search"]', 'vllm.service');
  equal((await rows(page, 'Processes')).map((r) => r[2]), ['vllm']);
}));

test('the parts of the ledger fill the bar, and findings say what to do', () => behind({ '/api/v1/status': () => richState() }, async (page) => {
  const bar = await page.evaluate(() => [...document.querySelectorAll('.card .bar')][0].getBoundingClientRect().width);
  const parts = await page.evaluate(() => [...document.querySelectorAll('.card .bar')][0].children.length && [...document.querySelectorAll('.card .bar')][0].querySelectorAll('.part').values().reduce((n, p) => n + p.getBoundingClientRect().width, 0));
  check(Math.abs(bar - parts) < 2, `the parts are ${parts} of ${bar} wide`);
  const text = await page.evaluate(() => document.querySelector('.finding').innerText);
  for (const words of ['leak', 'pid 4711', 'Next:', '2 h 17 min', '93 %']) { check(text.includes(words), words + ' is missing: ' + text); }
  await page.click('.finding summary');
  await settle(page, 700);
  check(await page.evaluate(() => document.querySelector('.finding details').open), 'an opened finding closed by itself');
}));

const EVIL = '<img src=x onerror=alert(1)></script><b id=evil>\u202egnp';
test('strangers\' texts never become markup', async () => {
  const fleet = () => ({ peers: [{ name: EVIL, url: 'http://127.0.0.1:1/', age_seconds: 1, status: richState(EVIL) }] });
  const alerts = () => ({ alerts: [{ fingerprint: '0123456789abcdef', rule: EVIL, status: 'firing', severity: 'critical', began_at: '2026-11-29T00:00:00Z', subject: { process: { name: EVIL, pid: 1 } }, summary: EVIL, evidence: [EVIL], next_step: EVIL }],
    silences: [{ id: 1, until_ns: 1, rule: EVIL, device: EVIL, process: EVIL, comment: EVIL }], receivers: [{ name: EVIL, failing: true, error: EVIL }] });
  const incidents = () => ({ folder: EVIL, unfinished: 0, incidents: [{ id: EVIL, kind: 'oom', time_ns: 1, class: EVIL, subclass: null, summary: EVIL, report: true }] });
  await behind({ '/api/v1/status': () => richState(EVIL), '/api/v1/fleet': fleet, '/api/v1/alerts': alerts, '/api/v1/incidents': incidents }, async (page) => {
    page.on('dialog', () => page.complaints.push('a dialog'));
    for (const view of ['overview', 'engines', 'alerts', 'incidents', 'fleet', 'history']) {
      await page.evaluate((v) => { location.hash = v; }, view);
      await settle(page, 400);
      if (view !== 'history') { await until(page, () => document.querySelector('main').textContent.includes('onerror')); } /* the text itself is shown */
      equal(await page.evaluate(() => document.querySelectorAll('#evil, img, main script').length), 0, view);
      check(!(await page.evaluate(() => document.body.textContent)).includes('\u202e'), 'the direction of writing is turned in ' + view);
    }
    equal(page.complaints, []);
  });
});

test('names of a hostile machine come through the real monitor as text', () => real('hostile', {}, async (page) => {
  equal(await page.evaluate(() => document.querySelectorAll('img, svg, main script, main b').length), 0);
  check((await rows(page, 'Processes')).some((r) => r[2].startsWith('<img')), 'the name is there');
  equal(page.complaints, []);
}));

test('when the monitor goes away the page says so, and goes on when it is back', async () => {
  const m = await monitor('machine');
  const page = await open(m.url);
  await m.stop();
  await until(page, () => !document.querySelector('.banner').hidden && /does not answer/.test(document.querySelector('.banner').textContent));
  check(await page.evaluate(() => document.body.classList.contains('stale')), 'what is old looks like new');
  const again = await monitor('machine', { port: m.port });
  await until(page, () => Plim.live.link === 'live' && !Plim.live.stale() && document.querySelector('.banner').hidden);
  await page.context().close();
  await again.stop();
});

test('with a token for all the page asks for it, refuses a wrong one, and keeps nothing of it', async () => {
  const m = await monitor('machine', { settings: `token-file = ${tokenFile}\ntoken-always = yes` });
  const page = await open(m.url, { locked: true });
  await until(page, () => document.querySelector('dialog'));
  await page.fill('#token', 'not the token');
  await page.click('dialog button:text-is("Log in")');
  await until(page, () => /not the token/.test(document.querySelector('dialog').textContent));
  await page.fill('#token', TOKEN);
  await page.click('dialog button:text-is("Log in")');
  await until(page, () => Plim.live.link === 'live' && !document.querySelector('dialog'));
  const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }, location.href]));
  check(!kept.includes(TOKEN) && (await page.evaluate(() => document.cookie)) === '', 'scripts can see: ' + kept);
  await page.context().close();
  await m.stop();
});

test('an alert is acknowledged and silenced by who has the token', async () => {
  const more = '[alert full]\nfigure = device.used_ratio\nabove = 0.1\nfor = 0s\n';
  await real('machine', { settings: `token-file = ${tokenFile}\nalert-state = ${folder}/alerts.json`, more }, async (page) => {
    await until(page, () => document.querySelector('.finding button'));
    await page.click('.finding button:text-is("Acknowledge")');
    await until(page, () => document.querySelector('dialog'));
    await page.fill('#token', TOKEN);
    await page.click('dialog button:text-is("Log in")');
    await until(page, () => /acknowledged/.test(document.querySelector('main').textContent));
    await page.click('.finding button:text-is("Silence for")');
    await until(page, () => /Silent until/.test(document.querySelector('main').textContent));
    await page.click('button:text-is("End")');
    await until(page, () => !/Silent until/.test(document.querySelector('main').textContent));
  }, '#alerts');
});

test('a hundred tabs follow, and every scrape is answered', async () => {
  const m = await monitor('large');
  let events = 0;
  const tabs = await Promise.all([...Array(100)].map(() => new Promise((done) => {
    const request = http.get(m.url + 'api/v1/live', (answer) => {
      answer.on('data', (d) => { events += String(d).split('event: status').length - 1; });
      answer.on('error', () => {});
      done(request);
    });
  })));
  const scrape = () => new Promise((done) => {
    const begin = performance.now();
    http.get(m.url + 'metrics', { headers: { 'Accept-Encoding': 'identity' } }, (answer) => { equal(answer.statusCode, 200); answer.resume(); answer.on('end', () => done(performance.now() - begin)); });
  });
  const times = [];
  while (times.length < 60 || events < 500) { times.push(await scrape()); await new Promise((done) => setTimeout(done, 10)); }
  times.sort((a, b) => a - b);
  console.log('# 100 tabs, 200 processes: median scrape ' + times[times.length >> 1].toFixed(2) + ' ms, events ' + events);
  for (const tab of tabs) { tab.destroy(); }
  await m.stop();
});

test('history is zoomed and panned without a task of 50 ms of the processor, with a resolution that follows', async () => {
  const db = path.join(folder, 'history.db');
  await real('machine', { db, settings: '' }, async (page) => {
    await until(page, () => { const c = Plim.tested.history.chart; return c.layers.length > 1 && c.layers[0].time_ns.length > 3; });
    const zoom = () => drive(page, 60, '(share) => { const c = Plim.tested.history.chart; const mid = (c.from + c.to) / 2; const half = 30e9 + 300e9 * share; Plim.tested.history.moveTo(mid - half, mid + half); }');
    let { rate, busy } = await zoom();
    for (let i = 0; i < 4 && busy > 0; i++) { ({ rate, busy } = await zoom()); } /* others on the machine only add to it */
    console.log('# zoom: ' + rate.toFixed(0) + ' frames a second, busy tasks ' + busy);
    equal(busy, 0, 'busy tasks');
    const span = () => page.evaluate(() => Plim.tested.history.chart.to - Plim.tested.history.chart.from);
    const before = await span();
    await page.focus('canvas');
    await page.keyboard.press('+');
    check(await span() < before, 'the + key zooms');
    await page.click('button:text-is("1 week")');
    await until(page, () => /Steps of/.test(document.querySelector('main').textContent));
    equal(page.complaints, []);
  }, '#history');
});

test('a device unlike the others of the fleet is marked, a host that is silent is named', async () => {
  const state = (used) => { const s = richState(); s.devices = s.devices.slice(1, 2); s.devices[0].used_bytes = used * 80 * 2 ** 30; return s; };
  const fleet = () => ({ peers: [0.61, 0.62, 0.6, 0.63, 0.95].map((u, i) => ({ name: 'gpu-' + i, url: 'http://gpu-' + i, age_seconds: 1, status: state(u) })).concat([{ name: 'gone', url: 'http://gone', error: 'no answer' }]) });
  await behind({ '/api/v1/status': () => state(0.62), '/api/v1/fleet': fleet }, async (page) => {
    await until(page, () => document.querySelectorAll('main tbody tr').length === 7);
    equal(await page.evaluate(() => [...document.querySelectorAll('tr.outlier')].map((r) => r.cells[0].textContent)), ['gpu-4']);
    check((await rows(page, 'Fleet')).some((r) => r[0] === 'gone' && /no answer/.test(r[8])), 'the silent host');
  }, '#fleet');
});

for (const dark of [false, true]) {
  test('the views are accessible, ' + (dark ? 'dark' : 'light') + ', also on narrow screens', () => behind({ '/api/v1/status': () => richState() }, async (page) => {
    for (const width of [1280, 400]) {
      await page.setViewportSize({ width, height: 800 });
      for (const view of ['overview', 'history', 'engines', 'alerts', 'incidents', 'fleet']) {
        await page.evaluate((v) => { location.hash = v; }, view);
        await settle(page, 250);
        equal(await violations(page), [], view + ' at ' + width);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        check(wide <= width, view + ' is ' + wide + ' wide on a screen of ' + width);
      }
    }
  }, '', { dark }));
}

test('keys choose a view and find the filter, and times are shown in UTC when wanted', () => real('machine', {}, async (page) => {
  await page.keyboard.press('5');
  await until(page, () => location.hash === '#incidents');
  await page.keyboard.press('1');
  await until(page, () => location.hash === '#overview' && document.querySelector('input[type="search"]')); /* the view comes after its name */
  await page.keyboard.press('/');
  equal(await page.evaluate(() => document.activeElement.type), 'search');
  await page.click('header button');
  equal(await page.evaluate(() => [document.querySelector('header button').textContent, Plim.time(1700000000e9)]), ['UTC', '14 Nov 2023, 22:13:20']);
}));

await run();
