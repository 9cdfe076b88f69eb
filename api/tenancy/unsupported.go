// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"strings"

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

var nodePoolChecks = []check[v1alpha1.NodePool]{{
	UnsupportedField{"NodePool", "spec.preemption", "preempts pods only where MIG instances are planned from demand"},
	func(p *v1alpha1.NodePool) bool { return p.Spec.Preemption != nil && !p.Spec.PlansMIG() },
}, {
	UnsupportedField{"NodePool", "spec.sharing: HAMi", "gives pods shares of a GPU by HAMi's virtual GPUs"},
	func(p *v1alpha1.NodePool) bool { return p.Spec.Sharing == v1alpha1.SharingHAMi },
}}

// UnsupportedFields returns all fields that have no effect yet, by kind.
func UnsupportedFields() []UnsupportedField { return fieldsOf(nodePoolChecks, nil) }

// UnsupportedInNodePool returns the fields without effect that a node pool sets.
func UnsupportedInNodePool(p *v1alpha1.NodePool) []UnsupportedField {
	return fieldsOf(nodePoolChecks, p)
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
