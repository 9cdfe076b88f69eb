// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quotas judges the quotas of projects and departments, and changes of them.
//
// Enters: a Project or a Department before and after a change, with those beside
// it and what is in use. Leaves: the fields in which it asks for more than there
// is, with the figures, and warnings of what is allowed but will be felt.
//
// It judges what somebody asks for, never what stands already: who changes
// something else, or asks for less, is not refused for an excess of old.
package quota

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// ValidateProject judges what a project asks of its department: beside the department's
// other projects, which are among projects. Before is the project as it was, nil
// where it is new or comes from another department: then all of it is asked for.
//
// More than the department has left is refused, and only warned of where the
// department allows that.
func ValidateProject(spec *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department, projects []v1alpha1.Project) (field.ErrorList, []string) {
	errs := validateProjectLimits(spec.Child("nodePools"), before, project, department)
	var warnings []string
	for _, promise := range tenancy.Subscriptions(department, projects, project.Name) {
		asked := promise.QuotaOf(project.Spec.NodePools, project.Spec.Resources)
		had := projectQuota(before, promise.QuotaResource)
		path := quotaPath(spec, promise.QuotaResource, project.Spec.NodePools)
		if asked == nil {
			if promise.NodePool == "" && (before == nil || had != nil) {
				errs = append(errs, field.Required(path, fmt.Sprintf("department %s has a quota of %s, %s, so each of its projects needs one; %s left",
					department.Name, promise.QuotaResource, promise.Quota.String(), describeRemaining(&promise))))
			}
			continue
		}
		if had != nil && asked.Cmp(*had) <= 0 || asked.IsZero() {
			continue
		}
		left := promise.Remaining()
		if asked.Cmp(left) <= 0 {
			continue
		}
		excess := describeExcess(department, &promise, *asked)
		if department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow {
			warnings = append(warnings, fmt.Sprintf("%s: %s; the department allows that (spec.oversubscription), but not all can then have theirs at once", path, excess))
			continue
		}
		errs = append(errs, field.Invalid(path, asked.String(), fmt.Sprintf("%s; ask for less, lower what another project was promised, or have a system administrator raise the department's or set its spec.oversubscription to Allow", excess)))
	}
	return errs, warnings
}

// validateProjectLimits refuses limits above the department's.
func validateProjectLimits(path *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var errs field.ErrorList
	for i := range project.Spec.NodePools {
		asked := &project.Spec.NodePools[i]
		_, bound := findPool(department.Spec.NodePools, asked.Name)
		if bound == nil || asked.GPU.Limit.Cmp(bound.Limit) <= 0 {
			continue
		}
		if before != nil {
			if _, had := findPool(before.Spec.NodePools, asked.Name); had != nil && asked.GPU.Limit.Cmp(had.Limit) <= 0 {
				continue
			}
		}
		errs = append(errs, field.Invalid(path.Index(i).Child("gpu", "limit"), asked.GPU.Limit.String(),
			fmt.Sprintf("must not be more than the limit of department %s in node pool %s, %s", department.Name, asked.Name, tenancy.NodePoolGPUs(asked.Name).FormatAmount(bound.Limit))))
	}
	return errs
}

// projectQuota is what the project had of it; nil where it had none, or was not there.
func projectQuota(project *v1alpha1.Project, thing tenancy.QuotaResource) *resource.Quantity {
	if project == nil {
		return nil
	}
	return thing.QuotaOf(project.Spec.NodePools, project.Spec.Resources)
}

// quotaPath is where the thing stands in a spec with these pools.
func quotaPath(spec *field.Path, thing tenancy.QuotaResource, pools []v1alpha1.PoolQuota) *field.Path {
	if thing.NodePool == "" {
		return spec.Child("resources", string(thing.Resource))
	}
	at, quota := findPool(pools, thing.NodePool)
	if quota == nil {
		return spec.Child("nodePools")
	}
	return spec.Child("nodePools").Index(at).Child("gpu", "guaranteed")
}

// describeExcess says of an excess what the department has, has promised, and is asked for.
func describeExcess(department *v1alpha1.Department, promise *tenancy.Subscription, asked resource.Quantity) string {
	has := "has"
	if promise.NodePool != "" {
		has = "is guaranteed"
	}
	promised := "has promised none of it to other projects"
	if largest := promise.DescribeShares(); largest != "" {
		promised = fmt.Sprintf("has promised %s to other projects (%s)", promise.Subscribed.String(), largest)
	}
	return fmt.Sprintf("department %s %s %s%s and %s: it asks for %s, and %s left",
		department.Name, has, promise.FormatAmount(promise.Quota), describePool(promise.QuotaResource), promised, asked.String(), describeRemaining(promise))
}

func describePool(thing tenancy.QuotaResource) string {
	if thing.NodePool == "" {
		return ""
	}
	return " in node pool " + thing.NodePool
}

func describeRemaining(promise *tenancy.Subscription) string {
	left := promise.Remaining()
	if left.IsZero() {
		return "nothing is"
	}
	return left.String() + " is"
}
