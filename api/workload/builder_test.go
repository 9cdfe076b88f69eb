// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// podTemplateBuilder builds pod templates; what is added to a container goes to the last.
type podTemplateBuilder struct{ *corev1.PodTemplateSpec }

// newPod returns a pod with one container, main, which requests CPU only.
func newPod() podTemplateBuilder {
	return podTemplateBuilder{&corev1.PodTemplateSpec{}}.withContainer("main").
		withLimit("cpu", "4").withRequest("cpu", "500m").withLimit("memory", "16Gi")
}

// newAdmittedPod is a pod that has been through the webhook.
func newAdmittedPod() podTemplateBuilder {
	return newPod().withLabel(v1alpha1.LabelProject, "thesis-mueller")
}

func (p podTemplateBuilder) withAnnotation(key, value string) podTemplateBuilder {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	return p
}

func (p podTemplateBuilder) withLabel(key, value string) podTemplateBuilder {
	metav1.SetMetaDataLabel(&p.ObjectMeta, key, value)
	return p
}

func (p podTemplateBuilder) withController(apiVersion, kind string) podTemplateBuilder {
	p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "it", Controller: new(true)})
	return p
}

func (p podTemplateBuilder) withContainer(name string) podTemplateBuilder {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
	return p
}

func (p podTemplateBuilder) withInitContainer(name string) podTemplateBuilder {
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name})
	return p
}

func (p podTemplateBuilder) withSidecar(name string) podTemplateBuilder {
	p = p.withInitContainer(name)
	p.lastContainer().RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return p
}

// lastContainer is the container that was added last: init containers come after main.
func (p podTemplateBuilder) lastContainer() *corev1.Container {
	if n := len(p.Spec.InitContainers); n > 0 {
		return &p.Spec.InitContainers[n-1]
	}
	return &p.Spec.Containers[len(p.Spec.Containers)-1]
}

// withLimit sets the limit of the last container, as people write GPUs.
func (p podTemplateBuilder) withLimit(name corev1.ResourceName, amount string) podTemplateBuilder {
	return p.setResource(&p.lastContainer().Resources.Limits, name, amount)
}

func (p podTemplateBuilder) withRequest(name corev1.ResourceName, amount string) podTemplateBuilder {
	return p.setResource(&p.lastContainer().Resources.Requests, name, amount)
}

func (p podTemplateBuilder) setResource(list *corev1.ResourceList, name corev1.ResourceName, amount string) podTemplateBuilder {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = resource.MustParse(amount)
	return p
}

func (p podTemplateBuilder) withEnv(name, value string) podTemplateBuilder {
	p.lastContainer().Env = append(p.lastContainer().Env, corev1.EnvVar{Name: name, Value: value})
	return p
}

func (p podTemplateBuilder) withChange(change func(*corev1.PodTemplateSpec)) podTemplateBuilder {
	change(p.PodTemplateSpec)
	return p
}

// clusterPod is p with what pods from a cluster carry besides: labels, annotations, a
// logging sidecar, environment variables.
func clusterPod(p podTemplateBuilder) *corev1.Pod {
	p = p.withController("batch/v1", "Job").withLabel("app", "train").withLabel("batch.kubernetes.io/job-name", "train").withLabel("pod-template-hash", "5d4f").
		withAnnotation("prometheus.io/scrape", "true").withAnnotation("cni.projectcalico.org/podIP", "10.0.0.1/32").withAnnotation("kubectl.kubernetes.io/restartedAt", "2026-11-21T10:00:00Z")
	for _, name := range []string{"HOME", "NCCL_DEBUG", "PYTHONUNBUFFERED", "WANDB_MODE", "HF_HOME"} {
		p = p.withEnv(name, "x")
	}
	p = p.withContainer("logs").withLimit("cpu", "100m").withLimit("memory", "64Mi").withRequest("cpu", "10m").withRequest("memory", "64Mi")
	return &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

func BenchmarkParse(b *testing.B) {
	for _, bm := range []struct {
		name string
		pod  *corev1.Pod
	}{
		{"CPU only", clusterPod(newPod())},
		{"whole GPU", clusterPod(newPod().withLimit("nvidia.com/gpu", "1").withRequest("nvidia.com/gpu", "1"))},
		{"MIG slice", clusterPod(newPod().withLimit("nvidia.com/mig-3g.40gb", "1").withRequest("nvidia.com/mig-3g.40gb", "1"))},
		{"fraction", clusterPod(newPod().withAnnotation("gpu-fraction", "0.5"))},
		{"everything", clusterPod(newPod().withAnnotation("gpu-memory", "8192").withAnnotation("sluice.dev/gpu-memory-limit", "16384").withAnnotation("gpu-fraction-num-devices", "2").
			withAnnotation("sluice.dev/node-pools", "dgx-h100,dgx-a100").withAnnotation("sluice.dev/max-runtime", "6h").withLabel("sluice.dev/workload-type", "train"))},
		{"malformed", clusterPod(newPod().withAnnotation("gpu-fraction", "1.7"))},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := workload.ParsePod(bm.pod); (err != nil) != (bm.name == "malformed") {
					b.Fatal(err)
				}
			}
		})
	}
}
