// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// The labels of all objects that a submission made.
const (
	LabelInstance = "app.kubernetes.io/instance"
	// ManagedBy is the value of app.kubernetes.io/managed-by.
	ManagedBy = "sluice-submit"
)

// gpuFlag returns the flag that requests GPUs, with its value.
func (r *Request) gpuFlag() string {
	switch {
	case r.GPUMemory != nil:
		return "--gpu-memory " + r.GPUMemory.String()
	case r.MIGProfile != "":
		return "--mig-profile " + string(r.MIGProfile)
	}
	return "--gpu " + r.GPUs
}

// Objects returns the objects of a request, or all of its faults. They are in the order in which they are created: volume
// claims, the workload, its Service and its Ingress. They have no fields without a value, so that they can be printed.
func Objects(r *Request) ([]*unstructured.Unstructured, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	template := r.template()
	if _, err := workload.Parse(&template); err != nil {
		return nil, fmt.Errorf("%s: %w", r.gpuFlag(), err)
	}
	objects := r.claims()
	switch {
	case r.Framework != "":
		objects = append(objects, r.distributed(template))
	case r.Type == v1alpha1.WorkloadTrain:
		objects = append(objects, r.job(template))
	default:
		objects = append(objects, r.deployment(template))
	}
	if len(r.Ports) > 0 {
		objects = append(objects, r.service())
	}
	if r.ServiceType == Ingress {
		objects = append(objects, r.ingress())
	}
	converted := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		delete(content, "status")
		converted[i] = &unstructured.Unstructured{Object: prune(content)}
	}
	return converted, nil
}

// prune removes creation times and empty resources, which typed objects always have.
func prune(content map[string]any) map[string]any {
	delete(content, "creationTimestamp")
	for key, value := range content {
		switch value := value.(type) {
		case map[string]any:
			if prune(value); len(value) == 0 && (key == "resources" || key == "strategy") {
				delete(content, key)
			}
		case []any:
			for _, element := range value {
				if element, isMap := element.(map[string]any); isMap {
					prune(element)
				}
			}
		}
	}
	return content
}

func (r *Request) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace, Labels: r.labels()}
}

func (r *Request) labels() map[string]string {
	return map[string]string{LabelInstance: r.Name, v1alpha1.LabelManagedBy: ManagedBy}
}

// template returns the pod template of the workload.
func (r *Request) template() corev1.PodTemplateSpec {
	container := corev1.Container{
		Name: "main", Image: r.Image, Command: r.Command, Args: r.Arguments, Env: r.Environment, WorkingDir: r.WorkingDirectory,
		Stdin: r.Stdin, TTY: r.TTY,
	}
	if r.LocalImage {
		container.ImagePullPolicy = corev1.PullNever
	}
	for _, port := range r.containerPorts() {
		container.Ports = append(container.Ports, corev1.ContainerPort{Name: portName(port), ContainerPort: port})
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: r.labels()}}
	template.Labels[v1alpha1.LabelWorkloadType] = string(r.Type)
	annotations := map[string]string{}
	r.setResources(&container, annotations)
	if len(r.NodePools) > 0 {
		annotations[v1alpha1.AnnotationNodePools] = strings.Join(r.NodePools, ",")
	}
	if r.MaxRuntime != nil {
		annotations[v1alpha1.AnnotationMaxRuntime] = r.MaxRuntime.String()
	}
	if len(annotations) > 0 {
		template.Annotations = annotations
	}
	if r.Preemptible && r.Type == v1alpha1.WorkloadInteractive {
		template.Spec.PriorityClassName = v1alpha1.PriorityClassInteractivePreemptible
	}
	r.addVolumes(&template.Spec, &container)
	r.addFetches(&template.Spec)
	template.Spec.Containers = []corev1.Container{container}
	return template
}

// setResources sets the container's limits, and the annotations for a part of a GPU.
func (r *Request) setResources(container *corev1.Container, annotations map[string]string) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	whole, err := strconv.ParseUint(r.GPUs, 10, 16)
	switch {
	case r.MIGProfile != "":
		limits[v1alpha1.ResourceMIG(r.MIGProfile)] = *newQuantity(1)
	case r.GPUMemory != nil:
		annotations[v1alpha1.AnnotationGPUMemory] = strconv.FormatInt((r.GPUMemory.Value()+(1<<20)-1)>>20, 10)
	case r.GPUs == "" || err == nil && whole == 0:
	case err == nil:
		limits[v1alpha1.ResourceNVIDIAGPU] = *newQuantity(int64(whole))
	default:
		annotations[v1alpha1.AnnotationGPU] = r.GPUs
	}
	if r.CPU != nil {
		requests[corev1.ResourceCPU] = *r.CPU
	}
	if r.Memory != nil {
		requests[corev1.ResourceMemory] = *r.Memory
	}
	if len(requests) > 0 {
		container.Resources.Requests = requests
	}
	if len(limits) > 0 {
		container.Resources.Limits = limits
	}
}

// volumePrefix and the number of a mount are the name of its volume.
const volumePrefix = "volume-"

func (r *Request) addVolumes(spec *corev1.PodSpec, container *corev1.Container) {
	add := func(name, path, file string, readOnly bool, source corev1.VolumeSource) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, SubPath: file, ReadOnly: readOnly})
	}
	for i := range r.Mounts {
		m := &r.Mounts[i]
		add(volumePrefix+strconv.Itoa(i+1), m.Path, m.File, m.ReadOnly, m.Source)
	}
	if r.LargeSharedMemory {
		add("shared-memory", "/dev/shm", "", false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
	}
}

func (r *Request) claims() (claims []any) {
	for i := range r.Mounts {
		n := r.Mounts[i].NewClaim
		if n == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: r.meta(),
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: n.Size}},
			},
		}
		claim.Name = n.Name
		if n.StorageClass != "" {
			claim.Spec.StorageClassName = &n.StorageClass
		}
		claims = append(claims, claim)
	}
	return claims
}

func (r *Request) job(template corev1.PodTemplateSpec) *batchv1.Job {
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: r.meta(), Spec: batchv1.JobSpec{Template: template},
	}
	if r.Parallelism > 0 {
		job.Spec.Parallelism = &r.Parallelism
	}
	if completions := cmp.Or(r.Completions, r.Parallelism); completions > 0 {
		// Each pod finds its number in the variable JOB_COMPLETION_INDEX.
		job.Spec.Completions, job.Spec.CompletionMode = &completions, ptr.To(batchv1.IndexedCompletion)
	}
	return job
}

// deployment returns a Deployment of one. The strategy Recreate never asks for the GPUs of two.
func (r *Request) deployment(template corev1.PodTemplateSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: r.meta(),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelInstance: r.Name}}, Template: template,
		},
	}
}

func (r *Request) containerPorts() []int32 {
	ports := make([]int32, len(r.Ports))
	for i, port := range r.Ports {
		ports[i] = port.Container
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func portName(port int32) string { return "port-" + strconv.Itoa(int(port)) }

// WorkloadReference returns KIND/NAME of the workload, as the commands of sluice accept it.
func (r *Request) WorkloadReference() string {
	kind := "deployment"
	switch {
	case r.Framework == MPI:
		kind = "mpijob"
	case r.Framework == PyTorch:
		kind = "pytorchjob"
	case r.Type == v1alpha1.WorkloadTrain:
		kind = "job"
	}
	return kind + "/" + r.Name
}
