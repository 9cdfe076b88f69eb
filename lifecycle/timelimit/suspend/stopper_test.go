// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/suspend"
)

var stopUntil = time.Date(2026, 11, 21, 19, 0, 0, 0, time.UTC)

// Each known kind: running, stopped in one write, released, and started again by its owner.
func TestStopEachKind(t *testing.T) {
	for _, kind := range workloadkind.All() {
		if kind.StopAction.Method == workloadkind.StopNever || kind.StopAction.Method == workloadkind.StopByDeletion {
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			before := newObject(t, kind.GroupKind, `{metadata: {annotations: {mine: "1"}}, spec: {replicas: 3, other: kept}}`)
			w := newFakeAPI(t, before)
			s := w.stopper()
			has, _, _ := unstructured.NestedString(w.get(t, before).Object, "spec", "other") // not a field of the kinds of Kubernetes
			expectState(t, s, before, suspend.StateRunning)

			if err := s.Stop(t.Context(), targetOf(before), stopUntil, "48h are over"); err != nil {
				t.Fatal(err)
			}
			if w.writes != 1 {
				t.Errorf("%d writes, want action and annotation in one", w.writes)
			}
			stopped := w.get(t, before)
			if kind.RequestsPods(stopped) {
				t.Errorf("it requests pods: %v", stopped.Object)
			}
			if at, is := workloadkind.ParseStoppedUntil(stopped); !is || !at.Equal(stopUntil) {
				t.Errorf("stopped until %v (%v)", at, is)
			}
			if mine := stopped.GetAnnotations()["mine"]; mine != "1" {
				t.Error("another annotation is lost")
			}
			if other, _, _ := unstructured.NestedString(stopped.Object, "spec", "other"); other != has {
				t.Error("the rest of the spec is lost")
			}
			if scaled := kind.StopAction.Method == workloadkind.StopByScaling; scaled && workloadkind.PreviousReplicas(stopped) != 3 {
				t.Errorf("%d replicas are recorded, want 3", workloadkind.PreviousReplicas(stopped))
			}
			expectState(t, s, before, suspend.StateStopped)

			if err := s.Stop(t.Context(), targetOf(before), stopUntil, ""); err != nil || w.writes != 1 {
				t.Errorf("stopping a stopped workload: %d writes, %v", w.writes, err)
			}
			if err := s.Stop(t.Context(), targetOf(before), time.Time{}, ""); err != nil {
				t.Fatal(err)
			}
			if at, is := workloadkind.ParseStoppedUntil(w.get(t, before)); !is || !at.IsZero() {
				t.Errorf("without end: %v", at)
			}
			if n := workloadkind.PreviousReplicas(w.get(t, before)); kind.StopAction.Method == workloadkind.StopByScaling && n != 3 {
				t.Errorf("%d replicas are recorded after another stop", n)
			}

			if err := s.Release(t.Context(), targetOf(before)); err != nil {
				t.Fatal(err)
			}
			released := w.get(t, before)
			if _, is := workloadkind.ParseStoppedUntil(released); is || kind.RequestsPods(released) {
				t.Errorf("after its release: %v", released.Object)
			}
			w.writes = 0
			if err := s.Release(t.Context(), targetOf(before)); err != nil || w.writes != 0 {
				t.Errorf("releasing a released workload: %d writes, %v", w.writes, err)
			}
		})
	}
}

func expectState(t *testing.T, s *suspend.Stopper, object *unstructured.Unstructured, want suspend.State) {
	t.Helper()
	got, err := s.ObserveState(t.Context(), targetOf(object))
	if err != nil || got != want {
		t.Errorf("state %s (%v), want %s", got, err, want)
	}
}

func TestObserveState(t *testing.T) {
	tests := map[string]struct {
		group, kind, rest string
		want              suspend.State
	}{
		"a Job with pods left":         {"batch", "Job", `{spec: {suspend: true}, status: {active: 2}}`, suspend.StateStopping},
		"a Job without":                {"batch", "Job", `{spec: {suspend: true}, status: {}}`, suspend.StateStopped},
		"a Job that is complete":       {"batch", "Job", `{status: {conditions: [{type: Complete, status: "True"}]}}`, suspend.StateStopped},
		"a Deployment that scales":     {"apps", "Deployment", `{spec: {replicas: 0}, status: {replicas: 3}}`, suspend.StateStopping},
		"a Deployment that has scaled": {"apps", "Deployment", `{spec: {replicas: 0}, status: {replicas: 0}}`, suspend.StateStopped},
		"a pod":                        {"", "Pod", `{status: {phase: Running}}`, suspend.StateRunning},
		"a pod that ended":             {"", "Pod", `{status: {phase: Failed}}`, suspend.StateStopped},
		"a pod being deleted":          {"", "Pod", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [x/y]}, status: {phase: Running}}`, suspend.StateStopping},
		"a CronJob whose Job runs":     {"batch", "CronJob", `{spec: {suspend: true}, status: {active: [{name: x-1}]}}`, suspend.StateStopped},
		"a Job that is being deleted":  {"batch", "Job", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [x/y]}}`, suspend.StateRunning},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := newObject(t, groupKind(tc.group, tc.kind), tc.rest)
			expectState(t, newFakeAPI(t, object).stopper(), object, tc.want)
		})
	}
}

// Another object that has the name now is not changed.
func TestRecreatedObjectIsNotStopped(t *testing.T) {
	object := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`)
	w := newFakeAPI(t, object)
	other := targetOf(object)
	other.UID = "uid-of-the-one-before"
	s := w.stopper()
	for doing, err := range map[string]error{
		"stopping":  s.Stop(t.Context(), other, stopUntil, ""),
		"releasing": s.Release(t.Context(), other),
	} {
		if !errors.Is(err, suspend.ErrGone) || !strings.Contains(err.Error(), "Job thesis-mueller/x") {
			t.Errorf("%s: %v", doing, err)
		}
	}
	if state, err := s.ObserveState(t.Context(), other); state != suspend.StateGone || err != nil {
		t.Errorf("state %s (%v)", state, err)
	}
	if w.writes != 0 || !workloadkind.RequestsPods(w.get(t, object)) {
		t.Error("the new object was changed")
	}
	other = targetOf(object)
	other.Name = "never-was"
	if err := s.Stop(t.Context(), other, stopUntil, ""); !errors.Is(err, suspend.ErrGone) {
		t.Errorf("no object of that name: %v", err)
	}
}

// A target in a version that is not served any more is stopped in another version.
func TestStopWithUnservedVersion(t *testing.T) {
	object := newObject(t, groupKind("ray.io", "RayCluster"), `spec: {}`)
	w := newFakeAPI(t, object)
	old := targetOf(object)
	old.Version = "v1alpha1"
	if err := w.stopper().Stop(t.Context(), old, stopUntil, ""); err != nil || workloadkind.RequestsPods(w.get(t, object)) {
		t.Errorf("%v", err)
	}
	gone := targetOf(object)
	gone.Kind, gone.Group = "Shed", "example.com"
	if err := w.stopper().Stop(t.Context(), gone, stopUntil, ""); !errors.Is(err, suspend.ErrGone) {
		t.Errorf("an unserved kind: %v", err)
	}
}

// The stop action overwrites any value at its path.
func TestStopMalformedObjects(t *testing.T) {
	tests := map[string]struct{ group, kind, rest string }{
		"no spec":                       {"batch", "Job", `{}`},
		"a string as spec":              {"ray.io", "RayCluster", `spec: big`},
		"null as spec":                  {"ray.io", "RayCluster", `spec: null`},
		"suspend as a string":           {"ray.io", "RayCluster", `spec: {suspend: "true"}`},
		"suspend as an object":          {"ray.io", "RayCluster", `spec: {suspend: {now: true}}`},
		"a policy as a list":            {"kubeflow.org", "MPIJob", `spec: {runPolicy: [suspend]}`},
		"replicas absent":               {"leaderworkerset.x-k8s.io", "LeaderWorkerSet", `spec: {}`},
		"replicas as a string":          {"leaderworkerset.x-k8s.io", "LeaderWorkerSet", `spec: {replicas: "3"}`},
		"finalizers":                    {"ray.io", "RayCluster", `{metadata: {finalizers: [a/b]}, spec: {}}`},
		"being deleted, with finalizer": {"ray.io", "RayCluster", `{metadata: {finalizers: [a/b], deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {}}`},
		"an old annotation":             {"ray.io", "RayCluster", `{metadata: {annotations: {sluice.dev/stopped-until: "2020-01-01T00:00:00Z"}}, spec: {suspend: true}}`},
		"large":                         {"ray.io", "RayCluster", `{spec: {text: ` + strings.Repeat("x", 1<<20) + `}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := newObject(t, groupKind(tc.group, tc.kind), tc.rest)
			w := newFakeAPI(t, object)
			if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
				t.Fatal(err)
			}
			stopped := w.get(t, object)
			if at, is := workloadkind.ParseStoppedUntil(stopped); workloadkind.RequestsPods(stopped) || !is || !at.Equal(stopUntil) {
				t.Errorf("it requests pods: %v; stopped until %v", workloadkind.RequestsPods(stopped), at)
			}
		})
	}
}

// The owner already stopped it: only the annotation is missing.
func TestStopAnnotatesSuspendedObject(t *testing.T) {
	object := newObject(t, groupKind("apps", "Deployment"), `spec: {replicas: 0}`)
	w := newFakeAPI(t, object)
	if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{v1alpha1.AnnotationStoppedUntil: "2026-11-21T19:00:00Z"}
	if diff := cmp.Diff(want, w.get(t, object).GetAnnotations()); diff != "" {
		t.Error(diff)
	}
}

// A restarted workload is stopped again, and its new number of replicas recorded.
func TestStopRestartedObject(t *testing.T) {
	object := newObject(t, groupKind("apps", "Deployment"), `spec: {replicas: 3}`)
	w := newFakeAPI(t, object)
	s := w.stopper()
	if err := s.Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
		t.Fatal(err)
	}
	w.patchObject(t, object, `spec: {replicas: 5}`)
	expectState(t, s, object, suspend.StateRunning)
	if err := s.Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil || w.writes != 1 {
		t.Fatalf("%d writes, %v", w.writes, err)
	}
	if stopped := w.get(t, object); workloadkind.RequestsPods(stopped) || workloadkind.PreviousReplicas(stopped) != 5 {
		t.Errorf("%v", stopped.Object)
	}
	got, err := s.StartCommands(t.Context(), targetOf(object))
	if diff := cmp.Diff([]string{"kubectl scale deployments.apps/x -n thesis-mueller --replicas=5"}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

// A run of a CronJob is not suspended: it would stay active, and the CronJob with the
// concurrency policy Forbid would never start another. It fails, and its Kueue Workload with
// it.
func TestStopCronJobRun(t *testing.T) {
	const references = `ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: c, controller: true}]`
	for text, deadline := range map[string]int64{`{}`: 1, `{activeDeadlineSeconds: 86400}`: 1, `{activeDeadlineSeconds: 1}`: 1} {
		run := newObject(t, groupKind("batch", "Job"), `{metadata: {`+references+`}, spec: `+text+`}`)
		queued := newQueuedWorkload(t, "job-x-1a2b3", "uid-of-x")
		w := newFakeAPI(t, run, queued)
		s := w.stopper()
		for range 2 {
			if err := s.Stop(t.Context(), targetOf(run), stopUntil, ""); err != nil {
				t.Fatal(err)
			}
		}
		stopped := w.get(t, run)
		got, _, _ := unstructured.NestedInt64(stopped.Object, "spec", "activeDeadlineSeconds")
		_, suspended, _ := unstructured.NestedBool(stopped.Object, "spec", "suspend")
		if at, is := workloadkind.ParseStoppedUntil(stopped); got != deadline || suspended || !is || !at.Equal(stopUntil) || w.writes != 1 {
			t.Errorf("%s: after %d writes %v", text, w.writes, stopped.Object)
		}
		if !workloadkind.RequestsPods(w.get(t, queued)) {
			t.Errorf("%s: its Kueue Workload was deactivated, and Kueue would suspend the run", text)
		}
		if commands, err := s.StartCommands(t.Context(), targetOf(run)); len(commands) > 0 || err != nil {
			t.Errorf("%s: it is started by %q (%v)", text, commands, err)
		}
	}
}

// A Job that a user owns, or another controller, is suspended.
func TestStopJobOfOtherOwners(t *testing.T) {
	for _, references := range []string{
		`[{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: c}]`,
		`[{apiVersion: example.org/v1, kind: CronJob, name: nightly, uid: c, controller: true}]`,
	} {
		job := newObject(t, groupKind("batch", "Job"), `{metadata: {ownerReferences: `+references+`}}`)
		w := newFakeAPI(t, job)
		if err := w.stopper().Stop(t.Context(), targetOf(job), stopUntil, ""); err != nil || workloadkind.RequestsPods(w.get(t, job)) {
			t.Errorf("%s: %v, %v", references, err, w.get(t, job).Object)
		}
	}
}

func newQueuedWorkload(t *testing.T, name, uid string) *unstructured.Unstructured {
	t.Helper()
	workload := newObject(t, schema.GroupKind{Group: workloadkind.GroupKueue, Kind: "Workload"}, `{metadata: {labels: {kueue.x-k8s.io/job-uid: `+uid+`}}, spec: {active: true}}`)
	workload.SetName(name)
	workload.SetUID("uid-of-" + workload.GetUID())
	return workload
}

// The Kueue Workload is deactivated first, because Kueue resumes a Job that is only suspended.
// The Workload also starts it again.
func TestStopQueuedJob(t *testing.T) {
	job := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`)
	mine, others := newQueuedWorkload(t, "job-x-1a2b3", "uid-of-x"), newQueuedWorkload(t, "job-y-4c5d6", "uid-of-y")
	w := newFakeAPI(t, job, mine, others)
	s := w.stopper()
	var order []string
	w.callError = func(verb string, object client.Object) error {
		if verb == "patch" {
			order = append(order, object.GetName())
		}
		return nil
	}
	if err := s.Stop(t.Context(), targetOf(job), stopUntil, ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"job-x-1a2b3", "x"}, order); diff != "" {
		t.Errorf("order of writes: %s", diff)
	}
	for _, object := range []*unstructured.Unstructured{job, mine} {
		stopped := w.get(t, object)
		if at, is := workloadkind.ParseStoppedUntil(stopped); workloadkind.RequestsPods(stopped) || !is || !at.Equal(stopUntil) {
			t.Errorf("%s requests pods, or is not annotated", object.GetName())
		}
	}
	if !workloadkind.RequestsPods(w.get(t, others)) {
		t.Error("another Job's Workload was stopped")
	}
	got, err := s.StartCommands(t.Context(), targetOf(job))
	want := []string{`kubectl patch workloads.kueue.x-k8s.io/job-x-1a2b3 -n thesis-mueller --type=merge -p '{"spec":{"active":true}}'`}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if err := s.Release(t.Context(), targetOf(job)); err != nil {
		t.Fatal(err)
	}
	for _, object := range []*unstructured.Unstructured{job, mine} {
		if _, is := workloadkind.ParseStoppedUntil(w.get(t, object)); is {
			t.Errorf("%s is annotated after its release", object.GetName())
		}
	}
}

// A workload that Kueue suspends was not paused by its user, unless its Workload is inactive.
func TestIsPaused(t *testing.T) {
	const inQueue = `metadata: {labels: {kueue.x-k8s.io/queue-name: default}}`
	inactive := newQueuedWorkload(t, "job-x-1a2b3", "uid-of-x")
	if err := unstructured.SetNestedField(inactive.Object, false, "spec", "active"); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		group, kind, rest string
		queued            []*unstructured.Unstructured
		want              bool
	}{
		"a running Job":                     {"batch", "Job", `spec: {}`, nil, false},
		"a suspended Job":                   {"batch", "Job", `spec: {suspend: true}`, nil, true},
		"a Job without parallelism":         {"batch", "Job", `spec: {parallelism: 0}`, nil, true},
		"a scaled Deployment":               {"apps", "Deployment", `spec: {replicas: 0}`, nil, true},
		"a pod":                             {"", "Pod", `status: {phase: Running}`, nil, false},
		"a Job that Kueue suspended":        {"batch", "Job", inQueue + "\nspec: {suspend: true}", []*unstructured.Unstructured{newQueuedWorkload(t, "job-x-1a2b3", "uid-of-x")}, false},
		"a Job whose Workload is inactive":  {"batch", "Job", inQueue + "\nspec: {suspend: true}", []*unstructured.Unstructured{inactive}, true},
		"a Job with a queue, without Kueue": {"batch", "Job", inQueue + "\nspec: {suspend: true}", nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := newObject(t, groupKind(tc.group, tc.kind), tc.rest)
			got, err := newFakeAPI(t, append(tc.queued, object)...).stopper().IsPaused(t.Context(), object)
			if got != tc.want || err != nil {
				t.Errorf("paused: %v, %v", got, err)
			}
		})
	}
}

// Without permission for Kueue's objects the Job is suspended, and the error returned.
func TestStopQueuedJobForbidden(t *testing.T) {
	for _, verb := range []string{"list", "patch"} {
		t.Run(verb, func(t *testing.T) {
			job, workload := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`), newQueuedWorkload(t, "job-x-1a2b3", "uid-of-x")
			w := newFakeAPI(t, job, workload)
			w.callError = func(called string, object client.Object) error {
				if called == verb && (object == nil || object.GetName() != "x") {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "workloads"}, "", errTest)
				}
				return nil
			}
			if err := w.stopper().Stop(t.Context(), targetOf(job), stopUntil, ""); !errors.Is(err, suspend.ErrForbidden) {
				t.Errorf("%v", err)
			}
			if workloadkind.RequestsPods(w.get(t, job)) {
				t.Error("the Job requests pods")
			}
		})
	}
}
