package wait

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// PanicError is a panic of a check or call, which ends that attempt only.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Code returns "panic".
func (e *PanicError) Code() string { return "panic" }

// call calls fn with a context that ends after limit.
func call(ctx context.Context, limit time.Duration, fn func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	return fn(ctx)
}

// wallCheck is how often a sleeper looks at the wall clock.
const wallCheck = 30 * time.Second

// sleepUntil waits for the time or the end of ctx, whose error it returns. The
// time has come when either clock says so: the monotonic one stands still while
// a machine is suspended, the other may be set back.
func sleepUntil(ctx context.Context, at time.Time) error {
	wall := at.Round(0) // without its monotonic reading
	for ctx.Err() == nil {
		left := min(time.Until(at), time.Until(wall))
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(min(left, wallCheck))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return ctx.Err()
}
