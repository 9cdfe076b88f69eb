// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package quotas

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/promises"
	"sluice.dev/api/v1alpha1"
)

// Asked judges what a project asks of its department: beside the department's
// other projects, which are among projects. Before is the project as it was, nil
// where it is new or comes from another department: then all of it is asked for.
//
// More than the department has left is refused, and only warned of where the
// department allows that.
func Asked(spec *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department, projects []v1alpha1.Project) (field.ErrorList, []string) {
	errs := beyondLimits(spec.Child("nodePools"), before, project, department)
	var warnings []string
	for _, promise := range promises.Of(department, projects, project.Name) {
		asked := promise.In(project.Spec.NodePools, project.Spec.Resources)
		had := stated(before, promise.Thing)
		path := pathOf(spec, promise.Thing, project.Spec.NodePools)
		if asked == nil {
			if promise.Pool == "" && (before == nil || had != nil) {
				errs = append(errs, field.Required(path, fmt.Sprintf("department %s has a quota of %s, %s, so each of its projects needs one; %s left",
					department.Name, promise.Thing, promise.Has.String(), isLeft(&promise))))
			}
			continue
		}
		if had != nil && asked.Cmp(*had) <= 0 || asked.IsZero() {
			continue
		}
		left := promise.Left()
		if asked.Cmp(left) <= 0 {
			continue
		}
		excess := inFigures(department, &promise, *asked)
		if department.Spec.Oversubscription == v1alpha1.OversubscriptionAllow {
			warnings = append(warnings, fmt.Sprintf("%s: %s; the department allows that (spec.oversubscription), but not all can then have theirs at once", path, excess))
			continue
		}
		errs = append(errs, field.Invalid(path, asked.String(), fmt.Sprintf("%s; ask for less, lower what another project was promised, or have a system administrator raise the department's or set its spec.oversubscription to Allow", excess)))
	}
	return errs, warnings
}

// beyondLimits refuses limits above the department's.
func beyondLimits(path *field.Path, before, project *v1alpha1.Project, department *v1alpha1.Department) field.ErrorList {
	var errs field.ErrorList
	for i := range project.Spec.NodePools {
		asked := &project.Spec.NodePools[i]
		_, bound := find(department.Spec.NodePools, asked.Name)
		if bound == nil || asked.GPU.Limit.Cmp(bound.Limit) <= 0 {
			continue
		}
		if before != nil {
			if _, had := find(before.Spec.NodePools, asked.Name); had != nil && asked.GPU.Limit.Cmp(had.Limit) <= 0 {
				continue
			}
		}
		errs = append(errs, field.Invalid(path.Index(i).Child("gpu", "limit"), asked.GPU.Limit.String(),
			fmt.Sprintf("must not be more than the limit of department %s in node pool %s, %s", department.Name, asked.Name, promises.GPUsOf(asked.Name).Amount(bound.Limit))))
	}
	return errs
}

// stated is what the project had of it; nil where it had none, or was not there.
func stated(project *v1alpha1.Project, thing promises.Thing) *resource.Quantity {
	if project == nil {
		return nil
	}
	return thing.In(project.Spec.NodePools, project.Spec.Resources)
}

// pathOf is where the thing stands in a spec with these pools.
func pathOf(spec *field.Path, thing promises.Thing, pools []v1alpha1.PoolQuota) *field.Path {
	if thing.Pool == "" {
		return spec.Child("resources", string(thing.Resource))
	}
	at, quota := find(pools, thing.Pool)
	if quota == nil {
		return spec.Child("nodePools")
	}
	return spec.Child("nodePools").Index(at).Child("gpu", "guaranteed")
}

// inFigures says of an excess what the department has, has promised, and is asked for.
func inFigures(department *v1alpha1.Department, promise *promises.Promise, asked resource.Quantity) string {
	has := "has"
	if promise.Pool != "" {
		has = "is guaranteed"
	}
	promised := "has promised none of it to other projects"
	if largest := promise.Largest(); largest != "" {
		promised = fmt.Sprintf("has promised %s to other projects (%s)", promise.Promised.String(), largest)
	}
	return fmt.Sprintf("department %s %s %s%s and %s: it asks for %s, and %s left",
		department.Name, has, promise.Amount(promise.Has), inPool(promise.Thing), promised, asked.String(), isLeft(promise))
}

func inPool(thing promises.Thing) string {
	if thing.Pool == "" {
		return ""
	}
	return " in node pool " + thing.Pool
}

func isLeft(promise *promises.Promise) string {
	left := promise.Left()
	if left.IsZero() {
		return "nothing is"
	}
	return left.String() + " is"
}
