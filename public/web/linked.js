// The subjects that most records have come to link to in the last hour.

import { clock, count, element } from './format.js';

const every = 10_000; // ms between two questions

export class Linked {
  // A Linked shows its section when there is an answer.
  constructor(section) {
    this.section = section;
    this.asked = -Infinity;
  }

  // update asks the server, if its last answer is old.
  async update() {
    if (performance.now() - this.asked < every) return;
    this.asked = performance.now();
    this.section.hidden = false;
    try {
      const response = await fetch('links/most-linked', { cache: 'no-store', signal: AbortSignal.timeout(every) });
      const answer = await response.json();
      if (response.ok) this.show(answer);
      else this.say(answer.message);
    } catch {
      this.say('The server does not answer');
    }
  }

  say(text) { this.section.querySelector('p').textContent = text; }

  show(answer) {
    this.say(answer.subjects.length > 0 ? `New links since ${clock(new Date(answer.since_us / 1000))}` : 'No new links');
    this.section.querySelector('ol').replaceChildren(...answer.subjects.map((s) => element('li', {},
      element('span', { class: 'value' }, count(s.records)),
      element('span', { class: 'muted', title: s.source }, s.source),
      element('a', { href: `links/all?target=${encodeURIComponent(s.subject)}`, title: s.subject }, s.subject))));
  }
}
