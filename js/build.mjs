// Build every src/*.ts into one ESM file in jupyter_infer/static; --watch builds again as files change.

import { readdirSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, context } from "esbuild";

const LIMIT = 60_000; // bytes: the kernel sends a bundle to the page with each widget
const HERE = dirname(fileURLToPath(import.meta.url));
const STATIC = join(HERE, "..", "jupyter_infer", "static");
const watch = process.argv.includes("--watch");

const names = readdirSync(join(HERE, "src"))
  .filter((name) => name.endsWith(".ts") && !name.endsWith(".d.ts"))
  .map((name) => basename(name, ".ts"));

/** Shorten a style sheet and give it to the script as text. */
const cssText = {
  name: "css-text",
  setup(builder) {
    builder.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const result = await build({ entryPoints: [path], minify: true, write: false, logLevel: "silent" });
      return { contents: result.outputFiles[0].text.trim(), loader: "text", watchFiles: [path] };
    });
  },
};

const options = {
  entryPoints: names.map((name) => join(HERE, "src", `${name}.ts`)),
  outdir: STATIC,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: !watch,
  charset: "utf8",
  legalComments: "none",
  logLevel: "info",
  plugins: [cssText],
};

if (watch) {
  await (await context(options)).watch();
} else {
  await build({ ...options, logLevel: "warning" });
  for (const name of names) {
    const bytes = statSync(join(STATIC, `${name}.js`)).size;
    console.log(`${name}.js  ${bytes} bytes`);
    if (bytes > LIMIT) {
      console.error(`${name}.js is larger than the ${LIMIT} bytes that a widget may have`);
      process.exitCode = 1;
    }
  }
}
