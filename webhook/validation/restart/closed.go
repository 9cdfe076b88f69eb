// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
)

// denialInClosedProject returns why a change of a workload is denied in a closed project; "" if it is not. The project
// accepts the pods that replace those of a workload that ran before, so that the workload itself must not get more or
// other pods. New workloads, and new templates of those without a controller, are denied by policy core.project.
func (v *Validator) denialInClosedProject(ctx context.Context, req *admission.Request) (string, error) {
	kind := schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}
	if req.Operation != admissionv1.Update || kind == kueueWorkloadKind {
		return "", nil
	}
	tenant, err := v.Tenants.Resolve(ctx, req.Namespace)
	if err != nil || tenant == nil || !tenant.Closed {
		return "", err
	}
	before, err := decodeObject(req.OldObject.Raw)
	if err != nil {
		return "", fmt.Errorf("decode old object: %w", err)
	}
	after, err := decodeObject(req.Object.Raw)
	if err != nil {
		return "", fmt.Errorf("decode object: %w", err)
	}
	owner := metav1.GetControllerOfNoCopy(before)
	if kind == podKind && req.SubResource == "" {
		return v.denialOfRelease(ctx, req, tenant, before, after)
	}
	more := workloadkind.RequestsMorePods(before, after)
	if !more && !mayGetOtherPods(req, kind, before, after) {
		return "", nil
	}
	if !more && owner == nil { // the object's own operator can change it
		owner = &metav1.OwnerReference{APIVersion: before.GetAPIVersion(), Kind: before.GetKind()}
	}
	if owner != nil {
		if trusted, err := v.Tenants.IsControllerOf(ctx, req.UserInfo.Username, owner); err != nil || trusted {
			return "", err
		}
	}
	if len(workloadkind.Templates(kind, after.Object)) == 0 { // a Scale has none either
		if clocks, err := v.Tenants.ClocksOf(ctx, req.Namespace, before.GetUID()); err != nil || len(clocks) == 0 {
			return "", err // it has no pods with GPUs that others could replace
		}
	} else if !workload.MayRequestGPUs(kind, after.Object) {
		return "", nil
	}
	return fmt.Sprintf("%s %s cannot get further pods: %s", req.Resource.Resource, req.Name, tenant.DescribeClosed()), nil
}

// denialOfRelease returns why a user may not change a label of a pod: without a label that its controller selects, the pod
// runs on, and the controller creates another one.
func (v *Validator) denialOfRelease(
	ctx context.Context, req *admission.Request, tenant *decision.Tenant, before, after *unstructured.Unstructured,
) (string, error) {
	owner, labels := metav1.GetControllerOfNoCopy(before), after.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { _, had := before.GetLabels()[key]; return !had })
	if owner == nil || maps.Equal(labels, before.GetLabels()) || !workload.MayRequestGPUs(podKind, before.Object) {
		return "", nil
	}
	if trusted, err := v.Tenants.IsControllerOf(ctx, req.UserInfo.Username, owner); err != nil || trusted {
		return "", err
	}
	return fmt.Sprintf("the labels of pod %s cannot be changed or removed, since %s %s would replace it: %s",
		req.Name, owner.Kind, owner.Name, tenant.DescribeClosed()), nil
}

// mayGetOtherPods reports whether a change that requests no more pods can replace them by others. Policies validate the
// templates of Kubernetes' own kinds, unless a controller controls the object.
func mayGetOtherPods(req *admission.Request, kind schema.GroupKind, before, after *unstructured.Unstructured) bool {
	if req.SubResource != "" {
		return false
	}
	switch kind.Group {
	case "", "apps", "batch":
		return metav1.GetControllerOfNoCopy(before) != nil && !equalTemplates(kind, before, after)
	}
	return workloadkind.MayGetOtherPods(before, after)
}

func equalTemplates(kind schema.GroupKind, before, after *unstructured.Unstructured) bool {
	return reflect.DeepEqual(workloadkind.Templates(kind, before.Object), workloadkind.Templates(kind, after.Object))
}
