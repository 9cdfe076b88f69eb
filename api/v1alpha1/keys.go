// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Labels of Sluice.
const (
	// LabelProject names the project. On a namespace lifecycle sets it once the
	// project's quota exists, and from then on the namespace is governed; the
	// webhook sets it on pods.
	LabelProject = "sluice.dev/project"
	// LabelDepartment names the department of the project, on the same objects.
	LabelDepartment = "sluice.dev/department"
	// LabelQueued is "true" on a project's namespace where Kueue serves one of its
	// node pools: what Kueue counts before there are pods must come in counted.
	LabelQueued = "sluice.dev/queued"
	// LabelNodePool names the node pool. On a node its administrator sets it (or any
	// other label that a NodePool selects); the webhook sets it on GPU pods.
	LabelNodePool = "sluice.dev/node-pool"
	// LabelWorkloadType is train, interactive or inference. Its author may set it on
	// a pod or a pod template; the webhook fills it in.
	LabelWorkloadType = "sluice.dev/workload-type"
	// LabelBuiltIn is "true" on the read-only Policies that mirror what is built in.
	LabelBuiltIn = "sluice.dev/built-in"
	// LabelManagedBy tells what lifecycle rendered from what others made.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBySluice is the value of LabelManagedBy on what lifecycle rendered.
	ManagedBySluice = "sluice"
)

// Annotations that the author of a pod may set.
const (
	// AnnotationGPU is how much of a GPU the pod wants, as a quantity: "500m".
	AnnotationGPU = "sluice.dev/gpu"
	// AnnotationGPUMemoryLimit is the GPU memory in MiB up to which the pod may go
	// where its pool can burst.
	AnnotationGPUMemoryLimit = "sluice.dev/gpu-memory-limit"
	// AnnotationNodePools are the pools that the pod would like, in order of
	// preference, separated by commas.
	AnnotationNodePools = "sluice.dev/node-pools"
	// AnnotationMaxRuntime shortens the workload's time limit: "6h". It never
	// lengthens it.
	AnnotationMaxRuntime = "sluice.dev/max-runtime"
)

// Annotations that Sluice sets and guards.
const (
	// AnnotationTimeLimit is the time limit that holds for the pod's workload, as
	// the webhook found it at admission.
	AnnotationTimeLimit = "sluice.dev/time-limit"
	// AnnotationCreatedBy is the name of the user who made the object. The webhook
	// overwrites what a user wrote there.
	AnnotationCreatedBy = "sluice.dev/created-by"
	// AnnotationDecisions is what the policies decided of the pod, as JSON.
	AnnotationDecisions = "sluice.dev/decisions"
	// AnnotationStoppedUntil is on a root workload that lifecycle stopped: until
	// then (RFC 3339) it is not started again. Only lifecycle may change it.
	AnnotationStoppedUntil = "sluice.dev/stopped-until"
	// AnnotationReplicasBefore is on a root workload that lifecycle scaled to
	// nothing: how many replicas it had, for its owner to start it again.
	AnnotationReplicasBefore = "sluice.dev/replicas-before"
	// AnnotationRetriedAt is on a ReplicaSet, StatefulSet or Job whose pods waited for
	// quota: when its controller was last made to try again (RFC 3339).
	AnnotationRetriedAt = "sluice.dev/retried-at"
	// AnnotationEndsAt is on the running pods of a workload whose end was announced:
	// when that is (RFC 3339, policy time). A program can read it by the downward API.
	AnnotationEndsAt = "sluice.dev/ends-at"
	// AnnotationCreatedFor is on a namespace that Sluice made: the UID of the Project.
	// A namespace without it is never deleted by Sluice.
	AnnotationCreatedFor = "sluice.dev/created-for"
	// AnnotationPreemptAt is on a pod that must make room: when it is evicted
	// (RFC 3339).
	AnnotationPreemptAt = "sluice.dev/preempt-at"
)

// AnnotationResend is on a Notice that somebody wants sent again, whatever became of
// it: since when, RFC 3339, machine time. A sending since then answers it.
const AnnotationResend = "sluice.dev/resend"

// AnnotationAdoptBy is set on an existing namespace by somebody who may update it:
// the name of the project that may take it over.
const AnnotationAdoptBy = "sluice.dev/adopt-by"

// TaintRepartitioning keeps new pods from a node while its GPUs are cut anew. Its
// effect is NoSchedule.
const TaintRepartitioning = "sluice.dev/repartitioning"

// FinalizerProject holds a Project until what was rendered for it is gone.
const FinalizerProject = "sluice.dev/project"

// FinalizerRendered holds a Department or a NodePool until what was rendered for it
// is taken back.
const FinalizerRendered = "sluice.dev/rendered"

// Labels and annotations by which Kubernetes and its engines are spoken to.
const (
	// LabelPodSecurityEnforce is a namespace's level of Pod Security.
	LabelPodSecurityEnforce = "pod-security.kubernetes.io/enforce"
	// LabelKueueQueue names the LocalQueue of a workload, in its own namespace.
	LabelKueueQueue = "kueue.x-k8s.io/queue-name"
	// GateKueue is the scheduling gate by which Kueue holds back a pod.
	GateKueue = "kueue.x-k8s.io/admission"
)

// ResourceGPUMilli is the currency of quotas: thousandths of a physical GPU, on
// engines that tell node pools apart by themselves.
const ResourceGPUMilli corev1.ResourceName = "sluice.dev/gpu-milli"

// MaxNodePoolName is how long the name of a NodePool may be: as much as a
// resource name has room for beside "gpu-milli.".
const MaxNodePoolName = 63 - len("gpu-milli.")

// ResourceGPUMilliFor is the resource that stands for a pool's GPUs on engines whose
// quota cannot tell pools apart: sluice.dev/gpu-milli.<pool>.
func ResourceGPUMilliFor(pool string) corev1.ResourceName {
	return ResourceGPUMilli + "." + corev1.ResourceName(pool)
}

// PriorityClasses of Sluice, on GPU pods only.
const (
	PriorityClassTrain                  = "sluice-train"
	PriorityClassInteractivePreemptible = "sluice-interactive-preemptible"
	PriorityClassInteractive            = "sluice-interactive"
	PriorityClassInference              = "sluice-inference"
)

// Values of those PriorityClasses. None falls under the cluster autoscaler's
// cut-off of -10, and the two that are not preemptible never preempt each other.
const (
	PriorityTrain                  int32 = -8
	PriorityInteractivePreemptible int32 = -4
	PriorityInteractive            int32 = 0
	PriorityInference              int32 = 0
)

// Names under which Sluice's processes write, as field managers.
const (
	FieldManagerWebhook   = "sluice-webhook"
	FieldManagerLifecycle = "sluice-lifecycle"
	FieldManagerPlanner   = "sluice-planner"
	FieldManagerGPUAgent  = "sluice-gpuagent"
	FieldManagerCLI       = "sluice"
)

// SystemNamespace is where Sluice itself runs. No project can have it.
const SystemNamespace = "sluice-system"

// Annotations that govern a pod's processes in the simulation. They have no
// meaning on a node with real GPUs.
const (
	// AnnotationSimMemory is the GPU memory that the pod's processes hold, in MiB.
	AnnotationSimMemory = "sim.sluice.dev/memory"
	// AnnotationSimUtilization is how busy they keep their GPU, 0 to 100 percent.
	AnnotationSimUtilization = "sim.sluice.dev/utilization"
	// AnnotationSimExitDelay is how long they outlive their pod: "5s".
	AnnotationSimExitDelay = "sim.sluice.dev/exit-delay"
	// AnnotationSimRunFor is how long the pod runs until it completes: "10m".
	AnnotationSimRunFor = "sim.sluice.dev/run-for"
	// AnnotationSimFailAfter is how long it runs until it fails.
	AnnotationSimFailAfter = "sim.sluice.dev/fail-after"
	// AnnotationSimExitCode is the exit code with which it fails, 1 to 255.
	AnnotationSimExitCode = "sim.sluice.dev/exit-code"
)
