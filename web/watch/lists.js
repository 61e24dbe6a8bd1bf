// SPDX-License-Identifier: Apache-2.0
/* Engines, alerts with what can be done about them, and incidents with their bundles and reports. */
'use strict';

(function () {
  const figure = (name, field, text, title) => ({ name, title, numeric: true, value: (r) => (Number.isFinite(r[field]) ? r[field] : null), text: (r) => (Number.isFinite(r[field]) ? text(r[field]) : '') });
  const percent = (v) => (100 * v).toFixed(1) + ' %';
  const COMPONENTS = [['weights', 'live'], ['kv_cache', 'releasable'], ['graphs', 'external'], ['activations', 'pending'], ['other', 'other']];

  /* ---- engines ---- */

  function componentBar(e) {
    const parts = Object.entries(e.components || {});
    const sum = parts.reduce((n, [, v]) => n + v, 0);
    if (!sum) { return Plim.el('span', {}); }
    const bar = Plim.el('div', { class: 'components', role: 'img', 'aria-label': parts.map(([n, v]) => Plim.words(n) + ' ' + Plim.bytes(v)).join(', ') });
    for (const [name, colour] of COMPONENTS) {
      const bytes = e.components[name] || 0;
      const part = Plim.el('span', { title: Plim.words(name) + ': ' + Plim.bytes(bytes) });
      part.style.width = 100 * bytes / sum + '%';
      part.style.background = 'var(--' + colour + ')';
      bar.append(part);
    }
    return bar;
  }

  Plim.enginesView = function () {
    const table = Plim.liveTable({
      label: 'Engines', empty: 'No serving engine is known. Name its address with --engine, or in the settings.', key: (e) => e.name + '/' + (e.rank || ''),
      kind: (e) => (e.up ? '' : 'old'),
      columns: [
        { name: 'engine', value: (e) => e.name }, { name: 'kind', value: (e) => e.kind }, { name: 'model', value: (e) => e.model || '' },
        { name: 'state', value: (e) => (!e.up ? 'does not answer' : e.asleep ? 'asleep' : 'up') },
        figure('running', 'requests_running', Plim.count), figure('waiting', 'requests_waiting', Plim.count),
        figure('KV used', 'kv_usage_ratio', percent, 'of the pool of keys and values'), figure('KV evictable', 'kv_evictable_ratio', percent),
        figure('KV tokens', 'kv_capacity_tokens', Plim.count, 'of the whole pool'), figure('preempted', 'preemptions', Plim.count),
        figure('finished', 'requests_finished', Plim.count), figure('rejected', 'requests_rejected', Plim.count),
        { name: 'memory by part', value: (e) => Object.values(e.components || {}).reduce((n, v) => n + v, 0), text: (e) => JSON.stringify(e.components || {}), node: componentBar },
      ],
    });
    return {
      view: Plim.el('section', { 'aria-labelledby': 'h-engines' }, Plim.el('h2', { id: 'h-engines' }, 'Engines'), table.view),
      status: (s) => table.set(s.engines || []),
    };
  };

  /* ---- alerts ---- */

  function about(alert) {
    const s = alert.subject || {};
    return [s.process ? (s.process.name || 'process') + ' (pid ' + s.process.pid + ')' : '', s.device ? [s.device.name, s.device.pci || s.device.uuid].filter((t) => t).join(' ') : '', s.engine || ''].filter((t) => t).join(' on ') || 'this machine';
  }

  function alertView(a, act) {
    const note = Plim.el('p', { class: 'risk', role: 'alert' });
    const hours = Plim.el('select', { 'aria-label': 'How long' }, ...[1, 4, 24, 168].map((h) => Plim.el('option', { value: h }, h < 48 ? h + ' h' : h / 24 + ' days')));
    const firing = a.status === 'firing';
    return Plim.el('article', { class: 'finding s-' + a.severity + (firing ? '' : ' over'), id: 'alert-' + a.fingerprint },
      Plim.el('h3', {}, Plim.el('span', { class: 'severity' }, a.severity), ' ', a.rule + ', ' + a.status + (a.acknowledged ? ', acknowledged' : '') + ': ' + about(a)),
      Plim.el('p', { class: 'summary' }, a.summary),
      a.next_step ? Plim.el('p', { class: 'next' }, Plim.el('strong', {}, 'Next: '), a.next_step) : null,
      Plim.el('p', { class: 'note' }, [a.fired_at ? 'fired ' + when(a.fired_at) : 'began ' + when(a.began_at), a.resolved_at ? 'resolved ' + when(a.resolved_at) : '', a.flapping ? 'comes and goes' : ''].filter((t) => t).join(' · ')),
      a.evidence && a.evidence.length ? Plim.el('details', {}, Plim.el('summary', {}, 'Evidence'), Plim.el('ul', {}, ...a.evidence.map((l) => Plim.el('li', {}, l)))) : null,
      firing ? Plim.el('div', { class: 'tools' },
        a.acknowledged ? null : Plim.el('button', { type: 'button', onclick: () => act('api/v1/alerts/' + a.fingerprint + '/acknowledge', {}, note) }, 'Acknowledge'),
        Plim.el('button', { type: 'button', onclick: () => act('api/v1/silences', {
          rule: a.rule, device: (a.subject && a.subject.device && a.subject.device.uuid) || '', seconds: 3600 * Number(hours.value), comment: 'from the dashboard',
        }, note) }, 'Silence for'), hours) : null,
      note);
  }

  const when = (iso) => Plim.time(Date.parse(iso) * 1e6);

  Plim.alertsView = function () {
    const list = Plim.el('div', {});
    const silences = Plim.el('div', {});
    const receivers = Plim.el('p', { class: 'note' });
    const note = Plim.el('p', { class: 'risk', role: 'alert' });
    let shown = '';
    let asked = 0;
    let busy = false;

    async function act(path, body, where) {
      if (await Plim.change(path, body, where)) { asked = 0; await load(); }
    }
    async function load() {
      if (busy || Date.now() - asked < 3000) { return; }
      busy = true;
      asked = Date.now();
      try {
        const answer = await Plim.live.ask('api/v1/alerts');
        const text = JSON.stringify(answer) + Plim.zone.utc;
        if (text !== shown) { shown = text; show(answer); }
        note.textContent = '';
      } catch (e) {
        note.textContent = 'Alerts: ' + e.message;
      }
      busy = false;
    }
    function show(answer) {
      const order = { firing: 0, pending: 1, resolved: 2 };
      const open = new Set([...list.querySelectorAll('details[open]')].map((d) => d.closest('article').id));
      const rows = answer.alerts.slice().sort((a, b) => order[a.status] - order[b.status]);
      Plim.fill(list, ...(rows.length ? rows.map((a) => alertView(a, act)) : [Plim.el('p', { class: 'note' }, 'No alert.')]));
      for (const d of list.querySelectorAll('details')) { d.open = open.has(d.closest('article').id); }
      Plim.fill(silences, ...(answer.silences || []).map((s) => Plim.el('p', {}, 'Silent until ' + Plim.time(s.until_ns) + ': ' +
        ([s.rule, s.device, s.process].filter((t) => t).join(', ') || 'everything') + (s.comment ? ' (' + s.comment + ')' : '') + ' ',
      Plim.el('button', { type: 'button', onclick: () => act('api/v1/silences/' + s.id + '/end', {}, note) }, 'End'))));
      const told = (answer.receivers || []).map((r) => r.name + (r.failing ? ' (fails: ' + (r.error || 'no answer') + ')' : ''));
      receivers.textContent = told.length ? 'Told: ' + told.join(', ') + '.' : 'Nobody is told: the settings have no [notify].';
    }
    return {
      view: Plim.el('section', { 'aria-labelledby': 'h-alerts' }, Plim.el('h2', { id: 'h-alerts' }, 'Alerts'), list, silences, receivers, note),
      open() { asked = 0; load(); },
      zone() { asked = 0; load(); },
      status: () => { load(); },
    };
  };

  /* ---- incidents ---- */

  Plim.incidentsView = function () {
    const note = Plim.el('p', { class: 'note', role: 'status' });
    const link = (href, text, download) => Plim.el('a', download ? { href, download: '' } : { href, target: '_blank', rel: 'noopener' }, text);
    const path = (r) => 'api/v1/incidents/' + encodeURIComponent(r.id);
    const table = Plim.liveTable({
      label: 'Incidents', empty: 'No incident.', key: (r) => r.id, sort: 0, down: true,
      columns: [
        { name: 'time', numeric: true, value: (r) => r.time_ns, text: (r) => Plim.time(r.time_ns) },
        { name: 'kind', value: (r) => r.kind }, { name: 'cause', value: (r) => [r.class, r.subclass].filter((t) => t).map(Plim.words).join(' / ') },
        { name: 'summary', value: (r) => r.summary || '' },
        { name: 'pid', numeric: true, value: (r) => (r.pid > 0 ? r.pid : null) },
        { name: 'ran for', numeric: true, value: (r) => r.uptime_ns || null, text: (r) => (r.uptime_ns ? Plim.seconds(r.uptime_ns / 1e9) : '') },
        { name: 'bundle', value: (r) => r.id, text: (r) => r.id + (r.report ? '+' : ''), node: (r) => Plim.el('span', {}, r.report ? link(path(r) + '/report', 'report') : '', ' ', link(path(r) + '/bundle', 'bundle', true)) },
      ],
    });
    async function load() {
      try {
        const answer = await Plim.live.ask('api/v1/incidents');
        table.set(answer.incidents);
        note.textContent = answer.folder ? 'Those in ' + answer.folder + (answer.unfinished ? '; ' + answer.unfinished + ' are not finished: plimsoll incident --finish' : '') + '.' : '';
      } catch (e) {
        note.textContent = e.message + (e.hint ? ': ' + e.hint : '');
      }
    }
    return {
      view: Plim.el('section', { 'aria-labelledby': 'h-incidents' }, Plim.el('h2', { id: 'h-incidents' }, 'Incidents'), table.view, note),
      open: () => { load(); },
      zone: () => { load(); },
    };
  };
})();
