// SPDX-License-Identifier: Apache-2.0
/*
 * Pictures of the views against those in golden/, which a person has looked at. A picture may differ in a few pixels in
 * a hundred: other versions of the browser and of fonts draw letters a little differently.
 * PLIMSOLL_REFRESH=1 writes them anew: look at them before committing.
 */
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { check, DATA, difference, open, report, run, settle, test } from './harness.mjs';

const GOLDEN = path.join(path.dirname(fileURLToPath(import.meta.url)), 'golden');
const MOST = 0.03; /* share of pixels */
const mixed = report(path.join(DATA, 'simulated/mixed_lifetimes.pickle.xz'));
const llama = report(path.join(DATA, 'simulated/hf-llama8b-oom-24g.pickle'), '--device-memory', '24GiB');

/** name, file, place in it, element, dark */
const PICTURES = [
  ['ledger', llama, '', '#ledger svg'],
  ['timeline', mixed, '#t=4000', '#timeline canvas'],
  ['timeline-dark', mixed, '#t=4000', '#timeline canvas', true],
  ['timeline-zoomed', mixed, '#t=4000&from=3900&to=4100', '#timeline canvas'],
  ['timeline-blocks', mixed, '#t=4000&from=3000&to=5000&stack=blocks', '#timeline canvas'],
  ['map', mixed, '#t=7350', '#panel-map canvas'],
  ['map-age', llama, '#colour=age', '#panel-map canvas'],
  ['flame', llama, '#tab=flame', '#panel-flame canvas'],
  ['lifetimes', mixed, '#tab=life', '#panel-life canvas'],
];

for (const [name, file, place, element, dark] of PICTURES) {
  test('the picture "' + name + '" looks as it did', async () => {
    const page = await open(file + place, { dark });
    await settle(page, 100);
    const picture = await page.locator(element).first().screenshot();
    const golden = path.join(GOLDEN, name + '.png');
    if (process.env.PLIMSOLL_REFRESH) { fs.writeFileSync(golden, picture); }
    const share = await difference(page, picture, fs.readFileSync(golden));
    if (share > MOST && process.env.PLIMSOLL_SEEN) { fs.writeFileSync(path.join(process.env.PLIMSOLL_SEEN, name + '.png'), picture); }
    check(share <= MOST, (100 * share).toFixed(1) + ' % of the pixels differ');
    await page.context().close();
  });
}

test('the comparison itself sees a difference', async () => {
  const page = await open(mixed);
  const a = await page.locator('#timeline canvas').screenshot();
  await page.evaluate(() => Plim.set({ stack: 'site' }));
  await settle(page, 50);
  const b = await page.locator('#timeline canvas').screenshot();
  check(await difference(page, a, b) > MOST, 'two different pictures count as the same');
  check(await difference(page, a, a) === 0, 'a picture differs from itself');
});

await run();
