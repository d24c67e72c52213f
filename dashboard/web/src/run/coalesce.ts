/** Lets an errand run once at a time, and once more if it was asked for meanwhile. */
export class Errand {
  #running = false;
  #again = false;
  #over = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The least pause between two runs, in milliseconds. */
  restMs = 0;
  readonly #run: () => Promise<void>;
  constructor(run: () => Promise<void>) {
    this.#run = run;
  }

  ask(): void {
    if (this.#over) return;
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#running = true;
    void this.#run().finally(() => {
      this.#timer = setTimeout(() => {
        this.#running = false;
        if (!this.#again) return;
        this.#again = false;
        this.ask();
      }, this.restMs);
    });
  }

  end(): void {
    this.#over = true;
    clearTimeout(this.#timer);
  }
}
