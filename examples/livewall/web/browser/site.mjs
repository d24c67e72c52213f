// The example on a port of its own.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

export async function serve() {
  const child = spawn(process.env.BINARY, ['-addr', '127.0.0.1:0', '-slow', '50ms'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const line = await Promise.race([
    new Promise((resolve) => createInterface({ input: child.stdout }).once('line', resolve)),
    ended.then((code) => Promise.reject(new Error(`livewall ended with ${code}`))),
  ]);
  return {
    url: line.slice(line.indexOf('http://')),
    async close() {
      child.kill('SIGINT');
      await ended;
    },
  };
}

/** Waits until a function gives something, and says what it was about if it never does. */
export async function until(what, fn, ms = 15_000) {
  const end = Date.now() + ms;
  for (;;) {
    const got = await fn();
    if (got) return got;
    if (Date.now() > end) throw new Error(`${what}: not within ${ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
