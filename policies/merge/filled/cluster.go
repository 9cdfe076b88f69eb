// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// Cluster is what the API server fills in that differs from cluster to cluster.
// The zero Cluster is one as shipped.
type Cluster struct {
	// DefaultPriorityClass is the name of the PriorityClass with globalDefault;
	// empty if there is none.
	DefaultPriorityClass string
}

// Open tells whether the author left a field open: it is absent, or what the API
// server fills in there.
func (c Cluster) Open(field *podschema.Field, at Place, v any) bool {
	return Absent(field, v) || c.Filled(field, at, v)
}

// Filled tells whether v is what the API server fills in there. For a dict it is
// asked about each entry.
func (c Cluster) Filled(field *podschema.Field, at Place, v any) bool {
	rule, ok := rules[field]
	return ok && rule(c, at, v)
}

// Absent tells whether to Kubernetes the field is not there: it is null, or has
// the zero value of a type that cannot tell zero from nothing.
func Absent(field *podschema.Field, v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0 && !field.Pointer
	case []any:
		return len(v) == 0
	case string:
		return v == "" && !field.Pointer
	case bool:
		return !v && !field.Pointer
	}
	zero, ok := value.Whole(v)
	return ok && zero == 0 && !field.Pointer
}
