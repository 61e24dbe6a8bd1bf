// SPDX-License-Identifier: Apache-2.0
/*
 * The timeline: where the bytes were at each event, against the capacity; or the same bytes by place, kind or
 * stream; or each block as a rectangle over its life. Wheel zooms, dragging pans, a click sets the moment.
 */
'use strict';

(function () {
  const LEFT = 70;
  const SPANS = 14; /* height of the lane with annotations */
  let TOP = 16;
  const BOTTOM = 44;
  const LAYERS = [
    ['live', 'live'], ['rounding', 'rounding'], ['private', 'private pools, free'], ['stranded', 'stranded'],
    ['releasable', 'releasable'],
  ];
  let surface;
  /** @type {Dict|null} the series from the server for the present window */
  let remote = null;
  let drag = null;
  let status;

  const plotWidth = () => surface.width - LEFT - 8;
  const xOf = (position) => LEFT + (position - Plim.state.from) / (Plim.state.to - Plim.state.from) * plotWidth();
  const positionAt = (x) => Plim.state.from + (x - LEFT) / plotWidth() * (Plim.state.to - Plim.state.from);

  /** The finest series that covers the window. */
  function bestSeries(from, to) {
    let best = Plim.data.series[0];
    for (const s of Plim.data.series.concat(remote ? [remote] : [])) {
      if (s.range[0] <= Math.max(0, from) && s.range[1] >= Math.min(to, Plim.data.meta.events) &&
          s.range[2] < best.range[2]) {
        best = s;
      }
    }
    return best;
  }

  /** Bytes outside the allocator, the same all along: a snapshot knows them only once. */
  function outside() {
    const m = Plim.data.meta;
    return (m.process_other || 0) + (m.other_processes || 0) + (m.driver_reserved || 0);
  }

  /** For each pixel column the bin with most bytes allocated: index, or -1. */
  function columnsOf(series, width) {
    const { from, to } = Plim.state;
    const out = new Int32Array(width).fill(-1);
    const [start, , step] = series.range;
    const n = series.live.length;
    const first = Math.max(0, Math.floor((from - start) / step) - 1);
    const last = Math.min(n - 1, Math.ceil((to - start) / step));
    for (let i = first; i <= last; i++) {
      const left = Math.max(0, Math.floor((start + i * step - from) / (to - from) * width));
      const right = Math.min(width - 1, Math.ceil((start + (i + 1) * step - from) / (to - from) * width) - 1);
      for (let x = left; x <= right; x++) {
        const old = out[x];
        if (old < 0 || series.live[i] + series.rounding[i] > series.live[old] + series.rounding[old]) { out[x] = i; }
      }
    }
    return out;
  }

  /** Layers of the ledger: [name, label, Float64Array of bytes by column]. */
  function ledgerLayers(width) {
    const series = bestSeries(Plim.state.from, Plim.state.to);
    const columns = columnsOf(series, width);
    const layers = [];
    if (outside() > 0) { layers.push(['external', 'outside the allocator', new Float64Array(width).fill(outside())]); }
    for (const [name, label] of LAYERS) {
      layers.push([name, label, Float64Array.from(columns, (i) => (i < 0 ? NaN : series[name][i]))]);
    }
    return { series, columns, layers };
  }

  /** Group of each row by each way, as numbers from 0 on: {of, names}. Made once. */
  const GROUP_OF = {
    site: (b, r) => b.site[r],
    kind: (b, r) => Plim.categoryOf(b.stack[r]),
    stream: (b, r) => b.stream[r],
  };
  const groupsBy = new Map();
  function groupsOf(way) {
    if (!groupsBy.has(way)) {
      const b = Plim.data.blocks;
      const numbers = new Map();
      const of = new Uint32Array(b.addr.length);
      for (let r = 0; r < of.length; r++) {
        const g = GROUP_OF[way](b, r);
        let n = numbers.get(g);
        if (n === undefined) { n = numbers.size; numbers.set(g, n); }
        of[r] = n;
      }
      groupsBy.set(way, { of, names: [...numbers.keys()] });
    }
    return groupsBy.get(way);
  }

  /** Place of each row among the twelve groups that hold most bytes for longest; kept until the filter changes. */
  let grouped = { key: '', places: new Uint8Array(0), top: [] };
  const HIDDEN = 255;

  function groupRows(way) {
    const b = Plim.data.blocks;
    const key = way + '|' + Plim.filterKey();
    if (grouped.key === key) { return grouped; }
    const mask = Plim.mask();
    const { of, names } = groupsOf(way);
    const totals = new Float64Array(names.length);
    for (let r = 0; r < of.length; r++) {
      if (mask === null || mask[r]) { totals[of[r]] += b.size[r] * (Math.min(Plim.data.meta.events, b.end[r]) - b.start[r] + 1); }
    }
    const top = [...totals.keys()].filter((n) => totals[n] > 0).sort((x, y) => totals[y] - totals[x]).slice(0, Plim.hues.length);
    const placeOf = new Uint8Array(names.length).fill(top.length);
    top.forEach((n, i) => { placeOf[n] = i; });
    const places = new Uint8Array(of.length);
    for (let r = 0; r < of.length; r++) { places[r] = mask === null || mask[r] ? placeOf[of[r]] : HIDDEN; }
    grouped = { key, places, top: top.map((n) => names[n]) };
    return grouped;
  }

  /** Sums of blocks by group over the columns: each block adds at its start and takes away at its end. */
  function groupLayers(width, way, labelOf) {
    const { from, to } = Plim.state;
    const b = Plim.data.blocks;
    const { places, top } = groupRows(way);
    const sums = [...top, null].map(() => new Float64Array(width + 1));
    const scale = width / (to - from);
    for (let r = 0; r < places.length; r++) {
      if (places[r] === HIDDEN || b.end[r] <= from || b.start[r] > to) { continue; }
      const sum = sums[places[r]];
      const left = Math.max(0, Math.floor((b.start[r] - from) * scale));
      const right = Math.min(width, Math.max(left + 1, Math.floor((b.end[r] - from) * scale)));
      sum[left] += b.size[r];
      sum[right] -= b.size[r];
    }
    for (const sum of sums) { for (let x = 1; x < width; x++) { sum[x] += sum[x - 1]; } }
    const layers = top.map((g, i) => [Plim.hues[i], labelOf(g), sums[i].subarray(0, width)]);
    layers.push(['other', 'the rest', sums[top.length].subarray(0, width)]);
    return layers;
  }

  function currentLayers(width, ledger) {
    const m = Plim.data.meta;
    switch (Plim.state.stack) {
      case 'site': return groupLayers(width, 'site', (g) => Plim.sites.get(g) || '(no stack recorded)');
      case 'kind': return groupLayers(width, 'kind', (g) => m.categories[g]);
      case 'stream': return groupLayers(width, 'stream', (g) => 'stream ' + m.streams[g]);
      default: return ledger.layers;
    }
  }

  function highest(layers, width) {
    let most = 1;
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (const layer of layers) { sum += layer[2][x] || 0; }
      most = Math.max(most, sum);
    }
    return most;
  }

  function drawLayers(g, layers, width, height, scale) {
    const base = new Float64Array(width);
    for (const [colour, , values] of layers) {
      g.fillStyle = Plim.colours[colour] || colour;
      g.beginPath();
      g.moveTo(LEFT, height - BOTTOM - base[0] * scale);
      for (let x = 0; x < width; x++) {
        const y = height - BOTTOM - (base[x] + (values[x] || 0)) * scale;
        g.lineTo(LEFT + x, y);
        g.lineTo(LEFT + x + 1, y);
      }
      for (let x = width - 1; x >= 0; x--) {
        const y = height - BOTTOM - base[x] * scale;
        g.lineTo(LEFT + x + 1, y);
        g.lineTo(LEFT + x, y);
        base[x] += values[x] || 0;
      }
      g.fill();
    }
  }

  function drawAxes(g, width, height, most, scale) {
    const c = Plim.colours;
    const { from, to } = Plim.state;
    g.textAlign = 'right';
    for (const v of Plim.ticks(0, most, 6, 2)) {
      const y = height - BOTTOM - v * scale;
      g.fillStyle = c.line;
      g.fillRect(LEFT, y, width, 1);
      g.fillStyle = c.text;
      g.fillText(Plim.bytes(v), LEFT - 6, y + 4);
    }
    const span = Plim.timeAt(to) - Plim.timeAt(from);
    let free = 0; /* no text may begin before it */
    for (const p of Plim.ticks(from, to, Math.max(2, width / 110), 10)) {
      const time = Plim.timeAt(p);
      const words = [Plim.count(p), Number.isFinite(time) ? '+' + Plim.duration(time, span) : ''];
      const wide = Math.max(...words.map((w) => g.measureText(w).width));
      const left = Math.min(xOf(p) - wide / 2, LEFT + width + 8 - wide);
      g.fillStyle = c.line;
      g.fillRect(xOf(p), height - BOTTOM, 1, 5);
      if (left < free) { continue; }
      free = left + wide + 8;
      g.textAlign = 'center';
      g.fillStyle = c.text;
      g.fillText(words[0], left + wide / 2, height - BOTTOM + 17);
      g.fillStyle = c.faint;
      g.fillText(words[1], left + wide / 2, height - BOTTOM + 31);
    }
    g.textAlign = 'left';
  }

  function line(g, y, width, colour, label) {
    g.strokeStyle = colour;
    g.setLineDash([6, 4]);
    g.beginPath();
    g.moveTo(LEFT, y);
    g.lineTo(LEFT + width, y);
    g.stroke();
    g.setLineDash([]);
    Plim.tag(g, label, LEFT + width / 2, y + 13, LEFT + width);
  }

  /** Ticks below the plot where segments came and went, retries and failures above it. */
  function drawMarkers(g, width, height, ledger) {
    const { series, columns } = ledger;
    const c = Plim.colours;
    for (let x = 0; x < width; x++) {
      const i = columns[x];
      if (i < 0) { continue; }
      if (series.grows[i] > 0) { g.fillStyle = c.grow; g.fillRect(LEFT + x, height - BOTTOM + 1, 1, 4); }
      if (series.shrinks[i] > 0) { g.fillStyle = c.shrink; g.fillRect(LEFT + x, height - BOTTOM + 5, 1, 4); }
      if (series.retries[i] > 0) { g.fillStyle = c.pending; g.fillRect(LEFT + x, TOP - 6, 2, 6); }
      if (series.ooms[i] > 0) { g.fillStyle = c.stranded; g.fillRect(LEFT + x - 1, TOP - 10, 3, 10); }
    }
  }

  /** A line at a position; nothing when it is outside the window. */
  function vertical(g, position, height, colour) {
    const x = xOf(position);
    if (x < LEFT - 1 || x > surface.width) { return; }
    g.fillStyle = colour;
    g.fillRect(Math.min(x, surface.width - 1.5), TOP, 1.5, height - TOP - BOTTOM);
  }

  /** Names of lines, each beside its line and in the first row where it covers no other name. */
  function nameLines(g, lines) {
    const rows = [];
    for (const [position, label, colour] of lines) {
      const x = xOf(position);
      if (x < LEFT - 1 || x > surface.width) { continue; }
      const w = g.measureText(label).width + 8;
      const left = x + 3 + w <= surface.width ? x + 3 : x - 3 - w;
      let row = 0;
      while ((rows[row] || []).some(([from, to]) => left < to && left + w > from)) { row++; }
      (rows[row] = rows[row] || []).push([left, left + w]);
      Plim.tag(g, label, left, TOP + 12 + row * 16, surface.width, colour);
    }
  }

  const MOMENTS = { peak: 'peak', failure: 'out of memory', first_split: 'first split', judged: 'judged' };

  function drawMoments(g, height) {
    const c = Plim.colours;
    const lines = [[Plim.state.t, 'moment', c.select]];
    if (Plim.state.t2 !== null) { lines.push([Plim.state.t2, 'compared', c.grow]); }
    for (const [name, label] of Object.entries(MOMENTS)) {
      const position = Plim.data.meta.moments[name];
      if (position !== undefined) { lines.push([position, label, c.faint]); }
    }
    const row = Plim.selectedRow();
    if (row >= 0) {
      const b = Plim.data.blocks;
      const left = Math.max(LEFT, xOf(b.start[row]));
      const right = Math.min(surface.width - 8, xOf(Math.min(b.end[row], Plim.data.meta.events)));
      g.fillStyle = c.select;
      g.globalAlpha = 0.18;
      g.fillRect(left, TOP, Math.max(1, right - left), height - TOP - BOTTOM);
      g.globalAlpha = 1;
    }
    for (const [position, , colour] of lines.slice().reverse()) { vertical(g, position, height, colour); }
    nameLines(g, lines);
  }

  /** Annotated spans as [first position, last position, name], from their times. Made once. */
  let spans = null;
  function readSpans() {
    const { annotations, has_times: timed, events } = Plim.data.meta;
    const { time, range } = Plim.data.series[0];
    const at = (us) => Math.min(events, range[0] + Plim.lowerBound(time, us) * range[2]);
    const open = new Map();
    spans = [];
    for (const a of timed ? annotations : []) {
      if (!a.end) { open.set(a.name, a.time); continue; }
      if (open.has(a.name)) { spans.push([at(open.get(a.name)), at(a.time), a.name]); open.delete(a.name); }
    }
    for (const [name, start] of open) { spans.push([at(start), events, name]); }
    spans.sort((x, y) => x[0] - y[0]);
    TOP += spans.length > 0 ? SPANS : 0;
  }

  function drawSpans(g, width) {
    let written = 0; /* where the last name ends */
    spans.forEach(([from, to, name], i) => {
      const left = Math.max(LEFT, xOf(from));
      const right = Math.min(LEFT + width, Math.max(xOf(to), left + 1));
      if (right <= left) { return; }
      g.fillStyle = Plim.hues[i % Plim.hues.length];
      g.globalAlpha = 0.35;
      g.fillRect(left, 0, right - left, SPANS - 2);
      g.globalAlpha = 1;
      if (right - left > 40 && left > written) {
        written = Math.min(right, left + 6 + g.measureText(name).width);
        g.save();
        g.beginPath();
        g.rect(left, 0, right - left, SPANS);
        g.clip();
        g.fillStyle = Plim.colours.text;
        g.fillText(name, left + 3, SPANS - 4);
        g.restore();
      }
    });
  }

  const blocksPicture = Plim.picture(() => surface.redraw());

  /**
   * Blocks as rectangles: life by address, segments packed without the gaps between them. In the colour of their
   * places, unless the map is coloured by something else. Made in slices; meanwhile the last picture is shown where
   * its window lies in this one.
   */
  function drawBlocks(g, width, height) {
    const { from, to } = Plim.state;
    const high = height - TOP - BOTTOM;
    const p = blocksPicture.shown;
    if (p === null) { return 0; }
    const perEvent = width / (to - from);
    g.save();
    g.beginPath();
    g.rect(LEFT, TOP, width, high);
    g.clip();
    g.drawImage(p.raster.canvas, LEFT + (p.from - from) * perEvent, TOP, (p.to - p.from) * perEvent, high);
    g.restore();
    return p.total;
  }

  function beginBlocks(width, high) {
    const { from, to, t } = Plim.state;
    const { blocks: b, segments } = Plim.data;
    const mask = Plim.mask();
    const places = Plim.packedAddresses(segments, from, to);
    const scale = high / Math.max(1, places.total);
    const perEvent = width / (to - from);
    const raster = Plim.raster(width, high);
    const select = raster.ink(Plim.colours.select);
    const row = (r) => {
      if (b.end[r] <= from || b.start[r] > to || (mask !== null && !mask[r])) { return; }
      const at = places.of(b.addr[r]);
      if (at < 0) { return; }
      const left = Math.max(0, (b.start[r] - from) * perEvent);
      const right = Math.min(width, (b.end[r] - from) * perEvent);
      const colour = Plim.state.colour === 'state' ? Plim.siteColour(b.site[r]) : Plim.blockColour(b, r, t);
      const tall = b.size[r] * scale;
      raster.rect(left, high - at * scale - tall, right - left, tall > 3 ? tall - 1 : tall, Plim.isSelected(b, r) ? select : raster.ink(colour));
    };
    return { raster, n: b.addr.length, row, from, to, total: places.total };
  }

  /** Where addresses lie when all segments that a window sees are put one behind the other. */
  Plim.packedAddresses = function (segments, from, to) {
    Plim.data.segmentOrder = Plim.data.segmentOrder || Plim.byAddress(segments);
    const rows = Plim.data.segmentOrder.filter((r) => segments.start[r] <= to && segments.end[r] > from);
    const starts = [];
    const offsets = [];
    let total = 0;
    let end = -1;
    for (const r of rows) {
      const a = Math.max(segments.addr[r], end);
      const e = segments.addr[r] + segments.size[r];
      if (e > a) { starts.push(a); offsets.push(total); total += e - a; end = e; }
    }
    return {
      total,
      of(addr) {
        const i = Plim.lowerBound(starts, addr + 1) - 1;
        return i < 0 ? -1 : offsets[i] + addr - starts[i];
      },
    };
  };

  /** All that the picture of blocks depends on. */
  function pictureKey(width, height) {
    const s = Plim.state;
    const sel = s.sel ? s.sel.kind + (s.sel.site || '') + '/' + (s.sel.addr || '') + '/' + (s.sel.start || '') : '';
    const moment = s.colour === 'age' ? s.t : '';
    return [s.from, s.to, s.colour, moment, sel, Plim.filterKey(), width, height, Plim.theme].join('|');
  }

  /** What does not move with the moment is kept as a picture: a moment that moves draws it and a few lines. */
  const base = { canvas: document.createElement('canvas'), key: '' };

  function baseKey(width, height) {
    const s = Plim.state;
    const rows = s.stack === 'ledger' ? '' : s.stack === 'blocks' ? blocksPicture.key : Plim.filterKey();
    return [s.from, s.to, s.stack, rows, width, height, window.devicePixelRatio, Plim.theme, remote ? remote.range.join() : ''].join('|');
  }

  function draw(g, fullWidth, height) {
    const width = Math.floor(fullWidth - LEFT - 8);
    if (Plim.state.stack === 'blocks') { blocksPicture.want(pictureKey(width, height), () => beginBlocks(width, height - TOP - BOTTOM)); }
    const key = baseKey(width, height);
    if (key !== base.key) {
      const c = surface.canvas;
      base.canvas.width = c.width;
      base.canvas.height = c.height;
      const to = base.canvas.getContext('2d');
      to.setTransform(c.width / fullWidth, 0, 0, c.width / fullWidth, 0, 0);
      to.font = g.font;
      drawBase(to, width, height);
      base.key = key;
    }
    g.drawImage(base.canvas, 0, 0, fullWidth, height);
    drawMoments(g, height);
  }

  function drawBase(g, width, height) {
    const c = Plim.colours;
    const m = Plim.data.meta;
    const ledger = ledgerLayers(width);
    let most;
    let scale;
    if (Plim.state.stack === 'blocks') {
      most = drawBlocks(g, width, height);
      scale = (height - TOP - BOTTOM) / Math.max(1, most);
    } else {
      const layers = currentLayers(width, ledger);
      most = highest(layers, width) * 1.02;
      const limit = Plim.state.stack === 'ledger' ? m.capacity || m.total || 0 : 0;
      if (limit > 0 && limit < most * 3) { most = Math.max(most, limit * 1.04); }
      scale = (height - TOP - BOTTOM) / most;
      drawLayers(g, layers, width, height, scale);
      if (limit > 0 && limit <= most) { line(g, height - BOTTOM - limit * scale, width, c.capacity, 'capacity ' + Plim.bytes(limit)); }
      legend(layers);
    }
    drawAxes(g, width, height, most, scale);
    drawMarkers(g, width, height, ledger);
    drawSpans(g, width);
  }

  let legendBox;
  let legendText = '';
  function legend(layers) {
    const text = layers.map((l) => l[0] + l[1]).join();
    if (text === legendText) { return; }
    legendText = text;
    Plim.fill(legendBox, ...layers.map(([colour, label]) => {
      const key = Plim.el('i', { class: 'key' });
      key.style.background = Plim.colours[colour] || colour;
      return Plim.el('li', {}, key, label);
    }));
  }

  /* ---- hands ---- */

  function clampWindow(from, to) {
    const n = Math.max(1, Plim.data.meta.events);
    const span = Math.min(n, Math.max(8, to - from));
    const start = Math.max(0, Math.min(n - span, from));
    return { from: start, to: start + span };
  }

  /** Zoom by a factor around a position. */
  Plim.zoom = function (factor, around) {
    const { from, to } = Plim.state;
    Plim.set(clampWindow(around - (around - from) * factor, around + (to - around) * factor));
  };
  Plim.pan = function (share) {
    const { from, to } = Plim.state;
    const by = (to - from) * share;
    Plim.set(clampWindow(from + by, to + by));
  };
  /** Show a stretch of the trace. */
  Plim.showWindow = function (from, to) { Plim.set(clampWindow(from, to)); };

  function describe(position) {
    const p = Math.max(0, Math.min(Plim.data.meta.events, Math.round(position)));
    const series = bestSeries(Plim.state.from, Plim.state.to);
    const [start, , step] = series.range;
    const i = Math.max(0, Math.min(series.live.length - 1, Math.floor((p - 0.5 - start) / step)));
    const parts = ['event ' + Plim.count(p)];
    if (Number.isFinite(Plim.timeAt(p))) { parts.push('+' + Plim.duration(Plim.timeAt(p))); }
    for (const [name, label] of LAYERS) {
      if (series[name][i] > 0) { parts.push(label + ' ' + Plim.bytes(series[name][i])); }
    }
    const row = Plim.eventRow(series.largest[i]);
    if (row >= 0) {
      const e = Plim.data.events;
      parts.push((step > 1 ? 'largest here: ' : '') + Plim.bytes(e.size[row]) + ' by ' + Plim.labelOf(e.stack[row]));
    }
    return parts.join(' \u00b7 ');
  }

  function onMove(event) {
    const x = event.offsetX;
    if (drag) {
      const span = drag.to - drag.from;
      const by = (drag.x - x) / plotWidth() * span;
      drag.moved = drag.moved || Math.abs(drag.x - x) > 4;
      if (drag.moved) { Plim.set(clampWindow(drag.from + by, drag.to + by)); }
    }
    Plim.set({ hover: positionAt(x) });
  }

  function onUp(event) {
    if (drag && !drag.moved) { Plim.setMoment(positionAt(event.offsetX), event.shiftKey); }
    drag = null;
  }

  function onWheel(event) {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      Plim.pan(event.deltaX / 1000);
    } else {
      Plim.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), positionAt(event.offsetX));
    }
  }

  /** Set the moment, or with `compare` the moment compared with. */
  Plim.setMoment = function (position, compare) {
    Plim.set(compare ? { t2: Math.round(position) } : { t: Math.round(position) });
  };

  const askForWindow = Plim.debounce(120, async function () {
    const from = Math.max(0, Math.floor(Plim.state.from));
    const to = Math.min(Plim.data.meta.events, Math.ceil(Plim.state.to));
    if (bestSeries(from, to).range[2] <= Math.max(1, (to - from) / 1500)) { return; }
    try {
      const margin = Math.floor((to - from) / 2);
      const groups = await Plim.ask('series?from=' + Math.max(0, from - margin) + '&to=' + (to + margin) + '&bins=3000');
      remote = groups.se;
      surface.redraw();
      if (to - from <= 4000) { await Plim.askEvents(from, to); }
    } catch (e) { Plim.complain(e); }
  });

  Plim.timelineView = function () {
    readSpans();
    surface = Plim.surface({ label: 'Timeline of the ledger; arrow keys move the moment, plus and minus zoom', height: 300, draw });
    legendBox = Plim.el('ul', { class: 'legend', 'aria-label': 'Colours of the timeline' });
    status = Plim.el('p', { class: 'status', role: 'status' }, '\u00a0');
    const choose = Plim.choice('Stacked by', 'stack', [['ledger', 'ledger'], ['site', 'place'], ['kind', 'kind (a guess)'],
      ['stream', 'stream'], ['blocks', 'address (each block)']]);
    const canvas = surface.canvas;
    canvas.classList.add('grab');
    canvas.addEventListener('mousedown', (e) => { drag = { x: e.offsetX, from: Plim.state.from, to: Plim.state.to, moved: false }; });
    canvas.addEventListener('mousemove', onMove);
    canvas.addEventListener('mouseup', onUp);
    canvas.addEventListener('mouseleave', () => { drag = null; });
    canvas.addEventListener('wheel', onWheel, { passive: false });
    canvas.addEventListener('dblclick', (e) => Plim.zoom(0.25, positionAt(e.offsetX)));
    Plim.onChange((names) => {
      if (names.has('hover') && Plim.state.hover !== null) { status.textContent = describe(Plim.state.hover); }
      if (names.size > 1 || !names.has('hover')) { surface.redraw(); }
      if (Plim.data.meta.served && (names.has('from') || names.has('to'))) { askForWindow(); }
    });
    const button = (text, label, act) => Plim.el('button', { type: 'button', 'aria-label': label, onclick: act }, text);
    const middle = () => (Plim.state.from + Plim.state.to) / 2;
    return Plim.el('section', { id: 'timeline', 'aria-labelledby': 'h-timeline' },
      Plim.el('h2', { id: 'h-timeline' }, 'Timeline'),
      Plim.el('div', { class: 'tools' }, choose,
        button('+', 'Zoom in', () => Plim.zoom(0.5, middle())), button('\u2212', 'Zoom out', () => Plim.zoom(2, middle())),
        button('\u25c2', 'Earlier', () => Plim.pan(-0.5)), button('\u25b8', 'Later', () => Plim.pan(0.5)),
        button('All', 'All of the trace', () => Plim.showWindow(0, Plim.data.meta.events)),
        button('Moment', 'Zoom to the moment', () => Plim.showWindow(Plim.state.t - 200, Plim.state.t + 200))),
      canvas, status, legendBox);
  };
})();
