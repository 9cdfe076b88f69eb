// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package message

import (
	"time"

	"sluice.dev/api/v1alpha1"
)

// midnight is the end of a day in Berlin's winter, some days from the examples' noon.
func midnight(days int) time.Time {
	return time.Date(2026, 11, 22+days, 23, 0, 0, 0, time.UTC)
}

// nextMay is the end of a day in Berlin's summer.
var nextMay = time.Date(2027, 5, 31, 22, 0, 0, 0, time.UTC)

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// examples are one for each thing that a kind may say.
func examples() []example {
	job := object("batch/v1", "Job", "thesis-mueller", "training")
	notebook := object("kubeflow.org/v1", "Notebook", "thesis-mueller", "scratch")
	serve := object("apps/v1", "Deployment", "thesis-mueller", "serve")
	pod := object("v1", "Pod", "thesis-mueller", "debug")
	project := object("sluice.dev/v1alpha1", "Project", "", "thesis-mueller")
	asked := object("sluice.dev/v1alpha1", "Extension", "thesis-mueller", "job-training-x7k2p")

	here := map[string]string{InputProject: "thesis-mueller", InputDepartment: "h2-students"}
	train := with(here, InputType, "train", InputCreatedBy, "anna.mueller@example.org", InputAccumulatedSeconds, "86402", InputLimit, "48h")
	idle := with(here, InputType, "interactive", InputCreatedBy, "anna.mueller@example.org", InputAccumulatedSeconds, "11520", InputLimit, "48h", InputIdleTimeout, "2h")
	wish := with(here, InputTargetKind, "Job", InputTargetName, "training", InputBy, "24h", InputReason, "two epochs are left", InputAskedBy, "anna.mueller@example.org")
	renewal := with(here, InputTargetKind, "Project", InputTargetName, "thesis-mueller", InputReason, "the defence is in June", InputAskedBy, "anna.mueller@example.org")
	expired := with(here, InputExpiredAt, stamp(midnight(-8)), InputDeleteAt, stamp(midnight(22)))

	return []example{
		{kind: v1alpha1.NoticeWorkloadEnding, variant: "job", subject: job, deadline: noon.Add(24*time.Hour - 3*time.Second), inputs: with(train, InputGPUs, "2", InputNodePool, "dgx-h100")},
		{kind: v1alpha1.NoticeWorkloadEnding, variant: "pod", subject: pod, deadline: noon.Add(30 * time.Minute), inputs: train},
		{kind: v1alpha1.NoticeWorkloadIdle, variant: "notebook", subject: notebook, deadline: noon.Add(time.Hour), inputs: idle},
		{kind: v1alpha1.NoticeWorkloadStopped, variant: "limit", subject: job, inputs: with(train, InputBecause, string(v1alpha1.EndMaxRuntime), InputUntil, stamp(noon.Add(time.Hour)), InputAccumulatedSeconds, "172800")},
		{kind: v1alpha1.NoticeWorkloadStopped, variant: "idle", subject: notebook, inputs: with(idle, InputBecause, string(v1alpha1.EndIdle))},
		{kind: v1alpha1.NoticeWorkloadStopped, variant: "suspended", subject: serve, inputs: with(train, InputBecause, string(v1alpha1.EndProjectSuspended))},
		{kind: v1alpha1.NoticeWorkloadStopped, variant: "overshare", subject: pod, inputs: with(train, InputBecause, string(v1alpha1.EndOverShare))},
		{kind: v1alpha1.NoticeWorkloadStopped, variant: "preempted", subject: job, inputs: with(train, InputBecause, string(v1alpha1.EndPreempted))},
		{kind: v1alpha1.NoticeOverShare, variant: "warned", subject: pod, inputs: with(here, InputNode, "dgx-1", InputGPU, "3", InputMemoryMiB, "30720", InputShareMiB, "20480")},
		{kind: v1alpha1.NoticeOverShare, variant: "deadline", subject: pod, deadline: noon.Add(15 * time.Minute), inputs: with(here, InputNode, "dgx-1", InputMemoryMiB, "30720", InputShareMiB, "20480")},
		{kind: v1alpha1.NoticePreemption, variant: "room", subject: pod, deadline: noon.Add(5 * time.Minute), inputs: with(here, InputType, "train", InputGPUs, "2", InputNodePool, "dgx-h100")},
		{kind: v1alpha1.NoticeExtensionRequested, variant: "workload", subject: asked, inputs: with(wish, InputBecause, BecauseLimitReached, InputUsed, "2", InputAllowed, "2", InputWindow, "30d")},
		{kind: v1alpha1.NoticeExtensionRequested, variant: "renewal", subject: asked, inputs: renewal},
		{kind: v1alpha1.NoticeExtensionDecided, variant: "approved", subject: asked, inputs: with(wish, InputDecision, "Approved", InputDecidedBy, "dept-admin@example.org", InputMessage, "see you on Monday", InputNewEnd, stamp(noon.Add(48*time.Hour)))},
		{kind: v1alpha1.NoticeExtensionDecided, variant: "selfservice", subject: asked, inputs: with(wish, InputDecision, "Approved", InputNewEnd, stamp(noon.Add(48*time.Hour)), InputUsed, "1", InputAllowed, "2", InputWindow, "30d")},
		{kind: v1alpha1.NoticeExtensionDecided, variant: "gone", subject: asked, inputs: with(wish, InputDecision, "Approved", InputDecidedBy, "dept-admin@example.org", InputBecause, BecauseWorkloadGone)},
		{kind: v1alpha1.NoticeExtensionDecided, variant: "toooften", subject: asked, inputs: with(wish, InputDecision, "Refused", InputBecause, BecauseExtendedTooOften, InputUsed, "64")},
		{kind: v1alpha1.NoticeExtensionDecided, variant: "refused", subject: asked, inputs: with(wish, InputDecision, "Refused", InputDecidedBy, "dept-admin@example.org", InputMessage, "others wait")},
		{kind: v1alpha1.NoticeExtensionDecided, variant: "renewal", subject: asked, inputs: with(renewal, InputDecision, "Approved", InputDecidedBy, "dept-admin@example.org", InputNewEnd, stamp(nextMay))},
		{kind: v1alpha1.NoticeProjectExpiring, variant: "month", subject: project, deadline: midnight(30), inputs: with(here, InputSuspendAt, stamp(midnight(44)), InputDeleteAt, stamp(midnight(60)))},
		{kind: v1alpha1.NoticeProjectExpired, variant: "expired", subject: project, deadline: midnight(6), inputs: expired},
		{kind: v1alpha1.NoticeProjectSuspending, variant: "week", subject: project, deadline: midnight(6), inputs: with(expired, InputRunning, "3")},
		{kind: v1alpha1.NoticeProjectSuspended, variant: "suspended", subject: project, deadline: midnight(16), inputs: with(here, InputExpiredAt, stamp(midnight(-15)), InputStopped, "3")},
		{kind: v1alpha1.NoticeProjectDeletion, variant: "ahead", subject: project, deadline: midnight(6), inputs: with(here, InputExpiredAt, stamp(midnight(-24)))},
		{kind: v1alpha1.NoticeProjectDeletion, variant: "open", subject: project, deadline: midnight(-1), inputs: with(here, InputExpiredAt, stamp(midnight(-24)), InputExtension, "project-thesis-mueller-delete")},
		{kind: v1alpha1.NoticeProjectConfirm, variant: "year", subject: project, deadline: midnight(30), inputs: here},
		{kind: v1alpha1.NoticeProjectRenewed, variant: "renewed", subject: project, deadline: nextMay, inputs: with(here, InputRenewedBy, "anna.mueller@example.org")},
		{kind: v1alpha1.NoticeProjectRenewed, variant: "exempt", subject: project, inputs: here},
		{kind: v1alpha1.NoticeProjectDeleted, variant: "deleted", subject: project, inputs: with(here, InputDeletedAt, stamp(noon.Add(-time.Hour)), InputApprovedBy, "dept-admin@example.org", InputRemoved, Counts([]Count{{"Job", 3}, {"RoleBinding", 2}}), InputKept, Counts([]Count{{"Namespace", 1}, {"PersistentVolumeClaim", 2}}))},
		{kind: v1alpha1.NoticeQuotaThreshold, variant: "ninety", subject: project, inputs: with(here, InputNodePool, "dgx-h100", InputPercent, "90", InputAllocated, "3600m", InputLimit, "4")},
		{
			kind: v1alpha1.NoticeWeeklySummary, variant: "week", subject: object("sluice.dev/v1alpha1", "Department", "", "h2-students"),
			inputs: map[string]string{
				InputDepartment: "h2-students", InputFrom: stamp(midnight(-14)), InputTo: stamp(midnight(-7)),
				InputMonth: "2026-11", InputMonthUntil: stamp(noon.Add(-3 * time.Hour)), InputGPUHours: "1234.5",
				InputStopped: "7", InputStoppedIdle: "4", InputWaiting: "2",
				InputProjects: Weeks([]Week{
					{Project: "course-ml", GPUHours: "812.0", Stopped: 5},
					{Project: "thesis-mueller", GPUHours: "401.5", Stopped: 2, ExpiresAt: stamp(midnight(30))},
					{Project: "thesis-schmidt", GPUHours: "21.0", ExpiresAt: stamp(midnight(12))},
				}),
			},
		},
		{
			kind: v1alpha1.NoticeWeeklySummary, variant: "month", subject: object("sluice.dev/v1alpha1", "Department", "", "h2-students"),
			inputs: map[string]string{
				InputDepartment: "h2-students", InputFrom: stamp(time.Date(2026, 10, 25, 23, 0, 0, 0, time.UTC)), InputTo: stamp(midnight(-21)),
				InputMonth: "2026-10", InputGPUHours: "3020.4", InputGPUHoursBefore: "2711.0", InputStopped: "1", InputStoppedIdle: "0", InputWaiting: "0",
				InputProjects: Weeks([]Week{{Project: "course-ml", GPUHours: "3020.4", Stopped: 1}}),
			},
		},
		{kind: v1alpha1.NoticeTest, variant: "asked"},
		{kind: v1alpha1.NoticeDigest, variant: "two", carried: []example{
			{kind: v1alpha1.NoticeProjectConfirm, variant: "carried", subject: object("sluice.dev/v1alpha1", "Project", "", "protein-folding"), deadline: midnight(30), inputs: map[string]string{InputProject: "protein-folding", InputDepartment: "h2-research"}},
			{kind: v1alpha1.NoticeProjectExpiring, variant: "carried", subject: project, deadline: midnight(6), inputs: with(here, InputSuspendAt, stamp(midnight(20)))},
		}},
		{kind: v1alpha1.NoticeDigest, variant: "one", carried: []example{
			{kind: v1alpha1.NoticeProjectExpiring, variant: "carried", subject: project, deadline: midnight(6), inputs: with(here, InputSuspendAt, stamp(midnight(20)))},
		}},
	}
}
