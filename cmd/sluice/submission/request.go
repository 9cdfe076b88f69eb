// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package submission makes plain Kubernetes objects of what a user asks of `sluice submit`: a Job for
// training, a Deployment for interactive work and inference, or one of Kubeflow's kinds for distributed
// training, with the Services, Ingresses and volume claims that belong to it. It does no I/O.
package submission

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Framework is a framework for distributed training.
type Framework string

// The frameworks. Each needs the operator of its kind in the cluster.
const (
	// PyTorch makes a PyTorchJob (kubeflow.org/v1).
	PyTorch Framework = "pytorch"
	// MPI makes an MPIJob (kubeflow.org/v2beta1).
	MPI Framework = "mpi"
)

// ServiceType says how the ports of a workload are reached.
type ServiceType string

// The types of services.
const (
	// PortForward makes a Service inside the cluster; `sluice port-forward` opens it to its user.
	PortForward ServiceType = "portforward"
	// NodePort makes a Service with a port on each node.
	NodePort ServiceType = "nodeport"
	// Ingress makes a Service and an Ingress.
	Ingress ServiceType = "ingress"
	// LoadBalancer makes a Service with an address of its own.
	LoadBalancer ServiceType = "loadbalancer"
)

// ServiceTypes are the values of --service-type.
var ServiceTypes = []string{string(PortForward), string(NodePort), string(Ingress), string(LoadBalancer)}

// Request is what a user asks for. The zero value of a field leaves it to the cluster and its policies.
type Request struct {
	// Name is the name of all objects.
	Name, Namespace string
	// Type is train unless set.
	Type  v1alpha1.WorkloadType
	Image string
	// LocalImage starts the image that the node has, and pulls none.
	LocalImage bool

	// GPUs are whole GPUs such as 2, or a part of one such as 0.5.
	GPUs string
	// GPUMemory is memory of one GPU, instead of GPUs.
	GPUMemory *resource.Quantity
	// MIGProfile is a MIG instance such as 3g.40gb, instead of GPUs.
	MIGProfile  v1alpha1.MIGProfile
	CPU, Memory *resource.Quantity
	// LargeSharedMemory mounts /dev/shm in memory without the container runtime's 64 MiB.
	LargeSharedMemory bool

	// Command replaces the image's entry point, Arguments its arguments.
	Command, Arguments []string
	Environment        []corev1.EnvVar
	WorkingDirectory   string
	Mounts             []Mount

	// Stdin and TTY are the container's: its program may read, from a terminal.
	Stdin, TTY bool
	// Images are the images with which files are fetched, by the keys of ImagesConfigMap.
	Images map[string]string

	Ports       []Port
	ServiceType ServiceType
	// Host is the host of the Ingress; without it, the Ingress is for all hosts.
	Host string

	// Parallelism and Completions are those of a Job; 0 is 1.
	Parallelism, Completions int32
	NodePools                []string
	MaxRuntime               *period.Duration
	// Preemptible work may exceed the guaranteed quota. Training always is.
	Preemptible bool

	// Framework makes a distributed training with a number of workers.
	Framework Framework
	Workers   int32
}

// maxNameLength leaves room for what controllers append to the names of pods.
const maxNameLength = 50

// validate returns why the request makes no objects. What depends on the project, its quotas and policies, is
// decided by the cluster.
func (r *Request) validate() error {
	if r.Type == "" {
		r.Type = v1alpha1.WorkloadTrain
	}
	var problems []error
	refuse := func(format string, arguments ...any) { problems = append(problems, fmt.Errorf(format, arguments...)) }
	switch faults := validation.IsDNS1035Label(r.Name); {
	case r.Name == "":
		refuse("NAME: required")
	case len(faults) > 0 || len(r.Name) > maxNameLength:
		refuse("NAME %q: use lower case letters, digits and -, beginning with a letter, at most %d characters", r.Name, maxNameLength)
	}
	if strings.TrimSpace(r.Image) == "" || strings.ContainsAny(r.Image, " \t\n") || strings.HasPrefix(r.Image, "-") {
		refuse("--image %q: give an image such as python:3.12", r.Image)
	}
	if n := countSet(r.GPUs != "", r.GPUMemory != nil, r.MIGProfile != ""); n > 1 {
		refuse("--gpu, --gpu-memory and --mig-profile: give one of them")
	}
	if r.ServiceType != "" && len(r.Ports) == 0 {
		refuse("--service-type %s: needs --port", r.ServiceType)
	}
	switch {
	case r.Host == "":
	case r.ServiceType != Ingress:
		refuse("--host %q: only with --service-type ingress", r.Host)
	case len(validation.IsDNS1123Subdomain(r.Host)) > 0 || isAddress(r.Host):
		refuse("--host %q: want a DNS name in lower case such as notebook.example.org, without * and port", r.Host)
	}
	if r.Parallelism < 0 || r.Parallelism > maxPods {
		refuse("--parallelism %d: give a number from 1 to %d", r.Parallelism, maxPods)
	}
	if r.Completions < 0 || r.Completions > maxPods {
		refuse("--completions %d: give a number from 1 to %d", r.Completions, maxPods)
	}
	if r.Type != v1alpha1.WorkloadTrain {
		if r.Parallelism > 1 || r.Completions > 1 {
			refuse("--parallelism and --completions: only for training (--train)")
		}
		if r.Framework != "" {
			refuse("--%s: only for training (--train)", r.Framework)
		}
	}
	if r.Preemptible && r.Type == v1alpha1.WorkloadInference {
		refuse("--preemptible: inference stays within the guaranteed quota and is never preempted")
	}
	switch {
	case r.Framework == "":
	case r.Workers < 1 || r.Workers > maxWorkers:
		refuse("--workers %d: give a number from 1 to %d", r.Workers, maxWorkers)
	case r.Parallelism > 1 || r.Completions > 1:
		refuse("--parallelism and --completions: not for a %s job, which has --workers", r.Framework)
	}
	problems = append(problems, r.validateMounts()...)
	problems = append(problems, r.validateImages()...)
	return errors.Join(problems...)
}

const (
	// maxWorkers is above the pods of any cluster that Sluice was measured with.
	maxWorkers = 1000
	// maxPods is Kubernetes' limit for the indexes of a Job.
	maxPods = 100000
)

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func countSet(set ...bool) int {
	n := 0
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}
