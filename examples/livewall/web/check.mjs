// Fails if ../dist is not what the sources make.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { bundle } from './bundle.mjs';

const dist = new URL('../dist/', import.meta.url);
const files = await bundle();
const stale = existsSync(dist) ? readdirSync(dist).filter((name) => !files.has(name)) : [];
for (const [name, contents] of files) {
  const file = new URL(name, dist);
  if (!existsSync(file) || !readFileSync(file).equals(contents)) stale.push(name);
}
if (stale.length > 0) {
  console.error(`dist is not what src makes (${stale.join(', ')}): npm run build`);
  process.exit(1);
}
