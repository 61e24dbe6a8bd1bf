// SPDX-License-Identifier: Apache-2.0
/*
 * Flame graph and icicle of live bytes by stack, at the moment or as the difference of two moments. Outermost frames
 * are at the root. Width is bytes; in a difference it is the larger of both and the colour says grown or shrunk.
 */
'use strict';

(function () {
  const ROW = 18;
  const MOST_DEPTH = 80;
  let surface;
  let root = null;
  let focus = null;
  let boxes = [];
  let icicle = true;
  let note;
  let hint;
  let builtFor = '';

  function node(name, frame, parent) {
    return { name, frame, parent, a: 0, b: 0, site: -1, children: new Map() };
  }

  /** Live bytes at t by stack. */
  function bytesByStack(t, keep) {
    const { lives, rows } = Plim.liveAt(t);
    const byStack = new Map();
    if (lives !== Plim.data.blocks) {
      for (const r of rows) {
        if (keep === null || keep(lives, r)) { byStack.set(lives.stack[r], (byStack.get(lives.stack[r]) || 0) + lives.size[r]); }
      }
      return byStack;
    }
    const { dense, size } = lives;
    const sums = new Float64Array(Plim.data.stackIds.length);
    for (const r of rows) { if (keep === null || keep(lives, r)) { sums[dense[r]] += size[r]; } }
    sums.forEach((bytes, n) => { if (bytes > 0) { byStack.set(Plim.data.stackIds[n], bytes); } });
    return byStack;
  }

  /** The same of the earlier snapshot, of which there are sums only: of the filters only the search applies. */
  function earlierByStack() {
    const { stack, bytes } = Plim.data.earlier;
    const matches = Plim.searchStacks();
    return new Map(stack.map((s, i) => [s, bytes[i]]).filter(([s]) => matches(s)));
  }

  /** Add bytes by stack to the tree: side 'a' is the moment, 'b' what it is compared with. */
  function addStacks(byStack, side) {
    for (const [stack, bytes] of byStack) {
      let at = root;
      at[side] += bytes;
      const frames = Plim.frames(stack);
      if (frames.length === 0) { frames.push({ id: -1, name: '(no stack recorded)', file: '', line: 0 }); }
      for (let i = frames.length - 1; i >= 0; i--) {
        const f = frames[i];
        if (!at.children.has(f.id)) { at.children.set(f.id, node(Plim.frameText(f), f, at)); }
        at = at.children.get(f.id);
        at[side] += bytes;
      }
      at.site = Plim.siteOf(stack);
    }
  }

  const earlier = () => Plim.state.against === 'before' && Plim.data.earlier !== null;
  const comparing = () => earlier() || Plim.state.t2 !== null;
  const weight = (n) => (comparing() ? Math.max(n.a, n.b) : n.a);

  function build() {
    const t = Plim.shownMoment(Plim.state.t);
    const keep = Plim.filter();
    const others = Plim.state.t2 === null || earlier() ? '' : Plim.shownMoment(Plim.state.t2);
    const key = [t, others, Plim.state.against, Plim.filterKey(), Plim.remoteHeap ? Plim.remoteHeap.position : ''].join('|');
    if (key === builtFor) { return; }
    builtFor = key;
    root = node('all live bytes', null, null);
    if (earlier()) { addStacks(earlierByStack(), 'b'); }
    if (others !== '') { addStacks(bytesByStack(others, keep), 'b'); }
    addStacks(bytesByStack(t, keep), 'a');
    focus = root;
    note.textContent = words(t, others);
  }

  function words(t, others) {
    const moment = 'vent ' + Plim.count(t);
    const near = Plim.exactAt(Plim.state.t) ? '' : ', the nearest moment that this file holds in full';
    if (earlier()) { return 'E' + moment + ' (' + Plim.bytes(root.a) + ') against ' + Plim.data.meta.before + ' (' + Plim.bytes(root.b) + ')' + near; }
    if (others === '') { return 'Live bytes at e' + moment + ': ' + Plim.bytes(root.a) + near; }
    return 'E' + moment + ' (' + Plim.bytes(root.a) + ') against event ' + Plim.count(others) + ' (' + Plim.bytes(root.b) + ')' + near;
  }

  function colourOf(n) {
    if (comparing()) {
      const change = (n.a - n.b) / Math.max(1, Math.max(n.a, n.b));
      if (Math.abs(change) < 0.01) { return Plim.colours.other; }
      return change > 0 ? Plim.colours.stranded : Plim.colours.live;
    }
    const file = n.frame ? n.frame.file : n.name;
    let colour = colourOfFile.get(file);
    if (colour === undefined) {
      let h = 0;
      for (let i = 0; i < file.length; i++) { h = (h * 31 + file.charCodeAt(i)) | 0; }
      colour = Plim.hues[Math.abs(h) % Plim.hues.length];
      colourOfFile.set(file, colour);
    }
    return colour;
  }
  const colourOfFile = new Map();

  /** Boxes of all nodes wide enough to be seen. */
  function layout(width) {
    const out = [];
    const walk = (n, x, w, depth) => {
      out.push({ n, x, w, depth });
      if (depth >= MOST_DEPTH) { return; }
      const total = weight(n);
      let at = x;
      const children = [...n.children.values()].sort((p, q) => weight(q) - weight(p));
      for (const child of children) {
        const cw = total > 0 ? w * weight(child) / total : 0;
        if (cw >= 0.6) { walk(child, at, cw, depth + 1); }
        at += cw;
      }
    };
    const chain = [];
    for (let n = focus.parent; n; n = n.parent) { chain.unshift(n); }
    chain.forEach((n, i) => out.push({ n, x: 0, w: width, depth: i }));
    walk(focus, 0, width, chain.length);
    return out;
  }

  function draw(g, width, height) {
    if (!root) { return; }
    const selectedSite = Plim.state.sel && Plim.state.sel.kind === 'site' ? Plim.state.sel.site : -1;
    const focusDepth = depthOf(focus);
    for (const box of boxes) {
      const y = icicle ? box.depth * ROW : height - (box.depth + 1) * ROW;
      const colour = box.n === root ? Plim.colours.other : colourOf(box.n);
      g.fillStyle = colour;
      g.globalAlpha = box.depth < focusDepth ? 0.35 : 0.85;
      g.fillRect(box.x, y, Math.max(0.6, box.w - 0.6), ROW - 1);
      g.globalAlpha = 1;
      if (box.n.site === selectedSite && selectedSite >= 0) {
        g.strokeStyle = Plim.colours.select;
        g.lineWidth = 2;
        g.strokeRect(box.x + 1, y + 1, Math.max(1, box.w - 2), ROW - 3);
      }
      if (box.w > 40) {
        g.fillStyle = inkOn(colour);
        g.fillText(fitting(g, box.n.name, box.w - 6), box.x + 4, y + 13);
      }
    }
    if (weight(root) === 0) { g.fillStyle = Plim.colours.text; g.fillText('Nothing is live here, or nothing matches the filter.', 8, 40); }
  }

  /** As much of a text as fits into a width. Measured once for each text: a frame draws hundreds. */
  function fitting(g, text, width) {
    let w = widthOf.get(text);
    if (w === undefined) { w = g.measureText(text).width; widthOf.set(text, w); }
    if (w <= width) { return text; }
    let n = Math.floor(text.length * width / w);
    while (n > 0 && g.measureText(text.slice(0, n)).width > width) { n--; }
    return text.slice(0, n);
  }
  const widthOf = new Map();

  /** Black or white, whichever is readable on a colour "#rrggbb". */
  function inkOn(colour) {
    let ink = inks.get(colour);
    if (ink === undefined) {
      const [r, gr, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
      ink = 0.299 * r + 0.587 * gr + 0.114 * b > 125 ? '#000000' : '#ffffff';
      inks.set(colour, ink);
    }
    return ink;
  }
  const inks = new Map();

  function depthOf(n) { let d = 0; for (let p = n.parent; p; p = p.parent) { d++; } return d; }

  function refresh() {
    if (surface.canvas.clientWidth === 0) { return; }
    build();
    boxes = layout(surface.canvas.clientWidth);
    surface.resize(Math.max(60, (boxes.reduce((m, b) => Math.max(m, b.depth), 0) + 1) * ROW));
  }

  function boxAt(x, y) {
    const depth = Math.floor((icicle ? y : surface.height - y) / ROW);
    return boxes.find((b) => b.depth === depth && x >= b.x && x < b.x + b.w) || null;
  }

  function describe(n) {
    const share = ' (' + (100 * weight(n) / Math.max(1, weight(root))).toFixed(1) + ' %)';
    return !comparing() ? n.name + ': ' + Plim.bytes(n.a) + share
      : n.name + ': ' + Plim.bytes(n.a) + ', before ' + Plim.bytes(n.b) + ', change ' + Plim.bytes(n.a - n.b);
  }

  /** Go to a neighbour of the focused box with the keyboard. */
  function onKey(e) {
    const kids = focus ? [...focus.children.values()].sort((p, q) => weight(q) - weight(p)) : [];
    if (e.key === 'Enter' && kids.length > 0) { focus = kids[0]; } else if (e.key === 'Backspace' && focus.parent) { focus = focus.parent; } else { return; }
    e.preventDefault();
    e.stopPropagation();
    hint.textContent = describe(focus);
    refresh();
  }

  Plim.flameView = function () {
    surface = Plim.surface({ label: 'Flame graph of live bytes by stack; Enter goes in, Backspace goes out', height: 200, draw });
    note = Plim.el('p', { class: 'note', role: 'status' });
    hint = Plim.el('p', { class: 'status' }, '\u00a0');
    const canvas = surface.canvas;
    canvas.addEventListener('mousemove', (e) => {
      const box = boxAt(e.offsetX, e.offsetY);
      hint.textContent = box ? describe(box.n) : '\u00a0';
    });
    canvas.addEventListener('click', (e) => {
      const box = boxAt(e.offsetX, e.offsetY);
      if (!box) { return; }
      if (box.n.site >= 0) { Plim.selectSite(box.n.site); }
      focus = box.n;
      refresh();
    });
    canvas.addEventListener('keydown', onKey);
    new ResizeObserver(() => { if (root) { refresh(); } }).observe(canvas);
    const turn = Plim.el('button', { type: 'button', 'aria-pressed': 'false', onclick: () => {
      icicle = !icicle;
      turn.setAttribute('aria-pressed', String(!icicle));
      refresh();
    } }, 'Flames upwards');
    const view = Plim.el('div', {},
      Plim.el('div', { class: 'tools' }, turn,
        Plim.el('button', { type: 'button', onclick: () => { focus = root; refresh(); } }, 'Whole graph'),
        Plim.el('button', { type: 'button', onclick: () => Plim.set({ t2: comparing() ? null : Plim.state.t, against: '' }) }, 'Compare from here / stop comparing'),
        Plim.data.earlier ? Plim.el('button', { type: 'button', onclick: () => Plim.set({ t2: null, against: 'before' }) }, 'Against the earlier snapshot') : null,
        Plim.el('span', { class: 'note' }, 'Shift-click in the timeline sets the moment compared with.')),
      note, Plim.el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Flame graph, scrolls' }, canvas), hint);
    return { view, refresh };
  };
})();
