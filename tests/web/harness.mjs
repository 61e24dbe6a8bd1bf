// SPDX-License-Identifier: Apache-2.0
/*
 * What the browser tests share: TAP, a report made by the program, a page in Debian's Chromium that fails the test on any
 * console error, and a comparison of pictures.
 *
 * Environment (Meson sets it): PLIMSOLL the program, PLIMSOLL_DATA the snapshots, PLIMSOLL_WEB_ENV the folder with
 * node_modules (tools/web_env.sh), CHROMIUM the browser. Exits with 77 (skipped) when one is missing.
 */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const ENV = process.env.PLIMSOLL_WEB_ENV || 'build/web-env';
export const CHROMIUM = process.env.CHROMIUM || '/usr/bin/chromium';
export const PROGRAM = process.env.PLIMSOLL || 'build/plimsoll';
export const DATA = process.env.PLIMSOLL_DATA || 'tests/data/snapshots';
export const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'plimsoll-web-'));
const require = createRequire(pathToFileURL(path.resolve(ENV, 'package.json')));

if (!fs.existsSync(CHROMIUM) || !fs.existsSync(path.join(ENV, 'node_modules', 'playwright-core'))) {
  console.log('1..0 # SKIP no Chromium, or tools/web_env.sh was not run');
  process.exit(77);
}
const { chromium } = require('playwright-core');
const axeSource = () => fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** The page that a verb writes with --html; the path. */
export function pageOf(...words) {
  const out = path.join(folder, words.map((w) => path.basename(w).replace(/\W/g, '-')).join('-') + '.html');
  execFileSync(PROGRAM, [...words, '--html', out], { stdio: ['ignore', 'ignore', 'inherit'], env: { ...process.env, PLIMSOLL_CONFIG: '' } });
  return out;
}

/** The report of a snapshot as a file; the path. Options are those of diagnose. */
export const report = (snapshot, ...options) => pageOf('diagnose', snapshot, ...options);

const HOSTILE = path.join(path.dirname(fileURLToPath(import.meta.url)), 'make_hostile.py');
/** A snapshot of a kind that make_hostile.py knows; the path. */
export function hostile(kind) {
  const file = path.join(folder, kind + '.pickle');
  execFileSync('python3', [HOSTILE, kind, file]);
  return file;
}

const GENERATOR = path.join(path.dirname(fileURLToPath(import.meta.url)), '../bench/gen_snapshot.py');
/** A snapshot of random work; the path. */
export function generated(name, ...options) {
  const file = path.join(folder, name + '.pickle');
  execFileSync('python3', [GENERATOR, ...options, file], { stdio: ['ignore', 'ignore', 'inherit'] });
  return file;
}

/** What axe-core objects to: its rules' ids with the first element of each. */
export async function violations(page) {
  if (!await page.evaluate(() => typeof axe !== 'undefined')) { await page.evaluate(axeSource()); }
  const found = await page.evaluate(() => axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  return found.violations.map((v) => v.id + ': ' + v.nodes[0].html.slice(0, 160) + ' ' + (v.nodes[0].any[0] ? v.nodes[0].any[0].message : ''));
}

let browser = null;
/** The browser; started once. */
export async function launch() {
  browser = browser || await chromium.launch({ executablePath: CHROMIUM, args: ['--headless', '--no-sandbox', '--disable-gpu',
    '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run', '--force-color-profile=srgb', '--font-render-hinting=none'] });
  return browser;
}

/** A page of the report, its drawings done. Errors of the console and refused requests are kept in page.complaints. */
export async function open(address, options = {}) {
  await launch();
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', colorScheme: options.dark ? 'dark' : 'light' });
  const page = await context.newPage();
  page.complaints = [];
  page.requests = [];
  page.on('console', (m) => { if (m.type() === 'error' || m.type() === 'warning') { page.complaints.push(m.text()); } });
  page.on('pageerror', (e) => page.complaints.push(e.message));
  page.on('request', (r) => page.requests.push(r.url()));
  await page.goto(address.startsWith('http') ? address : pathToFileURL(address.split('#')[0]) + (address.includes('#') ? '#' + address.split('#')[1] : ''));
  if (!options.locked) { await until(page, () => document.documentElement.dataset.ready); } /* else it waits for a token */
  return page;
}

/** Ask the page again and again until it says yes; the time limit only ends a test that would hang. (Playwright's own way needs
 * eval, which the page forbids.) */
export async function until(page, predicate, ms = 90000) {
  const end = Date.now() + ms;
  while (!await page.evaluate(predicate)) {
    if (Date.now() > end) { throw new Error('never came true: ' + predicate); }
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Wait until what was asked for is drawn: a frame and a task for the change, and a few frames for the drawings. */
export async function settle(page, ms = 0) {
  await page.evaluate(async (wait) => {
    const task = (t) => new Promise((done) => setTimeout(done, t));
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    await task(wait);
    await frame();
    for (let i = 0; i < 3; i++) {
      await task(0);
      await frame();
    }
  }, ms);
}

export const state = (page) => page.evaluate(() => JSON.parse(JSON.stringify(Plim.state)));

/**
 * Run something while the browser records what its threads do. Of the page's main thread: the longest task by the clock and by
 * the processor's time (which other programs do not lengthen) in ms, and how many took 50 ms and more by either.
 */
export async function tasksDuring(page, body) {
  const browser = await launch();
  await browser.startTracing(page, { categories: ['disabled-by-default-devtools.timeline', '__metadata'] });
  await body();
  const { traceEvents: events } = JSON.parse((await browser.stopTracing()).toString());
  const thread = (e) => e.pid + '/' + e.tid;
  const main = new Set(events.filter((e) => e.name === 'thread_name' && e.args.name === 'CrRendererMain').map(thread));
  const tasks = events.filter((e) => e.name === 'RunTask' && e.dur > 0 && main.has(thread(e)));
  const most = (name) => tasks.reduce((m, e) => Math.max(m, (e[name] || 0) / 1000), 0);
  const long = (name) => tasks.filter((e) => e[name] >= 50000).length;
  return { clock: most('dur'), processor: most('tdur'), long: long('dur'), busy: long('tdur') };
}

/** Change the state once a frame: `change` is the source of a function of the share done. Frames a second and longest task. */
export async function drive(page, frames, change) {
  let rate = 0;
  const tasks = await tasksDuring(page, async () => {
    rate = await page.evaluate(`new Promise((done) => {
      const begin = performance.now(); let i = 0;
      const step = ${change};
      const frame = () => { if (i >= ${frames}) { done(${frames} * 1000 / (performance.now() - begin)); return; } step(i / ${frames}); i++; requestAnimationFrame(frame); };
      requestAnimationFrame(frame); })`);
    await settle(page, 250);
  });
  return { rate, ...tasks };
}

/* ---- TAP ---- */

const tests = [];
/** A test; `body` throws when it fails. */
export function test(name, body) { tests.push([name, body]); }

export function check(condition, message) { if (!condition) { throw new Error(message); } }
export function equal(a, b, message) {
  if (JSON.stringify(a) !== JSON.stringify(b)) { throw new Error((message || 'not equal') + ': ' + JSON.stringify(a) + ' is not ' + JSON.stringify(b)); }
}

/** Run them all, one after the other. */
export async function run() {
  let bad = 0;
  let n = 0;
  console.log('TAP version 13');
  for (const [name, body] of tests) {
    n++;
    try {
      await body();
      console.log('ok ' + n + ' - ' + name);
    } catch (error) {
      bad++;
      console.log('not ok ' + n + ' - ' + name + '\n' + String(error.stack || error).split('\n').map((l) => '# ' + l).join('\n'));
    }
  }
  console.log('1..' + n);
  if (browser) { await browser.close(); }
  fs.rmSync(folder, { recursive: true, force: true });
  process.exit(bad ? 1 : 0);
}

/** Share of pixels that differ by more than a little between two PNG pictures; 1 when their sizes differ. */
export async function difference(page, a, b) {
  return page.evaluate(async ([x, y]) => {
    const pixels = async (data) => {
      const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
      const bitmap = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
      const g = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d');
      g.drawImage(bitmap, 0, 0);
      return g.getImageData(0, 0, bitmap.width, bitmap.height);
    };
    const [p, q] = [await pixels(x), await pixels(y)];
    if (p.width !== q.width || p.height !== q.height) { return 1; }
    let differ = 0;
    for (let i = 0; i < p.data.length; i += 4) {
      const d = Math.abs(p.data[i] - q.data[i]) + Math.abs(p.data[i + 1] - q.data[i + 1]) + Math.abs(p.data[i + 2] - q.data[i + 2]);
      if (d > 48) { differ++; }
    }
    return differ / (p.width * p.height);
  }, [a.toString('base64'), b.toString('base64')]);
}
