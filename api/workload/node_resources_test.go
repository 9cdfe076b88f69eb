// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/workload"
)

const gib = 1 << 30

func TestRequests(t *testing.T) {
	empty := func() podTemplateBuilder { return podTemplateBuilder{&corev1.PodTemplateSpec{}}.withContainer("main") }
	podLevel := func(requests, limits corev1.ResourceList) func(*corev1.PodTemplateSpec) {
		return func(template *corev1.PodTemplateSpec) {
			template.Spec.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
		}
	}
	list := func(name corev1.ResourceName, amount string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(amount)}
	}
	for name, tc := range map[string]struct {
		pod  podTemplateBuilder
		want workload.Amounts
	}{
		"nothing":                         {empty(), workload.Amounts{}},
		"a zero":                          {empty().withRequest("cpu", "0"), workload.Amounts{}},
		"requests":                        {empty().withRequest("cpu", "0.1").withRequest("memory", "1Gi"), workload.Amounts{{"cpu", 100}, {"memory", gib}}},
		"less than a thousandth of a CPU": {empty().withRequest("cpu", "100u"), workload.Amounts{{"cpu", 1}}},
		"a limit alone, as in templates":  {empty().withLimit("cpu", "2"), workload.Amounts{{"cpu", 2000}}},
		"a limit above the request":       {empty().withLimit("cpu", "2").withRequest("cpu", "1"), workload.Amounts{{"cpu", 1000}}},
		"other resources":                 {empty().withLimit("nvidia.com/gpu", "1").withLimit("rdma/hca", "1"), workload.Amounts{}},
		"storage and huge pages": {
			empty().withRequest("ephemeral-storage", "1Gi").withLimit("hugepages-2Mi", "1Gi"),
			workload.Amounts{{"ephemeral-storage", gib}, {"hugepages-2Mi", gib}},
		},
		"several containers": {empty().withRequest("cpu", "1").withContainer("side").withRequest("cpu", "2"), workload.Amounts{{"cpu", 3000}}},
		"an init container that needs more": {
			empty().withRequest("cpu", "1").withInitContainer("prepare").withLimit("cpu", "8"), workload.Amounts{{"cpu", 8000}},
		},
		"a sidecar": {empty().withRequest("cpu", "1").withSidecar("log").withRequest("cpu", "2"), workload.Amounts{{"cpu", 3000}}},
		"an init container beside a sidecar": {
			empty().withRequest("cpu", "1").withSidecar("log").withRequest("cpu", "2").withInitContainer("prepare").withRequest("cpu", "8"),
			workload.Amounts{{"cpu", 10000}},
		},
		"the pod's own requests": {empty().withRequest("cpu", "1").withChange(podLevel(list("cpu", "255"), nil)), workload.Amounts{{"cpu", 255000}}},
		"the pod's own limit":    {empty().withChange(podLevel(nil, list("cpu", "255"))), workload.Amounts{{"cpu", 255000}}},
		"the pod's own limit above its containers' requests": {
			empty().withRequest("cpu", "1").withChange(podLevel(nil, list("cpu", "255"))), workload.Amounts{{"cpu", 1000}},
		},
		"overhead": {
			empty().withRequest("cpu", "1").withChange(func(template *corev1.PodTemplateSpec) { template.Spec.Overhead = list("cpu", "250m") }),
			workload.Amounts{{"cpu", 1250}},
		},
		"more than an int64 of thousandths": {empty().withRequest("cpu", "9e18"), workload.Amounts{{"cpu", math.MaxInt64}}},
		"a sum beyond an int64": {
			empty().withRequest("memory", "9e18").withContainer("side").withRequest("memory", "9e18"), workload.Amounts{{"memory", math.MaxInt64}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := workload.Parse(tc.pod.PodTemplateSpec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, request.Requests); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
