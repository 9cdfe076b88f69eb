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

// ValidateProjectQuota validates the quotas that a project requests from its department. projects must contain the
// department's other projects, and pools its node pools. before is nil for a new project, and for one from another
// department.
//
// An excess is an error, or a warning if the department allows oversubscription.
func ValidateProjectQuota(
	spec *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department,
	projects []v1alpha1.Project, pools []v1alpha1.NodePool,
) (field.ErrorList, []string) {
	errs := validateProjectLimits(spec.Child("nodePools"), before, project, department)
	var warnings []string
	for _, subscription := range tenancy.Subscriptions(department, projects, pools, project.Name) {
		requested := subscription.QuotaOf(project.Spec.NodePools, project.Spec.Resources)
		old := projectQuota(before, subscription.QuotaResource)
		path := quotaPath(spec, subscription.QuotaResource, project.Spec.NodePools)
		if requested == nil {
			if subscription.NodePool == "" && (before == nil || old != nil) {
				errs = append(errs, field.Required(path, fmt.Sprintf("department %s has a quota of %s, %s, so each of its projects needs one; %s left",
					department.Name, subscription.QuotaResource, subscription.Quota.String(), describeRemaining(&subscription))))
			}
			continue
		}
		if old != nil && requested.Cmp(*old) <= 0 || requested.IsZero() {
			continue
		}
		left := subscription.Remaining()
		if requested.Cmp(left) <= 0 {
			continue
		}
		excess := describeExcess(department, &subscription, *requested)
		if department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow {
			warning := warnOversubscription(path, &subscription, excess)
			if exceedsLimit(department, &subscription, *requested, pools) {
				warning += "; of the pods within the guarantees of its projects, the newest above the department's limit are ended, " +
					"whichever project they belong to"
			}
			warnings = append(warnings, warning)
			continue
		}
		errs = append(errs, field.Invalid(path, requested.String(), fmt.Sprintf(
			"%s; request less, lower the quota of another project, "+
				"or ask a system administrator to raise the department's or to set its spec.oversubscription to Allow", excess)))
	}
	return errs, warnings
}

// validateProjectLimits denies limits above the department's.
func validateProjectLimits(path *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var errs field.ErrorList
	for i := range project.Spec.NodePools {
		requested := &project.Spec.NodePools[i]
		_, bound := findPool(department.Spec.NodePools, requested.Name)
		if bound == nil || requested.GPU.Limit.Cmp(bound.Limit) <= 0 {
			continue
		}
		if before != nil {
			if _, old := findPool(before.Spec.NodePools, requested.Name); old != nil && requested.GPU.Limit.Cmp(old.Limit) <= 0 {
				continue
			}
		}
		errs = append(errs, field.Invalid(path.Index(i).Child("gpu", "limit"), requested.GPU.Limit.String(),
			fmt.Sprintf("must not be more than the limit of department %s in node pool %s, %s",
				department.Name, requested.Name, tenancy.NodePoolGPUs(requested.Name).FormatAmount(bound.Limit))))
	}
	return errs
}

// projectQuota returns the project's quota of a resource; nil if it has none. The project can be nil.
func projectQuota(project *v1alpha1.Project, quotaResource tenancy.QuotaResource) *resource.Quantity {
	if project == nil {
		return nil
	}
	return quotaResource.QuotaOf(project.Spec.NodePools, project.Spec.Resources)
}

// quotaPath returns the path of a quota in a spec with these pools.
func quotaPath(spec *field.Path, quotaResource tenancy.QuotaResource, pools []v1alpha1.PoolQuota) *field.Path {
	if quotaResource.NodePool == "" {
		return spec.Child("resources", string(quotaResource.Resource))
	}
	index, quota := findPool(pools, quotaResource.NodePool)
	if quota == nil {
		return spec.Child("nodePools")
	}
	quotaField := "guaranteed"
	if quotaResource.Limit && quota.Weight() > 0 {
		quotaField = "limit"
	}
	return spec.Child("nodePools").Index(index).Child("gpu", quotaField)
}

// describeExcess describes a request that exceeds the department's remaining quota.
func describeExcess(department *v1alpha1.Department, subscription *tenancy.Subscription, requested resource.Quantity) string {
	verb := "has"
	switch {
	case subscription.Limit:
		verb = "is limited to"
	case subscription.NodePool != "":
		verb = "is guaranteed"
	}
	promised := "has promised none of it to other projects"
	if shares := subscription.DescribeShares(); shares != "" {
		promised = fmt.Sprintf("has promised %s to other projects (%s)", subscription.Subscribed.String(), shares)
	}
	return fmt.Sprintf("department %s %s %s%s and %s: it requests %s, and %s left",
		department.Name, verb, subscription.FormatAmount(subscription.Quota), describePool(subscription.QuotaResource),
		promised, requested.String(), describeRemaining(subscription))
}

// exceedsLimit reports whether the guarantees of projects that are counted alone exceed the department's limit, so that
// not all can be kept.
func exceedsLimit(
	department *v1alpha1.Department, subscription *tenancy.Subscription, requested resource.Quantity, pools []v1alpha1.NodePool,
) bool {
	_, bound := findPool(department.Spec.NodePools, subscription.NodePool)
	if bound == nil || subscription.Limit || !slices.ContainsFunc(pools, func(pool v1alpha1.NodePool) bool {
		return pool.Name == subscription.NodePool && pool.Spec.Scheduler.CountsProjectsAlone()
	}) {
		return false
	}
	requested.Add(subscription.Subscribed)
	return requested.Cmp(bound.MaxInUse()) > 0
}

func warnOversubscription(path *field.Path, subscription *tenancy.Subscription, excess string) string {
	consequence := "but not all projects can use their quota at the same time"
	if subscription.Limit {
		consequence = "and of the GPU pods of its projects above its limit, the newest over quota are ended"
	}
	return fmt.Sprintf("%s: %s; the department allows that (spec.oversubscription), %s", path, excess, consequence)
}

func describePool(quotaResource tenancy.QuotaResource) string {
	if quotaResource.NodePool == "" {
		return ""
	}
	if quotaResource.Limit {
		return " in node pool " + quotaResource.NodePool + ", where each project is counted alone,"
	}
	return " in node pool " + quotaResource.NodePool
}

func describeRemaining(subscription *tenancy.Subscription) string {
	left := subscription.Remaining()
	if left.IsZero() {
		return "nothing is"
	}
	return left.String() + " is"
}
