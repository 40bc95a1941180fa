// A host for tests: a model that tells its listeners as Backbone does, and keeps what is sent.

import type { Model } from "../src/lib/model";

type Listener = (...values: unknown[]) => void;

export class FakeModel<T extends object> {
  readonly sent: unknown[] = [];
  saves = 0;
  private readonly listeners = new Map<string, Set<Listener>>();

  constructor(private readonly state: T) {}

  get<K extends keyof T & string>(name: K): T[K] {
    return this.state[name];
  }

  set<K extends keyof T & string>(name: K, value: T[K]): void {
    if (this.state[name] !== value) {
      this.state[name] = value;
      this.tell(`change:${name}`);
    }
  }

  save_changes(): void {
    this.saves += 1;
  }

  on(event: string, listener: (...values: never[]) => void): void {
    this.listeners.set(event, (this.listeners.get(event) ?? new Set()).add(listener as Listener));
  }

  off(event: string, listener: (...values: never[]) => void): void {
    this.listeners.get(event)?.delete(listener as Listener);
  }

  send(content: unknown): void {
    this.sent.push(content);
  }

  tell(event: string, ...values: unknown[]): void {
    for (const listener of this.listeners.get(event) ?? []) {
      listener(...values);
    }
  }

  get listening(): number {
    return [...this.listeners.values()].reduce((sum, listeners) => sum + listeners.size, 0);
  }

  as(): Model<T> {
    return this;
  }
}

export const frame = (): Promise<void> => new Promise((resolve) => requestAnimationFrame(() => resolve()));
