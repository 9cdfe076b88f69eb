// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"

	"sluice.dev/api/v1alpha1"
)

// strictness are the levels of Pod Security, the loosest first.
var strictness = []v1alpha1.PodSecurity{
	v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted,
}

// PodSecurity is the level to which a project's namespace is held: the stricter
// of its own and its department's, which is baseline where it says none. The
// department may be nil.
func PodSecurity(project *v1alpha1.Project, department *v1alpha1.Department) v1alpha1.PodSecurity {
	level := v1alpha1.PodSecurityBaseline
	if department != nil && slices.Contains(strictness, department.Spec.PodSecurity) {
		level = department.Spec.PodSecurity
	}
	if slices.Index(strictness, project.Spec.PodSecurity) > slices.Index(strictness, level) {
		level = project.Spec.PodSecurity
	}
	return level
}
