// Draw again as an element gets another size, once a frame at most.

import type { CleanUp } from "./model";

export function onResize(element: Element, draw: () => void, cleanUps: CleanUp[]): void {
  if (typeof ResizeObserver === "undefined") {
    return;
  }
  let frame = 0;
  const observer = new ResizeObserver(() => {
    if (frame === 0) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
    }
  });
  observer.observe(element);
  cleanUps.push(() => {
    observer.disconnect();
    cancelAnimationFrame(frame);
  });
}
