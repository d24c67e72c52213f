// A server with runs of any name, as far as the browser tests look at it: streams,
// reads that are not held, and a count of what is asked for. What it does is done to
// the run a, unless another is named.
import { createServer } from 'node:http';

export async function serve(script) {
  const streams = new Set();
  const tab = (req) => new URL(req.headers.referer ?? 'http://x/').searchParams.get('tab');
  const runs = new Map();
  const server = { asked: [], news: [], streams };
  const run = (id) => runs.get(id) ?? runs.set(id, runOf(id, 1, 'queued')).get(id);

  const http = createServer((req, res) => {
    const { pathname, searchParams } = new URL(req.url, 'http://x');
    const [, id, part] = /^\/v1\/runs\/(\w+)(\/events)?$/.exec(pathname) ?? [];
    if (pathname === '/') {
      res.setHeader('Content-Type', 'text/html');
      res.end('<!doctype html><title>bide</title><script type="module" src="/page.js"></script>');
    } else if (pathname === '/page.js') {
      res.setHeader('Content-Type', 'text/javascript');
      res.end(script);
    } else if (pathname === '/news') {
      server.news.push(tab(req));
      res.end(String(server.news.length));
    } else if (pathname === '/v1/events' || part) {
      const ids = id ? [id] : searchParams.getAll('runs');
      const stream = { tab: tab(req), ids, hints: !id && (ids.length === 0 || searchParams.get('changes') === 'true'), res };
      streams.add(stream);
      req.on('close', () => streams.delete(stream));
      res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' });
      res.write('retry: 3000\n\n');
      for (const each of new Set(ids)) tell(stream, 'snapshot', run(each));
    } else if (id) {
      server.asked.push(tab(req));
      const etag = `"v${run(id).version}"`;
      res.setHeader('ETag', etag);
      if (req.headers['if-none-match'] === etag) {
        res.writeHead(304).end();
        return;
      }
      res.setHeader('Content-Type', 'application/json');
      res.end(JSON.stringify(run(id)));
    } else {
      res.writeHead(404).end();
    }
  });

  function tell({ res, ids }, type, told) {
    if (ids.includes(told.id)) res.write(`event: ${type}\ndata: ${JSON.stringify(told)}\n\n`);
  }

  server.set = (state, id = 'a') => {
    const next = runOf(id, run(id).version + 1, state);
    runs.set(id, next);
    for (const stream of streams) {
      tell(stream, 'state', next);
      if (stream.hints) stream.res.write('event: changed\ndata: {}\n\n');
    }
    return next.version;
  };
  await new Promise((resolve) => http.listen(0, '127.0.0.1', resolve));
  server.url = `http://127.0.0.1:${http.address().port}/`;
  server.close = () => {
    http.closeAllConnections();
    return new Promise((resolve) => http.close(resolve));
  };
  return server;
}

function runOf(id, version, state) {
  return { id, workflow: 'w', state, version, progress: null, next_poll_ms: 700, result: null, error: null };
}
