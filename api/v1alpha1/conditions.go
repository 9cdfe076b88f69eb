// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Types of conditions, on several kinds of objects.
const (
	// ConditionReady is true when the object is in the state that its spec requests.
	ConditionReady = "Ready"
	// ConditionUnsupported is true when Sluice, the scheduler or the hardware does not support
	// something that the spec requests. The reason and the message name it.
	ConditionUnsupported = "Unsupported"
	// ConditionQueueApplied is true on a Department or Project whose queues exist in all its
	// schedulers for the current generation.
	ConditionQueueApplied = "QueueApplied"
)

// ConditionPaused is on the AdmissionParameters. It is true while a pause holds denials and ends.
const ConditionPaused = "Paused"

// ConditionMembersBound is false on a Project or Department whose members lack rights of their
// roles. The message explains why. It is absent until a binding fails for the first time.
const ConditionMembersBound = "MembersBound"

// ConditionRequirementsMet is true on a NodePool if everything that its scheduler and its sharing
// need is installed.
const ConditionRequirementsMet = "RequirementsMet"

// ConditionUnlistedResources is true on a NodePool whose nodes offer extended resources that no list
// knows. The message names them, what to do, and running pods of projects that have them.
const ConditionUnlistedResources = "UnlistedResources"

// ConditionPlanned is on a NodePool with MIG. It is true if every pod that requests a MIG
// instance has one or will get one. If it is false, the message says what would help.
const ConditionPlanned = "Planned"

// ConditionStartTimeoutsHeld is true on a NodePool in which workloads that do not start are not stopped, since
// the start timeouts of several people fell due together, as in an outage: for twelve hours from its transition, in
// policy time. The message has what these workloads share.
const ConditionStartTimeoutsHeld = "StartTimeoutsHeld"

// ConditionOversubscribed is true on a Department that guarantees its projects more than its own
// quota. The message has the amounts.
const ConditionOversubscribed = "Oversubscribed"

// Types of conditions of a Project.
const (
	// ConditionQuotaApplied is true when the project's quota exists and is counted for the current
	// generation. With the reason QuotaNotCounted the former limits are in force, and GPU pods are
	// rejected in node pools without one. With another reason all GPU pods are rejected.
	ConditionQuotaApplied = "QuotaApplied"
	// ConditionOtherQuotas is true while the project's namespace has another ResourceQuota than the
	// project's, so that the API server may admit pods above the limits. It is absent until that
	// happens for the first time.
	ConditionOtherQuotas = "OtherQuotas"
	// ConditionUncounted is true while GPU pods run that the quota does not count, because
	// they are older than the quota.
	ConditionUncounted = "Uncounted"
	// ConditionPending is true while workloads are pending for lack of GPU quota.
	ConditionPending = "Pending"
	// ConditionUsageDiffers is true while the scheduler's own count of a project's GPUs differs from
	// that of the bound pods, for a minute at least. It is absent until that happens for the first time.
	ConditionUsageDiffers = "UsageDiffers"
	// ConditionQuotaNearlyUsed becomes true when 90 % of the limit in a node pool is used. It
	// becomes false when usage in all node pools is well below 90 %.
	ConditionQuotaNearlyUsed = "QuotaNearlyUsed"
	// ConditionLimitExceeded is true while the pods of the project or department hold more GPU quota
	// than its limit. It is absent until they do for the first time. The message keeps the last
	// time when pods were ended for it.
	ConditionLimitExceeded = "LimitExceeded"
	// ConditionHeld is true while spec.hold keeps the project in its phase.
	ConditionHeld = "Held"
	// ConditionExempt is true while spec.exempt excludes the project from expiry.
	ConditionExempt = "Exempt"
	// ConditionExpiryBlocked is true while the next phase of a project cannot begin, because its warnings cannot be
	// sent. The reason and the message say what to do.
	ConditionExpiryBlocked = "ExpiryBlocked"
)

// Types of conditions of a GPUNode.
const (
	// ConditionLayoutApplied is true when the GPUs have the layout of the spec.
	ConditionLayoutApplied = "LayoutApplied"
	// ConditionResetRequired is true when the MIG mode of a GPU changes only after a reset.
	ConditionResetRequired = "ResetRequired"
	// ConditionNoPermission is true when the agent has no permission to configure the GPUs.
	ConditionNoPermission = "NoPermission"
	// ConditionDevicesShared is true when the device plugin of a node offers several replicas of each
	// MIG device (time-slicing or MPS). Such a node is not partitioned from demand.
	ConditionDevicesShared = "DevicesShared"
	// ConditionGPULost is true when the driver cannot reach a GPU.
	ConditionGPULost = "GPULost"
)

// Types of conditions of a Policy.
const (
	// ConditionCompiled is true on a Policy whose current source compiles.
	ConditionCompiled = "Compiled"
	// ConditionEnforced is true on a Policy whose present generation is in force: in each replica of the
	// webhook within two seconds.
	ConditionEnforced = "Enforced"
	// ConditionTimedOut is true while evaluations of the last hour took longer than a policy may. Otherwise it is absent.
	ConditionTimedOut = "TimedOut"
)

// Types of conditions of a WorkloadClock.
const (
	// ConditionIdleUnknown is true while the use of the workload's GPUs is unknown. Idle time
	// does not count meanwhile.
	ConditionIdleUnknown = "IdleUnknown"
	// ConditionUnstoppable is true when the workload runs although Sluice stopped it: its pods
	// run on after all attempts, it was started again several times, or Sluice does not know
	// how to stop its kind or must not.
	ConditionUnstoppable = "Unstoppable"
	// ConditionDryRun is true when the workload would have been stopped without the dry run.
	ConditionDryRun = "DryRun"
)

// Types of conditions of an Extension.
const (
	// ConditionApplied is true on an Extension that was applied.
	ConditionApplied = "Applied"
	// ConditionAnnounced is true on an Extension whose request or decision was sent by mail.
	ConditionAnnounced = "Announced"
)

// Reasons that any condition may have.
const (
	// ReasonReady means that the object is in the state that the spec requests.
	ReasonReady = "Ready"
	// ReasonApplied means that all objects were written.
	ReasonApplied = "Applied"
	// ReasonProgressing means that the work is not finished. It is not an error.
	ReasonProgressing = "Progressing"
	// ReasonSupported means that everything that the spec requests is supported.
	ReasonSupported = "Supported"
	// ReasonFieldsWithoutEffect means that fields of the spec have no effect yet. The message
	// names them.
	ReasonFieldsWithoutEffect = "FieldsWithoutEffect"
	// ReasonClosedInPart means that a scheduler cannot do all that an expired project requires. The
	// message says what.
	ReasonClosedInPart = "ClosedInPart"
	// ReasonMultipleReasons means that the message lists several reasons.
	ReasonMultipleReasons = "MultipleReasons"
)

// Reasons on a NodePool.
const (
	// ReasonNoNodes means that no node matches the selector.
	ReasonNoNodes = "NoNodes"
	// ReasonNodeSelectorConflict means that other pools select some of the nodes, too. Such
	// nodes belong to no pool.
	ReasonNodeSelectorConflict = "NodeSelectorConflict"
	// ReasonRequirementsMissing means that an API or a setting of the scheduler is missing.
	ReasonRequirementsMissing = "RequirementsMissing"
	// ReasonRecommendationsMissing means that the node pool accepts pods and works less well without a
	// setting of the scheduler.
	ReasonRecommendationsMissing = "RecommendationsMissing"
	// ReasonGPUCountUnknown means that the number of GPUs of a node is unknown.
	ReasonGPUCountUnknown = "GPUCountUnknown"
	// ReasonSchedulerMissing means that no policy supports the scheduler. The pool accepts no pods.
	ReasonSchedulerMissing = "SchedulerMissing"
	// ReasonTrainingGuaranteeUnsupported means that the scheduler guarantees quota only to
	// workloads that are not preemptible. Training is best effort up to the limit.
	ReasonTrainingGuaranteeUnsupported = "TrainingGuaranteeUnsupported"
)

// Reasons on a Department.
const (
	// ReasonWithinQuota means that the department's quota covers the guarantees of its
	// projects.
	ReasonWithinQuota = "WithinQuota"
	// ReasonGuaranteesExceedQuota means that the guarantees exceed the department's quota. It
	// happens if projects were created at the same time or without validation.
	ReasonGuaranteesExceedQuota = "GuaranteesExceedQuota"
	// ReasonAllowed means that the department allows oversubscription.
	ReasonAllowed = "Allowed"
)

// Reasons on a Project.
const (
	// ReasonDepartmentNotFound means that the department does not exist.
	ReasonDepartmentNotFound = "DepartmentNotFound"
	// ReasonNamespaceUnavailable means that the project cannot have the namespace. The
	// message explains why.
	ReasonNamespaceUnavailable = "NamespaceUnavailable"
	// ReasonNodePoolNotFound means that a node pool does not exist or is not available to the
	// department.
	ReasonNodePoolNotFound = "NodePoolNotFound"
	// ReasonDepartmentLimitExceeded means that the project's limit does not fit into its department's
	// beside those of other projects, which were created at the same time.
	ReasonDepartmentLimitExceeded = "DepartmentLimitExceeded"
	// ReasonQuotaNotCounted means that Kubernetes has not counted the usage of the quota yet.
	ReasonQuotaNotCounted = "QuotaNotCounted"
	// ReasonQuotasFound means that the namespace has other ResourceQuotas, and ReasonNoOtherQuotas that
	// it has none any more.
	ReasonQuotasFound   = "QuotasFound"
	ReasonNoOtherQuotas = "NoOtherQuotas"
	// ReasonUncountedPodsExceedLimit means that pods that are older than the quota use more
	// than the limit.
	ReasonUncountedPodsExceedLimit = "UncountedPodsExceedLimit"
	// ReasonPodsUncounted means that the quota does not count some running pods.
	ReasonPodsUncounted = "PodsUncounted"
	// ReasonQuotaExceeded means that pods do not fit into the remaining quota.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonQueued means that workloads are pending in a queue of the scheduler.
	ReasonQueued = "Queued"
	// ReasonNoPendingWorkloads means that no workload is pending for lack of quota.
	ReasonNoPendingWorkloads = "NoPendingWorkloads"
	// ReasonSchedulerCountDiffers means that the scheduler counts more or fewer GPUs than the bound pods
	// hold, and ReasonUsageAgrees that it counts the same.
	ReasonSchedulerCountDiffers = "SchedulerCountDiffers"
	ReasonUsageAgrees           = "UsageAgrees"
	// ReasonNearlyUsed means that 90 % or more of the limit in a node pool is used.
	ReasonNearlyUsed = "NearlyUsed"
	// ReasonWithinLimit means that usage is within the limit in each node pool, and for
	// QuotaNearlyUsed below its threshold.
	ReasonWithinLimit = "WithinLimit"
	// ReasonNewestPodsEnded means that the newest pods were ended, because the quota's counter
	// lagged and admitted more than the limit.
	ReasonNewestPodsEnded = "NewestPodsEnded"
	// ReasonGuaranteeClaimed means that pods within the guarantees of their projects hold the department above
	// its limit, until the pods over quota that are preempted for them have ended.
	ReasonGuaranteeClaimed = "GuaranteeClaimed"
	// ReasonLimitLowered means that pods that are older than the limit hold more. They continue.
	ReasonLimitLowered = "LimitLowered"
	// ReasonHoldInSpec means that spec.hold is set.
	ReasonHoldInSpec = "HoldInSpec"
	// ReasonExtensionPending means that a renewal was requested and is not decided yet.
	ReasonExtensionPending = "ExtensionPending"
	// ReasonNoRecipient means that no recipient exists for a required warning. Without the
	// warning the phase does not change.
	ReasonNoRecipient = "NoRecipient"
	// ReasonPaused means that `sluice pause` holds the step.
	ReasonPaused = "Paused"
	// ReasonMailPaused means that no mail can be sent: mail is paused, or not set up. Without its warnings no phase
	// follows.
	ReasonMailPaused = "MailPaused"
	// ReasonExemptInSpec means that spec.exempt is set.
	ReasonExemptInSpec = "ExemptInSpec"
)

// ReasonRoleBindingFailed is on a Project or Department: another object has the name of a role
// binding, or the API server rejects the binding.
const ReasonRoleBindingFailed = "RoleBindingFailed"

// Reasons on a GPUNode.
const (
	// ReasonInUse means that an instance that must change is in use.
	ReasonInUse = "InUse"
	// ReasonRolledBack means that a change failed and was undone.
	ReasonRolledBack = "RolledBack"
	// ReasonTimedOut means that a change was not completed in time.
	ReasonTimedOut = "TimedOut"
	// ReasonInvalidLayout means that the GPU cannot have the layout of the spec.
	ReasonInvalidLayout = "InvalidLayout"
	// ReasonDevicesReplicated means that the device plugin offers several replicas of each MIG device.
	ReasonDevicesReplicated = "DevicesReplicated"
	// ReasonMIGManager means that NVIDIA's MIG manager partitions the GPUs of this node.
	ReasonMIGManager = "MIGManager"
	// ReasonJournalFailed means that the agent could not write its journal and therefore did not start the change.
	ReasonJournalFailed = "JournalFailed"
	// ReasonDriverError means that the driver returned an error. The message contains it.
	ReasonDriverError = "DriverError"
	// ReasonLibraryNotFound means that the agent does not find NVIDIA's management library (NVML) on the node.
	ReasonLibraryNotFound = "LibraryNotFound"
	// ReasonDriverNotLoaded means that the GPU driver is not loaded.
	ReasonDriverNotLoaded = "DriverNotLoaded"
	// ReasonDriverNotResponding means that a driver call does not return.
	ReasonDriverNotResponding = "DriverNotResponding"
	// ReasonKubeletUnreachable means that the allocation of devices to pods is unknown,
	// because the kubelet or the API server does not respond. All devices count as in use.
	ReasonKubeletUnreachable = "KubeletUnreachable"
	// ReasonDevicePluginNotFound means that the GPUs were partitioned, but the device plugin that must report them again was not found.
	ReasonDevicePluginNotFound = "DevicePluginNotFound"
	// ReasonDeviceNodesMissing means that the GPUs were partitioned, but that the host lacks
	// the device nodes through which containers open the MIG devices.
	ReasonDeviceNodesMissing = "DeviceNodesMissing"
)

// Reasons on a Policy.
const (
	// ReasonCompiled means that the source compiles and is in force.
	ReasonCompiled = "Compiled"
	// ReasonCompileError means that the source does not compile. The last source that compiled stays in force.
	ReasonCompileError = "CompileError"
	// ReasonEnforced means that the present generation is in force.
	ReasonEnforced = "Enforced"
	// ReasonFormerGeneration means that a former generation is in force.
	ReasonFormerGeneration = "FormerGeneration"
	// ReasonDataMissing means that a policy fails, because data that it reads do not exist or cannot be read.
	ReasonDataMissing = "DataMissing"
)

// Reasons on a WorkloadClock.
const (
	// ReasonStaleSample means that the last sample of a node is too old.
	ReasonStaleSample = "StaleSample"
	// ReasonNoUtilization means that a node cannot measure utilization.
	ReasonNoUtilization = "NoUtilization"
	// ReasonRestarted means that the workload is started again each time it is stopped.
	ReasonRestarted = "Restarted"
	// ReasonUnknownKind means that Sluice does not know how to stop this kind.
	ReasonUnknownKind = "UnknownKind"
)

// Reasons on an Extension.
const (
	// ReasonAwaitingDecision means that an approver must decide.
	ReasonAwaitingDecision = "AwaitingDecision"
	// ReasonTargetNotFound means that the target does not exist.
	ReasonTargetNotFound = "TargetNotFound"
	// ReasonAlreadyRenewed means that there is nothing to renew: another renewal of the period was applied
	// before, or the project has no end any more.
	ReasonAlreadyRenewed = "AlreadyRenewed"
	// ReasonDenied means that an approver denied the request.
	ReasonDenied = "Denied"
	// ReasonRequested means that the request was sent to the approvers by mail.
	ReasonRequested = "Requested"
	// ReasonDecided means that the decision was sent by mail.
	ReasonDecided = "Decided"
)
