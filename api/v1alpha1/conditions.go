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
	// ConditionPending is true while workloads wait whose pods do not fit into the
	// quota.
	ConditionPending = "Pending"
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

// Reasons that any condition may have.
const (
	// ReasonReady: everything is as the spec asks.
	ReasonReady = "Ready"
	// ReasonApplied: what was to be written is written.
	ReasonApplied = "Applied"
	// ReasonProgressing: it is being done; nothing is wrong.
	ReasonProgressing = "Progressing"
	// ReasonSupported: all that was asked for can be done.
	ReasonSupported = "Supported"
	// ReasonMultipleReasons: there is more than one reason; the message lists them.
	ReasonMultipleReasons = "MultipleReasons"
)

// Reasons on a NodePool.
const (
	// ReasonNoNodes: no node has the labels of the selector.
	ReasonNoNodes = "NoNodes"
	// ReasonNodeSelectorConflict: other pools select some of the nodes as well, so that those
	// belong to none.
	ReasonNodeSelectorConflict = "NodeSelectorConflict"
	// ReasonRequirementsMissing: the engine lacks an API or a setting.
	ReasonRequirementsMissing = "RequirementsMissing"
	// ReasonGPUCountUnknown: no source says how many GPUs a node has.
	ReasonGPUCountUnknown = "GPUCountUnknown"
	// ReasonStrictComputeUnsupported: the pool cannot hold a share to its part of the compute.
	ReasonStrictComputeUnsupported = "StrictComputeUnsupported"
	// ReasonDepartmentLimitUnsupported: the pool's engine counts each project alone, and the limits
	// of the department's projects add up to more than its own.
	ReasonDepartmentLimitUnsupported = "DepartmentLimitUnsupported"
	// ReasonTrainingGuaranteeUnsupported: the pool's engine keeps the guarantee for workloads
	// that are not preemptible only; training is best effort up to the limit.
	ReasonTrainingGuaranteeUnsupported = "TrainingGuaranteeUnsupported"
)

// Reasons on a Department.
const (
	// ReasonWithinQuota: what its projects were promised is there.
	ReasonWithinQuota = "WithinQuota"
	// ReasonGuaranteesExceedQuota: projects that came at the same moment, or when nobody
	// looked, were promised more than there is.
	ReasonGuaranteesExceedQuota = "GuaranteesExceedQuota"
	// ReasonAllowed: the department allows it.
	ReasonAllowed = "Allowed"
)

// Reasons on a Project.
const (
	// ReasonDepartmentNotFound: there is no such department.
	ReasonDepartmentNotFound = "DepartmentNotFound"
	// ReasonNamespaceUnavailable: the namespace cannot be had; the message says why.
	ReasonNamespaceUnavailable = "NamespaceUnavailable"
	// ReasonNodePoolNotFound: a node pool does not exist, or is not the department's.
	ReasonNodePoolNotFound = "NodePoolNotFound"
	// ReasonQuotaNotCounted: the quota exists, but is not yet counted.
	ReasonQuotaNotCounted = "QuotaNotCounted"
	// ReasonUncountedPodsExceedLimit: pods that were there before the quota need more than
	// the limit.
	ReasonUncountedPodsExceedLimit = "UncountedPodsExceedLimit"
	// ReasonPodsUncounted: pods run that the quota does not count.
	ReasonPodsUncounted = "PodsUncounted"
	// ReasonQuotaExceeded: pods do not fit into what is left of the quota.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonQueued: workloads wait in a queue of the scheduler's.
	ReasonQueued = "Queued"
	// ReasonNoPendingWorkloads: nothing waits for quota any more.
	ReasonNoPendingWorkloads = "NoPendingWorkloads"
	// ReasonNearlyUsed: of a pool's limit 90 % or more are allocated.
	ReasonNearlyUsed = "NearlyUsed"
	// ReasonWithinLimit: of each pool's limit there is room.
	ReasonWithinLimit = "WithinLimit"
	// ReasonHoldInSpec: spec.hold says so.
	ReasonHoldInSpec = "HoldInSpec"
	// ReasonExtensionPending: somebody asked for a renewal and nobody has decided.
	ReasonExtensionPending = "ExtensionPending"
	// ReasonNoRecipient: there is nobody to warn, and without a warning no step is
	// taken.
	ReasonNoRecipient = "NoRecipient"
	// ReasonExemptInSpec: spec.exempt says so.
	ReasonExemptInSpec = "ExemptInSpec"
)

// ReasonRoleBindingFailed is on a Project or a Department: something has the name of one
// of its bindings and is not Sluice's, or the API server refuses the binding.
const ReasonRoleBindingFailed = "RoleBindingFailed"

// Reasons on a GPUNode.
const (
	// ReasonInUse: what shall be changed is in use.
	ReasonInUse = "InUse"
	// ReasonRolledBack: a change failed and what was there before is there again.
	ReasonRolledBack = "RolledBack"
	// ReasonTimedOut: a change was not completed in its time.
	ReasonTimedOut = "TimedOut"
	// ReasonInvalidLayout: the board cannot be cut like this.
	ReasonInvalidLayout = "InvalidLayout"
	// ReasonMIGManager: NVIDIA's MIG manager cuts this node's GPUs.
	ReasonMIGManager = "MIGManager"
	// ReasonJournalFailed: what was to be done could not be written to disk before, so
	// it was not done.
	ReasonJournalFailed = "JournalFailed"
	// ReasonDriverError: the driver refused; the message has its words.
	ReasonDriverError = "DriverError"
	// ReasonLibraryNotFound: NVIDIA's management library is not on the node, or not
	// where the agent sees it.
	ReasonLibraryNotFound = "LibraryNotFound"
	// ReasonDriverNotLoaded: the driver of the GPUs is not loaded.
	ReasonDriverNotLoaded = "DriverNotLoaded"
	// ReasonDriverNotResponding: a call of the driver does not return.
	ReasonDriverNotResponding = "DriverNotResponding"
	// ReasonKubeletUnreachable: the kubelet, or the API server, does not say which pod
	// has which device, so that all count as in use.
	ReasonKubeletUnreachable = "KubeletUnreachable"
	// ReasonDevicePluginNotFound: the GPUs are cut, and the device plugin that had to
	// enumerate them again was not found.
	ReasonDevicePluginNotFound = "DevicePluginNotFound"
)

// Reasons on a Policy.
const (
	// ReasonCompiled: the source compiles and is in force.
	ReasonCompiled = "Compiled"
	// ReasonCompileError: it does not; the last one that did stays in force.
	ReasonCompileError = "CompileError"
)

// Reasons on a WorkloadClock.
const (
	// ReasonStaleSample: a node's figures are too old.
	ReasonStaleSample = "StaleSample"
	// ReasonNoUtilization: a node cannot say whether its GPUs are used.
	ReasonNoUtilization = "NoUtilization"
	// ReasonRestarted: something starts the workload again and again.
	ReasonRestarted = "Restarted"
	// ReasonUnknownKind: nobody knows how this kind is stopped.
	ReasonUnknownKind = "UnknownKind"
)

// Reasons on an Extension.
const (
	// ReasonAwaitingDecision: an approver has to decide.
	ReasonAwaitingDecision = "AwaitingDecision"
	// ReasonTargetNotFound: the object is not there any more.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonDenied: it was refused.
	ReasonDenied = "Denied"
	// ReasonRequested: people were told that somebody has to decide.
	ReasonRequested = "Requested"
	// ReasonDecided: people were told what was decided.
	ReasonDecided = "Decided"
)
