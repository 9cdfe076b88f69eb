// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/workload"
)

// fromCluster is p with what pods from a cluster carry besides: labels, annotations, a
// logging sidecar, environment variables.
func fromCluster(p template) *corev1.Pod {
	p = p.ownedBy("batch/v1", "Job").labelled("app", "train").labelled("batch.kubernetes.io/job-name", "train").labelled("pod-template-hash", "5d4f").
		annotated("prometheus.io/scrape", "true").annotated("cni.projectcalico.org/podIP", "10.0.0.1/32").annotated("kubectl.kubernetes.io/restartedAt", "2026-11-21T10:00:00Z")
	for _, name := range []string{"HOME", "NCCL_DEBUG", "PYTHONUNBUFFERED", "WANDB_MODE", "HF_HOME"} {
		p = p.env(name, "x")
	}
	p = p.container("logs").asking("cpu", "100m").asking("memory", "64Mi").request("cpu", "10m").request("memory", "64Mi")
	return &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

func BenchmarkParse(b *testing.B) {
	for _, bm := range []struct {
		name string
		pod  *corev1.Pod
	}{
		{"CPU only", fromCluster(pod())},
		{"whole GPU", fromCluster(pod().asking("nvidia.com/gpu", "1").request("nvidia.com/gpu", "1"))},
		{"MIG slice", fromCluster(pod().asking("nvidia.com/mig-3g.40gb", "1").request("nvidia.com/mig-3g.40gb", "1"))},
		{"fraction", fromCluster(pod().annotated("gpu-fraction", "0.5"))},
		{"everything", fromCluster(pod().annotated("gpu-memory", "8192").annotated("sluice.dev/gpu-memory-limit", "16384").annotated("gpu-fraction-num-devices", "2").
			annotated("sluice.dev/node-pools", "dgx-h100,dgx-a100").annotated("sluice.dev/max-runtime", "6h").labelled("sluice.dev/workload-type", "train"))},
		{"malformed", fromCluster(pod().annotated("gpu-fraction", "1.7"))},
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
