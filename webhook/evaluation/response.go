// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge"
)

// The keys of audit annotations; the API server prefixes them with the webhook's name.
const (
	// AuditChangedBy lists the policies that changed the object.
	AuditChangedBy = "changed-by"
	// AuditDeniedBy lists the policies that denied the object.
	AuditDeniedBy = "denied-by"
)

// The limits of a response, so that a hostile object cannot cause a long one.
const (
	maxDenials       = 20
	maxWarnings      = 20
	maxMessageLength = 1024
)

// contactAdministrators is the fix for errors in policies.
const contactAdministrators = "contact the cluster administrators"

// NewResponse returns the response to a result, without a patch.
func NewResponse(result Result) admission.Response {
	response := admission.Allowed("")
	if len(result.Denials) > 0 {
		response = admission.Denied(strings.Join(formatMessages(result.Denials, maxDenials), "\n"))
	}
	response.Warnings = formatMessages(result.Warnings, maxWarnings)
	annotations := map[string][]string{
		AuditDeniedBy: policyNames(result.Denials),
	}
	if response.Allowed {
		annotations[AuditChangedBy] = slices.Sorted(maps.Keys(result.Merged.ChangedPaths))
	}
	for key, names := range annotations {
		if len(names) == 0 {
			continue
		}
		if response.AuditAnnotations == nil {
			response.AuditAnnotations = make(map[string]string)
		}
		response.AuditAnnotations[key] = strings.Join(names, ",")
	}
	return response
}

// SetPatch sets the response's patch from before to after; it sets none if they are equal.
func SetPatch(response *admission.Response, before, after map[string]any) error {
	operations := merge.Diff(before, after)
	if len(operations) == 0 {
		return nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	patchType := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = patch, &patchType
	return nil
}

// ErrorResponse returns the response for an object that could not be evaluated. It denies the object.
func ErrorResponse(err error) admission.Response {
	for _, temporary := range []error{engine.ErrNotLoaded, engine.ErrRequestDeadline, engine.ErrBusy, errNoSlot, errTooManyRequests} {
		if errors.Is(err, temporary) {
			return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("%w: try again in a moment", err))
		}
	}
	return admission.Errored(http.StatusInternalServerError, err)
}

// RetryResponse returns the response to an object that is refused for the moment. The API server adds the header
// Retry-After, so that client-go repeats the request by itself, up to ten times.
func RetryResponse(message string) admission.Response {
	response := admission.Denied(message)
	response.Result.Code, response.Result.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	response.Result.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return response
}

func formatMessages(findings []merge.Finding, limit int) []string {
	var lines []string
	for i, finding := range findings {
		if i == limit {
			lines = append(lines, fmt.Sprintf("and %d more", len(findings)-limit))
			break
		}
		lines = append(lines, truncateMessage(FormatMessage(finding)))
	}
	return lines
}

// truncateMessage shortens a message and puts it on one line.
func truncateMessage(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessageLength {
		text = strings.ToValidUTF8(text[:maxMessageLength], "") + "..."
	}
	return text
}

// policyNames returns the policies that have findings, sorted, each once.
func policyNames(findings []merge.Finding) []string {
	var names []string
	for _, finding := range findings {
		if finding.Policy != "" {
			names = append(names, finding.Policy)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

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
