// Writes ../dist, which is committed: it takes no Node to run the example.
import { mkdirSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { bundle } from './bundle.mjs';

const dist = new URL('../dist/', import.meta.url);
mkdirSync(dist, { recursive: true });
for (const [name, contents] of await bundle()) {
  writeFileSync(new URL(name, dist), contents);
  console.log(`${name}: ${contents.length} bytes, ${gzipSync(contents, { level: 9 }).length} gzipped`);
}
