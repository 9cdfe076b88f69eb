// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

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
	// ReasonSeveral: there is more than one reason; the message lists them.
	ReasonSeveral = "Several"
)

// Reasons on a NodePool.
const (
	// ReasonNoNodes: no node has the labels of the selector.
	ReasonNoNodes = "NoNodes"
	// ReasonNodesShared: other pools select some of the nodes as well, so that those
	// belong to none.
	ReasonNodesShared = "NodesShared"
	// ReasonRequirementsMissing: the engine lacks an API or a setting.
	ReasonRequirementsMissing = "RequirementsMissing"
	// ReasonGPUsUnknown: no source says how many GPUs a node has.
	ReasonGPUsUnknown = "GPUsUnknown"
	// ReasonStrictCompute: the pool cannot hold a share to its part of the compute.
	ReasonStrictCompute = "StrictCompute"
	// ReasonDepartmentLimit: the pool's engine counts each project alone, and the limits
	// of the department's projects add up to more than its own.
	ReasonDepartmentLimit = "DepartmentLimit"
	// ReasonGuaranteedTraining: the pool's engine keeps the guarantee for workloads
	// that are not preemptible only; training is best effort up to the limit.
	ReasonGuaranteedTraining = "GuaranteedTraining"
)

// Reasons on a Department.
const (
	// ReasonWithinQuota: what its projects were promised is there.
	ReasonWithinQuota = "WithinQuota"
	// ReasonPromisedTooMuch: projects that came at the same moment, or when nobody
	// looked, were promised more than there is.
	ReasonPromisedTooMuch = "PromisedTooMuch"
	// ReasonAllowed: the department allows it.
	ReasonAllowed = "Allowed"
)

// Reasons on a Project.
const (
	// ReasonDepartmentMissing: there is no such department.
	ReasonDepartmentMissing = "DepartmentMissing"
	// ReasonNamespaceRefused: the namespace cannot be had; the message says why.
	ReasonNamespaceRefused = "NamespaceRefused"
	// ReasonNodePoolMissing: a node pool does not exist, or is not the department's.
	ReasonNodePoolMissing = "NodePoolMissing"
	// ReasonQuotaNotCounted: the quota exists, but is not yet counted.
	ReasonQuotaNotCounted = "QuotaNotCounted"
	// ReasonNoRoomForUncounted: pods that were there before the quota need more than
	// the limit.
	ReasonNoRoomForUncounted = "NoRoomForUncounted"
	// ReasonPodsUncounted: pods run that the quota does not count.
	ReasonPodsUncounted = "PodsUncounted"
	// ReasonQuotaExceeded: pods do not fit into what is left of the quota.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonQueued: workloads wait in a queue of the scheduler's.
	ReasonQueued = "Queued"
	// ReasonNothingWaits: nothing waits for quota any more.
	ReasonNothingWaits = "NothingWaits"
	// ReasonNearlyUsed: of a pool's limit 90 % or more are allocated.
	ReasonNearlyUsed = "NearlyUsed"
	// ReasonRoomLeft: of each pool's limit there is room.
	ReasonRoomLeft = "RoomLeft"
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

// ReasonBindingRefused is on a Project or a Department: something has the name of one
// of its bindings and is not Sluice's, or the API server refuses the binding.
const ReasonBindingRefused = "BindingRefused"

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
	// ReasonDriverNotAnswering: a call of the driver does not return.
	ReasonDriverNotAnswering = "DriverNotAnswering"
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
	// ReasonNoUtilisation: a node cannot say whether its GPUs are used.
	ReasonNoUtilisation = "NoUtilisation"
	// ReasonRestarted: something starts the workload again and again.
	ReasonRestarted = "Restarted"
	// ReasonUnknownKind: nobody knows how this kind is stopped.
	ReasonUnknownKind = "UnknownKind"
)

// Reasons on an Extension.
const (
	// ReasonAwaitingDecision: an approver has to decide.
	ReasonAwaitingDecision = "AwaitingDecision"
	// ReasonTargetGone: the object is not there any more.
	ReasonTargetGone = "TargetGone"
	// ReasonRefused: it was refused.
	ReasonRefused = "Refused"
	// ReasonRequested: people were told that somebody has to decide.
	ReasonRequested = "Requested"
	// ReasonDecided: people were told what was decided.
	ReasonDecided = "Decided"
)
