// SPDX-License-Identifier: Apache-2.0
/*
 * Pictures of the views against those in golden/, which a person has looked at. A picture may differ in a few pixels in
 * a hundred: other versions of the browser and of fonts draw letters a little differently.
 * PLIMSOLL_REFRESH=1 writes them anew: look at them before committing.
 */
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { check, DATA, difference, open, pageOf, report, run, settle, test } from './harness.mjs';

const GOLDEN = path.join(path.dirname(fileURLToPath(import.meta.url)), 'golden');
const MOST = 0.03; /* share of pixels */
const mixed = report(path.join(DATA, 'simulated/mixed_lifetimes.pickle.xz'));
const tuned = pageOf('tune', path.join(DATA, 'simulated/hf-llama8b-oom-24g.pickle'), '--device-memory', '24GiB');
const diffed = pageOf('diff', path.join(DATA, 'simulated/healthy.pickle.xz'), path.join(DATA, 'simulated/leak_list.pickle.xz'));
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
  ['flame-difference', diffed, '', '#panel-flame canvas'],
  ['tune-stranded', tuned, '', '#tune svg'],
  ['lifetimes', mixed, '#tab=life', '#panel-life canvas'],
];

/** A picture of an element that does not depend on where in the page it is (a fraction of a pixel moves all letters). */
async function pictureOf(page, selector) {
  const data = await page.evaluate((wanted) => {
    const e = document.querySelector(wanted);
    if (!(e instanceof HTMLCanvasElement)) {
      Object.assign(e.style, { position: 'fixed', left: '0', top: '0', width: '1000px', zIndex: '99', background: 'var(--paper)' });
      return null;
    }
    const copy = new OffscreenCanvas(e.width, e.height);
    const g = copy.getContext('2d');
    g.fillStyle = Plim.colours.paper;
    g.fillRect(0, 0, e.width, e.height);
    g.drawImage(e, 0, 0);
    return copy.convertToBlob({ type: 'image/png' }).then((blob) => blob.arrayBuffer()).then((b) => Array.from(new Uint8Array(b)));
  }, selector);
  return data ? Buffer.from(data) : page.locator(selector).first().screenshot();
}

for (const [name, file, place, element, dark] of PICTURES) {
  test('the picture "' + name + '" looks as it did', async () => {
    const page = await open(file + place, { dark });
    await settle(page, 100);
    const picture = await pictureOf(page, element);
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
