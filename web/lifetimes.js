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
  let points = { x: new Float32Array(0), y: new Float32Array(0) };

  function range() {
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
    const b = Plim.data.blocks;
    for (let r = 0; r < b.addr.length && low > high; r++) { low = 8; high = 36; }
    return { low: Math.min(low, high), high: high + 1, oldest: oldest + 2 };
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

  function drawPoints(g, m, keep, width, height) {
    const b = Plim.data.blocks;
    const chosen = Plim.state.sel !== null;
    const raster = Plim.raster(width, height);
    const late = [];
    const count = Math.max(1, Plim.data.meta.events);
    points = { x: new Float32Array(b.addr.length).fill(-100), y: new Float32Array(b.addr.length) };
    for (let r = 0; r < b.addr.length; r++) {
      if (b.requested[r] <= 0 || (keep && !keep(b, r))) { continue; }
      const open = b.end[r] === NONE;
      points.x[r] = LEFT + (open ? m.oldest - 1 + 0.15 + 0.7 * b.start[r] / count : Math.log2(lifeOf(b, r))) * m.dx;
      points.y[r] = m.yOf(Math.log2(b.requested[r]));
      if (chosen && Plim.isSelected(b, r)) { late.push(r); continue; }
      raster.rect(points.x[r] - 1, points.y[r] - 1, 2, 2, raster.ink(Plim.siteColour(b.site[r])));
    }
    raster.done();
    g.globalAlpha = chosen ? 0.3 : 0.75;
    g.drawImage(raster.canvas, 0, 0);
    g.globalAlpha = 1;
    g.fillStyle = Plim.colours.select;
    for (const r of late) { g.fillRect(points.x[r] - 2.5, points.y[r] - 2.5, 5, 5); }
  }

  /** Births of the blocks that are live at the moment, for the selected site or the suspects: generations. */
  function drawGenerations(g, width, height) {
    const heap = Plim.heapAt(Plim.shownMoment(Plim.state.t));
    const sel = Plim.state.sel;
    const suspects = new Set(Plim.data.meta.suspects);
    const wanted = sel && sel.kind === 'site' ? new Set([sel.site])
      : sel ? new Set([Plim.siteOf(heap.lives.stack[heap.rows.find((r) => Plim.isSelected(heap.lives, r)) || 0] || 0)]) : suspects;
    const top = height - STRIP + 14;
    const bins = new Float64Array(Math.max(1, Math.floor(width - LEFT - 8)));
    let most = 1;
    for (const r of heap.rows) {
      if (wanted.size > 0 && !wanted.has(Plim.siteOf(heap.lives.stack[r]))) { continue; }
      const x = Math.min(bins.length - 1, Math.floor(heap.lives.start[r] / Math.max(1, Plim.data.meta.events) * bins.length));
      bins[x] += heap.lives.size[r];
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
    drawPoints(g, m, Plim.filter(), width, height);
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
