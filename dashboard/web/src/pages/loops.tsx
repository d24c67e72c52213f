import { read } from '../http.ts';
import { usePolled } from '../live/polled.ts';
import { Commands } from '../parts/commands.tsx';
import { LoopActions } from '../parts/loopactions.tsx';
import { LoopState } from '../parts/loopstate.tsx';
import { Notice, Problem } from '../parts/notice.tsx';
import { Outcomes } from '../parts/outcomes.tsx';
import { Until } from '../parts/time.tsx';
import { loopHref } from '../route.ts';
import type { Loop } from '../shape.ts';
import { explainLoop } from '../words/interval.ts';

const everyMs = 1000;
const toldMs = 5000;

export function LoopsPage() {
  const loops = usePolled('/v1/loops', everyMs, (signal) => read<{ loops: Loop[] }>('/v1/loops', signal), toldMs);
  const list = loops.data.value?.loops;
  return (
    <div class="page">
      <h1>Loops</h1>
      <Problem error={loops.error.value} />
      {!list && <p class="faint">Loading…</p>}
      {list?.length === 0 && <Notice>There is no loop yet: one is there once a worker has registered it with bide.Loop.</Notice>}
      {list && list.length > 0 && (
        <table class="loops stack">
          <thead>
            <tr>
              <th scope="col">Loop</th>
              <th scope="col">State</th>
              <th scope="col">The last 100</th>
              <th scope="col">Interval</th>
              <th scope="col">Next</th>
              <th scope="col">
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.map((l) => (
              <LoopRow key={l.name} loop={l} again={loops.again} />
            ))}
          </tbody>
        </table>
      )}
      <Commands path="/v1/loops" words={['loop', 'list']} />
    </div>
  );
}

function LoopRow({ loop, again }: { loop: Loop; again(): void }) {
  return (
    <tr data-loop={loop.name}>
      <th scope="row">
        <a href={loopHref(loop.name)}>{loop.name}</a>
      </th>
      <td data-th="State">
        <LoopState loop={loop} />
      </td>
      <td data-th="The last 100">
        <Outcomes outcomes={loop.outcomes} />
      </td>
      <td data-th="Interval">{explainLoop(loop)}</td>
      <td data-th="Next">{loop.in_flight_since ? 'at work' : <Until at={loop.next_at} due="now" />}</td>
      <td class="right">
        <LoopActions loop={loop} after={again} />
      </td>
    </tr>
  );
}
