// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decisionlog

import (
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The limits of the queue. An entry holds the objects of its request.
const (
	maxQueued      = 4096
	maxQueuedBytes = 32 << 20
	// entryBytes is what an entry takes beside the objects.
	entryBytes = 1 << 10
)

// closeTimeout limits the time for which Close writes what is queued, in machine time.
const closeTimeout = 3 * time.Second

// Options configure a Log.
type Options struct {
	// Output receives each record as a line, if it is set.
	Output io.Writer
	// File is where records are written too; nil for nowhere.
	File *File
	// Objects records the whole input of decisions, without the texts that Mask matches and Unmasked does not.
	Objects        bool
	Mask, Unmasked []string
	// Logger reports outputs that cannot be written, once until they can again.
	Logger logr.Logger
}

// Log writes records. It is safe for concurrent use.
type Log struct {
	mask, unmasked []Pattern
	objects        bool
	outputs        []*output
	queue          chan Entry
	queued         atomic.Int64
	ended          chan struct{}
	stop           chan struct{}
}

// output is one place where records are written.
type output struct {
	name   string
	writer io.Writer
	logger logr.Logger
	failed bool
}

// New returns a Log that writes until it is closed. The error has the pattern that is wrong.
func New(options Options) (*Log, error) {
	l := &Log{objects: options.Objects, queue: make(chan Entry, maxQueued), ended: make(chan struct{}), stop: make(chan struct{})}
	var err error
	if l.mask, err = parsePatterns(options.Mask); err != nil {
		return nil, err
	}
	if l.unmasked, err = parsePatterns(options.Unmasked); err != nil {
		return nil, err
	}
	if options.Output != nil {
		l.outputs = append(l.outputs, &output{name: "stdout", writer: options.Output, logger: options.Logger})
	}
	if options.File != nil {
		l.outputs = append(l.outputs, &output{name: "file", writer: options.File, logger: options.Logger})
	}
	go l.run()
	return l, nil
}

// Add queues an answer, and returns at once. It drops and counts an answer for which the queue has no room. A nil Log records
// nothing.
func (l *Log) Add(e Entry) {
	if l == nil || len(l.outputs) == 0 {
		return
	}
	if !l.objects || e.Tenant == nil {
		e.omitObjects()
	}
	size := e.bytes()
	if l.queued.Add(size) <= maxQueuedBytes {
		select {
		case l.queue <- e:
			return
		default:
		}
	}
	l.queued.Add(-size)
	dropped.WithLabelValues("queue").Inc()
}

// Close writes what is queued, for a few seconds at most, and ends. No answer is added after it.
func (l *Log) Close() {
	close(l.stop)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-l.ended:
	case <-ctx.Done(): // an output blocks
	}
}

func (l *Log) run() {
	defer close(l.ended)
	for {
		select {
		case e := <-l.queue:
			l.write(&e)
		case <-l.stop:
			for {
				select {
				case e := <-l.queue:
					l.write(&e)
				default:
					return
				}
			}
		}
	}
}

// write writes the record of an entry to each output.
func (l *Log) write(e *Entry) {
	defer l.queued.Add(-e.bytes())
	record, err := e.complete(l.objects, l.mask, l.unmasked)
	if err != nil { // its object is no valid JSON: the record goes without it
		record = &e.Record
		record.Input, record.Patch, record.Masked = nil, nil, nil
	}
	line, err := json.Marshal(record)
	if err != nil {
		dropped.WithLabelValues("encode").Inc()
		return
	}
	line = append(line, '\n')
	for _, o := range l.outputs {
		o.write(line)
	}
}

func (o *output) write(line []byte) {
	if _, err := o.writer.Write(line); err != nil {
		dropped.WithLabelValues(o.name).Inc()
		if !o.failed {
			o.logger.Error(err, "Failed to write decision records, dropping them until it succeeds", "output", o.name)
		}
		o.failed = true
		return
	}
	if o.failed {
		o.logger.Info("Writes decision records again", "output", o.name)
	}
	o.failed = false
	written.WithLabelValues(o.name).Inc()
}

var (
	written = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_decision_records_total",
		Help: "Records of decisions that were written, by output: stdout or file.",
	}, []string{"output"})
	dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_decision_records_dropped_total",
		Help: "Records of decisions that were dropped, by reason: queue (too many were waiting), encode, or the output that could " +
			"not be written, stdout or file.",
	}, []string{"reason"})
)

func init() {
	metrics.Registry.MustRegister(written, dropped)
	for _, reason := range []string{"queue", "encode", "stdout", "file"} {
		dropped.WithLabelValues(reason)
	}
}
