import { afterEach, expect, test, vi } from "vitest";
import { announcer } from "../src/lib/announce";
import { h, s, setText } from "../src/lib/dom";
import { all, type CleanUp, follow, onKernelGone } from "../src/lib/model";
import { hideStill } from "../src/lib/still";
import { useTheme } from "../src/lib/theme";
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

test("a model of a file, which has no kernel, is told as well, and an own one is not", async () => {
  for (const [live, times] of [
    [false, 1],
    [true, 0],
    [undefined, 0],
  ] as const) {
    const get_model = vi.fn(async () => ({ comm_live: live }) as { comm_live?: boolean });
    const model = Object.assign(new FakeModel({ _id: "a1" }), { widget_manager: { get_model } });
    const tell = vi.fn();
    onKernelGone(model, tell, []);
    await frame();
    expect(get_model).toHaveBeenCalledWith("a1");
    expect(tell).toHaveBeenCalledTimes(times);
  }
});

test("nothing is told of a model of a file once its view has gone, nor where a host has no such models", async () => {
  const gone: CleanUp[] = [];
  const tell = vi.fn();
  const manager = { get_model: async () => ({ comm_live: false }) };
  onKernelGone(Object.assign(new FakeModel({ _id: "a1" }), { widget_manager: manager }), tell, gone);
  all(gone)();
  const refuses = { get_model: () => Promise.reject(new Error("not supported")) };
  onKernelGone(Object.assign(new FakeModel({ _id: "a1" }), { widget_manager: refuses }), tell, []);
  onKernelGone(Object.assign(new FakeModel({ _id: "a1" }), { widget_manager: {} }), tell, []);
  await frame();
  expect(tell).not.toHaveBeenCalled();
});

test("the static form of a widget is hidden by its view, and no other", () => {
  const el = h("div");
  hideStill(new FakeModel({ _id: "a1" }), el);
  expect(el.textContent).toContain(".ji-still-a1 { display: none }");
  for (const _id of [undefined, "", "a, body"]) {
    const other = h("div");
    hideStill(new FakeModel({ _id }), other);
    expect(other.childElementCount).toBe(0);
  }
});

test("the sheet of a widget holds within it only", () => {
  const el = h("div");
  useTheme(el, "map", ".ji-map,.ji input{a:b}.ji-map-x>.ji-map .ji{c:d}");
  expect(el.className).toBe("ji ji-map");
  expect(el.textContent).toContain(".ji-map {\n&,& input{a:b}.ji-map-x>& &{c:d}\n}");
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

test("what cannot wait is said in the place of what waits", () => {
  vi.useFakeTimers();
  const { element, say, sayNow } = announcer([], 1_000);
  say("loading");
  say("running");
  sayNow("done");
  expect(element.textContent).toBe("done");
  vi.advanceTimersByTime(5_000);
  expect(element.textContent).toBe("done");
});
