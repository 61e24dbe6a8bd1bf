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
  let hint;
  let points = [];

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
      g.fillText(Plim.count(Math.pow(2, a)), LEFT + a * m.dx, height - STRIP - BOTTOM + 16);
    }
    g.fillText('never freed', LEFT + (m.oldest - 0.5) * m.dx, height - STRIP - BOTTOM + 16);
    g.fillText('lifetime in events', LEFT + (width - LEFT) / 2, height - STRIP - BOTTOM + 32);
    g.textAlign = 'left';
  }

  function geometry(width, height) {
    const m = range();
    const dx = (width - LEFT - 6) / m.oldest;
    const dy = (height - STRIP - BOTTOM - 8) / Math.max(1, m.high - m.low);
    return { ...m, dx, dy, yOf: (log) => height - STRIP - BOTTOM - (log - m.low) * dy };
  }

  function drawPoints(g, m, keep) {
    const b = Plim.data.blocks;
    const chosen = Plim.state.sel !== null;
    points = [];
    for (let r = 0; r < b.addr.length; r++) {
      if (b.requested[r] <= 0 || (keep && !keep(b, r))) { continue; }
      const open = b.end[r] === NONE;
      const x = LEFT + (open ? m.oldest - 1 + 0.15 + 0.7 * b.start[r] / Math.max(1, Plim.data.meta.events)
        : Math.log2(lifeOf(b, r))) * m.dx;
      const y = m.yOf(Math.log2(b.requested[r]));
      const selected = chosen && Plim.isSelected(b, r);
      points.push({ x, y, r });
      g.fillStyle = selected ? Plim.colours.select : Plim.siteColour(b.site[r]);
      g.globalAlpha = selected ? 1 : chosen ? 0.25 : 0.6;
      const size = selected ? 5 : 2;
      g.fillRect(x - size / 2, y - size / 2, size, size);
    }
    g.globalAlpha = 1;
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
    drawPoints(g, m, Plim.filter());
    drawGenerations(g, width, height);
  }

  function nearest(x, y) {
    let best = null;
    let least = 100;
    for (const p of points) {
      const d = (p.x - x) * (p.x - x) + (p.y - y) * (p.y - y);
      if (d < least) { least = d; best = p; }
    }
    return best;
  }

  Plim.lifetimesView = function () {
    surface = Plim.surface({ label: 'Size of each allocation against its lifetime', height: 460, draw });
    hint = Plim.el('p', { class: 'status' }, '\u00a0');
    surface.canvas.addEventListener('mousemove', (e) => {
      const p = nearest(e.offsetX, e.offsetY);
      const b = Plim.data.blocks;
      hint.textContent = p ? Plim.bytes(b.requested[p.r]) + ', lived ' + Plim.count(lifeOf(b, p.r)) + ' events' +
        (b.end[p.r] === NONE ? ' and still does' : '') + ' \u00b7 ' + Plim.labelOf(b.stack[p.r]) : '\u00a0';
    });
    surface.canvas.addEventListener('click', (e) => {
      const p = nearest(e.offsetX, e.offsetY);
      if (p) { Plim.selectBlock(Plim.data.blocks, p.r); } else { Plim.set({ sel: null }); }
    });
    const view = Plim.el('div', {},
      Plim.el('p', { class: 'note' }, 'Shade: all allocations of the trace, counted. Points: blocks known singly, in the colour of their place.'),
      surface.canvas, hint);
    return { view, refresh: () => surface.redraw() };
  };
})();
