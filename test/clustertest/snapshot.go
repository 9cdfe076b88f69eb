// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"sluice.dev/api/v1alpha1"
)

// Snapshot is every object of a cluster, by kind, namespace and name.
type Snapshot map[string]*unstructured.Unstructured

// volatileResources change by themselves.
var volatileResources = []string{"events", "leases", "componentstatuses", "endpointslices", "endpoints"}

// TakeSnapshot lists all objects of all kinds that can be listed, but for those that change by themselves.
func TakeSnapshot(t testing.TB, config *rest.Config) Snapshot {
	t.Helper()
	reader, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := server.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all := Snapshot{}
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(volatileResources, kind.Name) {
				continue
			}
			list, err := reader.Resource(version.WithResource(kind.Name)).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				all[fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())] = o
			}
		}
	}
	return all
}

// uninstalledKinds are the kinds of which the removal deletes objects.
var uninstalledKinds = []string{
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"ResourceQuota", "LimitRange", "ClusterRoleBinding", "RoleBinding",
}

// isComponent reports whether an object is a component, or one that Kubernetes' controllers made for it.
func isComponent(o *unstructured.Unstructured) bool {
	return slices.Contains([]string{v1alpha1.SystemNamespace, v1alpha1.AgentNamespace}, o.GetNamespace()) &&
		slices.Contains([]string{"Deployment", "ReplicaSet", "DaemonSet", "CronJob", "Job", "Pod", "ControllerRevision"}, o.GetKind()) &&
		slices.ContainsFunc([]string{"webhook", "lifecycle", "gpuagent", "certificates"}, func(name string) bool {
			return o.GetName() == name || strings.HasPrefix(o.GetName(), name+"-")
		})
}

// isWrittenBySluice reports whether a line of an object may go: what the list of the documentation has.
func isWrittenBySluice(o *unstructured.Unstructured) bool {
	return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBySluice || strings.HasPrefix(o.GetName(), "sluice") ||
		slices.ContainsFunc([]string{"webhook", "lifecycle", "gpuagent"}, func(name string) bool {
			return strings.Contains(o.GetName(), name)
		}) || slices.Contains([]string{v1alpha1.SystemNamespace, v1alpha1.AgentNamespace}, o.GetNamespace())
}

// normalize removes what changes with every write, and what the removal takes away by the list of the documentation.
func normalize(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	for _, path := range [][]string{{"metadata", "resourceVersion"}, {"metadata", "managedFields"}, {"metadata", "generation"}} {
		unstructured.RemoveNestedField(o.Object, path...)
	}
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	switch o.GetKind() {
	case "Namespace":
		for _, key := range []string{v1alpha1.LabelProject, v1alpha1.LabelDepartment, v1alpha1.LabelQueued, v1alpha1.LabelPodSecurityEnforce, "pod-security.kubernetes.io/warn"} {
			delete(labels, key)
		}
	case "Pod":
		for _, key := range []string{v1alpha1.AnnotationEndsAt, v1alpha1.AnnotationPreemptAt} {
			delete(annotations, key)
		}
		unstructured.RemoveNestedField(o.Object, "status", "conditions")
	case "Node":
		for _, field := range []string{"capacity", "allocatable"} {
			all, _, _ := unstructured.NestedMap(o.Object, "status", field)
			maps.DeleteFunc(all, func(name string, _ any) bool { return v1alpha1.IsGPUCharge(corev1.ResourceName(name)) })
			_ = unstructured.SetNestedMap(o.Object, all, "status", field)
		}
		unstructured.RemoveNestedField(o.Object, "status", "conditions")
	case "GPUNode", "WorkloadClock", "Policy", "Notice", "UsageRecord", "Department", "NodePool", "Project":
		unstructured.RemoveNestedField(o.Object, "status") // as the components left it
		unstructured.RemoveNestedField(o.Object, "metadata", "finalizers")
	}
	if o.GetKind() != "Pod" && o.GetKind() != "Node" {
		unstructured.RemoveNestedField(o.Object, "status")
	}
	if len(labels) > 0 {
		o.SetLabels(labels)
	}
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	} else {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	return o.Object
}

// CompareAfterRemoval fails the test for each object that is not as before the removal of Sluice, but for the list of the
// documentation. removed reports which other objects may be gone; it may be nil.
func (before Snapshot) CompareAfterRemoval(t testing.TB, after Snapshot, removed func(*unstructured.Unstructured) bool) {
	t.Helper()
	for key, was := range before {
		is, found := after[key]
		switch {
		case !found && slices.Contains(uninstalledKinds, was.GetKind()) && isWrittenBySluice(was):
		case !found && (isComponent(was) || removed != nil && removed(was)):
		case !found:
			t.Errorf("%s is gone", key)
		case was.GetUID() != is.GetUID():
			t.Errorf("%s was created again", key)
		default:
			if diff := cmp.Diff(normalize(was), normalize(is)); diff != "" {
				t.Errorf("%s changed (-before +after):\n%s", key, diff)
			}
		}
	}
	for key, is := range after {
		if _, found := before[key]; !found && is.GetKind() != "Notice" {
			t.Errorf("%s is new", key)
		}
		switch is.GetKind() {
		case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			t.Errorf("%s is left", key)
		case "ResourceQuota":
			t.Errorf("%s can block pods", key)
		case "Namespace":
			if project := is.GetLabels()[v1alpha1.LabelProject]; project != "" {
				t.Errorf("%s is bound to project %s", key, project)
			}
		}
		for _, finalizer := range is.GetFinalizers() {
			if strings.HasPrefix(finalizer, v1alpha1.Group+"/") {
				t.Errorf("%s has the finalizer %s", key, finalizer)
			}
		}
	}
}
