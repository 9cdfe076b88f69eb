// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doors

import admissionv1 "k8s.io/api/admissionregistration/v1"

// queued are rules for the kinds that run to their end and wait in a queue. The
// status of Kubernetes' own is included: whoever may write it may write metadata
// with it. Kinds that a cluster does not have match nothing.
func queued(operations []admissionv1.OperationType) []admissionv1.NamedRuleWithOperations {
	return rules(
		in("batch", operations, "jobs", "jobs/status"),
		in("jobset.x-k8s.io", operations, "jobsets"),
		in("kubeflow.org", operations, "jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"),
		in("trainer.kubeflow.org", operations, "trainjobs"),
		in("ray.io", operations, "rayclusters", "rayjobs"),
	)
}

// workloads are rules for all kinds that make pods.
func workloads(operations []admissionv1.OperationType) []admissionv1.NamedRuleWithOperations {
	return append(queued(operations),
		in("batch", operations, "cronjobs", "cronjobs/status"),
		in("apps", operations,
			"daemonsets", "daemonsets/status", "deployments", "deployments/status",
			"replicasets", "replicasets/status", "statefulsets", "statefulsets/status"),
		on(operations, "replicationcontrollers", "replicationcontrollers/status"),
		in("leaderworkerset.x-k8s.io", operations, "leaderworkersets"),
		in("kubeflow.org", operations, "notebooks", "workspaces"),
		in("ray.io", operations, "rayservices"),
		in("sparkoperator.k8s.io", operations, "sparkapplications"),
		in("workload.codeflare.dev", operations, "appwrappers"),
		in("kueue.x-k8s.io", operations, "workloads"),
		in("workspace.devfile.io", operations, "devworkspaces"),
		in("argoproj.io", operations, "workflows"),
		in("tekton.dev", operations, "pipelineruns", "taskruns"),
		in("serving.kserve.io", operations, "inferenceservices"),
	)
}
