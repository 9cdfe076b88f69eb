// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fakeEvents records the writes of events, and fails with the errors first.
type fakeEvents struct {
	failures []error
	writes   []string
}

func (f *fakeEvents) next(write string) error {
	if len(f.failures) > 0 {
		err := f.failures[0]
		f.failures = f.failures[1:]
		return err
	}
	f.writes = append(f.writes, write)
	return nil
}

func (f *fakeEvents) createEvent(_ context.Context, event *eventsv1.Event) error {
	return f.next("create " + event.Reason)
}

func (f *fakeEvents) patchEvent(_ context.Context, _, _ string, patch []byte) error {
	return f.next("patch " + string(patch))
}

// A repeated event counts up the former one, an event that is gone is made again, and the recorder waits for an
// API server that does not answer.
func TestEventRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeEvents{}
		e := &eventRecorder{
			client: sink, log: logr.Discard(), queue: make(chan *eventsv1.Event, 1), series: map[eventSeries]*eventsv1.Event{},
		}
		go func() { _ = e.start(t.Context()) }()
		step := func(name string, after time.Duration, reason string, failures []error, want ...string) {
			t.Helper()
			time.Sleep(after)
			sink.failures, sink.writes = failures, nil
			e.record(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-01"}}, corev1.EventTypeNormal, reason, "Repartition", "note")
			time.Sleep(time.Minute)
			synctest.Wait()
			if !slices.Equal(sink.writes, want) {
				t.Errorf("%s: wrote %q, want %q", name, sink.writes, want)
			}
		}
		gone := apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "a")
		invalid := apierrors.NewBadRequest("invalid")
		noAnswer := errors.New("connection refused")
		step("the first", 0, "A", nil, "create A")
		step("the same", 0, "A", nil, `patch {"series":{"count":2,"lastObservedTime":"2000-01-01T00:01:00.000000Z"}}`)
		step("another", 0, "B", nil, "create B")
		step("the same again", 0, "A", nil, `patch {"series":{"count":3,"lastObservedTime":"2000-01-01T00:03:00.000000Z"}}`)
		step("the same, but it is gone", 0, "A", []error{gone}, "create A")
		step("the same much later", eventSeriesPeriod, "A", nil, "create A")
		step("without an answer", 0, "C", []error{noAnswer, noAnswer}, "create C")
		step("rejected", 0, "D", []error{invalid})
		step("the next", 0, "D", nil, "create D")
	})
}
