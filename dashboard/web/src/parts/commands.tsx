import { server } from '../root.ts';
import { apiKey } from '../setting.ts';
import { cli, curl } from '../words/command.ts';
import { Copy } from './copy.tsx';

/** How to see the same from a terminal. */
export function Commands({ path, words }: { path: string; words: string[] }) {
  const lines = { curl: curl(server, path, apiKey.value !== ''), cli: cli(server, ...words) };
  return (
    <details class="commands">
      <summary>From a terminal</summary>
      <Command line={lines.cli} what="the bide command" />
      <Command line={lines.curl} what="the curl command" />
    </details>
  );
}

function Command({ line, what }: { line: string; what: string }) {
  return (
    <div class="command">
      <code>{line}</code>
      <Copy text={() => line} what={what} />
    </div>
  );
}
