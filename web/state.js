// SPDX-License-Identifier: Apache-2.0
/*
 * What the person is looking at, in one place: the moment, the moment compared with, the window of the timeline,
 * the selection, the filters. Views read it and are told of changes once a frame. The address (#t=..&sel=..)
 * follows, so that a link leads to the same sight.
 *
 * against: what the flame graph takes the difference to: '' the moment t2 when there is one, 'before' the earlier
 * snapshot of a comparison.
 *
 * selection: null, {kind: 'block', addr, start} or {kind: 'site', site}.
 */
'use strict';

Plim.state = {
  t: 0, t2: /** @type {number|null} */ (null), from: 0, to: 1, tab: 'map', colour: 'state', stack: 'ledger',
  against: '', sel: /** @type {any} */ (null), hover: /** @type {number|null} */ (null),
  q: '', min: '', max: '', minlife: '', maxlife: '', stream: '', pool: '',
};

/** @type {Array<(changed: Set<string>) => void>} */
const listeners = [];
/** @type {Set<string>} */
const changed = new Set();
let scheduled = false;

/** Be told of changes: fn gets the names that changed. */
Plim.onChange = function (fn) { listeners.push(fn); };

const TELL_MS = 8; /* of one task: the other listeners get one of their own */

function tell(names, from) {
  const end = performance.now() + TELL_MS;
  let i = from;
  while (i < listeners.length && performance.now() < end) { listeners[i++](names); }
  if (i < listeners.length) { setTimeout(tell, 0, names, i); }
}

/** Once a frame, but not in the frame's own task, where the drawings are made. */
function begin() {
  scheduled = false;
  const names = new Set(changed);
  changed.clear();
  tell(names, 0);
}

/** Change some of the state. @param {Dict} values */
Plim.set = function (values) {
  const { meta } = Plim.data;
  for (const [name, value] of Object.entries(values)) {
    let v = value;
    if (name === 't' || name === 't2') { v = v === null ? null : Math.max(0, Math.min(meta.events, Math.round(v))); }
    if (Plim.state[name] !== v) {
      Plim.state[name] = v;
      changed.add(name);
    }
  }
  if (changed.size > 0 && !scheduled) {
    scheduled = true;
    requestAnimationFrame(() => setTimeout(begin, 0));
  }
};

/** The moment that map and flame graph show: t itself, or the keyframe next to it. */
Plim.shownMoment = function (t) {
  return Plim.exactAt(t) ? t : Plim.nearestKeyframe(t);
};

/* ---- filters ---- */

/** Lower-case text of everything one may search in a stack; kept. */
const haystacks = new Map();
function haystack(stack) {
  let text = haystacks.get(stack);
  if (text === undefined) {
    text = Plim.frames(stack).map((f) => f.name + ' ' + f.file + ':' + f.line).join('\n').toLowerCase();
    text += '\n' + (Plim.data.meta.categories[Plim.categoryOf(stack)] || '');
    haystacks.set(stack, text);
  }
  return text;
}

/** A number of events from a filter's text; null when empty or no number. */
function eventsOf(text) {
  const n = text.trim() === '' ? NaN : Number(text);
  return Number.isFinite(n) ? n : null;
}

/** What the filter boxes hold, as one text. */
Plim.filterKey = function () {
  const s = Plim.state;
  return [s.q, s.min, s.max, s.minlife, s.maxlife, s.stream, s.pool].join('|');
};

/** A test for stacks, by the search alone. @returns {(stack: number) => boolean} */
Plim.searchStacks = function () {
  const q = Plim.state.q.trim().toLowerCase();
  return (stack) => q === '' || haystack(stack).includes(q);
};

/** Which of the page's blocks the filters keep, one byte each; kept until a filter changes. */
let mask = { key: '', rows: new Uint8Array(0) };

/** Take away the rows whose value is outside [min, max]; null is no limit. */
function limit(rows, valueOf, min, max) {
  if (min === null && max === null) { return; }
  const low = min === null ? -Infinity : min;
  const high = max === null ? Infinity : max;
  for (let r = 0; r < rows.length; r++) {
    const v = valueOf(r);
    if (v < low || v > high) { rows[r] = 0; }
  }
}

/** An address that the search names, or null. */
function searchedAddress() {
  const q = Plim.state.q.trim().toLowerCase();
  return /^0x[0-9a-f]+$/.test(q) ? Number(q) : null;
}

function makeMask(b) {
  const s = Plim.state;
  const rows = new Uint8Array(b.addr.length).fill(1);
  const exactly = (text) => (text === '' ? null : Number(text));
  const size = (text) => (text === '' ? null : Plim.parseBytes(text));
  const events = Plim.data.meta.events;
  limit(rows, (r) => b.requested[r], size(s.min), size(s.max));
  limit(rows, (r) => Math.min(b.end[r], events) - b.start[r], eventsOf(s.minlife), eventsOf(s.maxlife));
  limit(rows, (r) => b.stream[r], exactly(s.stream), exactly(s.stream));
  limit(rows, (r) => b.pool[r], exactly(s.pool), exactly(s.pool));
  const address = searchedAddress();
  if (address !== null) {
    limit(rows, (r) => (b.addr[r] <= address && address < b.addr[r] + b.size[r] ? 1 : 0), 1, 1);
  } else if (s.q.trim() !== '') {
    const matches = Plim.searchStacks();
    const known = new Map();
    limit(rows, (r) => {
      let v = known.get(b.stack[r]);
      if (v === undefined) { v = matches(b.stack[r]) ? 1 : 0; known.set(b.stack[r], v); }
      return v;
    }, 1, 1);
  }
  return rows;
}

/** The mask for what the filter boxes hold; null when they are empty. @returns {Uint8Array|null} */
Plim.mask = function () {
  const key = Plim.filterKey();
  if (key === NO_FILTER) { return null; }
  if (mask.key !== key) { mask = { key, rows: makeMask(Plim.data.blocks) }; }
  return mask.rows;
};
const NO_FILTER = '||||||';

/** A test for rows of lives, by what the filter boxes hold. @returns {((lives: Dict, row: number) => boolean)|null} */
Plim.filter = function () {
  const own = Plim.mask();
  if (own === null) { return null; }
  let other = { of: null, rows: own }; /* lives from the server have a mask of their own */
  return function (lives, row) {
    if (lives === Plim.data.blocks) { return own[row] === 1; }
    if (other.of !== lives) { other = { of: lives, rows: makeMask(lives) }; }
    return other.rows[row] === 1;
  };
};

/** The place of a row of lives. */
Plim.siteOfRow = (lives, row) => (lives.site ? lives.site[row] : Plim.siteOf(lives.stack[row]));

/** Whether a row is the selection, or of the selected site. */
Plim.isSelected = function (lives, row) {
  const sel = Plim.state.sel;
  if (!sel) { return false; }
  if (sel.kind === 'site') { return Plim.siteOfRow(lives, row) === sel.site; }
  return lives.addr[row] === sel.addr && lives.start[row] === sel.start;
};

let selected = { sel: /** @type {any} */ (null), row: -1 };
/** Row of the selected block among all lives, or -1. */
Plim.selectedRow = function () {
  const sel = Plim.state.sel;
  const b = Plim.data.blocks;
  if (!sel || sel.kind !== 'block') { return -1; }
  if (selected.sel !== sel) {
    selected = { sel, row: -1 };
    for (let i = 0; i < b.addr.length && selected.row < 0; i++) {
      if (b.addr[i] === sel.addr && b.start[i] === sel.start) { selected.row = i; }
    }
  }
  return selected.row;
};

Plim.selectBlock = function (lives, row) {
  Plim.set({ sel: { kind: 'block', addr: lives.addr[row], start: lives.start[row] } });
};
Plim.selectSite = function (site) { Plim.set({ sel: { kind: 'site', site } }); };

/* ---- the address ---- */

const LINKED = ['t', 't2', 'from', 'to', 'tab', 'colour', 'stack', 'against', 'q', 'min', 'max', 'minlife', 'maxlife', 'stream',
  'pool'];

Plim.writeAddress = Plim.debounce(250, function () {
  const s = Plim.state;
  const out = new URLSearchParams();
  if (document.getElementById('devices')) { out.set('device', String(Plim.data.meta.device)); }
  for (const name of LINKED) {
    if (s[name] !== null && s[name] !== '') { out.set(name, String(s[name])); }
  }
  if (s.sel) { out.set('sel', s.sel.kind === 'site' ? 'site:' + s.sel.site : 'block:' + s.sel.addr + '@' + s.sel.start); }
  try {
    history.replaceState(null, '', '#' + out.toString());
  } catch (e) { /* some browsers forbid it for files: the page works without */ }
});

/** The device that the address asks for, or null. */
Plim.askedDevice = function () {
  return new URLSearchParams(location.hash.replace(/^#/, '')).get('device');
};

/** Take the state from the address; what makes no sense there is left alone. */
Plim.readAddress = function () {
  const values = {};
  const given = new URLSearchParams(location.hash.replace(/^#/, ''));
  for (const [name, text] of given) {
    if (['t', 't2', 'from', 'to'].includes(name)) {
      if (text !== '' && Number.isFinite(Number(text))) { values[name] = Number(text); }
    } else if (LINKED.includes(name)) {
      values[name] = text;
    }
  }
  const sel = /^(?:site:(\d+)|block:(\d+)@(\d+))$/.exec(given.get('sel') || '');
  if (sel) {
    values.sel = sel[1] !== undefined ? { kind: 'site', site: Number(sel[1]) }
      : { kind: 'block', addr: Number(sel[2]), start: Number(sel[3]) };
  }
  return values;
};
