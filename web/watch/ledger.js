// SPDX-License-Identifier: Apache-2.0
/*
 * Where each byte of a device is, and what each process has of it. The parts of a device add up to its total.
 */
'use strict';

(function () {
  /** Parts in the order of the bar: [key, colour, words, what they mean]. */
  Plim.PARTS = [
    ['live', 'live', 'live', 'handed out by allocators'],
    ['stranded', 'stranded', 'stranded', 'free pieces of segments that are in use: nobody else can have them'],
    ['releasable', 'releasable', 'releasable', 'whole segments that are free: given back before memory runs out'],
    ['outside', 'external', 'outside', 'of the same processes, outside their allocator: context, NCCL, graphs ...'],
    ['others', 'pending', 'others', 'of processes whose allocator is not known'],
    ['unknown', 'other', 'unknown', 'used, by nobody who is listed'],
    ['reserved', 'rounding', 'reserved', 'by driver and firmware'],
    ['free', 'line', 'free', 'what a request can get'],
  ];

  const key = (device, pid) => device + '/' + pid;

  /** What an allocator has: live, stranded and releasable bytes; null when it does not say. */
  function holds(a) {
    if (!Number.isFinite(a.reserved_bytes) || !Number.isFinite(a.allocated_bytes)) { return null; }
    const slack = Math.max(0, a.reserved_bytes - a.allocated_bytes);
    const stranded = Math.min(slack, a.inactive_split_bytes || 0);
    return { live: Math.min(a.allocated_bytes, a.reserved_bytes), stranded, releasable: slack - stranded };
  }

  /**
   * One row for each process on each device, with its share of the ledger.
   * @param {Dict} status
   */
  Plim.processRows = function (status) {
    const rows = new Map();
    for (const u of status.uses) {
      const k = key(u.device, u.pid);
      const row = rows.get(k) || { key: k, device: u.device, pid: u.pid, bytes: null, counted: 0, kinds: [], live: null, stranded: null, releasable: null, outside: null };
      if (Number.isFinite(u.bytes)) {
        row.bytes = (row.bytes || 0) + u.bytes;
        row.counted += u.counted_bytes || 0;
      }
      row.kinds = [...new Set(row.kinds.concat(u.kinds || []))];
      for (const f of ['name', 'container', 'pod', 'unit', 'resident_bytes', 'start_ticks']) { if (u[f] !== undefined) { row[f] = u[f]; } }
      rows.set(k, row);
    }
    for (const a of status.allocators || []) {
      const has = holds(a);
      if (!has || a.device === undefined) { continue; }
      const k = key(a.device, a.pid);
      const row = rows.get(k) || { key: k, device: a.device, pid: a.pid, bytes: null, counted: 0, kinds: [], live: null, stranded: null, releasable: null, outside: null };
      for (const part of ['live', 'stranded', 'releasable']) { row[part] = (row[part] || 0) + has[part]; }
      row.stale = row.stale || a.stale === true;
      rows.set(k, row);
    }
    for (const row of rows.values()) {
      if (row.live !== null && row.bytes !== null) { row.outside = Math.max(0, row.counted - row.live - row.stranded - row.releasable); }
    }
    return [...rows.values()];
  };

  /** The ledger of one device as the monitor made it: bytes by part; null when the driver does not tell. @param {Dict} device */
  Plim.ledger = function (device) {
    if (!device.ledger) { return null; }
    return Object.fromEntries(Plim.PARTS.map(([part]) => [part, device.ledger[part + '_bytes'] || 0]));
  };
})();
