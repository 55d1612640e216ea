// The page: asks /status every two seconds, less often in a hidden tab, and shows it.

import { Chart } from './chart.js';
import { Day } from './day.js';
import { bytes, clock, count, duration, element, rate } from './format.js';
import { History } from './history.js';
import { Linked } from './linked.js';
import { Watch } from './watch.js';

const every = 2000; // ms between two questions
const hiddenEvery = 30_000; // while the tab is hidden, whose title still says how the server is
const maxGaps = 20; // listed
const $ = (id) => document.getElementById(id);

const history = new History();
const chart = new Chart($('chart'), $('legend'), $('legend-when'));
const day = new Day($('day'));
const linked = new Linked($('linked'));
const watch = new Watch(new URL('subscribe', location.href));
const delivered = []; // the last answers, to make rates of

for (const radio of document.querySelectorAll('[name=split]')) {
  radio.addEventListener('change', () => chart.setSplit(radio.value));
  if (radio.checked) chart.split = radio.value; // browsers remember choices
}

// The states of the tab: fine has the usual title and icon. The other icons are loaded beforehand, as
// a server that is gone serves none.
const titles = { behind: 'Behind', unready: 'Not ready', gone: 'Gone' };
const icon = (kind) => `web/icon${kind in titles ? `-${kind}` : ''}.svg`;
for (const kind of Object.keys(titles)) new Image().src = icon(kind);

function state(kind, text) {
  if ($('state-text').textContent !== text) $('state-text').textContent = text;
  if ($('state').dataset.state === kind) return;
  $('state').dataset.state = kind;
  document.body.classList.toggle('gone', kind === 'gone');
  document.title = kind in titles ? `${titles[kind]} · millrace` : 'millrace';
  document.querySelector('link[rel=icon]').href = icon(kind);
}

function showState({ relay, checks }) {
  const failed = checks.filter((c) => !c.ok);
  const worst = failed.find((c) => c.name !== 'lag_small');
  if (relay && !relay.connected) state('unready', `${relay.host} is not connected`);
  else if (worst) state('unready', worst.detail ?? worst.name);
  else if (relay?.lag_s > 60) state('behind', `Catching up with ${relay.host}`);
  else if (failed.length > 0) state('behind', failed[0].detail ?? failed[0].name);
  else state('fine', relay ? `Following ${relay.host}` : 'Serving');
}

// rows fills a card's list: [term, text or element, tooltip]; null rows are left out.
function rows(id, list) {
  $(id).replaceChildren(...list.filter(Boolean).map(([term, value, title, warn]) =>
    element('div', {}, element('dt', {}, term), element('dd', { title, class: warn ? 'warn' : undefined }, value))));
}

function figure(id, text, small) {
  $(id).replaceChildren(text, ...(small ? [' ', element('small', {}, small)] : []));
}

function showRelay(relay) {
  if (!relay) {
    figure('relay-lag', '–');
    return rows('relay', []);
  }
  const lag = relay.lag_s + relay.pending_s;
  figure('relay-lag', relay.connected ? (lag > 0 ? duration(lag) : 'up to date') : 'offline', relay.connected && lag > 0 ? 'behind' : '');
  const since = new Date(relay.since);
  rows('relay', [
    ['Host', relay.host, relay.host],
    ['Position', `${relay.stream}-${relay.seq}`, `stream ${relay.stream}, epoch ${relay.epoch}, seq ${count(relay.seq)}`],
    [relay.connected ? 'Connected since' : 'Lost', clock(since), since.toISOString()],
    relay.error ? ['Because', relay.error, relay.error, true] : null,
    relay.advice ? ['Advice', relay.advice, relay.advice, true] : null,
  ]);
}

// fullIn writes days until the disk is full.
const fullIn = (days) => (days >= 365 ? 'a year or more' : duration(Math.max(1, days * 86400)));

function showLog({ log, disk }) {
  if (!log.oldest) {
    figure('log-span', 'empty');
  } else {
    figure('log-span', duration(Math.max(0, log.newest.time_us - log.oldest.time_us) / 1e6), 'to replay');
  }
  const place = (m) => [clock(new Date(m.time_us / 1000)), m.cursor];
  rows('log', [
    log.oldest ? ['Oldest', ...place(log.oldest)] : null,
    log.newest ? ['Newest', ...place(log.newest)] : null,
    ['Events', count(log.events)],
    ['On disk', bytes(log.disk_bytes), `${bytes(log.bytes)} before the store compresses them`],
    disk ? ['Free disk', bytes(disk.free_bytes)] : null,
    disk && disk.days_until_full !== null
      ? ['Full in', fullIn(disk.days_until_full), 'at the pace of the last six hours', disk.days_until_full < 1] : null,
    ['Kept for', log.retention_s ? duration(log.retention_s) : 'as long as in memory'],
    ['Gaps', count(log.gaps), 'where the relay withheld something', log.gaps > 0],
  ]);
  if (gaps !== log.gaps) showGaps(log.gaps);
}

let gaps = 0; // listed, or left out

// showGaps lists the newest gaps of n.
async function showGaps(n) {
  gaps = n;
  $('gaps').hidden = n === 0;
  if (n === 0) return;
  try {
    const response = await fetch('cursors', { cache: 'no-store', signal: AbortSignal.timeout(10_000) });
    const newest = (await response.json()).gaps.slice(-maxGaps).reverse();
    $('gaps-state').textContent = `The relay withheld what lay between these positions.${n > newest.length ? ` The newest ${newest.length} of ${count(n)}:` : ''}`;
    $('gap-list').replaceChildren(...newest.map((g) => element('li', {},
      element('span', { class: 'muted' }, clock(new Date(g.time_us / 1000))), element('code', {}, `${g.from} to ${g.to}`))));
  } catch {
    gaps = -1; // once more with the next status
  }
}

function showSubscribers(answer) {
  const s = answer.subscribers;
  delivered.push({ at: answer.time_us / 1e6, events: s.delivered_events, bytes: s.delivered_bytes });
  while (delivered.length > 6 || delivered[0].events > s.delivered_events) delivered.shift();
  const [first, last] = [delivered[0], delivered.at(-1)];
  const seconds = last.at - first.at;
  const per = (what) => (seconds > 0 ? (last[what] - first[what]) / seconds : 0);
  figure('subscribers-now', count(s.now), `of ${count(s.max)}`);
  rows('subscribers', [
    ['Events a second', rate(per('events'))],
    ['Bytes a second', bytes(per('bytes'))],
    ['Events so far', count(s.delivered_events)],
    ['Bytes so far', bytes(s.delivered_bytes)],
  ]);
}

function showRest(answer) {
  const { uids, dictionary: d } = answer;
  figure('uids-total', uids ? count(uids.total) : 'off');
  rows('uids', uids ? [
    ['New accounts', count(uids.new_dids), 'since the start'],
    uids.scope === 'all' ? ['New records', count(uids.new_uris), 'since the start'] : ['Scope', 'accounts only'],
  ] : []);
  figure('dictionary-ratio', d.ratio === null ? '–' : `${(100 * d.ratio).toFixed(1)} %`, d.ratio === null ? '' : 'of plain');
  rows('dictionary', [
    ['ID', element('a', { href: `dictionaries/${d.id}`, download: `${d.id}.zdict` }, String(d.id))],
    ['Size', bytes(d.bytes)],
  ]);
  figure('server-uptime', duration(Math.max(1, answer.uptime_s)), 'up');
  rows('server', [
    ['Version', answer.version, answer.version],
    ['Started', clock(new Date(answer.started)), answer.started],
  ]);
  $('version').textContent = `millrace ${answer.version}`;
}

function show(answer) {
  showState(answer);
  showRelay(answer.relay);
  showLog(answer);
  showSubscribers(answer);
  showRest(answer);
  const e = answer.events;
  $('rate').textContent = rate(e.per_second);
  $('total').textContent = `${count(e.total)} since ${clock(new Date(answer.started))}`;
  if (history.last >= 0) chart.draw(history);
  watch.suggest(e.collections.map((c) => c.name));
  watch.offerAbout(answer.references);
  if (answer.links) linked.update();
  day.update();
}

async function ask() {
  const signal = AbortSignal.timeout(10_000);
  const response = await fetch(`status?history=${history.missing()}`, { cache: 'no-store', signal });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

let answered = new Date(); // when the server last did
async function tick() {
  try {
    let answer = await ask();
    if (answer.history.last_step >= 0 && !history.merge(answer.history)) {
      answer = await ask();
      history.merge(answer.history);
    }
    show(answer);
    answered = new Date();
  } catch {
    state('gone', `The server does not answer since ${clock(answered)}`);
  }
}

let timer;
let busy = false;
async function run() {
  clearTimeout(timer);
  if (busy) return;
  busy = true;
  await tick();
  busy = false;
  timer = setTimeout(run, document.hidden ? hiddenEvery : every);
}
document.addEventListener('visibilitychange', run);
run();
