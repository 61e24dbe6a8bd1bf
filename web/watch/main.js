// SPDX-License-Identifier: Apache-2.0
/* The frame: head, views by the address behind #, the token's form, keys. */
'use strict';

(function () {
  const live = Plim.live;
  const VIEWS = [
    ['overview', 'Overview', () => Plim.overviewView()],
    ['history', 'History', () => Plim.historyView()],
    ['engines', 'Engines', () => Plim.enginesView()],
    ['alerts', 'Alerts', () => Plim.alertsView()],
    ['incidents', 'Incidents', () => Plim.incidentsView()],
    ['fleet', 'Fleet', () => Plim.fleetView()],
  ];
  const made = new Map();
  let shown = '';

  const title = Plim.el('h1', {}, 'Plimsoll');
  const host = Plim.el('span', { class: 'source' });
  const link = Plim.el('span', { class: 'link', role: 'status' });
  const zone = Plim.el('button', { type: 'button', title: 'Switch between local time and UTC', onclick: () => {
    Plim.zone.utc = !Plim.zone.utc;
    zone.textContent = Plim.zoneName();
    current().zone && current().zone();
    update();
  } }, Plim.zoneName());
  const nav = Plim.el('nav', { 'aria-label': 'Views' }, ...VIEWS.map(([id, name]) => Plim.el('a', { href: '#' + id }, name)));
  const banner = Plim.el('p', { class: 'banner', role: 'alert', hidden: true });

  const current = () => made.get(shown) || {};

  function route() {
    const [id, ...rest] = location.hash.slice(1).split('/').map((part) => {
      try { return decodeURIComponent(part); } catch (_) { return part; }
    });
    const row = VIEWS.find((v) => v[0] === (id.startsWith('alert=') ? 'alerts' : id)) || VIEWS[0];
    shown = row[0];
    if (!made.has(shown)) { made.set(shown, row[2]()); }
    const main = document.getElementById('main');
    if (main.firstElementChild !== current().view) { Plim.fill(main, current().view); }
    for (const a of nav.children) {
      if (a.getAttribute('href') === '#' + shown) { a.setAttribute('aria-current', 'page'); } else { a.removeAttribute('aria-current'); }
    }
    document.title = row[1] + ' · Plimsoll';
    if (current().open) { current().open(rest); }
    update();
  }

  function update() {
    if (live.status && current().status) { current().status(live.status); }
  }

  const LINK = { connecting: 'connecting', live: 'live', lost: 'no connection', locked: 'locked' };
  function showLink() {
    const age = Math.round(live.age());
    const stale = live.stale();
    link.textContent = live.link === 'live' && stale ? 'no news' : LINK[live.link];
    link.className = 'link l-' + (live.link === 'live' && stale ? 'lost' : live.link);
    document.body.classList.toggle('stale', stale && live.status !== null);
    const text = live.link === 'locked' || !live.status || !stale ? ''
      : 'What is shown is ' + Plim.seconds(Math.max(1, age)) + ' old: the monitor ' + (live.link === 'live' ? 'sends nothing.' : 'does not answer. Trying again.');
    if (banner.textContent !== text) { banner.textContent = text; }
    banner.hidden = text === '';
    if (live.link === 'locked') { Plim.askToken(); }
  }

  /** Ask for the token; resolves when the server took it. Only one form at a time. */
  let asking = null;
  Plim.askToken = function () {
    asking = asking || new Promise((done) => {
      const input = Plim.el('input', { type: 'password', autocomplete: 'current-password', id: 'token', required: true });
      const wrong = Plim.el('p', { class: 'risk', role: 'alert' });
      const form = Plim.el('form', { method: 'dialog' }, Plim.el('h2', {}, 'Token'),
        Plim.el('p', {}, 'This needs the monitor’s token: the one line of its token file.'),
        Plim.el('label', { for: 'token' }, 'Token '), input, ' ', Plim.el('button', {}, 'Log in'), ' ',
        Plim.el('button', { type: 'button', onclick: () => close(false) }, 'Cancel'), wrong);
      const dialog = Plim.el('dialog', { 'aria-label': 'Log in' }, form);
      const close = (good) => { dialog.remove(); if (good) { asking = null; } else { setTimeout(() => { asking = null; }, 60000); } done(good); };
      form.addEventListener('submit', async (e) => {
        e.preventDefault();
        try {
          await live.login(input.value);
          close(true);
        } catch (error) {
          wrong.textContent = error.code === 401 ? 'That is not the token.' : error.message;
          input.select();
        }
      });
      dialog.addEventListener('cancel', () => close(false));
      document.body.append(dialog);
      dialog.showModal();
    });
    return asking;
  };

  /** Change something; asks for the token first when it is needed. False: it was not done, and why is in `note`. */
  Plim.change = async function (path, body, note) {
    for (let attempt = 0; attempt < 2; attempt++) {
      try {
        await live.change(path, body);
        return true;
      } catch (e) {
        if (e.code === 401 && attempt === 0 && await Plim.askToken()) { continue; }
        note.textContent = e.message + (e.hint ? ': ' + e.hint : '');
        return false;
      }
    }
    return false;
  };

  function keys(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) { return; }
    const n = Number(e.key);
    if (n >= 1 && n <= VIEWS.length) {
      location.hash = VIEWS[n - 1][0];
    } else if (e.key === '/' && current().focusFilter) {
      e.preventDefault();
      current().focusFilter();
    }
  }

  document.getElementById('head').append(title, host, link, zone, nav);
  document.getElementById('head').after(banner);
  Plim.readColours();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { Plim.readColours(); update(); });
  Plim.followPrinter(update);
  live.onStatus.push((s) => {
    const name = s.host || '';
    if (host.textContent !== name) { host.textContent = name; }
    Plim.rememberHistory(s);
    update();
    document.documentElement.dataset.ready = '1';
  });
  live.onLink.push(showLink);
  addEventListener('hashchange', route);
  document.addEventListener('keydown', keys);
  route();
  live.connect();
})();
