// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"fmt"
	"strings"
	"testing"
)

// The users of KAI-Scheduler.
const (
	kaiBinder    = "system:serviceaccount:kai-scheduler:binder"
	kaiScheduler = "system:serviceaccount:kai-scheduler:scheduler"
)

// A GPU stays reserved for as long as any pod has the label of its group, and KAI-Scheduler charges only pods with GPUs: on
// KAI-Scheduler 0.17.0 (f218c69b) a member locked eight GPUs with pods that were charged for none. Guards invariant 4.
func TestGPUGroupsAreSetByKAIAlone(t *testing.T) {
	pod := func(labels string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: leech, labels: {app: leech` + labels + `}}, spec: {containers: []}}`
	}
	const one, other, several = ", runai-gpu-group: one", ", runai-gpu-group: other", ", runai-gpu-group/one: one"
	request := func(user, old, object string) admissionRequest {
		return admissionRequest{user: user, resource: "pods", old: old, object: object}
	}
	status := request("", pod(""), pod(one))
	status.resource = "pods/status"
	const jobController = "system:serviceaccount:kube-system:job-controller"
	cases := expect{
		"at creation":                  {request("", "", pod(one)), "metadata.labels: runai-gpu-group: only KAI-Scheduler assigns a pod to a GPU"},
		"of several GPUs":              {request("", "", pod(several)), "metadata.labels: runai-gpu-group/one: only KAI-Scheduler"},
		"from a template":              {request(jobController, "", pod(one)), "only KAI-Scheduler"},
		"by lifecycle":                 {request(lifecycle, "", pod(one)), "only KAI-Scheduler"},
		"later":                        {request("", pod(""), pod(one)), "only KAI-Scheduler"},
		"through the status":           {status, "only KAI-Scheduler"},
		"changed":                      {request("", pod(one), pod(other)), "only KAI-Scheduler"},
		"removed":                      {request("", pod(several), pod("")), "only KAI-Scheduler"},
		"left as it was":               {request("", pod(one), pod(one+", more: x")), ""},
		"another label":                {request("", "", pod(", runai: gpu-group")), ""},
		"by the binder":                {request(kaiBinder, pod(""), pod(one)), ""},
		"by the binder, of several":    {request(kaiBinder, pod(one), pod(several)), ""},
		"removed by the binder":        {request(kaiBinder, pod(one), pod("")), ""},
		"a pod that reserves a GPU":    {request(kaiBinder, "", pod(one)), ""},
		"a pod with 256 labels":        {request("", "", pod(numberedLabels(250))), ""},
		"a pod with 256 labels, later": {request("", pod(""), pod(numberedLabels(250)+one)), "only KAI-Scheduler"},
	}
	t.Run("in projects", cases.run)
	for name, tc := range cases {
		tc.request.outside = true
		cases[name] = tc
	}
	// Beyond CEL's limits a policy that fails open would be skipped.
	huge := request("", "", pod(numberedLabels(20001)+one))
	huge.outside = true
	cases["a label among very many"] = struct {
		request admissionRequest
		want    string
	}{huge, "metadata.labels: 20003 entries, of which at most 20000 are allowed"}
	t.Run("outside", cases.run)
}

func numberedLabels(count int) string {
	var text strings.Builder
	for number := range count {
		fmt.Fprintf(&text, ", example.org/key-%d: x", number)
	}
	return text.String()
}

// A workload whose pods KAI-Scheduler does not group waits for ever, and a later version of it reads the memory of each
// container from annotations of the pod. Guards invariant 4.
func TestAnnotationsOfKAI(t *testing.T) {
	workload := func(annotations string) string {
		return `{apiVersion: batch/v1, kind: Job, metadata: {name: train, annotations: {` + annotations + `}}, spec: {}}`
	}
	pod := func(annotations string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: train, annotations: {` + annotations + `}}, spec: {containers: []}}`
	}
	const (
		skip       = "kai.scheduler/skip-podgrouper: 'true'"
		refused    = "metadata.annotations[kai.scheduler/skip-podgrouper]: only KAI-Scheduler decides"
		controller = "system:serviceaccount:kube-system:deployment-controller"
	)
	cases := expect{
		"a Job without groups":             {admissionRequest{resource: "jobs.batch", object: workload(skip)}, refused},
		"a Job without groups later":       {admissionRequest{resource: "jobs.batch", old: workload(""), object: workload(skip)}, refused},
		"through the status":               {admissionRequest{resource: "jobs.batch/status", old: workload(""), object: workload(skip)}, refused},
		"a RayCluster without groups":      {admissionRequest{resource: "rayclusters.ray.io", object: strings.Replace(workload(skip), "batch/v1, kind: Job", "ray.io/v1, kind: RayCluster", 1)}, refused},
		"from before the project":          {admissionRequest{resource: "jobs.batch", old: workload(skip), object: workload(skip + ", own: x")}, ""},
		"from before the project, removed": {admissionRequest{resource: "jobs.batch", old: workload(skip), object: workload("")}, ""},
		"a controller's copy":              {admissionRequest{user: controller, resource: "replicasets.apps", object: strings.Replace(workload(skip), "batch/v1, kind: Job", "apps/v1, kind: ReplicaSet", 1)}, ""},
	}
	for _, key := range []string{"gpu-memory.request", "gpu-memory.limit", "gpu-compute.mode", "gpus.devices"} {
		one, other := "nvidia.com/container.main."+key+": a", "nvidia.com/container.main."+key+": b"
		const want = "sluice-managed-metadata: metadata.annotations: the GPU requests of containers"
		for name, tc := range (expect{
			key + " later":         {admissionRequest{resource: "pods", old: pod(""), object: pod(one)}, want},
			key + " by the status": {admissionRequest{resource: "pods/status", old: pod(""), object: pod(one)}, want},
			key + " changed":       {admissionRequest{resource: "pods", old: pod(one), object: pod(other)}, want},
			key + " removed":       {admissionRequest{resource: "pods", old: pod(one), object: pod("")}, want},
			key + " as it was":     {admissionRequest{resource: "pods", old: pod(one), object: pod(one + ", own: x")}, ""},
			key + " by the binder": {admissionRequest{user: kaiBinder, resource: "pods", old: pod(""), object: pod(one)}, ""},
		}) {
			cases[name] = tc
		}
	}
	cases.run(t)
}

// KAI-Scheduler's binder binds whatever a BindRequest names, without regard to the quota. Guards invariants 3 and 4.
func TestBindRequestsAreWrittenByKAIAlone(t *testing.T) {
	const (
		want      = "sluice-bind-requests: BindRequests are written by KAI-Scheduler alone"
		before    = `{apiVersion: scheduling.run.ai/v1alpha2, kind: BindRequest, metadata: {name: over}, spec: {podName: over, selectedNode: dgx-7}}`
		after     = `{apiVersion: scheduling.run.ai/v1alpha2, kind: BindRequest, metadata: {name: over}, spec: {podName: over, selectedNode: dgx-1}}`
		collector = "system:serviceaccount:kube-system:generic-garbage-collector"
		namespace = "system:serviceaccount:kube-system:namespace-controller"
	)
	request := func(user, old, object string) admissionRequest {
		return admissionRequest{user: user, resource: "bindrequests.scheduling.run.ai", old: old, object: object}
	}
	status := func(user string) admissionRequest {
		return admissionRequest{user: user, resource: "bindrequests.scheduling.run.ai/status", old: before, object: after}
	}
	expect{
		"by a member":                        {request("", "", before), want},
		"changed by a member":                {request("", before, after), want},
		"its status by a member":             {status(""), want},
		"deleted by a member":                {request("", before, ""), want},
		"by lifecycle":                       {request(lifecycle, "", before), want},
		"by garbage collection":              {request(collector, "", before), want},
		"changed by garbage collection":      {request(collector, before, after), want},
		"deleted by garbage collection":      {request(collector, before, ""), ""},
		"deleted with the namespace":         {request(namespace, before, ""), ""},
		"by KAI-Scheduler":                   {request(kaiScheduler, "", before), ""},
		"its status by KAI-Scheduler's part": {status(kaiBinder), ""},
		"deleted by KAI-Scheduler's part":    {request(kaiBinder, before, ""), ""},
	}.run(t)
}
