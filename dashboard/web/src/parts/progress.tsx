import type { Progress } from '../shape.ts';

/** How far a run has come. */
export function ProgressBar({ progress, label }: { progress: Progress; label: string }) {
  const percent = Math.min(100, Math.max(0, progress.percent));
  const text = `${Math.floor(percent)} %`;
  return (
    <span class="progress">
      <span class="bar" role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.floor(percent)}>
        <span class="fill" style={{ width: `${percent}%` }} />
      </span>
      <span class="num">{text}</span>
    </span>
  );
}
