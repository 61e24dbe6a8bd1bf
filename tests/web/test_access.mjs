// SPDX-License-Identifier: Apache-2.0
/* Accessibility: axe-core finds nothing in any view, light or dark; what can be clicked can be reached by keys; print. */
import path from 'node:path';
import { check, DATA, equal, open, report, run, settle, test, violations } from './harness.mjs';

const file = report(path.join(DATA, 'simulated/leak_list.pickle.xz'));

for (const dark of [false, true]) {
  for (const tab of ['map', 'flame', 'life', 'blocks', 'events']) {
    test('axe-core finds nothing in the view "' + tab + '", ' + (dark ? 'dark' : 'light'), async () => {
      const page = await open(file + '#tab=' + tab + '&sel=site:1', { dark });
      await settle(page, 50);
      equal(await violations(page), []);
      await page.context().close();
    });
  }
}

test('every control can be reached with the Tab key and shows where the focus is', async () => {
  const page = await open(file);
  const wanted = await page.evaluate(() => [...document.querySelectorAll('main button, main select, main input, main canvas, summary')]
    .filter((e) => e.tabIndex >= 0 && e.checkVisibility()).length);
  const seen = new Set();
  let unmarked = 0;
  for (let i = 0; i < 400; i++) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      if (!e || e === document.body) { return null; }
      e.dataset.seen = e.dataset.seen || String(Math.random());
      const style = getComputedStyle(e);
      return [e.dataset.seen, e.matches('main button, main select, main input, main canvas, summary'), style.outlineStyle !== 'none'];
    });
    if (at === null) { break; }
    if (at[1]) { seen.add(at[0]); unmarked += at[2] ? 0 : 1; }
  }
  equal(seen.size, wanted);
  equal(unmarked, 0, 'elements without a visible focus');
});

test('the picture of each drawing has words for screen readers', async () => {
  const page = await open(file);
  const labels = await page.evaluate(() => [...document.querySelectorAll('canvas, svg')].map((e) => e.getAttribute('aria-label') || ''));
  check(labels.length >= 3 && labels.every((l) => l.length > 10), labels.join('|'));
});

test('light and dark differ, and follow the preference without a reload', async () => {
  const page = await open(file);
  const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor + Plim.colours.paper);
  const light = await colour();
  await page.emulateMedia({ colorScheme: 'dark' });
  await settle(page, 50);
  check(await colour() !== light, 'the colours did not change');
});

test('printed, the controls are gone and the tables whole', async () => {
  const page = await open(file);
  await page.emulateMedia({ media: 'print' });
  equal(await page.locator('#moment').isVisible(), false);
  equal(await page.locator('#blame table').isVisible(), true);
  equal(await page.evaluate(() => getComputedStyle(document.querySelector('.wide')).maxHeight), 'none');
});

test('on paper the colours are those of paper, in the drawings too, and the whole map is there', async () => {
  const page = await open(file, { dark: true });
  for (let i = 0; i < 4; i++) { await page.click('#panel-map button[aria-label=Larger]'); }
  await settle(page, 50);
  const [tall, ink] = await page.evaluate(() => [document.querySelector('#panel-map canvas').clientHeight, Plim.colours.live]);
  check(tall > 700, 'the map is only ' + tall + ' high');
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  await settle(page, 50);
  const seen = await page.evaluate(() => {
    const c = document.querySelector('#panel-map canvas');
    const strip = c.getContext('2d').getImageData(0, c.height - 60, c.width, 50).data;
    let drawn = 0;
    for (let i = 3; i < strip.length; i += 4) { drawn += strip[i] > 0 ? 1 : 0; }
    return [getComputedStyle(document.body).backgroundColor, Plim.colours.live, drawn > 0];
  });
  check(seen[1] !== ink, 'the drawings keep the colours of the screen');
  equal([seen[0], seen[2]], ['rgb(255, 255, 255)', true]);
});

test('on a narrow window nothing is wider than the window', async () => {
  const page = await open(file);
  await page.setViewportSize({ width: 700, height: 900 });
  await settle(page, 100);
  check(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), 'it scrolls sideways');
});

await run();
