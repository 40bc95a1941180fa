// Playground: a prompt, its settings, the answer as it streams, where its time went, and runs side by side.

import { acting } from "./lib/acting";
import { announcer } from "./lib/announce";
import { SPEEDS, WAITS } from "./lib/bands";
import { h, setText } from "./lib/dom";
import { fact } from "./lib/facts";
import { button, type Field, firstProblem, linesField, numberField, switchField, textField } from "./lib/fields";
import formSheet from "./lib/form.css";
import { formatNs, formatRate, formatUsd, NOT_KNOWN } from "./lib/format";
import { gauge } from "./lib/gauge";
import { ownKeys } from "./lib/keys";
import { requests } from "./lib/messages";
import { all, type CleanUp, follow, type Host } from "./lib/model";
import { type Odds, WHOSE } from "./lib/odds";
import { phasesBar } from "./lib/phases";
import { closeWhenGone, runState } from "./lib/run_state";
import { type Figures, type PastRun, runList, sideBySide, type WholeRun } from "./lib/runs";
import { saver } from "./lib/save";
import type { Shade } from "./lib/shade";
import { hideStill } from "./lib/still";
import { useTheme } from "./lib/theme";
import { type Entry, tokenView } from "./lib/tokens";
import sheet from "./playground.css";

/** What is asked: the traits that a view sets, and that it sends along when it asks. */
export interface Asked {
  prompt: string;
  system: string;
  temperature: number | null;
  top_p: number | null;
  top_k: number | null;
  max_tokens: number | null;
  seed: number | null;
  logprobs: number | null;
  stop_strings: string[];
  ignore_eos: boolean;
}

/** The traits of `jupyter_infer.widgets.playground.Playground`. */
export interface Playground extends Asked {
  shade: Shade;
  pinned: number[];
  compared: number[];
  state: string;
  error: string;
  _engine: [string, string][];
  _stage: string;
  _shown_run: number;
  _settled: Entry[];
  _recent: Entry[];
  _latest: Entry[];
  _odds_settled: Odds[];
  _odds_recent: Odds[];
  _odds_latest: Odds[];
  _status: string;
  _figures: Figures;
  _history: PastRun[];
  _beside: WholeRun[];
}

const ASKED = [
  "prompt",
  "system",
  "temperature",
  "top_p",
  "top_k",
  "max_tokens",
  "seed",
  "logprobs",
  "stop_strings",
  "ignore_eos",
] as const satisfies readonly (keyof Asked)[];
const SHOWN = [
  "state",
  "error",
  "_stage",
  "_shown_run",
  "_settled",
  "_recent",
  "_latest",
  "_odds_settled",
  "_odds_recent",
  "_odds_latest",
  "shade",
  "_status",
  "_figures",
] as const;
const PAST = ["pinned", "compared", "_history", "_beside"] as const;

function render({ model, el }: Host<Playground>): CleanUp {
  const cleanUps: CleanUp[] = [];
  useTheme(el, "playground", formSheet, sheet);
  hideStill(model, el);
  ownKeys(el, cleanUps);
  const spoken = announcer(cleanUps);
  const { ask } = requests(model, cleanUps);
  const { save, bound } = saver<Asked>(model, cleanUps, () => view.hush());
  const asked = () => Object.fromEntries(ASKED.map((name) => [name, bound(name).get()]));
  const view = acting(ask, spoken, save, () => drawState());
  const { act } = view;

  // What is asked.
  const prompt = textField("Prompt", "What to ask. Ctrl+Enter runs it.", bound("prompt"), 4);
  const fields: Field[] = [
    prompt,
    textField("System prompt", "A system message before it, or none", bound("system"), 1),
    numberField(
      {
        label: "Temperature",
        title: "0 always takes the likeliest token",
        unset: "model's",
        min: 0,
        step: 0.05,
        slider: { max: 2, at: 1 },
        ...within(0, 2, "a number from 0 to 2"),
      },
      bound("temperature"),
    ),
    numberField(
      {
        label: "Top-p",
        title: "Draw from the likeliest tokens that together have this probability",
        unset: "model's",
        min: 0.05,
        step: 0.05,
        slider: { max: 1, at: 1 },
        ...within(Number.MIN_VALUE, 1, "a number above 0, up to 1"),
      },
      bound("top_p"),
    ),
    numberField(
      {
        label: "Top-k",
        title: "Draw from so many of the likeliest tokens; 0 is all of them",
        unset: "model's",
        whole: true,
        ...within(-1, Number.MAX_SAFE_INTEGER, "a whole number, 0 or more"),
      },
      bound("top_k"),
    ),
    numberField(
      {
        label: "Max tokens",
        title: "Output tokens at most",
        unset: "256",
        whole: true,
        ...within(1, Number.MAX_SAFE_INTEGER, "a whole number, 1 or more"),
      },
      bound("max_tokens"),
    ),
    numberField(
      { label: "Seed", title: "The same seed gives the same answer", unset: "random", whole: true },
      bound("seed"),
    ),
    numberField(
      {
        label: "Alternatives",
        title: `Show how likely each token was, and so many of the likeliest ones (1 to 20). ${WHOSE}.`,
        unset: "none",
        whole: true,
        ...within(0, 20, "a whole number from 0 to 20"),
      },
      bound("logprobs"),
    ),
    linesField(
      "Stop",
      "The answer ends before any of these texts: one a line, \\n is a new line",
      bound("stop_strings"),
    ),
    switchField("Ignore EOS", "Go on to max tokens, even where the model would end", bound("ignore_eos")),
  ];
  const settings = h("div", { class: "ji-settings", role: "group", "aria-label": "Sampling" });
  settings.append(...fields.slice(2).map(({ element }) => element));

  // What is done with it.
  const start = async (kind: "run" | "cell") => {
    const problem = view.gone ? "" : firstProblem(fields);
    if (problem) {
      view.say(problem);
      return null;
    }
    return act(kind, asked());
  };
  const runIt = () => void start("run");
  prompt.input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      runIt();
    }
  });
  const run = button("Run", "Ask (Ctrl+Enter in the prompt)", runIt);
  const stop = button("Stop", "End the run; what was answered is kept", () => void act("stop"));
  const clear = button("Clear", "Take the answer away; prompt, settings and history stay", () => void act("clear"));
  const copy = button("Copy as %%infer cell", "The text of a cell that asks the same", async () => {
    const reply = await start("cell");
    if (typeof reply?.text === "string") {
      await copyText(reply.text);
    }
  });
  const now = runState(model, view, spoken, [
    [run, "idle"],
    [stop, "running"],
    [clear, "idle"],
    [copy, "always"],
  ]);

  const copied = h("textarea", {
    class: "ji-copied",
    readonly: true,
    rows: 4,
    "aria-label": "Text of the %%infer cell",
  });
  copied.style.display = "none";
  const copyText = async (text: string) => {
    try {
      await navigator.clipboard.writeText(text);
      copied.style.display = "none";
      view.say("copied: paste it into a cell");
    } catch {
      copied.value = text;
      copied.style.display = "";
      copied.focus();
      copied.select();
      view.say("the clipboard cannot be used here; copy the selected text");
    }
  };

  // What came of it.
  const answer = tokenView(
    "Answer",
    (shade) => {
      model.set("shade", shade);
      if (!view.gone) {
        model.save_changes();
      }
    },
    (reason) => view.say(reason),
  );
  const bars = phasesBar();
  const ttft = gauge({
    label: "TTFT",
    title: "arrival → first output token (queued + prefill)",
    format: (value) => formatNs(typeof value === "number" ? value * 1e9 : value),
    scale: [0.01, 100],
    bands: WAITS,
  });
  const rate = gauge({
    label: "Decode speed",
    title: "(output tokens − 1) / decode",
    format: (value) => (value === null ? `${NOT_KNOWN} tok/s` : formatRate(value)),
    scale: [1, 1000],
    bands: SPEEDS,
  });
  const cost = gauge({
    label: "Wall cost",
    title: "machine price × the time of the request; shared cost: × its attributed part of the engine's busy time",
    format: (value) => (value === null ? NOT_KNOWN : `≈${formatUsd(value)}`),
  });
  const gauges = h("div", { class: "ji-gauges" }, ttft.element, rate.element, cost.element);
  const status = h("div", { class: "ji-label" });
  const engine = h("div", { class: "ji-line ji-engine", role: "group", "aria-label": "Model and engine" });

  const past = runList((kind, number, on) => void act(kind, { number, on }));
  const beside = sideBySide();
  const form = h("fieldset", { class: "ji-form" }, prompt.element, fields[1]?.element ?? "", settings, now.bar);
  const history = h("fieldset", { class: "ji-form" }, past.element);
  el.append(engine, form, now.error, copied, answer.element, gauges, bars.element, status, history, beside.element);
  el.append(spoken.element);

  const drawState = () => now.draw();
  const drawRun = () => {
    drawState();
    const figures = model.get("_figures");
    const entries = [...model.get("_settled"), ...model.get("_recent"), ...model.get("_latest")];
    const odds = [...model.get("_odds_settled"), ...model.get("_odds_recent"), ...model.get("_odds_latest")];
    answer.show(model.get("_shown_run"), entries, figures.ttft_ns, odds, model.get("shade"));
    ttft.set(figures.ttft_ns === null ? null : figures.ttft_ns / 1e9);
    rate.set(figures.tokens_per_s);
    cost.set(figures.wall_usd, costNote(figures));
    bars.set(figures);
    setText(status, model.get("_status"));
  };

  follow(model, ASKED, () => fields.forEach((field) => void field.draw()), cleanUps);
  follow(model, ["_engine"], () => engine.replaceChildren(...model.get("_engine").map(fact)), cleanUps);
  follow(model, SHOWN, drawRun, cleanUps);
  const drawPast = () => {
    past.show(model.get("_history"), model.get("pinned"), model.get("compared"));
    beside.show(model.get("_beside"));
  };
  follow(model, PAST, drawPast, cleanUps);
  closeWhenGone(model, view, [form, history], drawState, cleanUps);
  return all(cleanUps);
}

/** A value that may be left out and has to be from `low` to `high`. */
function within(low: number, high: number, words: string) {
  const fits = (value: number | null) => value === null || (value >= low && value <= high);
  return { fits, takes: `${words}, or nothing` };
}

function costNote({ shared_usd, price, api_usd, api }: Figures): string {
  const shared = shared_usd === null ? "" : `shared ≈${formatUsd(shared_usd)}`;
  const machine = [shared, price && `@ ${price}`].filter(Boolean).join(" ");
  return [machine, api && `API ${formatUsd(api_usd)} (${api})`].filter(Boolean).join(" · ");
}

export default { render };
