// SPDX-License-Identifier: Apache-2.0
/*
 * The device map: all segments at the moment in order of address, by pool and stream, each a strip whose length is its
 * size, wrapped like lines of text. Holes that live blocks pin are hatched; blocks that pin them have a border.
 */
'use strict';

(function () {
  const ROW = 20;
  const GAP = 4;
  const HEAD = 20;
  const MOST_HEIGHT = 16000;
  let surface;
  let box;
  let zoomLevel = 0; /* doublings of the map's length */
  /** Where the pieces lie, [n] each, from top to bottom; a piece that is wrapped has several. */
  const layout = { n: 0, x: new Float32Array(0), y: new Float32Array(0), w: new Float32Array(0), piece: new Uint32Array(0) };
  /** @type {any} */
  let heap = null;
  let legendBox;
  let note;

  /** Colour of a block by the chosen rule. @param {Dict} lives @param {number} row @param {number} t */
  Plim.blockColour = function (lives, row, t) {
    const c = Plim.colours;
    switch (Plim.state.colour) {
      case 'age': return lives.start[row] === 0 ? Plim.ramp(1) : Plim.ramp(1 - lives.start[row] / Math.max(1, t));
      case 'site': return Plim.siteColour(Plim.siteOfRow(lives, row));
      case 'kind': {
        const kind = Plim.categoryOf(lives.stack[row]);
        return kind === 0 ? c.other : Plim.hues[(kind - 1) % Plim.hues.length];
      }
      case 'stream': return Plim.hues[lives.stream[row] % Plim.hues.length];
      default: return lives.freed[row] <= t && t < lives.end[row] ? c.pending : c.live;
    }
  };

  /** The sites that hold most bytes for longest have a hue each. */
  const hueOfSite = new Map();
  Plim.siteColour = function (site) {
    if (hueOfSite.size === 0) {
      const sums = new Map();
      const b = Plim.data.blocks;
      for (let r = 0; r < b.addr.length; r++) {
        const life = Math.min(b.end[r], Plim.data.meta.events) - b.start[r] + 1;
        sums.set(b.site[r], (sums.get(b.site[r]) || 0) + b.size[r] * life);
      }
      [...sums.entries()].sort((a, b) => b[1] - a[1]).slice(0, Plim.hues.length)
        .forEach(([s], i) => hueOfSite.set(s, Plim.hues[i]));
      hueOfSite.set(-1, '');
    }
    return hueOfSite.get(site) || Plim.colours.other;
  };

  function holeColour(kind) {
    const c = Plim.colours;
    return kind === RELEASABLE ? c.releasable : kind === PRIVATE_FREE ? c.private : c.stranded;
  }

  /** Segments by pool and stream, largest group first. */
  function groups() {
    const by = new Map();
    heap.segments.forEach((s, index) => {
      const key = s.pool + '/' + s.stream;
      if (!by.has(key)) { by.set(key, { pool: s.pool, stream: s.stream, size: 0, live: 0, free: 0, list: [] }); }
      const group = by.get(key);
      group.size += s.size;
      group.live += s.live;
      group.free += s.free;
      group.list.push(index);
    });
    return [...by.values()].sort((a, b) => b.size - a.size);
  }

  /** Room for more places than there are. */
  function widen() {
    const room = Math.max(1024, layout.n * 2);
    for (const name of ['x', 'y', 'w', 'piece']) {
      const wider = new layout[name].constructor(room);
      wider.set(layout[name].subarray(0, layout.n));
      layout[name] = wider;
    }
  }

  function addPlace(x, y, w, piece) {
    if (layout.n === layout.x.length) { widen(); }
    layout.x[layout.n] = x;
    layout.y[layout.n] = y;
    layout.w[layout.n] = w;
    layout.piece[layout.n++] = piece;
  }

  /** Place all pieces for a width: fills `layout`, returns heads and the height. */
  function place(width) {
    const list = groups();
    const perByte = width * 10 * Math.pow(2, zoomLevel) / Math.max(1, heap.reserved);
    const heads = [];
    let y = 0;
    layout.n = 0;
    for (const group of list) {
      heads.push({ group, y });
      y += HEAD;
      let x = 0;
      for (const index of group.list) {
        const s = heap.segments[index];
        for (let i = s.first; i < s.first + s.n; i++) {
          let left = Math.max(heap.pieces.row[i] >= 0 ? 0.7 : 0.2, heap.pieces.size[i] * perByte);
          while (left > 0 && y < MOST_HEIGHT) {
            const w = Math.min(left, width - x);
            addPlace(x, y, w, i);
            left -= w;
            x += w;
            if (x >= width - 0.01) { x = 0; y += ROW + GAP; }
          }
        }
        x += 2;
        if (x >= width - 2) { x = 0; y += ROW + GAP; }
      }
      y += x > 0 ? ROW + GAP + 4 : 4;
    }
    return { heads, height: Math.max(60, Math.min(MOST_HEIGHT, y)) };
  }

  let placed = { heads: [], height: 60 };
  let placedFor = '';

  function hatch(g, x, y, w) {
    g.strokeStyle = Plim.colours.paper;
    g.lineWidth = 1;
    g.beginPath();
    for (let k = Math.ceil(x / 7) * 7; k < x + w; k += 7) {
      g.moveTo(k, y + ROW);
      g.lineTo(Math.min(k + 5, x + w), y);
    }
    g.stroke();
  }

  /** A live block that keeps more free bytes in its segment than live ones. */
  function pins(piece) {
    const s = heap.segments[heap.pieces.segment[piece]];
    return s.free > 0 && s.live < s.free && s.pool === 0;
  }

  /** A hole: one that cannot go back to the driver is hatched. */
  function drawHole(g, kind, x, y, w) {
    g.fillStyle = holeColour(kind);
    g.globalAlpha = kind === STRANDED ? 1 : 0.55;
    g.fillRect(x, y, w, ROW);
    g.globalAlpha = 1;
    if (kind === STRANDED && w > 6) { hatch(g, x, y, w); }
  }

  function drawBlock(g, piece, x, y, w, dim, t) {
    g.fillStyle = Plim.blockColour(heap.lives, heap.pieces.row[piece], t);
    g.globalAlpha = dim ? 0.15 : 1;
    g.fillRect(x, y, Math.max(0.6, w - (w > 3 ? 0.7 : 0)), ROW);
    g.globalAlpha = 1;
    if (!dim && pins(piece)) {
      g.fillStyle = Plim.colours.text;
      g.fillRect(x, y, Math.max(1, w), 2);
      g.fillRect(x, y + ROW - 2, Math.max(1, w), 2);
    }
  }

  function drawHeads(g, heads, width) {
    const m = Plim.data.meta;
    g.fillStyle = Plim.colours.text;
    for (const { group, y } of heads) {
      const pool = group.pool === 0 ? 'default pool' : 'private pool ' + m.pools[group.pool];
      const text = pool + ', stream ' + m.streams[group.stream] + ': ' + group.list.length + ' segments, ' +
        Plim.bytes(group.size) + ', ' + Plim.bytes(group.live) + ' live, ' + Plim.bytes(group.free) + ' free';
      g.fillText(text, 0, y + 14, width);
    }
  }

  /** The part of the layout that can be seen: [first, behind). Only that is drawn; scrolling draws again. */
  function visible() {
    if (Plim.printing) { return [0, layout.n]; }
    const ys = layout.y.subarray(0, layout.n);
    const top = box.scrollTop;
    return [Plim.lowerBound(ys, top - ROW), Plim.lowerBound(ys, top + box.clientHeight + ROW)];
  }

  function draw(g, width, height) {
    const t = heap.t;
    const keep = Plim.filter();
    const { x, y, w, piece } = layout;
    const { row, kind } = heap.pieces;
    const [first, behind] = visible();
    const chosen = [];
    drawHeads(g, placed.heads, width);
    for (let i = first; i < behind; i++) {
      const r = row[piece[i]];
      if (r < 0) { drawHole(g, kind[piece[i]], x[i], y[i], w[i]); continue; }
      drawBlock(g, piece[i], x[i], y[i], w[i], keep !== null && !keep(heap.lives, r), t);
      if (Plim.isSelected(heap.lives, r)) { chosen.push(i); }
    }
    g.strokeStyle = Plim.colours.select;
    g.lineWidth = 2.5;
    for (const i of chosen) { g.strokeRect(x[i], y[i] - 1, Math.max(2, w[i]), ROW + 2); }
    if (layout.n === 0) { g.fillText('No segments at this moment.', 8, Math.min(40, height / 2)); }
  }

  function refresh(names) {
    if (!surface.canvas.isConnected || surface.canvas.clientWidth === 0) { return; }
    heap = Plim.heapAt(Plim.shownMoment(Plim.state.t));
    const width = surface.canvas.clientWidth;
    const key = [heap.t, width, zoomLevel, heap.rows.length].join();
    if (key !== placedFor) {
      placedFor = key;
      placed = place(width);
      surface.resize(placed.height);
    }
    if (names.has('colour') || !legendBox.firstChild) { legend(); }
    note.textContent = summary();
    surface.redraw();
  }

  function summary() {
    const shown = heap.t === Plim.state.t ? '' : 'Shown at event ' + Plim.count(heap.t) + ', the nearest moment that this file holds in full. ';
    const m = Plim.data.meta;
    const merged = m.merged > 0 ? Plim.count(m.merged) + ' small blocks are drawn as runs' +
      (m.dropped > 0 ? ', ' + Plim.count(m.dropped) + ' are not drawn' : '') + '. ' : '';
    return shown + merged + heap.segments.length + ' segments, ' + Plim.bytes(heap.reserved) + ' reserved: ' +
      Plim.bytes(heap.live) + ' live in ' + Plim.count(heap.rows.length) + ' blocks, ' + Plim.bytes(heap.stranded) + ' stranded, ' +
      Plim.bytes(heap.releasable) + ' releasable.';
  }

  function legend() {
    const c = Plim.colours;
    const blocks = {
      state: [[c.live, 'live'], [c.pending, 'freed, waits for a stream']],
      age: [[Plim.ramp(0), 'new'], [Plim.ramp(0.5), 'older'], [Plim.ramp(1), 'oldest']],
      site: [[c.other, 'each of the twelve largest places has a colour; the rest']],
      kind: Plim.data.meta.categories.map((k, i) => [i === 0 ? c.other : Plim.hues[i - 1], k]),
      stream: Plim.data.meta.streams.slice(0, 12).map((s, i) => [Plim.hues[i % 12], 'stream ' + s]),
    };
    const holes = [[c.stranded, 'stranded (hatched; border: the block that pins it)'], [c.releasable, 'releasable'],
      [c.private, 'free in a private pool']];
    Plim.fill(legendBox, ...(blocks[Plim.state.colour] || blocks.state).concat(holes).map(([colour, label]) => {
      const key = Plim.el('i', { class: 'key' });
      key.style.background = colour;
      return Plim.el('li', {}, key, label);
    }));
  }

  /** Piece at a place of the canvas, or -1. */
  function pieceUnder(px, py) {
    const { x, y, w, piece } = layout;
    for (let i = Plim.lowerBound(y.subarray(0, layout.n), py - ROW); i < layout.n && y[i] <= py; i++) {
      if (py < y[i] + ROW && px >= x[i] && px < x[i] + Math.max(1, w[i])) { return piece[i]; }
    }
    return -1;
  }

  function describe(piece) {
    const p = heap.pieces;
    const s = heap.segments[p.segment[piece]];
    const where = Plim.address(p.addr[piece]) + ', ' + Plim.bytes(p.size[piece]);
    const row = p.row[piece];
    const segment = ' \u00b7 segment of ' + Plim.bytes(s.size) + ', ' + Plim.bytes(s.free) + ' free';
    if (row < 0) { return ['', '', 'stranded', 'releasable', 'free in a private pool'][p.kind[piece]] + ' ' + where + segment; }
    return where + ' \u00b7 ' + Plim.labelOf(heap.lives.stack[row]) + segment;
  }

  /** Select the next live block before or behind the selected one. */
  Plim.stepBlock = function (by) {
    if (!heap) { return; }
    const p = heap.pieces;
    let at = -1;
    for (let i = 0; i < p.n; i++) {
      if (p.row[i] >= 0 && Plim.isSelected(heap.lives, p.row[i])) { at = i; break; }
    }
    for (let i = at < 0 ? (by > 0 ? 0 : p.n - 1) : at + by; i >= 0 && i < p.n; i += by) {
      if (p.row[i] >= 0) { Plim.selectBlock(heap.lives, p.row[i]); return; }
    }
  };

  Plim.mapView = function () {
    surface = Plim.surface({ label: 'Device map; square brackets select the previous and next block', height: 200, draw });
    legendBox = Plim.el('ul', { class: 'legend', 'aria-label': 'Colours of the map' });
    note = Plim.el('p', { class: 'note', role: 'status' });
    const hint = Plim.el('p', { class: 'status' }, '\u00a0');
    surface.canvas.addEventListener('mousemove', (e) => {
      const piece = heap ? pieceUnder(e.offsetX, e.offsetY) : -1;
      hint.textContent = piece >= 0 ? describe(piece) : '\u00a0';
    });
    surface.canvas.addEventListener('click', (e) => {
      const piece = heap ? pieceUnder(e.offsetX, e.offsetY) : -1;
      const row = piece >= 0 ? heap.pieces.row[piece] : -1;
      if (row >= 0) { Plim.selectBlock(heap.lives, row); } else { Plim.set({ sel: null }); }
    });
    new ResizeObserver(() => { if (heap) { refresh(new Set()); } }).observe(surface.canvas);
    box = Plim.el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Device map, scrolls', onscroll: () => surface.redraw() }, surface.canvas);
    const button = (text, label, act) => Plim.el('button', { type: 'button', 'aria-label': label, onclick: act }, text);
    const zoom = (by) => { zoomLevel = Math.max(-2, Math.min(8, zoomLevel + by)); refresh(new Set()); };
    const view = Plim.el('div', {},
      Plim.el('div', { class: 'tools' },
        Plim.choice('Colour by', 'colour', [['state', 'state'], ['age', 'age'], ['site', 'place'], ['kind', 'kind (a guess)'], ['stream', 'stream']]),
        button('+', 'Larger', () => zoom(1)), button('\u2212', 'Smaller', () => zoom(-1))),
      note, box, hint, legendBox);
    return { view, refresh };
  };
})();
