// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pending reports the GPU quota that each project uses, which workloads hold it, and
// the work that waits for it, and makes controllers retry when quota becomes available.
//
// A pod that does not fit into a ResourceQuota is rejected and does not exist. Its
// controller retries with a growing delay: a Job within a minute, a ReplicaSet after up
// to 17 minutes. In node pools that Kueue serves, Jobs stay suspended and pods gated
// until Kueue admits them. KAI-Scheduler reports in a PodGroup why its pods stay without a node.
//
// The controller reads the FailedCreate events of controllers, the rendered quotas, the
// GPU pods of package podcache, WorkloadClocks, the rejected workloads, Kueue's Workloads and
// KAI-Scheduler's PodGroups.
// It writes the allocated and pending GPUs, the largest workloads and the condition Pending to
// the status of a Project, and events to workloads. When quota becomes available, it sets an annotation on the
// oldest pending workloads that makes their controllers retry. It records how long pods
// were pending.
//
// It never creates, changes or deletes a pod and reserves no quota: a retry can fail
// because another pod was faster. Of Kueue's objects it writes only spec.active of a Workload
// that holds quota without pods for its start timeout, or that was put back into its queue, and the record of that. It deletes
// the Workload of a pod group whose pods their user deleted.
package pending
