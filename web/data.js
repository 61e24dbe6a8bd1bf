// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the columns of the page (docs/format/report-data.md): base64 of a zlib stream of little-endian columns.
 * Names are "group.column"; a group's columns have one length. Also asks the local server for more, when there is one.
 */
'use strict';

const NONE = 0xffffffff;

/** @param {ArrayBuffer} buffer @returns {Dict} group -> column -> typed array */
Plim.readColumns = function (buffer) {
  const view = new DataView(buffer);
  const text = (at, n) => new TextDecoder('latin1').decode(new Uint8Array(buffer, at, n)).replace(/\0.*$/s, '');
  if (buffer.byteLength < 16 || text(0, 8) !== 'PLIMRPT1') { throw new Error('the data of this page is damaged'); }
  const kinds = { 1: Uint8Array, 2: Uint16Array, 3: Uint32Array, 4: Float64Array };
  const groups = {};
  for (let i = 0; i < view.getUint32(8, true); i++) {
    const at = 16 + i * 40;
    const [group, name] = text(at, 20).split('.');
    const kind = kinds[view.getUint32(at + 20, true)];
    const column = new kind(buffer, view.getUint32(at + 28, true), view.getUint32(at + 24, true));
    (groups[group] = groups[group] || {})[name] = column;
  }
  return groups;
};

/** @param {Uint8Array} bytes @returns {Promise<ArrayBuffer>} */
Plim.inflate = function (bytes) {
  if (typeof DecompressionStream === 'undefined') {
    return Promise.reject(new Error('this browser has no DecompressionStream; the tables do not need it'));
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
};

/** @param {string} text base64 @returns {Uint8Array} */
Plim.unbase64 = function (text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) { bytes[i] = binary.charCodeAt(i); }
  return bytes;
};

/** Stacks seen so far, from the page and from the server: id -> {frames, site, category, label}. */
Plim.stacks = new Map();
/** site -> label */
Plim.sites = new Map();

/** Take the stacks of a set of columns: groups st, fr, tx. @param {Dict} groups */
Plim.learnStacks = function ({ st, fr, tx }, shift = 0, siteOf = (site, _label) => site) {
  if (!st || !st.id) { return; }
  const decoder = new TextDecoder();
  const texts = new Array(tx.ends.length);
  const textOf = function (i) {
    if (i === NONE) { return ''; }
    if (texts[i] === undefined) {
      texts[i] = decoder.decode(tx.bytes.subarray(i > 0 ? tx.ends[i - 1] : 0, tx.ends[i]));
    }
    return texts[i];
  };
  const frames = new Array(fr.name.length);
  const frameOf = function (i) {
    if (!frames[i]) {
      frames[i] = { id: Plim.frameId(textOf(fr.name[i]), textOf(fr.file[i]), fr.line[i]), name: textOf(fr.name[i]),
        file: textOf(fr.file[i]), line: fr.line[i] };
    }
    return frames[i];
  };
  for (let i = 0; i < st.id.length; i++) {
    const end = i + 1 < st.id.length ? st.first[i + 1] : st.run.length;
    const run = st.run.subarray(st.first[i], end);
    const label = textOf(st.label[i]);
    const site = siteOf(st.site[i], label);
    Plim.stacks.set(st.id[i] + shift, { run, frameOf, site, category: st.category[i], label });
    Plim.sites.set(site, label);
  }
};

/** Stacks of the earlier snapshot are numbered from here on: they are another snapshot's. */
const EARLIER = 2 ** 32;

/** The earlier snapshot of a comparison: {stack, bytes, blocks}, or null. Its places get the numbers of those of the
 * same name. @param {Dict} groups */
Plim.learnEarlier = function (groups) {
  if (!groups.bf) { return null; }
  const numbers = new Map([...Plim.sites].map(([site, label]) => [label, site]));
  Plim.learnStacks({ st: groups.bst, fr: groups.bfr, tx: groups.btx }, EARLIER,
    (site, label) => (numbers.has(label) ? numbers.get(label) : site + EARLIER));
  return { stack: Array.from(groups.bf.stack, (s) => s + EARLIER), bytes: groups.bf.bytes, blocks: groups.bf.blocks };
};

const frameNumbers = new Map();
/** The same number for the same frame, wherever it came from. */
Plim.frameId = function (name, file, line) {
  const key = name + '\n' + file + '\n' + line;
  let id = frameNumbers.get(key);
  if (id === undefined) { id = frameNumbers.size; frameNumbers.set(key, id); }
  return id;
};

/** Frames of a stack, innermost first; empty when none was recorded. @param {number} stack */
Plim.frames = function (stack) {
  const s = Plim.stacks.get(stack);
  return s ? Array.from(s.run, s.frameOf) : [];
};
Plim.siteOf = function (stack) { const s = Plim.stacks.get(stack); return s ? s.site : 0; };
Plim.categoryOf = function (stack) { const s = Plim.stacks.get(stack); return s ? s.category : 0; };
Plim.labelOf = function (stack) { const s = Plim.stacks.get(stack); return s ? s.label : '(no stack recorded)'; };
/** "append model.py:31" */
Plim.frameText = function (f) {
  const file = f.file.split('/').slice(-2).join('/');
  return (f.name || '(name left out)') + (file ? ' ' + file + (f.line ? ':' + f.line : '') : '');
};

/**
 * Everything the views draw. `blocks` and `segments` are lives: [start, end) in positions.
 * @type {{meta: Dict, series: Dict[], events: Dict, blocks: Dict, segments: Dict, lifetimes: Dict, earlier: Dict|null,
 *   order: Uint32Array, stackIds: number[]}} blocks.dense: index into stackIds; blocks.site: its place
 */
Plim.data = /** @type {any} */ ({});

/** Rows in order of address, once, so that a moment needs no sorting. @param {Dict} lives */
Plim.byAddress = function (lives) {
  const order = new Uint32Array(lives.addr.length);
  for (let i = 0; i < order.length; i++) { order[i] = i; }
  return order.sort((a, b) => lives.addr[a] - lives.addr[b] || lives.start[a] - lives.start[b]);
};

/** The element with the columns; null in a page that has only tables. */
Plim.dataElement = () => document.getElementById('plimsoll-data');

Plim.load = async function () {
  const element = Plim.dataElement();
  const groups = Plim.readColumns(await Plim.inflate(Plim.unbase64(element.textContent || '')));
  element.remove();
  Plim.learnStacks(groups);
  const d = Plim.data;
  d.meta = JSON.parse(new TextDecoder().decode(groups.page.meta));
  d.series = [groups.se];
  for (let i = 0; groups['w' + i]; i++) { d.series.push(groups['w' + i]); }
  d.events = groups.ev;
  d.blocks = groups.bl;
  d.segments = groups.sg;
  d.lifetimes = groups.lt;
  d.earlier = Plim.learnEarlier(groups);
  d.order = Plim.byAddress(d.blocks);
  const numbers = new Map();
  d.blocks.dense = Uint32Array.from(d.blocks.stack, (s) => {
    let n = numbers.get(s);
    if (n === undefined) { n = numbers.size; numbers.set(s, n); }
    return n;
  });
  d.stackIds = [...numbers.keys()];
  const sites = d.stackIds.map(Plim.siteOf);
  d.blocks.site = Uint32Array.from(d.blocks.dense, (n) => sites[n]);
};

/** Index of the first row of a sorted column that is >= v. */
Plim.lowerBound = function (column, v) {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (column[mid] < v) { low = mid + 1; } else { high = mid; }
  }
  return low;
};

/** Row of an event in the events that the page has, or -1. @param {number} index */
Plim.eventRow = function (index) {
  const i = Plim.lowerBound(Plim.data.events.index, index);
  return Plim.data.events.index[i] === index ? i : -1;
};

/** Microseconds from the first event to a position, from the series. @param {number} position */
Plim.timeAt = function (position) {
  const { meta, series } = Plim.data;
  const row = position > 0 ? Plim.eventRow(position - 1) : -1;
  if (!meta.has_times) { return NaN; }
  if (position <= 0) { return 0; }
  if (row >= 0) { return Plim.data.events.time[row]; }
  const s = series[0];
  const bin = Math.min(s.time.length - 1, Math.floor(Math.max(0, position - 1) / s.range[2]));
  return s.time[bin];
};

/* ---- the local server (plimsoll view) ---- */

/** About the device that is shown. @param {string} what "series?from=0&to=10&bins=5" @returns {Promise<Dict>} */
Plim.ask = async function (what) {
  const response = await fetch(what + '&device=' + Plim.data.meta.device, { cache: 'no-store' });
  if (!response.ok) { throw new Error('the server said ' + response.status); }
  const groups = Plim.readColumns(await response.arrayBuffer());
  Plim.learnStacks(groups);
  return groups;
};
