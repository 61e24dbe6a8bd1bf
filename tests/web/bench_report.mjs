// SPDX-License-Identifier: Apache-2.0
/*
 * How fast the report of a large snapshot is written, opened, zoomed and panned, in Chromium on this machine.
 *
 *   node tests/web/bench_report.mjs SNAPSHOT [OTHER.html]
 *
 * OTHER.html: the page of `python -m torch.cuda._memory_viz trace_plot SNAPSHOT -o OTHER.html`, to compare sizes (its
 * scripts come from a network, so that its drawing is not measured). Figures are for comparing, not absolute.
 */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { folder, open, PROGRAM, settle } from './harness.mjs';

const [, , snapshot, other] = process.argv;
const out = path.join(folder, 'bench.html');
const seconds = (args) => {
  const before = process.hrtime.bigint();
  execFileSync(PROGRAM, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  return Number(process.hrtime.bigint() - before) / 1e9;
};

const without = seconds(['diagnose', '--no-replay', snapshot]);
const withHtml = seconds(['diagnose', '--no-replay', snapshot, '--html', out]);
const bytes = fs.statSync(out).size;
console.log('read and judge               ' + without.toFixed(2) + ' s');
console.log('write the report             ' + (withHtml - without).toFixed(2) + ' s, ' + (bytes / 1e6).toFixed(2) + ' MB');

const page = await open(out);
const paint = await page.evaluate(() => [performance.getEntriesByName('first-contentful-paint')[0].startTime, Plim.paintedAt]);
console.log('first paint, views painted   ' + paint.map((v) => v.toFixed(0) + ' ms').join(', '));

/** Change the state once a frame for a while: `change` is the source of a function of the share done. */
async function drive(frames, change) {
  const before = await page.evaluate(() => { Plim.slowest = 0; return [Plim.drawings, performance.now()]; });
  await page.evaluate(`new Promise((done) => {
    let i = 0; let last = performance.now(); window.gaps = [];
    const step = ${change};
    const frame = (now) => { window.gaps.push(now - last); last = now; if (i >= ${frames}) { done(); return; } step(i / ${frames}); i++; requestAnimationFrame(frame); };
    requestAnimationFrame(frame); })`);
  const after = await page.evaluate(() => [performance.now(), Math.max(...window.gaps.slice(2)), Plim.slowest]);
  return (frames * 1000 / (after[0] - before[1])).toFixed(0) + ' frames/s, longest frame ' + after[1].toFixed(0) + ' ms, longest drawing ' + after[2].toFixed(0) + ' ms';
}

const n = await page.evaluate(() => Plim.data.meta.events);
for (const tab of ['map', 'flame', 'life', 'blocks', 'events']) {
  await page.evaluate((name) => Plim.set({ tab: name }), tab);
  await settle(page, 100);
  console.log('zoom the timeline, ' + tab.padEnd(10) + await drive(120, `(f) => Plim.showWindow(${n} * 0.3 * f, ${n} * (1 - 0.5 * f))`));
  console.log('pan the timeline, ' + tab.padEnd(11) + await drive(120, `(f) => Plim.showWindow(${n} * 0.5 * f, ${n} * (0.1 + 0.5 * f))`));
  console.log('move the moment, ' + tab.padEnd(12) + await drive(120, `(f) => Plim.set({ t: ${n} * f })`));
}
await page.evaluate(() => Plim.set({ tab: 'map' }));
for (const way of ['site', 'blocks']) {
  await page.evaluate((name) => Plim.set({ stack: name }), way);
  await settle(page, 100);
  console.log('zoom, stacked by ' + way.padEnd(12) + await drive(120, `(f) => Plim.showWindow(${n} * 0.3 * f, ${n} * (1 - 0.5 * f))`));
}
if (other) {
  console.log('PyTorch\'s trace_plot page    ' + (fs.statSync(other).size / 1e6).toFixed(1) + ' MB: ' + (fs.statSync(other).size / bytes).toFixed(0) + ' times as large');
}
process.exit(0);
