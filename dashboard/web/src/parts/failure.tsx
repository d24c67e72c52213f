import type { Failure } from '../shape.ts';

/** An error with its causes. What a service said is text, whatever is in it. */
export function FailureView({ failure }: { failure: Failure }) {
  return (
    <div class="failure">
      <p>
        {failure.code && <><code class="tag">{failure.code}</code> </>}
        {failure.message}
      </p>
      {failure.type && <p class="faint">{failure.type}</p>}
      {failure.data && <pre>{failure.data.text}</pre>}
      {(failure.causes ?? []).map((cause, i) => (
        <div class="cause" key={i}>
          <span class="faint">because</span>
          <FailureView failure={cause} />
        </div>
      ))}
    </div>
  );
}
