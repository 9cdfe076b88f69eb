// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// ValidateDepartmentQuota validates a department's quotas against those of its projects, which projects must contain.
// pools must contain its node pools. An excess is an error, or a warning if the department allows oversubscription.
func ValidateDepartmentQuota(
	spec *field.Path, before, department *v1alpha1.Department, projects []v1alpha1.Project, pools []v1alpha1.NodePool,
) (field.ErrorList, []string) {
	errs := validateRemovedPools(spec.Child("nodePools"), before, department, projects)
	errs = append(errs, validateLoweredLimits(spec.Child("nodePools"), before, department, projects)...)
	var warnings []string
	for _, subscription := range tenancy.Subscriptions(department, projects, pools, "") {
		old := subscription.QuotaOf(before.Spec.NodePools, before.Spec.Resources)
		path := quotaPath(spec, subscription.QuotaResource, department.Spec.NodePools)
		if isNew := old == nil && subscription.NodePool == ""; isNew && len(subscription.WithoutQuota) > 0 {
			errs = append(errs, field.Invalid(path, subscription.Quota.String(), fmt.Sprintf(
				"if a department has a quota of %s, each of its projects needs one: set spec.resources.%s in %s first",
				subscription.QuotaResource, subscription.Resource, tenancy.JoinLimited(subscription.WithoutQuota))))
		}
		if !subscription.IsOversubscribed() || !causesExcess(before, department, old, &subscription) {
			continue
		}
		excess := fmt.Sprintf("the projects of department %s were promised %s%s (%s), %s more than that",
			department.Name, subscription.FormatAmount(subscription.Subscribed), describePool(subscription.QuotaResource),
			subscription.DescribeShares(), excessAmount(&subscription))
		if department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow {
			warnings = append(warnings, warnOversubscription(path, &subscription, excess))
			continue
		}
		errs = append(errs, field.Invalid(path, subscription.Quota.String(),
			excess+"; lower their quotas first, or set spec.oversubscription to Allow"))
	}
	return errs, warnings
}

// causesExcess reports whether the change causes the excess or forbids it: the quota is new or lowered, or the
// department no longer allows oversubscription.
func causesExcess(before, after *v1alpha1.Department, old *resource.Quantity, subscription *tenancy.Subscription) bool {
	if old == nil {
		return subscription.NodePool == ""
	}
	forbids := before.Spec.Oversubscription == v1alpha1.OversubscriptionAllow && after.Spec.Oversubscription != v1alpha1.OversubscriptionAllow
	return isLowered(*old, subscription.Quota) || forbids
}

func excessAmount(subscription *tenancy.Subscription) string {
	excess := subscription.Subscribed.DeepCopy()
	excess.Sub(subscription.Quota)
	return excess.String()
}

// validateRemovedPools denies the removal of a node pool that projects name.
func validateRemovedPools(path *field.Path, before, department *v1alpha1.Department, projects []v1alpha1.Project) field.ErrorList {
	var errs field.ErrorList
	for i := range before.Spec.NodePools {
		pool := before.Spec.NodePools[i].Name
		if _, kept := findPool(department.Spec.NodePools, pool); kept != nil {
			continue
		}
		users := collectFromProjects(department, projects, func(p *v1alpha1.Project) string {
			if _, quota := findPool(p.Spec.NodePools, pool); quota == nil {
				return ""
			}
			return p.Name
		})
		if len(users) > 0 {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf(
				"node pool %s cannot be removed while projects name it: remove it from spec.nodePools of %s first", pool, tenancy.JoinLimited(users))))
		}
	}
	return errs
}

// validateLoweredLimits denies a limit that is lowered below a project's.
func validateLoweredLimits(path *field.Path, before, department *v1alpha1.Department, projects []v1alpha1.Project) field.ErrorList {
	var errs field.ErrorList
	for i := range department.Spec.NodePools {
		pool := &department.Spec.NodePools[i]
		_, old := findPool(before.Spec.NodePools, pool.Name)
		if old == nil || !isLowered(old.Limit, pool.GPU.Limit) {
			continue
		}
		higher := collectFromProjects(department, projects, func(p *v1alpha1.Project) string {
			_, quota := findPool(p.Spec.NodePools, pool.Name)
			if quota == nil || quota.Limit.Cmp(pool.GPU.Limit) <= 0 {
				return ""
			}
			return p.Name + " " + quota.Limit.String()
		})
		if len(higher) > 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("gpu", "limit"), pool.GPU.Limit.String(), fmt.Sprintf(
				"a project's limit cannot exceed its department's; in node pool %s first lower those of %s", pool.Name, tenancy.JoinLimited(higher))))
		}
	}
	return errs
}

// collectFromProjects returns the results of describe for the department's projects, sorted, without empty ones.
func collectFromProjects(department *v1alpha1.Department, projects []v1alpha1.Project, describe func(*v1alpha1.Project) string) []string {
	var texts []string
	for i := range projects {
		if p := &projects[i]; p.Spec.Department == department.Name {
			if text := describe(p); text != "" {
				texts = append(texts, text)
			}
		}
	}
	slices.Sort(texts)
	return texts
}
