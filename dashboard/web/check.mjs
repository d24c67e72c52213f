// Fails if ../dist is not what the sources make.
import { existsSync, readFileSync } from 'node:fs';
import { bundle } from './bundle.mjs';

const dist = new URL('../dist/', import.meta.url);
const stale = [];
for (const [name, contents] of await bundle()) {
  const file = new URL(name, dist);
  if (!existsSync(file) || !readFileSync(file).equals(Buffer.from(contents))) stale.push(name);
}
if (stale.length > 0) {
  console.error(`dist is not what src makes (${stale.join(', ')}): npm run build`);
  process.exit(1);
}
