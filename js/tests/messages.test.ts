import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Request, requests, TIMEOUT_MS } from "../src/lib/messages";
import { all, type CleanUp } from "../src/lib/model";
import { FakeModel } from "./model";

let model: FakeModel<object>;
let cleanUps: CleanUp[];

beforeEach(() => {
  vi.useFakeTimers();
  model = new FakeModel({});
  cleanUps = [];
});

afterEach(() => {
  vi.useRealTimers();
});

const sent = (index = 0): Request => model.sent[index] as Request;

test("a request has a kind and an id, and resolves to its reply", async () => {
  const answer = requests(model, cleanUps).ask("run", { prompt: "hi" });
  expect(sent()).toMatchObject({ kind: "run", payload: { prompt: "hi" } });
  model.tell("msg:custom", { kind: "reply", id: sent().id, payload: { request: "r1" } });
  expect(await answer).toEqual({ request: "r1" });
});

test("replies find their requests, in whatever order they come", async () => {
  const { ask } = requests(model, cleanUps);
  const [first, second] = [ask("a"), ask("b")];
  model.tell("msg:custom", { kind: "reply", id: sent(1).id, payload: { of: "b" } });
  model.tell("msg:custom", { kind: "reply", id: sent(0).id, payload: { of: "a" } });
  expect([await first, await second]).toEqual([{ of: "a" }, { of: "b" }]);
});

test("another view's reply is not taken for one's own", async () => {
  const [ours, theirs] = [requests(model, cleanUps).ask("a"), requests(model, cleanUps).ask("a")];
  expect(sent(0).id).not.toBe(sent(1).id);
  model.tell("msg:custom", { kind: "reply", id: sent(1).id, payload: { whose: "theirs" } });
  model.tell("msg:custom", { kind: "reply", id: sent(0).id, payload: { whose: "ours" } });
  expect(await ours).toEqual({ whose: "ours" });
  expect(await theirs).toEqual({ whose: "theirs" });
});

test("a failure in the kernel rejects with its line", async () => {
  const answer = requests(model, cleanUps).ask("run");
  model.tell("msg:custom", { kind: "reply", id: sent().id, error: "PromptError: the prompt is empty" });
  await expect(answer).rejects.toThrow("PromptError: the prompt is empty");
});

test("silence rejects, and a reply that comes too late does no harm", async () => {
  const answer = requests(model, cleanUps).ask("run");
  const rejected = expect(answer).rejects.toThrow("does not answer");
  vi.advanceTimersByTime(TIMEOUT_MS);
  await rejected;
  model.tell("msg:custom", { kind: "reply", id: sent().id, payload: {} });
});

test("what cannot be sent rejects", async () => {
  model.send = () => {
    throw new Error("no comm");
  };
  await expect(requests(model, cleanUps).ask("run")).rejects.toThrow("no comm");
});

test("when the view goes, open requests reject and nothing listens any more", async () => {
  const answer = requests(model, cleanUps).ask("run");
  const rejected = expect(answer).rejects.toThrow("closed");
  all(cleanUps)();
  await rejected;
  expect(model.listening).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

test("events are heard by kind, and what is no message is passed over", () => {
  const heard: unknown[] = [];
  requests(model, cleanUps).onEvent("tokens", (payload) => heard.push(payload));
  for (const message of [null, "text", { no: "kind" }, { kind: "other" }, { kind: "tokens", payload: { text: "a" } }]) {
    model.tell("msg:custom", message);
  }
  expect(heard).toEqual([{ text: "a" }]);
});
