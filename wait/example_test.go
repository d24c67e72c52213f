package wait_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bide-dev/bide/wait"
)

func ExamplePoll() {
	checks := 0
	status := func(context.Context) (string, error) {
		if checks++; checks < 3 {
			return "running", nil
		}
		return "finished", nil
	}
	got, err := wait.Poll(context.Background(), wait.PollConfig{
		Plan:    wait.Plan{Strategy: wait.Fixed(10 * time.Millisecond)},
		Timeout: time.Minute,
	}, status, func(s string) bool { return s == "finished" })
	fmt.Println(got, err, checks)
	// Output: finished <nil> 3
}

func ExampleRetry() {
	calls := 0
	order, err := wait.Retry(context.Background(), wait.RetryConfig{
		InitialInterval: 10 * time.Millisecond,
		MaximumAttempts: 3,
	}, func(context.Context) (int, error) {
		if calls++; calls < 3 {
			return 0, errors.New("busy")
		}
		return 42, nil
	})
	fmt.Println(order, err, calls)
	// Output: 42 <nil> 3
}

// A breaker is asked before each call and told after it. The circuit may be kept
// in a store, for many processes.
func ExampleBreaker() {
	breaker := wait.Breaker{Failures: 2, Cooldown: time.Minute}
	var circuit wait.Circuit
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	random := func() float64 { return 0.5 }
	for range 3 {
		permit := breaker.Allow(&circuit, now, 10*time.Second)
		if !permit.OK {
			fmt.Println("not before", permit.RetryAt.Format(time.TimeOnly))
			continue
		}
		breaker.Report(&circuit, permit, false, 0, now, random)
		fmt.Println("failed:", circuit.State(now))
	}
	// Output:
	// failed: closed
	// failed: open
	// not before 07:01:06
}
