// Runs the browser tests with the Chromium that chromium.sh finds or installs.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const found = spawnSync(here('chromium.sh'), { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
if (found.status === 3) {
  console.error('*** THE BROWSER TESTS DO NOT RUN ***');
  process.exit(0);
}
if (found.status !== 0) process.exit(found.status ?? 1);
const run = spawnSync(process.execPath, ['--test', here('tabs.test.mjs')], {
  stdio: 'inherit',
  env: { ...process.env, CHROMIUM: found.stdout.trim() },
});
process.exit(run.status ?? 1);
