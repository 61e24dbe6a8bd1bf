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

function tell() {
  scheduled = false;
  const names = new Set(changed);
  changed.clear();
  for (const fn of listeners) { fn(names); }
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
    requestAnimationFrame(tell);
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

/** A test for rows of lives, by what the filter boxes hold. @returns {((lives: Dict, row: number) => boolean)|null} */
Plim.filter = function () {
  const s = Plim.state;
  const q = s.q.trim().toLowerCase();
  const address = /^0x[0-9a-f]+$/.test(q) ? Number(q) : null;
  const min = s.min === '' ? null : Plim.parseBytes(s.min);
  const max = s.max === '' ? null : Plim.parseBytes(s.max);
  const minLife = eventsOf(s.minlife);
  const maxLife = eventsOf(s.maxlife);
  if (q === '' && min === null && max === null && minLife === null && maxLife === null && s.stream === '' &&
      s.pool === '') {
    return null;
  }
  const verdicts = new Map();
  return function (lives, row) {
    const size = lives.requested[row];
    const life = Math.min(lives.end[row], Plim.data.meta.events) - lives.start[row];
    if ((min !== null && size < min) || (max !== null && size > max)) { return false; }
    if ((minLife !== null && life < minLife) || (maxLife !== null && life > maxLife)) { return false; }
    if (s.stream !== '' && lives.stream[row] !== Number(s.stream)) { return false; }
    if (s.pool !== '' && lives.pool[row] !== Number(s.pool)) { return false; }
    if (q === '') { return true; }
    if (address !== null) { return lives.addr[row] <= address && address < lives.addr[row] + lives.size[row]; }
    const stack = lives.stack[row];
    let v = verdicts.get(stack);
    if (v === undefined) { v = haystack(stack).includes(q); verdicts.set(stack, v); }
    return v;
  };
};

/** Whether a row is the selection, or of the selected site. */
Plim.isSelected = function (lives, row) {
  const sel = Plim.state.sel;
  if (!sel) { return false; }
  if (sel.kind === 'site') { return Plim.siteOf(lives.stack[row]) === sel.site; }
  return lives.addr[row] === sel.addr && lives.start[row] === sel.start;
};

/** Row of the selected block among all lives, or -1. */
Plim.selectedRow = function () {
  const sel = Plim.state.sel;
  const b = Plim.data.blocks;
  if (!sel || sel.kind !== 'block') { return -1; }
  for (let i = 0; i < b.addr.length; i++) {
    if (b.addr[i] === sel.addr && b.start[i] === sel.start) { return i; }
  }
  return -1;
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
