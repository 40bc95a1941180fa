import { afterEach, beforeEach, expect, test, vi } from "vitest";
import widget, { type MapState } from "../src/kv_map";
import { describe, describeRow, type Facts, fill, type Pool, tokensAt, unpack } from "../src/lib/kv_frame";
import { blockAt, corners, layout, lines, moved, outline, paths, unfilled } from "../src/lib/kv_grid";
import type { Request } from "../src/lib/messages";
import type { CleanUp } from "../src/lib/model";
import { FakeModel, frame } from "./model";

// The third step of a run with a shared prefix: tables 1 2 3, 1 2 4 and 1 2 5; 6 and 7 cached, 5 just evicted.
const FACTS: Facts = {
  total: 24,
  size: 4,
  used: 5,
  unknown: 0,
  word: 2,
  owners: [
    ["r1", 3, 11, 0],
    ["r2", 3, 10, 0],
    ["r3", 3, 9, 0],
  ],
  cached: 2,
  evicted: 1,
  unseen: 0,
  step: 101,
  since_ns: 1_200_000_000,
  planned: true,
};
const IDS = [1, 2, 3, 1, 2, 4, 1, 2, 5, 6, 7, 5];

function packed(ids: readonly number[], word = 2): DataView {
  const view = new DataView(new ArrayBuffer(ids.length * word));
  for (const [place, id] of ids.entries()) {
    word === 2 ? view.setUint16(place * word, id, true) : view.setUint32(place * word, id, true);
  }
  return view;
}

function pool(facts: Partial<Facts> = {}, ids: readonly number[] = IDS): Pool {
  const made = unpack({ ...FACTS, ...facts }, packed(ids, facts.word));
  if (!made) {
    throw new Error("the frame does not fit the facts");
  }
  return made;
}

let el: HTMLElement;
let clean: CleanUp | undefined;

beforeEach(() => {
  el = document.createElement("div");
  document.body.append(el);
});

afterEach(() => {
  vi.useRealTimers();
  clean?.();
  clean = undefined;
  el.remove();
});

function show(state: Partial<MapState> = {}): FakeModel<MapState> {
  const model = new FakeModel<MapState>({
    position: 1,
    following: false,
    _steps: 4,
    _recorded: true,
    _sentence: "5 of 24 blocks in use.",
    _facts: FACTS,
    _frame: packed(IDS),
    _track: { levels: [3, 5, 4, 6], preempted: [2] },
    ...state,
  });
  clean = widget.render({ model: model.as(), el });
  return model;
}

function one<T extends Element = HTMLElement>(selector: string): T {
  const found = el.querySelector<T>(selector);
  if (!found) {
    throw new Error(`no ${selector}`);
  }
  return found;
}

const press = (target: Element, key: string) =>
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const about = () => one(".ji-about").textContent;
const spoken = () => one("[role=status]").textContent;
const sent = (model: FakeModel<MapState>) =>
  model.sent.map((message) => [(message as Request).kind, (message as Request).payload]);

async function answer(model: FakeModel<MapState>, reply: object = { payload: {} }): Promise<void> {
  model.tell("msg:custom", { kind: "reply", id: (model.sent.at(-1) as Request).id, ...reply });
  await Promise.resolve();
  await frame();
}

test("a frame is unpacked into tables, counts and states", () => {
  const made = pool();
  expect(made.owners.map((owner) => owner.table)).toEqual([
    [1, 2, 3],
    [1, 2, 4],
    [1, 2, 5],
  ]);
  expect([...made.state.slice(0, 9)]).toEqual([0, 4, 4, 3, 3, 3, 1, 1, 0]);
  expect([...made.refs.slice(0, 4)]).toEqual([0, 3, 3, 1]);
  expect(made.owners.map((owner) => owner.shared)).toEqual([2, 2, 2]);
  expect(made.holders(2)).toEqual([0, 1, 2]);
  expect(unpack(FACTS, packed([1, 2, 3]))).toBeNull();
});

test("ids of four bytes are read, from the middle of a buffer too", () => {
  const facts = { total: 70_000, word: 4, owners: [["r1", 1, 2, 0]] as Facts["owners"], cached: 0, evicted: 0 };
  expect(pool(facts, [70_000]).owners[0]?.table).toEqual([70_000]);
  const shifted = new DataView(new Uint8Array([9, 9, 1, 0, 2, 0]).buffer, 2);
  const owners: Facts["owners"] = [["r1", 2, 5, 0]];
  expect(unpack({ ...FACTS, owners, cached: 0, evicted: 0 }, shifted)?.owners[0]?.table).toEqual([1, 2]);
});

test("a block is told with its owner, tokens and sharers", () => {
  const made = pool();
  expect(describe(made, 1)).toBe("block 1: r1, r2, r3, tokens 1–4, shared by 3");
  expect(describe(made, 3)).toBe("block 3: r1, tokens 9–11 (3 of 4)");
  expect(describe(made, 5)).toBe("block 5: r3, tokens 9–9 (1 of 4); its cached content was just given up");
  expect(describe(made, 6)).toBe("block 6: free, with cached content");
  expect(describe(made, 9)).toBe("block 9: free");
  const inside = pool({ owners: [["old", 1, 15, 3]], cached: 0, evicted: 0, unseen: 1 }, [9, 4]);
  expect(describe(inside, 9)).toBe("block 9: old, tokens 13–15 (3 of 4)");
  expect(describe(inside, 4)).toContain("block 4: not recorded");
  expect(describeRow(made, 1, 24)).toBe("blocks 1–24: 5 in use, 2 of them shared, 2 free with cached content, 17 free");
});

test("how full the last block is", () => {
  expect([0, 1, 4, 5, 9].map((tokens) => fill(tokens, 4))).toEqual([0, 1, 4, 1, 1]);
  const owner = { name: "r1", tokens: 5, missing: 0, table: [1, 2, 3], shared: 0 };
  expect([0, 1, 2].map((place) => tokensAt(owner, place, 4))).toEqual([[1, 4], [5, 5], null]);
});

test.each([64, 363, 2_000, 20_000])("%i blocks have a cell each and fit", (total) => {
  const grid = layout(total, 600);
  expect(grid.kind).toBe("cells");
  expect(grid.columns * grid.rows).toBeGreaterThanOrEqual(total);
  expect(grid.width).toBeLessThanOrEqual(600);
  expect(grid.height).toBeLessThanOrEqual(600);
});

test("more are rows of a round number, by how many are in which state", () => {
  const grid = layout(100_000, 600);
  expect([grid.kind, grid.each, grid.rows]).toEqual(["rows", 5_000, 20]);
  expect(blockAt(grid, 300, 20)).toBe(5_001);
  expect(blockAt(grid, 300, 999)).toBe(0);
  expect([moved(grid, 5_003, "ArrowDown"), moved(grid, 1, "End")]).toEqual([10_001, 95_001]);
  const made = paths(grid, pool({ total: 100_000 }));
  expect(made[4]).toMatch(/^M0 1h0\.24v12/);
  expect(lines(grid)).toBe("");
});

test("cells are found by point and by key", () => {
  const grid = layout(24, 240);
  expect([grid.columns, grid.rows, grid.size]).toEqual([10, 3, 24]);
  expect([blockAt(grid, 25, 1), blockAt(grid, 1, 25), blockAt(grid, 239, 71), blockAt(grid, -1, 0)]).toEqual([
    2, 11, 0, 0,
  ]);
  const keys = ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End", "PageDown"];
  expect(keys.map((key) => moved(grid, 12, key))).toEqual([13, 11, 22, 2, 1, 24, 24]);
  expect([moved(grid, 1, "ArrowLeft"), moved(grid, 3, "ArrowUp"), moved(grid, 18, "ArrowDown")]).toEqual([1, 3, 18]);
  expect(moved(grid, 12, "a")).toBeNull();
});

test("neighbours of one state are one box, and last blocks are filled from below", () => {
  const grid = layout(24, 240);
  const made = pool();
  expect(paths(grid, made)).toEqual([
    "M168 0h72v24h-72zM0 24h240v24h-240zM0 48h96v24h-96z",
    "M120 0h48v24h-48z",
    "",
    "M48 0h72v24h-72z",
    "M0 0h48v24h-48z",
  ]);
  expect(unfilled(grid, made)).toBe("M48 0h24v6h-24zM72 0h24v12h-24zM96 0h24v18h-24z");
  expect(corners(grid, made.evicted)).toBe("M109 0h11v11z");
  const first = made.owners[0];
  expect(first && outline(grid, first).order).toBe("M12 12L36 12L60 12");
});

test("what is shown is said, drawn and listed", () => {
  show();
  expect(one(".ji-reading").textContent).toBe("5 of 24 blocks in use.");
  expect([...el.querySelectorAll("[role=option]")].map((row) => row.getAttribute("aria-label"))).toEqual([
    "r1: 3 blocks, 11 tokens, 3 of 4 in the last block, 2 shared",
    "r2: 3 blocks, 10 tokens, 2 of 4 in the last block, 2 shared",
    "r3: 3 blocks, 9 tokens, 1 of 4 in the last block, 2 shared",
  ]);
  expect([...el.querySelectorAll(".ji-letters text")].map((text) => text.textContent)).toEqual([
    "×3",
    "×3",
    "1",
    "2",
    "3",
  ]);
  expect(one(".ji-step").textContent).toBe("step 2 of 4, 1.2 s after the first");
  expect(one(".ji-preempted").getAttribute("d")).toBe("M2.5 0v24");
  expect(one(".ji-live").hidden).toBe(true);
  expect(one(".ji-legend").textContent).toContain("just evicted");
});

test("arrow keys move over the blocks and tell, and outline the table", () => {
  vi.useFakeTimers();
  show();
  const grid = one(".ji-grid");
  grid.focus();
  press(grid, "ArrowRight");
  press(grid, "ArrowRight");
  expect(about()).toBe("block 3: r1, tokens 9–11 (3 of 4)");
  vi.advanceTimersByTime(2_000);
  expect(spoken()).toBe("block 3: r1, tokens 9–11 (3 of 4)");
  expect(one(".ji-order").getAttribute("d")).toMatch(/^M12 12L36 12L60 12$/);
  expect(one("[role=option]").classList.contains("ji-holds")).toBe(true);
  grid.blur();
  expect(one(".ji-order").getAttribute("d")).toBe("");
});

test("a request that is focused has its blocks outlined in order", () => {
  show();
  const rows = [...el.querySelectorAll<HTMLElement>("[role=option]")];
  expect(rows.map((row) => row.tabIndex)).toEqual([0, -1, -1]);
  rows[0]?.focus();
  press(rows[0] ?? el, "ArrowDown");
  expect(document.activeElement).toBe(rows[1]);
  expect(one(".ji-order").getAttribute("d")).toBe("M12 12L36 12L84 12");
  expect(about()).toBe("r2: 3 blocks, 10 tokens, 2 of 4 in the last block, 2 shared");
});

test("the focus stays with its request as others go", async () => {
  const model = show();
  el.querySelectorAll<HTMLElement>("[role=option]")[1]?.focus();
  model.set("_frame", packed([1, 2, 4, 1, 2, 5, 6, 7, 5]));
  model.set("_facts", { ...FACTS, owners: FACTS.owners.slice(1) });
  await frame();
  expect(document.activeElement?.getAttribute("aria-label")).toMatch(/^r2:/);
  expect(el.querySelectorAll("[role=option]").length).toBe(2);
});

test("the slider asks for a step, one request at a time and only for the last one", async () => {
  const model = show();
  const slider = one<HTMLInputElement>(".ji-slider");
  for (const value of ["2", "3", "0"]) {
    slider.value = value;
    slider.dispatchEvent(new Event("input"));
  }
  expect(sent(model)).toEqual([["go", { position: 2 }]]);
  expect(slider.getAttribute("aria-valuetext")).toBe("step 1 of 4");
  await answer(model);
  expect(sent(model).length).toBe(1); // ten a second at most
  await vi.waitFor(() => expect(sent(model).slice(1)).toEqual([["go", { position: 0 }]]));
  model.set("position", 0);
  await answer(model);
  expect(one(".ji-step").textContent).toBe("step 1 of 4, 1.2 s after the first");
});

test("a failure is said", async () => {
  const model = show();
  one(".ji-slider").dispatchEvent(new Event("input"));
  await answer(model, { error: "ConfigError: no step 9" });
  await Promise.resolve();
  expect(one("[role=alert]").textContent).toBe("ConfigError: no step 9");
});

test("play goes on step by step, and stops at the end", async () => {
  const model = show({ position: 2 });
  vi.useFakeTimers();
  one(".ji-play").click();
  expect(one(".ji-play").textContent).toBe("❚❚ Pause");
  vi.advanceTimersByTime(100);
  expect(sent(model)).toEqual([["go", { position: 3 }]]);
  model.set("position", 3);
  model.tell("msg:custom", { kind: "reply", id: (model.sent[0] as Request).id, payload: {} });
  await vi.advanceTimersByTimeAsync(200);
  expect(one(".ji-play").textContent).toBe("▶ Play");
  expect(model.sent.length).toBe(1);
  one(".ji-play").click(); // from the beginning
  expect(sent(model)[1]).toEqual(["go", { position: 0 }]);
});

test("a live map is followed, stopped and followed again", async () => {
  const model = show({ following: true, _recorded: false, position: 3, _track: null });
  const live = one<HTMLButtonElement>(".ji-live");
  expect([live.textContent, live.getAttribute("aria-pressed")]).toEqual(["● Following live", "true"]);
  live.click();
  expect(sent(model)).toEqual([["go", { position: 3 }]]);
  model.set("following", false);
  await answer(model);
  expect(live.textContent).toBe("Follow live");
  live.click();
  expect(sent(model)[1]).toEqual(["follow", {}]);
});

test("without a pool there is a sentence and no map", () => {
  show({ _facts: null, _frame: packed([]), _steps: 0, position: null, _sentence: "No model is loaded." });
  expect(one(".ji-body").hidden).toBe(true);
  expect(one<HTMLInputElement>(".ji-slider").disabled).toBe(true);
  expect(one(".ji-reading").textContent).toBe("No model is loaded.");
});

test("of a table that began before the remembered steps, it says how much is known", () => {
  show({ _facts: { ...FACTS, owners: [["old", 1, 15, 3]], cached: 0, evicted: 0, unseen: 1 }, _frame: packed([9, 4]) });
  const row = one("[role=option]");
  expect(row.children[1]?.textContent).toBe("1 of 4");
  expect(row.getAttribute("aria-label")).toBe(
    "old: 1 of 4 blocks known, 15 tokens, 3 of 4 in the last block, 0 shared",
  );
});

test("names are text", () => {
  show({ _facts: { ...FACTS, owners: [["<img src=x>", 3, 9, 0], ...FACTS.owners.slice(1)] } });
  expect(el.querySelector("img")).toBeNull();
  expect(one("[role=option]").textContent).toContain("<img src=x>");
});

test("when the kernel goes, it says so and asks no more", () => {
  show().tell("comm_live_update");
  expect(one(".ji-reading").textContent).toContain("kernel gone; run the cell again");
  expect(one<HTMLInputElement>(".ji-slider").disabled).toBe(true);
  expect(spoken()).toBe("kernel gone; run the cell again");
});

test("after the clean-up nothing listens", () => {
  const model = show({ position: 0 });
  one(".ji-play").click();
  clean?.();
  clean = undefined;
  expect(model.listening).toBe(0);
});
