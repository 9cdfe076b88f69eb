// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import "k8s.io/apimachinery/pkg/runtime/schema"

// Groups that have several kinds.
const (
	apps     = "apps"
	batch    = "batch"
	kubeflow = "kubeflow.org"
	ray      = "ray.io"
	tekton   = "tekton.dev"
)

// Verbs that several kinds share.
var (
	suspend   = Verb{Form: FormField, Path: []string{"spec", "suspend"}, Stop: true, Start: false}
	runPolicy = Verb{Form: FormField, Path: []string{"spec", "runPolicy", "suspend"}, Stop: true, Start: false}
	scale     = Verb{Form: FormReplicas, Path: []string{"spec", "replicas"}}
)

var (
	specTemplate = [][]string{{"spec", "template"}}
	replicas     = []string{"status", "replicas"}
)

// table has every kind that Sluice knows how to stop, and DaemonSets, which it
// never stops: they are the cluster's. The sources are the kinds' own API types.
var table = []Kind{
	{
		GroupKind: schema.GroupKind{Kind: "Pod"}, Resource: "pods",
		Verb:      Verb{Form: FormDelete, Final: true},
		Templates: [][]string{{}},
		Ended:     Ended{Phase: []string{"status", "phase"}, Phases: []string{"Succeeded", "Failed"}},
	},
	{GroupKind: schema.GroupKind{Kind: "ReplicationController"}, Resource: "replicationcontrollers", Verb: scale, Templates: specTemplate, Busy: replicas},
	{GroupKind: schema.GroupKind{Group: apps, Kind: "Deployment"}, Resource: "deployments", Verb: scale, Templates: specTemplate, Busy: replicas},
	{GroupKind: schema.GroupKind{Group: apps, Kind: "ReplicaSet"}, Resource: "replicasets", Verb: scale, Templates: specTemplate, Busy: replicas},
	{GroupKind: schema.GroupKind{Group: apps, Kind: "StatefulSet"}, Resource: "statefulsets", Verb: scale, Templates: specTemplate, Busy: replicas, Ordered: true},
	{GroupKind: schema.GroupKind{Group: apps, Kind: "DaemonSet"}, Resource: "daemonsets", Verb: Verb{Form: FormNever}, Templates: specTemplate},
	{
		GroupKind: schema.GroupKind{Group: batch, Kind: "Job"}, Resource: "jobs", Verb: suspend, Queued: true, CountedEarly: true,
		Templates: specTemplate, Ended: Ended{Conditions: []string{"Complete", "Failed"}}, Busy: []string{"status", "active"},
	},
	// Its Jobs go on: each is a workload of its own.
	{
		GroupKind: schema.GroupKind{Group: batch, Kind: "CronJob"}, Resource: "cronjobs", Verb: suspend,
		Templates: [][]string{{"spec", "jobTemplate", "spec", "template"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}, Resource: "jobsets", Verb: suspend, Queued: true, CountedEarly: true,
		Templates: [][]string{{"spec", "replicatedJobs", every, "template", "spec", "template"}},
		Ended:     Ended{Conditions: []string{"Completed", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}, Resource: "leaderworkersets", Verb: scale, CountedEarly: true,
		Templates: [][]string{{"spec", "leaderWorkerTemplate", "leaderTemplate"}, {"spec", "leaderWorkerTemplate", "workerTemplate"}},
		Busy:      replicas,
	},
	{
		GroupKind: schema.GroupKind{Group: kubeflow, Kind: "Notebook"}, Resource: "notebooks",
		Verb:      Verb{Form: FormMark, Path: []string{"metadata", "annotations", "kubeflow-resource-stopped"}},
		Templates: specTemplate, Busy: []string{"status", "readyReplicas"},
	},
	{
		GroupKind: schema.GroupKind{Group: kubeflow, Kind: "Workspace"}, Resource: "workspaces",
		Verb: Verb{Form: FormField, Path: []string{"spec", "paused"}, Stop: true, Start: false},
	},
	trainingJob("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs"),
	trainingJob("TFJob", "tfjobs", "tfReplicaSpecs"),
	trainingJob("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs"),
	trainingJob("PaddleJob", "paddlejobs", "paddleReplicaSpecs"),
	trainingJob("JAXJob", "jaxjobs", "jaxReplicaSpecs"),
	trainingJob("MPIJob", "mpijobs", "mpiReplicaSpecs"),
	{
		GroupKind: schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"}, Resource: "trainjobs", Verb: suspend, Queued: true,
		Ended: Ended{Conditions: []string{"Complete", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Group: ray, Kind: "RayCluster"}, Resource: "rayclusters", Verb: suspend, Queued: true, CountedEarly: true,
		Templates: rayCluster("spec"),
	},
	{
		GroupKind: schema.GroupKind{Group: ray, Kind: "RayJob"}, Resource: "rayjobs", Verb: suspend, Queued: true, CountedEarly: true,
		Templates: append(rayCluster("spec", "rayClusterSpec"), []string{"spec", "submitterPodTemplate"}),
		Ended:     Ended{Phase: []string{"status", "jobDeploymentStatus"}, Phases: []string{"Complete", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Group: ray, Kind: "RayService"}, Resource: "rayservices", Verb: suspend, Queued: true,
		Templates: rayCluster("spec", "rayClusterConfig"),
	},
	{
		GroupKind: schema.GroupKind{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}, Resource: "sparkapplications", Verb: suspend, Queued: true,
		Ended: Ended{Phase: []string{"status", "applicationState", "state"}, Phases: []string{"COMPLETED", "FAILED"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "workload.codeflare.dev", Kind: "AppWrapper"}, Resource: "appwrappers", Verb: suspend, Queued: true,
		Ended: Ended{Phase: []string{"status", "phase"}, Phases: []string{"Succeeded", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Group: WorkloadGroup, Kind: "Workload"}, Resource: "workloads",
		Verb:      Verb{Form: FormField, Path: []string{"spec", "active"}, Stop: false, Start: true},
		Templates: [][]string{{"spec", "podSets", every, "template"}},
		Ended:     Ended{Conditions: []string{"Finished"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "workspace.devfile.io", Kind: "DevWorkspace"}, Resource: "devworkspaces",
		Verb: Verb{Form: FormField, Path: []string{"spec", "started"}, Stop: false, Start: true},
	},
	// Of all its pods at once; what it made already stays.
	{
		GroupKind: schema.GroupKind{Group: "argoproj.io", Kind: "Workflow"}, Resource: "workflows",
		Verb:  Verb{Form: FormField, Path: []string{"spec", "shutdown"}, Stop: "Terminate", Final: true},
		Ended: Ended{Phase: []string{"status", "phase"}, Phases: []string{"Succeeded", "Failed", "Error"}},
	},
	{
		GroupKind: schema.GroupKind{Group: tekton, Kind: "PipelineRun"}, Resource: "pipelineruns",
		Verb:  Verb{Form: FormField, Path: []string{"spec", "status"}, Stop: "Cancelled", Final: true},
		Ended: Ended{Verdict: "Succeeded"},
	},
	{
		GroupKind: schema.GroupKind{Group: tekton, Kind: "TaskRun"}, Resource: "taskruns",
		Verb:  Verb{Form: FormField, Path: []string{"spec", "status"}, Stop: "TaskRunCancelled", Final: true},
		Ended: Ended{Verdict: "Succeeded"},
	},
	{
		GroupKind: schema.GroupKind{Group: "serving.kserve.io", Kind: "InferenceService"}, Resource: "inferenceservices",
		Verb: Verb{Form: FormField, Path: []string{"metadata", "annotations", "serving.kserve.io/stop"}, Stop: "true"},
	},
}

// The objects by which Kueue holds workloads in its queues.
const (
	WorkloadGroup = "kueue.x-k8s.io"
	// LabelJobUID is, on such an object, the UID of what it holds.
	LabelJobUID = "kueue.x-k8s.io/job-uid"
)

func trainingJob(kind, resource, specs string) Kind {
	return Kind{
		GroupKind: schema.GroupKind{Group: kubeflow, Kind: kind}, Resource: resource, Verb: runPolicy, Queued: true, CountedEarly: true,
		Templates: [][]string{{"spec", specs, every, "template"}},
		Ended:     Ended{Conditions: []string{"Succeeded", "Failed"}},
	}
}

func rayCluster(at ...string) [][]string {
	head := append(append([]string{}, at...), "headGroupSpec", "template")
	workers := append(append([]string{}, at...), "workerGroupSpecs", every, "template")
	return [][]string{head, workers}
}
