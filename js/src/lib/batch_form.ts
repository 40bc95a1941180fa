// The fields of a batch lab: the batch, the sweep, and the scheduler's two limits, which go to the kernel at once.

import { h, setAttributes } from "./dom";
import { choiceField, type Field, firstProblem, neededField, numbersField, switchField } from "./fields";
import { latest } from "./latest";
import { limitField } from "./limits";
import type { CleanUp, Model } from "./model";
import type { Saver } from "./save";

/** What is asked: the traits that a view sets, and that it sends along when it asks. */
export interface Asked {
  requests: number;
  prompt_tokens: number;
  output_tokens: number;
  arrivals: string;
  interval_s: number;
  seed: number;
  shared_prefix: boolean;
  max_num_seqs: number | null;
  max_num_batched_tokens: number | null;
  sizes: number[];
}

export type Limits = Pick<Asked, "max_num_seqs" | "max_num_batched_tokens">;

/** The largest values that the limits can have, and the pool. */
export interface Bounds {
  max_num_seqs: number;
  max_num_batched_tokens: number;
  block_size: number;
  kv_blocks_total: number;
}

export const ASKED = [
  "requests",
  "prompt_tokens",
  "output_tokens",
  "arrivals",
  "interval_s",
  "seed",
  "shared_prefix",
  "max_num_seqs",
  "max_num_batched_tokens",
  "sizes",
] as const satisfies readonly (keyof Asked)[];

/** Limits are sent so often at most while a slider is dragged. */
export const LIMITS_MS = 125;
/** Requests of a batch, at most. */
const MOST = 64;

export interface BatchForm {
  elements: HTMLElement[];
  draw(): void;
  /** What is asked, as this view has it. */
  asked(): Asked;
  /** What is wrong with it, in a line; the field has the focus then. */
  problem(): string;
}

export function batchForm<T extends Asked & { _bounds: Bounds | null }>(
  model: Model<T>,
  bound: Saver<Asked>["bound"],
  tell: (limits: Limits) => Promise<unknown>,
  cleanUps: CleanUp[],
): BatchForm {
  const count = (label: string, title: string, name: "prompt_tokens" | "output_tokens") =>
    neededField({ label, title, whole: true, min: 1 }, bound(name));
  const many = { title: `Requests of the batch, from 1 to ${MOST}`, min: 1, max: MOST, step: 1 };
  const interval = neededField(
    { label: "Interval, s", title: "Seconds between two arrivals; at random, their mean", max: 3600 },
    bound("interval_s"),
  );
  const seed = neededField(
    { label: "Seed", title: "The same seed gives the same arrivals", whole: true, min: Number.MIN_SAFE_INTEGER },
    bound("seed"),
  );
  const prefix = "All prompts begin alike, so that their first blocks are computed once";
  const batch: Field[] = [
    neededField({ label: "Requests", whole: true, slider: { max: MOST, at: 1 }, ...many }, bound("requests")),
    count("Prompt tokens", "Tokens of each prompt", "prompt_tokens"),
    count("Output tokens", "Tokens of each answer", "output_tokens"),
    choiceField("Arrivals", "When the requests come", bound("arrivals"), [
      ["at once", "all at once"],
      ["staggered", "staggered"],
      ["poisson", "at random (Poisson)"],
    ]),
    interval,
    seed,
    switchField("Shared prefix", prefix, bound("shared_prefix")),
    numbersField(
      "Sizes of the sweep",
      `Numbers of requests from 1 to ${MOST}, with commas between them`,
      bound("sizes"),
      [1, MOST],
    ),
  ];

  let held: Limits | null = null; // set here and not yet taken: what the kernel had before is not shown meanwhile
  const send = latest<Limits>(
    async (limits) => {
      await tell(limits);
      if (held === limits) {
        held = null;
        draw();
      }
    },
    LIMITS_MS,
    cleanUps,
  );
  const now = (): Limits =>
    held ?? { max_num_seqs: model.get("max_num_seqs"), max_num_batched_tokens: model.get("max_num_batched_tokens") };
  const limit = (label: string, title: string, name: keyof Limits) => {
    const set = (value: number | null) => {
      held = { ...now(), [name]: value };
      bound(name).set(value);
      send(held);
    };
    return limitField(
      label,
      title,
      { ...bound(name), get: () => now()[name], set },
      () => model.get("_bounds")?.[name] ?? null,
    );
  };
  const limits = [
    limit("Max sequences", "Requests that may be in a step; it can be moved while they run", "max_num_seqs"),
    limit("Token budget", "Tokens that a step may compute; it can be moved while they run", "max_num_batched_tokens"),
  ];

  const draw = () => {
    for (const field of [...batch, ...limits]) {
      field.draw();
    }
    const arrivals = bound("arrivals").get();
    setAttributes(interval.element, { hidden: arrivals === "at once" });
    setAttributes(seed.element, { hidden: arrivals !== "poisson" });
  };
  const group = (label: string, fields: readonly Field[]) =>
    h("div", { class: "ji-settings", role: "group", "aria-label": label }, ...fields.map(({ element }) => element));
  return {
    elements: [group("Batch", batch), group("Limits of the scheduler", limits)],
    draw,
    asked: () => ({ ...Object.fromEntries(ASKED.map((name) => [name, bound(name).get()])), ...now() }) as Asked,
    problem: () => firstProblem([...batch, ...limits]),
  };
}
