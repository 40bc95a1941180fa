import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { linesOf, numberIn, textsIn } from "../src/lib/fields";
import { bandOf, placeOf } from "../src/lib/gauge";
import type { CleanUp } from "../src/lib/model";
import { formatChance, type Odds, oddsLevel } from "../src/lib/odds";
import { axisNs } from "../src/lib/phases";
import type { Figures, WholeRun } from "../src/lib/runs";
import { SAVE_MS } from "../src/lib/save";
import { type Entry, level, SPANS, tokenView } from "../src/lib/tokens";
import widget, { type Playground } from "../src/playground";
import { FakeModel, frame } from "./model";

const UNKNOWN: Figures = {
  load_ns: null,
  queued_ns: null,
  prefill_ns: null,
  decode_ns: null,
  ttft_ns: null,
  tokens_per_s: null,
  prompt_tokens: null,
  cached_tokens: null,
  output_tokens: null,
  wall_usd: null,
  shared_usd: null,
  price: "",
  api_usd: null,
  api: "",
};
const KNOWN: Figures = {
  ...UNKNOWN,
  queued_ns: 2e6,
  prefill_ns: 98e6,
  decode_ns: 900e6,
  ttft_ns: 100e6,
  tokens_per_s: 32.5,
  prompt_tokens: 12,
  cached_tokens: 0,
  output_tokens: 30,
  wall_usd: 2.4e-5,
  shared_usd: 1.2e-5,
  price: "$0.05/h assumed",
};
const START: Playground = {
  prompt: "Say hello",
  system: "",
  temperature: null,
  top_p: null,
  top_k: null,
  max_tokens: null,
  seed: null,
  logprobs: null,
  stop_strings: [],
  ignore_eos: false,
  shade: "itl",
  pinned: [],
  compared: [],
  state: "idle",
  error: "",
  _engine: [["model", "smollm2-135m"]],
  _stage: "",
  _shown_run: 0,
  _settled: [],
  _recent: [],
  _latest: [],
  _odds_settled: [],
  _odds_recent: [],
  _odds_latest: [],
  _status: "",
  _figures: UNKNOWN,
  _history: [],
  _beside: [],
};
const EVIL = '<img src=x onerror="window.__p=1">';
const past = (number: number, text = "an answer"): WholeRun => ({
  number,
  label: `prompt ${number}`,
  settings: "seed 1",
  state: "done",
  figures: KNOWN,
  text,
});

let el: HTMLElement;
let clean: CleanUp | undefined;

beforeEach(() => {
  el = document.createElement("div");
  document.body.append(el);
});

afterEach(() => {
  clean?.();
  clean = undefined;
  el.remove();
  vi.useRealTimers();
});

function show(state: Partial<Playground> = {}): FakeModel<Playground> {
  const model = new FakeModel<Playground>({ ...START, ...state });
  clean = widget.render({ model: model.as(), el });
  return model;
}

const find = <E extends Element>(selector: string): E => {
  const found = el.querySelector<E>(selector);
  if (!found) {
    throw new Error(`there is no ${selector}`);
  }
  return found;
};
const press = (label: string): HTMLButtonElement => {
  const found = [...el.querySelectorAll("button")].find(
    (button) => (button.getAttribute("aria-label") ?? button.textContent) === label,
  );
  if (!found) {
    throw new Error(`there is no button ${label}`);
  }
  found.click();
  return found;
};
const field = (label: string): HTMLInputElement => {
  const name = [...el.querySelectorAll("label")].find((found) => found.textContent === label);
  return find<HTMLInputElement>(`#${name?.getAttribute("for")}`);
};
const type = (label: string, text: string) => {
  const input = field(label);
  input.value = text;
  input.dispatchEvent(new Event("input"));
};
const asked = (model: FakeModel<Playground>) =>
  model.sent as { kind: string; id: string; payload: Record<string, unknown> }[];
const answer = (model: FakeModel<Playground>, reply: object) => {
  const last = asked(model).at(-1);
  model.tell("msg:custom", { kind: "reply", id: last?.id, ...reply });
  return new Promise((done) => setTimeout(done));
};

test("every field has a label, and what is typed is set at once and sent when typing pauses", () => {
  vi.useFakeTimers();
  const model = show();
  for (const label of [
    "Prompt",
    "System prompt",
    "Temperature",
    "Top-p",
    "Top-k",
    "Max tokens",
    "Seed",
    "Alternatives",
    "Stop",
  ]) {
    expect(field(label)).toBeTruthy();
  }
  type("Prompt", "Say");
  type("Prompt", "Say h");
  type("Temperature", "0.5");
  type("Stop", "\\n\nEND");
  expect(model.get("prompt")).toBe("Say h");
  expect(model.get("temperature")).toBe(0.5);
  expect(model.get("stop_strings")).toEqual(["\n", "END"]);
  expect(model.saves).toBe(0);
  vi.advanceTimersByTime(SAVE_MS);
  expect(model.saves).toBe(1);
});

test("what is no number is marked, not set, and keeps Run from running", async () => {
  const model = show({ seed: 3 });
  type("Seed", "4.5");
  expect(field("Seed").getAttribute("aria-invalid")).toBe("true");
  expect(model.get("seed")).toBe(3);
  field("Seed").dispatchEvent(new Event("change"));
  expect(field("Seed").value).toBe("4.5");
  type("Prompt", "typed");
  press("Run");
  await frame();
  expect(find(".ji-error").textContent).toBe("Seed: a whole number");
  expect(model.sent).toEqual([]);
  type("Seed", "");
  expect(model.get("seed")).toBeNull();
});

test.each([
  ["Temperature", "3", "Temperature: a number from 0 to 2, or nothing"],
  ["Top-p", "0", "Top-p: a number above 0, up to 1, or nothing"],
  ["Top-k", "-2", "Top-k: a whole number, 0 or more, or nothing"],
  ["Max tokens", "0", "Max tokens: a whole number, 1 or more, or nothing"],
  ["Alternatives", "21", "Alternatives: a whole number from 0 to 20, or nothing"],
])("%s does not take %s", async (label, wrong, said) => {
  const model = show({ prompt: "asked" });
  type(label, wrong);
  expect(field(label).getAttribute("aria-invalid")).toBe("true");
  press("Run");
  await frame();
  expect(find(".ji-error").textContent).toBe(said);
  expect(model.sent).toEqual([]);
});

test("an echo of what was saved before does not take the place of what was typed since", async () => {
  const model = show();
  type("Prompt", "the qu");
  await new Promise((resolve) => setTimeout(resolve, SAVE_MS + 50));
  type("Prompt", "the quick");
  model.set("prompt", "the qu"); // as the kernel says it back
  await frame();
  expect(field("Prompt").value).toBe("the quick");
  press("Run");
  await frame();
  expect((model.sent[0] as { payload: { prompt: string } }).payload.prompt).toBe("the quick");
  expect(model.get("prompt")).toBe("the quick");
});

test("while a field has the focus an older value of its own is no news, somebody else's is", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const model = show();
  const input = field("Prompt");
  input.dispatchEvent(new Event("focus"));
  for (const text of ["the", "the qu", "the quick"]) {
    type("Prompt", text);
    vi.advanceTimersByTime(SAVE_MS);
  }
  for (const [set, seen] of [
    ["the qu", "the quick"], // what a run was sent, say, and the kernel says of it
    ["another", "another"],
    ["the", "the"],
  ] as const) {
    model.set("prompt", set);
    await frame();
    expect([input.value, model.get("prompt")]).toEqual([seen, seen]);
  }
  type("Prompt", "there");
  vi.advanceTimersByTime(SAVE_MS);
  type("Prompt", "there is");
  vi.advanceTimersByTime(SAVE_MS);
  input.dispatchEvent(new Event("blur"));
  model.set("prompt", "there"); // nobody types there any more
  await frame();
  expect(input.value).toBe("there");
});

test("a widget that the kernel closes sends nothing more, and counts no views", async () => {
  const model = show();
  const states = model as unknown as FakeModel<{ _view_count: number | null }>;
  states.set("_view_count", 1);
  type("Prompt", "last words");
  model.tell("comm:close");
  clean?.();
  clean = undefined;
  expect([model.saves, model.sent, states.get("_view_count")]).toEqual([0, [], null]);
});

test("what Python sets is seen, and what is being typed is not rewritten", async () => {
  const model = show();
  type("Temperature", "1.");
  model.set("prompt", "another");
  model.set("stop_strings", ["\n\n", "a\\b"]);
  await frame();
  expect(field("Prompt").value).toBe("another");
  expect(field("Temperature").value).toBe("1.");
  expect(field("Stop").value).toBe("\\n\\n\na\\\\b");
});

test("Run sends what is typed along; a refusal is one line", async () => {
  const model = show();
  type("Prompt", "typed");
  field("Prompt").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ctrlKey: true }));
  expect(model.saves).toBe(1);
  expect(asked(model)[0]).toMatchObject({ kind: "run", payload: { prompt: "typed", seed: null, stop_strings: [] } });
  await answer(model, { error: "EngineBusy: run 1 of this playground goes on" });
  expect(find(".ji-error").textContent).toBe("run 1 of this playground goes on");
  press("Run");
  await answer(model, { payload: { number: 2 } });
  expect(find(".ji-error").textContent).toBe("");
});

test("buttons say whether they can be used, and keep the focus", async () => {
  const model = show();
  const usable = () =>
    [...el.querySelectorAll(".ji-bar > button")].slice(0, 3).map((button) => !button.hasAttribute("aria-disabled"));
  expect(usable()).toEqual([true, false, true]);
  model.set("state", "running");
  await frame();
  expect(usable()).toEqual([false, true, false]);
  press("Stop");
  expect(asked(model).at(-1)?.kind).toBe("stop");
});

test("a run is shown as it goes on: text, gauges with their bands, phases", async () => {
  const model = show({ state: "running", _shown_run: 1 });
  model.set("_latest", [["Hello", 0, 4, 1]]);
  await frame();
  model.set("_latest", [
    ["Hello", 0, 4, 1],
    [",", 30_000, 5, 1],
    ["", 60_000, 6, 1],
    [" world", 400_000, 7, 1],
  ]);
  model.set("_figures", KNOWN);
  model.set("_status", "✓ smollm2-135m");
  await frame();
  expect(find(".ji-answer").textContent).toBe("Hello, world");
  expect([...el.querySelectorAll(".ji-token")].map((span) => span.getAttribute("data-level"))).toEqual([
    null,
    "1",
    "4",
  ]);
  const gauges = [...el.querySelectorAll(".ji-gauge")].map((gauge) => gauge.textContent);
  expect(gauges).toEqual([
    "TTFT100 msfeels instant (under 1 s)",
    "Decode speed32.5 tok/sagents and code (30+)",
    "Wall cost≈$2.4e-5shared ≈$1.2e-5 @ $0.05/h assumed",
  ]);
  expect(find(".ji-where").textContent).toContain("queued2 msprefill98 msdecode900 ms");
  expect(find<HTMLElement>(".ji-phase[data-phase=decode]").style.width).toBe("90%");
});

test("what is not known is n/a and has no band", () => {
  show();
  expect([...el.querySelectorAll(".ji-gauge")].map((gauge) => gauge.textContent)).toEqual([
    "TTFTn/a",
    "Decode speedn/a tok/s",
    "Wall costn/a",
  ]);
  expect(find<HTMLElement>(".ji-needle").style.display).toBe("none");
});

test("a load shows its stage, a state is said once, an error is a line", async () => {
  const model = show();
  const spoken = () => find("[role=status]").textContent;
  model.set("state", "loading");
  model.set("_stage", "weights");
  await frame();
  expect(find(".ji-now").textContent).toBe("loading the model: weights");
  expect(spoken()).toBe("loading the model: weights");
  model.set("_stage", "cache");
  await frame();
  expect(spoken()).toBe("loading the model: weights");
  model.set("state", "failed");
  model.set("error", "the prompt is too long");
  await frame();
  expect(find(".ji-error").textContent).toBe("the prompt is too long");
});

test("arrow keys and the pointer say what is known of a token", () => {
  show({
    _shown_run: 1,
    _figures: KNOWN,
    _latest: [
      ["Hello", 0, 4, 1],
      ["\n", 30_000, 5, 1],
    ],
  });
  const region = find<HTMLElement>(".ji-answer");
  const key = (name: string) => region.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  key("ArrowRight");
  expect(find(".ji-detail").textContent).toBe('token 1 · "Hello" · TTFT 100 ms · at 100 ms · step 4');
  key("ArrowRight");
  expect(find(".ji-detail").textContent).toBe('token 2 · "\\n" · ITL 30 ms · at 130 ms · step 5');
  key("ArrowRight");
  expect(find(".ji-detail").textContent).toContain("token 2");
  key("Escape");
  expect(find(".ji-detail").textContent).toContain("Point at a token");
});

const LIKELY: Pick<Playground, "_latest" | "_odds_latest"> = {
  _latest: [
    ["Red", 0, 4, 1],
    [" fox", 30_000, 5, 1],
    ["", 60_000, 6, 1],
    ["!", 90_000, 7, 2],
  ],
  _odds_latest: [
    [["Red", Math.log(0.62), 1, [["Blue", Math.log(0.2)]]]],
    [
      [
        " fox",
        Math.log(0.004),
        12,
        [
          ["\n", Math.log(0.9)],
          [17, null],
        ],
      ],
    ],
    [[240, null, null, []]],
    [
      ["!", Math.log(0.999), 1, []],
      [EVIL, Math.log(0.3), 2, []],
    ],
  ],
};

test("how likely a token was is told with what else could have been there, as text", () => {
  show({ _shown_run: 1, _figures: KNOWN, ...LIKELY });
  const region = find<HTMLElement>(".ji-answer");
  const key = (name: string) => region.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  const odds = () =>
    [...el.querySelectorAll(".ji-odds-of")].map((line) => [...line.children].map((e) => e.textContent));
  expect(odds()).toEqual([]);
  key("Home");
  expect(odds()).toEqual([['"Red" 62 %, the likeliest', "others", '"Blue" 20 %']]);
  key("ArrowRight");
  expect(odds()).toEqual([['" fox" 0.4 %, rank 12', "others", '"\\n" 90 %', "token 17 n/a"]]);
  key("ArrowRight"); // over the token that has no text yet
  expect(odds()).toEqual([['"!" over 99 %, the likeliest'], [`${JSON.stringify(EVIL)} 30 %, rank 2`]]);
  expect(el.querySelector("img")).toBeNull();
  key("Escape");
  expect(odds()).toEqual([]);
});

test("shades tell the waits, or how likely tokens were, with the words for it", async () => {
  const model = show({ _shown_run: 1, ...LIKELY });
  const levels = () => [...el.querySelectorAll(".ji-token")].map((span) => span.getAttribute("data-level"));
  const pressed = () =>
    [...el.querySelectorAll("[aria-label='Shade by'] button")].map((made) => made.getAttribute("aria-pressed"));
  expect([levels(), pressed()]).toEqual([
    [null, "1", "1"],
    ["true", "false"],
  ]);
  expect(find(".ji-key").textContent).toContain("waitedto 20 ms");
  press("log-probability");
  await frame();
  expect([model.get("shade"), model.saves]).toEqual(["logprob", 1]);
  expect([levels(), pressed()]).toEqual([
    ["1", "4", "2"],
    ["false", "true"],
  ]);
  expect(find(".ji-key").textContent).toContain("probabilitysure (90 % and more)");
  model.set("_latest", [...model.get("_latest"), [".", 120_000, 8, 1]]);
  model.set("_odds_latest", [...model.get("_odds_latest"), [[".", Math.log(0.95), 1, []]]]);
  await frame();
  expect(levels()).toEqual(["1", "4", "2", "0"]);
  press("ITL");
  await frame();
  expect(levels()).toEqual([null, "1", "1", "1"]);
});

test("without log-probabilities the shades tell the waits, and the other choice says why it cannot be", async () => {
  const model = show({ shade: "logprob", _shown_run: 1, _latest: LIKELY._latest });
  const other = [...el.querySelectorAll("button")].find((made) => made.textContent === "log-probability");
  expect(find(".ji-key").textContent).toContain("waited");
  expect(other?.getAttribute("aria-disabled")).toBe("true");
  expect(other?.title).toContain("set Alternatives, and run again");
  other?.click();
  expect(find(".ji-error").textContent).toContain("set Alternatives, and run again");
  expect(model.get("shade")).toBe("logprob");
  model.set("_odds_latest", LIKELY._odds_latest);
  model.set("_shown_run", 2);
  await frame();
  expect(other?.hasAttribute("aria-disabled")).toBe(false);
  expect(find(".ji-key").textContent).toContain("probability");
});

test("probabilities and their shades", () => {
  const said = (...chances: (number | null)[]): Odds => chances.map((p) => ["x", p === null ? p : Math.log(p), 1, []]);
  const chances = [1, 0.9, 0.899, 0.5, 0.2, 0.05, 0.049, 0, null];
  expect(chances.map((p) => oddsLevel(said(p)))).toEqual([0, 0, 1, 1, 2, 3, 4, 4, null]);
  expect([oddsLevel([]), oddsLevel(said(0.95, 0.1)), oddsLevel(said(null, 0.95))]).toEqual([null, 3, 0]);
  expect([0, Math.log(0.996), Math.log(0.5), Math.log(0.0001), null, 12.5].map(formatChance)).toEqual([
    "100 %",
    "over 99 %",
    "50 %",
    "under 0.1 %",
    "n/a",
    "n/a",
  ]);
});

test("of 5,000 tokens the last ones are elements and all are there, at once or one by one", () => {
  const entries: Entry[] = Array.from({ length: 5_000 }, (_, n) => [`${n} `, n * 1000, n, 1]);
  const text = entries.map(([part]) => part).join("");
  const late = tokenView("late");
  late.show(1, entries, null);
  const live = tokenView("live");
  const odds: Odds[] = entries.map(([part]) => [[part, -0.5, 1, [["other", -1]]]]);
  for (let n = 0; n <= 5_000; n += 20) {
    live.show(1, entries.slice(0, n), null, odds.slice(0, n), n % 40 ? "itl" : "logprob");
  }
  for (const { element } of [late, live]) {
    expect(element.querySelector(".ji-answer")?.textContent).toBe(text);
    expect(element.querySelectorAll(".ji-token").length).toBeLessThanOrEqual(SPANS);
    expect(element.querySelectorAll(".ji-token").length).toBeGreaterThanOrEqual(SPANS / 2);
  }
  live.show(2, [["new", 0, 1, 1]], null);
  expect(live.element.querySelector(".ji-answer")?.textContent).toBe("new");
});

test("text of a model is text, in the answer, the history and side by side", () => {
  show({ _latest: [[EVIL, 0, 1, 1]], _history: [{ ...past(1), label: EVIL }], _beside: [past(1, EVIL)] });
  expect(el.querySelector("img")).toBeNull();
  expect(find(".ji-answer").textContent).toBe(EVIL);
  expect(find(".ji-pane .ji-answer").textContent).toBe(EVIL);
});

test("the history has the newest run first, and rows stay the same elements", async () => {
  const model = show({ _history: [past(1), past(2)] });
  const rows = () => [...el.querySelectorAll(".ji-run")];
  expect(rows().map((row) => row.querySelector(".ji-number")?.textContent)).toEqual(["2", "1"]);
  const [, first] = rows();
  expect(press("Pin run 1").getAttribute("aria-pressed")).toBe("false");
  expect(asked(model).at(-1)).toMatchObject({ kind: "pin", payload: { number: 1, on: true } });
  model.set("pinned", [1]);
  model.set("_history", [past(1), past(3)]);
  await frame();
  expect(rows().map((row) => row.querySelector(".ji-number")?.textContent)).toEqual(["3", "1"]);
  expect(rows()[1]).toBe(first);
  press("Pin run 1");
  expect(asked(model).at(-1)).toMatchObject({ kind: "pin", payload: { number: 1, on: false } });
  press("Compare run 3");
  press("Use run 1 again");
  expect(asked(model).map(({ kind }) => kind)).toEqual(["pin", "pin", "compare", "use"]);
});

test("one run to compare asks for another, two stand side by side", async () => {
  const model = show({ _beside: [past(1)] });
  expect(find(".ji-beside").textContent).toContain("Choose another run");
  model.set("_beside", [past(1), past(2)]);
  await frame();
  expect(el.querySelectorAll(".ji-pane").length).toBe(2);
  expect(find(".ji-beside").textContent).not.toContain("Choose another run");
});

test("the cell goes to the clipboard; where that is refused its text is shown and selected", async () => {
  const write = vi.fn().mockResolvedValueOnce(undefined).mockRejectedValueOnce(new Error("no"));
  vi.stubGlobal("navigator", { clipboard: { writeText: write } });
  const model = show();
  const copied = find<HTMLTextAreaElement>(".ji-copied");
  press("Copy as %%infer cell");
  expect(asked(model).at(-1)).toMatchObject({ kind: "cell", payload: { prompt: "Say hello" } });
  await answer(model, { payload: { text: "%%infer\nSay hello" } });
  expect(write).toHaveBeenCalledWith("%%infer\nSay hello");
  expect(copied.style.display).toBe("none");
  press("Copy as %%infer cell");
  await answer(model, { payload: { text: "%%infer\nSay hello" } });
  expect(copied.style.display).toBe("");
  expect(copied.value).toBe("%%infer\nSay hello");
  expect(find(".ji-error").textContent).toContain("copy the selected text");
  vi.unstubAllGlobals();
});

test("when the kernel goes, the answer stays and nothing can be pressed", () => {
  const model = show({ _latest: [["Hello", 0, 1, 1]], _history: [past(1)] });
  model.tell("comm_live_update");
  expect(find(".ji-now").textContent).toBe("kernel gone; run the cell again");
  expect(find(".ji-answer").textContent).toBe("Hello");
  expect([...el.querySelectorAll("fieldset")].every((set) => set.hasAttribute("disabled"))).toBe(true);
  expect(asked(model)).toEqual([]);
});

test("keys of a view are its own, but for those with Ctrl", () => {
  show();
  const owned = (target: Element, init: KeyboardEventInit) => {
    target.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, ...init }));
    return target.hasAttribute("data-lm-suppress-shortcuts");
  };
  expect(owned(find(".ji-answer"), { key: "ArrowDown" })).toBe(true);
  expect(owned(field("Prompt"), { key: "s", ctrlKey: true })).toBe(false);
  expect(owned(field("Prompt"), { key: "Enter", ctrlKey: true })).toBe(true);
  expect(owned(document.body, { key: "a" })).toBe(false);
});

test("two runs side by side have bars of one scale", () => {
  const quick = { ...past(2), figures: { ...KNOWN, decode_ns: 100e6 } };
  show({ _beside: [past(1), quick] });
  const widths = [...el.querySelectorAll<HTMLElement>(".ji-pane [data-phase=decode].ji-phase")].map(
    (bar) => bar.style.width,
  );
  expect(widths).toEqual(["90%", "10%"]);
});

test("after the clean-up nothing listens, and what was typed last is saved", () => {
  const model = show();
  type("Prompt", "last words");
  clean?.();
  clean = undefined;
  expect(model.saves).toBe(1);
  expect(model.listening).toBe(0);
});

test("shades, bands, axes and numbers", () => {
  expect([null, 0, 20_000, 33_334, 250_000, 250_001].map(level)).toEqual([null, 0, 0, 2, 3, 4]);
  const bands = [
    { below: 10, word: "low" },
    { below: Number.POSITIVE_INFINITY, word: "high" },
  ];
  expect([9.99, 10, null].map((value) => bandOf(value, bands)?.word)).toEqual(["low", "high", undefined]);
  expect([0, 1, 10, 100, 1e9].map((value) => placeOf(value, [1, 100]))).toEqual([0, 0, 0.5, 1, 1]);
  expect([0, 9e8, 1e9, 1.1e9, 3e9, 6e9].map(axisNs)).toEqual([1e9, 1e9, 1e9, 2e9, 5e9, 1e10]);
  expect(["", " ", "0", "1e-3", "x", "Infinity"].map((text) => numberIn(text))).toEqual([
    null,
    null,
    0,
    0.001,
    undefined,
    undefined,
  ]);
  expect(numberIn("1.5", true)).toBeUndefined();
});

test("stop texts survive their lines", () => {
  for (const texts of [["\n\n"], ["a", "\\n"], ["\t", "\\", "end"], [" "]]) {
    expect(textsIn(linesOf(texts))).toEqual(texts);
  }
  expect(textsIn("a\n\nb\n")).toEqual(["a", "b"]);
});
