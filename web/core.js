// SPDX-License-Identifier: Apache-2.0
/*
 * The ground that the views stand on: making elements, writing sizes, colours, a drawing surface.
 *
 * All scripts are joined into one and share the object Plim. Nothing here makes markup from text: every string
 * of the snapshot goes through textContent. Bytes are numbers (exact up to 2^53).
 */
'use strict';

/** @typedef {Object<string, any>} Dict */

const Plim = {};

/**
 * An element with attributes, listeners ("onclick") and children (elements or text).
 * @param {string} tag
 * @param {Dict} [attributes]
 * @param {...(Node|string|number|null)} children
 * @returns {any}
 */
Plim.el = function (tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) {
      e.addEventListener(key.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      e.setAttribute(key, value === true ? '' : String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined) {
      e.append(child instanceof Node ? child : String(child));
    }
  }
  return e;
};

/** Replace the children of an element. @param {Element} e @param {...any} children */
Plim.fill = function (e, ...children) {
  e.replaceChildren(...children.filter((c) => c !== null && c !== undefined));
};

/** "23.5 GiB". @param {number} bytes @returns {string} */
Plim.bytes = function (bytes) {
  if (!Number.isFinite(bytes)) { return 'unknown'; }
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let v = Math.abs(bytes);
  let u = 0;
  while (v >= 1024 && u < units.length - 1) { v /= 1024; u++; }
  const digits = u === 0 || v >= 100 ? 0 : v >= 10 ? 1 : 2;
  return (bytes < 0 ? '-' : '') + v.toFixed(digits) + ' ' + units[u];
};

/** "1,234,567". @param {number} n */
Plim.count = function (n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ',');
};

/**
 * "2 h 3 min", "1.25 s", "310 us".
 * @param {number} us microseconds
 * @param {number} [span] of what is shown: one hundredth of it can be told apart
 */
Plim.duration = function (us, span) {
  if (us >= 3600e6) { return Math.floor(us / 3600e6) + ' h ' + Math.round(us % 3600e6 / 60e6) + ' min'; }
  if (us >= 60e6) { return Math.floor(us / 60e6) + ' min ' + Math.round(us % 60e6 / 1e6) + ' s'; }
  const [unit, name] = us >= 1e6 ? [1e6, ' s'] : us >= 1e3 ? [1e3, ' ms'] : [1, ' us'];
  const usual = unit === 1 ? 0 : us >= 10 * unit ? 1 : 2;
  const needed = span > 0 ? Math.ceil(Math.log10(unit / span) + 2) : 0;
  return (us / unit).toFixed(Math.max(usual, Math.min(6, needed))) + name;
};

/** @param {number} addr */
Plim.address = function (addr) { return '0x' + addr.toString(16); };

/** "1.5 GiB", "20m", "4096" as bytes; null when it is no size. @param {string} text */
Plim.parseBytes = function (text) {
  const m = /^\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?b)?\s*$/i.exec(text);
  if (!m) { return null; }
  const power = ['', 'k', 'm', 'g', 't'].indexOf(m[2].toLowerCase());
  return Number(m[1]) * Math.pow(1024, power);
};

/* ---- colours: Okabe and Ito's palette, which people with any colour vision can tell apart ---- */

/** Values of the style sheet's variables, read again when light and dark change. @type {Dict} */
Plim.colours = {};

const COLOUR_NAMES = ['live', 'rounding', 'stranded', 'releasable', 'private', 'external', 'capacity', 'pending',
  'text', 'faint', 'line', 'paper', 'panel', 'select', 'grow', 'shrink', 'other'];

/** Counts how often the colours changed: part of the key of every kept picture. */
Plim.theme = 0;

Plim.readColours = function () {
  Plim.theme++;
  const style = getComputedStyle(document.documentElement);
  for (const name of COLOUR_NAMES) { Plim.colours[name] = style.getPropertyValue('--' + name).trim(); }
};

/** Twelve hues for sites, kinds and streams; the rest is Plim.colours.other. */
Plim.hues = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#8a7a00', '#7a5195', '#3f8f8f',
  '#a05a2c', '#5c6bc0', '#b2467c'];

/** A ramp from new (light) to old (dark), even in lightness. @param {number} share 0 to 1 */
Plim.ramp = function (share) {
  const stops = [[253, 231, 37], [94, 201, 98], [33, 145, 140], [59, 82, 139], [68, 1, 84]];
  const x = Math.max(0, Math.min(0.9999, share)) * (stops.length - 1);
  const i = Math.floor(x);
  const f = x - i;
  const c = stops[i].map((v, k) => Math.round(v + (stops[i + 1][k] - v) * f));
  return 'rgb(' + c.join(',') + ')';
};

/* ---- canvas ---- */

/**
 * A canvas that fills its parent's width, sharp on any screen, redrawn at most once a frame.
 * @param {Object} o
 * @param {string} o.label for screen readers
 * @param {number} o.height CSS pixels
 * @param {(g: CanvasRenderingContext2D, width: number, height: number) => void} o.draw
 */
Plim.surface = function (o) {
  const canvas = Plim.el('canvas', { role: 'img', 'aria-label': o.label, tabindex: '0' });
  const s = { canvas, width: 0, height: o.height, pending: false, redraw: () => {}, resize: (_h) => {} };
  const paint = function (now) {
    if (!mayPaint(now)) { requestAnimationFrame(paint); return; }
    s.pending = false;
    if (canvas.isConnected && canvas.clientWidth > 0) { paintNow(); }
  };
  const paintNow = function () {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.max(100, canvas.clientWidth);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(s.height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(s.height * ratio);
      canvas.style.height = s.height + 'px';
    }
    s.width = width;
    const g = canvas.getContext('2d');
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, s.height);
    g.font = '12px system-ui, sans-serif';
    const before = performance.now();
    o.draw(g, width, s.height);
    frame.spent += performance.now() - before;
    Plim.drawings++;
  };
  s.redraw = function () {
    if (!s.pending && canvas.isConnected && canvas.clientWidth > 0) {
      s.pending = true;
      requestAnimationFrame(paint);
    }
  };
  s.resize = function (height) { s.height = height; s.redraw(); };
  new ResizeObserver(() => s.redraw()).observe(canvas);
  repaints.push(() => { if (canvas.isConnected && canvas.clientWidth > 0) { paintNow(); } });
  return s;
};
/** @type {Array<() => void>} */
const repaints = [];

/** While the page is printed: all of a drawing is wanted, not only what a window shows. */
Plim.printing = false;

/**
 * Follow the printer: no frames come while a page is printed, so that all is drawn at once, in the colours of paper.
 * @param {() => void} refresh lays the open view out anew
 */
Plim.followPrinter = function (refresh) {
  matchMedia('print').addEventListener('change', (e) => {
    Plim.printing = e.matches;
    Plim.readColours();
    refresh();
    for (const repaint of repaints) { repaint(); }
  });
};
/** Drawings so far, for the tests. */
Plim.drawings = 0;

/* Drawings of one frame run in one task: what does not fit into it waits for the next. */
const FRAME_MS = 10;
const frame = { at: 0, spent: 0 };
function mayPaint(now) {
  if (frame.at !== now) { frame.at = now; frame.spent = 0; }
  return frame.spent < FRAME_MS;
}

/** A label with a background, kept inside the canvas; with `edge` in the colour of the line that it names. */
Plim.tag = function (g, text, x, y, width, edge) {
  const w = g.measureText(text).width + 8;
  const left = Math.max(0, Math.min(width - w, x));
  g.fillStyle = Plim.colours.panel;
  g.globalAlpha = 0.88;
  g.fillRect(left, y - 11, w, 15);
  g.globalAlpha = 1;
  if (edge) {
    g.fillStyle = edge;
    g.fillRect(left, y + 3, w, 1);
  }
  g.fillStyle = Plim.colours.text;
  g.fillText(text, left + 4, y);
};

/** Steps of an axis: round numbers in `base` (10, or 2 for bytes). */
Plim.ticks = function (from, to, most, base) {
  const span = to - from;
  if (!(span > 0)) { return []; }
  let step = Math.pow(base, Math.floor(Math.log(span / most) / Math.log(base)));
  for (const m of base === 10 ? [1, 2, 5, 10] : [1, 2]) {
    if (span / (step * m) <= most) { step *= m; break; }
  }
  if (base === 10) { step = Math.max(1, step); }
  const out = [];
  for (let v = Math.ceil(from / step) * step; v <= to; v += step) { out.push(v); }
  return out;
};

/**
 * A picture made pixel by pixel: for tens of thousands of marks, where one call for each would take too long.
 * Drawn with `g.drawImage(raster.canvas, 0, 0)` after raster.done().
 */
Plim.raster = function (width, height) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.max(1, Math.round(height));
  const g = canvas.getContext('2d');
  const image = g.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const known = new Map();
  /** A colour "#rrggbb" or "rgb(r,g,b)" as a pixel. */
  const ink = function (colour) {
    let v = known.get(colour);
    if (v === undefined) {
      const [r, gr, b] = colour[0] === '#' ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16))
        : colour.match(/\d+/g).map(Number);
      v = ((255 << 24) | (b << 16) | (gr << 8) | r) >>> 0;
      known.set(colour, v);
    }
    return v;
  };
  /** Fill a rectangle; at least one pixel, when it is inside at all. */
  const rect = function (x, y, w, h, value) {
    const left = Math.max(0, Math.round(x));
    const top = Math.max(0, Math.round(y));
    const right = Math.min(canvas.width, Math.max(left + 1, Math.round(x + w)));
    const bottom = Math.min(canvas.height, Math.max(top + 1, Math.round(y + h)));
    for (let row = top; row < bottom; row++) { pixels.fill(value, row * canvas.width + left, row * canvas.width + right); }
  };
  return { canvas, ink, rect, done: () => g.putImageData(image, 0, 0) };
};

const SLICE_MS = 6; /* of a frame for work that can wait */

/**
 * Work in slices, so that the page answers in between. `step` is called once a frame with a function that says whether the
 * slice is over, and returns true when all is done. Begins at once or with the next frame. Returns a function that gives
 * the work up.
 * @param {(over: () => boolean) => boolean} step
 */
Plim.job = function (step, atOnce = true) {
  let waiting = 0;
  const run = function () {
    const end = performance.now() + SLICE_MS;
    waiting = step(() => performance.now() >= end) ? 0 : requestAnimationFrame(run);
  };
  if (atOnce) { run(); } else { waiting = requestAnimationFrame(run); }
  return () => cancelAnimationFrame(waiting);
};

/**
 * A picture of many rows that is kept until its key changes, and made again in slices. While a new one is in work the
 * last whole one stays.
 * @param {() => void} ready called when a picture is whole
 */
Plim.picture = function (ready) {
  let work = { key: '', cancel: () => {} };
  const p = {
    /** @type {any} what `begin` gave for the picture that is shown */
    shown: null,
    key: '',
    /**
     * Want the picture of a key. `begin` makes {raster, n, row(i)}, called only when it is a new one.
     * @param {string} key @param {() => any} begin
     */
    want(key, begin) {
      if (key === p.key || key === work.key) { return; }
      work.cancel();
      const mine = { key, cancel: () => {} };
      work = mine;
      let made = null;
      let i = 0;
      let inFrame = true; /* of the drawing that wants it: it need not be told */
      mine.cancel = Plim.job((over) => {
        made = made || begin();
        while (i < made.n) {
          for (const end = Math.min(made.n, i + 1024); i < end; i++) { made.row(i); }
          if (over() && !Plim.printing) { break; }
        }
        if (i < made.n) { return false; }
        made.raster.done();
        p.shown = made;
        p.key = key;
        work = { key: '', cancel: () => {} };
        if (!inFrame) { ready(); }
        return true;
      }, p.shown === null || Plim.printing);
      inFrame = false;
    },
  };
  return p;
};

/** Call fn once things have been quiet for a while. */
Plim.debounce = function (ms, fn) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => fn(...args), ms); };
};
