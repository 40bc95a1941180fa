// What a plot with logarithmic axes needs: their ends and ticks, and places for labels that do not meet.

/** Ends of a logarithmic axis around values, with room on both sides. */
export function ends(values: readonly number[]): [low: number, high: number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = Math.max((high / low) ** 0.12, 1.15);
  return [low / room, high * room];
}

/** Round values on a logarithmic axis: of 1, 2 and 5 with zeros all, or, if those are few, more. */
export function ticksOf(low: number, high: number): number[] {
  for (const digits of [
    [1, 2, 5],
    [1, 1.5, 2, 3, 4, 5, 6, 8],
  ]) {
    const found: number[] = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      found.push(...digits.map((digit) => digit * 10 ** power).filter((value) => value >= low && value <= high));
    }
    if (found.length >= 3 || digits.length > 3) {
      return found;
    }
  }
  return [];
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export const meets = (one: Box, other: Box) =>
  one.x < other.x + other.width &&
  other.x < one.x + one.width &&
  one.y < other.y + other.height &&
  other.y < one.y + one.height;

export const dotBox = ([x, y]: readonly [number, number]): Box => ({ x: x - 5, y: y - 5, width: 10, height: 10 });

/** Small boxes along a line. */
function along([x, y]: readonly [number, number], [toX, toY]: readonly [number, number]): Box[] {
  const count = Math.max(1, Math.ceil(Math.hypot(toX - x, toY - y) / 6));
  return Array.from({ length: count + 1 }, (_, at) => ({
    x: x + ((toX - x) * at) / count - 1,
    y: y + ((toY - y) * at) / count - 1,
    width: 2,
    height: 2,
  }));
}

/** A place for each label beside its point: the first that meets no other one and stays inside. */
export function placeLabels(
  points: readonly (readonly [x: number, y: number])[],
  widths: readonly number[],
  inside: Box,
): Box[] {
  const height = 14;
  const dots = points.map(dotBox);
  const line = points.slice(1).flatMap((to, at) => along(points[at] ?? to, to));
  const placed: Box[] = [];
  points.forEach(([x, y], at) => {
    const width = widths[at] ?? 0;
    const places = [
      [x + 9, y - 16],
      [x + 9, y - height / 2],
      [x + 9, y + 4],
      [x - width / 2, y - 22],
      [x - 9 - width, y - 16],
      [x - 9 - width, y - height / 2],
      [x - 9 - width, y + 4],
      [x - width / 2, y + 8],
    ].map(([left = 0, top = 0]) => ({ x: left, y: top, width, height }));
    const others = [...dots.filter((_, other) => other !== at), ...placed];
    const within = (box: Box) =>
      box.x >= inside.x &&
      box.y >= inside.y &&
      box.x + width <= inside.x + inside.width &&
      box.y + height <= inside.y + inside.height;
    const fits = places.filter(within);
    const free = fits.filter((box) => !others.some((other) => meets(box, other)));
    placed.push(free.find((box) => !line.some((part) => meets(box, part))) ?? free[0] ?? fits[0] ?? (places[0] as Box));
  });
  return placed;
}
