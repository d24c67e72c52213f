// What a page pays for @bide/client, bundled, minified and gzipped; and that it does
// not pay for what it does not import.
import { build } from 'esbuild';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

/** Bytes at most, gzipped. */
const bundles = [
  { name: '@bide/client', code: "export * from '@bide/client'", most: 16_000 },
  { name: 'createBide alone', code: "export { createBide } from '@bide/client'", most: 12_500 },
  { name: 'createPollScheduler alone', code: "export { createPollScheduler } from '@bide/client'", most: 6_000 },
  { name: '@bide/client/tanstack', code: "export * from '@bide/client/tanstack'", most: 500 },
  { name: '@bide/react, without the client', code: "export * from '@bide/react'", most: 1_500 },
];

let failed = false;
for (const { name, code, most } of bundles) {
  const { outputFiles } = await build({
    stdin: { contents: code, resolveDir: fileURLToPath(new URL('.', import.meta.url)) },
    bundle: true, minify: true, write: false, format: 'esm', target: 'es2022',
    external: name.startsWith('@bide/react') ? ['react', '@bide/client'] : [],
  });
  const size = gzipSync(outputFiles[0].contents, { level: 9 }).length;
  console.log(`${String(size).padStart(6)} bytes gzipped  ${name}${size > most ? `: more than ${most}` : ''}`);
  failed ||= size > most;
}
process.exit(failed ? 1 : 0);
