// SPDX-License-Identifier: Apache-2.0
/*
 * The heap at a position, made from lives: what the map, the flame graph and the tables show.
 *
 * position k is the state after the first k events. Pieces are the blocks and holes of all segments in order of
 * address. Rules as in src/heap/moment.h: what lies between live blocks is free, but up to 1 MiB behind a block of a
 * large ordinary segment belongs to that block. As in src/heap/totals.h whole free pages of an expandable segment are
 * releasable.
 */
'use strict';

const MAX_UNSPLIT = 1 << 20;
const SMALL_PAGE = 2 << 20; /* of an expandable segment */
const LARGE_PAGE = 20 << 20;
const LIVE = 0;
const PENDING = 1;
const STRANDED = 2;
const RELEASABLE = 3;
const PRIVATE_FREE = 4;

/** Whether the page knows every block that lived at a position. @param {number} t */
Plim.exactAt = function (t) {
  const { meta } = Plim.data;
  if (meta.all_blocks || (Plim.remoteHeap && Plim.remoteHeap.position === t)) { return true; }
  if (meta.merged > 0) { return t === meta.moments.judged; }
  if (Object.values(meta.moments).includes(t)) { return true; }
  return meta.keyframes > 0 && Plim.nearestKeyframe(t) === t;
};

/** The keyframe next to a position. */
Plim.nearestKeyframe = function (t) {
  const { meta } = Plim.data;
  const at = (k) => Math.floor(k * meta.events / meta.keyframes);
  let best = meta.moments.judged;
  const around = meta.keyframes > 0 ? Math.round(t * meta.keyframes / Math.max(1, meta.events)) : 0;
  const candidates = Object.values(meta.moments);
  if (meta.keyframes > 0) { candidates.push(at(around - 1), at(around), at(around + 1)); }
  if (meta.merged > 0) { return best; }
  for (const c of candidates) {
    if (c >= 0 && c <= meta.events && Math.abs(c - t) < Math.abs(best - t)) { best = c; }
  }
  return best;
};

/** Lives that exist at t, in order of address. @param {Dict} lives @param {Uint32Array} order */
function livesAt(lives, order, t) {
  const rows = [];
  for (let i = 0; i < order.length; i++) {
    const r = order[i];
    if (lives.start[r] <= t && t < lives.end[r]) { rows.push(r); }
  }
  return rows;
}

/** Segments at t; runs of an expandable segment that touch are one. */
function segmentsAt(lives, t) {
  const { data } = Plim;
  const order = lives === data.segments ? (data.segmentOrder = data.segmentOrder || Plim.byAddress(lives))
    : Plim.byAddress(lives);
  const out = [];
  for (const r of livesAt(lives, order, t)) {
    const last = out[out.length - 1];
    const expandable = (lives.flags[r] & 2) !== 0;
    if (last && expandable && last.expandable && last.addr + last.size === lives.addr[r] &&
        last.stream === lives.stream[r] && last.pool === lives.pool[r]) {
      last.size += lives.size[r];
      continue;
    }
    out.push({ addr: lives.addr[r], size: lives.size[r], stream: lives.stream[r], pool: lives.pool[r], expandable,
      small: (lives.flags[r] & 1) !== 0, stack: lives.stack[r], start: lives.start[r], first: 0, n: 0, live: 0,
      blocks: 0, free: 0 });
  }
  return out;
}

class Pieces {
  /** @param {number} room */
  constructor(room) {
    this.n = 0;
    this.addr = new Float64Array(room);
    this.size = new Float64Array(room);
    this.kind = new Uint8Array(room);
    this.row = new Int32Array(room); /* of the lives; -1 for a hole */
    this.segment = new Uint32Array(room);
  }

  add(addr, size, kind, row, segment) {
    const i = this.n++;
    this.addr[i] = addr;
    this.size[i] = size;
    this.kind[i] = kind;
    this.row[i] = row;
    this.segment[i] = segment;
  }
}

/** A hole of an expandable segment: the whole pages in it can go back to the driver, its ends cannot. */
function addPages(p, segment, index, from, to) {
  const page = segment.small ? SMALL_PAGE : LARGE_PAGE;
  const first = segment.addr + Math.ceil((from - segment.addr) / page) * page;
  const last = segment.addr + Math.floor((to - segment.addr) / page) * page;
  if (first >= last) { p.add(from, to - from, STRANDED, -1, index); return; }
  if (first > from) { p.add(from, first - from, STRANDED, -1, index); }
  p.add(first, last - first, RELEASABLE, -1, index);
  if (to > last) { p.add(last, to - last, STRANDED, -1, index); }
}

function addHole(p, segment, index, from, to) {
  if (to <= from) { return; }
  const last = p.n > segment.first ? p.n - 1 : -1;
  if (last >= 0 && p.kind[last] <= PENDING && !segment.small && !segment.expandable && to - from <= MAX_UNSPLIT) {
    p.size[last] += to - from;
    segment.live += to - from;
    return;
  }
  segment.free += to - from;
  if (segment.expandable) { addPages(p, segment, index, from, to); } else { p.add(from, to - from, STRANDED, -1, index); }
}

/** What the holes of a finished segment are, with their sums. */
function nameHoles(p, segment, heap) {
  for (let i = segment.first; i < segment.first + segment.n; i++) {
    if (p.row[i] >= 0) { continue; }
    if (segment.pool !== 0) { p.kind[i] = PRIVATE_FREE; } else if (segment.blocks === 0) { p.kind[i] = RELEASABLE; }
    if (p.kind[i] === STRANDED) { heap.stranded += p.size[i]; }
    if (p.kind[i] === RELEASABLE) { heap.releasable += p.size[i]; }
  }
}

/**
 * @typedef {{t: number, exact: boolean, lives: Dict, segments: any[], pieces: Pieces, rows: number[],
 *   live: number, requested: number, reserved: number, stranded: number, releasable: number}} Heap
 */

/** The heap at t from blocks and segments. @returns {Heap} */
Plim.buildHeap = function (blocks, order, segmentLives, t) {
  const segments = segmentsAt(segmentLives, t);
  const rows = livesAt(blocks, order, t);
  const p = new Pieces(rows.length * 4 + segments.length * 3 + 3);
  const heap = { t, exact: Plim.exactAt(t), lives: blocks, segments, pieces: p, rows, live: 0, requested: 0,
    reserved: 0, stranded: 0, releasable: 0 };
  let next = 0;
  segments.forEach((segment, index) => {
    const end = segment.addr + segment.size;
    let at = segment.addr;
    segment.first = p.n;
    while (next < rows.length && blocks.addr[rows[next]] < end) {
      const r = rows[next++];
      if (blocks.addr[r] < at) { continue; }
      const size = Math.min(blocks.size[r], end - blocks.addr[r]);
      addHole(p, segment, index, at, blocks.addr[r]);
      p.add(blocks.addr[r], size, blocks.freed[r] <= t ? PENDING : LIVE, r, index);
      segment.live += size;
      segment.blocks++;
      heap.requested += blocks.requested[r];
      at = blocks.addr[r] + size;
    }
    addHole(p, segment, index, at, end);
    segment.n = p.n - segment.first;
    nameHoles(p, segment, heap);
    heap.live += segment.live;
    heap.reserved += segment.size;
  });
  return heap;
};

let lastHeap = null;
/** Detail from the server for one position: {position, blocks, order, segments}. @type {any} */
Plim.remoteHeap = null;

/** The heap at t (kept until another one is wanted). @param {number} t @returns {Heap} */
Plim.heapAt = function (t) {
  const remote = Plim.remoteHeap && Plim.remoteHeap.position === t ? Plim.remoteHeap : null;
  if (!lastHeap || lastHeap.t !== t || (remote && lastHeap.lives !== remote.blocks)) {
    const d = Plim.data;
    lastHeap = remote ? Plim.buildHeap(remote.blocks, remote.order, remote.segments, t)
      : Plim.buildHeap(d.blocks, d.order, d.segments, t);
  }
  return lastHeap;
};

let lastLive = { t: -1, lives: /** @type {any} */ (null), rows: /** @type {number[]} */ ([]) };
/** The lives that exist at t, in no order: what needs no addresses needs no heap. Kept like heapAt(). */
Plim.liveAt = function (t) {
  const remote = Plim.remoteHeap && Plim.remoteHeap.position === t ? Plim.remoteHeap : null;
  const lives = remote ? remote.blocks : Plim.data.blocks;
  if (lastLive.t !== t || lastLive.lives !== lives) {
    const rows = [];
    const { start, end } = lives;
    for (let r = 0; r < start.length; r++) { if (start[r] <= t && t < end[r]) { rows.push(r); } }
    lastLive = { t, lives, rows };
  }
  return lastLive;
};

/** Index of the piece that covers an address, or -1. @param {Heap} heap */
Plim.pieceAt = function (heap, addr) {
  const p = heap.pieces;
  let low = 0;
  let high = p.n;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (p.addr[mid] <= addr) { low = mid + 1; } else { high = mid; }
  }
  return low > 0 && addr < p.addr[low - 1] + p.size[low - 1] ? low - 1 : -1;
};
