// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// serviceAccount is the ServiceAccount with which an operator is installed.
type serviceAccount struct{ namespace, name string }

// operators lists the operators with the kinds that they control. The ServiceAccounts are those of
// the operators' own manifests; AdmissionParameters adds others. The controllers of Kubernetes are
// not listed: AdmissionParameters trusts them for every kind.
var operators = []struct {
	group    string
	kinds    []string
	accounts []serviceAccount
}{
	{"jobset.x-k8s.io", []string{"JobSet"}, []serviceAccount{{"jobset-system", "jobset-controller-manager"}}},
	{"leaderworkerset.x-k8s.io", []string{"LeaderWorkerSet"}, lwsAccounts},
	{"", []string{"Pod"}, lwsAccounts}, // a leader pod controls the StatefulSet of its workers
	{
		groupKubeflow,
		[]string{"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"},
		[]serviceAccount{{"kubeflow", "training-operator"}},
	},
	{groupKubeflow, []string{"MPIJob"}, []serviceAccount{{"mpi-operator", "mpi-operator"}}},
	{groupKubeflow, []string{"Notebook"}, []serviceAccount{{"kubeflow", "notebook-controller-service-account"}}},
	{"trainer.kubeflow.org", []string{"TrainJob"}, []serviceAccount{{"kubeflow-system", "kubeflow-trainer-controller-manager"}}},
	{
		groupRay,
		[]string{"RayCluster", "RayCronJob", "RayJob", "RayService"},
		[]serviceAccount{{"default", "kuberay-operator"}, {"ray-system", "kuberay-operator"}},
	},
	{
		"sparkoperator.k8s.io",
		[]string{"ScheduledSparkApplication", "SparkApplication"},
		[]serviceAccount{{"spark-operator", "spark-operator-controller"}},
	},
	{"workload.codeflare.dev", []string{"AppWrapper"}, []serviceAccount{{"appwrapper-system", "appwrapper-controller-manager"}}},
	{"workspace.devfile.io", []string{"DevWorkspace"}, []serviceAccount{{"devworkspace-controller", "devworkspace-controller-serviceaccount"}}},
	{"argoproj.io", []string{"CronWorkflow", "Workflow"}, []serviceAccount{{"argo", "argo"}}},
	{groupTekton, []string{"PipelineRun", "TaskRun"}, []serviceAccount{{"tekton-pipelines", "tekton-pipelines-controller"}}},
	{"serving.kserve.io", []string{"InferenceService"}, []serviceAccount{{"kserve", "kserve-controller-manager"}}},
	{"serving.knative.dev", []string{"Configuration", "Revision", "Service"}, []serviceAccount{{"knative-serving", "controller"}}},
	{"batch.volcano.sh", []string{"Job"}, []serviceAccount{{"volcano-system", "volcano-controllers"}}},
}

var lwsAccounts = []serviceAccount{{"lws-system", "lws-controller-manager"}}

// OperatorUsers returns the users of the known operators, sorted, by the kind that they control,
// such as PyTorchJob.kubeflow.org.
func OperatorUsers() map[string][]string {
	users := map[string][]string{}
	for _, operator := range operators {
		for _, kind := range operator.kinds {
			name := schema.GroupKind{Group: operator.group, Kind: kind}.String()
			for _, account := range operator.accounts {
				users[name] = append(users[name], "system:serviceaccount:"+account.namespace+":"+account.name)
			}
			slices.Sort(users[name])
		}
	}
	return users
}

// OperatorNamespaces returns the namespaces of the known operators, sorted.
func OperatorNamespaces() []string {
	namespaces := map[string]bool{}
	for _, operator := range operators {
		for _, account := range operator.accounts {
			namespaces[account.namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(namespaces))
}
