// Measured numbers as text, as jupyter_infer/numbers.py and pricing.format_usd write them; tests hold both to the same
// right values. Not known is null, undefined or not finite, and never shown as 0.

export const NOT_KNOWN = "n/a";

export type Known = number | null | undefined;

const isKnown = (value: Known): value is number => typeof value === "number" && Number.isFinite(value);

/** As Python's `f"{value:.{digits}g}"`. */
function general(value: number, digits = 3): string {
  if (value === 0) {
    return "0";
  }
  const [mantissa = "", exponent = "0"] = value.toExponential(digits - 1).split("e");
  const power = Number(exponent);
  if (power >= -4 && power < digits) {
    return String(Number(value.toFixed(Math.max(0, digits - 1 - power))));
  }
  const sign = power < 0 ? "-" : "+";
  return `${Number(mantissa)}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
}

function thousands(value: number, decimals = 0): string {
  const [whole = "", rest] = Math.abs(value).toFixed(decimals).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return `${value < 0 ? "-" : ""}${grouped}${rest === undefined ? "" : `.${rest}`}`;
}

/** Nanoseconds in the unit that fits: `12 ns`, `81 ms`, `1.75 s`, `2 min 5 s`, `1 h 2 min`. */
export function formatNs(durationNs: Known): string {
  if (!isKnown(durationNs)) {
    return NOT_KNOWN;
  }
  if (durationNs < 0) {
    return `−${formatNs(-durationNs)}`;
  }
  if (durationNs === 0) {
    return "0 s";
  }
  for (const [unit, size] of [
    ["ns", 1],
    ["µs", 1e3],
    ["ms", 1e6],
  ] as const) {
    if (Number((durationNs / size).toPrecision(3)) < 1000) {
      return `${general(durationNs / size)} ${unit}`;
    }
  }
  const seconds = durationNs / 1e9;
  if (Number(seconds.toPrecision(3)) < 60) {
    return `${general(seconds)} s`;
  }
  const whole = Math.round(seconds);
  if (Math.floor(whole / 60) < 60) {
    return whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${whole / 60} min`;
  }
  const minutes = Math.round(seconds / 60);
  const hours = `${thousands(Math.floor(minutes / 60))} h`;
  return minutes % 60 ? `${hours} ${minutes % 60} min` : hours;
}

/** A rate: `36.2 tok/s`, `1,840 tok/s`. */
export function formatRate(perSecond: Known, unit = "tok/s"): string {
  if (!isKnown(perSecond)) {
    return NOT_KNOWN;
  }
  return `${Math.abs(perSecond) >= 100 ? thousands(perSecond) : general(perSecond)} ${unit}`;
}

/** A count with thousands set apart: `12,345`. */
export function formatCount(count: Known): string {
  return isKnown(count) ? thousands(count) : NOT_KNOWN;
}

/** `part` of `whole` in per cent: `63 %`, `0.4 %`, `under 0.1 %`. */
export function formatShare(part: Known, whole: Known): string {
  if (!isKnown(part) || !isKnown(whole) || whole === 0) {
    return NOT_KNOWN;
  }
  const percent = (100 * part) / whole;
  if (percent > 0 && percent < 0.1) {
    return "under 0.1 %";
  }
  return `${percent > 0 && percent < 1 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

/** Bytes in decimal units: `812 MB`, `1.92 GB`. */
export function formatBytes(bytes: Known): string {
  if (!isKnown(bytes)) {
    return NOT_KNOWN;
  }
  for (const [unit, size] of [
    ["B", 1],
    ["kB", 1e3],
    ["MB", 1e6],
  ] as const) {
    if (Number((bytes / size).toPrecision(3)) < 1000) {
      return `${general(bytes / size)} ${unit}`;
    }
  }
  const gigabytes = bytes / 1e9;
  return `${gigabytes >= 100 ? thousands(gigabytes) : general(gigabytes)} GB`;
}

/** Dollars with two significant digits at least: `$2.4e-5`, `$0.0031`, `$12.50`. */
export function formatUsd(usd: Known): string {
  if (!isKnown(usd)) {
    return NOT_KNOWN;
  }
  if (usd < 0) {
    return `−${formatUsd(-usd)}`;
  }
  if (usd === 0) {
    return "$0";
  }
  if (Number(usd.toPrecision(2)) >= 1) {
    return `$${thousands(usd, 2)}`;
  }
  const [mantissa = "", exponent = "0"] = usd.toExponential(1).split("e");
  const power = Number(exponent);
  return power >= -4 ? `$${usd.toFixed(1 - power)}` : `$${mantissa}e${power}`;
}
