// The rates of the last minutes, put together from the answers of /status.

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
