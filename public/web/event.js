// One event of the live view, as a row that opens. Everything in it is untrusted and only becomes text.

import { element, preciseClock, shortDID } from './format.js';

const maxText = 240; // characters of a row's text

const oneLine = (s) => {
  const text = String(s).slice(0, 4 * maxText).replace(/\s+/g, ' ').trim();
  return text.length > maxText ? `${text.slice(0, maxText)}…` : text;
};

const isObject = (v) => v !== null && typeof v === 'object' && !Array.isArray(v);

// subject writes what a record refers to.
function subject(v) {
  if (typeof v === 'string') return v;
  return isObject(v) && typeof v.uri === 'string' ? v.uri : '';
}

// gist is what somebody would want to know first of a commit. gone is what it no longer points at.
function gist(commit, gone) {
  const r = isObject(commit.record) ? commit.record : {};
  for (const name of ['text', 'displayName', 'title', 'name', 'description']) {
    if (typeof r[name] === 'string' && r[name].trim()) return r[name];
  }
  const to = subject(r.subject) || subject(r.post);
  if (to) return `→ ${to}`;
  if (commit.operation !== 'delete') return '';
  return typeof gone?.[0]?.subject === 'string' ? `→ ${gone[0].subject}` : commit.rkey;
}

// describe returns what a row shows.
function describe(e) {
  if (e.kind === 'commit' && isObject(e.commit)) {
    return { op: e.commit.operation, what: e.commit.collection, text: gist(e.commit, e.deleted_references), did: e.did };
  }
  if (e.kind === 'identity') return { op: 'identity', what: '', text: e.identity?.handle ?? '', did: e.did };
  if (e.kind === 'account') return { op: 'account', what: '', text: e.account?.active ? 'active' : e.account?.status ?? 'inactive', did: e.did };
  if (e.kind === 'sync') return { op: 'sync', what: '', text: e.sync?.rev ?? '', did: e.did };
  return null;
}

// row makes the list item of a message, which is JSON, or of a note of ours.
export function row(message) {
  if (message.note) return element('li', { class: 'note' }, message.note);
  let e;
  try {
    e = JSON.parse(message);
  } catch {
    return element('li', { class: 'note' }, oneLine(message));
  }
  if (!isObject(e)) return element('li', { class: 'note' }, oneLine(message));
  if (e.kind === 'info') return element('li', { class: 'note' }, oneLine(`${e.info?.name}: ${e.info?.message}`));
  const d = describe(e);
  if (!d) return element('li', { class: 'note' }, oneLine(message));
  const cell = (name, text, attributes) => element('span', { class: name, ...attributes }, oneLine(text ?? ''));
  const details = element('details', {}, element('summary', {},
    cell('when', preciseClock(Number(e.time_us))),
    cell('op', d.op, { 'data-op': oneLine(d.op ?? '') }),
    cell('what', d.what),
    element('bdi', { class: 'text' }, oneLine(d.text ?? '')),
    cell('who', shortDID(String(d.did ?? '')), { title: oneLine(d.did ?? '') })));
  details.addEventListener('toggle', () => {
    if (details.open && details.childElementCount === 1) details.append(opened(message, e, d));
  });
  return element('li', {}, details);
}

// opened is the rest of an event: all of it, and what one may do with it.
function opened(raw, e, d) {
  const button = (text, does) => {
    const b = element('button', { type: 'button' }, text);
    b.addEventListener('click', () => does(b));
    return b;
  };
  const pick = (detail) => () => document.dispatchEvent(new CustomEvent('pick', { detail }));
  const pre = element('pre', { tabindex: '0', 'aria-label': 'The event' }, JSON.stringify(e, null, 2));
  return element('div', { class: 'open' }, pre, element('div', { class: 'actions' },
    button('Copy as it came', (b) => copy(raw, b)),
    ...(d.what ? [button('Only this collection', pick({ collection: d.what }))] : []),
    button('Only this account', pick({ did: d.did })),
    element('a', { href: `uid?did=${encodeURIComponent(d.did)}` }, 'UID of the account')));
}

// copy copies text and says so on the button. Without a secure connection browsers have no clipboard: then shown, if
// given, is selected instead.
export async function copy(text, button, shown) {
  const label = button.dataset.label ??= button.textContent;
  let done;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    done = copyOld(text);
  }
  if (!done && shown) getSelection().selectAllChildren(shown);
  button.textContent = done ? 'Copied' : 'Press Ctrl-C';
  setTimeout(() => { button.textContent = label; }, 1500);
}

function copyOld(text) {
  const area = element('textarea', { class: 'hidden', 'aria-hidden': 'true' });
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  focused?.focus();
  return done;
}
