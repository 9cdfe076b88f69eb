// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/workloads"
)

// newListedWorkload returns a workload of an object in YAML that is as old as age.
func newListedWorkload(t *testing.T, text string, age time.Duration) *workloads.Workload {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetCreationTimestamp(metav1.NewTime(clocksNow.Add(-age)))
	kind, _ := workloadkind.Lookup(schema.FromAPIVersionAndKind(object.GetAPIVersion(), object.GetKind()).GroupKind())
	return &workloads.Workload{Object: object, Kind: kind}
}

// newListedPod returns a pod of a workload on a node.
func newListedPod(name, node string, phase corev1.PodPhase, state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "thesis", Name: name, Labels: map[string]string{
			v1alpha1.LabelProject: "thesis-mueller", v1alpha1.LabelWorkloadType: "train",
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "pytorch"}}},
		Status: corev1.PodStatus{
			Phase: phase, HostIP: "10.1.2.3",
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: state, RestartCount: 2}},
		},
	}
}

// sampleWorkloads returns workloads in many states.
func sampleWorkloads(t *testing.T) []*workloads.Workload {
	t.Helper()
	const job = `{apiVersion: batch/v1, kind: Job, metadata: {name: %, namespace: thesis, uid: u, annotations: {sluice.dev/created-by: anna.mueller@h2.example%}},
		spec: {template: {metadata: {annotations: {gpu-fraction: "0.5"}}, spec: {containers: [{name: main, image: "nvcr.io/nvidia/pytorch:26.01-py3"}]}}%}}`
	newJob := func(name, annotations, spec string, age time.Duration) *workloads.Workload {
		text := strings.Replace(job, "%", name, 1)
		text = strings.Replace(text, "%", annotations, 1)
		return newListedWorkload(t, strings.Replace(text, "%", spec, 1), age)
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	training := newJob("training", "", "", 26*time.Hour)
	for _, name := range []string{"training-0", "training-1", "training-2"} {
		training.Pods = append(training.Pods, newListedPod(name, "dgx-"+name[9:], corev1.PodRunning, running))
	}
	training.Pods[0].Annotations = map[string]string{"gpu-fraction": "0.5"}
	clock := newClock("thesis", "Job", "training", v1alpha1.WorkloadClockStatus{
		State: v1alpha1.ClockStateRunning, RunningSince: clockTime(-24 * time.Hour), Limit: runtimeLimit("48h"),
		Deadline: &v1alpha1.ClockDeadline{At: *clockTime(24 * time.Hour), Reason: v1alpha1.EndMaxRuntime},
	})
	training.Clock = &clock

	notebook := newListedWorkload(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: notebook, namespace: thesis},
		spec: {template: {metadata: {labels: {sluice.dev/workload-type: interactive}}, spec: {containers: [{name: jupyter,
		image: "quay.io/jupyter/base-notebook@sha256:0123", resources: {limits: {nvidia.com/mig-3g.40gb: "1"}}}]}}}}`, 40*time.Second)
	notebook.Pods = []*corev1.Pod{newListedPod("notebook-1", "dgx-1", corev1.PodPending,
		corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})}
	notebook.Services = []*corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Name: "notebook", Namespace: "thesis"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, TargetPort: intstr.FromInt32(8888)}}},
	}}
	broken := newJob("broken", "", "", time.Hour)
	broken.Pods = []*corev1.Pod{newListedPod("broken-1", "dgx-1", corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ImagePullBackOff", Message: `Back-off pulling image "nvcr.io/nvidia/pytorch:26.01-py3": not found`,
	}})}
	waiting := newJob("waiting", "", "", time.Hour)
	waiting.FailedCreates = []string{"Error creating: pods \"waiting-x\" is forbidden: project thesis-mueller is suspended since it expired on 2026-10-01; its owner renews it"}
	// The API accepts such annotations. A terminal must not receive them.
	evil := newJob("evil", "", "", time.Minute)
	evil.Object.SetAnnotations(map[string]string{v1alpha1.AnnotationCreatedBy: "\x1b[2J\u202e"})
	return []*workloads.Workload{
		notebook, broken, evil, training, waiting,
		newJob("stopped", `, sluice.dev/stopped-until: "2026-10-25T10:00:00Z"`, ", suspend: true", 99*time.Hour),
	}
}

func TestWorkloadOutput(t *testing.T) {
	var rows []workloadRow
	list := sampleWorkloads(t)
	for _, w := range list {
		rows = append(rows, newWorkloadRow(w, sampleProjects, clocksNow, clocksNow))
	}
	golden.Assert(t, tableText(t, workloadTable(rows, false, false, time.UTC)), "workloads/list.txt")
	golden.Assert(t, tableText(t, workloadTable(rows, true, false, time.UTC)), "workloads/all.txt")
	golden.Assert(t, jsonText(t, map[string]any{"now": clocksNow, "workloads": rows}), "workloads/list.json")
	var wide bytes.Buffer
	if err := workloadTable(rows, false, true, time.UTC).Write(&wide, true); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, wide.String(), "workloads/wide.txt")
	var details bytes.Buffer
	for _, w := range list {
		if err := newWorkloadDetails(w, sampleProjects, clocksNow, clocksNow).write(&details, time.UTC); err != nil {
			t.Fatal(err)
		}
		details.WriteString("\n---\n\n")
	}
	golden.Assert(t, details.String(), "workloads/get.txt")
	golden.Assert(t, jsonText(t, newWorkloadDetails(list[3], sampleProjects, clocksNow, clocksNow)), "workloads/get.json")
}

func TestWorkloadNames(t *testing.T) {
	list := append(sampleWorkloads(t), newListedWorkload(t, "{apiVersion: v1, kind: Pod, metadata: {name: training}}", 0))
	got := strings.Join(workloadNames(list, ""), " ")
	if want := "notebook broken evil job/training waiting stopped pod/training"; got != want {
		t.Errorf("completed are %s, want %s", got, want)
	}
	if got := workloadNames(list, "job/")[0]; got != "deployment/notebook" {
		t.Errorf("with a kind %s is completed", got)
	}
}

func TestSelectPod(t *testing.T) {
	list := sampleWorkloads(t)
	notebook, training, waiting := list[0], list[3], list[4]
	training.Pods[0].Status.Phase = corev1.PodSucceeded
	tests := map[string]struct {
		workload     *workloads.Workload
		name         string
		needsRunning bool
		want, err    string
	}{
		"the first that runs": {training, "", true, "training-1", ""},
		"a named one":         {training, "training-2", true, "training-2", ""},
		"one that has ended":  {training, "training-0", true, "", "sluice logs job/training"},
		"the log of this one": {training, "training-0", false, "training-0", ""},
		"an unknown one":      {training, "other", false, "", "has the pods training-0, training-1, training-2"},
		"one that starts":     {notebook, "", true, "", "does not run yet (ContainerCreating)"},
		"the log of that":     {notebook, "", false, "notebook-1", ""},
		"none: what it lacks": {waiting, "", false, "", "thesis-mueller is suspended"},
		"none: where to look": {waiting, "", false, "", "sluice get job/waiting"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, err := selectPod(tc.workload, tc.name, tc.needsRunning)
			switch {
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("%v, want an error with %q", err, tc.err)
			case tc.err == "" && (err != nil || pod.Name != tc.want):
				t.Errorf("%v, %v; want %s", pod, err, tc.want)
			}
		})
	}
}

func TestSelectContainer(t *testing.T) {
	pod := newListedPod("x", "", corev1.PodRunning, corev1.ContainerState{})
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy"})
	pod.Spec.InitContainers = []corev1.Container{{Name: "fetch"}}
	for name, want := range map[string]string{"": "main", "proxy": "proxy", "fetch": "fetch"} {
		if got, err := selectContainer(pod, name); err != nil || got != want {
			t.Errorf("container %q: %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := selectContainer(pod, "nothing"); err == nil || !strings.Contains(err.Error(), "main, proxy, fetch") {
		t.Errorf("an unknown container: %v", err)
	}
	pod.Annotations = map[string]string{defaultContainer: "proxy"}
	if got, err := selectContainer(pod, ""); err != nil || got != "proxy" {
		t.Errorf("the default container is %q, %v; want that of the annotation", got, err)
	}
}
