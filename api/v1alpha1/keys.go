// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
)

// Labels of Sluice.
const (
	// LabelProject names the project. Lifecycle sets it on a namespace once the project's
	// quota exists; the namespace is governed from then on. The webhook sets it on pods.
	LabelProject = "sluice.dev/project"
	// LabelDepartment names the department of the project, on the same objects.
	LabelDepartment = "sluice.dev/department"
	// LabelQueued is "true" on a project's namespace if Kueue serves one of its node pools.
	// Kueue counts pod templates before pods exist, so the webhook sets the quota in the
	// templates.
	LabelQueued = "sluice.dev/queued"
	// LabelNodePool names the node pool. Administrators set it, or another label that a
	// NodePool selects, on nodes. The webhook sets it on GPU pods.
	LabelNodePool = "sluice.dev/node-pool"
	// LabelWorkloadType is train, interactive or inference. Users may set it on a pod or pod template; otherwise the webhook sets it.
	LabelWorkloadType = "sluice.dev/workload-type"
	// LabelCreator has the hash of the creator's name, [CreatorLabel], on the pods, the pod templates and in the
	// selectors of Services of a user who changes only own objects. Admission refuses another value on a pod.
	LabelCreator = "sluice.dev/creator"
	// SharedClaimLabel is "false" on a volume claim that only pods of its creator mount: admission sets it on new claims of users
	// who change only own objects. Without it, and with "true", all members of the project mount the claim.
	SharedClaimLabel = "sluice.dev/shared"
	// LabelBuiltIn is "true" on the read-only Policies that mirror the built-in ones.
	LabelBuiltIn = "sluice.dev/built-in"
	// LabelManagedBy marks the objects that lifecycle rendered.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBySluice is the value of LabelManagedBy on these objects.
	ManagedBySluice = "sluice"
	// LabelVersion has the version of the manifest that an object of an installation is from.
	LabelVersion = "app.kubernetes.io/version"
)

// Annotations that the author of a pod may set.
const (
	// AnnotationGPU is the share of a GPU that the pod requests, as a quantity: "500m".
	AnnotationGPU = "sluice.dev/gpu"
	// AnnotationGPUMemoryLimit is the GPU memory in MiB up to which the pod may burst, if its
	// pool supports it.
	AnnotationGPUMemoryLimit = "sluice.dev/gpu-memory-limit"
	// AnnotationNodePools lists the node pools for the pod, in order of preference, separated
	// by commas.
	AnnotationNodePools = "sluice.dev/node-pools"
	// AnnotationMaxRuntime shortens the workload's time limit: "6h". It never extends it.
	AnnotationMaxRuntime = "sluice.dev/max-runtime"
)

// Annotations that Sluice sets and protects against changes by users.
const (
	// AnnotationActive is the use from which on the pod counts as active, and the time over which it is
	// averaged: "5%/5m". The webhook sets it on pods with GPUs, from [ActivityTerms]; the agents read it.
	AnnotationActive = "sluice.dev/active"
	// AnnotationTimeLimit is the time limit of the pod's workload at admission. The webhook sets it.
	AnnotationTimeLimit = "sluice.dev/time-limit"
	// AnnotationCreatedBy is the name of the user who created the object. The webhook overwrites a user's value.
	AnnotationCreatedBy = "sluice.dev/created-by"
	// AnnotationDecisions is the result of the policies for the pod, as JSON.
	AnnotationDecisions = "sluice.dev/decisions"
	// AnnotationEvaluatedUnder identifies the program, the policies and the project under which the webhook mutated the pod, as 16
	// hexadecimal digits; a comma separates several, if another webhook made the API server call it again.
	AnnotationEvaluatedUnder = "sluice.dev/evaluated-under"
	// AnnotationStoppedUntil is the time (RFC 3339) before which a root workload that Sluice
	// stopped must not be started again. Only the lifecycle controller may change it.
	AnnotationStoppedUntil = "sluice.dev/stopped-until"
	// AnnotationPutBack counts how often a Kueue Workload that did not start was put back into its queue, and
	// until when (RFC 3339) it does not take part in it. Only the lifecycle controller may change it.
	AnnotationPutBack = "sluice.dev/put-back"
	// AnnotationReplicasBefore is the number of replicas that a root workload had before the
	// lifecycle controller scaled it to zero. The user needs it to start the workload again.
	AnnotationReplicasBefore = "sluice.dev/replicas-before"
	// AnnotationRetriedAt is the time (RFC 3339) at which Sluice last made the controller of a
	// ReplicaSet, StatefulSet or Job retry to create pods that lacked quota.
	AnnotationRetriedAt = "sluice.dev/retried-at"
	// AnnotationEndsAt is the announced deadline of a workload (RFC 3339, policy time), on its
	// running pods. Programs can read it through the downward API.
	AnnotationEndsAt = "sluice.dev/ends-at"
	// AnnotationCreatedFor is the UID of the Project for which Sluice created the namespace.
	// Sluice deletes no namespace without it.
	AnnotationCreatedFor = "sluice.dev/created-for"
	// AnnotationPreemptAt is the time (RFC 3339, machine time) at which lifecycle evicts the pod. Only the
	// lifecycle controller may change it and the next two.
	AnnotationPreemptAt = "sluice.dev/preempt-at"
	// AnnotationPreemptReason is why: ShareExceeded, Preempted or QuotaReclaimed.
	AnnotationPreemptReason = "sluice.dev/preempt-reason"
	// AnnotationPreemptFor is the UID of the pod that gets the room, if the reason is Preempted.
	AnnotationPreemptFor = "sluice.dev/preempt-for"
)

// AnnotationResend requests that a Notice is sent again, in any phase. Its value is the time of
// the request (RFC 3339, machine time). A delivery after that time satisfies it.
const AnnotationResend = "sluice.dev/resend"

// AnnotationAdoptBy names the project that may adopt an existing namespace. A user who may update
// the namespace sets it.
const AnnotationAdoptBy = "sluice.dev/adopt-by"

// ReplicaReportAnnotation has the report of a replica of the webhook, as JSON, on the replica's Lease
// in Sluice's namespace. It is on no object of users, and so it is none of [ManagedKeys].
const ReplicaReportAnnotation = "sluice.dev/replica-report"

// OmittedResultsAnnotation is on a Report of OpenReports: the number of findings that its summary counts and
// its results omit.
const OmittedResultsAnnotation = "sluice.dev/omitted-results"

// RepartitionedAnnotation is when the planner changed the layout of a GPUNode's GPUs within the last
// hour (RFC 3339, separated by commas). It is on no object of users either.
const RepartitionedAnnotation = "sluice.dev/repartitioned"

// PreemptionAnnotation is on a GPUNode while a place on it is kept for a pod to which others give way: a JSON
// object with claimant, gpu, profile, start and since. It is on no object of users either.
const PreemptionAnnotation = "sluice.dev/preemption"

// The users who set the hold and the exemption of a Project, as admission recorded them. They are on no pod and
// no namespace, and so they are none of [ManagedKeys].
const (
	HeldByAnnotation     = "sluice.dev/held-by"
	ExemptedByAnnotation = "sluice.dev/exempted-by"
)

// Labels of the data of policies. They are on no object of users either.
const (
	// PolicyDataLabel is "true" on a ConfigMap of sluice-system that policies read as data.config.
	PolicyDataLabel = "sluice.dev/policy-data"
	// AggregateToPolicyDataLabel is "true" on a ClusterRole whose rights the webhook gets, to read the
	// objects of data.objects.
	AggregateToPolicyDataLabel = "sluice.dev/aggregate-to-policy-data"
)

// CreatorLabel returns the value of [LabelCreator] for a user. A user's name can be longer than a label, and have other
// characters.
func CreatorLabel(user string) string {
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:16])
}

// ManagedKeys returns all labels and annotations of Sluice, sorted. Of a pod and of a workload that a
// queue holds they do not change after creation, except by Sluice.
func ManagedKeys() []string {
	return []string{
		AnnotationActive, AnnotationAdoptBy, LabelBuiltIn, AnnotationConfirmDelete, AnnotationCreatedBy, AnnotationCreatedFor, LabelCreator,
		AnnotationDecisions, LabelDepartment, AnnotationEndsAt, AnnotationEvaluatedUnder, AnnotationFormerProject, AnnotationGPU,
		AnnotationGPUMemoryLimit, AnnotationMaxRuntime, LabelNodePool, AnnotationNodePools, AnnotationPreemptAt, AnnotationPreemptFor,
		AnnotationPreemptReason, LabelProject, AnnotationPutBack, LabelQueued, AnnotationReplicasBefore, AnnotationResend, AnnotationRetriedAt,
		AnnotationStoppedUntil, AnnotationTimeLimit, LabelWorkloadType,
	}
}

// The limits of what policies go through in the objects of projects. Keys of Sluice do not count.
const (
	// DefaultMaxLabels is the largest number of labels unless the administrators set another.
	DefaultMaxLabels int32 = 256
	// DefaultMaxAnnotations is the same for annotations.
	DefaultMaxAnnotations int32 = 256
	// MaxContainers is the largest number of containers of a pod, and of init containers: policies write something
	// for each of them.
	MaxContainers = 500
	// MaxObjectBytes is the size of a pod, a Job or a pod template in JSON, in bytes: the API server's storage is shared by all projects.
	MaxObjectBytes = 256 << 10
	// MaxListEntries is the largest number of entries of any other list or map.
	MaxListEntries = 5000
	// MaxTextBytes is the length of a text, in bytes, except annotations, which the API server limits: Linux accepts
	// no longer argument or variable (MAX_ARG_STRLEN in linux/binfmts.h).
	MaxTextBytes = 128 << 10
	// MaxPathBytes is the length of a path, in bytes (PATH_MAX in linux/limits.h).
	MaxPathBytes = 4096
	// MaxContainerResources is the largest number of resources that a container requests.
	MaxContainerResources = 64
)

// AnnotationFormerProject is on a namespace that stayed when its project was deleted, until an
// administrator removes it. Its value is a JSON object: project, department, deletedAt (RFC 3339),
// approvedBy if the deletion was approved, cause (VolumeClaims, NamespaceAdopted or
// NamespaceUnmarked), volumeClaims (their number).
const AnnotationFormerProject = "sluice.dev/former-project"

// LabelFormerProject is on the same namespaces; its value is the name of the project. Pods and resource
// claims with GPUs are refused there.
const LabelFormerProject = AnnotationFormerProject

// AnnotationConfirmDelete confirms the deletion of a Project with running GPU work. Its value is
// the name of the Project. An administrator of the department sets it.
const AnnotationConfirmDelete = "sluice.dev/confirm-delete"

// TaintRepartitioning keeps new pods off a node while its GPUs are repartitioned. Its effect is
// NoSchedule.
const TaintRepartitioning = "sluice.dev/repartitioning"

// FinalizerProject keeps a Project until the objects rendered for it are deleted.
const FinalizerProject = "sluice.dev/project"

// FinalizerRendered keeps a Department or NodePool until the objects rendered for it are deleted.
const FinalizerRendered = "sluice.dev/rendered"

// Labels and scheduling gates of Kubernetes and Kueue.
const (
	// LabelPodSecurityEnforce is the level of Pod Security that a namespace enforces.
	LabelPodSecurityEnforce = "pod-security.kubernetes.io/enforce"
	// LabelKueueQueue names the LocalQueue of a workload, in the workload's namespace.
	LabelKueueQueue = "kueue.x-k8s.io/queue-name"
	// LabelKueuePodGroup is Kueue's label of pods that are admitted together.
	LabelKueuePodGroup = "kueue.x-k8s.io/pod-group-name"
	// LabelKueuePodSet is Kueue's label of pods that it admitted.
	LabelKueuePodSet = "kueue.x-k8s.io/podset"
	// GateKueue is the scheduling gate of pods that Kueue has not admitted.
	GateKueue = "kueue.x-k8s.io/admission"
)

// ResourceGPUMilli is the GPU quota unit, one thousandth of a physical GPU, on schedulers that
// distinguish node pools themselves.
const ResourceGPUMilli corev1.ResourceName = "sluice.dev/gpu-milli"

// ResourceGuaranteedMilli counts, in the same unit, the GPUs of pods that cannot be preempted. Such a
// pod is charged both resources, so that one ResourceQuota holds its project's limit and guarantee.
const ResourceGuaranteedMilli corev1.ResourceName = "sluice.dev/guaranteed-milli"

// QuotaName is the name of the one ResourceQuota in a project's namespace. Of a request that one of
// several ResourceQuotas denies, admission may charge the others, or admit it
// (kubernetes/kubernetes#141904).
const QuotaName = "sluice"

// PriorityClasses of Sluice: PriorityClassCPU on pods of projects without GPUs, the others on GPU
// pods only.
const (
	PriorityClassCPU                    = "sluice-cpu"
	PriorityClassTrain                  = "sluice-train"
	PriorityClassInteractivePreemptible = "sluice-interactive-preemptible"
	PriorityClassInteractive            = "sluice-interactive"
	PriorityClassInference              = "sluice-inference"
)

// Values of these PriorityClasses. All are above the cluster autoscaler's cutoff of -10. The two
// non-preemptible classes have the same value, so their pods never preempt each other.
const (
	PriorityCPU                    int32 = -9
	PriorityTrain                  int32 = -8
	PriorityInteractivePreemptible int32 = -4
	PriorityInteractive            int32 = 0
	PriorityInference              int32 = 0
)

// Field managers of Sluice's programs.
const (
	FieldManagerWebhook   = "sluice-webhook"
	FieldManagerLifecycle = "sluice-lifecycle"
	FieldManagerPlanner   = "sluice-planner"
	FieldManagerGPUAgent  = "sluice-gpuagent"
	FieldManagerCLI       = "sluice"
	// FieldManagerCertificates writes the webhook's certificate and the caBundle of its configurations.
	FieldManagerCertificates = "sluice-certificates"
	// FieldManagerWorkloadKinds owns the kinds that an administrator adds, and their rules in the webhook configurations.
	FieldManagerWorkloadKinds = "sluice-workload-kinds"
)

// The namespaces of Sluice itself. No project can use them.
const (
	// SystemNamespace has the webhook and lifecycle.
	SystemNamespace = "sluice-system"
	// AgentNamespace has the agents of GPU nodes, which are privileged.
	AgentNamespace = "sluice-agent"
)

// Annotations that control the processes of a simulated pod. They have no
// meaning on a node with real GPUs.
const (
	// AnnotationSimMemory is the GPU memory in MiB that the pod's processes use.
	AnnotationSimMemory = "sim.sluice.dev/memory"
	// AnnotationSimUtilization is the utilization of the GPU by these processes, 0 to 100
	// percent.
	AnnotationSimUtilization = "sim.sluice.dev/utilization"
	// AnnotationSimExitDelay is the time for which the processes outlive their pod: "5s".
	AnnotationSimExitDelay = "sim.sluice.dev/exit-delay"
	// AnnotationSimRunFor is the time for which the pod runs until it completes: "10m".
	AnnotationSimRunFor = "sim.sluice.dev/run-for"
	// AnnotationSimFailAfter is the time for which the pod runs until it fails.
	AnnotationSimFailAfter = "sim.sluice.dev/fail-after"
	// AnnotationSimExitCode is the exit code with which it fails, 1 to 255.
	AnnotationSimExitCode = "sim.sluice.dev/exit-code"
)
