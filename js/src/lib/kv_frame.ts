// The pool of KV blocks as the kernel packs it, and what is to be said of a block.
// The mirror of jupyter_infer/widgets/_kv_frame.py.

import { formatCount } from "./format";

export const FREE = 0;
export const CACHED = 1;
export const UNSEEN = 2;
export const USED = 3;
export const SHARED = 4;

/** Name, blocks of the table, tokens, and blocks at its beginning that are not known. */
export type OwnerFacts = [name: string, blocks: number, tokens: number, missing: number];

export interface Facts {
  total: number;
  size: number;
  used: number;
  unknown: number;
  word: number;
  owners: OwnerFacts[];
  cached: number;
  evicted: number;
  unseen: number;
  step: number | null;
  since_ns: number | null;
  planned: boolean;
}

export interface Owner {
  name: string;
  tokens: number;
  missing: number;
  /** Block ids in the order of the tokens. */
  table: number[];
  shared: number;
}

export interface Pool {
  total: number;
  size: number;
  owners: Owner[];
  /** By block id; 0 is no block of a request. */
  state: Uint8Array;
  /** Tables that a block is in. */
  refs: Uint32Array;
  evicted: Set<number>;
  /** Places in `owners` of those that hold a block. */
  holders(block: number): number[];
}

/** Numbers of two or four bytes, little-endian, from wherever in a buffer they lie. */
function numbers(frame: DataView, word: number): number[] {
  const made: number[] = [];
  for (let at = 0; at + word <= frame.byteLength; at += word) {
    made.push(word === 2 ? frame.getUint16(at, true) : frame.getUint32(at, true));
  }
  return made;
}

/** Unpack what is shown; null if the two parts do not belong together. */
export function unpack(facts: Facts, frame: DataView): Pool | null {
  const ids = numbers(frame, facts.word);
  const lengths = facts.owners.map(([, blocks]) => blocks);
  if (ids.length !== lengths.reduce((sum, length) => sum + length, facts.cached + facts.evicted + facts.unseen)) {
    return null;
  }
  let at = 0;
  const take = (count: number) => {
    at += count;
    return ids.slice(at - count, at);
  };
  const state = new Uint8Array(facts.total + 1);
  const refs = new Uint32Array(facts.total + 1);
  const owners = facts.owners.map(([name, blocks, tokens, missing]): Owner => {
    const table = take(blocks);
    for (const block of new Set(table)) {
      refs[block] = (refs[block] ?? 0) + 1;
    }
    return { name, tokens, missing, table, shared: 0 };
  });
  const cached = take(facts.cached);
  const evicted = new Set(take(facts.evicted));
  for (const block of take(facts.unseen)) {
    state[block] = UNSEEN;
  }
  for (const block of cached) {
    state[block] = CACHED;
  }
  for (let block = 1; block <= facts.total; block += 1) {
    const count = refs[block] ?? 0;
    if (count) {
      state[block] = count > 1 ? SHARED : USED;
    }
  }
  for (const owner of owners) {
    owner.shared = owner.table.filter((block) => (refs[block] ?? 0) > 1).length;
  }
  const holders = (block: number) => owners.flatMap((owner, place) => (owner.table.includes(block) ? [place] : []));
  return { total: facts.total, size: facts.size, owners, state, refs, evicted, holders };
}

/** Tokens in the last block that holds any. */
export function fill(tokens: number, size: number): number {
  return tokens ? ((tokens - 1) % size) + 1 : 0;
}

/** First and last token of the block at a place of a table; null if it holds none yet. */
export function tokensAt(owner: Owner, place: number, size: number): [first: number, last: number] | null {
  const first = (owner.missing + place) * size + 1;
  return first > owner.tokens ? null : [first, Math.min(first + size - 1, owner.tokens)];
}

const NAMED = 3;

/** One line about a block: `block 17: r3, tokens 33–64, shared by 4`. */
export function describe(pool: Pool, block: number): string {
  const evicted = pool.evicted.has(block) ? "; its cached content was just given up" : "";
  const words: Record<number, string> = {
    [FREE]: "free",
    [CACHED]: "free, with cached content",
    [UNSEEN]: "not recorded: free, or of a request that began before the remembered steps",
  };
  const state = pool.state[block] ?? FREE;
  const said = words[state];
  if (said !== undefined) {
    return `block ${formatCount(block)}: ${said}${evicted}`;
  }
  const places = pool.holders(block);
  const names = places.slice(0, NAMED).map((place) => pool.owners[place]?.name ?? "");
  const more = places.length > NAMED ? ` and ${formatCount(places.length - NAMED)} more` : "";
  const owner = pool.owners[places[0] ?? -1];
  const range = owner && tokensAt(owner, owner.table.indexOf(block), pool.size);
  const tokens = range ? `tokens ${formatCount(range[0])}–${formatCount(range[1])}` : "no token yet";
  const part = range && range[1] - range[0] + 1 < pool.size ? ` (${range[1] - range[0] + 1} of ${pool.size})` : "";
  const shared = places.length > 1 ? `, shared by ${formatCount(places.length)}` : "";
  return `block ${formatCount(block)}: ${names.join(", ")}${more}, ${tokens}${part}${shared}${evicted}`;
}

/** One line about a stretch of blocks: how many are in which state. */
export function describeRow(pool: Pool, first: number, last: number): string {
  const counts = countStates(pool, first, last);
  const parts = [
    `${formatCount(counts[USED] + counts[SHARED])} in use`,
    ...(counts[SHARED] ? [`${formatCount(counts[SHARED])} of them shared`] : []),
    `${formatCount(counts[CACHED])} free with cached content`,
    ...(counts[UNSEEN] ? [`${formatCount(counts[UNSEEN])} not recorded`] : []),
    `${formatCount(counts[FREE])} free`,
  ];
  return `blocks ${formatCount(first)}–${formatCount(last)}: ${parts.join(", ")}`;
}

export type Counts = [number, number, number, number, number];

export function countStates(pool: Pool, first: number, last: number): Counts {
  const counts: Counts = [0, 0, 0, 0, 0];
  for (let block = first; block <= last; block += 1) {
    const state = pool.state[block] ?? FREE;
    counts[state as 0] += 1;
  }
  return counts;
}
