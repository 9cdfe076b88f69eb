// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
)

// ValidateDepartment judges a change of a department by what its projects, which are among
// projects, were promised: less than that it cannot have, unless it allows
// oversubscription; then it is warned of.
func ValidateDepartment(spec *field.Path, before, department *v1alpha1.Department, projects []v1alpha1.Project) (field.ErrorList, []string) {
	errs := validateRemovedPools(spec.Child("nodePools"), before, department, projects)
	errs = append(errs, validateLoweredLimits(spec.Child("nodePools"), before, department, projects)...)
	allowed := department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow
	var warnings []string
	for _, promise := range tenancy.Subscriptions(department, projects, "") {
		had := promise.QuotaOf(before.Spec.NodePools, before.Spec.Resources)
		path := quotaPath(spec, promise.QuotaResource, department.Spec.NodePools)
		if isNew := had == nil && promise.NodePool == ""; isNew && len(promise.WithoutQuota) > 0 {
			errs = append(errs, field.Invalid(path, promise.Quota.String(), fmt.Sprintf(
				"where a department has a quota of %s, each of its projects has one: state spec.resources.%s in %s first", promise.QuotaResource, promise.Resource, tenancy.JoinLimited(promise.WithoutQuota))))
		}
		if !promise.IsOversubscribed() || !causesExcess(before, department, had, &promise) {
			continue
		}
		excess := fmt.Sprintf("the projects of department %s were promised %s%s (%s), %s more than that",
			department.Name, promise.FormatAmount(promise.Subscribed), describePool(promise.QuotaResource), promise.DescribeShares(), excessAmount(&promise))
		if allowed {
			warnings = append(warnings, fmt.Sprintf("%s: %s; the department allows that (spec.oversubscription), but not all can then have theirs at once", path, excess))
			continue
		}
		errs = append(errs, field.Invalid(path, promise.Quota.String(), excess+"; lower theirs first, or set spec.oversubscription to Allow"))
	}
	return errs, warnings
}

// causesExcess tells whether the change makes the excess, or forbids it: the
// department has less than before, a quota where it had none, or stops allowing.
func causesExcess(before, after *v1alpha1.Department, had *resource.Quantity, promise *tenancy.Subscription) bool {
	if had == nil {
		return promise.NodePool == ""
	}
	forbids := before.Spec.Oversubscription == v1alpha1.OversubscriptionAllow && after.Spec.Oversubscription != v1alpha1.OversubscriptionAllow
	return isLowered(*had, promise.Quota) || forbids
}

func excessAmount(promise *tenancy.Subscription) string {
	excess := promise.Subscribed.DeepCopy()
	excess.Sub(promise.Quota)
	return excess.String()
}

// validateRemovedPools refuses to take a node pool away while projects name it.
func validateRemovedPools(path *field.Path, before, department *v1alpha1.Department, projects []v1alpha1.Project) field.ErrorList {
	var errs field.ErrorList
	for i := range before.Spec.NodePools {
		pool := before.Spec.NodePools[i].Name
		if _, kept := findPool(department.Spec.NodePools, pool); kept != nil {
			continue
		}
		naming := collectFromProjects(department, projects, func(p *v1alpha1.Project) string {
			if _, has := findPool(p.Spec.NodePools, pool); has == nil {
				return ""
			}
			return p.Name
		})
		if len(naming) > 0 {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("node pool %s cannot be taken away while projects name it: take it out of spec.nodePools of %s first", pool, tenancy.JoinLimited(naming))))
		}
	}
	return errs
}

// validateLoweredLimits refuses a limit that is lowered below a project's.
func validateLoweredLimits(path *field.Path, before, department *v1alpha1.Department, projects []v1alpha1.Project) field.ErrorList {
	var errs field.ErrorList
	for i := range department.Spec.NodePools {
		pool := &department.Spec.NodePools[i]
		_, had := findPool(before.Spec.NodePools, pool.Name)
		if had == nil || !isLowered(had.Limit, pool.GPU.Limit) {
			continue
		}
		higher := collectFromProjects(department, projects, func(p *v1alpha1.Project) string {
			_, has := findPool(p.Spec.NodePools, pool.Name)
			if has == nil || has.Limit.Cmp(pool.GPU.Limit) <= 0 {
				return ""
			}
			return p.Name + " " + has.Limit.String()
		})
		if len(higher) > 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("gpu", "limit"), pool.GPU.Limit.String(),
				fmt.Sprintf("no project's limit may be more than its department's; in node pool %s lower first those of %s", pool.Name, tenancy.JoinLimited(higher))))
		}
	}
	return errs
}

// collectFromProjects is what say says of the department's projects, in order, without those of
// which it says nothing.
func collectFromProjects(department *v1alpha1.Department, projects []v1alpha1.Project, say func(*v1alpha1.Project) string) []string {
	var words []string
	for i := range projects {
		if p := &projects[i]; p.Spec.Department == department.Name {
			if word := say(p); word != "" {
				words = append(words, word)
			}
		}
	}
	slices.SortFunc(words, strings.Compare)
	return words
}
