// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import "k8s.io/apimachinery/pkg/runtime/schema"

// every stands for all elements of a list, or all entries of an object.
const every = "*"

// kinds are where each kind that makes pods has its templates. The sources are
// the kinds' own API types.
var kinds = map[schema.GroupKind][][]string{
	{Group: "batch", Kind: "Job"}:                                {{"spec", "template"}},
	{Group: "batch", Kind: "CronJob"}:                            {{"spec", "jobTemplate", "spec", "template"}},
	{Group: "apps", Kind: "Deployment"}:                          {{"spec", "template"}},
	{Group: "apps", Kind: "StatefulSet"}:                         {{"spec", "template"}},
	{Group: "apps", Kind: "ReplicaSet"}:                          {{"spec", "template"}},
	{Group: "apps", Kind: "DaemonSet"}:                           {{"spec", "template"}},
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}:                   {{"spec", "replicatedJobs", every, "template", "spec", "template"}},
	{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}: {{"spec", "leaderWorkerTemplate", "leaderTemplate"}, {"spec", "leaderWorkerTemplate", "workerTemplate"}},
	{Group: "kubeflow.org", Kind: "Notebook"}:                    {{"spec", "template"}},
	{Group: "kubeflow.org", Kind: "PyTorchJob"}:                  {{"spec", "pytorchReplicaSpecs", every, "template"}},
	{Group: "kubeflow.org", Kind: "TFJob"}:                       {{"spec", "tfReplicaSpecs", every, "template"}},
	{Group: "kubeflow.org", Kind: "XGBoostJob"}:                  {{"spec", "xgbReplicaSpecs", every, "template"}},
	{Group: "kubeflow.org", Kind: "PaddleJob"}:                   {{"spec", "paddleReplicaSpecs", every, "template"}},
	{Group: "kubeflow.org", Kind: "JAXJob"}:                      {{"spec", "jaxReplicaSpecs", every, "template"}},
	{Group: "kubeflow.org", Kind: "MPIJob"}:                      {{"spec", "mpiReplicaSpecs", every, "template"}},
	{Group: "ray.io", Kind: "RayCluster"}:                        {{"spec", "headGroupSpec", "template"}, {"spec", "workerGroupSpecs", every, "template"}},
	{Group: "ray.io", Kind: "RayJob"}: {
		{"spec", "rayClusterSpec", "headGroupSpec", "template"},
		{"spec", "rayClusterSpec", "workerGroupSpecs", every, "template"},
		{"spec", "submitterPodTemplate"},
	},
}
