// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/lifecycle/stopping"
)

var until = time.Date(2026, 11, 21, 19, 0, 0, 0, time.UTC)

// Each row of the table, through the whole life: running, stopped in one write,
// let go, and started again by its owner.
func TestEachKindIsStopped(t *testing.T) {
	for _, kind := range kinds.All() {
		if kind.Verb.Form == kinds.FormNever || kind.Verb.Form == kinds.FormDelete {
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			before := made(t, kind.GroupKind, `{metadata: {annotations: {mine: "1"}}, spec: {replicas: 3, other: kept}}`)
			w := newWorld(t, before)
			s := w.stopper()
			has, _, _ := unstructured.NestedString(w.now(t, before).Object, "spec", "other") // not a field of Kubernetes' own kinds
			expectState(t, s, before, stopping.Running)

			if err := s.Stop(t.Context(), target(before), until, "48h are over"); err != nil {
				t.Fatal(err)
			}
			if w.writes != 1 {
				t.Errorf("%d writes, want the verb and the mark in one", w.writes)
			}
			stopped := w.now(t, before)
			if kind.AsksToRun(stopped) {
				t.Errorf("it asks to run: %v", stopped.Object)
			}
			if at, is := kinds.StoppedUntil(stopped); !is || !at.Equal(until) {
				t.Errorf("stopped until %v (%v)", at, is)
			}
			if mine := stopped.GetAnnotations()["mine"]; mine != "1" {
				t.Error("another's annotation is lost")
			}
			if other, _, _ := unstructured.NestedString(stopped.Object, "spec", "other"); other != has {
				t.Error("the rest of the spec is lost")
			}
			if scaled := kind.Verb.Form == kinds.FormReplicas; scaled && kinds.ReplicasBefore(stopped) != 3 {
				t.Errorf("%d replicas are remembered, want 3", kinds.ReplicasBefore(stopped))
			}
			expectState(t, s, before, stopping.Stopped)

			if err := s.Stop(t.Context(), target(before), until, ""); err != nil || w.writes != 1 {
				t.Errorf("stopping what is stopped: %d writes, %v", w.writes, err)
			}
			if err := s.Stop(t.Context(), target(before), time.Time{}, ""); err != nil {
				t.Fatal(err)
			}
			if at, is := kinds.StoppedUntil(w.now(t, before)); !is || !at.IsZero() {
				t.Errorf("until somebody decides: %v", at)
			}
			if n := kinds.ReplicasBefore(w.now(t, before)); kind.Verb.Form == kinds.FormReplicas && n != 3 {
				t.Errorf("%d replicas are remembered after another stop", n)
			}

			if err := s.Release(t.Context(), target(before)); err != nil {
				t.Fatal(err)
			}
			released := w.now(t, before)
			if _, is := kinds.StoppedUntil(released); is || kind.AsksToRun(released) {
				t.Errorf("after its release: %v", released.Object)
			}
			w.writes = 0
			if err := s.Release(t.Context(), target(before)); err != nil || w.writes != 0 {
				t.Errorf("releasing what is released: %d writes, %v", w.writes, err)
			}
		})
	}
}

func expectState(t *testing.T, s *stopping.Stopper, object *unstructured.Unstructured, want stopping.State) {
	t.Helper()
	got, err := s.State(t.Context(), target(object))
	if err != nil || got != want {
		t.Errorf("it is %s (%v), want %s", got, err, want)
	}
}

func TestState(t *testing.T) {
	tests := map[string]struct {
		group, kind, rest string
		want              stopping.State
	}{
		"a Job with pods left":         {"batch", "Job", `{spec: {suspend: true}, status: {active: 2}}`, stopping.Stopping},
		"a Job without":                {"batch", "Job", `{spec: {suspend: true}, status: {}}`, stopping.Stopped},
		"a Job that is complete":       {"batch", "Job", `{status: {conditions: [{type: Complete, status: "True"}]}}`, stopping.Stopped},
		"a Deployment that scales":     {"apps", "Deployment", `{spec: {replicas: 0}, status: {replicas: 3}}`, stopping.Stopping},
		"a Deployment that has scaled": {"apps", "Deployment", `{spec: {replicas: 0}, status: {replicas: 0}}`, stopping.Stopped},
		"a pod":                        {"", "Pod", `{status: {phase: Running}}`, stopping.Running},
		"a pod that ended":             {"", "Pod", `{status: {phase: Failed}}`, stopping.Stopped},
		"a pod that goes":              {"", "Pod", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [x/y]}, status: {phase: Running}}`, stopping.Stopping},
		"a CronJob whose Job runs":     {"batch", "CronJob", `{spec: {suspend: true}, status: {active: [{name: x-1}]}}`, stopping.Stopped},
		"a Job that is being deleted":  {"batch", "Job", `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [x/y]}}`, stopping.Running},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := made(t, kindOf(tc.group, tc.kind), tc.rest)
			expectState(t, newWorld(t, object).stopper(), object, tc.want)
		})
	}
}

// The object that was meant, and no other that has its name now.
func TestWhatWasMadeAnewIsLeftAlone(t *testing.T) {
	object := made(t, kindOf("batch", "Job"), `spec: {suspend: false}`)
	w := newWorld(t, object)
	other := target(object)
	other.UID = "uid-of-the-one-before"
	s := w.stopper()
	for doing, err := range map[string]error{
		"stopping":  s.Stop(t.Context(), other, until, ""),
		"releasing": s.Release(t.Context(), other),
	} {
		if !errors.Is(err, stopping.ErrGone) || !strings.Contains(err.Error(), "Job thesis-mueller/x") {
			t.Errorf("%s: %v", doing, err)
		}
	}
	if state, err := s.State(t.Context(), other); state != stopping.Gone || err != nil {
		t.Errorf("it is %s (%v)", state, err)
	}
	if w.writes != 0 || !kinds.AsksToRun(w.now(t, object)) {
		t.Error("the new one was touched")
	}
	other = target(object)
	other.Name = "never-was"
	if err := s.Stop(t.Context(), other, until, ""); !errors.Is(err, stopping.ErrGone) {
		t.Errorf("nothing of that name: %v", err)
	}
}

// A version that the cluster does not serve any more is no reason to give up.
func TestAnotherVersion(t *testing.T) {
	object := made(t, kindOf("ray.io", "RayCluster"), `spec: {}`)
	w := newWorld(t, object)
	old := target(object)
	old.Version = "v1alpha1"
	if err := w.stopper().Stop(t.Context(), old, until, ""); err != nil || kinds.AsksToRun(w.now(t, object)) {
		t.Errorf("%v", err)
	}
	gone := target(object)
	gone.Kind, gone.Group = "Shed", "example.com"
	if err := w.stopper().Stop(t.Context(), gone, until, ""); !errors.Is(err, stopping.ErrGone) {
		t.Errorf("a kind that is not served: %v", err)
	}
}

// Whatever stands where the verb is written, afterwards it is the verb.
func TestOddObjectsAreStopped(t *testing.T) {
	tests := map[string]struct{ group, kind, rest string }{
		"no spec":               {"batch", "Job", `{}`},
		"a spec that is a word": {"ray.io", "RayCluster", `spec: big`},
		"a spec that is null":   {"ray.io", "RayCluster", `spec: null`},
		"suspend as a word":     {"ray.io", "RayCluster", `spec: {suspend: "true"}`},
		"suspend as an object":  {"ray.io", "RayCluster", `spec: {suspend: {now: true}}`},
		"a policy as a list":    {"kubeflow.org", "MPIJob", `spec: {runPolicy: [suspend]}`},
		"replicas absent":       {"leaderworkerset.x-k8s.io", "LeaderWorkerSet", `spec: {}`},
		"replicas as a word":    {"leaderworkerset.x-k8s.io", "LeaderWorkerSet", `spec: {replicas: "3"}`},
		"finalizers":            {"ray.io", "RayCluster", `{metadata: {finalizers: [a/b]}, spec: {}}`},
		"on its way out, held":  {"ray.io", "RayCluster", `{metadata: {finalizers: [a/b], deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {}}`},
		"an old mark":           {"ray.io", "RayCluster", `{metadata: {annotations: {sluice.dev/stopped-until: "2020-01-01T00:00:00Z"}}, spec: {suspend: true}}`},
		"large":                 {"ray.io", "RayCluster", `{spec: {text: ` + strings.Repeat("x", 1<<20) + `}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := made(t, kindOf(tc.group, tc.kind), tc.rest)
			w := newWorld(t, object)
			if err := w.stopper().Stop(t.Context(), target(object), until, ""); err != nil {
				t.Fatal(err)
			}
			stopped := w.now(t, object)
			if at, is := kinds.StoppedUntil(stopped); kinds.AsksToRun(stopped) || !is || !at.Equal(until) {
				t.Errorf("it asks to run: %v; stopped until %v", kinds.AsksToRun(stopped), at)
			}
		})
	}
}

// Its owner stopped it already: only the mark is missing.
func TestWhatItsOwnerStoppedIsMarked(t *testing.T) {
	object := made(t, kindOf("apps", "Deployment"), `spec: {replicas: 0}`)
	w := newWorld(t, object)
	if err := w.stopper().Stop(t.Context(), target(object), until, ""); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{v1alpha1.AnnotationStoppedUntil: "2026-11-21T19:00:00Z"}
	if diff := cmp.Diff(want, w.now(t, object).GetAnnotations()); diff != "" {
		t.Error(diff)
	}
}

// Started again behind our back, it is stopped again, and what it had then is
// remembered.
func TestStoppedAgain(t *testing.T) {
	object := made(t, kindOf("apps", "Deployment"), `spec: {replicas: 3}`)
	w := newWorld(t, object)
	s := w.stopper()
	if err := s.Stop(t.Context(), target(object), until, ""); err != nil {
		t.Fatal(err)
	}
	w.change(t, object, `spec: {replicas: 5}`)
	expectState(t, s, object, stopping.Running)
	if err := s.Stop(t.Context(), target(object), until, ""); err != nil || w.writes != 1 {
		t.Fatalf("%d writes, %v", w.writes, err)
	}
	if stopped := w.now(t, object); kinds.AsksToRun(stopped) || kinds.ReplicasBefore(stopped) != 5 {
		t.Errorf("%v", stopped.Object)
	}
	got, err := s.Commands(t.Context(), target(object))
	if diff := cmp.Diff([]string{"kubectl scale deployments.apps/x -n thesis-mueller --replicas=5"}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}
