// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
)

// ResolveForPod returns the tenant of a new pod; nil if no project owns its namespace. In an expired project the pods
// that replace others have a tenant of their own, whose project is open: the workload ran before the project expired,
// and goes on under its own limits.
func (r *TenantResolver) ResolveForPod(ctx context.Context, req *admission.Request) (*decision.Tenant, error) {
	tenant, err := r.Resolve(ctx, req.Namespace)
	if err != nil || tenant == nil || tenant.ForReplacements == nil {
		return tenant, err
	}
	replaces, err := r.isReplacement(ctx, req, tenant.ClosedAt)
	if err != nil || !replaces {
		return tenant, err
	}
	return tenant.ForReplacements, nil
}

// isReplacement reports whether a controller creates a pod for a workload that ran before a time.
func (r *TenantResolver) isReplacement(ctx context.Context, req *admission.Request, closedAt time.Time) (bool, error) {
	var pod metav1.PartialObjectMetadata
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return false, fmt.Errorf("decode metadata of pod: %w", err)
	}
	owner := metav1.GetControllerOfNoCopy(&pod)
	if owner == nil {
		return false, nil
	}
	trusted, err := r.IsControllerOf(ctx, req.UserInfo.Username, owner)
	if err != nil || !trusted {
		return false, err
	}
	clocks, err := r.ClocksOf(ctx, req.Namespace, owner.UID)
	return slices.ContainsFunc(clocks, func(c v1alpha1.WorkloadClock) bool { return c.Status.RanBefore(closedAt) }), err
}

// IsControllerOf reports whether a user may set controller references to objects of the owner's kind. The admission
// policy controller-references denies those of other users.
func (r *TenantResolver) IsControllerOf(ctx context.Context, user string, owner *metav1.OwnerReference) (bool, error) {
	var parameters v1alpha1.AdmissionParameters
	err := r.Cache.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	isUser := func(p v1alpha1.UserPattern) bool { return p.Matches(user) }
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind().String()
	return slices.ContainsFunc(parameters.Spec.Controllers, isUser) ||
		slices.ContainsFunc(parameters.Spec.KindControllers, func(k v1alpha1.KindControllers) bool {
			return k.Kind == kind && slices.ContainsFunc(k.Users, isUser)
		}), nil
}

// RecordsCreators reports whether admission records who creates the objects of a kind, and protects the record: of the kinds
// of workloads, and those that AdmissionParameters adds. Users write the annotation on all others.
func (r *TenantResolver) RecordsCreators(ctx context.Context, kind schema.GroupKind) (bool, error) {
	if _, known := workloadkind.Lookup(kind); known {
		return true, nil
	}
	var parameters v1alpha1.AdmissionParameters
	err := r.Cache.Get(ctx, types.NamespacedName{Name: v1alpha1.AdmissionParametersName}, &parameters)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	_, added := workloadkind.NewAddedTemplates(parameters.Spec.PodTemplates)[kind]
	return added, nil
}

// ClocksOf returns the clocks of the workload that has the UID, or whose pods the object with the UID controls. The
// caller must not modify them.
func (r *TenantResolver) ClocksOf(ctx context.Context, namespace string, uid types.UID) ([]v1alpha1.WorkloadClock, error) {
	var clocks v1alpha1.WorkloadClockList
	err := r.Cache.List(ctx, &clocks, client.InNamespace(namespace), client.MatchingFields{ClockControllerIndex: string(uid)},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list clocks in namespace %s: %w", namespace, err)
	}
	return clocks.Items, nil
}

// ClockControllerIndex indexes clocks by the UIDs of the objects that control pods of their workloads.
const ClockControllerIndex = "status.podControllers"

// IndexClockControllers registers [ClockControllerIndex].
func IndexClockControllers(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &v1alpha1.WorkloadClock{}, ClockControllerIndex, func(object client.Object) []string {
		c, ok := object.(*v1alpha1.WorkloadClock)
		if !ok || c.Status.RootUID == "" {
			return nil
		}
		uids := []string{string(c.Status.RootUID)}
		for _, uid := range c.Status.PodControllers {
			uids = append(uids, string(uid))
		}
		return uids
	})
}
