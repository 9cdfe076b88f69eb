// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Types of conditions, on several kinds of objects.
const (
	// ConditionReady is true when the object is in the state that its spec asks for.
	ConditionReady = "Ready"
	// ConditionUnsupported is true where the engine or the hardware cannot do
	// something that was asked for; the reason and the message say what.
	ConditionUnsupported = "Unsupported"
	// ConditionQueueApplied is true on a Department or a Project whose queues exist
	// in its engines for the present generation.
	ConditionQueueApplied = "QueueApplied"
)

// ConditionMembersBound is false on a Project or a Department whose members lack
// rights of their roles; the message says why. It is there only once that was so.
const ConditionMembersBound = "MembersBound"

// ConditionRequirementsMet is true on a NodePool for which all is there that its
// engine and its sharing need.
const ConditionRequirementsMet = "RequirementsMet"

// ConditionPlanned is on a NodePool whose GPUs are cut into MIG instances: true while
// every pod that asks for one finds it or will, and false where one does not, with
// what would help in the message.
const ConditionPlanned = "Planned"

// ConditionOversubscribed is true on a Department that has promised its projects
// more than it has itself; the message has the figures.
const ConditionOversubscribed = "Oversubscribed"

// Types of conditions of a Project.
const (
	// ConditionQuotaApplied is true when the project's quotas exist and are counted
	// for the present generation. Until then its GPU pods are refused.
	ConditionQuotaApplied = "QuotaApplied"
	// ConditionUncounted is true while GPU pods run that were there before the quota.
	ConditionUncounted = "Uncounted"
	// ConditionWaiting is true while workloads wait whose pods do not fit into the
	// quota.
	ConditionWaiting = "Waiting"
	// ConditionQuotaNearlyUsed is true from when a node pool's limit is nearly used up
	// until none is, by far.
	ConditionQuotaNearlyUsed = "QuotaNearlyUsed"
	// ConditionHeld is true while the project's expiry stands still.
	ConditionHeld = "Held"
	// ConditionExempt is true while the project does not expire at all.
	ConditionExempt = "Exempt"
)

// Types of conditions of a GPUNode.
const (
	// ConditionLayoutApplied is true when the GPUs are cut as the spec says.
	ConditionLayoutApplied = "LayoutApplied"
	// ConditionResetRequired is true when a GPU changes its MIG mode only at a reset.
	ConditionResetRequired = "ResetRequired"
	// ConditionNoPermission is true when the agent may not configure the GPUs.
	ConditionNoPermission = "NoPermission"
	// ConditionGPULost is true when the driver does not reach a GPU any more.
	ConditionGPULost = "GPULost"
)

// ConditionCompiled is true on a Policy whose present source compiles.
const ConditionCompiled = "Compiled"

// Types of conditions of a WorkloadClock.
const (
	// ConditionIdleUnknown is true while nobody can tell whether the workload's GPUs
	// are used; its idle time stands still.
	ConditionIdleUnknown = "IdleUnknown"
	// ConditionUnstoppable is true when the workload was stopped and runs again, or
	// is of a kind that nobody knows how to stop.
	ConditionUnstoppable = "Unstoppable"
	// ConditionDryRun is true when the workload would have been stopped.
	ConditionDryRun = "DryRun"
)

// Types of conditions of an Extension.
const (
	// ConditionApplied is true on an Extension that was carried out.
	ConditionApplied = "Applied"
	// ConditionAnnounced is true on an Extension of which people were told: that
	// somebody has to decide, or what was decided.
	ConditionAnnounced = "Announced"
)
