// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"encoding/json"
	"time"

	"sluice.dev/api/v1alpha1"
)

// Names of a Notice's inputs. The recorder of a Notice sets those in the kind's line. Each is
// optional; without it the mail says less. Times are RFC 3339, durations as period.Duration prints
// them.
//
//	WorkloadEnding, WorkloadIdle  project department type createdBy accumulatedSeconds limit idleTimeout gpus nodePool
//	                              startTimeout maxDuration; cause is StartTimeout for a workload whose pods do not start
//	WorkloadStopped               the same, and cause until cronJob
//	WorkloadUnstoppable           the same as WorkloadEnding, and cause pods
//	ExtensionRequested            project department targetKind targetName by reason requestedBy cause used allowed window maxDuration
//	                              onBehalfOf informed
//	ExtensionDecided              the same, and decision decidedBy message newEnd; cause is why it was refused or could not take effect
//	ProjectExpiring               project department namespace contacts owners suspendAt deleteAt; the deadline is the expiry
//	ProjectExpired                project department namespace contacts owners expiredAt deleteAt; the deadline is the suspension
//	ProjectSuspending             project department namespace contacts owners expiredAt deleteAt running; the deadline is the suspension
//	ProjectSuspended              project department namespace contacts owners expiredAt stopped; the deadline is when deletion can be
//	                              approved
//	ProjectDeletion               project department namespace contacts owners expiredAt; the deadline is when deletion can be
//	                              approved, absent or past if that is now. With the cause Unconfirmed
//	                              there is no deadline, and expiredAt is when the answer was due. With the cause
//	                              DeletionApproved the deadline is the deletion; then approvedBy message. With the cause
//	                              DeletionDismissed decidedBy message, and until, the time until which the project stays
//	                              suspended; absent if it is Active again, with newEnd
//	ProjectConfirm                project department namespace contacts owners; the deadline is for the answer
//	ProjectRenewed                project department namespace renewedBy onBehalfOf approvedBy message stopped; the deadline is the new
//	                              end; absent for none. stopped is absent unless the project was suspended
//	ProjectDeleted                project department namespace deletedAt approvedBy removed kept stopped ended; cause is why the
//	                              namespace stays
//	Preemption                    project department type gpus nodePool cause; the deadline is when the pod is preempted
//	ShareExceeded                 project department node gpu memoryMiB shareMiB; the optional deadline is when it is stopped
//	QuotaThreshold                project department nodePool percent allocated limit
//	WeeklySummary                 department from to month monthUntil gpuHours gpuHoursBefore stopped stoppedIdle pendingExtensions projects
//	                              steps stepCount awaiting awaitingCount
//	Digest                        notices; the Notices provide the text
//	Test                          none; others are ignored
//
// The subject is the workload, the Pod (ShareExceeded, Preemption), the Extension, the Project,
// or the Department (WeeklySummary); a Digest and a Test have none.
const (
	// InputProject and InputDepartment are names of objects.
	InputProject    = "project"
	InputDepartment = "department"
	// InputNamespace is the project's namespace, if its name differs from the project's.
	InputNamespace = "namespace"
	// InputType is the workload's type: train, interactive, inference.
	InputType = "type"
	// InputCreatedBy is the user who created the workload.
	InputCreatedBy = "createdBy"
	// InputAccumulatedSeconds is the accumulated running time, in whole seconds.
	InputAccumulatedSeconds = "accumulatedSeconds"
	// InputLimit is the time limit; of a QuotaThreshold, the limit in GPUs.
	InputLimit = "limit"
	// InputIdleTimeout is the idle timeout.
	InputIdleTimeout = "idleTimeout"
	// InputStartTimeout is the start timeout, if the pods do not start.
	InputStartTimeout = "startTimeout"
	// InputGPUs is the GPUs of the workload, as a quantity: 500m.
	InputGPUs = "gpus"
	// InputNodePool is their node pool.
	InputNodePool = "nodePool"
	// InputCause is the cause: a v1alpha1.EndReason of a WorkloadStopped, else a code such as
	// [CauseSelfServiceLimitReached]. Any other text is shown unchanged.
	InputCause = "cause"
	// InputUsed counts granted extensions, InputAllowed bounds them within InputWindow (a
	// duration; absent for renewals, which are counted for ever), InputMaxDuration bounds one (a duration).
	InputUsed        = "used"
	InputAllowed     = "allowed"
	InputWindow      = "window"
	InputMaxDuration = "maxDuration"
	// InputUntil is when the workload may be started again (a time); absent if a decision is
	// needed. Of a ProjectDeletion it is until when the project stays suspended.
	InputUntil = "until"

	// InputPods are the names of pods that run on.
	InputPods = "pods"
	// InputCronJob is the CronJob of which the stopped workload is a run; absent for others.
	InputCronJob = "cronJob"

	// InputTargetKind and InputTargetName name the target of an Extension.
	InputTargetKind = "targetKind"
	InputTargetName = "targetName"
	// InputExtendBy is the requested time; absent for a renewal.
	InputExtendBy = "by"
	// InputReason is the reason of the request, InputRequestedBy the user, InputOnBehalfOf the address
	// of the owner for whom the user requests a renewal.
	InputReason      = "reason"
	InputRequestedBy = "requestedBy"
	InputOnBehalfOf  = "onBehalfOf"
	// InputInformed is true for recipients who do not decide on the request.
	InputInformed = "informed"
	// InputDecision is a v1alpha1.ExtensionDecision, InputDecidedBy the approver, empty for
	// self-service, InputMessage the approver's message.
	InputDecision  = "decision"
	InputDecidedBy = "decidedBy"
	InputMessage   = "message"
	// InputNewEnd is the new end (a time).
	InputNewEnd = "newEnd"

	// InputExpiredAt, InputSuspendAt and InputDeleteAt are the steps of a project's expiry
	// (times): its end, the stop of its workloads, and when its deletion can be approved.
	InputExpiredAt = "expiredAt"
	InputSuspendAt = "suspendAt"
	InputDeleteAt  = "deleteAt"
	// InputRunning and InputStopped count running and stopped workloads.
	InputRunning = "running"
	InputStopped = "stopped"
	// InputRenewedBy is the user who renewed the project; may be empty.
	InputRenewedBy = "renewedBy"
	// InputContacts are the department's contacts, to whom owners write who cannot run a command;
	// InputOwners the project's owners, in a message to the contacts only. Both are lists of
	// [FormatContacts].
	InputContacts = "contacts"
	InputOwners   = "owners"
	// InputDeletedAt (a time) and InputApprovedBy are the time and the approver of the deletion.
	InputDeletedAt  = "deletedAt"
	InputApprovedBy = "approvedBy"
	// InputRemoved and InputKept are lists of [FormatCounts]: "Job=3,RoleBinding=2". Any other
	// text is shown unchanged.
	InputRemoved = "removed"
	InputKept    = "kept"
	// InputEnded lists the first of the [InputStopped] workloads that a deletion ended.
	InputEnded = "ended"

	// InputNode and InputGPU name the node and the GPU.
	InputNode = "node"
	InputGPU  = "gpu"
	// InputMemoryMiB is the memory that the pod uses, InputShareMiB its share.
	InputMemoryMiB = "memoryMiB"
	InputShareMiB  = "shareMiB"

	// InputPercent is the used part of the limit, InputAllocated the used GPUs.
	InputPercent   = "percent"
	InputAllocated = "allocated"

	// InputFrom and InputTo bound the week (times; to is exclusive).
	InputFrom = "from"
	InputTo   = "to"
	// InputMonth is the month of the GPU hours, 2026-11; absent for hours of the week.
	// InputMonthUntil is up to when they are counted (a time); absent for a whole month.
	InputMonth      = "month"
	InputMonthUntil = "monthUntil"
	// InputGPUHours is the use in that period, InputGPUHoursBefore that of the previous one, as
	// decimals: 1234.5.
	InputGPUHours       = "gpuHours"
	InputGPUHoursBefore = "gpuHoursBefore"
	// InputStoppedIdle counts the stopped workloads that were idle, InputPendingExtensions the
	// undecided extensions.
	InputStoppedIdle       = "stoppedIdle"
	InputPendingExtensions = "pendingExtensions"
	// InputProjects holds the rows of [FormatProjectWeeks].
	InputProjects = "projects"
	// InputSteps holds the rows of [FormatProjectSteps], the first of InputStepCount steps of projects
	// within [StepHorizon].
	InputSteps     = "steps"
	InputStepCount = "stepCount"
	// InputAwaiting holds the rows of [FormatProjectSteps], the first of InputAwaitingCount projects whose
	// deletion awaits its approval.
	InputAwaiting      = "awaiting"
	InputAwaitingCount = "awaitingCount"
)

// StepHorizon is the time for which a WeeklySummary announces the steps of projects, MaxProjectSteps how many it lists.
const (
	StepHorizon     = 60 * 24 * time.Hour
	MaxProjectSteps = 10
)

// ProjectWeek is a project's row in a WeeklySummary.
type ProjectWeek struct {
	// Project is its name.
	Project string `json:"project"`
	// GPUHours is its use in the summary's month, as a decimal; empty for unknown.
	GPUHours string `json:"gpuHours"`
	// Stopped counts its stopped workloads.
	Stopped int `json:"stopped,omitempty"`
	// ExpiresAt is its end, RFC 3339; empty for none.
	ExpiresAt string `json:"expiresAt,omitempty"`
}

// ProjectStep is a step of a project's expiry in a WeeklySummary.
type ProjectStep struct {
	// Project is its name, Phase the next phase.
	Project string                `json:"project"`
	Phase   v1alpha1.ProjectPhase `json:"phase"`
	// At is the time of the step, RFC 3339; of a project whose deletion awaits its approval, since when.
	At string `json:"at"`
	// Closed reports whether the project has expired.
	Closed bool `json:"closed,omitempty"`
	// ApprovedBy approved a deletion.
	ApprovedBy string `json:"approvedBy,omitempty"`
	// Owners is a list of [FormatContacts].
	Owners string `json:"owners"`
}

// FormatProjectSteps returns the value of the input steps.
func FormatProjectSteps(steps []ProjectStep) string {
	raw, err := json.Marshal(steps)
	if err != nil {
		return "[]" // strings always marshal
	}
	return string(raw)
}

// FormatProjectWeeks returns the value of the input projects. A mail shows the first rows and
// counts the others.
func FormatProjectWeeks(rows []ProjectWeek) string {
	raw, err := json.Marshal(rows)
	if err != nil {
		return "[]" // strings and numbers always marshal
	}
	return string(raw)
}

// Forms of inputs; all others are texts.
var (
	timeInputs = []string{
		InputUntil, InputNewEnd, InputExpiredAt, InputSuspendAt, InputDeleteAt, InputDeletedAt, InputFrom, InputTo, InputMonthUntil,
	}
	durationInputs = []string{InputLimit, InputIdleTimeout, InputStartTimeout, InputExtendBy, InputWindow, InputMaxDuration}
	proseInputs    = map[string]bool{
		InputReason: true, InputMessage: true, InputCause: true, InputRemoved: true, InputKept: true, InputEnded: true,
		InputContacts: true, InputOwners: true,
	}
)
