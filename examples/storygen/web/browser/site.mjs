// The example on a port of its own, and before it a proxy that knows which of the
// page's connections are open.
import { spawn } from 'node:child_process';
import { createServer, request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export async function serve() {
  const child = spawn(process.env.BINARY, ['-addr', '127.0.0.1:0', '-db', join(process.env.TEMP, 'storygen.db'), '-word', '15ms'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const line = await Promise.race([
    new Promise((resolve) => createInterface({ input: child.stdout }).once('line', resolve)),
    ended.then((code) => Promise.reject(new Error(`storygen ended with ${code}`))),
  ]);
  const target = new URL(line.slice(line.indexOf('http://')));
  const site = { target, asked: [], open: [] };

  const proxy = createServer((req, res) => {
    const { pathname } = new URL(req.url, target);
    const one = { method: req.method, path: pathname };
    site.asked.push(one);
    site.open.push(one);
    const up = request(new URL(req.url, target), { method: req.method, headers: req.headers }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    up.on('error', () => res.destroy());
    req.pipe(up);
    res.on('close', () => {
      site.open.splice(site.open.indexOf(one), 1);
      up.destroy();
    });
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  site.url = `http://127.0.0.1:${proxy.address().port}/`;
  /** The streams of stories' texts that are open, by path. */
  site.streams = () => site.open.map(({ path }) => path).filter((path) => path.endsWith('/stream'));
  /** Asks the service, past the proxy. */
  site.get = async (path) => (await fetch(new URL(path, target))).json();
  site.close = async () => {
    proxy.closeAllConnections();
    await new Promise((resolve) => proxy.close(resolve));
    child.kill('SIGINT');
    await ended;
  };
  return site;
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
