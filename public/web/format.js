// Numbers, times and identifiers for people.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (n) => whole.format(n);

// rate writes a number a second: with a decimal where that matters.
export const rate = (n) => (n > 0 && n < 10 ? tenth.format(n) : whole.format(n));

export function bytes(n) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  for (; n >= 999.5 && i < units.length - 1; i++) n /= 1000;
  return `${i === 0 || n >= 99.95 ? whole.format(n) : tenth.format(n)} ${units[i]}`;
}

// duration writes seconds with the two largest units that matter.
export function duration(s) {
  if (s < 1) return `${Math.max(1, Math.round(s * 1000))} ms`;
  if (s < 10) return `${tenth.format(s)} s`;
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  let i = units.findIndex(([size]) => s >= size);
  const first = Math.floor(s / units[i][0]);
  let text = `${first} ${units[i][1]}`;
  const rest = i + 1 < units.length ? Math.floor((s - first * units[i][0]) / units[i + 1][0]) : 0;
  if (rest > 0) text += ` ${rest} ${units[i + 1][1]}`;
  return text;
}

const two = (n) => String(n).padStart(2, '0');

// clock writes a Date's time of day; with its day if that is not today's.
export function clock(date, now = new Date()) {
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (date.toDateString() === now.toDateString()) return time;
  return `${date.toLocaleDateString('en', { month: 'short', day: 'numeric' })} ${time}`;
}

// preciseClock is a time_us as a time of day with milliseconds.
export function preciseClock(us) {
  const d = new Date(us / 1000);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}

// did shortens a DID to its method and the ends of the rest.
export const shortDID = (did) => (did.length <= 20 ? did : `${did.slice(0, 12)}…${did.slice(-5)}`);

// element makes an element. Text only ever becomes text.
export function element(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}
