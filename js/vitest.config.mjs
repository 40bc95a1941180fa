import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { defineConfig } from "vitest/config";

// A style sheet is text, as in the bundles.
const MARK = "?as-text";
const cssText = {
  name: "css-text",
  enforce: "pre",
  resolveId: (id, from) => (id.endsWith(".css") && from ? resolve(dirname(from), id) + MARK : null),
  load: (id) =>
    id.endsWith(MARK) ? `export default ${JSON.stringify(readFileSync(id.slice(0, -MARK.length), "utf8"))}` : null,
};

export default defineConfig({
  plugins: [cssText],
  test: { environment: "happy-dom", include: ["tests/**/*.test.ts"] },
});
