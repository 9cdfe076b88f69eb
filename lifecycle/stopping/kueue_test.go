// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workload/kinds"
	"sluice.dev/lifecycle/stopping"
)

func queued(t *testing.T, name, uid string) *unstructured.Unstructured {
	t.Helper()
	workload := made(t, schema.GroupKind{Group: kinds.WorkloadGroup, Kind: "Workload"}, `{metadata: {labels: {kueue.x-k8s.io/job-uid: `+uid+`}}, spec: {active: true}}`)
	workload.SetName(name)
	workload.SetUID("uid-of-" + workload.GetUID())
	return workload
}

// What Kueue holds is first deactivated: Kueue would start again what is only
// suspended. It is started by its Workload, too.
func TestAQueuedJob(t *testing.T) {
	job := made(t, kindOf("batch", "Job"), `spec: {suspend: false}`)
	mine, others := queued(t, "job-x-1a2b3", "uid-of-x"), queued(t, "job-y-4c5d6", "uid-of-y")
	w := newWorld(t, job, mine, others)
	s := w.stopper()
	var order []string
	w.fail = func(verb string, object client.Object) error {
		if verb == "patch" {
			order = append(order, object.GetName())
		}
		return nil
	}
	if err := s.Stop(t.Context(), target(job), until, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"job-x-1a2b3", "x"}, order); diff != "" {
		t.Errorf("written in this order: %s", diff)
	}
	for _, object := range []*unstructured.Unstructured{job, mine} {
		stopped := w.now(t, object)
		if at, is := kinds.StoppedUntil(stopped); kinds.AsksToRun(stopped) || !is || !at.Equal(until) {
			t.Errorf("%s asks to run, or is not marked", object.GetName())
		}
	}
	if !kinds.AsksToRun(w.now(t, others)) {
		t.Error("another Job's Workload was stopped")
	}
	got, err := s.Commands(t.Context(), target(job))
	want := []string{`kubectl patch workloads.kueue.x-k8s.io/job-x-1a2b3 -n thesis-mueller --type=merge -p '{"spec":{"active":true}}'`}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if err := s.Release(t.Context(), target(job)); err != nil {
		t.Fatal(err)
	}
	for _, object := range []*unstructured.Unstructured{job, mine} {
		if _, is := kinds.StoppedUntil(w.now(t, object)); is {
			t.Errorf("%s is marked after its release", object.GetName())
		}
	}
}

// Without the right to Kueue's objects the Job is suspended all the same, and the
// failure is told.
func TestAQueuedJobWithoutRights(t *testing.T) {
	for _, verb := range []string{"list", "patch"} {
		t.Run(verb, func(t *testing.T) {
			job, workload := made(t, kindOf("batch", "Job"), `spec: {suspend: false}`), queued(t, "job-x-1a2b3", "uid-of-x")
			w := newWorld(t, job, workload)
			w.fail = func(asked string, object client.Object) error {
				if asked == verb && (object == nil || object.GetName() != "x") {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "workloads"}, "", errBecause)
				}
				return nil
			}
			if err := w.stopper().Stop(t.Context(), target(job), until, ""); !errors.Is(err, stopping.ErrForbidden) {
				t.Errorf("%v", err)
			}
			if kinds.AsksToRun(w.now(t, job)) {
				t.Error("the Job asks to run")
			}
		})
	}
}
