// SPDX-License-Identifier: Apache-2.0
/*
 * What surrounds the views: the bar with the moment (scrubber, play, jumps), the filters, the panel that says what
 * is selected, and a place for what went wrong.
 */
'use strict';

(function () {
  /** A labelled drop-down bound to one value of the state. */
  Plim.choice = function (label, name, options) {
    const select = Plim.el('select', { onchange: (e) => Plim.set({ [name]: e.target.value }) },
      ...options.map(([value, text]) => Plim.el('option', { value }, text)));
    const show = () => { select.value = Plim.state[name]; };
    show();
    Plim.onChange((names) => { if (names.has(name)) { show(); } });
    return Plim.el('label', {}, label + ' ', select);
  };

  function box(label, name, hint) {
    const apply = Plim.debounce(150, (value) => Plim.set({ [name]: value }));
    const input = Plim.el('input', { type: name === 'q' ? 'search' : 'text', size: name === 'q' ? 24 : 8, placeholder: hint,
      oninput: (e) => apply(e.target.value), autocomplete: 'off', spellcheck: 'false', 'data-name': name });
    const show = () => { if (document.activeElement !== input) { input.value = Plim.state[name]; } };
    show();
    Plim.onChange((names) => { if (names.has(name)) { show(); } });
    return Plim.el('label', {}, label + ' ', input);
  }

  Plim.filterBar = function () {
    const m = Plim.data.meta;
    const clear = () => {
      Plim.set({ q: '', min: '', max: '', minlife: '', maxlife: '', stream: '', pool: '' });
      for (const input of document.querySelectorAll('#filters input')) { input.value = ''; }
    };
    return Plim.el('form', { id: 'filters', role: 'search', 'aria-label': 'Filters', onsubmit: (e) => e.preventDefault() },
      box('Search', 'q', 'function, file or 0x address'), box('size from', 'min', '1 MiB'), box('to', 'max', ''),
      box('lifetime from', 'minlife', 'events'), box('to', 'maxlife', ''),
      Plim.choice('stream', 'stream', [['', 'all'], ...m.streams.map((s, i) => [String(i), s])]),
      Plim.choice('pool', 'pool', [['', 'all'], ...m.pools.map((p, i) => [String(i), i === 0 ? 'default' : p])]),
      Plim.el('button', { type: 'button', onclick: clear }, 'Clear'));
  };

  /* ---- the moment ---- */

  const JUMPS = [['start', 'start'], ['first_split', 'first split'], ['peak', 'peak'], ['failure', 'out of memory'], ['judged', 'judged'], ['end', 'end']];
  let playing = 0;

  /** One step: an event where the page knows all, else a keyframe. */
  Plim.step = function (by) {
    const { meta } = Plim.data;
    const stride = meta.all_blocks || meta.served ? 1 : Math.max(1, meta.events / Math.max(1, meta.keyframes));
    Plim.set({ t: Plim.state.t + by * stride });
  };

  function play(button) {
    const stop = () => { cancelAnimationFrame(playing); playing = 0; button.textContent = 'Play'; button.setAttribute('aria-pressed', 'false'); };
    if (playing) { stop(); return; }
    const end = Plim.data.meta.events;
    let t = Plim.state.t >= end ? 0 : Plim.state.t;
    let last = performance.now();
    button.textContent = 'Pause';
    button.setAttribute('aria-pressed', 'true');
    const frame = (now) => {
      t += end * Math.min(100, now - last) / 12000; /* the whole trace in 12 s */
      last = now;
      Plim.set({ t });
      if (t >= end) { stop(); } else { playing = requestAnimationFrame(frame); }
    };
    playing = requestAnimationFrame(frame);
  }

  Plim.momentBar = function () {
    const { meta } = Plim.data;
    const moments = { start: 0, ...meta.moments };
    const slider = Plim.el('input', { type: 'range', min: 0, max: meta.events, step: 1, 'aria-label': 'Moment, as a number of events',
      oninput: (e) => Plim.set({ t: Number(e.target.value) }) });
    const text = Plim.el('output', { id: 'moment-text' });
    const show = () => {
      const time = Plim.timeAt(Plim.state.t);
      slider.value = String(Plim.state.t);
      const words = 'event ' + Plim.count(Plim.state.t) + ' of ' + Plim.count(meta.events) + (Number.isFinite(time) ? ', +' + Plim.duration(time) : '');
      slider.setAttribute('aria-valuetext', words);
      text.textContent = words;
    };
    Plim.onChange((names) => { if (names.has('t')) { show(); } });
    show();
    const jumps = JUMPS.filter(([name]) => moments[name] !== undefined)
      .map(([name, label]) => Plim.el('button', { type: 'button', 'data-jump': name, onclick: () => Plim.set({ t: moments[name] }) }, label));
    const playButton = Plim.el('button', { type: 'button', 'aria-pressed': 'false', onclick: (e) => play(e.target) }, 'Play');
    return Plim.el('div', { id: 'moment', role: 'group', 'aria-label': 'Moment' }, playButton,
      Plim.el('button', { type: 'button', 'aria-label': 'One step back', onclick: () => Plim.step(-1) }, '\u25c2'), slider,
      Plim.el('button', { type: 'button', 'aria-label': 'One step on', onclick: () => Plim.step(1) }, '\u25b8'), text,
      Plim.el('span', { class: 'jumps' }, 'Go to: ', ...jumps));
  };

  /* ---- the selection ---- */

  function stackList(stack) {
    const frames = Plim.frames(stack);
    if (frames.length === 0) { return Plim.el('p', {}, 'No stack was recorded.'); }
    return Plim.el('ol', { class: 'stack' }, ...frames.map((f) => Plim.el('li', { title: f.file },
      Plim.el('code', {}, f.name || '(name left out)'), ' ', Plim.el('span', { class: 'file' }, f.file + (f.line ? ':' + f.line : '')))));
  }

  function facts(pairs) {
    return Plim.el('dl', {}, ...pairs.flatMap(([k, v]) => [Plim.el('dt', {}, k), Plim.el('dd', {}, v)]));
  }

  function blockPanel(lives, row) {
    const m = Plim.data.meta;
    const go = (label, t) => Plim.el('button', { type: 'button', onclick: () => Plim.set({ t }) }, label);
    const open = lives.end[row] === NONE;
    const born = lives.start[row] === 0 ? 'before the recording' : 'event ' + Plim.count(lives.start[row] - 1);
    const time = Plim.timeAt(lives.start[row]);
    return [Plim.el('h3', {}, 'Block of ' + Plim.bytes(lives.requested[row])),
      facts([['address', Plim.address(lives.addr[row])], ['size', Plim.bytes(lives.size[row]) + ' (rounding ' + Plim.bytes(lives.size[row] - lives.requested[row]) + ')'],
        ['allocated', born + (Number.isFinite(time) && lives.start[row] > 0 ? ', +' + Plim.duration(time) : '')],
        ['freed', open ? 'never in this trace' : 'event ' + Plim.count(lives.end[row] - 1)],
        ['lived', Plim.count(Math.min(m.events, lives.end[row]) - lives.start[row]) + ' events'],
        ['stream', m.streams[lives.stream[row]] || '0'], ['pool', m.pools[lives.pool[row]] || '0,0'],
        ['kind (a guess)', m.categories[Plim.categoryOf(lives.stack[row])]]]),
      Plim.el('p', { class: 'tools' }, go('Its allocation', lives.start[row]), open ? null : go('Its end', lives.end[row]),
        Plim.el('button', { type: 'button', onclick: () => Plim.selectSite(Plim.siteOf(lives.stack[row])) }, 'All of this place')),
      stackList(lives.stack[row])];
  }

  function sitePanel(site) {
    const { lives, rows } = Plim.liveAt(Plim.shownMoment(Plim.state.t));
    let bytes = 0;
    let blocks = 0;
    let stack = NONE;
    for (const r of rows) {
      if (Plim.siteOfRow(lives, r) === site) { bytes += lives.requested[r]; blocks++; stack = lives.stack[r]; }
    }
    if (stack === NONE) { for (const [id, s] of Plim.stacks) { if (s.site === site) { stack = id; break; } } }
    return [Plim.el('h3', {}, Plim.sites.get(site) || '(no stack recorded)'),
      facts([['live at the moment', Plim.bytes(bytes) + ' in ' + Plim.count(blocks) + ' blocks'], ['leak suspect', Plim.data.meta.suspects.includes(site) ? 'yes' : 'no']]),
      Plim.el('p', { class: 'note' }, 'One of its stacks, innermost first:'), stackList(stack)];
  }

  Plim.selectionPanel = function () {
    const body = Plim.el('div', { 'aria-live': 'polite' });
    const show = () => {
      const sel = Plim.state.sel;
      if (!sel) {
        Plim.fill(body, Plim.el('p', { class: 'note' }, 'Nothing is selected. Choose a block, a place or an event anywhere.'));
      } else if (sel.kind === 'site') {
        Plim.fill(body, ...sitePanel(sel.site));
      } else {
        const row = Plim.selectedRow();
        const { lives, rows } = Plim.liveAt(Plim.shownMoment(Plim.state.t));
        const live = row >= 0 ? undefined : rows.find((r) => Plim.isSelected(lives, r));
        if (row >= 0) { Plim.fill(body, ...blockPanel(Plim.data.blocks, row)); } else if (live !== undefined) { Plim.fill(body, ...blockPanel(lives, live)); } else {
          Plim.fill(body, Plim.el('p', { class: 'note' }, 'The selected block is not among those that this page holds.'));
        }
      }
    };
    Plim.onChange((names) => {
      if (names.has('sel') || (names.has('t') && Plim.state.sel && Plim.state.sel.kind === 'site')) { setTimeout(show, 0); }
    });
    show();
    return Plim.el('aside', { id: 'selection', 'aria-labelledby': 'h-sel' }, Plim.el('h2', { id: 'h-sel' }, 'Selection'), body);
  };

  /* ---- what went wrong ---- */

  Plim.complain = function (error) {
    const place = document.getElementById('complaint');
    if (place) { place.hidden = false; place.textContent = 'Something did not work: ' + (error && error.message ? error.message : error); }
  };
})();
