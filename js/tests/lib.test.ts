import { afterEach, expect, test, vi } from "vitest";
import { announcer } from "../src/lib/announce";
import { h, s, setText } from "../src/lib/dom";
import { all, type CleanUp, follow, onKernelGone } from "../src/lib/model";
import { FakeModel, frame } from "./model";

afterEach(() => {
  vi.useRealTimers();
});

const MARKUP = '<img src=x onerror="window.__p=1"><script>window.__p=2</script>';

test("a text is never markup", () => {
  const element = h("p", { title: MARKUP }, MARKUP);
  setText(element, `${MARKUP}!`);
  expect(element.children).toHaveLength(0);
  expect(element.textContent).toBe(`${MARKUP}!`);
  expect(element.title).toBe(MARKUP);
});

test("an attribute that would run is refused", () => {
  expect(() => h("p", { onclick: "1" })).toThrow("listener");
});

test("null and false leave an attribute out", () => {
  const element = h("button", { disabled: false, title: null, hidden: true }, h("b", {}, "x"), "y");
  expect(element.outerHTML).toBe('<button hidden=""><b>x</b>y</button>');
  expect(s("rect", { width: 3 }).namespaceURI).toContain("svg");
});

test("a text that did not change is not touched", () => {
  const element = h("p", {}, "same");
  const node = element.firstChild;
  setText(element, "same");
  expect(element.firstChild).toBe(node);
});

test("changes are drawn once a frame, and not after the view has gone", async () => {
  const model = new FakeModel({ a: 1, b: 1 });
  const cleanUps: CleanUp[] = [];
  const draw = vi.fn();
  follow(model.as(), ["a", "b"], draw, cleanUps);
  expect(draw).toHaveBeenCalledTimes(1);
  model.set("a", 2);
  model.set("b", 2);
  await frame();
  expect(draw).toHaveBeenCalledTimes(2);
  model.set("a", 3);
  all(cleanUps)();
  model.set("b", 3);
  await frame();
  expect(draw).toHaveBeenCalledTimes(2);
  expect(model.listening).toBe(0);
});

test("clean-ups run once, the last one first", () => {
  const ran: number[] = [];
  const clean = all([() => ran.push(1), () => ran.push(2)]);
  clean();
  clean();
  expect(ran).toEqual([2, 1]);
});

test("a kernel that goes is told", () => {
  const model = new FakeModel({});
  const cleanUps: CleanUp[] = [];
  const tell = vi.fn();
  onKernelGone(model, tell, cleanUps);
  expect(tell).not.toHaveBeenCalled();
  model.tell("comm_live_update");
  expect(tell).toHaveBeenCalledTimes(1);
  all(cleanUps)();
  expect(model.listening).toBe(0);
});

test("of many things to say within the pause, the first and the last are said", () => {
  vi.useFakeTimers();
  const cleanUps: CleanUp[] = [];
  const { element, say } = announcer(cleanUps, 1_000);
  expect(element.getAttribute("aria-live")).toBe("polite");
  say("one");
  say("two");
  say("three");
  expect(element.textContent).toBe("one");
  vi.advanceTimersByTime(1_000);
  expect(element.textContent).toBe("three");
  all(cleanUps)();
  expect(vi.getTimerCount()).toBe(0);
});
