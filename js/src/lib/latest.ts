// What changes faster than it can be sent: of the values that wait, only the last one goes, and that one always.

import type { CleanUp } from "./model";

/** A function that sends values, one at a time and not more often than each `everyMs`. `send` never rejects. */
export function latest<V>(
  send: (value: V) => Promise<unknown>,
  everyMs: number,
  cleanUps: CleanUp[],
): (value: V) => void {
  let waiting: { value: V } | null = null;
  let sending = false;
  let closed = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  cleanUps.push(() => {
    closed = true;
    clearTimeout(timer);
  });
  const go = () => {
    if (!waiting || sending || timer !== undefined || closed) {
      return;
    }
    const { value } = waiting;
    waiting = null;
    sending = true;
    timer = setTimeout(() => {
      timer = undefined;
      go();
    }, everyMs);
    void send(value).then(() => {
      sending = false;
      go();
    });
  };
  return (value) => {
    waiting = { value };
    go();
  };
}
