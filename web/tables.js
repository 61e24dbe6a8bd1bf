// SPDX-License-Identifier: Apache-2.0
/*
 * Tables: those of the page become sortable and can be copied as CSV; blocks and events at the moment get tables of
 * their own.
 */
'use strict';

(function () {
  const MOST_ROWS = 200;
  const ROWS_AT_ONCE = 10;
  const QUIET_MS = 90; /* a list is filled when the moment has stood still for so long */

  function cellValue(row, column) {
    const cell = row.cells[column];
    const v = cell.dataset.v;
    if (v === undefined) { return cell.textContent.trim().toLowerCase(); }
    return v === '' ? -Infinity : Number(v); /* not known sorts below everything */
  }

  function sortBy(table, column, header) {
    const down = header.getAttribute('aria-sort') !== 'descending';
    for (const h of table.tHead.rows[0].cells) { h.removeAttribute('aria-sort'); }
    header.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, v: cellValue(row, column) }));
    rows.sort((a, b) => (a.v < b.v ? -1 : a.v > b.v ? 1 : 0) * (down ? -1 : 1));
    body.append(...rows.map((r) => r.row));
  }

  /** One field of CSV; a field that a spreadsheet would run as a formula gets an apostrophe. */
  Plim.csvField = function (text) {
    const safe = /^[=+\-@\t\r]/.test(text) && !/^-?[0-9.]+$/.test(text) ? "'" + text : text;
    return /[",\n]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
  };

  /** A table as CSV; numbers are raw. @param {HTMLTableElement} table */
  Plim.csv = function (table) {
    return [...table.rows].map((row) => [...row.cells]
      .map((c) => Plim.csvField(c.dataset.v !== undefined ? c.dataset.v : c.textContent.trim())).join(',')).join('\n') + '\n';
  };

  async function copy(button, text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch (e) { /* no clipboard for files in some browsers: the old way */
      const area = Plim.el('textarea', { 'aria-hidden': 'true' });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy as CSV'; }, 1500);
  }

  /** Copy a table as CSV and say so on the button. */
  Plim.copyTable = (button, table) => copy(button, Plim.csv(table));

  /** Make a table sortable by its heads, with a button that copies it. */
  Plim.sortable = function (table) {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const text = header.textContent;
      Plim.fill(header, Plim.el('button', { type: 'button', class: 'sort', onclick: () => sortBy(table, column, header) }, text));
    });
    const button = Plim.el('button', { type: 'button', class: 'copy', onclick: () => Plim.copyTable(button, table) }, 'Copy as CSV');
    const wide = table.closest('.wide') || table;
    const above = wide.previousElementSibling || wide; /* the button stands beside the line above the table */
    above.parentNode.insertBefore(button, above);
  };

  /** Rows of the page's own tables select what they are about. */
  function linkRows() {
    for (const row of document.querySelectorAll('tr[data-site], tr[data-addr]')) {
      row.tabIndex = 0;
      const act = () => {
        if (row.dataset.site !== undefined) { Plim.selectSite(Number(row.dataset.site)); } else { selectAddress(Number(row.dataset.addr)); }
      };
      row.addEventListener('click', act);
      row.addEventListener('keydown', (e) => { if (e.key === 'Enter') { act(); } });
    }
    Plim.onChange((names) => {
      if (!names.has('sel')) { return; }
      const sel = Plim.state.sel;
      for (const row of document.querySelectorAll('tr[data-site]')) {
        row.classList.toggle('selected', sel !== null && sel.kind === 'site' && Number(row.dataset.site) === sel.site);
      }
    });
  }

  function selectAddress(addr) {
    const t = Plim.shownMoment(Plim.data.meta.moments.judged);
    const heap = Plim.heapAt(t);
    const piece = Plim.pieceAt(heap, addr);
    if (piece >= 0 && heap.pieces.row[piece] >= 0) {
      Plim.set({ t });
      Plim.selectBlock(heap.lives, heap.pieces.row[piece]);
    }
  }

  Plim.enhanceTables = function () {
    for (const table of document.querySelectorAll('table.sortable')) { Plim.sortable(table); }
    linkRows();
  };

  /**
   * Lists: filled once the moment and the filters have stood still. A selection only marks a row.
   * @param {() => void} refresh @param {() => void} mark
   */
  function lazily(refresh, mark) {
    const later = Plim.debounce(QUIET_MS, refresh);
    return (names) => {
      if (names.has('tab') || names.has('heap')) { refresh(); } else if (names.size === 1 && names.has('sel')) { mark(); } else { later(); }
    };
  }

  /** Put n rows in place of a table's, a few in each frame. A later call gives an earlier one up. */
  function filler(table) {
    let stop = () => {};
    return function (n, rowFor) {
      const body = table.tBodies[0];
      let i = 0;
      stop();
      stop = Plim.job(() => {
        for (const end = Math.min(n, i + ROWS_AT_ONCE); i < end; i++) {
          const old = body.rows[i];
          if (old) { old.replaceWith(rowFor(i)); } else { body.append(rowFor(i)); }
        }
        if (i < n) { return false; }
        while (body.rows.length > n) { body.rows[n].remove(); }
        return true;
      });
    };
  }

  /** A row's click or Enter key, once for a whole table: act(its number in the list). */
  function onRows(table, act) {
    const go = (e) => { const row = e.target.closest('tbody tr'); if (row) { act(Number(row.dataset.row)); } };
    table.addEventListener('click', go);
    table.addEventListener('keydown', (e) => { if (e.key === 'Enter') { go(e); } });
  }

  /* ---- blocks at the moment ---- */

  function headed(id, heads) {
    return Plim.el('table', { class: 'sortable', id }, Plim.el('thead', {},
      Plim.el('tr', {}, ...heads.map((h) => Plim.el('th', { scope: 'col' }, h)))), Plim.el('tbody', {}));
  }
  const num = (v, text) => Plim.el('td', { class: 'n', 'data-v': v }, text === undefined ? Plim.count(v) : text);

  Plim.blocksView = function () {
    const note = Plim.el('p', { class: 'note', role: 'status' });
    const table = headed('t-blocks', ['size', 'address', 'allocated at event', 'lived, events', 'stream', 'pool', 'kind (a guess)', 'allocated by']);
    const view = Plim.el('div', {}, note, Plim.el('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Blocks' }, table));
    Plim.sortable(table);
    const m = Plim.data.meta;
    const fillTable = filler(table);
    let shown = { lives: m, rows: /** @type {number[]} */ ([]) };
    const rowFor = (i) => {
      const { lives, rows } = shown;
      const r = rows[i];
      return Plim.el('tr', { tabindex: '0', 'data-row': i, class: Plim.isSelected(lives, r) ? 'selected' : null },
        num(lives.requested[r], Plim.bytes(lives.requested[r])), num(lives.addr[r], Plim.address(lives.addr[r])),
        num(lives.start[r], lives.start[r] === 0 ? 'before' : Plim.count(lives.start[r] - 1)),
        num(Math.min(m.events, lives.end[r]) - lives.start[r]), Plim.el('td', {}, m.streams[lives.stream[r]] || '0'),
        Plim.el('td', {}, m.pools[lives.pool[r]] || '0,0'), Plim.el('td', {}, m.categories[Plim.categoryOf(lives.stack[r])]),
        Plim.el('td', {}, Plim.labelOf(lives.stack[r])));
    };
    onRows(table, (i) => Plim.selectBlock(shown.lives, shown.rows[i]));
    const refresh = function () {
      const t = Plim.shownMoment(Plim.state.t);
      const { lives, rows: all } = Plim.liveAt(t);
      const keep = Plim.filter();
      const rows = keep ? all.filter((r) => keep(lives, r)) : all.slice();
      const sum = rows.reduce((s, r) => s + lives.requested[r], 0);
      rows.sort((a, b) => lives.requested[b] - lives.requested[a] || lives.addr[a] - lives.addr[b]);
      note.textContent = Plim.count(rows.length) + ' live blocks at event ' + Plim.count(t) + (keep ? ' match the filter' : '') +
        ', ' + Plim.bytes(sum) + (rows.length > MOST_ROWS ? '; the ' + MOST_ROWS + ' largest are listed' : '') + '.';
      shown = { lives, rows };
      fillTable(Math.min(MOST_ROWS, rows.length), rowFor);
    };
    const mark = () => {
      for (const row of table.tBodies[0].rows) { row.classList.toggle('selected', Plim.isSelected(shown.lives, shown.rows[Number(row.dataset.row)])); }
    };
    return { view, refresh: lazily(refresh, mark) };
  };

  /* ---- events around the moment ---- */

  Plim.eventsView = function () {
    const AROUND = 40;
    const note = Plim.el('p', { class: 'note', role: 'status' });
    const table = headed('t-events', ['event', 'time', 'action', 'size', 'address', 'stream', 'note', 'by']);
    const view = Plim.el('div', {}, note, Plim.el('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Events' }, table));
    const m = Plim.data.meta;
    Plim.sortable(table);
    const fillTable = filler(table);
    const noteOf = (i) => {
      const n = m.notes[i];
      return n ? [n.compile_context === 'N/A' ? '' : n.compile_context, n.user_metadata].filter((t) => t).join(' ') : '';
    };
    const rowFor = (i) => {
      const e = Plim.data.events;
      const now = e.index[i] + 1 === Plim.state.t;
      return Plim.el('tr', { tabindex: '0', 'data-row': i, class: now ? 'selected' : null, 'aria-current': now ? 'true' : null },
      num(e.index[i]), num(e.time[i], m.has_times ? '+' + Plim.duration(e.time[i]) : ''), Plim.el('td', {}, m.actions[e.action[i]]),
      num(e.size[i], Plim.bytes(e.size[i])), num(e.addr[i], Plim.address(e.addr[i])), Plim.el('td', {}, m.streams[e.stream[i]] || ''),
      Plim.el('td', {}, noteOf(e.note[i])), Plim.el('td', {}, e.stack[i] === NONE ? '' : Plim.labelOf(e.stack[i])));
    };
    const refresh = function () {
      const e = Plim.data.events;
      const at = Plim.lowerBound(e.index, Plim.state.t);
      const from = Math.max(0, at - AROUND);
      const to = Math.min(e.index.length, at + AROUND);
      note.textContent = m.all_events ? 'Events around the moment. Arrow keys step.'
        : 'Events around the moment, of the ' + Plim.count(e.index.length) + ' that this page holds (of ' + Plim.count(m.events) + ').';
      fillTable(to - from, (i) => rowFor(from + i));
    };
    onRows(table, Plim.selectEvent);
    return { view, refresh: lazily(refresh, () => {}) };
  };

  /** Go behind an event and select the block that it is about. @param {number} i row of the events */
  Plim.selectEvent = function (i) {
    const e = Plim.data.events;
    const b = Plim.data.blocks;
    Plim.set({ t: e.index[i] + 1 });
    for (let r = 0; r < b.addr.length; r++) {
      if (b.addr[r] === e.addr[i] && b.start[r] <= e.index[i] + 1 && e.index[i] < b.end[r]) { Plim.selectBlock(b, r); return; }
    }
  };
})();
