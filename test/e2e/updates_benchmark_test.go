// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

const (
	// updateRounds is the number of rounds of each pod in one operation, and updatesPerRound the
	// number of its updates in a round.
	updateRounds    = 6
	updatesPerRound = 200
)

// BenchmarkPodUpdates measures the processor time of the API server for one update of a pod's
// status, of an annotation and of a label, in the namespace of a project and outside projects, in
// alternating rounds. The pods have 10, 256 and 10,000 labels; the last one is from before the
// project, which does not admit such a pod.
//
//	cpu-ms-governed, cpu-ms-outside  processor time for one update, median of the rounds
//	x-outside                        their ratio, median of the rounds
func BenchmarkPodUpdates(b *testing.B) {
	const governed, outside = "updates", "updates-outside"
	sharedCluster.createDepartment(b, governed, newPoolQuota("dgx", "0", "8"))
	create(b, newNamespace(governed, v1alpha1.AnnotationAdoptBy, governed))
	create(b, newNamespace(outside))
	sizes := []int{10, 256, 10000}
	createPod := func(ns string, labels int) {
		pod := newPod(ns, fmt.Sprintf("labels-%d", labels), func(p *corev1.Pod) {
			for i := range labels {
				p.Labels[fmt.Sprintf("example.org/key-%d", i)] = "x"
			}
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/never"}}
		})
		eventually(b, func() error {
			_, err := sharedCluster.clientset.CoreV1().Pods(ns).Create(b.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	createPod(governed, 10000)
	sharedCluster.createGovernedProject(b, governed, governed, newPoolQuota("dgx", "0", "1"))
	createPod(governed, 10)
	createPod(governed, 256)
	for _, labels := range sizes {
		createPod(outside, labels)
	}
	updates := 0
	for _, what := range []string{"Status", "Annotation", "Label"} {
		for _, labels := range sizes {
			b.Run(fmt.Sprintf("%s/%d", what, labels), func(b *testing.B) {
				rounds := map[string][]float64{}
				update := func(ns string, number int) {
					for range number {
						updates++
						body, subresources := fmt.Appendf(nil, `{"metadata":{"annotations":{"mine":"%d"}}}`, updates), []string(nil)
						switch what {
						case "Label":
							body = fmt.Appendf(nil, `{"metadata":{"labels":{"example.org/key-0":"%d"}}}`, updates)
						case "Status":
							body = fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","message":"%d"}]}}`, updates)
							subresources = []string{"status"}
						}
						_, err := sharedCluster.clientset.CoreV1().Pods(ns).Patch(b.Context(), fmt.Sprintf("labels-%d", labels),
							types.StrategicMergePatchType, body, metav1.PatchOptions{}, subresources...)
						if err != nil {
							b.Fatalf("%.500s", err.Error())
						}
					}
				}
				number := updatesPerRound
				if labels == 10000 {
					number /= 40 // each takes many times as long
				}
				update(governed, number/5) // not measured
				update(outside, number/5)
				for b.Loop() {
					for round := range updateRounds {
						for i := range 2 {
							ns := []string{governed, outside}[(i+round)%2]
							before := sharedCluster.componentCPU(b)
							update(ns, number)
							used := sharedCluster.componentCPU(b).add(before, -1)["kube-apiserver"]
							rounds[ns] = append(rounds[ns], 1000*used/float64(number))
						}
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(median(rounds[governed]), "cpu-ms-governed")
				b.ReportMetric(median(rounds[outside]), "cpu-ms-outside")
				ratios := make([]float64, len(rounds[governed]))
				for i := range ratios {
					ratios[i] = rounds[governed][i] / rounds[outside][i]
				}
				b.ReportMetric(median(ratios), "x-outside")
			})
		}
	}
}
