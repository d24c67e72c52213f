// Runs the browser tests with the Chromium that the client's chromium.sh finds or
// installs, against the example as it is built from this tree.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const found = spawnSync(here('../../../../clients/typescript/browser/chromium.sh'), { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
if (found.status === 3) {
  console.error('*** THE BROWSER TESTS DO NOT RUN ***');
  process.exit(0);
}
if (found.status !== 0) process.exit(found.status ?? 1);

const temp = mkdtempSync(join(tmpdir(), 'livewall-browser-'));
let status = 1;
try {
  const binary = join(temp, 'livewall');
  execFileSync(process.env.GO ?? 'go', ['build', '-o', binary, './examples/livewall'], { cwd: here('../../../..'), stdio: 'inherit' });
  mkdirSync(here('shots'), { recursive: true });
  const run = spawnSync(process.execPath, ['--test', '--test-timeout=90000', '--test-reporter=spec', here('livewall.test.mjs')], {
    stdio: 'inherit',
    env: { ...process.env, CHROMIUM: found.stdout.trim(), BINARY: binary },
  });
  status = run.status ?? 1;
} finally {
  rmSync(temp, { recursive: true, force: true });
}
process.exit(status);
