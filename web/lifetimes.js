// SPDX-License-Identifier: Apache-2.0
/*
 * Size against lifetime: all allocations of the trace as a grid of counts (exact whatever the size of the trace), and
 * the blocks that the page knows singly as points on it. Points on the right edge were never freed: a leak suspect's
 * blocks make a horizontal line there, with one generation behind the other in the lower strip.
 */
'use strict';

(function () {
  const LEFT = 70;
  const BOTTOM = 40;
  const STRIP = 90;
  const AGES = 33;
  let surface;
  let strip;
  let hint;
  let points = { key: '', x: new Float32Array(0), y: new Float32Array(0) };

  let known = null;
  /** Sizes and lifetimes that occur, as powers of two. */
  function range() {
    if (known !== null) { return known; }
    const { count } = Plim.data.lifetimes;
    let low = 48;
    let high = 0;
    let oldest = 1;
    for (let i = 0; i < count.length; i++) {
      if (count[i] > 0) {
        const size = Math.floor(i / AGES);
        low = Math.min(low, size);
        high = Math.max(high, size);
        if (i % AGES < AGES - 1) { oldest = Math.max(oldest, i % AGES); }
      }
    }
    if (Plim.data.blocks.addr.length > 0 && low > high) { low = 8; high = 36; }
    known = { low: Math.min(low, high), high: high + 1, oldest: oldest + 2 };
    return known;
  }

  const lifeOf = (b, r) => Math.min(b.end[r], Plim.data.meta.events) - b.start[r] + 1;

  function drawGrid(g, width, height, m) {
    const { count } = Plim.data.lifetimes;
    let most = 1;
    for (const c of count) { most = Math.max(most, c); }
    g.fillStyle = Plim.colours.live;
    for (let i = 0; i < count.length; i++) {
      if (count[i] === 0) { continue; }
      const age = i % AGES === AGES - 1 ? m.oldest - 1 : i % AGES;
      g.globalAlpha = 0.08 + 0.42 * Math.log(1 + count[i]) / Math.log(1 + most);
      g.fillRect(LEFT + age * m.dx, m.yOf(Math.floor(i / AGES) + 1), m.dx - 1, m.dy - 1);
    }
    g.globalAlpha = 1;
  }

  function drawAxes(g, width, height, m) {
    g.fillStyle = Plim.colours.text;
    g.textAlign = 'right';
    const each = Math.max(1, Math.ceil(16 / m.dy));
    for (let s = m.low; s <= m.high; s += each) { g.fillText(Plim.bytes(Math.pow(2, s)), LEFT - 6, m.yOf(s) + 4); }
    g.textAlign = 'center';
    for (let a = 0; a < m.oldest - 1; a += Math.ceil(60 / m.dx)) {
      g.fillText(Plim.count(Math.pow(2, a)), LEFT + a * m.dx, height - BOTTOM + 16);
    }
    g.fillText('never freed', LEFT + (m.oldest - 0.5) * m.dx, height - BOTTOM + 16);
    g.fillText('lifetime in events', LEFT + (width - LEFT) / 2, height - BOTTOM + 32);
    g.textAlign = 'left';
  }

  function geometry(width, height) {
    const m = range();
    const dx = (width - LEFT - 6) / m.oldest;
    const dy = (height - BOTTOM - 8) / Math.max(1, m.high - m.low);
    return { ...m, dx, dy, yOf: (log) => height - BOTTOM - (log - m.low) * dy };
  }

  /** Where each block's point lies; made again only when the place it is drawn in changes. */
  function placePoints(m, width, height) {
    const key = [width, height, m.oldest, m.low, m.high].join('|');
    if (points.key === key) { return; }
    const b = Plim.data.blocks;
    const n = b.addr.length;
    const count = Math.max(1, Plim.data.meta.events);
    points = { key, x: new Float32Array(n).fill(-100), y: new Float32Array(n).fill(-100) };
    for (let r = 0; r < n; r++) {
      if (b.requested[r] <= 0) { continue; }
      const open = b.end[r] === NONE;
      points.x[r] = LEFT + (open ? m.oldest - 1 + 0.15 + 0.7 * b.start[r] / count : Math.log2(lifeOf(b, r))) * m.dx;
      points.y[r] = m.yOf(Math.log2(b.requested[r]));
    }
  }

  const crowd = Plim.picture(() => surface.redraw());

  function beginCrowd(width, height) {
    const b = Plim.data.blocks;
    const mask = Plim.mask();
    const raster = Plim.raster(width, height);
    const row = (r) => {
      if (mask !== null && !mask[r]) { return; }
      raster.rect(points.x[r] - 1, points.y[r] - 1, 2, 2, raster.ink(Plim.siteColour(b.site[r])));
    };
    return { raster, n: b.addr.length, row };
  }

  function drawPoints(g, m, width, height) {
    const b = Plim.data.blocks;
    const chosen = Plim.state.sel !== null;
    placePoints(m, width, height);
    crowd.want([points.key, Plim.filterKey(), Plim.theme].join('|'), () => beginCrowd(width, height));
    if (crowd.shown !== null) {
      g.globalAlpha = chosen ? 0.3 : 0.75;
      g.drawImage(crowd.shown.raster.canvas, 0, 0);
      g.globalAlpha = 1;
    }
    if (!chosen) { return; }
    const mask = Plim.mask();
    g.fillStyle = Plim.colours.select;
    for (let r = 0; r < b.addr.length; r++) {
      if (Plim.isSelected(b, r) && (mask === null || mask[r])) { g.fillRect(points.x[r] - 2.5, points.y[r] - 2.5, 5, 5); }
    }
  }

  /** Places whose generations are shown: the selected one, else the leak suspects; none stands for all. */
  function wantedSites() {
    const sel = Plim.state.sel;
    if (!sel) { return new Set(Plim.data.meta.suspects); }
    if (sel.kind === 'site') { return new Set([sel.site]); }
    const row = Plim.selectedRow();
    return new Set(row >= 0 ? [Plim.data.blocks.site[row]] : []);
  }

  /** Births of the blocks that are live at the moment, for the selected site or the suspects: generations. */
  function drawGenerations(g, width, height) {
    const { lives, rows } = Plim.liveAt(Plim.shownMoment(Plim.state.t));
    const sel = Plim.state.sel;
    const wanted = wantedSites();
    const top = height - STRIP + 14;
    const bins = new Float64Array(Math.max(1, Math.floor(width - LEFT - 8)));
    let most = 1;
    for (const r of rows) {
      if (wanted.size > 0 && !wanted.has(Plim.siteOfRow(lives, r))) { continue; }
      const x = Math.min(bins.length - 1, Math.floor(lives.start[r] / Math.max(1, Plim.data.meta.events) * bins.length));
      bins[x] += lives.size[r];
      most = Math.max(most, bins[x]);
    }
    g.fillStyle = Plim.colours.text;
    const what = wanted.size === 0 ? 'all blocks' : sel ? 'the selected place' : 'the leak suspects';
    g.fillText('When the live bytes of ' + what + ' were allocated (highest bar: ' + Plim.bytes(most) + ')', LEFT, top - 2);
    g.fillStyle = wanted.size > 0 ? Plim.colours.stranded : Plim.colours.live;
    for (let x = 0; x < bins.length; x++) {
      if (bins[x] > 0) {
        const h = Math.max(1.5, bins[x] / most * (STRIP - 24));
        g.fillRect(LEFT + x, height - h - 4, 1.5, h);
      }
    }
    g.fillStyle = Plim.colours.line;
    g.fillRect(LEFT, height - 4, width - LEFT - 8, 1);
  }

  function draw(g, width, height) {
    const m = geometry(width, height);
    drawGrid(g, width, height, m);
    drawAxes(g, width, height, m);
    drawPoints(g, m, width, height);
  }

  /** Row of the point next to a place, or -1 when none is near. */
  function nearest(x, y) {
    let best = -1;
    let least = 100;
    for (let r = 0; r < points.x.length; r++) {
      const d = (points.x[r] - x) * (points.x[r] - x) + (points.y[r] - y) * (points.y[r] - y);
      if (d < least) { least = d; best = r; }
    }
    return best;
  }

  Plim.lifetimesView = function () {
    surface = Plim.surface({ label: 'Size of each allocation against its lifetime', height: 370, draw });
    strip = Plim.surface({ label: 'When the live bytes of the selected place were allocated', height: STRIP, draw: drawGenerations });
    hint = Plim.el('p', { class: 'status' }, '\u00a0');
    surface.canvas.addEventListener('mousemove', (e) => {
      const r = nearest(e.offsetX, e.offsetY);
      const b = Plim.data.blocks;
      hint.textContent = r >= 0 ? Plim.bytes(b.requested[r]) + ', lived ' + Plim.count(lifeOf(b, r)) + ' events' +
        (b.end[r] === NONE ? ' and still does' : '') + ' \u00b7 ' + Plim.labelOf(b.stack[r]) : '\u00a0';
    });
    surface.canvas.addEventListener('click', (e) => {
      const r = nearest(e.offsetX, e.offsetY);
      if (r >= 0) { Plim.selectBlock(Plim.data.blocks, r); } else { Plim.set({ sel: null }); }
    });
    const view = Plim.el('div', {},
      Plim.el('p', { class: 'note' }, 'Shade: all allocations of the trace, counted. Points: blocks known singly, in the colour of their place.'),
      surface.canvas, hint, strip.canvas);
    const refresh = (names) => {
      strip.redraw();
      if (names.size > 1 || !names.has('t')) { surface.redraw(); }
    };
    return { view, refresh };
  };
})();
