// SPDX-License-Identifier: Apache-2.0
/*
 * Timelines over all history: any figure of any subject as mean with its band from least to most, or a device's ledger as a
 * stack; what happened is marked. Wheel zooms, dragging pans; the resolution follows the window. Where the monitor keeps no
 * history, what this page has seen since it was opened is shown.
 */
'use strict';

(function () {
  const LEFT = 74;
  const RIGHT = 8;
  const TOP = 22;
  const BOTTOM = 26;
  const HEIGHT = 330;
  const LEAST_NS = 5e9;
  const RANGES = [['10 min', 600], ['1 h', 3600], ['6 h', 21600], ['1 day', 86400], ['1 week', 604800], ['3 months', 92 * 86400], ['all', 0]];
  const SEEN_MOST = 7200; /* states kept of this page's own */

  /* ---- what this page has seen ---- */

  /** Subject and figure: [time ns, value], ascending. @type {Map<string, Array<[number, number]>>} */
  const seen = new Map();
  /** @type {Array<{time_ns: number, kind: string, text: string}>} */
  const happened = [];

  function note(kind, key, figure, time, value) {
    if (!Number.isFinite(value)) { return; }
    const k = kind + '\n' + key + '\n' + figure;
    if (!seen.has(k)) { seen.set(k, []); }
    const points = seen.get(k);
    if (!points.length || time > points[points.length - 1][0]) { points.push([time, value]); }
    if (points.length > SEEN_MOST) { points.splice(0, points.length - SEEN_MOST); }
  }

  Plim.rememberHistory = function (status) {
    for (const d of status.devices) {
      const key = Plim.deviceKey(d);
      for (const [name, value] of Object.entries(d)) {
        if (typeof value === 'number' && /_(bytes|percent|celsius|milliwatts|mhz)$/.test(name)) { note('device', key, name, status.time_ns, value); }
      }
      const ledger = Plim.ledger(d);
      for (const [part, value] of Object.entries(ledger || {})) { note('device', key, 'ledger.' + part, status.time_ns, value); }
    }
    for (const h of status.happenings || []) { happened.push({ time_ns: h.time_ns, kind: h.kind, text: h.text || '' }); }
    if (happened.length > 1000) { happened.splice(0, happened.length - 1000); }
  };

  /** Bins of what was seen, in the form of the server's answer. */
  function seenSeries(kind, key, figure, from, to) {
    const points = (seen.get(kind + '\n' + key + '\n' + figure) || []).filter(([t]) => t >= from && t < to);
    const column = points.map((p) => p[1]);
    return { figure, step_ns: 1e9, time_ns: points.map((p) => p[0]), min: column, mean: column, max: column };
  }

  /* ---- drawing ---- */

  const isBytes = (figure) => /bytes/.test(figure) || figure.startsWith('ledger.');
  const valueText = (figure, v) => (isBytes(figure) ? Plim.bytes(v) : Math.abs(v) >= 100 ? Plim.count(v) : String(Number(v.toPrecision(4))));

  /** First index whose time is not before t. */
  function lowerBound(times, t) {
    let low = 0;
    let high = times.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (times[mid] < t) { low = mid + 1; } else { high = mid; }
    }
    return low;
  }

  function timeTicks(from, to, most) {
    const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000];
    const step = (steps.find((s) => (to - from) / 1e9 / s <= most) || 15552000) * 1e9;
    const shift = Plim.zone.utc ? 0 : new Date(from / 1e6).getTimezoneOffset() * 60e9;
    const out = [];
    for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) { out.push(t); }
    return out;
  }

  /**
   * A chart of a window of time.
   * @param {Object} o
   * @param {(from: number, to: number) => void} o.moved by the reader
   * @param {(time: number|null) => void} o.pointed
   */
  function chart(o) {
    const c = {
      from: 0, to: 1,
      /** @type {Array<Dict>} */ layers: [], /* {figure, label, colour, time_ns, min, mean, max, step_ns} */
      stacked: false, top: 0,
      /** @type {Array<Dict>} */ marks: [],
      /** @type {number|null} */ at: null,
      surface: /** @type {any} */ (null),
    };
    const width = () => c.surface.width - LEFT - RIGHT;
    const xOf = (t) => LEFT + (t - c.from) / (c.to - c.from) * width();
    const timeOf = (x) => c.from + (x - LEFT) / width() * (c.to - c.from);

    /** The first and last point of a layer that the window needs. */
    const range = (l) => [Math.max(0, lowerBound(l.time_ns, c.from) - 1), Math.min(l.time_ns.length, lowerBound(l.time_ns, c.to) + 1)];

    function highest() {
      let most = c.top;
      const sums = new Map();
      for (const l of c.layers) {
        const [a, b] = range(l);
        for (let i = a; i < b; i++) {
          if (c.stacked) {
            const t = l.time_ns[i];
            sums.set(t, (sums.get(t) || 0) + l.mean[i]);
            most = Math.max(most, sums.get(t));
          } else { most = Math.max(most, l.max[i]); }
        }
      }
      return most > 0 ? most * (c.top ? 1.02 : 1.08) : 1;
    }

    function axes(g, w, h, most) {
      const colours = Plim.colours;
      const figure = c.layers.length ? c.layers[0].figure : 'bytes';
      const y = (v) => TOP + (1 - v / most) * (h - TOP - BOTTOM);
      const values = isBytes(figure) ? Plim.ticks(0, most, 6, 2) : [0, 0.25, 0.5, 0.75, 1].map((s) => s * most);
      g.textAlign = 'right';
      for (const v of values) {
        g.fillStyle = colours.line;
        g.fillRect(LEFT, Math.round(y(v)), w, 1);
        g.fillStyle = colours.text;
        g.fillText(valueText(figure, v), LEFT - 6, y(v) + 4);
      }
      g.textAlign = 'center';
      let free = 0;
      for (const t of timeTicks(c.from, c.to, Math.max(2, w / 100))) {
        const text = Plim.timeTick(t, c.to - c.from);
        const half = g.measureText(text).width / 2;
        const x = Math.min(c.surface.width - half, xOf(t));
        g.fillStyle = colours.line;
        g.fillRect(Math.round(xOf(t)), h - BOTTOM, 1, 5);
        if (x - half < free) { continue; }
        free = x + half + 10;
        g.fillStyle = colours.text;
        g.fillText(text, x, h - BOTTOM + 18);
      }
      g.textAlign = 'left';
    }

    /* A gap of more than three steps is a gap in the line. */
    const gap = (l, i) => i > 0 && l.time_ns[i] - l.time_ns[i - 1] > 3.5 * Math.max(l.step_ns, 1e9);

    function line(g, l, y) {
      const [a, b] = range(l);
      g.fillStyle = l.colour;
      g.globalAlpha = 0.22;
      for (let i = a; i < b; i++) {
        const x = xOf(l.time_ns[i]);
        const next = i + 1 < b && !gap(l, i + 1) ? xOf(l.time_ns[i + 1]) : x + Math.max(1, l.step_ns / (c.to - c.from) * width());
        g.fillRect(x, y(l.max[i]), Math.max(1, next - x), Math.max(1, y(l.min[i]) - y(l.max[i])));
      }
      g.globalAlpha = 1;
      g.beginPath();
      for (let i = a; i < b; i++) {
        const x = xOf(l.time_ns[i]);
        if (i === a || gap(l, i)) { g.moveTo(x, y(l.mean[i])); } else { g.lineTo(x, y(l.mean[i])); }
      }
      g.strokeStyle = l.colour;
      g.lineWidth = 1.6;
      g.stroke();
    }

    /* All layers of a stack have the same times: that is how they are asked for. */
    function stack(g, y) {
      const first = c.layers[0];
      const [a, b] = range(first);
      const base = new Map();
      for (const l of c.layers) {
        g.fillStyle = l.colour;
        for (let i = lowerBound(l.time_ns, first.time_ns[a] || 0); i < l.time_ns.length && l.time_ns[i] <= (first.time_ns[b - 1] || 0); i++) {
          const t = l.time_ns[i];
          const low = base.get(t) || 0;
          const next = i + 1 < l.time_ns.length && !gap(l, i + 1) ? l.time_ns[i + 1] : t + Math.max(l.step_ns, 1e9);
          const x = Math.round(xOf(t)); /* whole pixels, or seams show */
          base.set(t, low + l.mean[i]);
          if (l.mean[i] > 0) { g.fillRect(x, y(low + l.mean[i]), Math.max(1, Math.round(xOf(next)) - x), y(low) - y(low + l.mean[i])); }
        }
      }
    }

    function marks(g, h) {
      let free = -1;
      for (const m of c.marks) {
        if (m.time_ns < c.from || m.time_ns > c.to) { continue; }
        const x = Math.round(xOf(m.time_ns));
        const bad = /oom|xid|lost|ended/.test(m.kind);
        g.fillStyle = bad ? Plim.colours.capacity : Plim.colours.faint;
        for (let y = TOP; y < h - BOTTOM; y += 6) { g.fillRect(x, y, 1, 3); }
        g.beginPath();
        g.moveTo(x - 4, TOP - 8);
        g.lineTo(x + 4, TOP - 8);
        g.lineTo(x, TOP - 1);
        g.fill();
        if (x > free) {
          const text = Plim.words(m.kind);
          g.fillText(text, Math.min(x + 6, c.surface.width - g.measureText(text).width), TOP - 8);
          free = x + g.measureText(text).width + 14;
        }
      }
    }

    c.surface = Plim.surface({ label: 'Timeline', height: HEIGHT, draw(g, w, h) {
      const most = highest();
      const y = (v) => TOP + (1 - v / most) * (h - TOP - BOTTOM);
      axes(g, w - LEFT - RIGHT, h, most);
      g.save();
      g.beginPath();
      g.rect(LEFT, 0, w - LEFT - RIGHT, h - BOTTOM + 1);
      g.clip();
      if (c.stacked && c.layers.length) { stack(g, y); } else { for (const l of c.layers) { line(g, l, y); } }
      if (c.top) {
        g.fillStyle = Plim.colours.capacity;
        for (let x = LEFT; x < w; x += 9) { g.fillRect(x, y(c.top), 5, 1); }
      }
      g.restore();
      marks(g, h);
      if (c.at !== null && c.at >= c.from && c.at <= c.to) {
        g.fillStyle = Plim.colours.select;
        g.fillRect(Math.round(xOf(c.at)), TOP, 1, h - TOP - BOTTOM);
      }
    } });

    function zoom(t, factor) {
      const span = Math.max(LEAST_NS, (c.to - c.from) * factor);
      const share = (t - c.from) / (c.to - c.from);
      o.moved(t - share * span, t + (1 - share) * span);
    }
    const canvas = c.surface.canvas;
    canvas.classList.add('grab');
    canvas.addEventListener('wheel', (e) => {
      e.preventDefault();
      zoom(timeOf(e.offsetX), Math.exp(Math.max(-1, Math.min(1, e.deltaY / 300))));
    }, { passive: false });
    let drag = null;
    canvas.addEventListener('pointerdown', (e) => {
      drag = { x: e.clientX, from: c.from, to: c.to };
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener('pointermove', (e) => {
      if (drag) {
        const by = (e.clientX - drag.x) / width() * (drag.to - drag.from);
        if (Math.abs(e.clientX - drag.x) > 2) { o.moved(drag.from - by, drag.to - by); }
      } else { point(timeOf(e.offsetX)); }
    });
    for (const name of ['pointerup', 'pointercancel']) { canvas.addEventListener(name, () => { drag = null; }); }
    canvas.addEventListener('pointerleave', () => point(null));
    canvas.addEventListener('keydown', (e) => {
      const span = c.to - c.from;
      const act = {
        ArrowLeft: () => o.moved(c.from - span / 10, c.to - span / 10), ArrowRight: () => o.moved(c.from + span / 10, c.to + span / 10),
        '+': () => zoom((c.from + c.to) / 2, 0.7), '=': () => zoom((c.from + c.to) / 2, 0.7), '-': () => zoom((c.from + c.to) / 2, 1 / 0.7),
      }[e.key];
      if (act) { e.preventDefault(); act(); }
    });
    function point(t) {
      c.at = t;
      o.pointed(t);
      c.surface.redraw();
    }
    return c;
  }

  /* ---- the view ---- */

  Plim.historyView = function () {
    const NOW = () => (Plim.live.status ? Plim.live.status.time_ns : Date.now() * 1e6);
    let follow = true;
    let span = 600e9;
    /** @type {Array<Dict>} */ let subjects = [];
    let hasHistory = true;
    let wanted = ''; /* key of the subject in the address */
    let turn = 0; /* of the newest question; answers of older ones are dropped */
    let asked = 0;
    let loading = false;

    const subject = Plim.el('select', { 'aria-label': 'Subject', onchange: () => chooseSubject() });
    const figure = Plim.el('select', { 'aria-label': 'Figure', onchange: () => load() });
    const about = Plim.el('p', { class: 'note', role: 'status' });
    const cursor = Plim.el('p', { class: 'status' });
    const legend = Plim.el('ul', { class: 'legend' });
    const ranges = RANGES.map(([name, seconds]) => Plim.el('button', { type: 'button', 'aria-pressed': 'false', onclick: () => {
      follow = true;
      span = seconds ? seconds * 1e9 : Math.max(600e9, NOW() - oldest());
      moveTo(NOW() - span, NOW());
    } }, name));
    const c = chart({ moved: (a, b) => { follow = b >= NOW() - 0.01 * (b - a) && a < NOW(); span = b - a; moveTo(a, b); }, pointed });
    const view = Plim.el('section', { 'aria-labelledby': 'h-history' }, Plim.el('h2', { id: 'h-history' }, 'History'),
      Plim.el('div', { class: 'tools' }, subject, figure, ...ranges), Plim.el('div', { class: 'chart-box' }, c.surface.canvas), cursor, legend, about,
      Plim.el('p', { class: 'note' }, 'Wheel or + and - zoom, dragging or arrow keys pan. The band is from the least to the most within a step.'));

    const oldest = () => subjects.reduce((t, s) => Math.min(t, s.first_ns || Infinity), NOW() - 600e9);
    const chosen = () => subjects.find((s) => s.kind + '/' + s.key === subject.value);

    function subjectName(s) {
      const l = s.labels || {};
      const words = s.kind === 'device' ? [l.name || '', s.key] : [l.name || l.process || '', s.key];
      return s.kind + ': ' + words.filter((w) => w).join(' · ').slice(0, 90);
    }

    function ownSubjects() {
      return (Plim.live.status ? Plim.live.status.devices : []).map((d) => ({ kind: 'device', key: Plim.deviceKey(d), labels: { name: Plim.deviceName(d) }, own: true }));
    }

    async function loadSubjects() {
      if (loading) { return; }
      loading = true;
      await readSubjects();
      loading = false;
    }

    async function readSubjects() {
      try {
        const answer = await Plim.live.ask('api/v1/subjects?from=' + Math.round(NOW() - 92 * 86400e9));
        const order = ['device', 'process', 'engine', 'host'];
        subjects = answer.subjects.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind)); /* the sort is stable */
        hasHistory = subjects.length > 0;
      } catch (e) {
        hasHistory = false;
      }
      if (!hasHistory) { subjects = ownSubjects(); }
      const keep = wanted || subject.value;
      Plim.fill(subject, ...subjects.map((s) => Plim.el('option', { value: s.kind + '/' + s.key }, subjectName(s))));
      const found = keep && subjects.find((s) => s.kind + '/' + s.key === keep || s.key === keep);
      if (found) { subject.value = found.kind + '/' + found.key; }
      await chooseSubject();
    }

    async function chooseSubject() {
      const s = chosen();
      if (!s) { about.textContent = 'Nothing was observed yet.'; return; }
      let names = [];
      if (!s.own) {
        names = (await Plim.live.ask('api/v1/subjects?subject=' + s.id).catch(() => ({ figures: [] }))).figures || [];
      } else {
        const prefix = s.kind + '\n' + s.key + '\n';
        names = [...seen.keys()].filter((k) => k.startsWith(prefix)).map((k) => k.slice(prefix.length)).filter((n) => !n.startsWith('ledger.'));
      }
      const options = names.map((n) => [n, Plim.words(n)]);
      if (stackOf(s, names).length) { options.unshift(['ledger', 'ledger, stacked']); }
      const before = figure.value;
      Plim.fill(figure, ...options.map(([value, text]) => Plim.el('option', { value }, text)));
      if (options.some(([v]) => v === before)) { figure.value = before; }
      s.names = names;
      await load();
    }

    /** Figures that make up a stack for this subject: [figure, label, colour]. */
    function stackOf(s, names) {
      if (s.own) { return Plim.PARTS.filter(([part]) => part !== 'free').map(([part, colour, label]) => ['ledger.' + part, label, colour]); }
      return Plim.PARTS.filter(([part]) => part !== 'free').map(([part, colour, label]) => [part + '_bytes', label, colour])
        .filter(([name]) => names.includes(name));
    }

    const wantedFigures = (s) => (figure.value === 'ledger' ? stackOf(s, s.names || []) : [[figure.value, Plim.words(figure.value), 'live']]);

    async function load() {
      const s = chosen();
      if (!s || !figure.value) { return; }
      const mine = ++turn;
      asked = Date.now();
      const list = wantedFigures(s);
      const margin = (c.to - c.from) / 2;
      const [from, to] = [Math.max(0, Math.round(c.from - margin)), Math.round(c.to + margin)];
      let series = list.map(([name]) => seenSeries(s.kind, s.key, name, from, to));
      let marks = happened.slice();
      let complete = 0;
      if (!s.own) {
        try {
          const points = Math.max(200, Math.min(3000, 2 * c.surface.width));
          const [a, e] = await Promise.all([
            Plim.live.ask('api/v1/series?subject=' + s.id + '&figures=' + list.map(([n]) => encodeURIComponent(n)).join(',') + '&from=' + from + '&to=' + to + '&points=' + points),
            Plim.live.ask('api/v1/events?from=' + from + '&to=' + to + '&limit=300'),
          ]);
          if (mine !== turn) { return; }
          series = a.series;
          complete = a.series.reduce((t, x) => Math.max(t, x.complete_from_ns || 0), 0);
          marks = e.events.map((x) => ({ time_ns: x.time_ns, kind: x.kind, text: (x.detail && x.detail.text) || '' }));
        } catch (error) {
          if (mine !== turn) { return; }
          about.textContent = 'History: ' + error.message + '.';
          return;
        }
      }
      c.stacked = figure.value === 'ledger';
      c.layers = list.map(([name, label, colour], i) => ({ ...series[i], figure: name, live: liveName(name), label, colour: Plim.colours[colour] || colour }));
      const d = (Plim.live.status ? Plim.live.status.devices : []).find((x) => Plim.deviceKey(x) === s.key);
      c.top = d && s.kind === 'device' && (c.stacked || /^(used|free)_bytes$/.test(figure.value)) ? d.total_bytes || 0 : 0;
      c.marks = marks;
      Plim.fill(legend, ...c.layers.map((l) => Plim.el('li', {}, Plim.el('span', { class: 'key p-' + (c.stacked ? (Plim.PARTS.find((p) => p[2] === l.label) || ['live'])[0] : 'live') }), l.label)));
      const step = series.length ? series[0].step_ns : 0;
      about.textContent = s.own ? 'The monitor keeps no history: this is what the page has seen since it was opened.'
        : 'Steps of ' + Plim.seconds(step / 1e9) + (complete > from && series.some((x) => x.time_ns[0] < complete) ? '; before ' + Plim.time(complete) + ' only coarser history is there' : '') + '. Times are in ' + Plim.zoneName() + '.';
      c.surface.redraw();
    }

    /** Name of a figure of the history in this page's own. */
    function liveName(name) {
      return c.stacked && !name.startsWith('ledger.') ? 'ledger.' + name.replace('_bytes', '') : name;
    }

    const loadSoon = Plim.debounce(120, () => load());

    function showRanges() {
      ranges.forEach((b, i) => b.setAttribute('aria-pressed', String(follow && RANGES[i][1] * 1e9 === span)));
    }

    function moveTo(from, to) {
      c.from = from;
      c.to = to;
      showRanges();
      c.surface.redraw();
      loadSoon();
    }

    function pointed(t) {
      if (t === null) { cursor.textContent = ''; return; }
      const words = c.layers.map((l) => {
        const i = lowerBound(l.time_ns, t + 1) - 1;
        if (i < 0 || t - l.time_ns[i] > 4 * Math.max(l.step_ns, 1e9)) { return null; }
        const band = !c.stacked && l.min[i] !== l.max[i] ? ' (' + valueText(l.figure, l.min[i]) + ' to ' + valueText(l.figure, l.max[i]) + ')' : '';
        return l.label + ' ' + valueText(l.figure, l.mean[i]) + band;
      }).filter((w) => w);
      const near = c.marks.filter((m) => Math.abs(m.time_ns - t) < (c.to - c.from) / 150).slice(0, 3).map((m) => Plim.words(m.kind) + (m.text ? ' ' + m.text : ''));
      cursor.textContent = [Plim.time(t), ...words, ...near].join(' · ');
    }

    /** A point behind the last bin, from the newest state: the right edge moves without a question. */
    function append(s) {
      for (const l of c.layers) {
        const p = seenSeries(s.kind, s.key, l.live, NOW() - 1e6, NOW() + 1e6); /* such times are exact to 256 ns */
        const last = l.time_ns.length ? l.time_ns[l.time_ns.length - 1] : 0;
        if (p.time_ns.length && p.time_ns[0] >= last + Math.min(l.step_ns, 30e9)) {
          for (const column of ['time_ns', 'min', 'mean', 'max']) { l[column].push(p[column][0]); }
        }
      }
    }

    Plim.tested = { ...Plim.tested, history: { chart: c, moveTo } };
    return {
      view,
      open(rest) {
        const key = rest.join('/');
        if (key && key !== wanted) { wanted = key; follow = true; }
        c.from = follow ? NOW() - span : c.from;
        c.to = follow ? NOW() : c.to;
        showRanges();
        if (Plim.live.status) { loadSubjects(); }
      },
      zone: () => c.surface.redraw(),
      status(s) {
        if (follow) {
          c.from = s.time_ns - span;
          c.to = s.time_ns;
        }
        const now = chosen();
        if (!subjects.length || !now) {
          loadSubjects();
          return;
        }
        if (!follow) { return; }
        if (now.own) { load(); return; }
        append(now);
        c.surface.redraw();
        if (Date.now() - asked > Math.max(5000, span / 1e6 / 400)) { load(); }
      },
    };
  };
})();
