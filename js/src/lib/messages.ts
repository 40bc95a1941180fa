// Requests to the kernel. Each has a kind and an id, and each gets a reply, failures included.
// The mirror of jupyter_infer/widgets/_messages.py.

import type { CleanUp, Model, State } from "./model";

export interface Request {
  kind: string;
  id: string;
  payload: State;
}

export interface Reply {
  kind: "reply";
  id: string;
  payload?: State;
  error?: string;
}

/** A request failed; its message is one line that a user can read. */
export class RequestError extends Error {
  override name = "RequestError";
}

export interface Requests {
  /** Ask the kernel and resolve to its reply; reject with a RequestError on failure, silence or the view's end. */
  ask(kind: string, payload?: State, timeoutMs?: number): Promise<State>;
  /** Hear messages that answer no request; `kind` is never "reply". */
  onEvent(kind: string, tell: (payload: State) => void): void;
}

/** Longer than a step of a busy engine on two cores; a kernel that runs a cell may not answer before its end. */
export const TIMEOUT_MS = 30_000;

export function requests(model: Pick<Model, "on" | "off" | "send">, cleanUps: CleanUp[]): Requests {
  // All views of a widget hear all replies, so an id says whose it is.
  const view = crypto.randomUUID?.() ?? Math.random().toString(36).slice(2);
  const open = new Map<string, (reply: Reply) => void>();
  const events = new Map<string, (payload: State) => void>();
  let count = 0;

  const hear = (message: unknown) => {
    if (!isMessage(message)) {
      return;
    }
    if (message.kind === "reply") {
      open.get(message.id ?? "")?.(message as Reply);
    } else {
      events.get(message.kind)?.(message.payload ?? {});
    }
  };
  model.on("msg:custom", hear);
  cleanUps.push(() => {
    model.off("msg:custom", hear);
    for (const [id, settle] of [...open]) {
      settle({ kind: "reply", id, error: "the widget was closed" });
    }
  });

  return {
    ask(kind, payload = {}, timeoutMs = TIMEOUT_MS) {
      count += 1;
      const id = `${view}-${count}`;
      return new Promise<State>((resolve, reject) => {
        const timer = setTimeout(
          () => settle({ kind: "reply", id, error: "the kernel does not answer; is it busy, or gone?" }),
          timeoutMs,
        );
        const settle = (reply: Reply) => {
          clearTimeout(timer);
          open.delete(id);
          if (reply.error === undefined) {
            resolve(reply.payload ?? {});
          } else {
            reject(new RequestError(reply.error));
          }
        };
        open.set(id, settle);
        try {
          model.send({ kind, id, payload } satisfies Request);
        } catch (error) {
          settle({ kind: "reply", id, error: `the message could not be sent: ${String(error)}` });
        }
      });
    },
    onEvent(kind, tell) {
      events.set(kind, tell);
    },
  };
}

function isMessage(message: unknown): message is { kind: string; id?: string; payload?: State } {
  return typeof message === "object" && message !== null && typeof (message as { kind?: unknown }).kind === "string";
}
