// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// requestExamples returns the examples about Extensions. base has the inputs of all examples.
func requestExamples(base map[string]string) []example {
	extension := exampleObject("sluice.dev/v1alpha1", "Extension", "thesis-mueller", "job-training-x7k2p")
	renew := exampleObject("sluice.dev/v1alpha1", "Extension", "thesis-mueller", "project-thesis-mueller-q4z8d")

	request := withInputs(
		base, InputTargetKind, "Job", InputTargetName, "training", InputExtendBy, "24h", InputReason, "two epochs are left", InputRequestedBy,
		"anna.mueller@example.org",
	)
	renewal := withInputs(
		base, InputTargetKind, "Project", InputTargetName, "thesis-mueller", InputReason, "the defense is in June", InputRequestedBy,
		"anna.mueller@example.org",
	)
	return []example{
		{
			kind: v1alpha1.NoticeExtensionRequested, variant: "workload", subject: extension,
			inputs: withInputs(request, InputCause, CauseSelfServiceLimitReached, InputUsed, "2", InputAllowed, "2", InputWindow, "30d"),
		},
		{
			kind: v1alpha1.NoticeExtensionRequested, variant: "renewal", subject: renew,
			inputs: withInputs(renewal, InputCause, CauseSelfServiceLimitReached, InputUsed, "1", InputAllowed, "1"),
		},
		{
			kind: v1alpha1.NoticeExtensionRequested, variant: "informed", subject: renew,
			inputs: withInputs(
				renewal, InputCause, CauseNoSelfService, InputInformed, "true", InputRequestedBy, "dept-admin@example.org",
				InputOnBehalfOf, "anna.mueller@example.org",
			),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "approved", subject: extension,
			inputs: withInputs(
				request, InputDecision, "Approved", InputDecidedBy, "dept-admin@example.org", InputMessage, "see you on Monday", InputNewEnd,
				formatTimestamp(exampleTime.Add(48*time.Hour)),
			),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "selfservice", subject: extension,
			inputs: withInputs(
				request, InputDecision, "Approved", InputNewEnd, formatTimestamp(exampleTime.Add(48*time.Hour)), InputUsed, "1", InputAllowed, "2",
				InputWindow, "30d",
			),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "gone", subject: extension,
			inputs: withInputs(request, InputDecision, "Approved", InputDecidedBy, "dept-admin@example.org", InputCause, CauseWorkloadNotFound),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "toooften", subject: extension,
			inputs: withInputs(request, InputDecision, "Denied", InputCause, CauseExtensionLimitReached, InputUsed, "64"),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "refused", subject: extension,
			inputs: withInputs(request, InputDecision, "Denied", InputDecidedBy, "dept-admin@example.org", InputMessage, "others wait"),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "renewed", subject: renew,
			inputs: withInputs(
				renewal, InputDecision, "Approved", InputNewEnd, formatTimestamp(exampleRenewalEnd), InputUsed, "1", InputAllowed, "1",
			),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "late", subject: renew,
			inputs: withInputs(renewal, InputDecision, "Approved", InputDecidedBy, "dept-admin@example.org", InputCause, CauseNotRenewable),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "notrenewed", subject: renew,
			inputs: withInputs(renewal, InputDecision, "Denied", InputDecidedBy, "dept-admin@example.org", InputMessage, "others wait"),
		},
		{
			kind: v1alpha1.NoticeExtensionDecided, variant: "renewal", subject: renew,
			inputs: withInputs(
				renewal, InputDecision, "Approved", InputDecidedBy, "dept-admin@example.org", InputNewEnd, formatTimestamp(exampleRenewalEnd),
			),
		},
	}
}
