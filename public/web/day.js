// The curves of the last day: lag, disk and subscribers, a value a minute. One slider selects the
// minute that all of them show.

import { svg } from './chart.js';
import { bytes, clock, count, duration, element } from './format.js';

const every = 60_000; // ms between two questions
const minutes = 1440;
const height = 100;
const curves = [
  { key: 'lag_s', name: 'Lag', write: (s) => (s > 0 ? duration(s) : 'none') },
  { key: 'disk_bytes', name: 'Log on disk', write: bytes },
  { key: 'subscribers', name: 'Subscribers', write: count },
];

export class Day {
  // A Day shows its section when there is an answer.
  constructor(section) {
    this.section = section;
    this.asked = -Infinity;
    this.slider = section.querySelector('input');
    this.slider.addEventListener('input', () => this.select());
    this.boxes = curves.map((c, i) => {
      const box = { value: element('b', {}), most: element('span', { class: 'muted' }), path: svg('path', { class: 'edge' }), marker: svg('path', { class: 'marker' }) };
      const curve = svg('svg', { viewBox: `0 -2 ${minutes} ${height + 4}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, box.marker, box.path);
      curve.style.setProperty('--color', `var(--series-${i})`);
      section.querySelector('.curves').append(element('div', {}, element('p', {}, element('span', { class: 'label' }, c.name), box.value, box.most), curve));
      return box;
    });
  }

  // update asks the server, if its last answer is old.
  async update() {
    if (performance.now() - this.asked < every) return;
    this.asked = performance.now();
    try {
      const response = await fetch('status/day', { cache: 'no-store', signal: AbortSignal.timeout(10_000) });
      if (response.ok) this.draw(await response.json());
    } catch {
      this.asked = -Infinity; // the page's state says why
    }
  }

  draw(day) {
    this.day = day;
    this.before = minutes - day.lag_s.length; // minutes without a value
    this.section.hidden = day.lag_s.length === 0;
    curves.forEach((c, i) => {
      const values = day[c.key];
      const most = Math.max(...values);
      const place = (v, at) => (v === null ? '' : `${(values[at - 1] ?? null) === null ? 'M' : 'L'}${this.before + at} ${(height * (1 - v / (most || 1))).toFixed(1)}h.1`);
      this.boxes[i].path.setAttribute('d', values.map(place).join(''));
      this.boxes[i].most.textContent = `at most ${c.write(most)}`;
    });
    this.select();
  }

  // select shows the values of the slider's minute.
  select() {
    const at = Number(this.slider.value);
    const date = new Date((this.day.end_s - 60 * (minutes - 1 - at)) * 1000);
    const when = at === minutes - 1 ? 'Now' : `At ${clock(date).slice(0, -3)}`;
    const texts = curves.map((c, i) => {
      const value = this.day[c.key][at - this.before] ?? null;
      this.boxes[i].marker.setAttribute('d', at === minutes - 1 ? '' : `M${at} 0V${height}`);
      return this.boxes[i].value.textContent = value === null ? '–' : c.write(value);
    });
    this.section.querySelector('output').textContent = when;
    this.slider.setAttribute('aria-valuetext', `${when}: ${curves.map((c, i) => `${c.name} ${texts[i]}`).join(', ')}`);
  }
}
