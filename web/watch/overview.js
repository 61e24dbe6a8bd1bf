// SPDX-License-Identifier: Apache-2.0
/* What is the matter, each device's ledger, and every process: the page that opens first. */
'use strict';

(function () {
  const SPARK = 600; /* seconds of the small curves */
  /** Seen since the page was opened: for each device [time ns, used bytes]. */
  const seen = new Map();

  const deviceKey = (d) => d.uuid || d.pci || String(d.device);
  Plim.deviceKey = deviceKey;
  Plim.deviceName = (d) => 'GPU ' + d.device + (d.name ? ' · ' + d.name : '');

  /* ---- pieces ---- */

  /** The ledger as one bar; its parts in words for screen readers. */
  Plim.ledgerBar = function () {
    const parts = new Map(Plim.PARTS.map(([name]) => [name, Plim.el('span', { class: 'part p-' + name })]));
    const bar = Plim.el('div', { class: 'bar', role: 'img' }, ...parts.values());
    return {
      bar,
      set(ledger, total) {
        const words = [];
        for (const [name, , label, meaning] of Plim.PARTS) {
          const bytes = ledger[name] || 0;
          const part = parts.get(name);
          part.style.width = Math.max(0, 100 * bytes / total) + '%';
          part.title = label + ': ' + Plim.bytes(bytes) + ' (' + meaning + ')';
          if (bytes > 0) { words.push(label + ' ' + Plim.bytes(bytes)); }
        }
        bar.setAttribute('aria-label', words.join(', ') + ' of ' + Plim.bytes(total));
      },
    };
  };

  const legend = () => Plim.el('ul', { class: 'legend' }, ...Plim.PARTS.map(([name, , label, meaning]) =>
    Plim.el('li', { title: meaning }, Plim.el('span', { class: 'key p-' + name }), label)));

  /** "2 h 3 min (1 h 50 min to 2 h 30 min)" of an estimate in seconds. */
  Plim.leftText = (e) => (e && Number.isFinite(e.value)
    ? Plim.seconds(e.value) + (Number.isFinite(e.low) && Number.isFinite(e.high) ? ' (' + Plim.seconds(e.low) + ' to ' + Plim.seconds(e.high) + ')' : '') : '');

  /** Names and values side by side; those without a value are left out. @param {Array<[string, string]>} list */
  const facts = (list) => list.filter(([, v]) => v).map(([name, v]) => Plim.el('div', {}, Plim.el('dt', {}, name), Plim.el('dd', {}, v)));

  const rate = (e) => (e && Number.isFinite(e.value) ? (e.value >= 0 ? '+' : '') + Plim.bytes(e.value * 3600) + ' an hour' : '');
  const words = (text) => String(text).replace(/_/g, ' ');
  Plim.words = words;

  function subjectOf(f) {
    const device = f.device !== undefined ? 'GPU ' + f.device : f.uuid || '';
    const process = f.pid ? (f.process || 'process') + ' (pid ' + f.pid + ')' : '';
    return [process, device].filter((t) => t).join(' on ') || 'this machine';
  }

  /** One finding: what, how sure, how fast, how long; then the evidence and the next step. */
  function findingView(f) {
    const known = [
      ['how sure', Math.round(100 * f.confidence) + ' %'], ['concerns', f.bytes ? Plim.bytes(f.bytes) : ''], ['grows', rate(f.bytes_per_second)],
      ['out of memory in', Plim.leftText(f.seconds_left)], ['since', Plim.time(f.since_ns)], ['ended', f.active ? '' : Plim.time(f.ended_ns)],
    ];
    return Plim.el('article', { class: 'finding s-' + f.severity + (f.active ? '' : ' over') },
      Plim.el('h3', {}, Plim.el('span', { class: 'severity' }, f.severity), ' ', words(f.class), ': ' + subjectOf(f)),
      Plim.el('p', { class: 'summary' }, f.summary),
      f.next_step ? Plim.el('p', { class: 'next' }, Plim.el('strong', {}, 'Next: '), f.next_step) : null,
      Plim.el('dl', { class: 'facts' }, ...facts(/** @type {any} */ (known))),
      f.evidence ? Plim.el('details', {}, Plim.el('summary', {}, 'Evidence'),
        Plim.el('ul', {}, ...String(f.evidence).split('\n').filter((l) => l).map((l) => Plim.el('li', {}, l)))) : null);
  }

  /** Findings, written again only when one changed, so that an opened one stays open. */
  function findingsView() {
    const list = Plim.el('div', {});
    const kept = new Map();
    return {
      view: Plim.el('section', { 'aria-labelledby': 'h-findings' }, Plim.el('h2', { id: 'h-findings' }, 'Findings'), list),
      set(status) {
        const next = [];
        for (const f of status.findings || []) {
          const text = JSON.stringify(f);
          const old = kept.get(f.id);
          if (old && old.text === text) { next.push([f.id, old]); continue; }
          const view = findingView(f);
          const details = old && old.view.querySelector('details');
          if (details && details.open && view.querySelector('details')) { view.querySelector('details').open = true; }
          next.push([f.id, { text, view }]);
        }
        const same = next.length === kept.size && next.every(([id, e]) => kept.get(id) === e) && list.childElementCount > 0;
        kept.clear();
        for (const [id, e] of next) { kept.set(id, e); }
        if (!same) {
          Plim.fill(list, ...(next.length ? next.map(([, e]) => e.view)
            : [Plim.el('p', { class: 'note' }, status.monitor && status.monitor.watched ? 'Nothing is wrong as far as is known.' : 'Nothing is judged.')]));
        }
      },
    };
  }

  /** A small curve of used bytes over the last minutes. */
  function spark(k, total) {
    const surface = Plim.surface({ label: 'used memory in the last ten minutes', height: 46, draw(g, width, height) {
      const points = seen.get(k) || [];
      if (points.length < 2) { return; }
      const end = points[points.length - 1][0];
      const x = (t) => width - (end - t) / 1e9 / SPARK * width;
      const y = (v) => height - 2 - v / total() * (height - 4);
      g.beginPath();
      points.forEach(([t, v], i) => { if (i) { g.lineTo(x(t), y(v)); } else { g.moveTo(x(t), y(v)); } });
      g.strokeStyle = Plim.colours.live;
      g.lineWidth = 1.5;
      g.stroke();
      g.lineTo(x(end), height);
      g.lineTo(x(points[0][0]), height);
      g.globalAlpha = 0.15;
      g.fillStyle = Plim.colours.live;
      g.fill();
      g.globalAlpha = 1;
    } });
    surface.canvas.removeAttribute('tabindex');
    return surface;
  }

  const FACTS = [
    ['busy', (d) => (Number.isFinite(d.busy_percent) ? d.busy_percent + ' %' : '')],
    ['temperature', (d) => (Number.isFinite(d.temperature_celsius) ? d.temperature_celsius + ' °C' : '')],
    ['power', (d) => (Number.isFinite(d.power_milliwatts) ? Math.round(d.power_milliwatts / 1000) + ' W' : '')],
    ['clock', (d) => (Number.isFinite(d.sm_clock_mhz) ? d.sm_clock_mhz + ' MHz' : '')],
    ['ECC errors', (d) => (d.ecc_uncorrected_errors || d.ecc_corrected_errors ? (d.ecc_uncorrected_errors || 0) + ' uncorrected, ' + (d.ecc_corrected_errors || 0) + ' corrected' : '')],
    ['retired pages', (d) => (d.retired_pages ? String(d.retired_pages) : '')],
    ['XIDs', (d) => (d.xids ? d.xids + ', the last ' + d.last_xid : '')],
    ['full in', (d) => Plim.leftText(d.seconds_left)],
  ];

  function deviceCard(k) {
    let device = /** @type {any} */ ({});
    const title = Plim.el('a', { class: 'title' });
    const state = Plim.el('span', { class: 'state' });
    const figures = Plim.el('p', { class: 'big' });
    const note = Plim.el('p', { class: 'note' });
    const ledger = Plim.ledgerBar();
    const curve = spark(k, () => device.total_bytes || 1);
    const known = Plim.el('dl', { class: 'facts' });
    const view = Plim.el('article', { class: 'card' }, Plim.el('h3', {}, title, ' ', state), figures, ledger.bar, curve.canvas, known, note);
    return {
      view,
      set(d) {
        device = d;
        title.textContent = Plim.deviceName(d);
        title.href = '#history/' + encodeURIComponent(k);
        title.title = [d.uuid, d.pci].filter((t) => t).join(' ');
        state.textContent = d.state === 'ok' ? '' : d.state;
        view.classList.toggle('bad', d.state !== 'ok');
        const parts = Plim.ledger(d);
        figures.textContent = parts ? Plim.bytes(d.used_bytes) + ' of ' + Plim.bytes(d.total_bytes) + ' used' : 'its memory is not known';
        ledger.bar.hidden = curve.canvas.hidden = !parts;
        if (parts) { ledger.set(parts, d.total_bytes || 1); }
        Plim.fill(known, ...facts(FACTS.map(([name, text]) => [name, text(d)])));
        note.textContent = [d.divided ? 'Divided into instances.' : '', d.unified ? 'It shares the host’s memory.' : '',
          d.odd ? 'The driver’s figures contradict each other.' : '', d.parent !== undefined ? 'Instance of GPU ' + d.parent + '.' : ''].filter((t) => t).join(' ');
        curve.redraw();
      },
    };
  }

  function remember(status) {
    for (const d of status.devices) {
      const k = deviceKey(d);
      if (!seen.has(k)) { seen.set(k, []); }
      const points = seen.get(k);
      if (Number.isFinite(d.used_bytes) && (!points.length || status.time_ns > points[points.length - 1][0])) { points.push([status.time_ns, d.used_bytes]); }
      while (points.length && points[0][0] < status.time_ns - SPARK * 1e9) { points.shift(); }
    }
  }

  /* ---- processes ---- */

  const short = (text, n) => (text && text.length > n ? text.slice(0, n - 1) + '…' : text || '');
  const size = (name, field, title) => ({ name, title, numeric: true, value: (r) => r[field], text: (r) => (r[field] === null || r[field] === undefined ? '' : Plim.bytes(r[field])) });
  function processTable() {
    const filter = Plim.el('input', { type: 'search', placeholder: 'name, pid, unit, container, pod', 'aria-label': 'Filter processes', oninput: () => show() });
    const count = Plim.el('span', { class: 'note', role: 'status' });
    let all = [];
    const table = Plim.liveTable({
      label: 'Processes', empty: 'No process uses a device, or none that this filter finds.', key: (r) => r.key, sort: 3, down: true,
      kind: (r) => (r.stale ? 'old' : ''),
      columns: [
        { name: 'device', numeric: true, value: (r) => r.device },
        { name: 'pid', numeric: true, value: (r) => r.pid },
        { name: 'process', value: (r) => r.name || '' },
        size('device memory', 'bytes', 'as the driver counts'),
        size('live', 'live', Plim.PARTS[0][3]), size('stranded', 'stranded', Plim.PARTS[1][3]),
        size('releasable', 'releasable', Plim.PARTS[2][3]), size('outside', 'outside', Plim.PARTS[3][3]),
        size('host memory', 'resident_bytes', 'resident'),
        { name: 'kind', value: (r) => r.kinds.join(', ') },
        { name: 'unit', value: (r) => r.unit || '' },
        { name: 'container', value: (r) => r.container || '', text: (r) => short(r.container, 13) },
        { name: 'pod', value: (r) => r.pod || '', text: (r) => short(r.pod, 13) },
      ],
    });
    function show() {
      const words = filter.value.toLowerCase().split(/\s+/).filter((w) => w);
      const found = all.filter((r) => words.every((w) => [r.name, r.pid, r.unit, r.container, r.pod, r.kinds.join(' '), 'gpu' + r.device].some((t) => String(t || '').toLowerCase().includes(w))));
      count.textContent = words.length ? found.length + ' of ' + all.length : String(all.length);
      table.set(found);
    }
    return {
      view: Plim.el('section', { 'aria-labelledby': 'h-processes' }, Plim.el('h2', { id: 'h-processes' }, 'Processes'),
        Plim.el('div', { class: 'tools' }, filter, count), table.view),
      filter,
      set(rows) { all = rows; show(); },
    };
  }

  /* ---- the whole ---- */

  function machineText(s) {
    const sum = (f) => s.devices.reduce((n, d) => n + (d.parent === undefined && Number.isFinite(d[f]) ? d[f] : 0), 0);
    const used = sum('used_bytes');
    const total = sum('total_bytes');
    const pids = new Set(s.uses.map((u) => u.pid)).size;
    return [s.devices.length + (s.devices.length === 1 ? ' device' : ' devices'), Plim.bytes(used) + ' of ' + Plim.bytes(total) + ' used',
      pids + (pids === 1 ? ' process' : ' processes'),
      s.host_total_bytes ? 'host: ' + Plim.bytes(s.host_available_bytes) + ' of ' + Plim.bytes(s.host_total_bytes) + ' available' : ''].filter((t) => t).join(' · ');
  }

  Plim.overviewView = function () {
    const machine = Plim.el('p', { class: 'machine' });
    const cards = Plim.el('div', { class: 'cards' });
    const findings = findingsView();
    const processes = processTable();
    const kept = new Map();
    let order = '';
    const view = Plim.el('div', {}, machine, findings.view,
      Plim.el('section', { 'aria-labelledby': 'h-devices' }, Plim.el('h2', { id: 'h-devices' }, 'Devices'), legend(), cards), processes.view);
    return {
      view,
      focusFilter: () => processes.filter.focus(),
      status(s) {
        remember(s);
        machine.textContent = machineText(s);
        findings.set(s);
        const rows = Plim.processRows(s);
        for (const d of s.devices) {
          const k = deviceKey(d);
          if (!kept.has(k)) { kept.set(k, deviceCard(k)); }
          kept.get(k).set(d);
        }
        const now = s.devices.map(deviceKey).join(' ');
        if (now !== order) {
          order = now;
          Plim.fill(cards, ...s.devices.map((d) => kept.get(deviceKey(d)).view));
          if (!s.devices.length) { cards.append(Plim.el('p', { class: 'note' }, 'No device is seen: plimsoll doctor says why.')); }
        }
        processes.set(rows);
      },
    };
  };
})();
