// What a widget sees of its host: anywidget's interface, as much of it as we use.

export type State = Record<string, unknown>;

type Listener = (...values: never[]) => void;

/** The state of a widget, shared with the kernel and with all of its views. */
export interface Model<T extends object = State> {
  get<K extends keyof T & string>(name: K): T[K];
  set<K extends keyof T & string>(name: K, value: T[K]): void;
  save_changes(): void;
  on(event: string, listener: Listener): void;
  off(event: string, listener: Listener): void;
  send(content: unknown): void;
  widget_manager?: Kernel["widget_manager"];
}

/** As much of a model as tells of its kernel; anywidget hands on the manager of ipywidgets where that is the host. */
export interface Kernel extends Pick<Model, "on" | "off"> {
  get(name: never): unknown;
  set(name: never, value: never): void;
  widget_manager?: { get_model?(id: string): Promise<{ comm_live?: boolean } | undefined> } | undefined;
}

export interface Host<T extends object = State> {
  model: Model<T>;
  el: HTMLElement;
  /** Aborted when the view goes; older hosts have none. */
  signal?: AbortSignal;
}

export type CleanUp = () => void;

/** Listen to an event of the model until the view goes. */
export function listen(
  model: { on: Model["on"]; off: Model["off"] },
  event: string,
  listener: Listener,
  cleanUps: CleanUp[],
): void {
  model.on(event, listener);
  cleanUps.push(() => model.off(event, listener));
}

/** Draw now and, once a frame at most, whenever one of the traits has changed. */
export function follow<T extends object>(
  model: Model<T>,
  names: readonly (keyof T & string)[],
  draw: () => void,
  cleanUps: CleanUp[],
): void {
  let frame = 0;
  const later = () => {
    if (frame === 0) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
    }
  };
  for (const name of names) {
    listen(model, `change:${name}`, later, cleanUps);
  }
  cleanUps.push(() => cancelAnimationFrame(frame));
  draw();
}

/**
 * Tell when the kernel behind a view has gone or closed it, or that there never was one: its model came out of a file.
 * A new kernel brings new models and views, so there is no way back.
 */
export function onKernelGone(model: Kernel, tell: () => void, cleanUps: CleanUp[]): void {
  // ipywidgets says so to its models; where one was live when it was made, this can only be its end.
  listen(model, "comm_live_update", tell, cleanUps);
  const closed = () => {
    // Else ipywidgets 8 counts the view that goes, and sends that over a comm that it has just deleted: an error.
    model.set("_view_count" as never, null as never);
    tell();
  };
  listen(model, "comm:close", closed, cleanUps);
  const id = model.get("_id" as never);
  if (typeof id === "string" && id && typeof model.widget_manager?.get_model === "function") {
    let there = true;
    cleanUps.push(() => {
      there = false;
    });
    const look = async () => {
      const own = await model.widget_manager?.get_model?.(id);
      if (there && own?.comm_live === false) {
        tell();
      }
    };
    look().catch(() => {}); // a host that keeps its models to itself
  }
}

/** One function that runs all clean-ups, the last one first, and only once. */
export function all(cleanUps: CleanUp[]): CleanUp {
  return () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) {
      cleanUp();
    }
  };
}
