// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"
)

// countedResources are resources of which one pod may ask in many containers.
var countedResources = []corev1.ResourceName{
	"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb",
	"koordinator.sh/gpu", "volcano.sh/vgpu-number", "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
}

// What is added up here is what the API server's quota and the scheduler count.
func TestTallyMatchesAPIServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := randomPodSpec(t, countedResources)
		r := parser{units: defaultResourceUnits, spec: &spec}
		r.parseContainers(&spec)
		if len(r.errs) > 0 {
			t.Fatal(r.errs)
		}
		got := map[corev1.ResourceName]int64{}
		for _, e := range append(r.gpuTally.entries, r.deviceClassTally.entries...) {
			got[e.name] = e.total()
		}
		if diff := cmp.Diff(apiServerRequests(spec), got); diff != "" {
			t.Fatalf("-API server +here\n%s", diff)
		}
	})
}

// A whole pod with one kind of GPU, all the way.
func TestParsePodMatchesAPIServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]corev1.ResourceName{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-3g.20gb"}).Draw(t, "name")
		pod := corev1.Pod{Spec: randomPodSpec(t, []corev1.ResourceName{name})}
		request, err := ParsePod(&pod)
		if err != nil {
			t.Fatal(err)
		}
		want := apiServerRequests(pod.Spec)[name]
		if got := request.Resources.Get(string(name)); got != want || request.Devices != want {
			t.Fatalf("%s: %d, %d devices, want %d", name, got, request.Devices, want)
		}
		if request.RequestsGPU() != (want > 0) {
			t.Fatalf("%d of them, and AsksForGPU is %v", want, request.RequestsGPU())
		}
	})
}

// apiServerRequests returns the requests of the pod above 0, by the code that
// the API server itself uses after it has filled in absent requests.
func apiServerRequests(spec corev1.PodSpec) map[corev1.ResourceName]int64 {
	pod := corev1.Pod{Spec: *spec.DeepCopy()}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			resources := &list[i].Resources
			for name, quantity := range resources.Limits {
				if _, set := resources.Requests[name]; !set {
					if resources.Requests == nil {
						resources.Requests = corev1.ResourceList{}
					}
					resources.Requests[name] = quantity
				}
			}
		}
	}
	want := map[corev1.ResourceName]int64{}
	for name, quantity := range resourcehelper.PodRequests(&pod, resourcehelper.PodResourcesOptions{}) {
		if name != corev1.ResourceCPU && !quantity.IsZero() {
			want[name] = quantity.Value()
		}
	}
	return want
}

// randomPodSpec has regular containers, init containers and sidecars in any order.
func randomPodSpec(t *rapid.T, names []corev1.ResourceName) corev1.PodSpec {
	containers := func(label string, most int, sidecars bool) []corev1.Container {
		list := make([]corev1.Container, rapid.IntRange(0, most).Draw(t, label))
		for i := range list {
			list[i].Name = label + strconv.Itoa(i)
			list[i].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			for _, name := range names {
				amount := rapid.Int64Range(-3, 5).Draw(t, string(name))
				if amount < 0 {
					continue
				}
				quantity := *resource.NewQuantity(amount, resource.DecimalSI)
				list[i].Resources.Limits[name] = quantity
				if rapid.Bool().Draw(t, "with request") {
					list[i].Resources.Requests = corev1.ResourceList{name: quantity}
				}
			}
			if sidecars && rapid.Bool().Draw(t, "sidecar") {
				list[i].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
		}
		return list
	}
	return corev1.PodSpec{Containers: containers("regular", 4, false), InitContainers: containers("init", 5, true)}
}

func BenchmarkPodRequests(b *testing.B) {
	quantity := func(text string) resource.Quantity { return resource.MustParse(text) }
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{"cpu": quantity("4"), "memory": quantity("16Gi"), "nvidia.com/gpu": quantity("2")},
		Requests: corev1.ResourceList{"cpu": quantity("500m"), "memory": quantity("16Gi"), "nvidia.com/gpu": quantity("2")},
	}}}}}
	b.Run("the API server's", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			resourcehelper.PodRequests(&pod, resourcehelper.PodResourcesOptions{})
		}
	})
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := parser{units: defaultResourceUnits, spec: &pod.Spec}
			r.parseContainers(&pod.Spec)
		}
	})
}
