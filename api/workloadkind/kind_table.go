// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Groups that have several kinds.
const (
	groupApps     = "apps"
	groupBatch    = "batch"
	groupKubeflow = "kubeflow.org"
	groupRay      = "ray.io"
	groupTekton   = "tekton.dev"
)

// Stop actions that several kinds share.
var (
	suspendAction   = StopAction{Method: StopByField, Path: []string{"spec", "suspend"}, StopValue: true, StartValue: false}
	runPolicyAction = StopAction{Method: StopByField, Path: []string{"spec", "runPolicy", "suspend"}, StopValue: true, StartValue: false}
	scaleAction     = StopAction{Method: StopByScaling, Path: []string{"spec", "replicas"}}
	// failAction makes a Job fail. The Job controller counts from status.startTime.
	failAction = StopAction{
		Method: StopByField, Path: []string{"spec", "activeDeadlineSeconds"}, StopValue: int64(1), Irreversible: true,
	}
)

var (
	jobKind     = schema.GroupKind{Group: groupBatch, Kind: "Job"}
	cronJobKind = schema.GroupKind{Group: groupBatch, Kind: "CronJob"}
	// kueueWorkloadKind is Kueue's object for a queued workload.
	kueueWorkloadKind = schema.GroupKind{Group: GroupKueue, Kind: "Workload"}
)

var (
	specTemplatePaths  = [][]string{{"spec", "template"}}
	statusReplicasPath = []string{"status", "replicas"}
)

// kindTable has every kind that Sluice can stop, and DaemonSets, which it never stops because
// they belong to the cluster. The sources are the API types of the kinds.
var kindTable = []Kind{
	{
		GroupKind: schema.GroupKind{Kind: "Pod"}, Resource: "pods",
		StopAction: StopAction{Method: StopByDeletion, Irreversible: true},
		Templates:  [][]string{{}},
		Completion: Completion{PhasePath: []string{"status", "phase"}, Phases: []string{"Succeeded", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Kind: "ReplicationController"}, Resource: "replicationcontrollers", StopAction: scaleAction,
		Templates: specTemplatePaths, ActivePodsPath: statusReplicasPath,
	},
	{
		GroupKind: schema.GroupKind{Group: groupApps, Kind: "Deployment"}, Resource: "deployments", StopAction: scaleAction,
		Templates: specTemplatePaths, ActivePodsPath: statusReplicasPath,
	},
	{
		GroupKind: schema.GroupKind{Group: groupApps, Kind: "ReplicaSet"}, Resource: "replicasets", StopAction: scaleAction,
		Templates: specTemplatePaths, ActivePodsPath: statusReplicasPath,
	},
	{
		GroupKind: schema.GroupKind{Group: groupApps, Kind: "StatefulSet"}, Resource: "statefulsets", StopAction: scaleAction,
		Templates: specTemplatePaths, ActivePodsPath: statusReplicasPath, OrderedTermination: true,
		ScaledVolumesPath: []string{"spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"},
	},
	{
		GroupKind: schema.GroupKind{Group: groupApps, Kind: "DaemonSet"}, Resource: "daemonsets",
		StopAction: StopAction{Method: StopNever}, Templates: specTemplatePaths,
	},
	{
		GroupKind: jobKind, Resource: "jobs",
		StopAction: suspendAction, KueueManaged: true, KueueCountsTemplates: true,
		Templates: specTemplatePaths, ActivePodsPath: []string{"status", "active"},
		Completion: Completion{Conditions: []string{"Complete", "Failed"}},
	},
	// Its Jobs continue: each is a workload of its own.
	{
		GroupKind: cronJobKind, Resource: "cronjobs", StopAction: suspendAction,
		Templates: [][]string{{"spec", "jobTemplate", "spec", "template"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}, Resource: "jobsets",
		StopAction: suspendAction, KueueManaged: true, KueueCountsTemplates: true,
		Templates:  [][]string{{"spec", "replicatedJobs", wildcard, "template", "spec", "template"}},
		Completion: Completion{Conditions: []string{"Completed", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}, Resource: "leaderworkersets",
		StopAction: scaleAction, KueueCountsTemplates: true,
		Templates:      [][]string{{"spec", "leaderWorkerTemplate", "leaderTemplate"}, {"spec", "leaderWorkerTemplate", "workerTemplate"}},
		ActivePodsPath: statusReplicasPath,
	},
	{
		GroupKind: schema.GroupKind{Group: groupKubeflow, Kind: "Notebook"}, Resource: "notebooks",
		StopAction: StopAction{Method: StopByAnnotation, Path: []string{"metadata", "annotations", "kubeflow-resource-stopped"}},
		Templates:  specTemplatePaths, ActivePodsPath: []string{"status", "readyReplicas"},
	},
	{
		GroupKind: schema.GroupKind{Group: groupKubeflow, Kind: "Workspace"}, Resource: "workspaces",
		StopAction: StopAction{Method: StopByField, Path: []string{"spec", "paused"}, StopValue: true, StartValue: false},
	},
	kubeflowTrainingJob("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs"),
	kubeflowTrainingJob("TFJob", "tfjobs", "tfReplicaSpecs"),
	kubeflowTrainingJob("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs"),
	kubeflowTrainingJob("PaddleJob", "paddlejobs", "paddleReplicaSpecs"),
	kubeflowTrainingJob("JAXJob", "jaxjobs", "jaxReplicaSpecs"),
	kubeflowTrainingJob("MPIJob", "mpijobs", "mpiReplicaSpecs"),
	{
		GroupKind: schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"}, Resource: "trainjobs",
		StopAction: suspendAction, KueueManaged: true,
		Completion: Completion{Conditions: []string{"Complete", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Group: groupRay, Kind: "RayCluster"}, Resource: "rayclusters",
		StopAction: suspendAction, KueueManaged: true, KueueCountsTemplates: true,
		Templates: rayClusterTemplates("spec"),
	},
	{
		GroupKind: schema.GroupKind{Group: groupRay, Kind: "RayJob"}, Resource: "rayjobs",
		StopAction: suspendAction, KueueManaged: true, KueueCountsTemplates: true,
		Templates:  append(rayClusterTemplates("spec", "rayClusterSpec"), []string{"spec", "submitterPodTemplate"}),
		Completion: Completion{PhasePath: []string{"status", "jobDeploymentStatus"}, Phases: []string{"Complete", "Failed"}},
	},
	{
		GroupKind: schema.GroupKind{Group: groupRay, Kind: "RayService"}, Resource: "rayservices", StopAction: suspendAction, KueueManaged: true,
		Templates: rayClusterTemplates("spec", "rayClusterConfig"),
	},
	{
		GroupKind: schema.GroupKind{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}, Resource: "sparkapplications",
		StopAction: suspendAction, KueueManaged: true,
		Completion: Completion{PhasePath: []string{"status", "applicationState", "state"}, Phases: []string{"COMPLETED", "FAILED"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "workload.codeflare.dev", Kind: "AppWrapper"}, Resource: "appwrappers",
		StopAction: suspendAction, KueueManaged: true,
		Completion: Completion{PhasePath: []string{"status", "phase"}, Phases: []string{"Succeeded", "Failed"}},
	},
	{
		GroupKind: kueueWorkloadKind, Resource: "workloads",
		StopAction: StopAction{Method: StopByField, Path: []string{"spec", "active"}, StopValue: false, StartValue: true},
		Templates:  [][]string{{"spec", "podSets", wildcard, "template"}},
		Completion: Completion{Conditions: []string{"Finished"}},
	},
	{
		GroupKind: schema.GroupKind{Group: "workspace.devfile.io", Kind: "DevWorkspace"}, Resource: "devworkspaces",
		StopAction: StopAction{Method: StopByField, Path: []string{"spec", "started"}, StopValue: false, StartValue: true},
	},
	// It stops all pods at once; finished results are kept.
	{
		GroupKind: schema.GroupKind{Group: "argoproj.io", Kind: "Workflow"}, Resource: "workflows",
		StopAction: StopAction{Method: StopByField, Path: []string{"spec", "shutdown"}, StopValue: "Terminate", Irreversible: true},
		Completion: Completion{PhasePath: []string{"status", "phase"}, Phases: []string{"Succeeded", "Failed", "Error"}},
	},
	{
		GroupKind: schema.GroupKind{Group: groupTekton, Kind: "PipelineRun"}, Resource: "pipelineruns",
		StopAction: StopAction{Method: StopByField, Path: []string{"spec", "status"}, StopValue: "Cancelled", Irreversible: true},
		Completion: Completion{ResultCondition: "Succeeded"},
	},
	{
		GroupKind: schema.GroupKind{Group: groupTekton, Kind: "TaskRun"}, Resource: "taskruns",
		StopAction: StopAction{Method: StopByField, Path: []string{"spec", "status"}, StopValue: "TaskRunCancelled", Irreversible: true},
		Completion: Completion{ResultCondition: "Succeeded"},
	},
	{
		GroupKind: schema.GroupKind{Group: "serving.kserve.io", Kind: "InferenceService"}, Resource: "inferenceservices",
		StopAction: StopAction{Method: StopByField, Path: []string{"metadata", "annotations", "serving.kserve.io/stop"}, StopValue: "true"},
	},
}

// The group and a label of Kueue's Workloads.
const (
	GroupKueue = "kueue.x-k8s.io"
	// LabelKueueJobUID is the label of a Workload with the UID of the object that it
	// represents.
	LabelKueueJobUID = "kueue.x-k8s.io/job-uid"
)

func kubeflowTrainingJob(kind, resource, specs string) Kind {
	return Kind{
		GroupKind: schema.GroupKind{Group: groupKubeflow, Kind: kind}, Resource: resource,
		StopAction: runPolicyAction, KueueManaged: true, KueueCountsTemplates: true,
		Templates:  [][]string{{"spec", specs, wildcard, "template"}},
		Completion: Completion{Conditions: []string{"Succeeded", "Failed"}},
	}
}

func rayClusterTemplates(at ...string) [][]string {
	head := append(append([]string{}, at...), "headGroupSpec", "template")
	workers := append(append([]string{}, at...), "workerGroupSpecs", wildcard, "template")
	return [][]string{head, workers}
}
