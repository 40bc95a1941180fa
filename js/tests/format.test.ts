// The same right values as tests/test_numbers.py and tests/test_pricing.py.

import { expect, test } from "vitest";
import { formatBytes, formatCount, formatNs, formatRate, formatShare, formatUsd, type Known } from "../src/lib/format";

const MINUTE = 60_000_000_000;

test.each<[Known, string]>([
  [0, "0 s"],
  [12, "12 ns"],
  [999.9, "1 µs"],
  [3_400, "3.4 µs"],
  [999_900, "1 ms"],
  [81_000_000, "81 ms"],
  [999_999_999, "1 s"],
  [1_750_000_000, "1.75 s"],
  [59_940_000_000, "59.9 s"],
  [59_960_000_000, "1 min"],
  [MINUTE, "1 min"],
  [2 * MINUTE + 5_000_000_000, "2 min 5 s"],
  [59 * MINUTE + 59_700_000_000, "1 h"],
  [62 * MINUTE, "1 h 2 min"],
  [60 * 1000 * MINUTE, "1,000 h"],
  [-1_500_000, "−1.5 ms"],
  [null, "n/a"],
  [undefined, "n/a"],
  [Number.NaN, "n/a"],
  [Number.POSITIVE_INFINITY, "n/a"],
])("a duration of %s ns is %s", (duration, text) => {
  expect(formatNs(duration)).toBe(text);
});

test.each<[Known, string]>([
  [36.24, "36.2 tok/s"],
  [1840.4, "1,840 tok/s"],
  [99.96, "100 tok/s"],
  [0.5, "0.5 tok/s"],
  [0, "0 tok/s"],
  [null, "n/a"],
  [Number.POSITIVE_INFINITY, "n/a"],
  [Number.NaN, "n/a"],
])("a rate of %s is %s", (rate, text) => {
  expect(formatRate(rate)).toBe(text);
});

test("a rate has the unit that is given", () => {
  expect(formatRate(2, "steps/s")).toBe("2 steps/s");
});

test.each<[Known, string]>([
  [0, "0"],
  [12345, "12,345"],
  [1_234_567, "1,234,567"],
  [null, "n/a"],
])("a count of %s is %s", (count, text) => {
  expect(formatCount(count)).toBe(text);
});

test.each<[Known, Known, string]>([
  [63, 100, "63 %"],
  [4, 1000, "0.4 %"],
  [1, 100_000, "under 0.1 %"],
  [0, 10, "0 %"],
  [10, 10, "100 %"],
  [1, 0, "n/a"],
  [null, 10, "n/a"],
  [1, null, "n/a"],
  [Number.NaN, 1, "n/a"],
])("%s of %s is %s", (part, whole, text) => {
  expect(formatShare(part, whole)).toBe(text);
});

test.each<[Known, string]>([
  [0, "0 B"],
  [812_300_000, "812 MB"],
  [999_900_000, "1 GB"],
  [1_924_000_000, "1.92 GB"],
  [null, "n/a"],
])("%s bytes are %s", (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

test.each<[Known, string]>([
  [0, "$0"],
  [1e-9, "$1.0e-9"],
  [1.5e-10, "$1.5e-10"],
  [0.000024, "$2.4e-5"],
  [0.0005, "$0.00050"],
  [0.0031, "$0.0031"],
  [0.09996, "$0.10"],
  [0.5, "$0.50"],
  [0.994, "$0.99"],
  [0.999, "$1.00"],
  [1, "$1.00"],
  [12.5, "$12.50"],
  [999.999, "$1,000.00"],
  [12345.678, "$12,345.68"],
  [-0.5, "−$0.50"],
  [null, "n/a"],
  [Number.NaN, "n/a"],
])("%s dollars are %s", (usd, text) => {
  expect(formatUsd(usd)).toBe(text);
});
