// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// exampleRecipientInputs returns the inputs for owners, and for the department's contacts.
func exampleRecipientInputs(base map[string]string) (owned, contacted map[string]string) {
	contacts := FormatContacts([]v1alpha1.Contact{{Name: "Graduate Office", Email: "office@example.org"}})
	owned = withInputs(base, InputContacts, contacts)
	contacted = withInputs(base, InputOwners, FormatContacts([]v1alpha1.Contact{
		{Name: "Anna Müller", Email: "anna.mueller@example.org"}, {Email: "ben.weber@example.org"},
	}))
	return owned, contacted
}

// projectExamples holds an example of each variant about the end of a project.
func projectExamples(project v1alpha1.ObjectReference, base map[string]string) []example {
	owned, contacted := exampleRecipientInputs(base)
	ended := withInputs(owned, InputExpiredAt, formatTimestamp(exampleMidnight(-8)))
	expired := withInputs(ended, InputDeleteAt, formatTimestamp(exampleMidnight(22)))
	deletion := func(variant string, more ...string) example {
		inputs := withInputs(withInputs(base, InputDeletedAt, formatTimestamp(exampleTime.Add(-time.Hour))), more...)
		return example{kind: v1alpha1.NoticeProjectDeleted, variant: variant, subject: project, inputs: inputs}
	}
	return []example{
		{
			kind: v1alpha1.NoticeProjectExpiring, variant: "suspension", subject: project, deadline: exampleMidnight(30),
			inputs: withInputs(owned, InputSuspendAt, formatTimestamp(exampleMidnight(44)), InputDeleteAt, formatTimestamp(exampleMidnight(60))),
		},
		{kind: v1alpha1.NoticeProjectExpiring, variant: "month", subject: project, deadline: exampleMidnight(30), inputs: owned},
		{kind: v1alpha1.NoticeProjectExpiring, variant: "contact", subject: project, deadline: exampleMidnight(1), inputs: contacted},
		{kind: v1alpha1.NoticeProjectExpired, variant: "expired", subject: project, inputs: ended},
		{kind: v1alpha1.NoticeProjectExpired, variant: "suspension", subject: project, deadline: exampleMidnight(6), inputs: expired},
		{
			kind: v1alpha1.NoticeProjectSuspending, variant: "week", subject: project, deadline: exampleMidnight(6),
			inputs: withInputs(expired, InputRunning, "3"),
		},
		{
			kind: v1alpha1.NoticeProjectSuspended, variant: "suspended", subject: project, deadline: exampleMidnight(16),
			inputs: withInputs(owned, InputExpiredAt, formatTimestamp(exampleMidnight(-15)), InputStopped, "3"),
		},
		{
			kind: v1alpha1.NoticeProjectSuspending, variant: "contact", subject: project, deadline: exampleMidnight(6),
			inputs: withInputs(contacted, InputExpiredAt, formatTimestamp(exampleMidnight(-8)), InputDeleteAt, formatTimestamp(exampleMidnight(22))),
		},
		{
			kind: v1alpha1.NoticeProjectSuspended, variant: "contact", subject: project, deadline: exampleMidnight(16),
			inputs: withInputs(contacted, InputExpiredAt, formatTimestamp(exampleMidnight(-15)), InputStopped, "0"),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "ahead", subject: project, deadline: exampleMidnight(6),
			inputs: withInputs(owned, InputExpiredAt, formatTimestamp(exampleMidnight(-24))),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "open", subject: project, deadline: exampleMidnight(-1),
			inputs: withInputs(owned, InputExpiredAt, formatTimestamp(exampleMidnight(-24))),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "unconfirmed", subject: project,
			inputs: withInputs(owned, InputCause, CauseUnconfirmed, InputExpiredAt, formatTimestamp(exampleMidnight(-1))),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "contact", subject: project,
			inputs: withInputs(contacted, InputCause, CauseUnconfirmed, InputExpiredAt, formatTimestamp(exampleMidnight(-1))),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "decide", subject: project, deadline: exampleMidnight(-1),
			inputs: withInputs(contacted, InputExpiredAt, formatTimestamp(exampleMidnight(-24))),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "approved", subject: project, deadline: exampleTime.Add(7 * 24 * time.Hour),
			inputs: withInputs(owned, InputCause, CauseDeletionApproved, InputExpiredAt, formatTimestamp(exampleMidnight(-40)),
				InputApprovedBy, "dept-admin@example.org", InputMessage, "thesis handed in"),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "approvedcontact", subject: project, deadline: exampleTime.Add(7 * 24 * time.Hour),
			inputs: withInputs(contacted, InputCause, CauseDeletionApproved, InputExpiredAt, formatTimestamp(exampleMidnight(-40)),
				InputApprovedBy, "dept-admin@example.org", InputMessage, "thesis handed in"),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "dismissed", subject: project,
			inputs: withInputs(owned, InputCause, CauseDeletionDismissed, InputExpiredAt, formatTimestamp(exampleMidnight(-40)),
				InputDecidedBy, "dept-admin@example.org", InputMessage, "defense in March", InputUntil, formatTimestamp(exampleRenewalEnd)),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "kept", subject: project,
			inputs: withInputs(owned, InputCause, CauseDeletionDismissed, InputDecidedBy, "dept-admin@example.org",
				InputMessage, "paper under review", InputNewEnd, formatTimestamp(exampleRenewalEnd)),
		},
		{
			kind: v1alpha1.NoticeProjectDeletion, variant: "held", subject: project,
			inputs: withInputs(owned, InputCause, CauseDeletionDismissed, InputExpiredAt, formatTimestamp(exampleMidnight(-40)),
				InputDecidedBy, "dept-admin@example.org", InputMessage, "audit of June"),
		},
		{kind: v1alpha1.NoticeProjectConfirm, variant: "year", subject: project, deadline: exampleMidnight(30), inputs: owned},
		{kind: v1alpha1.NoticeProjectConfirm, variant: "contact", subject: project, deadline: exampleMidnight(1), inputs: contacted},
		{
			kind: v1alpha1.NoticeProjectRenewed, variant: "renewed", subject: project, deadline: exampleRenewalEnd,
			inputs: withInputs(base, InputRenewedBy, "anna.mueller@example.org"),
		},
		{
			kind: v1alpha1.NoticeProjectRenewed, variant: "onbehalf", subject: project, deadline: exampleRenewalEnd,
			inputs: withInputs(base, InputRenewedBy, "dept-admin@example.org", InputOnBehalfOf, "anna.mueller@example.org"),
		},
		{
			kind: v1alpha1.NoticeProjectRenewed, variant: "approved", subject: project, deadline: exampleRenewalEnd,
			inputs: withInputs(base, InputRenewedBy, "anna.mueller@example.org", InputApprovedBy, "dept-admin@example.org",
				InputMessage, "see you in March"),
		},
		{
			kind: v1alpha1.NoticeProjectRenewed, variant: "restart", subject: project, deadline: exampleRenewalEnd,
			inputs: withInputs(base, InputRenewedBy, "anna.mueller@example.org", InputStopped, "3"),
		},
		{kind: v1alpha1.NoticeProjectRenewed, variant: "exempt", subject: project, inputs: base},
		deletion("deleted", InputApprovedBy, "dept-admin@example.org", InputRemoved, FormatCounts([]Count{{"Job", 3}, {"RoleBinding", 2}}),
			InputKept, FormatCounts([]Count{{"Namespace", 1}, {"PersistentVolumeClaim", 2}})),
		deletion("volumes", InputCause, CauseVolumeClaims, InputStopped, "2", InputEnded, "Deployment serve, Job training",
			InputKept, FormatCounts([]Count{{"Namespace", 1}, {"PersistentVolumeClaim", 2}})),
		deletion("adopted", InputCause, CauseNamespaceAdopted, InputKept, FormatCounts([]Count{{"Namespace", 1}})),
		deletion("unmarked", InputCause, CauseNamespaceUnmarked, InputKept, FormatCounts([]Count{{"Namespace", 1}})),
		deletion("namespace", InputStopped, "1", InputEnded, "Job training", InputRemoved, FormatCounts([]Count{{"Namespace", 1}})),
	}
}

// summaryExamples holds an example of each variant of the weekly summary.
func summaryExamples() []example {
	return []example{
		{
			kind: v1alpha1.NoticeWeeklySummary, variant: "week", subject: exampleObject("sluice.dev/v1alpha1", "Department", "", "h2-students"),
			inputs: map[string]string{
				InputDepartment: "h2-students", InputFrom: formatTimestamp(exampleMidnight(-14)), InputTo: formatTimestamp(exampleMidnight(-7)),
				InputMonth: "2026-11", InputMonthUntil: formatTimestamp(exampleTime.Add(-3 * time.Hour)), InputGPUHours: "1234.5",
				InputStopped: "7", InputStoppedIdle: "4", InputPendingExtensions: "2", InputStepCount: "5", InputAwaitingCount: "2",
				InputAwaiting: FormatProjectSteps([]ProjectStep{
					{Project: "course-bio", Phase: v1alpha1.ProjectDeleting, At: formatTimestamp(exampleMidnight(-40))},
					{Project: "climate-model", Phase: v1alpha1.ProjectDeleting, At: formatTimestamp(exampleMidnight(-3))},
				}),
				InputSteps: FormatProjectSteps([]ProjectStep{
					{
						Project: "thesis-schmidt", Phase: v1alpha1.ProjectExpired, At: formatTimestamp(exampleMidnight(12)),
						Owners: FormatContacts([]v1alpha1.Contact{{Name: "Jonas Schmidt", Email: "jonas.schmidt@example.org"}}),
					},
					{
						Project: "protein-folding", Phase: v1alpha1.ProjectPendingDeletion, At: formatTimestamp(exampleMidnight(30)),
						Owners: FormatContacts([]v1alpha1.Contact{{Email: "tomasz.nowak@example.org"}}),
					},
					{
						Project: "course-vision", Phase: v1alpha1.ProjectSuspended, At: formatTimestamp(exampleMidnight(40)), Closed: true,
						Owners: FormatContacts([]v1alpha1.Contact{{Email: "mia.braun@example.org"}}),
					},
					{
						Project: "thesis-weber", Phase: v1alpha1.ProjectPendingDeletion, At: formatTimestamp(exampleMidnight(41)), Closed: true,
						Owners: FormatContacts([]v1alpha1.Contact{{Email: "ben.weber@example.org"}}),
					},
					{
						Project: "thesis-koch", Phase: v1alpha1.ProjectDeleting, At: formatTimestamp(exampleMidnight(42)), Closed: true,
						ApprovedBy: "dept-admin@example.org",
						Owners:     FormatContacts([]v1alpha1.Contact{{Email: "lena.koch@example.org"}}),
					},
				}),
				InputProjects: FormatProjectWeeks([]ProjectWeek{
					{Project: "course-ml", GPUHours: "812.0", Stopped: 5},
					{Project: "thesis-mueller", GPUHours: "401.5", Stopped: 2, ExpiresAt: formatTimestamp(exampleMidnight(30))},
					{Project: "thesis-schmidt", GPUHours: "21.0", ExpiresAt: formatTimestamp(exampleMidnight(12))},
				}),
			},
		},
		{
			kind: v1alpha1.NoticeWeeklySummary, variant: "month", subject: exampleObject("sluice.dev/v1alpha1", "Department", "", "h2-students"),
			inputs: map[string]string{
				InputDepartment: "h2-students", InputFrom: formatTimestamp(time.Date(2026, 10, 25, 23, 0, 0, 0, time.UTC)),
				InputTo:    formatTimestamp(exampleMidnight(-21)),
				InputMonth: "2026-10", InputGPUHours: "3020.4", InputGPUHoursBefore: "2711.0", InputStopped: "1", InputStoppedIdle: "0",
				InputPendingExtensions: "0",
				InputProjects:          FormatProjectWeeks([]ProjectWeek{{Project: "course-ml", GPUHours: "3020.4", Stopped: 1}}),
			},
		},
	}
}
