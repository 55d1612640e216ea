// The stacked chart of events a second, and its legend.

import { clock, count, element, rate } from './format.js';

const uPlot = window.uPlot;
const shortest = 30; // seconds that the chart shows at least

// steps of the axis: whole numbers
const steps = [1, 2, 5].flatMap((n) => [...Array(9).keys()].map((e) => n * 10 ** e)).sort((a, b) => a - b);

const names = { other: 'other collections' };

// History holds the last steps of /status by series; step n is the n-th since the server's start.
export class History {
  constructor() { this.clear(); }

  clear() { this.last = -1; this.kinds = []; this.collections = []; }

  // missing is how many steps to ask for, to have all that the server has.
  missing() { return this.last < 0 ? 150 : 8; }

  // merge takes what the server sent; false: it does not join what is here, ask for everything.
  merge(h) {
    this.step = h.step_ms / 1000;
    const fresh = h.last_step - this.last;
    const sent = h.kinds[0].events.length;
    const same = (a, b) => a.length === b.length && a.every((s, i) => s.name === b[i].name);
    const whole = this.last < 0;
    if (!whole && (fresh < 0 || fresh > sent || !same(this.collections, h.collections))) {
      this.clear();
      return false;
    }
    for (const part of ['kinds', 'collections']) {
      if (whole) {
        this[part] = h[part].map((s) => ({ name: s.name, events: s.events.slice() }));
      } else if (fresh > 0) {
        h[part].forEach((s, i) => {
          const events = this[part][i].events;
          events.push(...s.events.slice(-fresh));
          events.splice(0, Math.max(0, events.length - 150));
        });
      }
    }
    this.last = h.last_step;
    this.end = h.end_us / 1e6;
    return true;
  }
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  constructor(box, legend, when) {
    this.box = box;
    this.legend = legend;
    this.when = when;
    this.split = 'collections';
    this.hover = null; // index into the data
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(box);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.rebuild());
  }

  size() { return { width: this.box.clientWidth, height: this.box.clientHeight }; }

  setSplit(split) {
    this.split = split;
    this.rebuild();
  }

  rebuild() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.shown = '';
    if (this.history) this.draw(this.history, this.current);
  }

  // draw shows a History, and in the legend the rates of /status.
  draw(history, current) {
    this.history = history;
    this.current = current;
    const series = history[this.split];
    const key = series.map((s) => s.name).join();
    if (!this.plot || this.shown !== key) {
      if (this.plot) this.plot.destroy();
      this.shown = key;
      this.colors = css('--series').split(',').map((c) => c.trim());
      this.plot = new uPlot(this.options(series), this.data(series), this.box);
      this.makeLegend(series);
    } else {
      this.plot.setData(this.data(series));
    }
    this.fillLegend();
    const last = series.map((s) => `${names[s.name] ?? s.name} ${rate(this.now(s))}`).join(', ');
    this.box.setAttribute('aria-label', `Events a second in the last minutes, by ${this.split}. Now: ${last}`);
  }

  color(i) {
    const n = this.history[this.split].length;
    return this.split === 'collections' && i === n - 1 ? this.colors.at(-1) : this.colors[i % (this.colors.length - 1)];
  }

  // data stacks the series, the first at the bottom.
  data(series) {
    const n = series[0].events.length;
    const { end, step } = this.history;
    const times = Array.from({ length: n }, (_, i) => end - (n - 1 - i) * step);
    const stacked = [];
    let below = new Array(n).fill(0);
    for (const s of series) {
      below = below.map((v, i) => v + s.events[i] / step);
      stacked.push(below);
    }
    return [times, ...stacked];
  }

  options(series) {
    const muted = css('--muted');
    const axis = { stroke: muted, font: '12px system-ui, sans-serif', ticks: { show: false }, grid: { stroke: css('--grid'), width: 1 } };
    const bands = series.slice(1).map((_, i) => ({ series: [i + 2, i + 1] }));
    return {
      ...this.size(),
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false, y: false } },
      bands,
      scales: {
        x: { time: true, range: (u, min, max) => (max === null ? [0, 1] : [Math.min(min, max - shortest), max]) },
        y: { range: (u, min, max) => [0, Math.max(4, (max ?? 0) * 1.12)] },
      },
      axes: [
        {
          ...axis, grid: { show: false }, space: 80, size: 36, incrs: [5, 10, 15, 30, 60, 120, 300],
          // One that would be cut off at the right edge is left out.
          values: (u, ticks, i, space, incr) => ticks.map((t) => (u.valToPos(t, 'x') > u.over.clientWidth - 24 ? ''
            : clock(new Date(t * 1000)).slice(-8, incr < 60 ? undefined : -3))),
        },
        { ...axis, size: 56, space: 44, incrs: steps, values: (u, ticks) => ticks.map(count) },
      ],
      series: [{}, ...series.map((s, i) => ({
        label: s.name, stroke: this.color(i), width: 1.25, fill: `${this.color(i)}b8`, points: { show: false },
      }))],
      hooks: { setCursor: [(u) => { this.hover = u.cursor.idx ?? null; this.fillLegend(); }] },
    };
  }

  makeLegend(series) {
    this.values = [];
    this.legend.replaceChildren(...series.map((s, i) => {
      const swatch = element('span', { class: 'swatch', 'aria-hidden': 'true' });
      swatch.style.background = this.color(i);
      const value = element('span', { class: 'value' });
      this.values.push(value);
      const name = names[s.name] ?? s.name;
      return element('li', {}, swatch, element('span', { class: 'name', title: name }, name), value);
    }));
  }

  // now is the mean of the last ten seconds.
  now(s) {
    const last = s.events.slice(-5);
    return last.length ? last.reduce((a, b) => a + b, 0) / (last.length * this.history.step) : 0;
  }

  fillLegend() {
    if (!this.values || !this.history) return;
    const series = this.history[this.split];
    const at = this.hover;
    const hovering = at !== null && series[0] && at < series[0].events.length;
    series.forEach((s, i) => {
      if (this.values[i]) this.values[i].textContent = rate(hovering ? s.events[at] / this.history.step : this.now(s));
    });
    const end = this.history.end;
    this.when.textContent = hovering
      ? `At ${clock(new Date((end - (series[0].events.length - 1 - at) * this.history.step) * 1000))}`
      : 'Mean of the last ten seconds';
  }
}
