// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge"
)

// contactAdministrators is the fix for errors in policies.
const contactAdministrators = "contact the cluster administrators"

// denialsForMergeError returns the denials for an error of the merge: the object or the policies are invalid.
func denialsForMergeError(err error) []merge.Finding {
	var object *merge.InvalidObjectError
	if errors.As(err, &object) {
		return []merge.Finding{{Message: object.Message, Field: object.Path}}
	}
	denial := merge.Finding{Message: err.Error(), Fix: contactAdministrators + ": such pods are denied until the policies are fixed"}
	var conflict *merge.ConflictError
	if errors.As(err, &conflict) {
		denial.Message = conflict.Error()
	}
	return []merge.Finding{denial}
}

// denialsForChanges returns a denial for each policy that still changes the object. before are the paths that the
// policies changed until then.
func denialsForChanges(merged merge.Result, format string, before map[string][]string) []merge.Finding {
	var denials []merge.Finding
	for _, policy := range slices.Sorted(maps.Keys(merged.ChangedPaths)) {
		paths := merged.ChangedPaths[policy]
		denial := merge.Finding{Policy: policy, Message: fmt.Sprintf(format, strings.Join(paths, ", ")), Fix: contactAdministrators}
		denials = append(denials, nameOtherPolicies(denial, paths, before))
	}
	return denials
}

// denialsOfChanged returns the denials of an object that policies changed: an author can do nothing about what they
// set.
func denialsOfChanged(denials []merge.Finding, changedPaths map[string][]string) []merge.Finding {
	named := slices.Clone(denials)
	for i, denial := range named {
		named[i] = nameOtherPolicies(denial, []string{denial.Field}, changedPaths)
	}
	return named
}

// nameOtherPolicies names, in the fix of a denial, the other policies that changed any of its paths.
func nameOtherPolicies(denial merge.Finding, paths []string, changedPaths map[string][]string) merge.Finding {
	var others []string
	for _, policy := range slices.Sorted(maps.Keys(changedPaths)) {
		overlaps := func(path string) bool {
			return slices.ContainsFunc(changedPaths[policy], func(p string) bool { return isPathWithin(path, p) || isPathWithin(p, path) })
		}
		if policy != denial.Policy && slices.ContainsFunc(paths, overlaps) {
			others = append(others, policy)
		}
	}
	if len(others) > 0 {
		denial.Fix = fmt.Sprintf("set by policy %s, not by the author: %s", strings.Join(others, ", "), contactAdministrators)
	}
	return denial
}

// isPathWithin reports whether a path is another one or a part of it.
func isPathWithin(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && outer != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// denialsForInvalidRequest returns a denial for each invalid field of a GPU request.
func denialsForInvalidRequest(invalid workload.InvalidRequest) []merge.Finding {
	denials := make([]merge.Finding, 0, len(invalid))
	for _, fault := range invalid {
		denials = append(denials, merge.Finding{Message: fault.ErrorBody(), Field: fault.Field})
	}
	return denials
}

// FormatMessage returns a finding as text: the field, the problem, the fix and the policy.
func FormatMessage(finding merge.Finding) string {
	text := finding.Message
	if finding.Field != "" {
		text = fmt.Sprintf("%s: %s", finding.Field, text)
	}
	if finding.Fix != "" {
		text = fmt.Sprintf("%s; %s", text, finding.Fix)
	}
	if finding.Policy != "" {
		text = fmt.Sprintf("%s (policy %s)", text, finding.Policy)
	}
	return text
}

// warnedFindings returns the first finding of each policy in Warn that would refuse the object.
func warnedFindings(outcome *engine.Outcome) []merge.Finding {
	var findings []merge.Finding
	for _, e := range outcome.Evaluations {
		if e.Result != engine.ResultDenied || e.Enforcement != v1alpha1.EnforcementWarn {
			continue
		}
		// The denials come before the warnings of the same policy.
		at := slices.IndexFunc(outcome.Warnings, func(f merge.Finding) bool { return f.Policy == e.Policy })
		if at >= 0 {
			findings = append(findings, outcome.Warnings[at])
		}
	}
	return findings
}
