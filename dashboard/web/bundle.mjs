import { build } from 'esbuild';
import { fileURLToPath } from 'node:url';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

/** What the dashboard is made of, by file name in dist. */
export async function bundle() {
  const { outputFiles } = await build({
    entryPoints: { app: at('src/main.tsx'), style: at('src/style/main.css') },
    bundle: true,
    // Its source, so that nothing has to be built first.
    alias: { '@bide/client': at('../../clients/typescript/packages/client/src/index.ts') },
    minify: true,
    write: false,
    outdir: at('../dist'),
    format: 'esm',
    // The oldest browsers that it is made for: of the year before last.
    target: ['chrome120', 'firefox121', 'safari17.2'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'none',
    charset: 'utf8',
    absWorkingDir: at('.'),
    logLevel: 'warning',
  });
  return new Map(outputFiles.map((f) => [f.path.slice(f.path.lastIndexOf('/') + 1), f.contents]));
}
