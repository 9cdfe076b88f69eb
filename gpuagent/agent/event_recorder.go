// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

const (
	// maxQueuedEvents is the number of events that wait while the API server does not answer.
	maxQueuedEvents = 100
	// eventSeriesPeriod is the time within which a repeated event counts up the former one.
	eventSeriesPeriod = 6 * time.Minute
	// maxEventAttempts and eventRetryInterval limit the attempts to write an event without an answer.
	maxEventAttempts   = 12
	eventRetryInterval = 10 * time.Second
)

// eventRecorder writes events about the node as client-go's recorder does, which would link the types
// of all of Kubernetes.
type eventRecorder struct {
	client interface {
		createEvent(ctx context.Context, event *eventsv1.Event) error
		patchEvent(ctx context.Context, namespace, name string, patch []byte) error
	}
	log      logr.Logger
	instance string // that reports
	queue    chan *eventsv1.Event
	// series are the last events by series. Only start uses it.
	series map[eventSeries]*eventsv1.Event
}

// eventSeries identifies equal events.
type eventSeries struct {
	regarding            corev1.ObjectReference
	kind, reason, action string
}

func newEventRecorder(client *kubeClient, logger logr.Logger) *eventRecorder {
	host, _ := os.Hostname()
	return &eventRecorder{
		client: client, log: logger, instance: v1alpha1.FieldManagerGPUAgent + "-" + host,
		queue: make(chan *eventsv1.Event, maxQueuedEvents), series: map[eventSeries]*eventsv1.Event{},
	}
}

// record has an event about the node written. It does not wait.
func (e *eventRecorder) record(node *corev1.Node, kind, reason, action, note string) {
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", node.Name, now.UnixNano()), Namespace: metav1.NamespaceDefault},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: v1alpha1.FieldManagerGPUAgent,
		ReportingInstance:   e.instance,
		Regarding:           corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: node.UID},
		Type:                kind, Reason: reason, Action: action, Note: note,
	}
	select {
	case e.queue <- event:
	default:
		e.log.Info("Dropped event, because too many wait to be written", "reason", reason, "note", note)
	}
}

// start writes the recorded events until ctx ends.
func (e *eventRecorder) start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-e.queue:
			e.write(ctx, event)
		}
	}
}

// write writes an event. It tries again while the API server does not answer.
func (e *eventRecorder) write(ctx context.Context, event *eventsv1.Event) {
	for attempt := 1; ; attempt++ {
		err := e.tryWrite(ctx, event)
		if err == nil || ctx.Err() != nil {
			return
		}
		if rejected := apierrors.APIStatus(nil); errors.As(err, &rejected) || attempt == maxEventAttempts {
			e.log.Error(err, "Failed to write event", "reason", event.Reason, "note", event.Note)
			return
		}
		sleep(ctx, eventRetryInterval, nil)
	}
}

// tryWrite creates an event, or counts up the former one of its series.
func (e *eventRecorder) tryWrite(ctx context.Context, event *eventsv1.Event) error {
	key := eventSeries{event.Regarding, event.Type, event.Reason, event.Action}
	if former := e.series[key]; former != nil {
		series := eventsv1.EventSeries{Count: 2, LastObservedTime: event.EventTime}
		last := former.EventTime
		if former.Series != nil {
			series.Count, last = former.Series.Count+1, former.Series.LastObservedTime
		}
		if event.EventTime.Sub(last.Time) < eventSeriesPeriod {
			patch, err := json.Marshal(map[string]any{"series": series})
			if err != nil {
				return err
			}
			if err = e.client.patchEvent(ctx, former.Namespace, former.Name, patch); err == nil {
				former.Series = &series
			}
			if !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	// An event that exists already was created by an attempt without an answer.
	if err := e.client.createEvent(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	e.series[key] = event
	return nil
}
