// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"

	"sluice.dev/api/v1alpha1"
)

// Department is input.department.
type Department struct {
	// Name is the department's name, DisplayName what people call it.
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	// Labels and Annotations are those of the Department object.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// TimeZone is that of input.now, as the department names it; UTC by default.
	TimeZone string `json:"timeZone"`
	// Resources are how much CPU and memory the pods of all its projects may request
	// at once.
	Resources Resources `json:"resources"`
	// Oversubscription is Allow where its projects' guarantees may add up to more
	// than its own; else Refuse.
	Oversubscription v1alpha1.Oversubscription `json:"oversubscription"`
}

// OfDepartment is what policies are told of a department.
func OfDepartment(department *v1alpha1.Department) Department {
	facts := Department{
		Name:             department.Name,
		DisplayName:      string(department.Spec.DisplayName),
		Labels:           orEmpty(department.Labels),
		Annotations:      orEmpty(department.Annotations),
		TimeZone:         "UTC",
		Resources:        resourcesOf(department.Spec.Resources),
		Oversubscription: cmp.Or(department.Spec.Oversubscription, v1alpha1.OversubscriptionRefuse),
	}
	if zone := department.Spec.Notices.TimeZone; zone != "" {
		facts.TimeZone = zone
	}
	return facts
}
