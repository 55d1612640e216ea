// The live view: a subscription, its filter, which is in the page's address, too, and the line that
// does the same elsewhere. What arrives was written by anybody on the network: it only ever becomes
// text.

import { copy, row } from './event.js';
import { count, element } from './format.js';

const maxRows = 100;        // of the list
const tickMS = 250;         // between two drawings
const rowsPerTick = 6;      // drawn each time; the newest, if more came
const maxPerSecond = 30_000; // a page cannot take more: it gives up
const hiddenMS = 60_000;    // it watches on for that long when nobody looks
const maxCollections = 100;
const checkboxes = ['about', 'commits', 'extended'];
const maxDIDs = 1000;       // a URL holds some more

const $ = (id) => document.getElementById(id);
const isDID = /^did:[a-z]+:[A-Za-z0-9._:%-]*[A-Za-z0-9._-]$/;
const isCollection = /^[A-Za-z][A-Za-z0-9-]*(\.[A-Za-z0-9-]+)*\.([A-Za-z][A-Za-z0-9]*|\*)$/;

// value escapes what a query and single quotes of a shell need escaped, and leaves the rest readable.
const value = (v) => encodeURIComponent(v).replace(/'/g, '%27').replace(/%3A/g, ':');

export class Watch {
  constructor(url) {
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    url.hash = url.search = '';
    this.url = url.href;
    this.picked = new Set();
    this.offered = [];
    this.socket = null;
    this.paused = false;
    this.clear();
    this.listen();
    this.restore();
    this.update();
  }

  listen() {
    $('form').addEventListener('submit', (e) => {
      e.preventDefault();
      if (this.wanted) this.stop('Stopped.'); else this.start();
    });
    $('add').addEventListener('click', () => this.addTyped());
    $('collection').addEventListener('keydown', (e) => {
      if (e.key !== 'Enter' && e.key !== ',') return;
      e.preventDefault();
      this.addTyped();
    });
    for (const id of ['dids', 'from', ...checkboxes]) $(id).addEventListener('input', () => this.changed());
    $('tool').addEventListener('change', () => this.update());
    addEventListener('hashchange', () => this.restore());
    $('copy').addEventListener('click', () => copy(this.command(), $('copy'), $('line')));
    $('pause').addEventListener('click', () => this.setPaused(!this.paused));
    $('clear').addEventListener('click', () => this.clear());
    // Who opens an event wants to read it.
    $('events').addEventListener('toggle', (e) => { if (e.target.open && this.wanted) this.setPaused(true); }, true);
    document.addEventListener('pick', (e) => this.only(e.detail));
    // Browsers keep a page that was left, and its connection, for the way back.
    addEventListener('pagehide', () => this.wanted && this.stop('Stopped as the page was left.'));
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.hidden);
      if (document.hidden) this.hidden = setTimeout(() => this.wanted && this.stop('Stopped while nobody looked.'), hiddenMS);
    });
  }

  // suggest offers collections that there are, in the order of their frequency.
  suggest(names) {
    const chips = names.slice(0, 8);
    if (chips.every((n) => this.offered.includes(n))) return;
    this.offered = chips;
    $('collections').replaceChildren(...names.map((n) => element('option', { value: n })));
    this.drawChips();
  }

  // offerAbout offers what others do about an account, if the server knows.
  offerAbout(knows) {
    $('about').parentElement.hidden = !knows;
    if (knows || !$('about').checked) return;
    $('about').checked = false;
    this.changed();
  }

  drawChips() {
    const focused = document.activeElement?.dataset?.collection;
    const all = [...this.offered, ...[...this.picked].filter((n) => !this.offered.includes(n))];
    $('chips').replaceChildren(...all.map((name) => {
      const chip = element('button', { type: 'button', 'aria-pressed': this.picked.has(name), 'data-collection': name }, name);
      chip.addEventListener('click', () => this.toggle(name));
      return chip;
    }));
    if (focused) [...$('chips').children].find((c) => c.dataset.collection === focused)?.focus();
  }

  toggle(name) {
    if (!this.picked.delete(name)) this.picked.add(name);
    this.drawChips();
    this.changed();
  }

  addTyped() {
    const typed = $('collection').value.split(/[\s,]+/).filter(Boolean);
    const bad = typed.find((n) => !isCollection.test(n));
    if (bad || this.picked.size + typed.length > maxCollections) {
      $('collection').setAttribute('aria-invalid', 'true');
      this.problem(bad ? `“${bad.slice(0, 80)}” is not a collection: app.bsky.feed.post and app.bsky.graph.* are.` : `At most ${maxCollections} collections.`);
      return false;
    }
    $('collection').removeAttribute('aria-invalid');
    for (const name of typed) this.picked.add(name);
    $('collection').value = '';
    this.drawChips();
    this.changed();
    return true;
  }

  // check returns the DIDs that were typed, null if there is something wrong with them.
  check() {
    const dids = [...new Set($('dids').value.split(/[\s,]+/).filter(Boolean))];
    const bad = dids.find((d) => !isDID.test(d));
    let problem = bad ? `“${bad.slice(0, 80)}” is not a DID: did:plc:… and did:web:… are.` : '';
    if (dids.length > maxDIDs) problem = `At most ${count(maxDIDs)} accounts here.`;
    $('dids').toggleAttribute('aria-invalid', false);
    if (problem) $('dids').setAttribute('aria-invalid', 'true');
    this.problem(problem);
    return problem ? null : dids;
  }

  problem(text) { $('problem').textContent = text; }

  query() {
    const dids = this.check();
    if (!dids) return null;
    const q = [...this.picked].map((c) => `wantedCollections=${value(c)}`);
    // What others do about the accounts: also what they undo, which only references say.
    const about = $('about').checked && dids.length > 0;
    q.push(...dids.map((d) => `${about ? 'wantedSubjectDids' : 'wantedDids'}=${value(d)}`));
    if (about || $('commits').checked) q.push('wantedKinds=commit');
    if (about || $('extended').checked) q.push('extended=true');
    if (about) q.push('references=true');
    const from = $('from').value;
    this.flags = [
      this.picked.size && `--collections '${[...this.picked].join()}'`,
      dids.length && `--${about ? 'subject-dids' : 'dids'} '${dids.join()}'`,
      (about || $('commits').checked) && '--kinds commit',
      about ? '--references' : $('extended').checked && '--extended',
      from === 'oldest' ? '--cursor 0' : from && `--since ${from / 60}m`,
    ].filter(Boolean);
    if (from === 'oldest') q.push('cursor=0');
    else if (from) q.push(`cursor=${(Math.floor(Date.now() / 1000) - Number(from)) * 1e6}`);
    return q.length ? `?${q.join('&')}` : '';
  }

  // command returns the line for the tool that is selected.
  command() {
    const url = this.address ?? this.url;
    switch ($('tool').value) {
      case 'tail': return ['millrace tail', `--url '${this.url}'`, ...(this.flags ?? [])].join(' ');
      case 'javascript': return `new WebSocket('${url}').onmessage = (e) => console.log(JSON.parse(e.data));`;
      case 'curl': return `curl -sN '${url}'`;
      default: return `websocat '${url}'`;
    }
  }

  // remember puts the filter into the page's address, and restore takes it from there.
  remember() {
    const q = new URLSearchParams();
    if (this.picked.size > 0) q.set('collections', [...this.picked].join());
    for (const id of ['dids', 'from']) if ($(id).value) q.set(id, $(id).value);
    for (const id of checkboxes) if ($(id).checked) q.set(id, 1);
    const hash = String(q).replaceAll('%3A', ':').replaceAll('%2C', ',');
    if (hash || location.hash.includes('=')) history.replaceState(null, '', hash ? `#${hash}` : location.pathname + location.search);
  }

  restore() {
    if (!location.hash.includes('=')) return;
    const q = new URLSearchParams(location.hash.slice(1));
    this.picked = new Set((q.get('collections') ?? '').split(',').filter((n) => isCollection.test(n)).slice(0, maxCollections));
    for (const id of ['dids', 'from']) $(id).value = q.get(id) ?? '';
    if ($('from').selectedIndex < 0) $('from').value = '';
    for (const id of checkboxes) $(id).checked = q.has(id);
    this.drawChips();
    this.changed();
  }

  // update shows the command for what is picked.
  update() {
    const query = this.query();
    if (query === null) return false;
    this.address = this.url + query;
    $('line').textContent = this.command();
    this.remember();
    return true;
  }

  // changed puts another filter in force, a moment after the last change.
  changed() {
    const ok = this.update();
    clearTimeout(this.restart);
    if (ok && this.wanted) this.restart = setTimeout(() => this.start(), 400);
  }

  start() {
    if ($('collection').value && !this.addTyped()) return;
    if (!this.update()) {
      $('dids').focus();
      return;
    }
    this.close();
    this.wanted = true;
    this.attempt = 0;
    this.setPaused(false);
    this.clear();
    $('start').textContent = 'Stop';
    $('pause').disabled = $('clear').disabled = false;
    this.open(this.address);
    clearInterval(this.timer);
    this.timer = setInterval(() => this.draw(), tickMS);
  }

  stop(why) {
    this.wanted = false;
    this.close();
    clearTimeout(this.restart);
    clearInterval(this.timer);
    this.draw();
    $('start').textContent = 'Watch';
    $('pause').disabled = true;
    $('empty').hidden = $('events').childElementCount > 0;
    this.say(why);
  }

  close() {
    clearTimeout(this.retry);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  open(address) {
    this.say('Connecting …');
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => {
      if (socket !== this.socket) return;
      this.opened = this.since = performance.now();
      this.came = this.perSecond = 0;
      this.say('Connected; nothing came yet.');
    };
    socket.onmessage = (e) => { if (socket === this.socket) this.message(e.data); };
    socket.onclose = (e) => {
      if (socket !== this.socket) return;
      if (this.opened && performance.now() - this.opened > 10_000) this.attempt = 0;
      this.opened = 0;
      if (e.code === 1000 || ++this.attempt > 5) {
        this.stop('Stopped.');
        this.problem(e.reason ? `The server ended it: ${e.reason}` : 'The server does not take the connection.');
        return;
      }
      const wait = Math.min(2 ** this.attempt, 15);
      this.say(`The connection broke; once more in ${wait} s.`);
      this.note('the connection broke: events may be missing here');
      // Live from then on: who watches wants to see what happens now.
      this.retry = setTimeout(() => this.open(address.replace(/([?&])cursor=\d+&?/, '$1').replace(/[?&]$/, '')), wait * 1000);
    };
  }

  message(raw) {
    this.came++;
    const now = performance.now();
    if (now - this.since > 1000) {
      this.perSecond = (this.came * 1000) / (now - this.since);
      this.came = 0;
      this.since = now;
    } else if (this.came > maxPerSecond) {
      this.stop('Stopped.');
      this.problem('That is more than a page can show. Pick less, or take the line to a terminal.');
      return;
    }
    this.seen++;
    this.pending.push(raw);
    if (this.pending.length > 2 * maxRows) this.pending.splice(0, maxRows); // the newest remain
  }

  note(text) { this.pending.push({ note: text }); }

  // draw adds what came since the last time to the list, as much of it as can be followed.
  draw() {
    if (this.wanted && this.seen > 0 && this.opened) {
      const stale = performance.now() - this.since > 3000;
      const speed = stale ? 0 : this.perSecond;
      const pace = (rowsPerTick * 1000) / tickMS;
      const shown = speed > 1.2 * pace ? `, ${pace} of them shown` : '';
      this.say(this.paused ? `Paused; ${count(this.seen)} came.` : `${count(this.seen)} came${speed >= 1 ? `; ${count(speed)} a second${shown}` : ''}.`);
    }
    if (this.paused || this.pending.length === 0) return;
    const some = this.pending.splice(0).slice(-rowsPerTick);
    const list = $('events');
    list.prepend(...some.reverse().map(row));
    while (list.childElementCount > maxRows) list.lastElementChild.remove();
    $('empty').hidden = true;
    $('clear').disabled = false;
  }

  setPaused(paused) {
    this.paused = paused;
    $('pause').setAttribute('aria-pressed', paused);
    $('pause').textContent = paused ? 'Go on' : 'Pause';
  }

  clear() {
    this.pending = [];
    this.seen = this.came = this.perSecond = 0;
    this.since = performance.now();
    $('events').replaceChildren();
    $('empty').hidden = false;
    $('clear').disabled = true;
  }

  say(text) { if ($('watch-state').textContent !== text) $('watch-state').textContent = text; }

  // only narrows the filter to a collection or an account that was seen.
  only({ collection, did }) {
    if (collection) this.picked = new Set([collection]);
    if (did) $('dids').value = did;
    this.drawChips();
    $('watch').focus({ preventScroll: true });
    $('watch').scrollIntoView({ block: 'start' });
    this.start();
  }
}
