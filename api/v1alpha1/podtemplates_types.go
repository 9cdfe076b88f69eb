// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// PodTemplates are the pod templates of a kind that Sluice does not know.
//
// +kubebuilder:validation:XValidation:rule="!(self.kind in ['JobSet.jobset.x-k8s.io', 'LeaderWorkerSet.leaderworkerset.x-k8s.io', 'Notebook.kubeflow.org', 'PyTorchJob.kubeflow.org', 'TFJob.kubeflow.org', 'XGBoostJob.kubeflow.org', 'PaddleJob.kubeflow.org', 'JAXJob.kubeflow.org', 'MPIJob.kubeflow.org', 'RayCluster.ray.io', 'RayJob.ray.io', 'RayService.ray.io', 'Job.batch.volcano.sh', 'Workflow.argoproj.io', 'WorkflowTemplate.argoproj.io', 'CronWorkflow.argoproj.io', 'InferenceService.serving.kserve.io', 'Service.serving.knative.dev'])",message="Sluice evaluates the templates of this kind without an entry"
// +kubebuilder:validation:XValidation:rule="!self.kind.endsWith('.sluice.dev')",message="kinds of Sluice have no pods"
type PodTemplates struct {
	// Kind is the kind with its API group, such as Trainer.example.org.
	//
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*([.][a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}$`
	Kind string `json:"kind"`

	// Resource is the plural of the kind in the API, such as trainers. The API server calls the
	// webhook for it.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`

	// Version is the version of the API that the paths are of. The API server converts objects of
	// other versions to it. By default the paths are those of all versions.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Version string `json:"version,omitempty"`

	// Paths are the fields of the pod templates, such as spec.template or
	// spec.workers[*].template. [*] stands for all elements of a list or all entries of an object.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^spec([.][A-Za-z][A-Za-z0-9]*(\[\*\])?)+$`
	Paths []string `json:"paths"`
}
