// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// validateQuota refuses a ResourceQuota beside that of the project, and one that counts only some pods.
func validateQuota(given *unstructured.Unstructured) error {
	if given.GetName() != v1alpha1.QuotaName {
		return fmt.Errorf("metadata.name: a project has one ResourceQuota, %s, since the API server does not hold the limits of several "+
			"(kubernetes/kubernetes#141904); name it %[1]s, and its limits are added to those of other policies", v1alpha1.QuotaName)
	}
	spec, _ := given.Object["spec"].(map[string]any)
	return validateFields(spec, "spec.", "hard")
}

// quotaMerge merges what several policies render of a project's ResourceQuota.
type quotaMerge struct {
	merged *unstructured.Unstructured
	// policies has the policy that set each field, by its path.
	policies map[string]string
}

// add merges a part that a policy rendered. The error names the fields that another policy set to
// another value.
func (m *quotaMerge) add(part *unstructured.Unstructured, policy string) error {
	if m.merged == nil {
		m.merged, m.policies = &unstructured.Unstructured{Object: map[string]any{}}, map[string]string{}
	}
	return errors.Join(m.addFields(m.merged.Object, part.Object, "", policy)...)
}

func (m *quotaMerge) addFields(into, from map[string]any, prefix, policy string) (conflicts []error) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		value, path := from[key], prefix+key
		if nested, ok := value.(map[string]any); ok {
			child, ok := into[key].(map[string]any)
			if !ok {
				child = map[string]any{}
				into[key] = child
			}
			conflicts = append(conflicts, m.addFields(child, nested, path+".", policy)...)
			continue
		}
		if known, ok := into[key]; ok && !equalAmounts(known, value) {
			conflicts = append(conflicts, fmt.Errorf("policy %s renders ResourceQuota %s, too, with another %s: %v, and this one %v; "+
				"set it in one of the two", m.policies[path], v1alpha1.QuotaName, path, known, value))
			continue
		} else if !ok {
			into[key], m.policies[path] = value, policy
		}
	}
	return conflicts
}

// equalAmounts reports whether two values are equal, as texts or as quantities.
func equalAmounts(a, b any) bool {
	first, second := fmt.Sprint(a), fmt.Sprint(b)
	if first == second {
		return true
	}
	x, err := resource.ParseQuantity(first)
	y, err2 := resource.ParseQuantity(second)
	return err == nil && err2 == nil && x.Cmp(y) == 0
}

// retainUnits keeps the GPU quota units of single node pools that the project's quota has and is not to
// have any more, with a limit of 0. A webhook that does not know yet that the project lost a node pool
// still admits pods there, and the quota goes on counting them. The unit that pools share is not kept: pools
// of KAI-Scheduler, which counts for itself, charge it, too, and Kueue holds its pods by its own quota.
func (a *Applier) retainUnits(ctx context.Context, target Target, objects []*unstructured.Unstructured) error {
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GroupVersionKind() == quotaKind })
	if at < 0 {
		return nil
	}
	existing, err := GetQuota(ctx, a.Client, target)
	if err != nil || existing == nil {
		return err
	}
	hard, _, _ := unstructured.NestedMap(objects[at].Object, "spec", "hard")
	if hard == nil {
		hard = map[string]any{}
	}
	changed := false
	for name := range existing.Spec.Hard {
		unit, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		if _, desired := hard[string(name)]; desired || !ok || v1alpha1.NodePoolOf(corev1.ResourceName(unit)) == "" {
			continue
		}
		hard[string(name)], changed = "0", true
	}
	if !changed {
		return nil
	}
	objects[at] = objects[at].DeepCopy()
	return unstructured.SetNestedMap(objects[at].Object, hard, "spec", "hard")
}

// IsCounted reports whether the quota controller has counted the quota's current spec; true without a
// quota. Until it does, admission compares requests with an outdated status.
func IsCounted(quota *corev1.ResourceQuota) bool {
	return quota == nil || equality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard)
}

// EnforcedLimit returns the limit of a GPU quota unit in a counted quota, and its usage. It returns
// false if the quota does not count the unit.
func EnforcedLimit(quota *corev1.ResourceQuota, unit corev1.ResourceName) (hard, used int64, found bool) {
	if quota == nil {
		return 0, 0, false
	}
	name := corev1.DefaultResourceRequestsPrefix + unit
	limit, found := quota.Status.Hard[name]
	usage := quota.Status.Used[name]
	return limit.Value(), usage.Value(), found
}

// GetQuota returns the project's quota from a reader, or nil if it has none.
func GetQuota(ctx context.Context, from client.Reader, target Target) (*corev1.ResourceQuota, error) {
	var quota corev1.ResourceQuota
	err := from.Get(ctx, client.ObjectKey{Namespace: target.Namespace, Name: v1alpha1.QuotaName}, &quota)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the quota of %s: %w", target, err)
	case !isQuotaOf(&quota, target):
		return nil, nil
	}
	return &quota, nil
}

// ListQuotas returns the project's quota from a reader, nil if it has none, and the names of all other
// ResourceQuotas of its namespace, sorted.
func ListQuotas(ctx context.Context, from client.Reader, target Target) (quota *corev1.ResourceQuota, others []string, err error) {
	var all corev1.ResourceQuotaList
	if err := from.List(ctx, &all, client.InNamespace(target.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("list the quotas in the namespace of %s: %w", target, err)
	}
	for i := range all.Items {
		if isQuotaOf(&all.Items[i], target) {
			quota = &all.Items[i]
		} else {
			others = append(others, all.Items[i].Name)
		}
	}
	slices.Sort(others)
	return quota, others, nil
}

// isQuotaOf reports whether lifecycle rendered a quota for the target.
func isQuotaOf(quota *corev1.ResourceQuota, target Target) bool {
	return quota.Name == v1alpha1.QuotaName && containsAll(quota.Labels, target.labels())
}
