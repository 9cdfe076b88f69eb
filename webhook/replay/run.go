// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"sluice.dev/webhook/decisionlog"
)

// Log is a stream of records.
type Log struct {
	// Name is that of the file, and Open opens it.
	Name string
	Open func() (io.ReadCloser, error)
}

// Options select decisions.
type Options struct {
	// Since and Until limit the time of the decisions, in machine time, without Until; zero means no limit.
	Since, Until time.Time
	// Project is the only project; empty means all.
	Project string
	// Examples is the largest number of examples of each outcome.
	Examples int
	// Progress is called from time to time with the number of lines read, if it is set.
	Progress func(lines int)
}

// includes reports whether a record is selected.
func (o *Options) includes(record *decisionlog.Record) bool {
	return (o.Project == "" || record.Project == o.Project) &&
		(o.Since.IsZero() || !record.Time.Before(o.Since)) && (o.Until.IsZero() || record.Time.Before(o.Until))
}

// line is a line of a log on its way to its result.
type line struct {
	text    []byte
	record  *decisionlog.Record
	err     error
	decided bool
	result  Result
	done    chan struct{}
}

// linesInFlight is the number of lines for each processor that wait for a processor or for the result of an earlier one.
const linesInFlight = 16

// Run repeats the decisions of logs, on all processors, and returns what differs. It holds a few records in memory, however long the
// logs are. A log that cannot be read to its end is reported in the summary; the error is that of ctx, or of opening a log.
func (r *Replayer) Run(ctx context.Context, logs []Log, options Options) (*Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	processors := runtime.GOMAXPROCS(0)
	work := make(chan *line)
	inOrder := make(chan *line, linesInFlight*processors)
	summary := newSummary(options.Examples)
	for range processors {
		go func() {
			for next := range work {
				r.process(ctx, next, &options)
			}
		}()
	}
	var skipped decisionlog.Skipped
	var problems []string
	var failed error
	go func() {
		defer close(inOrder)
		defer close(work)
		for _, log := range logs {
			source, err := log.Open()
			if err != nil {
				failed = err
				return
			}
			err = readLog(ctx, source, &skipped, work, inOrder)
			_ = source.Close() // it was only read
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", log.Name, err))
			}
		}
	}()
	lines := 0
	for next := range inOrder {
		select {
		case <-next.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if lines++; options.Progress != nil {
			options.Progress(lines)
		}
		summary.add(next)
	}
	if err := errors.Join(failed, ctx.Err()); err != nil {
		return nil, err
	}
	summary.Problems = problems
	summary.Skipped.Add(skipped)
	summary.finish()
	return summary, nil
}

// readLog sends the lines of a log to the workers, and in their order to the summary.
func readLog(ctx context.Context, source io.Reader, skipped *decisionlog.Skipped, work, inOrder chan<- *line) error {
	reader, err := decisionlog.NewReader(source)
	if err != nil {
		return err
	}
	defer func() { skipped.Add(reader.Skipped) }()
	for {
		text, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		next := &line{text: slices.Clone(text), done: make(chan struct{})}
		for _, to := range []chan<- *line{inOrder, work} {
			select {
			case to <- next:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// process parses a line, and repeats its decision.
func (r *Replayer) process(ctx context.Context, next *line, options *Options) {
	defer close(next.done)
	next.record, next.err = decisionlog.Parse(next.text)
	next.text = nil
	if next.err != nil || !options.includes(next.record) {
		next.decided = false
		return
	}
	// A final pod, and one of a repeated call, has the changes of the recorded policies: it would be another one.
	isFirst := next.record.Webhook != FinalPods && !next.record.Repeated
	if next.decided = isFirst && r.IsDecision(next.record); next.decided {
		next.result = r.Replay(ctx, next.record)
	}
	next.record.Input, next.record.Patch = nil, nil
}
