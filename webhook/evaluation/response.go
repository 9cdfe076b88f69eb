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
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/policies/decision"
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

// NewResponse returns the response to a result, without a patch.
func NewResponse(result Result) admission.Response {
	response := admission.Allowed("")
	if len(result.Denials) > 0 {
		response = admission.Denied(result.DenialPrefix + strings.Join(formatMessages(result.Denials, maxDenials), "\n"))
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
	if errors.Is(err, engine.ErrNotLoaded) {
		return admission.Errored(http.StatusServiceUnavailable, fmt.Errorf("%w: try again in a moment", err))
	}
	return admission.Errored(http.StatusInternalServerError, err)
}

// ErrorResponse is [ErrorResponse] for an object of a tenant. Where only the time was too short, it asks to try again; with the header
// Retry-After, clients of the project that causes the load would repeat by themselves what there are too many of.
func (e *Evaluator) ErrorResponse(user authenticationv1.UserInfo, tenant *decision.Tenant, err error) admission.Response {
	for _, busy := range []error{engine.ErrRequestDeadline, engine.ErrBusy, errNoSlot, errTooManyRequests} {
		if errors.Is(err, busy) {
			response := RetryResponse(user, fmt.Sprintf("busy, try again: %v", err))
			if tenant != nil && e.Slots.isCrowdedBy(tenant.Project) {
				response.Result.Details = nil
			}
			return response
		}
	}
	return ErrorResponse(err)
}

// RetryResponse returns the response to an object that is refused for the moment. For people's clients the API server adds the header
// Retry-After, with which client-go repeats the request up to ten times within the call. A controller would hold a worker so long, and
// puts the object into its queue again by itself.
func RetryResponse(user authenticationv1.UserInfo, message string) admission.Response {
	response := admission.Denied(message)
	response.Result.Code, response.Result.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	if !isController(user.Username) {
		response.Result.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return response
}

// isController reports whether a user is a ServiceAccount or a component of the cluster.
func isController(user string) bool { return strings.HasPrefix(user, "system:") }

func formatMessages(findings []merge.Finding, limit int) []string {
	var lines []string
	for i, finding := range findings {
		if i == limit {
			lines = append(lines, fmt.Sprintf("and %d more", len(findings)-limit))
			break
		}
		lines = append(lines, truncateMessage(decision.FormatMessage(finding)))
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
