package bide_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

func ExampleDefine() {
	greet := bide.Define("greet", func(ctx bide.Context, name string) (string, error) {
		return "hello " + name, nil
	})

	store, err := sqlite.Open(":memory:") // or a file
	if err != nil {
		panic(err)
	}
	defer store.Close()
	worker := bide.NewWorker(store, bide.WorkerConfig{})
	worker.Register(greet)
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- worker.Run(ctx) }()

	run, err := greet.Start(ctx, bide.NewClient(store), "world", bide.ID("greet-world"))
	if err != nil {
		panic(err)
	}
	text, err := run.Result(ctx)
	fmt.Println(text, err)

	stop()
	fmt.Println(<-stopped)
	// Output:
	// hello world <nil>
	// <nil>
}

func ExampleStep() {
	write := bide.Define("write", func(ctx bide.Context, name string) (string, error) {
		text, err := bide.Step(ctx, "write", func(ctx context.Context) (string, error) {
			fmt.Println("writing, once")
			return "hello " + name, nil
		})
		if err != nil {
			return "", err
		}
		err = bide.Sleep(ctx, time.Millisecond) // killed here, it would go on here
		return text, err
	})
	fmt.Println(exampleRun(write, "world"))
	// Output:
	// writing, once
	// hello world <nil>
}

func ExampleRetryPolicy() {
	patient := bide.Define("patient", func(ctx bide.Context, _ string) (string, error) {
		return bide.Step(ctx, "ask", func(ctx context.Context) (string, error) {
			if n := bide.AttemptNumber(ctx); n < 3 {
				return "", fmt.Errorf("no answer to call %d", n)
			}
			return "the answer", nil
		}, bide.RetryPolicy{
			InitialInterval: time.Millisecond,
			MaximumAttempts: 5,
			OnAttempt:       func(a bide.Attempt) { fmt.Println(a.Number, a.Err) },
		})
	})
	fmt.Println(exampleRun(patient, ""))
	// Output:
	// 1 no answer to call 1
	// 2 no answer to call 2
	// 3 <nil>
	// the answer <nil>
}

func ExamplePermanent() {
	charge := bide.Define("charge", func(ctx bide.Context, card string) (string, error) {
		return bide.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			fmt.Println("attempt", bide.AttemptNumber(ctx))
			return "", bide.Permanent(errors.New("no such card: " + card))
		})
	})
	_, err := exampleRun(charge, "4000")
	fmt.Println(errors.Unwrap(err))
	// Output:
	// attempt 1
	// no such card: 4000
}

func ExampleRetryAfter() {
	fetch := bide.Define("fetch", func(ctx bide.Context, _ string) (string, error) {
		return bide.Step(ctx, "fetch", func(ctx context.Context) (string, error) {
			if bide.AttemptNumber(ctx) == 1 {
				return "", bide.RetryAfter(errors.New("429 Too Many Requests"), 5*time.Millisecond)
			}
			return "a page", nil
		}, bide.RetryPolicy{
			InitialInterval: time.Hour, // not this time
			OnAttempt:       func(a bide.Attempt) { fmt.Println(a.Number, a.Err, a.Delay) },
		})
	})
	fmt.Println(exampleRun(fetch, ""))
	// Output:
	// 1 429 Too Many Requests 5ms
	// 2 <nil> 0s
	// a page <nil>
}

func ExampleIdempotencyKey() {
	var keys []string // what the payment service sees
	pay := bide.Define("pay", func(ctx bide.Context, cents int) (string, error) {
		return bide.Step(ctx, "pay", func(ctx context.Context) (string, error) {
			keys = append(keys, bide.IdempotencyKey(ctx))
			if bide.AttemptNumber(ctx) == 1 {
				return "", errors.New("the connection broke: has it been paid?")
			}
			return "paid", nil
		}, bide.RetryPolicy{InitialInterval: time.Millisecond})
	})
	fmt.Println(exampleRun(pay, 4200))
	fmt.Println(len(keys), keys[0] == keys[1])
	// Output:
	// paid <nil>
	// 2 true
}

func ExampleHeartbeat() {
	upload := bide.Define("upload", func(ctx bide.Context, parts int) (int, error) {
		return bide.Step(ctx, "upload", func(ctx context.Context) (int, error) {
			done, _ := bide.HeartbeatDetails[int](ctx) // of the last attempt
			for ; done < parts; done++ {
				if done == 2 && bide.AttemptNumber(ctx) == 1 {
					return 0, errors.New("the connection broke")
				}
				fmt.Println("part", done)
				if err := bide.Heartbeat(ctx, done+1); err != nil {
					return 0, err
				}
			}
			return done, nil
		}, bide.HeartbeatTimeout(10*time.Second), bide.RetryPolicy{InitialInterval: time.Millisecond})
	})
	fmt.Println(exampleRun(upload, 4))
	// Output:
	// part 0
	// part 1
	// part 2
	// part 3
	// 4 <nil>
}

func ExampleSleep() {
	remind := bide.Define("remind", func(ctx bide.Context, what string) (string, error) {
		if err := bide.Sleep(ctx, 20*time.Millisecond); err != nil { // or 30*24*time.Hour
			return "", err
		}
		return "do not forget " + what, nil
	})
	fmt.Println(exampleRun(remind, "the milk"))
	// Output:
	// do not forget the milk <nil>
}

func ExampleSleepUntil() {
	open := bide.Define("open", func(ctx bide.Context, at time.Time) (string, error) {
		err := bide.SleepUntil(ctx, at)
		return "open", err
	})
	at := time.Now().Add(20 * time.Millisecond)
	fmt.Println(exampleRun(open, at))
	fmt.Println("too early:", time.Now().Before(at))
	// Output:
	// open <nil>
	// too early: false
}

func ExampleReceive() {
	publish := bide.Define("publish", func(ctx bide.Context, title string) (string, error) {
		editor, err := bide.Receive[string](ctx, "approval", bide.Timeout(20*time.Millisecond))
		if errors.Is(err, bide.ErrTimeout) {
			return title + ": nobody has approved it", nil
		}
		if err != nil {
			return "", err
		}
		return title + ": approved by " + editor, nil
	})
	fmt.Println(exampleRun(publish, "News", bide.FirstSignal("approval", "Ada")))
	fmt.Println(exampleRun(publish, "Gossip"))
	// Output:
	// News: approved by Ada <nil>
	// Gossip: nobody has approved it <nil>
}

func ExamplePoll() {
	percent := 0 // at some service
	render := bide.Define("render", func(ctx bide.Context, _ string) (int, error) {
		return bide.Poll(ctx, "render",
			func(ctx context.Context) (int, error) { percent += 40; return min(percent, 100), nil },
			func(percent int) bool { return percent == 100 },
			bide.Every(10*time.Millisecond), bide.Timeout(time.Hour))
	})
	fmt.Println(exampleRun(render, ""))
	// Output:
	// 100 <nil>
}

func ExampleGo() {
	order := bide.Define("order", func(ctx bide.Context, item string) (string, error) {
		price := bide.Go(ctx, "price", func(ctx bide.Context) (int, error) {
			return bide.Step(ctx, "look up the price", func(context.Context) (int, error) { return 42, nil })
		})
		if err := bide.Sleep(ctx, time.Millisecond); err != nil { // meanwhile
			return "", err
		}
		n, err := price.Get(ctx)
		return fmt.Sprintf("%s for %d", item, n), err
	})
	fmt.Println(exampleRun(order, "a towel"))
	// Output:
	// a towel for 42 <nil>
}

func ExampleAll() {
	compare := bide.Define("compare", func(ctx bide.Context, question string) ([]string, error) {
		ask := func(model string) bide.NamedBranch[string] {
			return bide.Branch(model, func(ctx bide.Context) (string, error) {
				return bide.Step(ctx, "ask", func(context.Context) (string, error) {
					return model + " says 42", nil
				})
			})
		}
		return bide.All(ctx, ask("large"), ask("small"))
	})
	answers, err := exampleRun(compare, "how many?")
	fmt.Printf("%q %v\n", answers, err)
	// Output:
	// ["large says 42" "small says 42"] <nil>
}

func ExampleRace() {
	confirm := bide.Define("confirm", func(ctx bide.Context, patience time.Duration) (string, error) {
		winner, answer, err := bide.Race(ctx,
			bide.Branch("a person", func(ctx bide.Context) (string, error) {
				return bide.Receive[string](ctx, "answer")
			}),
			bide.Branch("the clock", func(ctx bide.Context) (string, error) {
				return "no", bide.Sleep(ctx, patience)
			}))
		return winner + " says " + answer, err
	})
	fmt.Println(exampleRun(confirm, 20*time.Millisecond))
	fmt.Println(exampleRun(confirm, time.Hour, bide.FirstSignal("answer", "yes")))
	// Output:
	// the clock says no <nil>
	// a person says yes <nil>
}

func ExampleChild() {
	square := bide.Define("square", func(ctx bide.Context, n int) (int, error) {
		return n * n, nil
	})
	area := bide.Define("area", func(ctx bide.Context, n int) (string, error) {
		m, err := bide.Child(ctx, square, n)
		return fmt.Sprint(m, " m²"), err
	})

	client, stop := example(area, square)
	defer stop()
	run, err := area.Start(context.Background(), client, 7)
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Result(context.Background()))
	// Output:
	// 49 m² <nil>
}

func ExampleStartChild() {
	page := bide.Define("page", func(ctx bide.Context, n int) (string, error) {
		return fmt.Sprint("page ", n), nil
	})
	book := bide.Define("book", func(ctx bide.Context, pages int) ([]string, error) {
		var started []*bide.ChildRun[string]
		for n := range pages {
			child, err := bide.StartChild(ctx, page, n+1)
			if err != nil {
				return nil, err
			}
			started = append(started, child)
		}
		var texts []string
		for _, child := range started {
			text, err := child.Result(ctx)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
		return texts, nil
	})

	ctx := context.Background()
	client, stop := example(book, page)
	defer stop()
	run, err := book.Start(ctx, client, 3)
	if err != nil {
		panic(err)
	}
	texts, err := run.Result(ctx)
	fmt.Printf("%q %v\n", texts, err)
	// Output:
	// ["page 1" "page 2" "page 3"] <nil>
}

func ExamplePhase() {
	gather := func(ctx bide.Context) (string, error) {
		return bide.Step(ctx, "search", func(context.Context) (string, error) { return "three sources", nil })
	}
	report := bide.Define("report", func(ctx bide.Context, _ string) (string, error) {
		sources, err := bide.Phase(ctx, "gather", gather)
		if err != nil {
			return "", err
		}
		return "a report from " + sources, nil
	})

	ctx := context.Background()
	client, stop := example(report)
	defer stop()
	run, err := report.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Result(ctx))
	records, err := client.History(ctx, run.ID(), 0)
	if err != nil {
		panic(err)
	}
	for _, r := range records {
		fmt.Println(r.Path, r.Kind, r.Name)
	}
	// Output:
	// a report from three sources <nil>
	// 1.1 step search
	// 1 phase gather
}

func ExampleProgress() {
	encode := bide.Define("encode", func(ctx bide.Context, frames int) (int, error) {
		return bide.Step(ctx, "encode", func(ctx context.Context) (int, error) {
			for n := range frames {
				_ = bide.Progress(ctx, 100*float64(n+1)/float64(frames), "encoding", bide.AtStep{Index: 1, Count: 2})
			}
			return frames, nil
		})
	})

	ctx := context.Background()
	client, stop := example(encode)
	defer stop()
	handle, err := encode.Start(ctx, client, 24)
	if err != nil {
		panic(err)
	}
	fmt.Println(handle.Result(ctx))
	run, err := handle.Get(ctx)
	if err != nil {
		panic(err)
	}
	p := run.Progress
	fmt.Printf("%v %% %s, step %d of %d\n", p.Percent, p.Message, p.Step.Index, p.Step.Count)
	// Output:
	// 24 <nil>
	// 100 % encoding, step 1 of 2
}

func ExamplePublish() {
	draft := bide.Define("draft", func(ctx bide.Context, title string) (string, error) {
		if err := bide.Publish(ctx, "title", title); err != nil {
			return "", err
		}
		return bide.Receive[string](ctx, "text") // the title can be read meanwhile
	})

	ctx := context.Background()
	client, stop := example(draft)
	defer stop()
	handle, err := draft.Start(ctx, client, "On waiting")
	if err != nil {
		panic(err)
	}
	exampleAwait(client, handle.ID(), bide.Waiting)
	var title string
	found, err := client.Value(ctx, handle.ID(), "title", &title)
	fmt.Println(title, found, err)
	// Output:
	// On waiting true <nil>
}

func ExampleNow() {
	clock := bide.Define("clock", func(ctx bide.Context, _ string) (bool, error) {
		before := bide.Now(ctx)
		if err := bide.Sleep(ctx, 5*time.Millisecond); err != nil {
			return false, err
		}
		return bide.Now(ctx).Sub(before) >= 5*time.Millisecond, nil // the same on every replay
	})
	fmt.Println(exampleRun(clock, ""))
	// Output:
	// true <nil>
}

func ExampleRand() {
	var thrown []int
	dice := bide.Define("dice", func(ctx bide.Context, _ string) (int, error) {
		n := bide.Rand(ctx).IntN(6) + 1
		thrown = append(thrown, n)
		err := bide.Sleep(ctx, 5*time.Millisecond) // it parks: what is above runs again
		return n, err
	})

	ctx := context.Background()
	client, stop := exampleWorker(bide.WorkerConfig{MaxWarm: -1}, dice)
	defer stop()
	run, err := dice.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	n, err := run.Result(ctx)
	fmt.Println(1 <= n && n <= 6, err)
	fmt.Println("different throws:", len(slices.Compact(thrown)))
	// Output:
	// true <nil>
	// different throws: 1
}

func ExampleNewID() {
	var ids []string
	invoice := bide.Define("invoice", func(ctx bide.Context, _ string) (string, error) {
		id := bide.NewID(ctx)
		ids = append(ids, id)
		err := bide.Sleep(ctx, 5*time.Millisecond) // it parks: what is above runs again
		return id, err
	})

	ctx := context.Background()
	client, stop := exampleWorker(bide.WorkerConfig{MaxWarm: -1}, invoice)
	defer stop()
	run, err := invoice.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	id, err := run.Result(ctx)
	fmt.Println(len(id), err)
	fmt.Println("different ids:", len(slices.Compact(ids)))
	// Output:
	// 36 <nil>
	// different ids: 1
}

func ExampleLog() {
	nap := bide.Define("nap", func(ctx bide.Context, _ string) (string, error) {
		bide.Log(ctx).Info("going to bed")
		if err := bide.Sleep(ctx, 5*time.Millisecond); err != nil { // it parks: what is above runs again
			return "", err
		}
		bide.Log(ctx).Info("awake")
		return "rested", nil
	})

	messages := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	ctx := context.Background()
	client, stop := exampleWorker(bide.WorkerConfig{MaxWarm: -1, Logger: messages}, nap)
	defer stop()
	run, err := nap.Start(ctx, client, "", bide.ID("nap-1"))
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// msg="going to bed" run=nap-1 workflow=nap
	// msg=awake run=nap-1 workflow=nap
	// rested <nil>
}

func ExampleContinueAsNew() {
	countdown := bide.Define("countdown", func(ctx bide.Context, n int) (string, error) {
		if n == 0 {
			return "lift-off", nil
		}
		if err := bide.Sleep(ctx, time.Millisecond); err != nil {
			return "", err
		}
		return "", bide.ContinueAsNew(ctx, n-1)
	})

	ctx := context.Background()
	client, stop := example(countdown)
	defer stop()
	handle, err := countdown.Start(ctx, client, 3)
	if err != nil {
		panic(err)
	}
	fmt.Println(handle.Result(ctx))
	run, err := handle.Get(ctx)
	fmt.Println(run.Generation, err)
	// Output:
	// lift-off <nil>
	// 3 <nil>
}

func ExampleSaga() {
	book := func(ctx bide.Context, undo *bide.Undo, what string) error {
		_, err := bide.Step(ctx, "book "+what, func(context.Context) (string, error) {
			if what == "the hotel" {
				return "", bide.Permanent(errors.New("the hotel is full"))
			}
			fmt.Println("booked", what)
			return what, nil
		})
		if err == nil {
			undo.Add("give back "+what, func(context.Context) error {
				fmt.Println("gave back", what)
				return nil
			})
		}
		return err
	}
	trip := bide.Define("trip", func(ctx bide.Context, parts []string) (string, error) {
		return bide.Saga(ctx, func(ctx bide.Context, undo *bide.Undo) (string, error) {
			for _, what := range parts {
				if err := book(ctx, undo, what); err != nil {
					return "", err
				}
			}
			return "a good journey", nil
		})
	})
	_, err := exampleRun(trip, []string{"the flight", "the car", "the hotel"})
	fmt.Println(errors.Unwrap(err))
	// Output:
	// booked the flight
	// booked the car
	// gave back the car
	// gave back the flight
	// the hotel is full
}

func ExampleParking() {
	visit := bide.Define("visit", func(ctx bide.Context, _ string) (string, error) {
		defer func() {
			if bide.Parking(ctx) {
				return // the run only waits
			}
			fmt.Println("goodbye")
		}()
		err := bide.Sleep(ctx, 5*time.Millisecond)
		return "a visit", err
	})

	ctx := context.Background()
	client, stop := exampleWorker(bide.WorkerConfig{MaxWarm: -1}, visit)
	defer stop()
	run, err := visit.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// goodbye
	// a visit <nil>
}

func ExampleWithoutCancel() {
	rent := bide.Define("rent", func(ctx bide.Context, what string) (string, error) {
		err := bide.Sleep(ctx, time.Hour)
		if errors.Is(err, bide.ErrCanceled) {
			_, back := bide.Step(bide.WithoutCancel(ctx), "give back", func(context.Context) (string, error) {
				fmt.Println("gave back", what)
				return what, nil
			})
			err = errors.Join(err, back)
		}
		return what, err
	})

	ctx := context.Background()
	client, stop := example(rent)
	defer stop()
	run, err := rent.Start(ctx, client, "a bicycle")
	if err != nil {
		panic(err)
	}
	exampleAwait(client, run.ID(), bide.Waiting)
	if err := client.Cancel(ctx, run.ID(), "it rains"); err != nil {
		panic(err)
	}
	_, err = run.Result(ctx)
	fmt.Println(errors.Is(err, bide.ErrCanceled))
	// Output:
	// gave back a bicycle
	// true
}

func ExampleValidate() {
	transfer := bide.Define("transfer", func(ctx bide.Context, cents int) (string, error) {
		return "done", nil
	}, bide.Validate(func(cents int) error {
		if cents <= 0 {
			return errors.New("nothing to transfer")
		}
		return nil
	}))

	client, stop := example(transfer)
	defer stop()
	_, err := transfer.Start(context.Background(), client, -5)
	fmt.Println(bide.Code(err))
	fmt.Println(err)
	// Output:
	// invalid
	// bide: input: refused by the workflow's Validate: nothing to transfer
}

func ExampleFirstSignal() {
	chat := bide.Define("chat", func(ctx bide.Context, name string) (string, error) {
		text, err := bide.Receive[string](ctx, "message")
		return name + " says " + text, err
	})

	ctx := context.Background()
	client, stop := example(chat)
	defer stop()
	// Whoever writes first begins the chat; both happen or neither.
	run, err := chat.Start(ctx, client, "Ada", bide.ID("chat-ada"), bide.FirstSignal("message", "hello"))
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// Ada says hello <nil>
}

// errExampleSoldOut is a value, exampleShortfall a type: both come back as
// themselves from a history.
var errExampleSoldOut = errors.New("sold out")

type exampleShortfall struct {
	Missing int `json:"missing"`
}

func (e *exampleShortfall) Error() string { return fmt.Sprintf("%d are missing", e.Missing) }

func init() { bide.RegisterError(errExampleSoldOut, &exampleShortfall{}) }

func ExampleRegisterError() {
	buy := bide.Define("buy", func(ctx bide.Context, n int) (int, error) {
		return bide.Step(ctx, "buy", func(context.Context) (int, error) {
			if n > 10 {
				return 0, bide.Permanent(&exampleShortfall{Missing: n - 10})
			}
			return 0, bide.Permanent(fmt.Errorf("tickets: %w", errExampleSoldOut))
		})
	})
	_, err := exampleRun(buy, 2)
	fmt.Println(errors.Is(err, errExampleSoldOut))
	_, err = exampleRun(buy, 12)
	if short, ok := errors.AsType[*exampleShortfall](err); ok {
		fmt.Println(short.Missing)
	}
	// Output:
	// true
	// 2
}

func ExampleTerminalProgress() {
	drawn := make(chan struct{})
	encode := bide.Define("encode", func(ctx bide.Context, _ string) (string, error) {
		_ = bide.Progress(ctx, 40, "encoding")
		return bide.Step(ctx, "encode", func(context.Context) (string, error) {
			<-drawn
			return "a film", nil
		})
	})

	ctx := context.Background()
	client, stop := example(encode)
	defer stop()
	run, err := encode.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	screen := io.MultiWriter(os.Stdout, exampleWriter(sync.OnceFunc(func() { close(drawn) })))
	fmt.Println(run.Result(ctx, bide.TerminalProgress(screen)))
	// Output:
	// [encode] 40% - encoding
	// [encode] 100% - succeeded
	// a film <nil>
}

func ExampleClient_Signal() {
	ask := bide.Define("ask", func(ctx bide.Context, question string) (string, error) {
		answer, err := bide.Receive[string](ctx, "answer")
		return question + " " + answer, err
	})

	ctx := context.Background()
	client, stop := example(ask)
	defer stop()
	run, err := ask.Start(ctx, client, "Tea?")
	if err != nil {
		panic(err)
	}
	for range 2 { // with a key, it counts once however often it is sent
		if err := client.Signal(ctx, run.ID(), "answer", "Yes.", bide.Key("message-1")); err != nil && !errors.Is(err, bide.ErrRunEnded) {
			panic(err)
		}
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// Tea? Yes. <nil>
}

func ExampleClient_Cancel() {
	watch := bide.Define("watch", func(ctx bide.Context, _ string) (string, error) {
		return "", bide.Sleep(ctx, time.Hour)
	})

	ctx := context.Background()
	client, stop := example(watch)
	defer stop()
	handle, err := watch.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	if err := client.Cancel(ctx, handle.ID(), "no longer needed"); err != nil {
		panic(err)
	}
	_, err = handle.Result(ctx)
	fmt.Println(errors.Is(err, bide.ErrCanceled))
	run, err := client.Get(ctx, handle.ID())
	fmt.Println(run.State, err)
	// Output:
	// true
	// canceled <nil>
}

func ExampleClient_Retry() {
	open := false
	enter := bide.Define("enter", func(ctx bide.Context, _ string) (string, error) {
		_, err := bide.Step(ctx, "walk", func(context.Context) (string, error) {
			fmt.Println("walking there, once")
			return "", nil
		})
		if err != nil {
			return "", err
		}
		return bide.Step(ctx, "open", func(context.Context) (string, error) {
			if !open {
				return "", bide.Permanent(errors.New("the door is locked"))
			}
			return "inside", nil
		})
	})

	ctx := context.Background()
	client, stop := example(enter)
	defer stop()
	run, err := enter.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	_, err = run.Result(ctx)
	fmt.Println(errors.Unwrap(err))

	open = true // a person has mended what was wrong
	if err := client.Retry(ctx, run.ID()); err != nil {
		panic(err)
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// walking there, once
	// the door is locked
	// inside <nil>
}

func ExampleClient_Complete() {
	build := bide.Define("build", func(ctx bide.Context, _ string) (string, error) {
		return bide.Poll(ctx, "artifact",
			func(context.Context) (string, error) { return "", nil }, // it will never come
			func(url string) bool { return url != "" }, bide.NoTimeout{})
	})

	ctx := context.Background()
	client, stop := example(build)
	defer stop()
	run, err := build.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	exampleAwait(client, run.ID(), bide.Waiting)
	if err := client.Complete(ctx, run.ID(), "artifact", "made by hand"); err != nil {
		panic(err)
	}
	fmt.Println(run.Result(ctx))
	// Output:
	// made by hand <nil>
}

func ExampleClient_Watch() {
	review := bide.Define("review", func(ctx bide.Context, _ string) (string, error) {
		return bide.Receive[string](ctx, "verdict")
	})

	ctx := context.Background()
	client, stop := example(review)
	defer stop()
	handle, err := review.Start(ctx, client, "")
	if err != nil {
		panic(err)
	}
	for run, err := range client.Watch(ctx, handle.ID()) {
		if err != nil {
			panic(err)
		}
		if run.State == bide.Waiting {
			fmt.Println(run.State, "for", run.Waiting[0].Name)
			if err := client.Signal(ctx, run.ID, "verdict", "good"); err != nil {
				panic(err)
			}
		}
		if run.State.Ended() {
			fmt.Println(run.State, string(run.Result))
		}
	}
	// Output:
	// waiting for verdict
	// succeeded "good"
}

func ExampleClient_Runs() {
	parcel := bide.Define("parcel", func(ctx bide.Context, to string) (string, error) {
		return "delivered", nil
	})

	ctx := context.Background()
	client, stop := example(parcel)
	defer stop()
	for i, to := range []string{"Rome", "Oslo", "Rome"} {
		run, err := parcel.Start(ctx, client, to, bide.ID(fmt.Sprint("parcel-", i+1)), bide.Labels{"to": to})
		if err != nil {
			panic(err)
		}
		if _, err := run.Result(ctx); err != nil {
			panic(err)
		}
	}
	runs, err := client.Runs(ctx, bide.Query{Labels: map[string]string{"to": "Rome"}, States: []bide.State{bide.Succeeded}})
	for _, run := range runs {
		fmt.Println(run.ID, run.State)
	}
	fmt.Println(err)
	// Output:
	// parcel-3 succeeded
	// parcel-1 succeeded
	// <nil>
}

// example returns a client on a store in memory with a worker at work.
func example(workflows ...bide.Definition) (client *bide.Client, stop func()) {
	return exampleWorker(bide.WorkerConfig{}, workflows...)
}

// exampleWorker is example with a worker of the configuration. One with MaxWarm
// -1 parks at every wait, and then calls the workflow again from its beginning.
func exampleWorker(cfg bide.WorkerConfig, workflows ...bide.Definition) (client *bide.Client, stop func()) {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		panic(err)
	}
	worker := bide.NewWorker(store, cfg)
	worker.Register(workflows...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	return bide.NewClient(store, workflows...), func() {
		cancel()
		if err := errors.Join(<-done, store.Close()); err != nil {
			panic(err)
		}
	}
}

// exampleRun starts a run of the workflow and waits for its result.
func exampleRun[In, Out any](w *bide.Workflow[In, Out], in In, opts ...bide.StartOption) (Out, error) {
	client, stop := example(w)
	defer stop()
	run, err := w.Start(context.Background(), client, in, opts...)
	if err != nil {
		var zero Out
		return zero, err
	}
	return run.Result(context.Background())
}

// exampleAwait returns once the run is in the state.
func exampleAwait(c *bide.Client, id string, state bide.State) {
	for run, err := range c.Watch(context.Background(), id) {
		if err != nil {
			panic(err)
		}
		if run.State == state {
			return
		}
	}
}

// exampleWriter is called for what is written.
type exampleWriter func()

func (w exampleWriter) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}
