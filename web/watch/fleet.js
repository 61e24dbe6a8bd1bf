// SPDX-License-Identifier: Apache-2.0
/*
 * Several monitors on one page: a row for each device of each, the fullest first. A device that stands far from the others
 * of its kind is marked: by the median and the median distance from it, which a few odd ones do not move.
 */
'use strict';

(function () {
  const FAR = 3.5; /* median distances, of normally spread figures one in two thousand */
  const LEAST = 0.1; /* of the device's total: smaller differences are nobody's business */

  const median = (list) => {
    const sorted = list.slice().sort((a, b) => a - b);
    const n = sorted.length;
    return n % 2 ? sorted[(n - 1) / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  };

  /** Mark rows whose share of used memory is far from that of the other devices of the same name. */
  Plim.markOutliers = function (rows) {
    const groups = new Map();
    for (const r of rows) {
      if (r.ratio === null) { continue; }
      if (!groups.has(r.name)) { groups.set(r.name, []); }
      groups.get(r.name).push(r);
    }
    for (const group of groups.values()) {
      const middle = median(group.map((r) => r.ratio));
      const spread = 1.4826 * median(group.map((r) => Math.abs(r.ratio - middle)));
      for (const r of group) { r.outlier = group.length >= 4 && Math.abs(r.ratio - middle) > Math.max(LEAST, FAR * spread); }
    }
    return rows;
  };

  const GRAVITY = { critical: 3, warning: 2, notice: 1 };
  function rowsOf(host) {
    const s = host.status;
    if (!s) { return [{ key: host.name, host, name: '', ratio: null, used: null, stranded: null, left: null, findings: null, worst: '', outlier: false }]; }
    return s.devices.map((d) => {
      const parts = Plim.ledger(d);
      const found = (s.findings || []).filter((f) => f.active && (f.device === d.device || f.device === undefined));
      const worst = found.reduce((w, f) => ((GRAVITY[f.severity] || 0) > (GRAVITY[w] || 0) ? f.severity : w), '');
      return {
        key: host.name + '/' + Plim.deviceKey(d), host, device: d, name: d.name || '', used: Number.isFinite(d.used_bytes) ? d.used_bytes : null, parts,
        ratio: d.used_bytes >= 0 && d.total_bytes > 0 ? d.used_bytes / d.total_bytes : null, stranded: parts ? parts.stranded : null,
        left: d.seconds_left ? d.seconds_left.value : null, findings: found.length, worst, outlier: false,
      };
    });
  }

  function barOf(r) {
    if (!r.parts) { return Plim.el('span', {}); }
    const ledger = Plim.ledgerBar();
    ledger.set(r.parts, r.device.total_bytes || 1);
    return ledger.bar;
  }

  const nameOf = (r) => r.host.name;
  Plim.fleetView = function () {
    const note = Plim.el('p', { class: 'note', role: 'status' });
    /** @type {Array<Dict>} */ let peers = [];
    let asked = 0;
    const table = Plim.liveTable({
      label: 'Fleet', empty: 'No device.', key: (r) => r.key, sort: 3, down: true, kind: (r) => (r.outlier ? 'outlier' : r.host.stale ? 'old' : ''),
      columns: [
        { name: 'host', value: nameOf, node: (r) => (r.host.url ? Plim.el('a', { href: r.host.url, rel: 'noopener noreferrer' }, nameOf(r)) : document.createTextNode(nameOf(r))) },
        { name: 'device', numeric: true, value: (r) => (r.device ? r.device.device : null) },
        { name: 'name', value: (r) => r.name },
        { name: 'used', numeric: true, value: (r) => r.ratio, text: (r) => (r.ratio === null ? '' : (100 * r.ratio).toFixed(1) + ' %') },
        { name: 'ledger', value: (r) => r.used, text: (r) => JSON.stringify(r.parts || {}), node: barOf },
        { name: 'stranded', numeric: true, value: (r) => r.stranded, text: (r) => (r.stranded === null ? '' : Plim.bytes(r.stranded)) },
        { name: 'full in', numeric: true, value: (r) => r.left, text: (r) => (r.left === null ? '' : Plim.seconds(r.left)) },
        { name: 'findings', numeric: true, value: (r) => r.findings, text: (r) => (r.findings ? r.findings + ' ' + r.worst : r.findings === 0 ? '0' : '') },
        { name: 'state', value: (r) => [r.host.error || (r.device ? r.device.state : ''), r.outlier ? 'unlike the others' : '', r.host.stale ? 'old' : ''].filter((t) => t).join(', ') },
      ],
    });

    function show() {
      const s = Plim.live.status;
      const hosts = s ? [{ name: s.host || 'this host', url: '#overview', status: s, stale: Plim.live.stale() }, ...peers] : peers;
      table.set(Plim.markOutliers(hosts.flatMap(rowsOf)));
      const dead = peers.filter((p) => p.error).length;
      note.textContent = hosts.length + (hosts.length === 1 ? ' host' : ' hosts') + (dead ? ', ' + dead + ' of them do not answer' : '') +
        (peers.length ? '. Marked rows are far from the others of the same name.' : '. Name others with --peer, or with [peer NAME] in the settings.');
    }
    async function load() {
      if (Date.now() - asked < 4000) { return; }
      asked = Date.now();
      try {
        peers = (await Plim.live.ask('api/v1/fleet')).peers.map((p) => ({ ...p, stale: p.age_seconds > 15 }));
      } catch (e) {
        if (e.code !== 404) { note.textContent = e.message; }
      }
      show();
    }
    return {
      view: Plim.el('section', { 'aria-labelledby': 'h-fleet' }, Plim.el('h2', { id: 'h-fleet' }, 'Fleet'), table.view, note),
      open() { asked = 0; load(); },
      status() { show(); load(); },
    };
  };
})();
