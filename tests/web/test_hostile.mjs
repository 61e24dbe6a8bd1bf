// SPDX-License-Identifier: Apache-2.0
/* Snapshots that want to be more than data, have nothing in them, or too much: the page stays a page. */
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { check, DATA, equal, folder, hostile, open, PROGRAM, report, run, settle, state, test } from './harness.mjs';

const LIMIT = 5000000;

/** Visit every view once. */
async function tour(page) {
  for (const tab of ['map', 'flame', 'life', 'blocks', 'events']) {
    await page.evaluate((name) => Plim.set({ tab: name }), tab);
    await settle(page, 50);
  }
  for (const way of ['site', 'kind', 'stream', 'blocks', 'ledger']) {
    await page.evaluate((name) => Plim.set({ stack: name }), way);
    await settle(page);
  }
  await page.evaluate(() => { Plim.stepBlock(1); Plim.set({ t2: 0 }); });
  await settle(page, 50);
}

test('markup in names stays text: nothing runs, nothing loads, nothing is parsed', async () => {
  const page = await open(report(hostile('markup')));
  await tour(page);
  equal(page.complaints, []);
  equal(page.requests.filter((u) => !u.startsWith('file:') && !u.startsWith('blob:')), []);
  equal(await page.evaluate(() => window.pwned), undefined);
  equal(await page.evaluate(() => document.querySelectorAll('img, iframe, object, embed, base, link, main script').length), 0);
  const seen = await page.evaluate(() => document.body.textContent);
  for (const text of ['<script>window.pwned = 1</script>', '"><img src=x onerror="window.pwned=2">']) {
    check(seen.includes(text), 'not shown as text: ' + text);
  }
});

test('the policy forbids what an injected script would need', async () => {
  const page = await open(report(hostile('markup')));
  const policy = await page.evaluate(() => document.querySelector('meta[http-equiv]').content);
  check(policy.startsWith("default-src 'none';"), policy);
  check(!/unsafe|http|\*|data:/.test(policy), policy);
  const ran = await page.evaluate(() => {
    const s = document.createElement('script');
    s.textContent = 'window.pwned = 9';
    document.body.append(s);
    const a = document.createElement('a');
    a.setAttribute('onclick', 'window.pwned = 10');
    document.body.append(a);
    a.click();
    return window.pwned;
  });
  equal(ran, undefined, 'an injected script ran');
  const fetched = await page.evaluate(() => fetch('http://127.0.0.1:9/').then(() => 'yes', () => 'no'));
  equal(fetched, 'no');
});

test('the file of a page holds no address of another host', async () => {
  const page = fs.readFileSync(report(path.join(DATA, 'attn-peak-full-history-t26.pickle')), 'utf8');
  const addresses = page.match(/(?:https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}/gi) || [];
  equal(addresses.filter((a) => !/w3\.org/.test(a)), []);
});

for (const kind of ['empty', 'edges', 'deep']) {
  test('a snapshot of the kind "' + kind + '" is shown without an error', async () => {
    const file = report(hostile(kind));
    check(fs.statSync(file).size < LIMIT, 'the file is too large');
    const page = await open(file);
    await tour(page);
    equal(page.complaints, []);
    equal(await page.evaluate(() => document.documentElement.dataset.ready), 'true');
  });
}

test('a snapshot without a device is refused by the program, not by the page', async () => {
  const out = path.join(folder, 'nothing.html');
  const result = spawnSync(PROGRAM, ['diagnose', hostile('nothing'), '--html', out]);
  check(result.status === 0 || (result.status === 65 && !fs.existsSync(out)), 'exit ' + result.status);
});

test('200,000 live blocks at once: small ones are drawn as runs, and the page says so', async () => {
  const file = report(hostile('many'));
  check(fs.statSync(file).size < LIMIT, 'the file has ' + fs.statSync(file).size + ' bytes');
  const page = await open(file);
  check((await page.locator('#aggregated').innerText()).includes('it holds'), 'nothing is said');
  await tour(page);
  equal(page.complaints, []);
  const live = await page.evaluate(() => Plim.heapAt(Plim.data.meta.moments.judged).requested);
  equal(live, 400 * 500 * 4096);
});

test('snapshots without stacks, without times and without a trace are shown', async () => {
  for (const name of ['tiny-no-history-t25.pickle', 'llm-state-only-16gib-t22.pickle', 'mosaic-synthetic-expandable.pickle']) {
    const page = await open(report(path.join(DATA, name)));
    await tour(page);
    equal(page.complaints, [], name);
    check(!(await page.locator('body').innerText()).includes('NaN'), 'NaN is shown for ' + name);
    check(!(await page.locator('body').innerText()).includes('undefined'), 'undefined is shown for ' + name);
    equal((await state(page)).tab, 'events');
  }
});

test('a page whose data are damaged says so and keeps its tables', async () => {
  const file = report(path.join(DATA, 'simulated/capacity_load.pickle'));
  const damaged = path.join(folder, 'damaged.html');
  fs.writeFileSync(damaged, fs.readFileSync(file, 'utf8').replace(/(id="plimsoll-data">.{2000}).{400}/, '$1'));
  const page = await open(damaged);
  equal(await page.evaluate(() => document.documentElement.dataset.ready), 'failed');
  check((await page.locator('#views').innerText()).includes('cannot be shown'), 'nothing is said');
  check(await page.locator('#ledger svg').count() === 1, 'the ledger is gone');
});

await run();
