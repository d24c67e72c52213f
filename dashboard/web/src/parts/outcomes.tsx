const outcomes: Record<string, { name: string; height: number }> = {
  s: { name: 'succeeded', height: 10 },
  c: { name: 'changed', height: 14 },
  u: { name: 'unchanged', height: 6 },
  f: { name: 'failed', height: 18 },
  i: { name: 'interrupted', height: 18 },
  '-': { name: 'skipped', height: 2 },
};

const step = 3;
const tall = 18;

/** How a loop's last iterations went, a bar each, the newest at the right. Failures
 * are the tallest: they are told without the colour. */
export function Outcomes({ outcomes: letters }: { outcomes: string }) {
  const shown = letters.slice(-100);
  return (
    <svg class="outcomes" role="img" aria-label={summary(shown)} width={100 * step} height={tall + 2} viewBox={`0 0 ${100 * step} ${tall + 2}`} preserveAspectRatio="xMaxYMid meet">
      <line x1="0" y1={tall + 1} x2={100 * step} y2={tall + 1} class="base" />
      {[...shown].map((letter, i) => {
        const { name, height } = outcomes[letter] ?? { name: letter, height: 2 };
        return (
          <rect key={i} class={`outcome outcome-${name}`} x={(100 - shown.length + i) * step} y={tall + 1 - height} width={step - 1} height={height}>
            <title>{`${name}, ${shown.length - i === 1 ? 'the last' : `${shown.length - i - 1} before the last`}`}</title>
          </rect>
        );
      })}
    </svg>
  );
}

/** "100 iterations: 91 succeeded, 9 failed". */
export function summary(letters: string): string {
  if (letters === '') return 'no iteration yet';
  const counts = new Map<string, number>();
  for (const letter of letters) {
    const name = outcomes[letter]?.name ?? letter;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return `the last ${letters.length}: ` + [...counts].map(([name, n]) => `${n} ${name}`).join(', ');
}
