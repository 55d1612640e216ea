// The page: asks /status every two seconds and shows it. The live view is in watch.js.

import { Chart } from './chart.js';
import { bytes, clock, count, duration, element, rate } from './format.js';
import { History } from './history.js';
import { Linked } from './linked.js';
import { Watch } from './watch.js';

const every = 2000; // ms between two questions
const $ = (id) => document.getElementById(id);

const history = new History();
const chart = new Chart($('chart'), $('legend'), $('legend-when'));
const linked = new Linked($('linked'));
const watch = new Watch(new URL('subscribe', location.href));
const delivered = []; // the last answers, to make rates of

for (const radio of document.querySelectorAll('[name=split]')) {
  radio.addEventListener('change', () => chart.setSplit(radio.value));
  if (radio.checked) chart.split = radio.value; // browsers remember choices
}

function state(kind, text) {
  if ($('state').dataset.state !== kind) $('state').dataset.state = kind;
  if ($('state-text').textContent !== text) $('state-text').textContent = text;
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
    state('ok', 'Serving');
    figure('relay-lag', '–');
    return rows('relay', []);
  }
  if (!relay.connected) {
    state('bad', `${relay.host} is not connected`);
  } else if (relay.lag_s > 60) {
    state('warn', `Catching up with ${relay.host}`);
  } else {
    state('ok', `Following ${relay.host}`);
  }
  const lag = relay.lag_s + relay.pending_s;
  figure('relay-lag', relay.connected ? (lag > 0 ? duration(lag) : 'up to date') : 'offline', relay.connected && lag > 0 ? 'behind' : '');
  const since = new Date(relay.since);
  rows('relay', [
    ['Host', relay.host, relay.host],
    ['Position', `${relay.stream}-${relay.seq}`, `stream ${relay.stream}, epoch ${relay.epoch}, seq ${count(relay.seq)}`],
    [relay.connected ? 'Connected since' : 'Lost', clock(since), since.toISOString()],
    relay.error ? ['Because', relay.error, relay.error, true] : null,
  ]);
}

function showLog(log) {
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
    ['Kept for', log.retention_s ? duration(log.retention_s) : 'as long as in memory'],
    ['Gaps', count(log.gaps), 'where the relay withheld something; see /cursors', log.gaps > 0],
  ]);
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
  showRelay(answer.relay);
  showLog(answer.log);
  showSubscribers(answer);
  showRest(answer);
  const e = answer.events;
  $('rate').textContent = rate(e.per_second);
  $('total').textContent = `${count(e.total)} since ${clock(new Date(answer.started))}`;
  if (history.last >= 0) chart.draw(history);
  watch.suggest(e.collections.map((c) => c.name));
  watch.offerAbout(answer.references);
  if (answer.links) linked.update();
}

async function ask() {
  const signal = AbortSignal.timeout(10_000);
  const response = await fetch(`status?history=${history.missing()}`, { cache: 'no-store', signal });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

async function tick() {
  try {
    let answer = await ask();
    if (answer.history.last_step >= 0 && !history.merge(answer.history)) {
      answer = await ask();
      history.merge(answer.history);
    }
    show(answer);
  } catch {
    state('bad', 'The server does not answer');
  }
}

let timer;
let busy = false;
async function run() {
  clearTimeout(timer);
  if (document.hidden || busy) return;
  busy = true;
  await tick();
  busy = false;
  timer = setTimeout(run, every);
}
document.addEventListener('visibilitychange', run);
run();
