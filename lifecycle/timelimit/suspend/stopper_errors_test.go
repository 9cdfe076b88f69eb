// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package suspend_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/timelimit/suspend"
)

var (
	jobResource = schema.GroupResource{Group: "batch", Resource: "jobs"}
	errTest     = errors.New("because")
)

// Each failure has its class, and wraps the API server's error.
func TestErrorClassification(t *testing.T) {
	all := []error{suspend.ErrGone, suspend.ErrForbidden, suspend.ErrConflict, suspend.ErrUnsupported}
	tests := map[string]struct {
		on       string
		err      error
		want     error
		original func(error) bool
	}{
		"not there any more":       {"patch", apierrors.NewNotFound(jobResource, "x"), suspend.ErrGone, apierrors.IsNotFound},
		"no right to read":         {"get", apierrors.NewForbidden(jobResource, "x", errTest), suspend.ErrForbidden, apierrors.IsForbidden},
		"no right to patch":        {"patch", apierrors.NewForbidden(jobResource, "x", errTest), suspend.ErrForbidden, apierrors.IsForbidden},
		"changed again and again":  {"patch", apierrors.NewConflict(jobResource, "x", errTest), suspend.ErrConflict, apierrors.IsConflict},
		"the API server is busy":   {"patch", apierrors.NewTooManyRequests("later", 1), nil, apierrors.IsTooManyRequests},
		"the API server is broken": {"get", apierrors.NewInternalError(errTest), nil, apierrors.IsInternalError},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`)
			w := newFakeAPI(t, object)
			w.callError = func(verb string, _ client.Object) error {
				if verb == tc.on {
					return tc.err
				}
				return nil
			}
			err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, "")
			if !tc.original(err) {
				t.Errorf("%v", err)
			}
			for _, class := range all {
				if got, want := errors.Is(err, class), errors.Is(tc.want, class); got != want {
					t.Errorf("is %q: %v, want %v", class, got, want)
				}
			}
			if want := 4; errors.Is(err, suspend.ErrConflict) && w.writes != want {
				t.Errorf("%d writes, want %d attempts", w.writes, want)
			}
		})
	}
}

// A conflicting change is read again and not undone.
func TestStopRetriesOnConflict(t *testing.T) {
	object := newObject(t, groupKind("apps", "Deployment"), `spec: {replicas: 3}`)
	w := newFakeAPI(t, object)
	first := true
	w.callError = func(verb string, _ client.Object) error {
		if verb == "patch" && first {
			first = false
			w.callError = nil
			w.patchObject(t, object, `spec: {replicas: 7}`)
		}
		return nil
	}
	if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
		t.Fatal(err)
	}
	if stopped := w.get(t, object); workloadkind.RequestsPods(stopped) || workloadkind.PreviousReplicas(stopped) != 7 {
		t.Errorf("%v", stopped.Object)
	}
}

// The author filled the annotations until Sluice's does not fit.
func TestStopWithFullAnnotations(t *testing.T) {
	for name, full := range map[string]error{
		"annotations": apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "x", nil),
		"etcd":        apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
	} {
		t.Run(name, func(t *testing.T) {
			object := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`)
			w := newFakeAPI(t, object)
			w.callError = func(verb string, _ client.Object) error {
				if verb == "patch" && w.writes == 1 {
					return full
				}
				return nil
			}
			if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
				t.Fatal(err)
			}
			stopped := w.get(t, object)
			if _, marked := workloadkind.ParseStoppedUntil(stopped); workloadkind.RequestsPods(stopped) || marked {
				t.Errorf("%v", stopped.Object)
			}
			w.callError = func(verb string, _ client.Object) error {
				if verb == "patch" {
					return full
				}
				return nil
			}
			w2 := newObject(t, groupKind("batch", "Job"), `spec: {suspend: false}`)
			again := newFakeAPI(t, w2)
			again.callError = w.callError
			if err := again.stopper().Stop(t.Context(), targetOf(w2), stopUntil, ""); err == nil {
				t.Error("both writes failed without an error")
			}
		})
	}
}

// Some operators refuse changes to finished objects.
func TestStopIgnoresRejectionByCompletedObject(t *testing.T) {
	object := newObject(t, groupKind("tekton.dev", "PipelineRun"), `status: {conditions: [{type: Succeeded, status: "True"}]}`)
	w := newFakeAPI(t, object)
	w.callError = func(verb string, _ client.Object) error {
		if verb == "patch" {
			return apierrors.NewBadRequest("a done PipelineRun cannot be changed")
		}
		return nil
	}
	if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, ""); err != nil {
		t.Error(err)
	}
}

// A pod that is a root gets a condition and is deleted. It can have a forged controller
// (invariant 4).
func TestStopDeletesRootPod(t *testing.T) {
	object := newObject(t, groupKind("", "Pod"), `{metadata: {ownerReferences: [{apiVersion: v1, kind: ResourceQuota, name: q, uid: u, controller: true}]}, spec: {containers: [{name: main, image: torch}]}, status: {phase: Running}}`)
	w := newFakeAPI(t, object)
	var order []string
	w.callError = func(verb string, _ client.Object) error {
		if verb != "get" {
			order = append(order, verb)
		}
		return nil
	}
	if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, strings.Repeat("ä", 2000)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(order, "delete") {
		t.Errorf("%v", order)
	}
	expectState(t, w.stopper(), object, suspend.StateGone)
	if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, ""); !errors.Is(err, suspend.ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestStopKeepsStaticAndEndedPods(t *testing.T) {
	tests := map[string]struct {
		rest string
		want error
	}{
		"a node's own": {`{metadata: {annotations: {kubernetes.io/config.mirror: abc}}, status: {phase: Running}}`, suspend.ErrUnsupported},
		"ended":        {`{status: {phase: Succeeded}}`, nil},
		"on its way":   {`{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a/b]}, status: {phase: Running}}`, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := newObject(t, groupKind("", "Pod"), tc.rest)
			w := newFakeAPI(t, object)
			if err := w.stopper().Stop(t.Context(), targetOf(object), stopUntil, ""); !errors.Is(err, tc.want) {
				t.Errorf("%v", err)
			}
			if w.writes != 0 {
				t.Errorf("%d writes", w.writes)
			}
			if err := w.stopper().Release(t.Context(), targetOf(object)); err != nil || w.writes != 0 {
				t.Errorf("released: %d writes, %v", w.writes, err)
			}
		})
	}
}

// EvictPod evicts a controller's pod, ignores one that is gone, and returns other errors.
func TestEvictPod(t *testing.T) {
	object := newObject(t, groupKind("", "Pod"), `{metadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]}, status: {phase: Running}}`)
	w := newFakeAPI(t, object)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", nil)
	w.callError = func(verb string, _ client.Object) error {
		if verb == "delete" {
			return forbidden
		}
		return nil
	}
	if err := w.stopper().EvictPod(t.Context(), targetOf(object), nil, "48h are over"); !errors.Is(err, suspend.ErrForbidden) {
		t.Errorf("without permission: %v", err)
	}
	w.callError = nil
	for range 2 {
		if err := w.stopper().EvictPod(t.Context(), targetOf(object), nil, "48h are over"); err != nil {
			t.Error(err)
		}
	}
	expectState(t, w.stopper(), object, suspend.StateGone)
}

// Kinds that are never stopped are not read either.
func TestUnsupportedKindsAreNotRead(t *testing.T) {
	w := newFakeAPI(t)
	w.callError = func(verb string, _ client.Object) error { return errors.New(verb) }
	for _, kind := range []schema.GroupKind{
		groupKind("", "Node"), groupKind("", "Namespace"), groupKind("apps", "DaemonSet"), groupKind("sluice.dev", "Project"),
		{Group: unknownKind.Group, Kind: "Estate"}, // cluster-scoped
	} {
		err := w.stopper().Stop(t.Context(), suspend.Target{GroupVersionKind: kind.WithVersion(version), Namespace: namespace, Name: "x", UID: "u"}, stopUntil, "")
		if !errors.Is(err, suspend.ErrUnsupported) || !strings.Contains(err.Error(), "does not stop objects of kind "+kind.Kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestStopUnknownKind(t *testing.T) {
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
		"suspend as a word":       {definition: definition(words), want: suspend.ErrUnsupported},
		"neither":                 {definition: definition(bare), want: suspend.ErrUnsupported},
		"neither, and deleted":    {definition: definition(bare), deletes: true},
		"no definition":           {want: suspend.ErrUnsupported},
		"no definition, not even": {deletes: true, want: suspend.ErrUnsupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := newObject(t, unknownKind, `spec: {workers: {count: 4}}`)
			w := newFakeAPI(t, object)
			if tc.definition != "" {
				d := newObject(t, crdGVK.GroupKind(), tc.definition)
				d.SetNamespace("")
				d.SetName("farms.example.org")
				if err := w.client.Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			s := w.stopper()
			s.DeleteUnknownKinds = tc.deletes
			err := s.Stop(t.Context(), targetOf(object), stopUntil, "")
			switch {
			case !errors.Is(err, tc.want):
				t.Fatalf("%v", err)
			case tc.want != nil:
				if !workloadkind.RequestsPods(w.get(t, object)) || w.writes != 0 {
					t.Error("the object was read or written")
				}
				return
			case tc.deletes:
				expectState(t, s, object, suspend.StateGone)
				return
			}
			expectState(t, s, object, suspend.StateStopped)
			if w.writes != 1 || w.get(t, object).GetAnnotations()[v1alpha1.AnnotationStoppedUntil] == "" {
				t.Errorf("%d writes", w.writes)
			}
			if got, err := s.StartCommands(t.Context(), targetOf(object)); err != nil || !slices.Equal(got, tc.commands) {
				t.Errorf("started by %q (%v)", got, err)
			}
			if err := s.Release(t.Context(), targetOf(object)); err != nil || w.get(t, object).GetAnnotations()[v1alpha1.AnnotationStoppedUntil] != "" {
				t.Errorf("released: %v", err)
			}
		})
	}
}
