// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"errors"
	"fmt"

	"sluice.dev/api/workload"
	"sluice.dev/policies/intent"
	"sluice.dev/policies/merge"
)

// faults says of an error of the merge whose fault it is.
func faults(err error) []intent.Complaint {
	var (
		conflict *merge.ConflictError
		object   *merge.ObjectError
	)
	if errors.As(err, &object) {
		return []intent.Complaint{{Message: object.Message, Field: object.Path}}
	}
	complaint := intent.Complaint{Message: err.Error(), Fix: "tell the cluster's administrators: until the policies are mended, such pods are refused"}
	if errors.As(err, &conflict) {
		complaint.Message = conflict.Error()
	}
	return []intent.Complaint{complaint}
}

// complaintsOf are what is wrong with what a pod asks for, one for each field.
func complaintsOf(malformed workload.Malformed) []intent.Complaint {
	complaints := make([]intent.Complaint, 0, len(malformed))
	for _, fault := range malformed {
		complaints = append(complaints, intent.Complaint{Message: fault.ErrorBody(), Field: fault.Field})
	}
	return complaints
}

// Sentence is a complaint as people read it: the policy, the field, what is
// wrong, and what to do.
func Sentence(c intent.Complaint) string {
	text := c.Message
	if c.Field != "" {
		text = fmt.Sprintf("%s: %s", c.Field, text)
	}
	if c.Fix != "" {
		text = fmt.Sprintf("%s; %s", text, c.Fix)
	}
	if c.Policy != "" {
		text = fmt.Sprintf("%s (policy %s)", text, c.Policy)
	}
	return text
}
