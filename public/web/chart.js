// The stacked chart of events a second, drawn as SVG, and its legend. The pointer, or the arrow keys
// while the chart has the focus, select a moment: the legend then shows that moment's rates.

import { clock, count, element, rate } from './format.js';

const minSpan = 30;     // seconds that the time axis shows at least
const minTop = 4;       // events a second that the other axis shows at least
const tickSpace = 80;   // pixels between two labels of the time axis, at least
const gridSpace = 44;   // pixels between two lines of the grid, at least
const margin = { top: 8, right: 8, bottom: 28, left: 56 };
const timeSteps = [5, 10, 15, 30, 60, 120, 300]; // seconds

const names = { other: 'other collections' };

const nameOf = (series) => names[series.name] ?? series.name;

export function svg(tag, attributes, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// roundStep returns the smallest of 1, 2, 5, 10, 20, 50 … that is at least n.
function roundStep(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= n);
}

export class Chart {
  // A Chart draws into box, lists its series in legend, and writes into when what the legend's rates are of.
  constructor(box, legend, when) {
    this.box = box;
    this.legend = legend;
    this.when = when;
    this.split = 'collections';
    this.selected = null; // index of the selected moment
    new ResizeObserver(() => this.redraw()).observe(box);
    this.listen();
  }

  listen() {
    this.box.addEventListener('pointermove', (e) => this.select(this.indexAt(e.clientX - this.box.getBoundingClientRect().left)));
    for (const type of ['pointerleave', 'pointercancel', 'blur']) this.box.addEventListener(type, () => this.select(null));
    this.box.addEventListener('keydown', (e) => {
      if (!this.history || e.altKey || e.ctrlKey || e.metaKey) return;
      const last = this.length() - 1;
      const at = this.selected ?? last;
      const moves = {
        ArrowLeft: at - 1, ArrowDown: at - 1, PageDown: at - 10, Home: 0,
        ArrowRight: at + 1, ArrowUp: at + 1, PageUp: at + 10, End: last, Escape: null,
      };
      if (!(e.key in moves)) return;
      e.preventDefault();
      const to = moves[e.key];
      this.select(to === null ? null : Math.max(0, Math.min(to, last)));
      this.describe();
    });
  }

  setSplit(split) {
    this.split = split;
    this.redraw();
  }

  redraw() { if (this.history) this.draw(this.history); }

  // draw shows a History.
  draw(history) {
    this.history = history;
    const key = this.series().map((s) => s.name).join();
    if (this.shown !== key) {
      this.shown = key;
      this.makeLegend();
    }
    this.scale();
    this.marker = svg('line', { class: 'marker', y1: margin.top, y2: this.bottom });
    const size = { width: this.box.clientWidth, height: this.box.clientHeight };
    this.box.replaceChildren(svg('svg', { ...size, 'aria-hidden': 'true' }, ...this.grid(), ...this.areas(), ...this.clockTicks(), this.marker));
    this.select(this.selected);
    if (document.activeElement !== this.box) this.describe();
  }

  series() { return this.history[this.split]; }

  length() { return this.series()[0].events.length; }

  timeOf(i) { return this.history.end - (this.length() - 1 - i) * this.history.step; }

  // scale stacks the series, the first at the bottom, and sets how times and rates become pixels.
  scale() {
    let below = new Array(this.length()).fill(0);
    this.stack = [below];
    for (const s of this.series()) {
      below = below.map((v, i) => v + s.events[i] / this.history.step);
      this.stack.push(below);
    }
    this.right = Math.max(this.box.clientWidth - margin.right, margin.left + 1);
    this.bottom = Math.max(this.box.clientHeight - margin.bottom, margin.top + 1);
    this.start = Math.min(this.timeOf(0), this.history.end - minSpan);
    this.top = Math.max(minTop, 1.12 * Math.max(...below));
    const width = this.right - margin.left;
    const height = this.bottom - margin.top;
    this.x = (time) => margin.left + (width * (time - this.start)) / (this.history.end - this.start);
    this.y = (value) => this.bottom - (height * value) / this.top;
  }

  grid() {
    const step = roundStep((this.top * gridSpace) / (this.bottom - margin.top));
    const lines = [];
    for (let value = 0; value <= this.top; value += step) {
      const y = Math.round(this.y(value)) + 0.5;
      lines.push(
        svg('line', { class: 'grid', x1: margin.left, x2: this.right, y1: y, y2: y }),
        svg('text', { class: 'tick', x: margin.left - 8, y: y + 4, 'text-anchor': 'end' }, count(value)),
      );
    }
    return lines;
  }

  clockTicks() {
    const span = this.history.end - this.start;
    const least = (span * tickSpace) / (this.right - margin.left);
    const step = timeSteps.find((s) => s >= least) ?? timeSteps.at(-1);
    const ticks = [];
    for (let time = Math.ceil(this.start / step) * step; this.x(time) < this.right - 24; time += step) {
      const text = clock(new Date(time * 1000)).slice(-8, step < 60 ? undefined : -3);
      ticks.push(svg('text', { class: 'tick', x: this.x(time), y: this.bottom + 20, 'text-anchor': 'middle' }, text));
    }
    return ticks;
  }

  areas() {
    const points = this.stack.map((values) => values.map((v, i) => `${this.x(this.timeOf(i)).toFixed(1)},${this.y(v).toFixed(1)}`));
    return this.series().map((_, i) => {
      const edge = `M${points[i + 1].join('L')}`;
      const group = svg('g', { class: 'area' },
        svg('path', { class: 'fill', d: `${edge}L${points[i].slice().reverse().join('L')}Z` }),
        svg('path', { class: 'edge', d: edge }));
      this.paint(group, i);
      return group;
    });
  }

  // paint gives an element of series i its color. The last collection is the sum of all others, and grey.
  paint(e, i) {
    const rest = this.split === 'collections' && i === this.series().length - 1;
    e.style.setProperty('--color', `var(--series-${rest ? 'rest' : i % 7})`);
  }

  makeLegend() {
    this.values = [];
    this.legend.replaceChildren(...this.series().map((s, i) => {
      const swatch = element('span', { class: 'swatch', 'aria-hidden': 'true' });
      this.paint(swatch, i);
      const value = element('span', { class: 'value' });
      this.values.push(value);
      return element('li', {}, swatch, element('span', { class: 'name', title: nameOf(s) }, nameOf(s)), value);
    }));
  }

  // indexAt returns the index of the moment nearest to a horizontal place, null without data.
  indexAt(x) {
    if (!this.history) return null;
    const first = this.x(this.timeOf(0));
    const each = (this.right - first) / Math.max(1, this.length() - 1);
    return Math.max(0, Math.min(Math.round((x - first) / each), this.length() - 1));
  }

  // select shows the rates of one moment in the legend, or with null those of the last ten seconds.
  select(i) {
    this.selected = i;
    if (!this.history) return;
    if (i !== null) this.selected = i = Math.min(i, this.length() - 1);
    this.marker.style.display = i === null ? 'none' : '';
    if (i !== null) {
      const x = this.x(this.timeOf(i));
      this.marker.setAttribute('x1', x);
      this.marker.setAttribute('x2', x);
    }
    this.series().forEach((s, n) => { this.values[n].textContent = rate(this.rateOf(s)); });
    this.when.textContent = this.moment();
  }

  moment() {
    return this.selected === null ? 'Mean of the last ten seconds' : `At ${clock(new Date(this.timeOf(this.selected) * 1000))}`;
  }

  // rateOf is a series' rate at the selected moment, or its mean over the last ten seconds.
  rateOf(s) {
    const some = this.selected === null ? s.events.slice(-5) : [s.events[this.selected]];
    return some.reduce((a, b) => a + b, 0) / (Math.max(1, some.length) * this.history.step);
  }

  // describe says in words what the legend shows, for those who do not see it.
  describe() {
    const rates = this.series().map((s) => `${nameOf(s)} ${rate(this.rateOf(s))}`).join(', ');
    const last = this.length() - 1;
    const attributes = { valuemin: 0, valuemax: last, valuenow: this.selected ?? last, valuetext: `${this.moment()}: ${rates}` };
    for (const [name, value] of Object.entries(attributes)) this.box.setAttribute(`aria-${name}`, value);
  }
}
