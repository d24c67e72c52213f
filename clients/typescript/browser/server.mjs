// A server with one run, as far as the browser tests look at it: a stream, reads
// that are not held, and a count of what is asked for.
import { createServer } from 'node:http';

export async function serve(script) {
  const streams = new Set();
  const tab = (req) => new URL(req.headers.referer ?? 'http://x/').searchParams.get('tab');
  const server = { run: runOf(1, 'queued'), asked: [], news: [], streams };

  const http = createServer((req, res) => {
    const { pathname } = new URL(req.url, 'http://x');
    if (pathname === '/') {
      res.setHeader('Content-Type', 'text/html');
      res.end('<!doctype html><title>bide</title><script type="module" src="/page.js"></script>');
    } else if (pathname === '/page.js') {
      res.setHeader('Content-Type', 'text/javascript');
      res.end(script);
    } else if (pathname === '/news') {
      server.news.push(tab(req));
      res.end(String(server.news.length));
    } else if (pathname === '/v1/runs/a/events') {
      const stream = { tab: tab(req), res };
      streams.add(stream);
      req.on('close', () => streams.delete(stream));
      res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' });
      tell(stream, 'snapshot');
    } else if (pathname === '/v1/runs/a') {
      server.asked.push(tab(req));
      const etag = `"v${server.run.version}"`;
      res.setHeader('ETag', etag);
      if (req.headers['if-none-match'] === etag) {
        res.writeHead(304).end();
        return;
      }
      res.setHeader('Content-Type', 'application/json');
      res.end(JSON.stringify(server.run));
    } else {
      res.writeHead(404).end();
    }
  });

  function tell({ res }, type) {
    res.write(`event: ${type}\ndata: ${JSON.stringify(server.run)}\n\n`);
  }

  server.set = (state) => {
    server.run = runOf(server.run.version + 1, state);
    for (const stream of streams) tell(stream, 'state');
    return server.run.version;
  };
  await new Promise((resolve) => http.listen(0, '127.0.0.1', resolve));
  server.url = `http://127.0.0.1:${http.address().port}/`;
  server.close = () => {
    http.closeAllConnections();
    return new Promise((resolve) => http.close(resolve));
  };
  return server;
}

function runOf(version, state) {
  return { id: 'a', workflow: 'w', state, version, progress: null, next_poll_ms: 700, result: null, error: null };
}
