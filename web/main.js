// SPDX-License-Identifier: Apache-2.0
/*
 * Puts the page together once the data are read: timeline, moment, filters, the tabs with map, flame graph,
 * lifetimes, blocks and events, the selection; keys; the link to the local server.
 */
'use strict';

(function () {
  const TABS = [['map', 'Device map', () => Plim.mapView()], ['flame', 'Flame graph', () => Plim.flameView()],
    ['life', 'Lifetimes', () => Plim.lifetimesView()], ['blocks', 'Blocks', () => Plim.blocksView()],
    ['events', 'Events', () => Plim.eventsView()]];
  const built = new Map();

  /** Said at the top of the views: what was left out to keep the file small. */
  function aggregation() {
    const m = Plim.data.meta;
    const out = [];
    const s = Plim.data.series[0];
    if (s.range[2] > 1) { out.push('The timeline has one bin for ' + Plim.count(s.range[2]) + ' events, each showing its highest point; around the moments with a name it is exact.'); }
    if (!m.all_blocks) {
      const at = m.merged > 0 ? 'at the judged moment only' : m.keyframes > 0 ? 'at ' + m.keyframes + ' evenly spaced moments and those with a name' : 'at the moments with a name';
      out.push('Of ' + Plim.count(m.blocks_of) + ' blocks it holds ' + Plim.count(m.blocks) + ': map and flame graph are complete ' + at + '.');
    }
    if (!m.all_events) { out.push('Of ' + Plim.count(m.events) + ' events it holds ' + Plim.count(Plim.data.events.index.length) + '.'); }
    if (m.frames_cut > 0) { out.push(Plim.count(m.frames_cut) + ' names of functions and files are left out.'); }
    if (out.length === 0) { return null; }
    const more = m.served ? 'Zoom in: the server sends the exact events.' : 'plimsoll view shows every event.';
    return Plim.el('p', { class: 'note', id: 'aggregated' }, 'To stay small this page summarizes. ' + out.join(' ') + ' ' + more);
  }

  /** What the views behind the tabs depend on; not the window of the timeline, which changes with each frame. */
  const WATCHED = ['t', 't2', 'against', 'sel', 'colour', 'q', 'min', 'max', 'minlife', 'maxlife', 'stream', 'pool', 'tab', 'heap'];

  function refreshTab(names) {
    const tab = built.get(Plim.state.tab);
    if (tab && WATCHED.some((name) => names.has(name))) { tab.refresh(names); }
  }

  function showTab(tabs, panels) {
    if (!TABS.some(([name]) => name === Plim.state.tab)) { Plim.state.tab = 'map'; }
    for (const [name, , make] of TABS) {
      const now = name === Plim.state.tab;
      tabs.get(name).setAttribute('aria-selected', String(now));
      tabs.get(name).tabIndex = now ? 0 : -1;
      panels.get(name).hidden = !now;
      if (now && !built.has(name)) {
        built.set(name, make());
        panels.get(name).append(built.get(name).view);
      }
    }
    requestAnimationFrame(() => refreshTab(new Set(['tab'])));
  }

  function tabBar() {
    const tabs = new Map();
    const panels = new Map();
    const list = Plim.el('div', { role: 'tablist', 'aria-label': 'Views at the moment' });
    const holder = Plim.el('div', { id: 'panels' });
    TABS.forEach(([name, label], i) => {
      const tab = Plim.el('button', { type: 'button', role: 'tab', id: 'tab-' + name, 'aria-controls': 'panel-' + name,
        onclick: () => Plim.set({ tab: name }), onkeydown: (e) => {
          const by = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
          if (by) {
            const next = TABS[(i + by + TABS.length) % TABS.length][0];
            Plim.set({ tab: next });
            tabs.get(next).focus();
            e.preventDefault();
            e.stopPropagation();
          }
        } }, label);
      const panel = Plim.el('div', { role: 'tabpanel', id: 'panel-' + name, 'aria-labelledby': 'tab-' + name });
      tabs.set(name, tab);
      panels.set(name, panel);
      list.append(tab);
      holder.append(panel);
    });
    Plim.onChange((names) => {
      if (names.has('tab')) { showTab(tabs, panels); } else { refreshTab(names); }
    });
    return { bar: Plim.el('div', { id: 'tabs' }, list, holder), show: () => showTab(tabs, panels) };
  }

  function onKey(e) {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
    if (e.ctrlKey || e.metaKey || e.altKey || typing) { return; }
    const keys = {
      ArrowRight: () => Plim.step(e.shiftKey ? 10 : 1), ArrowLeft: () => Plim.step(e.shiftKey ? -10 : -1),
      Home: () => Plim.set({ t: 0 }), End: () => Plim.set({ t: Plim.data.meta.events }),
      '+': () => Plim.zoom(0.5, Plim.state.t), '=': () => Plim.zoom(0.5, Plim.state.t), '-': () => Plim.zoom(2, Plim.state.t),
      '[': () => Plim.stepBlock(-1), ']': () => Plim.stepBlock(1), Escape: () => Plim.set({ sel: null, t2: null, against: '' }),
      '/': () => document.querySelector('#filters input').focus(),
    };
    TABS.forEach(([name], i) => { keys[String(i + 1)] = () => Plim.set({ tab: name }); });
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  }

  /* ---- the local server ---- */

  const askForHeap = Plim.debounce(150, async function () {
    const t = Plim.state.t;
    if (Plim.exactAt(t)) { return; }
    try {
      const groups = await Plim.ask('heap?at=' + t);
      Plim.remoteHeap = { position: t, blocks: groups.bl, order: Plim.byAddress(groups.bl), segments: groups.sg };
      refreshTab(new Set(['heap']));
    } catch (e) { Plim.complain(e); }
  });

  /** Take more events into those the page has. */
  Plim.askEvents = async function (from, to) {
    const e = Plim.data.events;
    const known = Plim.lowerBound(e.index, to) - Plim.lowerBound(e.index, from);
    if (known >= to - from) { return; }
    const more = (await Plim.ask('events?from=' + from + '&to=' + to)).ev;
    const low = Plim.lowerBound(e.index, from);
    const high = Plim.lowerBound(e.index, to);
    const joined = {};
    for (const name of Object.keys(e)) {
      const column = new e[name].constructor(low + more[name].length + e[name].length - high);
      column.set(e[name].subarray(0, low));
      column.set(more[name], low);
      column.set(e[name].subarray(high), low + more[name].length);
      joined[name] = column;
    }
    Plim.data.events = joined;
    if (Plim.state.tab === 'events') { refreshTab(new Set(['heap'])); }
  };
  const askForEvents = Plim.debounce(150, () => {
    const t = Plim.state.t;
    Plim.askEvents(Math.max(0, t - 60), Math.min(Plim.data.meta.events, t + 60)).catch(Plim.complain);
  });

  /* ---- start ---- */

  function build() {
    const views = document.getElementById('views');
    const tabs = tabBar();
    Plim.fill(views, Plim.el('p', { id: 'complaint', class: 'complaint', role: 'alert', hidden: true }), aggregation(),
      Plim.timelineView(), Plim.el('div', { class: 'sticky' }, Plim.momentBar(), Plim.filterBar()),
      Plim.el('div', { class: 'columns' }, tabs.bar, Plim.selectionPanel()));
    tabs.show();
  }

  /** Put the device that the address asks for in place of the first; mark its link. */
  function chooseDevice() {
    const asked = Plim.askedDevice();
    const links = [...document.querySelectorAll('#devices a')];
    const other = [...document.querySelectorAll('template[data-device]')].find((t) => t.dataset.device === asked);
    if (!other) { return; }
    document.querySelector('main').replaceChildren(other.content);
    for (const link of links) {
      if (link.dataset.device === asked) { link.setAttribute('aria-current', 'page'); } else { link.removeAttribute('aria-current'); }
    }
  }

  /** The address changed by hand or by a link. Another device is another page: begin anew. */
  function onAddress() {
    const asked = Plim.askedDevice();
    if (asked !== null && asked !== String(Plim.data.meta.device) && document.querySelector('#devices a[data-device="' + CSS.escape(asked) + '"]')) {
      location.reload();
    } else {
      Plim.set(Plim.readAddress());
    }
  }

  async function start() {
    Plim.readColours();
    chooseDevice();
    if (!Plim.dataElement()) {
      Plim.enhanceTables();
      document.documentElement.dataset.ready = 'true';
      return;
    }
    await Plim.load();
    const { meta } = Plim.data;
    if (Plim.data.earlier) { Object.assign(Plim.state, { tab: 'flame', against: 'before' }); }
    Object.assign(Plim.state, { t: meta.moments.judged, from: 0, to: Math.max(1, meta.events) });
    const asked = Plim.readAddress();
    if (asked.from !== undefined && !(asked.to > asked.from)) { delete asked.from; delete asked.to; }
    Object.assign(Plim.state, asked, { t: Math.max(0, Math.min(meta.events, Math.round(asked.t === undefined ? meta.moments.judged : asked.t))) });
    Plim.enhanceTables();
    build();
    document.addEventListener('keydown', onKey);
    window.addEventListener('hashchange', onAddress);
    Plim.followPrinter(() => refreshTab(new Set(['heap'])));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { Plim.readColours(); Plim.set({ hover: -1 }); refreshTab(new Set(['colour'])); });
    Plim.onChange((names) => {
      if (names.size > 1 || !names.has('hover')) { Plim.writeAddress(); }
      if (meta.served && names.has('t')) { askForHeap(); askForEvents(); }
    });
    requestAnimationFrame(() => requestAnimationFrame(() => {
      Plim.paintedAt = performance.now();
      document.documentElement.dataset.ready = 'true';
    }));
  }

  start().catch((error) => {
    const views = document.getElementById('views');
    Plim.fill(views, Plim.el('p', { class: 'complaint', role: 'alert' }, 'The drawings cannot be shown: ' + error.message));
    document.documentElement.dataset.ready = 'failed';
  });
})();
