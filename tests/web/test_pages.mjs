// SPDX-License-Identifier: Apache-2.0
/* The pages of tune and diff, and pages of several devices. */
import fs from 'node:fs';
import path from 'node:path';
import { check, DATA, equal, generated, hostile, open, pageOf, report, run, settle, state, test, violations } from './harness.mjs';

const llama = path.join(DATA, 'simulated/hf-llama8b-oom-24g.pickle');
const text = (page, selector) => page.locator(selector).innerText();
const column = (page, selector, n) => page.locator(selector + ' tbody tr td:nth-child(' + n + ')')
  .evaluateAll((cells) => cells.map((c) => (c.dataset.v === undefined ? c.textContent : c.dataset.v)));

/* ---- tune ---- */

const tuned = pageOf('tune', llama, '--device-memory', '24GiB');
let page;

test('tune: the recommendation comes first, then every run, then the verdict of the snapshot', async () => {
  page = await open(tuned);
  const order = await page.evaluate(() => [...document.querySelectorAll('main > section')].map((s) => s.id));
  equal(order.slice(0, 3), ['tune', 'verdict', 'ledger']);
  check((await text(page, '#recommended')).includes('expandable_segments'), await text(page, '#recommended'));
  equal(await page.locator('#tune tr.best').count(), 1);
  equal(await page.locator('#tune tr.now').count(), 1);
  check((await text(page, '#tune tr.best td.conf')) === (await text(page, '#recommended')), 'another row is marked');
  check(await page.locator('#tune svg polyline').count() === 2, 'no two lines of stranded bytes');
});

test('tune: the table sorts by a head; what is not known sorts below everything', async () => {
  await page.click('#tune th:has-text("needs") button');
  const needs = (await column(page, '#tune div[aria-label="Settings, table"]', 8)).map((v) => (v === '' ? -1 : Number(v)));
  check(needs.length > 20 && needs.some((v) => v > 0) && needs.includes(-1), needs.join());
  equal(needs, needs.slice().sort((a, b) => b - a));
});

test('tune: the table is copied as CSV with raw bytes', async () => {
  const csv = (await page.evaluate(() => Plim.csv(document.querySelector('#tune table')))).trim().split('\n');
  check(csv[0].startsWith('rank,mark,settings,outcome,first failing,it asks for,device,needs,peak reserved'), csv[0]);
  const best = csv.find((l) => l.includes('recommended'));
  check(/^1,recommended,.*,fits,,,25769803776,\d{11},\d{11}/.test(best), best);
});

test('tune: a setting under which a request fails says which one and how large', async () => {
  const small = await open(pageOf('tune', llama, '--device-memory', '20GiB'));
  const [index, bytes] = [await column(small, '#tune div[aria-label="Settings, table"]', 5), await column(small, '#tune div[aria-label="Settings, table"]', 6)];
  check(index.every((v) => Number(v) > 0) && bytes.every((v) => Number(v) > 0), 'a run has no failing request');
  equal(await small.locator('#tune tr.best').count(), 0);
  equal(small.complaints, []);
});

/* ---- diff ---- */

const early = path.join(DATA, 'simulated/healthy.pickle.xz');
const late = path.join(DATA, 'simulated/leak_list.pickle.xz');
const diffed = pageOf('diff', early, late);

test('diff: what grew is a table whose rows add up to the change of the live bytes', async () => {
  page = await open(diffed);
  const change = (await column(page, '#diff div[aria-label="What grew, table"]', 1)).map(Number);
  const before = (await column(page, '#diff div[aria-label="What grew, table"]', 2)).map(Number);
  const after = (await column(page, '#diff div[aria-label="What grew, table"]', 3)).map(Number);
  equal(change, after.map((v, i) => v - before[i]));
  check(change[0] > 0 && change[change.length - 1] < 0, change.join());
  equal(change, change.slice().sort((a, b) => b - a));
});

test('diff: the flame graph begins as the difference to the earlier snapshot', async () => {
  equal([(await state(page)).tab, (await state(page)).against], ['flame', 'before']);
  const note = await text(page, '#panel-flame .note[role=status]');
  check(/against healthy\.pickle\.xz \(8\.00 GiB\)/.test(note), note);
  const [a, b] = await page.evaluate(() => [Plim.heapAt(Plim.state.t).rows.reduce((s, r) => s + Plim.data.blocks.size[r], 0),
    Plim.data.earlier.bytes.reduce((s, v) => s + v, 0)]);
  check(a > 23 * 2 ** 30 && b === 8 * 2 ** 30, a + ' and ' + b);
  await page.locator('#panel-flame canvas').hover({ position: { x: 20, y: 5 } });
  await settle(page);
  check((await text(page, '#panel-flame .status')).includes('before 8.00 GiB'), await text(page, '#panel-flame .status'));
});

test('diff: search narrows both sides, and comparing can be left and begun again', async () => {
  await page.fill('#filters input[data-name=q]', 'load_weights');
  await settle(page, 250);
  const note = await text(page, '#panel-flame .note[role=status]');
  check(note.includes('(6.00 GiB) against') && note.includes('(8.00 GiB)'), note);
  await page.click('#filters button');
  await page.click('#panel-flame button:has-text("stop comparing")');
  await settle(page, 250);
  check((await text(page, '#panel-flame .note[role=status]')).startsWith('Live bytes at event'), 'still compared');
  await page.click('#panel-flame button:has-text("earlier snapshot")');
  await settle(page, 50);
  equal((await state(page)).against, 'before');
});

test('diff: a row of what grew selects its place in the later snapshot', async () => {
  await page.locator('#diff tr[data-site]').first().click();
  await settle(page);
  check((await text(page, '#selection')).includes('leak_list'), await text(page, '#selection'));
  equal(page.complaints, []);
});

/* ---- several devices ---- */

const three = generated('three', '--devices', '3', '--events', '24000');
const devices = report(three);

test('devices: each has a link, the busiest is shown, another is another page', async () => {
  page = await open(devices);
  equal(await page.locator('#devices a').count(), 3);
  const first = await page.locator('#devices a[aria-current=page]').getAttribute('data-device');
  const other = first === '2' ? '0' : '2';
  await page.evaluate(() => { window.old = true; });
  await Promise.all([page.waitForEvent('load'), page.click('#devices a[data-device="' + other + '"]')]);
  await settle(page, 200);
  equal(await page.evaluate(() => window.old), undefined);
  equal(await page.evaluate(() => String(Plim.data.meta.device)), other);
  equal(await page.locator('#devices a[aria-current=page]').getAttribute('data-device'), other);
  equal(await page.evaluate(() => document.querySelectorAll('#verdict, #views, #blame').length), 3);
  equal(page.complaints, []);
});

test('devices: the address leads back to the device, the moment and the view', async () => {
  await page.evaluate(() => Plim.set({ t: 4000, tab: 'life' }));
  await settle(page, 500);
  const before = await state(page);
  const again = await open(devices + '#' + (await page.url()).split('#')[1]);
  equal(await again.evaluate(() => Plim.data.meta.device), await page.evaluate(() => Plim.data.meta.device));
  equal([(await state(again)).t, (await state(again)).tab], [before.t, 'life']);
  const odd = await open(devices + '#device=77');
  check(await odd.locator('#timeline canvas').count() === 1, 'a device that is not there is not survived');
  equal(odd.complaints, []);
});

test('devices: --device makes a page of that one only', async () => {
  const one = await open(report(three, '--device', '1'));
  equal(await one.locator('#devices').count(), 0);
  equal(await one.evaluate(() => Plim.data.meta.device), 1);
});

test('devices: a page of eight busy ones stays below 5 MB and shows each', async () => {
  const file = report(generated('eight', '--devices', '8', '--events', '480000'));
  check(fs.statSync(file).size < 5000000, fs.statSync(file).size + ' bytes');
  for (const device of ['0', '7']) {
    const p = await open(file + '#device=' + device);
    check((await text(p, '#aggregated')).includes('summarizes'), 'nothing is said of what is left out');
    equal(await p.evaluate(() => String(Plim.data.meta.device)), device);
    equal(p.complaints, []);
    await p.context().close();
  }
});

/* ---- all of them ---- */

for (const [name, file, tab] of [['tune', tuned, 'map'], ['diff', diffed, 'flame'], ['devices', devices, 'map']]) {
  for (const dark of [false, true]) {
    test(name + ': axe-core finds nothing, ' + (dark ? 'dark' : 'light'), async () => {
      const p = await open(file + '#tab=' + tab, { dark });
      await settle(p, 50);
      equal(await violations(p), []);
      await p.context().close();
    });
  }
}

test('markup in names stays text in the pages of tune and diff, whichever side it is on', async () => {
  const bad = hostile('markup');
  const plain = path.join(DATA, 'tiny-no-history-t25.pickle');
  for (const file of [pageOf('tune', bad), pageOf('diff', plain, bad), pageOf('diff', bad, plain)]) {
    const p = await open(file + '#tab=flame');
    await settle(p, 100);
    equal(p.complaints, [], file);
    equal(p.requests.filter((u) => !u.startsWith('file:') && !u.startsWith('blob:')), []);
    equal(await p.evaluate(() => [window.pwned, document.querySelectorAll('img, iframe, object, embed, base, link').length]), [null, 0].map((v) => (v === null ? undefined : v)));
    await p.context().close();
  }
});

await run();
