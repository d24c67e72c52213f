// Package otel traces what runs do, with OpenTelemetry. Only programs that import
// it link OpenTelemetry. A worker makes a span for each attempt, a start hands the
// trace of its caller on to the run:
//
//	worker := bide.NewWorker(store, bide.WorkerConfig{Intercept: otel.Intercept(provider)})
//	run, err := Research.Start(ctx, client, topic, otel.Traceparent(ctx))
//
// There is no span for a run or a wait: a span ends in the process that began it,
// and those may last for weeks and outlive many.
package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/bide-dev/bide"
)

const traceparent = "traceparent"

// Intercept is for [bide.WorkerConfig].Intercept: each attempt of a step, check of
// a poll and iteration of a loop is a span, called "step write" or "poll job". What
// is replayed has none. Its parent is the span that started the run, see
// [Traceparent]; a run that was started without one has a trace for each attempt.
//
// Attributes are bide.run, bide.workflow, bide.step (the name of the step, poll or
// loop) and bide.attempt; of an error, its text as the span's status and its code
// ([bide.Code]) as error.type. What went in and came out is not told.
func Intercept(provider trace.TracerProvider) func(context.Context, bide.Call) (context.Context, func(error)) {
	tracer := provider.Tracer("github.com/bide-dev/bide/otel")
	return func(ctx context.Context, c bide.Call) (context.Context, func(error)) {
		options := []trace.SpanStartOption{trace.WithAttributes(
			attribute.String("bide.run", c.Run),
			attribute.String("bide.workflow", c.Workflow),
			attribute.String("bide.step", c.Name),
			attribute.Int("bide.attempt", c.Attempt),
		)}
		parent := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: c.Trace})
		if from := trace.SpanContextFromContext(parent); from.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, from)
		} else { // not that of whoever started the worker
			options = append(options, trace.WithNewRoot())
		}
		ctx, span := tracer.Start(ctx, c.Kind.String()+" "+c.Name, options...)
		return ctx, func(err error) {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
				if code := bide.Code(err); code != "" {
					span.SetAttributes(attribute.String("error.type", code))
				}
			}
			span.End()
		}
	}
}

// Traceparent lets the run go on in the trace of ctx; without one it changes nothing.
func Traceparent(ctx context.Context) bide.StartOption {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return bide.Trace(carrier[traceparent])
}
