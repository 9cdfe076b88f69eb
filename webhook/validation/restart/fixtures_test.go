// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api"
	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/validation/restart"
)

const ns = "work"

var (
	now     = time.Date(2026, 10, 5, 12, 0, 0, 0, time.UTC)
	later   = now.Add(90 * time.Minute)
	earlier = now.Add(-time.Minute)
)

// fixedClock is a policy clock with a constant time.
type fixedClock time.Time

func (f fixedClock) Now() time.Time                      { return time.Time(f) }
func (f fixedClock) FromReal(t time.Time) time.Time      { return t }
func (f fixedClock) RealUntil(t time.Time) time.Duration { return t.Sub(time.Time(f)) }

// fakeIndexer records the function of an index.
type fakeIndexer struct{ index client.IndexerFunc }

func (i *fakeIndexer) IndexField(_ context.Context, _ client.Object, _ string, index client.IndexerFunc) error {
	i.index = index
	return nil
}

// newValidator returns a validator for these clocks. Project thesis owns namespace work.
func newValidator(tb testing.TB, clocks ...client.Object) *restart.Validator {
	tb.Helper()
	types, err := api.NewScheme()
	if err != nil {
		tb.Fatal(err)
	}
	var stops, tenants, controllers fakeIndexer
	if err := evaluation.IndexClockControllers(tb.Context(), &controllers); err != nil {
		tb.Fatal(err)
	}
	if err := restart.IndexStoppedClocks(tb.Context(), &stops); err != nil {
		tb.Fatal(err)
	}
	if err := evaluation.IndexProjects(tb.Context(), &tenants); err != nil {
		tb.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(types).WithObjects(clocks...).WithObjects(
		&v1alpha1.Department{
			ObjectMeta: metav1.ObjectMeta{Name: "students"},
			Spec:       v1alpha1.DepartmentSpec{Notices: v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin"}},
		},
		&v1alpha1.AdmissionParameters{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName},
			Spec:       v1alpha1.AdmissionParametersSpec{Controllers: []v1alpha1.UserPattern{controllerManager}},
		},
		&v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: "thesis"},
			Spec:       v1alpha1.ProjectSpec{Department: "students"},
			Status:     v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: ns}},
		},
	).WithIndex(&v1alpha1.WorkloadClock{}, evaluation.ClockControllerIndex, controllers.index).
		WithIndex(&v1alpha1.WorkloadClock{}, restart.StoppedClockIndex, stops.index).
		WithIndex(&v1alpha1.Project{}, evaluation.ProjectNamespaceIndex, tenants.index).Build()
	return &restart.Validator{Clocks: cache, Tenants: &evaluation.TenantResolver{Cache: cache}, Clock: fixedClock(now)}
}

// newClock returns the clock of anna's workload that is stopped until a time; not stopped for the zero time.
func newClock(kind schema.GroupKind, name, hash string, until time.Time, change ...func(*v1alpha1.WorkloadClockStatus)) *v1alpha1.WorkloadClock {
	c := &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.WorkloadClockName(kind.Group, kind.Kind, name)},
		Spec: v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{
			APIVersion: kind.WithVersion("v1").GroupVersion().String(), Kind: kind.Kind, Name: name,
		}},
		Status: v1alpha1.WorkloadClockStatus{
			TemplateHash: hash, CreatedBy: anna,
			Limit: &v1alpha1.ClockLimit{InForce: period.MustParseDuration("48h")},
		},
	}
	if !until.IsZero() {
		c.Status.Stopped = &v1alpha1.ClockStop{At: metav1.NewTime(now.Add(-time.Hour)), Reason: v1alpha1.EndMaxRuntime, Until: ptr.To(metav1.NewTime(until))}
	}
	for _, with := range change {
		with(&c.Status)
	}
	return c
}

// newWorkload returns anna's object of a kind with a GPU and an image, which is running or stopped.
func newWorkload(kind workloadkind.Kind, name, program string, runs bool) *unstructured.Unstructured {
	object := map[string]any{"metadata": map[string]any{
		"namespace": ns, "name": name, "annotations": map[string]any{v1alpha1.AnnotationCreatedBy: anna},
	}, "spec": map[string]any{}}
	for _, path := range kind.Templates {
		body := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "image": program, "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}},
		}}}}
		if len(path) == 0 {
			object["spec"] = body["spec"]
			continue
		}
		setPath(object, path, body)
	}
	if len(kind.Templates) == 0 {
		setPath(object, []string{"spec", "program"}, program)
	}
	switch verb := kind.StopAction; verb.Method {
	case workloadkind.StopByField:
		if !runs {
			setPath(object, verb.Path, verb.StopValue)
		} else if verb.StartValue != nil {
			setPath(object, verb.Path, verb.StartValue)
		}
	case workloadkind.StopByAnnotation:
		if !runs {
			setPath(object, verb.Path, "yes")
		}
	case workloadkind.StopByScaling:
		setPath(object, verb.Path, map[bool]int64{true: 2, false: 0}[runs])
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(kind.WithVersion("v1"))
	return u
}

// setPath sets the value at a path; * is the only element of a list.
func setPath(object map[string]any, path []string, v any) {
	key := path[0]
	switch {
	case len(path) == 1:
		object[key] = v
	case path[1] == "*":
		list, _ := object[key].([]any)
		if len(list) == 0 {
			list = []any{map[string]any{}}
			object[key] = list
		}
		element, _ := list[0].(map[string]any)
		setPath(element, path[2:], v)
	default:
		next, ok := object[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			object[key] = next
		}
		setPath(next, path[1:], v)
	}
}

func withStoppedUntil(object *unstructured.Unstructured, until string) *unstructured.Unstructured {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationStoppedUntil] = until
	object.SetAnnotations(annotations)
	return object
}

func withController(object *unstructured.Unstructured, apiVersion, kind, name string) *unstructured.Unstructured {
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "some", Controller: ptr.To(true)}})
	return object
}

const (
	anna              = "anna@example.org"
	bob               = "bob@example.org"
	controllerManager = "system:kube-controller-manager"
)

func rawExtension(tb testing.TB, object any) runtime.RawExtension {
	tb.Helper()
	if u, ok := object.(*unstructured.Unstructured); ok {
		if u == nil {
			return runtime.RawExtension{}
		}
		object = u.Object
	}
	bytes, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	return runtime.RawExtension{Raw: bytes}
}

// validateChange validates the creation of an object, or its update if was is set.
func validateChange(tb testing.TB, validator *restart.Validator, user string, kind workloadkind.Kind, was, is *unstructured.Unstructured) admission.Response {
	tb.Helper()
	req := admissionv1.AdmissionRequest{
		Namespace: ns, Name: is.GetName(), Operation: admissionv1.Create,
		Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: "v1", Kind: kind.Kind},
		Resource: metav1.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: kind.Resource},
		UserInfo: authenticationv1.UserInfo{Username: user},
		Object:   rawExtension(tb, is),
	}
	if was != nil {
		req.Operation, req.OldObject = admissionv1.Update, rawExtension(tb, was)
	}
	return validator.Handle(tb.Context(), admission.Request{AdmissionRequest: req})
}

// validateScale validates an update of an object's scale.
func validateScale(tb testing.TB, validator *restart.Validator, group, resource, name string, from, to int) admission.Response {
	tb.Helper()
	scale := func(n int) map[string]any {
		spec := map[string]any{}
		if n > 0 {
			spec["replicas"] = n
		}
		return map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale",
			"metadata": map[string]any{"namespace": ns, "name": name}, "spec": spec,
		}
	}
	return validator.Handle(tb.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Namespace: ns, Name: name, Operation: admissionv1.Update, SubResource: "scale",
		Kind:     metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		Resource: metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Object:   rawExtension(tb, scale(to)), OldObject: rawExtension(tb, scale(from)),
	}})
}
