// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/engine"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
	"sluice.dev/webhook/workload"
)

// queuedProject returns a project with namespace queued and its four node pools, each with a limit of two GPUs:
// Kueue serves one with MIG and two equal ones with whole GPUs, and kube-scheduler serves one with whole GPUs.
func queuedProject() []client.Object {
	nodePool := func(name string, scheduler v1alpha1.Scheduler, sharing v1alpha1.Sharing, profiles ...v1alpha1.MIGProfile) *v1alpha1.NodePool {
		return &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{v1alpha1.LabelNodePool: name}, Scheduler: scheduler, Sharing: sharing},
			Status:     v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{{Name: "A100", MemoryMiB: 40960, MIGProfiles: profiles}}},
		}
	}
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "queue"},
		Spec:       v1alpha1.ProjectSpec{Department: "students", Namespace: "queued"},
		Status: v1alpha1.ProjectStatus{
			Namespace:  &v1alpha1.ProjectNamespace{Name: "queued"},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue}},
			NodePools:  []v1alpha1.PoolUsage{{Name: "mig", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}, {Name: "left", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}, {Name: "right", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}, {Name: "plain", GPUUsage: v1alpha1.GPUUsage{Limit: resource.MustParse("4")}}},
		},
	}
	objects := []client.Object{
		project,
		nodePool("mig", v1alpha1.SchedulerKueue, v1alpha1.SharingMIG, "1g.5gb", "3g.20gb"),
		nodePool("left", v1alpha1.SchedulerKueue, v1alpha1.SharingNone),
		nodePool("right", v1alpha1.SchedulerKueue, v1alpha1.SharingNone),
		nodePool("plain", v1alpha1.SchedulerKube, v1alpha1.SharingNone),
	}
	for _, pool := range objects[1:] {
		project.Spec.NodePools = append(project.Spec.NodePools, v1alpha1.PoolQuota{
			Name: pool.GetName(), GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("1"), Limit: resource.MustParse("2")},
		})
	}
	return objects
}

// createQueuedRequest returns the request to create an object in namespace queued.
func createQueuedRequest(tb testing.TB, object string) admission.Request {
	tb.Helper()
	request := createRequest(tb, anna, object)
	request.Namespace = "queued"
	return request
}

const (
	fractionTemplate = `metadata: {annotations: {gpu-fraction: "0.3"}}, spec: {restartPolicy: Never, containers: [{name: main, image: x}]}`
	wholeGPUTemplate = `metadata: {annotations: {sluice.dev/node-pools: "left,right"}}, spec: {restartPolicy: Never, containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: "1"}}}]}`
	nonKueueTemplate = `metadata: {annotations: {sluice.dev/node-pools: plain}}, spec: {restartPolicy: Never, containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: "1"}}}]}`
	cpuTemplate      = `spec: {restartPolicy: Never, containers: [{name: main, image: x}]}`
)

// templateSummaries returns a line for each template of an object: its pool, priority class and limits.
func templateSummaries(tb testing.TB, kind schema.GroupKind, object []byte) []string {
	tb.Helper()
	var lines []string
	for _, t := range decodeTemplates(tb, kind, object) {
		var pod corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.Body, &pod); err != nil {
			tb.Fatal(err)
		}
		words := []string{t.Path + ": " + pod.Labels[v1alpha1.LabelNodePool], pod.Spec.PriorityClassName}
		limits := pod.Spec.Containers[0].Resources.Limits
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			amount := limits[name]
			words = append(words, string(name)+"="+amount.String())
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

func decodeTemplates(tb testing.TB, kind schema.GroupKind, object []byte) []workloadkind.Template {
	tb.Helper()
	var decoded map[string]any
	if err := json.Unmarshal(object, &decoded); err != nil {
		tb.Fatal(err)
	}
	return workloadkind.Templates(kind, decoded)
}

// The templates that Kueue counts before there are pods have the quota resource of their pods.
func TestQueuedTemplatesAreMutated(t *testing.T) {
	const share, both, none = "mig sluice-train nvidia.com/mig-3g.20gb=1 sluice.dev/gpu-milli=500", "left sluice-train nvidia.com/gpu=1 sluice.dev/gpu-milli=1k", " "
	mutator := newMutator(t)
	for name, tc := range map[string]struct {
		object string
		want   []string
	}{
		"a Job":                       {`{apiVersion: batch/v1, kind: Job, spec: {template: {` + fractionTemplate + `}}}`, []string{"spec.template: " + share}},
		"a Job for two equal pools":   {`{apiVersion: batch/v1, kind: Job, spec: {template: {` + wholeGPUTemplate + `}}}`, []string{"spec.template: " + both}},
		"a Job without GPUs":          {`{apiVersion: batch/v1, kind: Job, spec: {template: {` + cpuTemplate + `}}}`, []string{"spec.template: " + none}},
		"a Job outside Kueue's pools": {`{apiVersion: batch/v1, kind: Job, spec: {template: {` + nonKueueTemplate + `}}}`, []string{"spec.template:   nvidia.com/gpu=1"}},
		"a Deployment is not counted": {`{apiVersion: apps/v1, kind: Deployment, spec: {template: {` + wholeGPUTemplate + `}}}`, []string{"spec.template:   nvidia.com/gpu=1"}},
		"a JobSet": {
			`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{name: a, template: {spec: {template: {` + fractionTemplate + `}}}}, {name: b, template: {spec: {template: {` + wholeGPUTemplate + `}}}}, {name: c, template: {spec: {template: {` + cpuTemplate + `}}}}]}}`,
			[]string{"spec.replicatedJobs[0].template.spec.template: " + share, "spec.replicatedJobs[1].template.spec.template: " + both, "spec.replicatedJobs[2].template.spec.template: " + none},
		},
		"a PyTorchJob": {
			`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {Master: {template: {` + wholeGPUTemplate + `}}, Worker: {template: {` + fractionTemplate + `}}}}}`,
			[]string{"spec.pytorchReplicaSpecs[Master].template: " + both, "spec.pytorchReplicaSpecs[Worker].template: " + share},
		},
		"a RayJob": {
			`{apiVersion: ray.io/v1, kind: RayJob, spec: {rayClusterSpec: {headGroupSpec: {template: {` + cpuTemplate + `}}, workerGroupSpecs: [{template: {` + wholeGPUTemplate + `}}]}}}`,
			[]string{"spec.rayClusterSpec.headGroupSpec.template: " + none, "spec.rayClusterSpec.workerGroupSpecs[0].template: " + both},
		},
		"a LeaderWorkerSet": {
			`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, spec: {leaderWorkerTemplate: {workerTemplate: {` + wholeGPUTemplate + `}}}}`,
			[]string{"spec.leaderWorkerTemplate.workerTemplate: " + both},
		},
		"a RayCluster of a RayService": {
			`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {ownerReferences: [{apiVersion: ray.io/v1, kind: RayService, name: s, uid: u, controller: true}]}, spec: {headGroupSpec: {template: {` + wholeGPUTemplate + `}}}}`,
			[]string{"spec.headGroupSpec.template: " + strings.Replace(both, "train", "inference", 1) + " sluice.dev/guaranteed-milli.left=1k"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := createQueuedRequest(t, tc.object)
			kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
			response := mutator.Handle(t.Context(), request)
			after := patchedObject(t, request, response)
			if diff := cmp.Diff(tc.want, templateSummaries(t, kind, after)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, template := range decodeTemplates(t, kind, after) {
				checkPodMatchesTemplate(t, mutator, template, kind)
			}
			request.Object.Raw = after
			if second := mutator.Handle(t.Context(), request); second.Patch != nil || len(second.Warnings) > 0 {
				t.Errorf("the second mutation: %s %q", second.Patch, second.Warnings)
			}
		})
	}
}

// checkPodMatchesTemplate mutates the pod of a template. Only the annotations of its creator and of the decisions may
// differ from the template.
func checkPodMatchesTemplate(t *testing.T, mutator *workload.Mutator, template workloadkind.Template, owner schema.GroupKind) {
	t.Helper()
	metadata, _ := template.Body["metadata"].(map[string]any)
	if metadata == nil || metadata["labels"] == nil {
		return // Kueue does not count it
	}
	metadata["ownerReferences"] = []any{map[string]any{"apiVersion": owner.Group + "/v1", "kind": owner.Kind, "name": "a", "uid": "u", "controller": true}}
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.Body["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "queued", Object: runtime.RawExtension{Raw: raw}, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
	}}
	request.UserInfo.Username = "system:serviceaccount:kube-system:job-controller"
	response := (&pod.Mutator{Base: mutator.Base}).Handle(t.Context(), request)
	if !response.Allowed || len(response.Warnings) > 0 {
		t.Errorf("the pod: %v %q", response.Result, response.Warnings)
	}
	var before, after map[string]any
	if err := json.Unmarshal(raw, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(patchedObject(t, request, response), &after); err != nil {
		t.Fatal(err)
	}
	annotations := after["metadata"].(map[string]any)["annotations"].(map[string]any)
	delete(annotations, v1alpha1.AnnotationCreatedBy)
	delete(annotations, v1alpha1.AnnotationDecisions)
	delete(annotations, v1alpha1.AnnotationEvaluatedUnder)
	if len(annotations) == 0 {
		delete(after["metadata"].(map[string]any), "annotations")
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the pod differs from its template (-template +pod)\n%s", diff)
	}
}

// The author gets one warning that a fraction became a MIG slice, although the changed template requests the slice.
func TestMutateTemplatesWarnsOfFraction(t *testing.T) {
	mutator := newMutator(t)
	request := createQueuedRequest(t, `{apiVersion: batch/v1, kind: Job, spec: {template: {`+fractionTemplate+`}}}`)
	response := mutator.Handle(t.Context(), request)
	want := []string{"spec.template: 0.3 of a GPU became a slice 3g.20gb in node pool mig; the pod counts as 0.5 of a GPU (policy core.gpu)"}
	if diff := cmp.Diff(want, response.Warnings); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	request.Object.Raw = patchedObject(t, request, response)
	if later := (&workload.Validator{Base: mutator.Base}).Handle(t.Context(), request); !later.Allowed || len(later.Warnings) > 0 {
		t.Errorf("the Validator: %v %q", later.Result, later.Warnings)
	}
}

// The author gets one warning for each replaced field. The creator in the template becomes the author.
func TestMutateTemplatesWarnsOfReplacedFields(t *testing.T) {
	request := createQueuedRequest(t, `{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {annotations: {sluice.dev/created-by: bert@example.org}}, spec: {schedulerName: mine, containers: [{name: main, image: x, resources: {limits: {nvidia.com/mig-1g.5gb: 1}}}]}}}}`)
	response := newMutator(t).Handle(t.Context(), request)
	after := string(patchedObject(t, request, response))
	want := []string{
		"spec.template.metadata.annotations[sluice.dev/created-by]: must name the user who creates the object, anna@example.org; the value was replaced",
		`spec.template: policy schedulers.kueue replaced spec.schedulerName: "mine" is now "default-scheduler"`,
	}
	if diff := cmp.Diff(want, response.Warnings); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if strings.Contains(after, "bert") || strings.Contains(after, "namespace") || !strings.Contains(after, `"sluice.dev/gpu-milli":"125"`) {
		t.Errorf("the patched Job is %s", after)
	}
}

// A workload is denied for the reasons that would deny its pods.
func TestInvalidQueuedWorkloadIsDenied(t *testing.T) {
	mutator := newMutator(t)
	for name, tc := range map[string]struct{ object, wantDenial string }{
		"too much": {
			`{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {annotations: {sluice.dev/node-pools: left}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 3}}}]}}}}`,
			"spec.template: the pod counts as 3 GPUs of node pool left; project queue may have 2 GPUs there",
		},
		"another's queue": {
			`{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {labels: {kueue.x-k8s.io/queue-name: other}}, spec: {containers: [{name: main}]}}}}`,
			"spec.template.metadata.labels[kueue.x-k8s.io/queue-name]: queue other does not belong to project queue",
		},
		"a malformed share": {
			`{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {annotations: {gpu-fraction: "7"}}, spec: {containers: [{name: main}]}}}}`,
			"spec.template.metadata.annotations[gpu-fraction]",
		},
		"one of several": {
			`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{template: {spec: {template: {` + fractionTemplate + `}}}}, {template: {spec: {template: {metadata: {annotations: {gpu-fraction: "7"}}, spec: {containers: [{name: main}]}}}}}]}}`,
			"spec.replicatedJobs[1].template.spec.template.metadata.annotations[gpu-fraction]",
		},
		"too many templates": {
			`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [` + strings.Repeat(`{template: {spec: {template: {`+cpuTemplate+`}}}},`, 64) + `]}}`,
			"too many for Kueue's quota",
		},
	} {
		t.Run(name, func(t *testing.T) {
			response := mutator.Handle(t.Context(), createQueuedRequest(t, tc.object))
			if response.Allowed || !strings.Contains(response.Result.Message, tc.wantDenial) || response.Patch != nil {
				t.Errorf("%+v %s, want %q", response.Result, response.Patch, tc.wantDenial)
			}
		})
	}
}

// A workload that Kueue must count is denied if it cannot be evaluated.
func TestFailClosedDeniesUnevaluatedWorkload(t *testing.T) {
	mutator := newMutator(t)
	mutator.FailClosed = true
	request := createQueuedRequest(t, `{apiVersion: batch/v1, kind: Job, spec: {template: {`+fractionTemplate+`}}}`)
	request.Namespace = "nobodys"
	if response := mutator.Handle(t.Context(), request); response.Allowed || !strings.Contains(response.Result.Message, "no project owns the namespace") {
		t.Errorf("%+v", response.Result)
	}
	policyEngine, err := engine.New(engine.Options{}) // without policies yet
	if err != nil {
		t.Fatal(err)
	}
	mutator.Evaluator = &evaluation.Evaluator{Engine: policyEngine, Clock: mutator.Evaluator.Clock}
	request.Namespace = "queued"
	if response := mutator.Handle(t.Context(), request); response.Allowed || response.Result.Code != 503 {
		t.Errorf("%+v", response.Result)
	}
}

// Any input has a response whose patch applies, and a second mutation changes nothing.
func FuzzMutateTemplates(f *testing.F) {
	for kind, seed := range map[byte]string{
		0: `{"spec":{"template":{"metadata":{"annotations":{"gpu-fraction":"0.3"}},"spec":{"containers":[{"name":"a"}]}}}}`,
		1: `{"spec":{"replicatedJobs":[{"template":{"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":1}}}]}}}}},7,{"template":[]}]}}`,
		2: `{"spec":{"pytorchReplicaSpecs":{"a~/b":{"template":{"metadata":{"labels":{"x":null}},"spec":{"containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":"1e0"}}}]}}},"":{"template":{}}}}}`,
		3: `{"spec":{"headGroupSpec":{"template":{"metadata":null,"spec":{"containers":[{"name":"a","env":[{"name":"A"},{"name":"A"}],"resources":{"limits":{"nvidia.com/mig-1g.5gb":2.0}}}]}}},"workerGroupSpecs":{"a":{"template":{"spec":[]}}}}}`,
		4: `{"metadata":{"ownerReferences":[{"controller":true,"kind":7}]},"spec":{"leaderWorkerTemplate":{"leaderTemplate":null,"workerTemplate":{"spec":{"containers":[]}}}}}`,
	} {
		f.Add(kind, []byte(seed))
	}
	mutator := newMutator(f)
	kinds := []metav1.GroupVersionKind{
		{Group: "batch", Version: "v1", Kind: "Job"},
		{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
		{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"},
		{Group: "ray.io", Version: "v1", Kind: "RayCluster"},
		{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"},
	}
	f.Fuzz(func(t *testing.T, kind byte, raw []byte) {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "queued", Object: runtime.RawExtension{Raw: raw}, Kind: kinds[int(kind)%len(kinds)],
		}}
		request.UserInfo.Username = anna
		response := mutator.Handle(t.Context(), request)
		if !response.Allowed {
			return
		}
		request.Object.Raw = patchedObject(t, request, response)
		second := mutator.Handle(t.Context(), request)
		if !second.Allowed || second.Patch != nil {
			t.Errorf("%s\nbecame %s\nand then: %s %v", raw, request.Object.Raw, second.Patch, second.Result)
		}
	})
}
