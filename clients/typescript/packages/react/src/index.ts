export { BideProvider, useBide, type BideProviderProps } from './provider.js';
export { usePoll, type UsePollOptions, type UsePollResult } from './poll.js';
export { useRun, type UseRunOptions, type UseRunResult } from './run.js';
