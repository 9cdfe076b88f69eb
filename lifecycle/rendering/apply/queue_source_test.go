// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/v1alpha1"
)

// queueStub is a queue that records the requests.
type queueStub struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	names []string
}

func (a *queueStub) AddAfter(request reconcile.Request, _ time.Duration) {
	a.names = append(a.names, request.Name)
}

// A scheduler writes a status with every pod, which enqueues nothing. All that
// lifecycle renders is.
func TestChangeEnqueuesSubjects(t *testing.T) {
	object := func(change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			UID: "1", Generation: 1, ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelProject: "thesis"},
		}}
		for _, change := range change {
			change(o)
		}
		return o
	}
	tests := map[string]struct {
		before, after *metav1.PartialObjectMetadata
		want          []string
	}{
		"a status":        {object(), object(func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "2" }), nil},
		"a spec":          {object(), object(func(o *metav1.PartialObjectMetadata) { o.Generation = 2 }), []string{"thesis"}},
		"an annotation":   {object(), object(func(o *metav1.PartialObjectMetadata) { o.Annotations = map[string]string{"a": "b"} }), []string{"thesis"}},
		"created again":   {object(), object(func(o *metav1.PartialObjectMetadata) { o.UID = "2" }), []string{"thesis"}},
		"being deleted":   {object(), object(func(o *metav1.PartialObjectMetadata) { o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), []string{"thesis"}},
		"another's":       {object(), object(func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{v1alpha1.LabelProject: "other"} }), []string{"other", "thesis"}},
		"a label off":     {object(), object(func(o *metav1.PartialObjectMetadata) { o.Labels = nil }), []string{"thesis"}},
		"comes":           {nil, object(), []string{"thesis"}},
		"goes":            {object(), nil, []string{"thesis"}},
		"of a department": {nil, object(func(o *metav1.PartialObjectMetadata) { o.Labels = map[string]string{v1alpha1.LabelDepartment: "cs"} }), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var queue queueStub
			w := &QueueWatcher{listeners: []queueListener{{ctx: t.Context(), subject: SubjectProject, queue: &queue}}}
			w.handleChange(tc.before, tc.after)
			slices.Sort(queue.names)
			if diff := cmp.Diff(tc.want, queue.names); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// When a kind of an engine comes or goes, every subject may want something else,
// but not those of a controller that has ended.
func TestNewKindEnqueuesAllSubjects(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var working, ended queueStub
	all := func(context.Context) []reconcile.Request {
		requests := make([]reconcile.Request, 2)
		requests[0].Name, requests[1].Name = "a", "b"
		return requests
	}
	w := &QueueWatcher{listeners: []queueListener{{ctx: t.Context(), queue: &working, listRequests: all}, {ctx: over, queue: &ended, listRequests: all}}}
	w.enqueueAll()
	if diff := cmp.Diff([]string{"a", "b"}, working.names); diff != "" || len(ended.names) > 0 {
		t.Errorf("(-want +got)\n%s%v", diff, ended.names)
	}
}
