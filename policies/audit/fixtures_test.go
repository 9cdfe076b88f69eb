// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

var auditTime = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)

// source returns a policy; the rules follow its package.
func source(name string, enforcement v1alpha1.Enforcement, rules string) engine.Source {
	return engine.Source{Name: name, Enforcement: enforcement, Rego: "package " + strings.ReplaceAll(name, "-", "_") + "\n" + rules}
}

// newCluster compiles policies, without the built-in ones.
func newCluster(t testing.TB, sources ...engine.Source) *workbench.Cluster {
	t.Helper()
	cluster, err := workbench.NewCluster(sources)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// newProject returns a project with a namespace of its name.
func newProject(name string) v1alpha1.Project {
	project := v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ProjectSpec{Department: "students", NodePools: []v1alpha1.PoolQuota{{
			Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("2"), Limit: resource.MustParse("4")},
		}}},
		Status: v1alpha1.ProjectStatus{Namespace: &v1alpha1.ProjectNamespace{Name: name}, NodePools: []v1alpha1.PoolUsage{{Name: "dgx", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}}},
	}
	meta.SetStatusCondition(&project.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue})
	return project
}

// newTenants returns the tenants of projects, in one department with one node pool.
func newTenants(projects ...v1alpha1.Project) *audit.Tenants {
	department := v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}}
	pool := v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "dgx"},
		Spec: v1alpha1.NodePoolSpec{
			Scheduler: v1alpha1.SchedulerKube, NodeSelector: map[string]string{v1alpha1.LabelNodePool: "dgx"},
			Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{{Name: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960}}},
	}
	return audit.NewTenants(projects, []v1alpha1.Department{department}, []v1alpha1.NodePool{pool}, &v1alpha1.AdmissionParametersSpec{},
		func(name string) (*corev1.Namespace, error) {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		})
}

// parse returns the object of a text in YAML.
func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	raw, err := object.MarshalJSON() // numbers are int64, as the API server's
	if err == nil {
		err = object.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// clusterReader lists objects page by page, as an API server.
type clusterReader struct {
	client.Reader
	objects []*unstructured.Unstructured
	// fail returns the error of a list, if it is set; calls counts the lists.
	fail  func(kind, next string) error
	calls int
}

func (r *clusterReader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	r.calls++
	page, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		return errors.New("not unstructured")
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	kind := strings.TrimSuffix(page.GroupVersionKind().Kind, "List")
	if r.fail != nil {
		if err := r.fail(kind, o.Continue); err != nil {
			return err
		}
	}
	var found []*unstructured.Unstructured
	for _, object := range r.objects {
		matches := object.GetKind() == kind && object.GroupVersionKind().Group == page.GroupVersionKind().Group
		if matches && (o.Namespace == "" || o.Namespace == object.GetNamespace()) && keyOf(object) > o.Continue {
			found = append(found, object)
		}
	}
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int { return strings.Compare(keyOf(a), keyOf(b)) })
	for i, object := range found {
		if int64(i) == o.Limit {
			page.SetContinue(keyOf(found[i-1]))
			break
		}
		page.Items = append(page.Items, *object)
	}
	return nil
}

func keyOf(object *unstructured.Unstructured) string {
	return object.GetNamespace() + "/" + object.GetName()
}

// newMapper returns a mapper of the kinds.
func newMapper(kinds ...schema.GroupVersionKind) meta.RESTMapper {
	versions := make([]schema.GroupVersion, len(kinds))
	for i, kind := range kinds {
		versions[i] = kind.GroupVersion()
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return mapper
}

// kubernetesKinds are the kinds that every cluster has.
func kubernetesKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "batch", Version: "v1", Kind: "Job"},
		{Group: "batch", Version: "v1", Kind: "CronJob"},
	}
}

// expired is the error for a page of an expired list. The API server gives a token with it, or not.
func expired(token string) error {
	err := apierrors.NewResourceExpired("the provided continue parameter is too old")
	err.ErrStatus.Continue = token
	return err
}
