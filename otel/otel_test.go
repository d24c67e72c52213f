package otel_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/otel"
	"github.com/bide-dev/bide/sqlite"
)

// traced is a worker whose spans are kept, in a bubble.
type traced struct {
	*testing.T
	client *bide.Client
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
}

func inBubble(t *testing.T, fn func(*traced), workflows ...bide.Definition) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		spans := tracetest.NewInMemoryExporter()
		provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
		tracer := provider.Tracer("test")
		// Whoever starts the worker is not who starts the runs.
		outer, span := tracer.Start(t.Context(), "main")
		defer span.End()
		ctx, cancel := context.WithCancel(outer)
		worker := bide.NewWorker(store, bide.WorkerConfig{MaxWarm: -1, Intercept: otel.Intercept(provider)}) // each wait is a replay
		worker.Register(workflows...)
		worked := make(chan error, 1)
		go func() { worked <- worker.Run(ctx) }()
		fn(&traced{t, bide.NewClient(store), spans, tracer})
		cancel()
		if err := <-worked; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// said is what a span tells, in a line.
func said(s tracetest.SpanStub) string {
	var attrs []string
	for _, a := range s.Attributes {
		attrs = append(attrs, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	line := s.Name + ": " + strings.Join(attrs, " ")
	if s.Status.Code == codes.Error {
		line += " error: " + s.Status.Description
	}
	return line
}

// Each attempt has one span below who started the run; what is replayed has none.
func TestSpans(t *testing.T) {
	var inStep trace.SpanContext
	child := bide.Define("child", func(ctx bide.Context, _ int) (int, error) {
		return bide.Step(ctx, "inner", func(context.Context) (int, error) { return 1, nil })
	})
	tries, looks := 0, 0
	work := bide.Define("work", func(ctx bide.Context, _ string) (int, error) {
		_, err := bide.Step(ctx, "write", func(ctx context.Context) (int, error) {
			inStep = trace.SpanContextFromContext(ctx)
			if tries++; tries == 1 {
				return 0, errors.New("no paper")
			}
			if bide.AttemptNumber(ctx) != 2 {
				return 0, errors.New("the attempt is lost in the context")
			}
			return 1, nil
		}, bide.RetryPolicy{InitialInterval: time.Minute, NoJitter: true})
		if err != nil {
			return 0, err
		}
		if err := bide.Sleep(ctx, time.Hour); err != nil {
			return 0, err
		}
		if _, err := bide.Child(ctx, child, 1); err != nil {
			return 0, err
		}
		if _, err := bide.Poll(ctx, "job", func(context.Context) (int, error) {
			if looks++; looks == 1 {
				return 0, errors.New("503 Service Unavailable")
			}
			return looks, nil
		}, func(n int) bool { return n == 2 }, bide.Every(time.Minute), bide.NoTimeout{}); err != nil {
			return 0, err
		}
		return bide.Step(ctx, "pay", func(context.Context) (int, error) { return 0, bide.Permanent(bide.ErrGone) })
	})
	inBubble(t, func(b *traced) {
		ctx, starter := b.tracer.Start(b.Context(), "request")
		run, err := work.Start(ctx, b.client, "a secret input", bide.ID("r"), otel.Traceparent(ctx))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := run.Result(b.Context()); !errors.Is(err, bide.ErrGone) {
			b.Fatal(err)
		}
		starter.End()
		var lines []string
		for _, s := range b.spans.GetSpans() {
			if s.Name == "request" {
				continue
			}
			if s.Parent.SpanID() != starter.SpanContext().SpanID() || s.SpanContext.TraceID() != starter.SpanContext().TraceID() || !s.Parent.IsRemote() {
				b.Errorf("%s: its parent is %v", s.Name, s.Parent)
			}
			if s.EndTime.Before(s.StartTime) {
				b.Errorf("%s does not end", s.Name)
			}
			line := said(s)
			lines = append(lines, line)
			if s.Name == "step write" && s.SpanContext.SpanID() != inStep.SpanID() && strings.Contains(line, "attempt=2") {
				b.Error("the step does not see its span")
			}
		}
		want := []string{
			"step write: bide.run=r bide.workflow=work bide.step=write bide.attempt=1 error: no paper",
			"step write: bide.run=r bide.workflow=work bide.step=write bide.attempt=2",
			"step inner: bide.run=r:3 bide.workflow=child bide.step=inner bide.attempt=1",
			"poll job: bide.run=r bide.workflow=work bide.step=job bide.attempt=1 error: 503 Service Unavailable",
			"poll job: bide.run=r bide.workflow=work bide.step=job bide.attempt=2",
			"step pay: bide.run=r bide.workflow=work bide.step=pay bide.attempt=1 error.type=gone error: bide: what it was for is over",
		}
		if !slices.Equal(lines, want) {
			b.Errorf("spans:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	}, work, child)
}

// A run without a trace hangs below nobody, least of all below who started the
// worker.
func TestWithoutTrace(t *testing.T) {
	work := bide.Define("work", func(ctx bide.Context, _ int) (int, error) {
		return bide.Step(ctx, "s", func(context.Context) (int, error) { return 1, nil })
	})
	inBubble(t, func(b *traced) {
		run, err := work.Start(b.Context(), b.client, 1)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := run.Result(b.Context()); err != nil {
			b.Fatal(err)
		}
		spans := b.spans.GetSpans()
		if len(spans) != 1 || spans[0].Parent.IsValid() {
			b.Errorf("%+v", spans)
		}
	}, work)
}

func TestTraceparent(t *testing.T) {
	if o := otel.Traceparent(t.Context()); o != bide.Trace("") {
		t.Errorf("of no span: %v", o)
	}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled}))
	if o := otel.Traceparent(ctx); o != bide.Trace("00-01000000000000000000000000000000-0200000000000000-01") {
		t.Errorf("%v", o)
	}
}
