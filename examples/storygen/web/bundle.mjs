import { build } from 'esbuild';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

/** What the page is made of, by file name in dist. */
export async function bundle(mode = 'production') {
  const { outputFiles } = await build({
    entryPoints: { app: at('src/main.tsx'), style: at('src/style.css') },
    bundle: true,
    // Their sources, so that nothing has to be built first; by way of node_modules, so
    // that they find this page's React and there is one.
    alias: { '@bide/client': at('node_modules/@bide/client/src/index.ts'), '@bide/react': at('node_modules/@bide/react/src/index.ts') },
    preserveSymlinks: true,
    minify: mode === 'production',
    define: { 'process.env.NODE_ENV': JSON.stringify(mode) },
    write: false,
    outdir: at('../dist'),
    format: 'esm',
    target: ['chrome120', 'firefox121', 'safari17.2'],
    jsx: 'automatic',
    legalComments: 'none',
    charset: 'utf8',
    absWorkingDir: at('.'),
    logLevel: 'warning',
  });
  const files = new Map(outputFiles.map((f) => [f.path.slice(f.path.lastIndexOf('/') + 1), Buffer.from(f.contents)]));
  for (const name of ['index.html', 'icon.svg']) files.set(name, readFileSync(at('src/' + name)));
  return files;
}
