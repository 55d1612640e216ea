// Reads links with @atcute/client: links.mjs SERVICE CALLS. CALLS is a JSON list of {name, params}.
// Each call is paged to its end. Prints a list of their items, and of what the pages said besides.
import { Client, simpleFetchHandler } from '@atcute/client';
import * as v from '@atcute/lexicons/validations';

// The schemas of blue.microcosm.links, as its lexicons state them; cursor is a parameter, too.
const subject = { subject: v.genericUriString(), source: v.string() };
const paged = {
  cursor: v.optional(v.string()),
  limit: v.optional(v.constrain(v.integer(), [v.integerRange(1, 100)]), 16),
};
const cursor = { cursor: v.optional(v.nullable(v.string())) };
const dids = v.optional(v.array(v.didString()));
const others = { pathToOther: v.string(), otherSubject: v.optional(v.array(v.string())) };
const record = v.object({ did: v.didString(), collection: v.nsidString(), rkey: v.recordKeyString() });

function query(name, params, output) {
  return v.query(`blue.microcosm.links.${name}`, {
    params: v.object(params),
    output: { type: 'lex', schema: v.object(output) },
  });
}

const schemas = {
  getBacklinks: query('getBacklinks', { ...subject, ...paged, did: dids, reverse: v.optional(v.boolean()) },
    { total: v.integer(), records: v.array(record), ...cursor }),
  getBacklinksCount: query('getBacklinksCount', subject, { total: v.integer() }),
  getBacklinkDids: query('getBacklinkDids', { ...subject, ...paged },
    { total: v.integer(), linking_dids: v.array(v.didString()), ...cursor }),
  getManyToManyCounts: query('getManyToManyCounts', { ...subject, ...others, ...paged, did: dids }, {
    counts_by_other_subject: v.array(v.object({ subject: v.string(), total: v.integer(), distinct: v.integer() })),
    ...cursor,
  }),
  getManyToMany: query('getManyToMany', { ...subject, ...others, ...paged, linkDid: dids },
    { items: v.array(v.object({ linkRecord: record, otherSubject: v.string() })), ...cursor }),
};

const [service, calls] = process.argv.slice(2);
const client = new Client({ handler: simpleFetchHandler({ service }) });
const answers = [];
for (const { name, params } of JSON.parse(calls)) {
  const answer = { pages: 0, totals: [], items: [] };
  let next;
  do {
    const { ok, status, data } = await client.call(schemas[name], { params: { ...params, cursor: next ?? undefined } });
    if (!ok) throw new Error(`${name}: ${status} ${JSON.stringify(data)}`);
    answer.pages++;
    if (data.total !== undefined) answer.totals.push(data.total);
    answer.items.push(...(data.records ?? data.linking_dids ?? data.counts_by_other_subject ?? data.items ?? []));
    next = data.cursor;
  } while (next);
  answers.push(answer);
}
console.log(JSON.stringify(answers));
