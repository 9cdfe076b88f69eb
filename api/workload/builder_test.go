// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// template builds pod templates; what is added to a container goes to the last.
type template struct{ *corev1.PodTemplateSpec }

// pod has one container, main, which asks for CPU only.
func pod() template {
	return template{&corev1.PodTemplateSpec{}}.container("main").
		asking("cpu", "4").request("cpu", "500m").asking("memory", "16Gi")
}

// admitted is a pod that has been through the webhook.
func admitted() template { return pod().labelled(v1alpha1.LabelProject, "thesis-mueller") }

func (p template) annotated(key, value string) template {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	return p
}

func (p template) labelled(key, value string) template {
	metav1.SetMetaDataLabel(&p.ObjectMeta, key, value)
	return p
}

func (p template) ownedBy(apiVersion, kind string) template {
	p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "it", Controller: new(true)})
	return p
}

func (p template) container(name string) template {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
	return p
}

func (p template) init(name string) template {
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name})
	return p
}

func (p template) sidecar(name string) template {
	p = p.init(name)
	p.last().RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return p
}

// last is the container that was added last: init containers come after main.
func (p template) last() *corev1.Container {
	if n := len(p.Spec.InitContainers); n > 0 {
		return &p.Spec.InitContainers[n-1]
	}
	return &p.Spec.Containers[len(p.Spec.Containers)-1]
}

// asking sets the limit of the last container, as people write GPUs.
func (p template) asking(name corev1.ResourceName, amount string) template {
	return p.set(&p.last().Resources.Limits, name, amount)
}

func (p template) request(name corev1.ResourceName, amount string) template {
	return p.set(&p.last().Resources.Requests, name, amount)
}

func (p template) set(list *corev1.ResourceList, name corev1.ResourceName, amount string) template {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = resource.MustParse(amount)
	return p
}

func (p template) env(name, value string) template {
	p.last().Env = append(p.last().Env, corev1.EnvVar{Name: name, Value: value})
	return p
}

func (p template) with(change func(*corev1.PodTemplateSpec)) template {
	change(p.PodTemplateSpec)
	return p
}
