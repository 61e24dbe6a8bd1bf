// SPDX-License-Identifier: Apache-2.0
/* plimsoll view: who may ask, what it answers, and that the page gets exact detail from it. */
import { spawn } from 'node:child_process';
import http from 'node:http';
import path from 'node:path';
import { check, DATA, equal, generated, open, PROGRAM, run, settle, test, until } from './harness.mjs';

const big = generated('big', '--events', '200000');

/** Start the server; its address and process. */
function serve(snapshot, ...options) {
  return new Promise((done, failed) => {
    const child = spawn(PROGRAM, ['view', '--no-browser', ...options, snapshot], { stdio: ['ignore', 'pipe', 'inherit'] });
    let said = '';
    child.stdout.on('data', (data) => {
      said += data;
      if (said.includes('\n')) { done({ child, url: said.split('\n')[0] }); }
    });
    child.on('exit', (code) => failed(new Error('the server ended with ' + code)));
  });
}

/** A request with any headers: {status, headers, body}. */
function ask(url, headers = {}, method = 'GET') {
  return new Promise((done, failed) => {
    const request = http.request(url, { method, headers }, (response) => {
      const parts = [];
      response.on('data', (p) => parts.push(p));
      response.on('end', () => done({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) }));
    });
    request.on('error', failed);
    request.end();
  });
}

let server;

test('it prints an address on 127.0.0.1 with a token of 128 bits', async () => {
  server = await serve(big);
  check(/^http:\/\/127\.0\.0\.1:\d+\/[0-9a-f]{32}\/$/.test(server.url), server.url);
});

test('without the token, with a wrong one, or for another host there is nothing', async () => {
  const { origin, pathname } = new URL(server.url);
  equal((await ask(origin + '/')).status, 404);
  equal((await ask(origin + '/' + '0'.repeat(32) + '/')).status, 404);
  equal((await ask(origin + pathname.slice(0, -2) + '/')).status, 404);
  equal((await ask(server.url, { Host: 'evil.example' })).status, 403);
  equal((await ask(server.url, {}, 'POST')).status, 405);
  equal((await ask(server.url + 'nothing')).status, 404);
});

test('questions that make no sense are refused, and the server lives on', async () => {
  for (const [q, status] of [['series', 400], ['series?from=5&to=5&bins=10', 422], ['series?from=0&to=100&bins=0', 422], ['series?from=0&to=100&bins=99999999', 400],
    ['series?from=-1&to=x&bins=1', 400], ['events?from=0&to=99999999999999999999', 400], ['events?from=0&to=100000', 422], ['events?from=9&to=3', 422], ['heap', 400],
    ['heap?at=4294967295', 422]]) {
    equal((await ask(server.url + q)).status, status, q);
  }
  equal((await ask(server.url)).status, 200);
});

test('answers may not be framed, sniffed or kept', async () => {
  const { headers } = await ask(server.url);
  equal(headers['x-frame-options'], 'DENY');
  equal(headers['x-content-type-options'], 'nosniff');
  equal(headers['cache-control'], 'no-store');
  equal(headers['access-control-allow-origin'], undefined);
});

test('the page gets exact bins, events and the whole heap of where one looks', async () => {
  const page = await open(server.url);
  const coarse = await page.evaluate(() => Plim.data.series[0].range[2]);
  check(coarse > 1, 'the series of the page is exact already');
  await page.evaluate(() => { Plim.set({ t: 123457, tab: 'events' }); Plim.showWindow(123400, 123500); });
  await until(page, () => Plim.eventRow(123456) >= 0 && Plim.exactAt(123457));
  const [live, requested] = await page.evaluate(async () => {
    const h = Plim.heapAt(123457);
    const s = (await Plim.ask('series?from=123456&to=123457&bins=1')).se;
    return [h.requested, s.live[0]];
  });
  equal(requested, live);
  await settle(page, 100);
  check((await page.locator('#t-events').innerText()).includes('123,456'), 'the event is not listed');
  equal(page.complaints, []);
});

test('bins of a wide window are joined from those of the whole trace and keep its peak', async () => {
  const page = await open(server.url);
  const [peak, highest] = await page.evaluate(async () => {
    const s = (await Plim.ask('series?from=0&to=200000&bins=50')).se;
    const whole = Plim.data.series[0];
    const top = (x) => x.live.reduce((m, v, i) => Math.max(m, v + x.rounding[i]), 0);
    return [top(whole), top(s)];
  });
  equal(highest, peak);
});

test('Ctrl-C ends it with success', async () => {
  const code = await new Promise((done) => {
    server.child.removeAllListeners('exit');
    server.child.on('exit', (c) => done(c));
    server.child.kill('SIGINT');
  });
  equal(code, 0);
});

test('a port that is taken is told, with what to do', async () => {
  const first = await serve(path.join(DATA, 'tiny-no-history-t25.pickle'));
  const { port } = new URL(first.url);
  const result = await new Promise((done) => {
    const child = spawn(PROGRAM, ['view', '--no-browser', '--port', port, path.join(DATA, 'tiny-no-history-t25.pickle')], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.on('data', (d) => { said += d; });
    child.on('exit', (code) => done([code, said]));
  });
  equal(result[0], 71);
  check(result[1].includes('cannot listen') && result[1].includes('--port 0'), result[1]);
  first.child.removeAllListeners('exit');
  first.child.kill('SIGTERM');
});

await run();
