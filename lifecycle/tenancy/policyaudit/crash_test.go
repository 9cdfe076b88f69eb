// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policyaudit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/engine"
)

// errEnded is the error of every write after the process ended.
var errEnded = errors.New("the process ended")

// fakeCluster has three projects, a pod in each, and two policies. It counts writes, and ends the process after some of them.
type fakeCluster struct {
	client.WithWatch
	writes []string
	// endAfter is the number of writes after which the process ends; negative for never.
	endAfter int
}

func (f *fakeCluster) write(format string, args ...any) error {
	if f.endAfter >= 0 && len(f.writes) >= f.endAfter {
		return errEnded
	}
	f.writes = append(f.writes, fmt.Sprintf(format, args...))
	return nil
}

// apply stands for server-side apply: what is applied replaces the object, or its status.
func (f *fakeCluster) apply(ctx context.Context, c client.Client, applied runtime.ApplyConfiguration, status bool) error {
	raw, err := json.Marshal(applied)
	if err != nil {
		return err
	}
	desired := &unstructured.Unstructured{}
	if err := desired.UnmarshalJSON(raw); err != nil {
		return err
	}
	if err := f.write("apply %s %s/%s", desired.GetKind(), desired.GetNamespace(), desired.GetName()); err != nil {
		return err
	}
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(desired.GroupVersionKind())
	switch err := c.Get(ctx, client.ObjectKeyFromObject(desired), existing); {
	case apierrors.IsNotFound(err):
		return c.Create(ctx, desired)
	case err != nil:
		return err
	}
	desired.SetResourceVersion(existing.GetResourceVersion())
	desired.SetUID(existing.GetUID())
	if status {
		existing.Object["status"] = desired.Object["status"]
		return c.Status().Update(ctx, existing)
	}
	return c.Update(ctx, desired)
}

func newFakeCluster(t *testing.T) (*fakeCluster, []engine.Source) {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypeWithName(audit.OpenReportKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(audit.OpenReportKind.GroupVersion().WithKind("ReportList"), &unstructured.UnstructuredList{})
	objects := []client.Object{
		&v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}},
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}},
	}
	var sources []engine.Source
	for name, rego := range map[string]string{
		"denying":  "package denying\ndeny contains \"no\" if input.object.metadata.name == \"old\"",
		"changing": "package changing\noverrides := {\"metadata\": {\"labels\": {\"x\": \"y\"}}}",
	} {
		policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, Spec: v1alpha1.PolicySpec{Rego: rego}}
		objects, sources = append(objects, policy), append(sources, engine.FromPolicy(policy))
	}
	for _, name := range []string{"a", "b", "c"} {
		objects = append(objects, &v1alpha1.Project{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProjectSpec{Department: "students"},
			Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: name}},
		}, &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "old"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}},
		})
	}
	f := &fakeCluster{endAfter: -1}
	f.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).
		WithStatusSubresource(&v1alpha1.Policy{}, &v1alpha1.AdmissionParameters{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, applied runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				return f.apply(ctx, c, applied, false)
			},
			SubResourceApply: func(
				ctx context.Context, c client.Client, _ string, applied runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption,
			) error {
				return f.apply(ctx, c, applied, true)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, name string, object client.Object, o ...client.SubResourceUpdateOption) error {
				if policy, ok := object.(*v1alpha1.Policy); ok {
					if err := f.write("update Policy %s", policy.Name); err != nil {
						return err
					}
				}
				return c.SubResource(name).Update(ctx, object, o...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
				if err := f.write("delete %s/%s", object.GetNamespace(), object.GetName()); err != nil {
					return err
				}
				return c.Delete(ctx, object)
			},
		}).Build()
	return f, sources
}

// run runs an audit as a new process does.
func (f *fakeCluster) run(t *testing.T, sources []engine.Source) error {
	t.Helper()
	policies, err := engine.New(engine.Options{Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}}) // for a busy machine
	if err != nil {
		t.Fatal(err)
	}
	policies.Update(sources)
	set, err := policies.Current()
	if err != nil {
		t.Fatal(err)
	}
	f.writes = nil
	return (&Auditor{Client: f, Live: f, Policies: policies, Clock: policytime.System()}).Run(t.Context(), set)
}

// state returns all that an audit writes, without times.
func (f *fakeCluster) state(t *testing.T) map[string]any {
	t.Helper()
	state := map[string]any{}
	var policies v1alpha1.PolicyList
	if err := f.List(t.Context(), &policies); err != nil {
		t.Fatal(err)
	}
	for i := range policies.Items {
		if figures := policies.Items[i].Status.Audit; figures != nil {
			figures.ChangedAt = metav1.Time{}
			state[policies.Items[i].Name] = *figures
		}
	}
	reports := &unstructured.UnstructuredList{}
	reports.SetGroupVersionKind(audit.OpenReportKind.GroupVersion().WithKind("ReportList"))
	if err := f.List(t.Context(), reports); err != nil {
		t.Fatal(err)
	}
	for i := range reports.Items {
		state[reports.Items[i].GetNamespace()], _ = audit.ParseOpenReport(&reports.Items[i])
	}
	return state
}

// A process that ends after any of the writes of an audit leaves a state that the next audit completes, to the same as
// without the end, and an audit at rest writes nothing but its record.
func TestAuditSurvivesTheEndOfTheProcess(t *testing.T) {
	whole, sources := newFakeCluster(t)
	if err := whole.run(t, sources); err != nil {
		t.Fatal(err)
	}
	want, all := whole.state(t), slices.Clone(whole.writes)
	if len(all) != 6 || len(want) != 5 { // two policies, three reports and the record
		t.Fatalf("writes: %q, state: %v", all, want)
	}
	record := []string{"apply AdmissionParameters /" + v1alpha1.AdmissionParametersName}
	if err := whole.run(t, sources); err != nil || !slices.Equal(whole.writes, record) {
		t.Errorf("at rest: %v, writes %q", err, whole.writes)
	}
	for n := range all {
		t.Run(fmt.Sprintf("after %d writes", n), func(t *testing.T) {
			cluster, _ := newFakeCluster(t)
			cluster.endAfter = n
			if err := cluster.run(t, sources); !errors.Is(err, errEnded) {
				t.Fatalf("interrupted: %v", err)
			}
			cluster.endAfter = -1
			if err := cluster.run(t, sources); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, cluster.state(t)); diff != "" {
				t.Errorf("-without an end +with\n%s", diff)
			}
			if len(cluster.writes) != len(all)-n {
				t.Errorf("after %d writes, the next audit writes %q", n, cluster.writes)
			}
		})
	}
	// The Reports go with their findings.
	for _, namespace := range []string{"a", "b"} {
		if err := whole.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := whole.run(t, sources); err != nil {
		t.Fatal(err)
	}
	if state := whole.state(t); len(state) != 3 || state["c"] == nil {
		t.Errorf("after two pods are gone: %v", state)
	}
}
