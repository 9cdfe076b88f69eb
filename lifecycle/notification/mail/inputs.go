// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"encoding/json"
)

// The names of a Notice's inputs. Who records a Notice gives those that the kind's line
// names; each may be left out, and the mail then says less. Instants are RFC 3339,
// lengths as a period.Duration prints them.
//
//	WorkloadEnding, WorkloadIdle  project department type createdBy accumulatedSeconds limit idleTimeout gpus nodePool
//	WorkloadStopped               the same, and because until
//	ExtensionRequested            project department targetKind targetName by reason askedBy because used allowed window each
//	ExtensionDecided              the same, and decision decidedBy message newEnd; because says why it was refused, or not carried out
//	ProjectExpiring               project department namespace suspendAt deleteAt; the deadline is the expiry
//	ProjectExpired                project department namespace expiredAt deleteAt; the deadline is the suspension
//	ProjectSuspending             project department namespace expiredAt deleteAt running; the deadline is the suspension
//	ProjectSuspended              project department namespace expiredAt stopped; the deadline is when deletion is up for approval
//	ProjectDeletion               project department namespace expiredAt; the deadline is when deletion is up for approval,
//	                              absent or past where it is already; then extension
//	ProjectConfirm                project department namespace; the deadline is that of the answer
//	ProjectRenewed                project department namespace renewedBy; the deadline is the new end, absent where there is none
//	ProjectDeleted                project department namespace deletedAt approvedBy removed kept
//	Preemption                    project department type gpus nodePool because; the deadline is when the pod goes
//	ShareExceeded                     project department node gpu memoryMiB shareMiB; the deadline, where there is one, is when it is stopped
//	QuotaThreshold                project department nodePool percent allocated limit
//	WeeklySummary                 department from to month monthUntil gpuHours gpuHoursBefore stopped stoppedIdle waiting projects
//	Digest                        none: it is made of the Notices that it carries
//	Test                          none; what there is all the same is not read
//
// The subject is the workload, the Pod (ShareExceeded, Preemption), the Extension, the Project,
// or the Department (WeeklySummary); a Digest and a Test have none.
const (
	// InputProject and InputDepartment are names of objects.
	InputProject    = "project"
	InputDepartment = "department"
	// InputNamespace is the project's namespace, where it is not named like the project.
	InputNamespace = "namespace"
	// InputType is the workload's type: train, interactive, inference.
	InputType = "type"
	// InputCreatedBy is the user who made the workload.
	InputCreatedBy = "createdBy"
	// InputAccumulatedSeconds is how long the workload has run, in whole seconds.
	InputAccumulatedSeconds = "accumulatedSeconds"
	// InputLimit is how long it may run; of a QuotaThreshold, how many GPUs there may be.
	InputLimit = "limit"
	// InputIdleTimeout is after how long without use it is stopped.
	InputIdleTimeout = "idleTimeout"
	// InputGPUs is how many GPUs it has, as a quantity: 500m.
	InputGPUs = "gpus"
	// InputNodePool is where they are.
	InputNodePool = "nodePool"
	// InputCause is why: a v1alpha1.EndReason of a WorkloadStopped, else one of the codes
	// such as [BecauseLimitReached]. Any other text is a sentence, and said as it stands.
	InputCause = "because"
	// InputUsed is how often something was granted, InputAllowed how often it may be
	// within InputWindow (a length), InputEach how much at once (a length).
	InputUsed          = "used"
	InputAllowed       = "allowed"
	InputWindow        = "window"
	InputMaxPerRequest = "each"
	// InputUntil is when it may be started again (an instant); absent for: when somebody decides.
	InputUntil = "until"

	// InputTargetKind and InputTargetName name what an Extension is for.
	InputTargetKind = "targetKind"
	InputTargetName = "targetName"
	// InputExtendBy is how much more time is asked for; absent for a renewal.
	InputExtendBy = "by"
	// InputReason is why it is asked for, and InputAskedBy who asks.
	InputReason      = "reason"
	InputRequestedBy = "askedBy"
	// InputDecision is a v1alpha1.ExtensionDecision; InputDecidedBy who decided, empty
	// for the department's self-service; InputMessage what they say, in their own words.
	InputDecision  = "decision"
	InputDecidedBy = "decidedBy"
	InputMessage   = "message"
	// InputNewEnd is the end that holds now (an instant).
	InputNewEnd = "newEnd"

	// InputExpiredAt, InputSuspendAt and InputDeleteAt are the steps of a project's
	// expiry (instants): its end, when its work is stopped, when its deletion is up for
	// approval.
	InputExpiredAt = "expiredAt"
	InputSuspendAt = "suspendAt"
	InputDeleteAt  = "deleteAt"
	// InputRunning and InputStopped are how many workloads run, or were stopped.
	InputRunning = "running"
	InputStopped = "stopped"
	// InputExtension is the name of the Extension, in the project's namespace, by which
	// an administrator approves a deletion.
	InputExtension = "extension"
	// InputRenewedBy is who renewed the project; empty for nobody in particular.
	InputRenewedBy = "renewedBy"
	// InputDeletedAt (an instant) and InputApprovedBy are when, and who approved it.
	InputDeletedAt  = "deletedAt"
	InputApprovedBy = "approvedBy"
	// InputRemoved and InputKept are lists as [Counts] writes them: "Job=3,RoleBinding=2".
	// Any other text is a sentence, and said as it stands.
	InputRemoved = "removed"
	InputKept    = "kept"

	// InputNode and InputGPU say which GPU of which node.
	InputNode = "node"
	InputGPU  = "gpu"
	// InputMemoryMiB is what the pod holds of its memory, InputShareMiB what it may.
	InputMemoryMiB = "memoryMiB"
	InputShareMiB  = "shareMiB"

	// InputPercent is how much of the limit is in use, and InputAllocated that, in GPUs.
	InputPercent   = "percent"
	InputAllocated = "allocated"

	// InputFrom and InputTo bound the week (instants; to is exclusive).
	InputFrom = "from"
	InputTo   = "to"
	// InputMonth is the month that the GPU hours are of, 2026-11, and InputMonthUntil up to
	// when they are counted (an instant); it is absent once the month is over. Where there is
	// no month they are the week's.
	InputMonth      = "month"
	InputMonthUntil = "monthUntil"
	// InputGPUHours is the use in that month, and InputGPUHoursBefore that of the week or
	// the whole month before, as decimals: 1234.5.
	InputGPUHours       = "gpuHours"
	InputGPUHoursBefore = "gpuHoursBefore"
	// InputStoppedIdle is how many of those stopped were idle; InputWaiting how many
	// extensions wait for a decision.
	InputStoppedIdle       = "stoppedIdle"
	InputPendingExtensions = "waiting"
	// InputProjects are the week's projects, as [Weeks] writes them.
	InputProjects = "projects"
)

// ProjectWeek is one project's line in a WeeklySummary.
type ProjectWeek struct {
	// Project is its name.
	Project string `json:"project"`
	// GPUHours is its use in the summary's month, as a decimal; empty for unknown.
	GPUHours string `json:"gpuHours"`
	// Stopped is how many of its workloads were stopped.
	Stopped int `json:"stopped,omitempty"`
	// ExpiresAt is its end, RFC 3339; empty for none.
	ExpiresAt string `json:"expiresAt,omitempty"`
}

// FormatProjectWeeks is the value of the input projects: the busiest first. A mail shows
// the first twenty, and says how many more there are.
func FormatProjectWeeks(rows []ProjectWeek) string {
	raw, err := json.Marshal(rows)
	if err != nil {
		return "[]" // strings and numbers can always be written
	}
	return string(raw)
}

// Forms of inputs. What is in none of these is a text.
var (
	timeInputs = []string{
		InputUntil, InputNewEnd, InputExpiredAt, InputSuspendAt, InputDeleteAt, InputDeletedAt, InputFrom, InputTo, InputMonthUntil,
	}
	durationInputs = []string{InputLimit, InputIdleTimeout, InputExtendBy, InputWindow, InputMaxPerRequest}
	proseInputs    = map[string]bool{InputReason: true, InputMessage: true, InputCause: true, InputRemoved: true, InputKept: true}
)
