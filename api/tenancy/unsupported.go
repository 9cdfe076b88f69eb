// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"slices"
	"strings"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// UnsupportedField is a field that may be set and has no effect yet.
type UnsupportedField struct {
	// Kind is the kind of the object, and Path the path of the field in it.
	Kind, Path string
	// Effect is what the field will do.
	Effect string
}

// check is an UnsupportedField and how to find out whether an object sets it.
type check[T any] struct {
	UnsupportedField
	isSet func(*T) bool
}

// What the fields of several kinds will do.
const (
	idleEffect   = "stops workloads whose GPUs are idle"
	activeEffect = "counts only the time in which GPUs are used"
)

var departmentChecks = []check[v1alpha1.Department]{
	{
		UnsupportedField{"Department", "spec.projects", "suspends and deletes projects after their validity, or has them confirmed"},
		func(d *v1alpha1.Department) bool { return d.Spec.Projects.Validity != nil },
	},
	{
		UnsupportedField{"Department", "spec.holidays", "postpones the steps of an expiry"},
		func(d *v1alpha1.Department) bool { return len(d.Spec.Holidays) > 0 },
	},
	{
		UnsupportedField{"Department", "spec.notices.projectExpiry", "warns the owners of projects before each step of an expiry"},
		func(d *v1alpha1.Department) bool { return !isDefaultProjectExpiry(d.Spec.Notices.ProjectExpiry) },
	},
	{
		UnsupportedField{"Department", "spec.notices.digest", "combines the warnings about projects in one mail a day"},
		func(d *v1alpha1.Department) bool { return d.Spec.Notices.Digest != "" },
	},
	{
		UnsupportedField{"Department", "spec.workloads[*].idleTimeout", idleEffect},
		func(d *v1alpha1.Department) bool { return setsIdleTimeout(d.Spec.Workloads) },
	},
	{
		UnsupportedField{"Department", "spec.workloads[*].clock: Active", activeEffect},
		func(d *v1alpha1.Department) bool { return setsActiveClock(d.Spec.Workloads) },
	},
}

var projectChecks = []check[v1alpha1.Project]{
	{
		UnsupportedField{"Project", "spec.validFrom", "is the start of the project's validity"},
		func(p *v1alpha1.Project) bool { return p.Spec.ValidFrom != nil },
	},
	{
		UnsupportedField{"Project", "spec.workloads[*].idleTimeout", idleEffect},
		func(p *v1alpha1.Project) bool { return setsIdleTimeout(p.Spec.Workloads) },
	},
	{
		UnsupportedField{"Project", "spec.workloads[*].clock: Active", activeEffect},
		func(p *v1alpha1.Project) bool { return setsActiveClock(p.Spec.Workloads) },
	},
}

var nodePoolChecks = []check[v1alpha1.NodePool]{{
	UnsupportedField{"NodePool", "spec.compute: Strict", "limits each pod to its share of a GPU's compute"},
	func(p *v1alpha1.NodePool) bool { return p.Spec.Compute == v1alpha1.ComputeStrict },
}}

var extensionChecks = []check[v1alpha1.Extension]{
	{
		UnsupportedField{"Extension", "spec.action: Delete", "deletes a project once an approver has approved it"},
		func(e *v1alpha1.Extension) bool { return e.Spec.Action == v1alpha1.ActionDelete },
	},
}

// UnsupportedFields returns all fields that have no effect yet, by kind.
func UnsupportedFields() []UnsupportedField {
	return slices.Concat(fieldsOf(departmentChecks, nil), fieldsOf(projectChecks, nil), fieldsOf(nodePoolChecks, nil), fieldsOf(extensionChecks, nil))
}

// UnsupportedInDepartment returns the fields without effect that a department sets.
func UnsupportedInDepartment(d *v1alpha1.Department) []UnsupportedField {
	return fieldsOf(departmentChecks, d)
}

// UnsupportedInProject returns the fields without effect that a project sets.
func UnsupportedInProject(p *v1alpha1.Project) []UnsupportedField {
	return fieldsOf(projectChecks, p)
}

// UnsupportedInNodePool returns the fields without effect that a node pool sets.
func UnsupportedInNodePool(p *v1alpha1.NodePool) []UnsupportedField {
	return fieldsOf(nodePoolChecks, p)
}

// UnsupportedInExtension returns the fields without effect that an extension sets.
func UnsupportedInExtension(e *v1alpha1.Extension) []UnsupportedField {
	return fieldsOf(extensionChecks, e)
}

// fieldsOf returns the fields that the object sets, or all if it is nil.
func fieldsOf[T any](checks []check[T], object *T) (fields []UnsupportedField) {
	for _, c := range checks {
		if object == nil || c.isSet(object) {
			fields = append(fields, c.UnsupportedField)
		}
	}
	return fields
}

// DescribeUnsupported returns the message of the condition Unsupported for these fields.
func DescribeUnsupported(fields []UnsupportedField) string {
	described := make([]string, 0, len(fields))
	for _, f := range fields {
		described = append(described, f.Path+" ("+f.Effect+")")
	}
	return "these fields have no effect yet: " + strings.Join(described, ", ")
}

func setsIdleTimeout(limits map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits) bool {
	for _, l := range limits {
		if l.IdleTimeout != nil {
			return true
		}
	}
	return false
}

func setsActiveClock(limits map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits) bool {
	for _, l := range limits {
		if l.Clock == v1alpha1.ClockActive {
			return true
		}
	}
	return false
}

// isDefaultProjectExpiry reports whether the warnings are absent or those that the API server sets
// by default. These do not count as set.
func isDefaultProjectExpiry(leads []period.Duration) bool {
	texts := make([]string, 0, len(leads))
	for _, lead := range leads {
		texts = append(texts, lead.String())
	}
	return len(texts) == 0 || slices.Equal(texts, []string{"30d", "7d", "1d"})
}
