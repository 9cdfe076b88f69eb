// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/quota/capacity"
)

// patchWith returns the merge patch of an object, for the version that was read.
func (u *Uninstaller) patchWith(object *unstructured.Unstructured, what string, patch map[string]any, subresource string) action {
	return action{what, func(ctx context.Context) error {
		raw, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		merge := client.RawPatch(types.MergePatchType, raw)
		if subresource != "" {
			return u.Client.SubResource(subresource).Patch(ctx, object, merge, client.FieldOwner(v1alpha1.FieldManagerCLI))
		}
		return u.Client.Patch(ctx, object, merge, client.FieldOwner(v1alpha1.FieldManagerCLI))
	}}
}

// sluiceKinds returns Sluice's own kinds.
func sluiceKinds() ([]schema.GroupKind, error) {
	crds, err := buildCRDs()
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupKind
	for _, crd := range crds {
		if kind, found, err := unstructured.NestedString(crd.Object, "spec", "names", "kind"); found && err == nil {
			kinds = append(kinds, schema.GroupKind{Group: v1alpha1.Group, Kind: kind})
		}
	}
	return kinds, nil
}

// findFinalizers finds the finalizers of Sluice, which no component would remove any more. They are on its own objects only.
func (u *Uninstaller) findFinalizers(ctx context.Context) (actions []action, err error) {
	kinds, err := sluiceKinds()
	if err != nil {
		return nil, err
	}
	isOurs := func(finalizer string) bool { return strings.HasPrefix(finalizer, v1alpha1.Group+"/") }
	for _, kind := range kinds {
		err := u.list(ctx, kind, func(o *unstructured.Unstructured) {
			all := o.GetFinalizers()
			kept := slices.DeleteFunc(slices.Clone(all), isOurs)
			if len(kept) == len(all) {
				return
			}
			actions = append(actions, u.patchWith(o, "remove the finalizer of "+describe(o), map[string]any{
				"metadata": map[string]any{"resourceVersion": o.GetResourceVersion(), "finalizers": kept},
			}, ""))
		})
		if err != nil {
			return nil, err
		}
	}
	return actions, nil
}

// findNodes finds the taint, the capacity of the GPU quota unit, and the labels of GPU clients that Sluice paused.
func (u *Uninstaller) findNodes(ctx context.Context) (actions []action, err error) {
	needed, err := u.capacityIsNeeded(ctx)
	if err != nil {
		return nil, err
	}
	err = u.list(ctx, schema.GroupKind{Kind: "Node"}, func(o *unstructured.Unstructured) {
		var node corev1.Node
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &node) != nil {
			return
		}
		patch := map[string]any{}
		isOurs := func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintRepartitioning }
		if slices.ContainsFunc(node.Spec.Taints, isOurs) {
			patch["spec"] = map[string]any{"taints": slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOurs)}
		}
		labels := map[string]any{}
		for _, key := range v1alpha1.GPUClientLabels() {
			if resumed, ours := v1alpha1.ResumedGPUClient(node.Labels[key]); ours {
				labels[key] = resumed
			}
		}
		if len(labels) > 0 {
			patch["metadata"] = map[string]any{"labels": labels}
		}
		if len(patch) > 0 {
			actions = append(actions, u.patchWith(o, fmt.Sprintf("restore taints and labels of node %s", node.Name), withVersion(patch, o), ""))
		}
		status := map[string]any{}
		for field, have := range map[string]corev1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
			if gone := capacity.Patch(have, nil); len(gone) > 0 {
				status[field] = gone
			}
		}
		if len(status) > 0 && needed == "" {
			actions = append(actions, u.patchWith(o, "remove the GPU quota unit from node "+node.Name, map[string]any{"status": status}, "status"))
		}
	})
	return actions, err
}

// withVersion adds the version that was read to a patch.
func withVersion(patch map[string]any, o *unstructured.Unstructured) map[string]any {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = o.GetResourceVersion()
	patch["metadata"] = metadata
	return patch
}

// namespaceLabels bind a namespace to a project. What records which project created it stays for another installation.
var namespaceLabels = []string{v1alpha1.LabelProject, v1alpha1.LabelDepartment, v1alpha1.LabelQueued}

// podSecurityLabels are the labels that lifecycle writes beside them.
var podSecurityLabels = []string{v1alpha1.LabelPodSecurityEnforce, "pod-security.kubernetes.io/warn"}

func (u *Uninstaller) findNamespaces(ctx context.Context) (actions []action, err error) {
	err = u.list(ctx, schema.GroupKind{Kind: "Namespace"}, func(o *unstructured.Unstructured) {
		gone := map[string]any{}
		for _, label := range namespaceLabels {
			if _, found := o.GetLabels()[label]; found {
				gone[label] = nil
			}
		}
		for _, label := range podSecurityLabels {
			if _, found := o.GetLabels()[label]; found && isWrittenByLifecycle(o, label) {
				gone[label] = nil
			}
		}
		if len(gone) > 0 {
			actions = append(actions, u.patchWith(o, "remove Sluice's labels from namespace "+o.GetName(),
				withVersion(map[string]any{"metadata": map[string]any{"labels": gone}}, o), ""))
		}
	})
	return actions, err
}

// isWrittenByLifecycle reports whether lifecycle wrote a label last.
func isWrittenByLifecycle(o *unstructured.Unstructured, label string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1alpha1.FieldManagerLifecycle && entry.FieldsV1 != nil &&
			strings.Contains(string(entry.FieldsV1.GetRawBytes()), `"f:`+label+`"`)
	})
}

// podAnnotations announce an end that no component carries out any more. Another installation must not act on them.
var podAnnotations = []string{
	v1alpha1.AnnotationPreemptAt, v1alpha1.AnnotationPreemptReason, v1alpha1.AnnotationPreemptFor, v1alpha1.AnnotationEndsAt,
}

func (u *Uninstaller) findPods(ctx context.Context) (actions []action, err error) {
	err = u.list(ctx, schema.GroupKind{Kind: "Pod"}, func(o *unstructured.Unstructured) {
		gone := map[string]any{}
		for _, key := range podAnnotations {
			if _, found := o.GetAnnotations()[key]; found {
				gone[key] = nil
			}
		}
		if len(gone) > 0 {
			actions = append(actions, u.patchWith(o, "remove the announced end of pod "+o.GetNamespace()+"/"+o.GetName(),
				map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "annotations": gone}}, ""))
		}
	})
	return actions, err
}
