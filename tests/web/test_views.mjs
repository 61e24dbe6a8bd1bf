// SPDX-License-Identifier: Apache-2.0
/* Every view of the report opened, clicked, zoomed, searched, in a real browser. */
import path from 'node:path';
import { check, DATA, equal, open, report, run, settle, state, test, until } from './harness.mjs';

const leak = report(path.join(DATA, 'simulated/leak_list.pickle.xz'));
const llama = report(path.join(DATA, 'simulated/hf-llama8b-oom-24g.pickle'), '--device-memory', '24GiB');
const pools = report(path.join(DATA, 'simulated/graph_pool.pickle.xz'));
const expandable = report(path.join(DATA, 'mosaic-synthetic-expandable.pickle'));
let page;

const box = (selector) => page.locator(selector).boundingBox();
/** Click into a canvas at a share of its width and height. */
async function clickAt(selector, x, y, options) {
  await page.locator(selector).scrollIntoViewIfNeeded();
  const b = await box(selector);
  await page.locator(selector).click({ position: { x: b.width * x, y: Math.min(b.height - 1, b.height * y) }, ...options });
  await settle(page);
}
const text = (selector) => page.locator(selector).innerText();
const openTab = async (name) => { await page.click('#tab-' + name); await settle(page); };

test('the verdict comes first, with ledger, counterfactuals, evidence and advice in this order', async () => {
  page = await open(leak);
  check((await text('#verdict h2')).includes('leak / growing_stack'), await text('#verdict h2'));
  const order = await page.evaluate(() => [...document.querySelectorAll('main > section')].map((s) => s.id));
  equal(order.slice(0, 6), ['verdict', 'ledger', 'counterfactuals', 'evidence', 'advice', 'unknowns']);
  check(await page.locator('svg.waterfall rect.o-live').count() === 1, 'no bar for the live bytes');
});

test('nothing is asked of the network', async () => {
  equal(page.requests.filter((u) => !u.startsWith('file:') && !u.startsWith('blob:')), []);
});

test('a click in the timeline sets the moment, and the map follows', async () => {
  await clickAt('#timeline canvas', 0.5, 0.5);
  const { t } = await state(page);
  check(t > 3500 && t < 4500, 'the moment is ' + t);
  check((await text('#moment-text')).includes(t.toLocaleString('en-US')), await text('#moment-text'));
  check((await text('#panel-map .note')).includes('segments'), 'the map says nothing');
});

test('a shift-click sets the moment compared with', async () => {
  await clickAt('#timeline canvas', 0.2, 0.5, { modifiers: ['Shift'] });
  const { t2 } = await state(page);
  check(t2 > 500 && t2 < 2000, 'compared with ' + t2);
});

test('the wheel zooms the timeline down to single events and out again', async () => {
  const canvas = page.locator('#timeline canvas');
  await canvas.hover({ position: { x: 400, y: 100 } });
  for (let i = 0; i < 40; i++) { await page.mouse.wheel(0, -400); }
  await settle(page);
  let s = await state(page);
  check(s.to - s.from <= 10, 'the window is ' + (s.to - s.from));
  for (let i = 0; i < 60; i++) { await page.mouse.wheel(0, 400); }
  await settle(page);
  s = await state(page);
  equal([s.from, s.to], [0, 8000]);
});

test('hovering the timeline names the ledger and the largest allocation', async () => {
  await page.locator('#timeline canvas').hover({ position: { x: 700, y: 150 } });
  await settle(page);
  const line = await text('#timeline .status');
  check(/event [\d,]+ .*live [\d.]+ GiB/.test(line), line);
});

test('each way of stacking the timeline draws and has a legend', async () => {
  for (const way of ['site', 'kind', 'stream', 'blocks', 'ledger']) {
    await page.selectOption('#timeline select', way);
    await settle(page);
    equal((await state(page)).stack, way);
    check(await page.locator('#timeline .legend li').count() > 0, 'no legend for ' + way);
  }
});

test('a block chosen in the map is described with its stack', async () => {
  await page.click('[data-jump=failure]');
  await settle(page);
  await page.evaluate(() => document.querySelector('#panel-map .scroll').scrollTo(0, 0));
  await clickAt('#panel-map canvas', 0.3, 30 / (await box('#panel-map canvas')).height);
  const { sel } = await state(page);
  equal(sel.kind, 'block');
  const panel = await text('#selection');
  check(panel.includes('workload.py') && panel.includes('0x'), panel);
});

test('square brackets walk from block to block', async () => {
  const before = (await state(page)).sel;
  await page.keyboard.press(']');
  await settle(page);
  const after = (await state(page)).sel;
  check(after.addr > before.addr, after.addr + ' is not behind ' + before.addr);
  await page.keyboard.press('[');
  await settle(page);
  equal((await state(page)).sel, before);
});

test('the map can be coloured by age, place, kind and stream', async () => {
  for (const way of ['age', 'site', 'kind', 'stream', 'state']) {
    await page.selectOption('#panel-map select', way);
    await settle(page);
    check(await page.locator('#panel-map .legend li').count() > 2, 'no legend for ' + way);
  }
});

test('the map of another moment is that of the exact heap: live bytes equal the ledger', async () => {
  for (const t of [1000, 4000, 7000]) {
    const [live, reserved, series] = await page.evaluate((at) => {
      const h = Plim.heapAt(at);
      const s = Plim.data.series[0];
      const i = at - 1;
      return [h.requested, h.reserved, [s.live[i], s.live[i] + s.rounding[i] + s.stranded[i] + s.releasable[i] + s.private[i]]];
    }, t);
    equal([live, reserved], series, 'at event ' + t);
  }
});

test('the flame graph goes in with a click and out with a button', async () => {
  await page.evaluate(() => Plim.set({ t2: null, sel: null }));
  await openTab('flame');
  await clickAt('#panel-flame canvas', 0.3, 0.95);
  equal((await state(page)).sel.kind, 'site');
  await page.click('#panel-flame button:has-text("Whole graph")');
  await page.click('#panel-flame button:has-text("Flames upwards")');
  await settle(page);
  check((await text('#panel-flame .note:has-text("Live bytes")')).includes('23.'), 'no sum');
});

test('the difference of two moments is the growth between them', async () => {
  await page.evaluate(() => Plim.set({ t: 7000, t2: 1000 }));
  await settle(page);
  check(/Event 7,000 .* against event 1,000/.test(await text('#panel-flame')), await text('#panel-flame'));
  await page.evaluate(() => Plim.set({ t2: null }));
});

test('lifetimes draw, and a point can be chosen', async () => {
  await openTab('life');
  const chosen = await page.evaluate(() => {
    const canvas = document.querySelector('#panel-life canvas');
    const b = canvas.getBoundingClientRect();
    for (let x = 80; x < b.width; x += 2) {
      for (let y = 10; y < 330; y += 4) {
        canvas.dispatchEvent(new MouseEvent('click', { clientX: b.left + x, clientY: b.top + y, bubbles: true }));
        if (changedTo()) { return true; }
      }
    }
    function changedTo() { return Plim.state.sel && Plim.state.sel.kind === 'block'; }
    return false;
  });
  check(chosen, 'no point of the drawing can be chosen');
});

test('the blocks of the moment are listed, and the search narrows them', async () => {
  await openTab('blocks');
  const all = await text('#panel-blocks .note');
  await page.fill('#filters input[data-name=q]', 'load_weights');
  await settle(page, 250);
  const some = await text('#panel-blocks .note');
  check(some.includes('match the filter') && some !== all, all + ' / ' + some);
  await until(page, () => { /* rows come a few in each frame */
    const labels = [...document.querySelectorAll('#t-blocks tbody tr td:last-child')].map((c) => c.textContent);
    return labels.length > 0 && labels.every((l) => l.includes('load_weights'));
  });
  await page.fill('#filters input[data-name=min]', '10 GiB');
  await settle(page, 250);
  check((await text('#panel-blocks .note')).startsWith('0 live blocks'), await text('#panel-blocks .note'));
  await page.click('#filters button');
  await settle(page, 250);
  equal(await text('#panel-blocks .note'), all);
});

test('events around the moment are listed, and one chosen moves the moment behind it', async () => {
  await openTab('events');
  await page.click('[data-jump=failure]');
  await settle(page, 250);
  const rows = page.locator('#t-events tbody tr');
  check((await page.locator('#t-events').innerText()).includes('oom'), 'the failure is not among the events');
  const first = Number(await rows.first().locator('td').first().getAttribute('data-v'));
  await rows.first().click();
  await settle(page, 250);
  equal((await state(page)).t, first + 1);
});

test('the scrubber, the steps and play move the moment', async () => {
  await page.click('[data-jump=start]');
  await settle(page);
  equal((await state(page)).t, 0);
  await page.click('[aria-label="One step on"]');
  await settle(page);
  equal((await state(page)).t, 1);
  await page.click('#moment button:has-text("Play")');
  await until(page, () => Plim.state.t > 200);
  await page.click('#moment button:has-text("Pause")');
  await page.locator('#moment input[type=range]').fill('4321');
  await settle(page);
  equal((await state(page)).t, 4321);
});

test('keys: digits choose the view, arrows step, Escape clears, slash goes to the search', async () => {
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('1');
  await settle(page);
  equal((await state(page)).tab, 'map');
  const { t } = await state(page);
  await page.keyboard.press('ArrowLeft');
  await settle(page);
  equal((await state(page)).t, t - 1);
  await page.keyboard.press('Escape');
  await settle(page);
  equal((await state(page)).sel, null);
  await page.keyboard.press('/');
  equal(await page.evaluate(() => document.activeElement.dataset.name), 'q');
});

test('tables sort by a click and a blame row selects its place everywhere', async () => {
  await page.click('#blame th:nth-child(3) button');
  const blocks = (await page.locator('#blame tbody td:nth-child(3)').evaluateAll((c) => c.map((x) => Number(x.dataset.v))));
  equal(blocks, blocks.slice().sort((a, b) => b - a));
  await page.locator('#blame tbody tr').first().click();
  await settle(page);
  equal((await state(page)).sel.kind, 'site');
  check(await page.locator('#blame tr.selected').count() === 1, 'the row is not marked');
});

test('a table is copied as CSV with raw numbers', async () => {
  const csv = await page.evaluate(() => Plim.csv(document.querySelector('#blame table')));
  const lines = csv.trim().split('\n');
  check(lines[0].startsWith('live bytes,share,blocks'), lines[0]);
  check(/^\d+,\d+,\d+/.test(lines[1]), lines[1]);
  equal(await page.evaluate(() => Plim.csvField('=HYPERLINK("x")')), '"\'=HYPERLINK(""x"")"');
});

test('the address leads back to the same moment, view and selection', async () => {
  await page.evaluate(() => { Plim.set({ t: 5000, tab: 'life', from: 4000, to: 6000, q: 'forward' }); Plim.stepBlock(1); });
  await settle(page, 500);
  const before = await state(page);
  const again = await open(leak + '#' + (await page.url()).split('#')[1]);
  const after = await state(again);
  for (const name of ['t', 'tab', 'from', 'to', 'q', 'sel']) { equal(after[name], before[name], name); }
  equal(again.complaints, []);
});

test('an address that makes no sense is survived', async () => {
  const odd = await open(leak + '#t=99999999&tab=nonsense&from=9&to=3&sel=block:1@2&stack=x&colour=%00&stream=77');
  equal((await state(odd)).t, 8000);
  equal(odd.complaints, []);
});

test('the map at the judged moment has the stranded and releasable bytes of the ledger, also in expandable segments', async () => {
  for (const file of [leak, llama, pools, expandable]) {
    const p = await open(file);
    const [map, ledger] = await p.evaluate(() => {
      const h = Plim.heapAt(Plim.shownMoment(Plim.data.meta.moments.judged));
      const of = (label) => [...document.querySelectorAll('#ledger tr')].filter((r) => r.cells[0].textContent === label)
        .map((r) => Number(r.cells[1].dataset.v))[0];
      return [[h.requested, h.stranded, h.releasable, h.reserved], [of('live'), of('stranded'), of('releasable'), of('reserved by the allocator')]];
    });
    equal(map, ledger, file);
    await p.context().close();
  }
});

test('no error in the console in all of this', async () => { equal(page.complaints, []); });

test('a real failure with the device known shows capacity, free bytes and the failing request', async () => {
  page = await open(llama);
  check(await page.locator('svg.waterfall .mark-label').count() === 1, 'no line for the capacity');
  check(await page.locator('svg.waterfall rect.o-request').count() === 1, 'no bar for the request');
  equal(page.complaints, []);
});

test('private pools have a strip of their own in the map', async () => {
  page = await open(pools);
  const groups = await page.evaluate(() => new Set(Plim.heapAt(Plim.state.t).segments.map((s) => s.pool)).size);
  check(groups > 1, 'only ' + groups + ' pool');
  equal(page.complaints, []);
});

await run();
