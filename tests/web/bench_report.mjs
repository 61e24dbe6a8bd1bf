// SPDX-License-Identifier: Apache-2.0
/*
 * How fast the report of a large snapshot is written, opened and moved about in, in Chromium on this machine.
 *
 *   node tests/web/bench_report.mjs SNAPSHOT [OTHER.html]
 *
 * For each view and each thing that one does there: frames a second, and the longest task of the page's main thread (from
 * the browser's own trace; while a task runs, the page answers nothing). Then the same with a processor four times
 * as slow, which stands for a busy or an old machine.
 *
 * OTHER.html: the page of `python -m torch.cuda._memory_viz trace_plot SNAPSHOT -o OTHER.html`, as a measure in the same run:
 * its size, and how long the browser takes only to read it. Its scripts come from a network, so that its drawing is not
 * measured. Figures are for comparing, not absolute.
 */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { drive, folder, launch, open, PROGRAM, settle, tasksDuring } from './harness.mjs';

const [, , snapshot, other] = process.argv;
const out = path.join(folder, 'bench.html');
const say = (label, text) => console.log(label.padEnd(34) + text);
const seconds = (args) => {
  const before = process.hrtime.bigint();
  execFileSync(PROGRAM, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  return Number(process.hrtime.bigint() - before) / 1e9;
};

const ms = (v) => v.toFixed(0).padStart(3) + ' ms';
const figures = (f) => f.rate.toFixed(0).padStart(3) + ' frames/s, longest task ' + ms(f.clock) + ', of the processor ' + ms(f.processor) +
  (f.long > 0 ? '; ' + f.long + ' (' + f.busy + ') of 50 ms and more' : '');

const without = seconds(['diagnose', '--no-replay', snapshot]);
const withHtml = seconds(['diagnose', '--no-replay', snapshot, '--html', out]);
const bytes = fs.statSync(out).size;
say('read and judge', without.toFixed(2) + ' s');
say('write the report', (withHtml - without).toFixed(2) + ' s, ' + (bytes / 1e6).toFixed(2) + ' MB');

const page = await open(out);
const paint = await page.evaluate(() => [performance.getEntriesByName('first-contentful-paint')[0].startTime, Plim.paintedAt]);
say('first paint, views painted', paint.map((v) => v.toFixed(0) + ' ms').join(', '));

const n = await page.evaluate(() => Plim.data.meta.events);
const address = await page.evaluate(() => '0x' + Plim.data.blocks.addr[10].toString(16));
const ZOOM = `(f) => Plim.showWindow(${n} * 0.3 * f, ${n} * (1 - 0.5 * f))`;
const PAN = `(f) => Plim.showWindow(${n} * 0.5 * f, ${n} * (0.1 + 0.5 * f))`;
const SCRUB = `(f) => Plim.set({ t: ${n} * f })`;
const TYPE = "(f) => Plim.set({ q: 'module_1'.slice(0, Math.floor(f * 9)) })";
const FILTER = '(f) => Plim.set({ min: String(Math.floor(f * 4e6)) })';
const FIND = `(f) => Plim.set({ q: '${address}'.slice(0, 2 + Math.floor(f * 12)) })`;
const SELECT = '(f) => { const b = Plim.data.blocks; Plim.selectBlock(b, Math.floor(f * b.addr.length)); }';
const HOVER = `(f) => { const c = document.querySelector('[role=tabpanel]:not([hidden]) canvas'); if (c) { const r = c.getBoundingClientRect();
  c.dispatchEvent(new MouseEvent('mousemove', { clientX: r.left + r.width * f, clientY: r.top + Math.min(150, r.height / 2) })); } }`;
const COMPARE = `(f) => Plim.set({ t2: ${n} * f })`;
const COLOUR = "(f) => Plim.set({ colour: ['state', 'age', 'site', 'kind', 'stream'][Math.floor(f * 5)] })";
const DEEDS = [['zoom', ZOOM], ['pan', PAN], ['move the moment', SCRUB], ['type a search', TYPE], ['find an address', FIND],
  ['filter by size', FILTER], ['select blocks', SELECT], ['hover', HOVER]];
const PLAIN = { t2: null, q: '', min: '', sel: null, stack: 'ledger', colour: 'state' };

/** All deeds in all views. The worst. */
async function tour(label) {
  const worst = { rate: Infinity, clock: 0, processor: 0, long: 0, busy: 0 };
  const one = async (name, deed) => {
    const f = await drive(page, 40, deed);
    say(label + name, figures(f));
    for (const what of ['clock', 'processor']) { worst[what] = Math.max(worst[what], f[what]); }
    worst.rate = Math.min(worst.rate, f.rate);
    worst.long += f.long;
    worst.busy += f.busy;
    await page.evaluate((plain) => { Plim.set(plain); Plim.showWindow(0, Plim.data.meta.events); }, PLAIN);
    await settle(page, 200);
  };
  for (const tab of ['map', 'flame', 'life', 'blocks', 'events']) {
    await page.evaluate((name) => Plim.set({ tab: name }), tab);
    await settle(page, 200);
    for (const [name, deed] of DEEDS) { await one(tab + ': ' + name, deed); }
    if (tab === 'map') { await one('map: colour by', COLOUR); }
    if (tab === 'flame') { await one('flame: compare', COMPARE); }
  }
  await one('play', "(f) => { if (f === 0) { document.querySelector('#moment button').click(); } if (f > 0.98 && document.querySelector('#moment button[aria-pressed=true]')) { document.querySelector('#moment button').click(); } }");
  for (const way of ['site', 'kind', 'stream', 'blocks']) {
    for (const [name, deed] of [['zoom', ZOOM], ['pan', PAN], ['move the moment', SCRUB], ['type a search', TYPE]]) {
      await page.evaluate((v) => Plim.set({ stack: v, tab: 'map' }), way);
      await settle(page, 200);
      await one('stacked by ' + way + ': ' + name, deed);
    }
  }
  say(label + 'the worst of all', figures(worst));
  return worst;
}

const here = await tour('');
const cdp = await page.context().newCDPSession(page);
await cdp.send('Emulation.setCPUThrottlingRate', { rate: 4 });
await tour('slow, ');
await cdp.send('Emulation.setCPUThrottlingRate', { rate: 1 });

/** PyTorch's page without its scripts, which come from a network: how long the browser takes to read it, and the longest task. */
async function openOther() {
  const context = await (await launch()).newContext({ viewport: { width: 1280, height: 800 } });
  const peer = await context.newPage();
  await peer.route(/^https?:/, (route) => route.abort());
  const before = performance.now();
  const tasks = await tasksDuring(peer, async () => {
    await peer.goto(pathToFileURL(path.resolve(other)).href, { timeout: 600000 });
  });
  await context.close();
  return { read: performance.now() - before, ...tasks };
}

if (other) {
  const times = (a, b) => (a / b).toFixed(a / b < 10 ? 1 : 0) + ' times ours';
  const peer = await openOther();
  say('PyTorch\'s trace_plot page', (fs.statSync(other).size / 1e6).toFixed(1) + ' MB, ' + times(fs.statSync(other).size, bytes));
  say('  read, without its drawings', (peer.read / 1000).toFixed(2) + ' s, ' + times(peer.read, paint[1]) + ' with all drawings');
  say('  longest task', peer.clock.toFixed(0) + ' ms, ' + times(peer.clock, here.clock) + ' of the whole tour');
}
process.exit(0);
