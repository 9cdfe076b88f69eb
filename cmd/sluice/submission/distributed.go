// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// The parts of Kubeflow's kinds that a submission sets. Kubeflow's Go module would bring its whole operator.
type (
	replicaSpec struct {
		Replicas      int32                  `json:"replicas"`
		RestartPolicy corev1.RestartPolicy   `json:"restartPolicy,omitempty"`
		Template      corev1.PodTemplateSpec `json:"template"`
	}
	pyTorchJob struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Replicas map[string]replicaSpec `json:"pytorchReplicaSpecs"`
		} `json:"spec"`
	}
	mpiJob struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			RunPolicy struct {
				CleanPodPolicy string `json:"cleanPodPolicy"`
			} `json:"runPolicy"`
			Replicas map[string]replicaSpec `json:"mpiReplicaSpecs"`
		} `json:"spec"`
	}
)

// distributed returns a job of the framework's kind.
func (r *Request) distributed(template corev1.PodTemplateSpec) any {
	if r.Framework == MPI {
		return r.mpiJob(template)
	}
	return r.pyTorchJob(template)
}

// pyTorchJob returns a PyTorchJob, in which the master is one of the workers. Its operator finds the container by
// its name.
func (r *Request) pyTorchJob(template corev1.PodTemplateSpec) *pyTorchJob {
	template.Spec.Containers[0].Name = "pytorch"
	job := &pyTorchJob{TypeMeta: metav1.TypeMeta{APIVersion: "kubeflow.org/v1", Kind: "PyTorchJob"}, ObjectMeta: r.meta()}
	job.Spec.Replicas = map[string]replicaSpec{"Master": {Replicas: 1, RestartPolicy: corev1.RestartPolicyOnFailure, Template: template}}
	if r.Workers > 1 {
		job.Spec.Replicas["Worker"] = replicaSpec{Replicas: r.Workers - 1, RestartPolicy: corev1.RestartPolicyOnFailure, Template: template}
	}
	return job
}

// mpiJob returns an MPIJob. The launcher runs the command and has no GPU; the workers run the SSH daemon of the
// operator's choice.
func (r *Request) mpiJob(template corev1.PodTemplateSpec) *mpiJob {
	launcher, worker := template.DeepCopy(), template.DeepCopy()
	c := &launcher.Spec.Containers[0]
	for name := range c.Resources.Limits {
		delete(c.Resources.Limits, name)
	}
	delete(launcher.Annotations, v1alpha1.AnnotationGPU)
	delete(launcher.Annotations, v1alpha1.AnnotationGPUMemory)
	worker.Spec.Containers[0].Command, worker.Spec.Containers[0].Args = nil, nil
	job := &mpiJob{TypeMeta: metav1.TypeMeta{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob"}, ObjectMeta: r.meta()}
	job.Spec.RunPolicy.CleanPodPolicy = "Running"
	job.Spec.Replicas = map[string]replicaSpec{
		"Launcher": {Replicas: 1, Template: *launcher}, "Worker": {Replicas: r.Workers, Template: *worker},
	}
	return job
}

func newQuantity(value int64) *resource.Quantity {
	return resource.NewQuantity(value, resource.DecimalSI)
}
