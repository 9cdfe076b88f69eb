// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload/kinds"
	"sluice.dev/lifecycle/stopping"
)

var (
	jobs       = schema.GroupResource{Group: "batch", Resource: "jobs"}
	errBecause = errors.New("because")
)

// Each failure is told apart, and the API server's own error stays to be asked.
func TestErrorsAreToldApart(t *testing.T) {
	all := []error{stopping.ErrGone, stopping.ErrForbidden, stopping.ErrConflict, stopping.ErrUnsupported}
	tests := map[string]struct {
		on       string
		err      error
		want     error
		original func(error) bool
	}{
		"not there any more":       {"patch", apierrors.NewNotFound(jobs, "x"), stopping.ErrGone, apierrors.IsNotFound},
		"no right to read":         {"get", apierrors.NewForbidden(jobs, "x", errBecause), stopping.ErrForbidden, apierrors.IsForbidden},
		"no right to patch":        {"patch", apierrors.NewForbidden(jobs, "x", errBecause), stopping.ErrForbidden, apierrors.IsForbidden},
		"changed again and again":  {"patch", apierrors.NewConflict(jobs, "x", errBecause), stopping.ErrConflict, apierrors.IsConflict},
		"the API server is busy":   {"patch", apierrors.NewTooManyRequests("later", 1), nil, apierrors.IsTooManyRequests},
		"the API server is broken": {"get", apierrors.NewInternalError(errBecause), nil, apierrors.IsInternalError},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := made(t, kindOf("batch", "Job"), `spec: {suspend: false}`)
			w := newWorld(t, object)
			w.fail = func(verb string, _ client.Object) error {
				if verb == tc.on {
					return tc.err
				}
				return nil
			}
			err := w.stopper().Stop(t.Context(), target(object), until, "")
			if !tc.original(err) {
				t.Errorf("%v", err)
			}
			for _, class := range all {
				if got, want := errors.Is(err, class), errors.Is(tc.want, class); got != want {
					t.Errorf("is %q: %v, want %v", class, got, want)
				}
			}
			if want := 4; errors.Is(err, stopping.ErrConflict) && w.writes != want {
				t.Errorf("%d writes, want %d tries", w.writes, want)
			}
		})
	}
}

// Who was quicker is read again: what changed meanwhile is not undone.
func TestAConflictIsReadAgain(t *testing.T) {
	object := made(t, kindOf("apps", "Deployment"), `spec: {replicas: 3}`)
	w := newWorld(t, object)
	first := true
	w.fail = func(verb string, _ client.Object) error {
		if verb == "patch" && first {
			first = false
			w.fail = nil
			w.change(t, object, `spec: {replicas: 7}`)
		}
		return nil
	}
	if err := w.stopper().Stop(t.Context(), target(object), until, ""); err != nil {
		t.Fatal(err)
	}
	if stopped := w.now(t, object); kinds.AsksToRun(stopped) || kinds.ReplicasBefore(stopped) != 7 {
		t.Errorf("%v", stopped.Object)
	}
}

// Its author filled its annotations until ours does not fit.
func TestAFullObjectIsStoppedWithoutAMark(t *testing.T) {
	for name, full := range map[string]error{
		"annotations": apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "x", nil),
		"etcd":        apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
	} {
		t.Run(name, func(t *testing.T) {
			object := made(t, kindOf("batch", "Job"), `spec: {suspend: false}`)
			w := newWorld(t, object)
			w.fail = func(verb string, _ client.Object) error {
				if verb == "patch" && w.writes == 1 {
					return full
				}
				return nil
			}
			if err := w.stopper().Stop(t.Context(), target(object), until, ""); err != nil {
				t.Fatal(err)
			}
			stopped := w.now(t, object)
			if _, marked := kinds.StoppedUntil(stopped); kinds.AsksToRun(stopped) || marked {
				t.Errorf("%v", stopped.Object)
			}
			w.fail = func(verb string, _ client.Object) error {
				if verb == "patch" {
					return full
				}
				return nil
			}
			w2 := made(t, kindOf("batch", "Job"), `spec: {suspend: false}`)
			again := newWorld(t, w2)
			again.fail = w.fail
			if err := again.stopper().Stop(t.Context(), target(w2), until, ""); err == nil {
				t.Error("neither could be written, and that is no error")
			}
		})
	}
}

// Some operators let nothing be changed of what has ended.
func TestWhatHasEndedMayRefuse(t *testing.T) {
	object := made(t, kindOf("tekton.dev", "PipelineRun"), `status: {conditions: [{type: Succeeded, status: "True"}]}`)
	w := newWorld(t, object)
	w.fail = func(verb string, _ client.Object) error {
		if verb == "patch" {
			return apierrors.NewBadRequest("a done PipelineRun cannot be changed")
		}
		return nil
	}
	if err := w.stopper().Stop(t.Context(), target(object), until, ""); err != nil {
		t.Error(err)
	}
}

// A pod that is its own root says why it goes, and goes.
func TestAPodIsDeleted(t *testing.T) {
	object := made(t, kindOf("", "Pod"), `{spec: {containers: [{name: main, image: torch}]}, status: {phase: Running}}`)
	w := newWorld(t, object)
	var order []string
	w.fail = func(verb string, _ client.Object) error {
		if verb != "get" {
			order = append(order, verb)
		}
		return nil
	}
	if err := w.stopper().Stop(t.Context(), target(object), until, strings.Repeat("ä", 2000)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(order, "delete") {
		t.Errorf("%v", order)
	}
	expectState(t, w.stopper(), object, stopping.Gone)
	if err := w.stopper().Stop(t.Context(), target(object), until, ""); !errors.Is(err, stopping.ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestPodsThatAreNotDeleted(t *testing.T) {
	tests := map[string]struct {
		rest string
		want error
	}{
		"a controller's": {`{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]}, status: {phase: Running}}`, stopping.ErrUnsupported},
		"a node's own":   {`{metadata: {annotations: {kubernetes.io/config.mirror: abc}}, status: {phase: Running}}`, stopping.ErrUnsupported},
		"ended":          {`{status: {phase: Succeeded}}`, nil},
		"on its way":     {`{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a/b]}, status: {phase: Running}}`, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := made(t, kindOf("", "Pod"), tc.rest)
			w := newWorld(t, object)
			if err := w.stopper().Stop(t.Context(), target(object), until, ""); !errors.Is(err, tc.want) {
				t.Errorf("%v", err)
			}
			if w.writes != 0 {
				t.Errorf("%d writes", w.writes)
			}
			if err := w.stopper().Release(t.Context(), target(object)); err != nil || w.writes != 0 {
				t.Errorf("released: %d writes, %v", w.writes, err)
			}
		})
	}
}

// What is never touched is not even read.
func TestNeverTouched(t *testing.T) {
	w := newWorld(t)
	w.fail = func(verb string, _ client.Object) error { return errors.New(verb) }
	for _, kind := range []schema.GroupKind{
		kindOf("", "Node"), kindOf("", "Namespace"), kindOf("apps", "DaemonSet"), kindOf("sluice.dev", "Project"),
		{Group: farm.Group, Kind: "Estate"}, // cluster-scoped
	} {
		err := w.stopper().Stop(t.Context(), stopping.Target{GroupVersionKind: kind.WithVersion(version), Namespace: namespace, Name: "x", UID: "u"}, until, "")
		if !errors.Is(err, stopping.ErrUnsupported) || !strings.Contains(err.Error(), "never touches a "+kind.Kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestAKindThatIsNotKnown(t *testing.T) {
	definition := func(version string) string {
		return `{metadata: {name: farms.example.org}, spec: {versions: [{name: v0, schema: {openAPIV3Schema: {properties: {spec: {properties: {suspend: {type: boolean}}}}}}}, ` + version + `]}}`
	}
	const (
		suspends = `{name: v1, schema: {openAPIV3Schema: {properties: {spec: {properties: {suspend: {type: boolean}}}}}}, subresources: {scale: {specReplicasPath: .spec.replicas}}}`
		words    = `{name: v1, schema: {openAPIV3Schema: {properties: {spec: {properties: {suspend: {type: string}}}}}}}`
		scales   = `{name: v1, subresources: {scale: {specReplicasPath: .spec.workers.count, statusReplicasPath: .status.workers}}}`
		bare     = `{name: v1}`
	)
	tests := map[string]struct {
		definition string
		deletes    bool
		path       []string
		want       error
		commands   []string
	}{
		"suspends":                {definition: definition(suspends), path: []string{"spec", "suspend"}, commands: []string{`kubectl patch farms.example.org/x -n thesis-mueller --type=merge -p '{"spec":{"suspend":false}}'`}},
		"scales":                  {definition: definition(scales), path: []string{"spec", "workers", "count"}, commands: []string{`kubectl patch farms.example.org/x -n thesis-mueller --type=merge -p '{"spec":{"workers":{"count":4}}}'`}},
		"suspend as a word":       {definition: definition(words), want: stopping.ErrUnsupported},
		"neither":                 {definition: definition(bare), want: stopping.ErrUnsupported},
		"neither, and deleted":    {definition: definition(bare), deletes: true},
		"no definition":           {want: stopping.ErrUnsupported},
		"no definition, not even": {deletes: true, want: stopping.ErrUnsupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := made(t, farm, `spec: {workers: {count: 4}}`)
			w := newWorld(t, object)
			if tc.definition != "" {
				d := made(t, definitions.GroupKind(), tc.definition)
				d.SetNamespace("")
				d.SetName("farms.example.org")
				if err := w.client.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			s := w.stopper()
			s.DeleteUnknown = tc.deletes
			err := s.Stop(t.Context(), target(object), until, "")
			switch {
			case !errors.Is(err, tc.want):
				t.Fatalf("%v", err)
			case tc.want != nil:
				if !kinds.AsksToRun(w.now(t, object)) || w.writes != 0 {
					t.Error("touched")
				}
				return
			case tc.deletes:
				expectState(t, s, object, stopping.Gone)
				return
			}
			expectState(t, s, object, stopping.Stopped)
			if w.writes != 1 || w.now(t, object).GetAnnotations()[v1alpha1.AnnotationStoppedUntil] == "" {
				t.Errorf("%d writes", w.writes)
			}
			if got, err := s.Commands(t.Context(), target(object)); err != nil || !slices.Equal(got, tc.commands) {
				t.Errorf("started by %q (%v)", got, err)
			}
			if err := s.Release(t.Context(), target(object)); err != nil || w.now(t, object).GetAnnotations()[v1alpha1.AnnotationStoppedUntil] != "" {
				t.Errorf("released: %v", err)
			}
		})
	}
}
