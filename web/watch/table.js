// SPDX-License-Identifier: Apache-2.0
/*
 * A table that is filled anew each second and stays what the reader made of it: its order, its focus, its scroll position.
 * Rows are known by their key and only cells that changed are written.
 */
'use strict';

/**
 * @param {Object} o
 * @param {string} o.label for screen readers
 * @param {string} o.empty what is said when there are no rows
 * @param {Array<Dict>} o.columns {name, value(row): number|string, text(row)?: string, node(row)?: Node, numeric?, title?}
 * @param {(row: any) => string} o.key
 * @param {number} [o.sort] column to begin with
 * @param {boolean} [o.down]
 * @param {(row: any) => string} [o.kind] class of the row
 */
Plim.liveTable = function (o) {
  const head = Plim.el('tr', {});
  const body = Plim.el('tbody', {});
  const table = Plim.el('table', { 'aria-label': o.label }, Plim.el('thead', {}, head), body);
  const empty = Plim.el('p', { class: 'note', hidden: true }, o.empty);
  const copied = Plim.el('button', { type: 'button', class: 'copy', onclick: () => Plim.copyTable(copied, table) }, 'Copy as CSV');
  const view = Plim.el('div', { class: 'table' }, copied,
    Plim.el('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Table: ' + o.label }, table), empty);
  const kept = new Map(); /* key: {tr, cells, texts} */
  let rows = [];
  let sort = o.sort || 0;
  let down = o.down === true;

  o.columns.forEach((c, i) => {
    const button = Plim.el('button', { type: 'button', class: 'sort', title: c.title, onclick: () => {
      down = sort === i ? !down : Boolean(c.numeric);
      sort = i;
      fill();
    } }, c.name);
    head.append(Plim.el('th', { scope: 'col', class: c.numeric ? 'n' : null }, button));
  });

  function before(a, b) {
    const x = o.columns[sort].value(a);
    const y = o.columns[sort].value(b);
    const known = (v) => v !== null && v !== undefined && v !== '';
    if (known(x) !== known(y)) { return known(x) ? -1 : 1; } /* what is not known comes last in both orders */
    const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
    return (order || (o.key(a) < o.key(b) ? -1 : 1)) * (down ? -1 : 1);
  }

  function write(entry, row) {
    entry.tr.className = o.kind ? o.kind(row) || '' : '';
    o.columns.forEach((c, i) => {
      const cell = entry.cells[i];
      const value = c.value(row);
      const text = c.text ? c.text(row) : value === null || value === undefined ? '' : String(value);
      if (entry.texts[i] === text) { return; }
      entry.texts[i] = text;
      if (c.numeric) { cell.dataset.v = value === null || value === undefined ? '' : String(value); }
      if (c.node) { Plim.fill(cell, c.node(row)); } else { cell.textContent = text; }
    });
  }

  function fill() {
    [...head.cells].forEach((h, i) => {
      if (i === sort) { h.setAttribute('aria-sort', down ? 'descending' : 'ascending'); } else { h.removeAttribute('aria-sort'); }
    });
    rows.sort(before);
    const seen = new Set();
    let at = body.firstChild;
    for (const row of rows) {
      const k = o.key(row);
      let entry = kept.get(k);
      if (!entry) {
        const cells = o.columns.map((c) => Plim.el('td', { class: c.numeric ? 'n' : null }));
        entry = { tr: Plim.el('tr', {}, ...cells), cells, texts: [] };
        kept.set(k, entry);
      }
      seen.add(k);
      write(entry, row);
      if (entry.tr === at) { at = at.nextSibling; } else { body.insertBefore(entry.tr, at); }
    }
    for (const [k, entry] of kept) {
      if (!seen.has(k)) { entry.tr.remove(); kept.delete(k); }
    }
    table.hidden = copied.hidden = rows.length === 0;
    empty.hidden = rows.length > 0;
  }

  fill();
  return { view, table, set(next) { rows = next.slice(); fill(); } };
};
