// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

// NamespaceName is the name of the namespace in which the project works: the one
// its spec names, or its own name.
func (p *Project) NamespaceName() string {
	if p.Spec.Namespace != "" {
		return p.Spec.Namespace
	}
	return p.Name
}

// Anchor is the instant from which the project's periods of validity are
// counted: the start of validFrom in loc, or the project's creation.
func (p *Project) Anchor(loc *time.Location) time.Time {
	if p.Spec.ValidFrom != nil {
		return p.Spec.ValidFrom.Start(loc)
	}
	return p.CreationTimestamp.Time
}
