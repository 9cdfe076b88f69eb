// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/policies/input"
	"sluice.dev/policies/merge"
	"sluice.dev/policies/merge/schema"
)

var testProject = input.Project{
	Name: "thesis", Namespace: "thesis", Department: "students", Phase: v1alpha1.ProjectActive,
	Owners: []string{"Anna Beispiel"},
	Labels: map[string]string{}, Annotations: map[string]string{},
	Limits: map[v1alpha1.WorkloadType]input.Limits{
		v1alpha1.WorkloadTrain:       {MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600},
		v1alpha1.WorkloadInteractive: {MaxRuntime: "8h", MaxRuntimeSeconds: 8 * 3600},
		v1alpha1.WorkloadInference:   {},
	},
	Activity: v1alpha1.ActivityTerms{}.String(),
}

// testPool has two GPUs for the project, one of them guaranteed.
func testPool(name string, sharing v1alpha1.Sharing, models ...input.GPUModel) input.NodePool {
	return input.NodePool{
		Name: name, Scheduler: v1alpha1.SchedulerKube, Sharing: sharing, Compute: v1alpha1.ComputeFair,
		Burst: v1alpha1.BurstRefuse, DriverReservePercent: 3,
		NodeSelector:  map[string]string{"pool": name},
		Tolerations:   []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		QuotaResource: v1alpha1.ResourceGPUMilliFor(name), GuaranteedResource: v1alpha1.GuaranteedMilli(v1alpha1.ResourceGPUMilliFor(name)),
		QuotaApplied: true, Guaranteed: 1000, Limit: 2000, Weight: 1,
		Products: models,
	}
}

// kueuePool returns a copy of a pool that Kueue serves.
func kueuePool(name string, as input.NodePool) input.NodePool {
	p := testPool(name, as.Sharing, as.Products...)
	p.Scheduler, p.QuotaResource = v1alpha1.SchedulerKueue, v1alpha1.ResourceGPUMilli
	p.GPUs = 8
	return p
}

func migProfile(name v1alpha1.MIGProfile, gb int64, price workload.Milli) input.MIGProfile {
	return input.MIGProfile{Name: name, Resource: v1alpha1.ResourceMIG(name), Compute: int64(name[0] - '0'), MemoryMiB: gb * 1024, QuotaCharge: price, Plain: !strings.Contains(string(name), "+")}
}

var (
	wholeGPUPool = testPool("whole", v1alpha1.SharingNone, input.GPUModel{Name: "H100", MemoryMiB: 81559})
	migPool      = testPool("mig", v1alpha1.SharingMIG, input.GPUModel{Name: "A100", MemoryMiB: 40960, Profiles: []input.MIGProfile{
		migProfile("1g.5gb", 5, 125), migProfile("1g.5gb+me", 5, 125), migProfile("2g.10gb", 10, 250), migProfile("3g.20gb", 20, 500), migProfile("7g.40gb", 40, 1000),
	}})
	kueuePoolA     = kueuePool("queue", wholeGPUPool)
	kueuePoolB     = kueuePool("other", wholeGPUPool)
	timeSlicedPool = testPool("taken", v1alpha1.SharingTimeSlicing, input.GPUModel{Name: "T4", MemoryMiB: 15360, Replicas: 4, ReplicaResource: "nvidia.com/gpu.shared"})
	mpsPool        = testPool("named", v1alpha1.SharingMPS, input.GPUModel{Name: "L4", MemoryMiB: 24000, Replicas: 3, ReplicaResource: "nvidia.com/gpu"})
)

// admissionResult is the result of the policies for one pod.
type admissionResult struct {
	pod      map[string]any
	outcome  engine.Outcome
	warnings []string
	patch    string
	// changedPaths are the paths that each policy changed.
	changedPaths map[string][]string
	// applyError is why the changes cannot be applied; empty if they were.
	applyError string
}

// rejection returns why the pod is refused; empty if it is admitted.
func (a admissionResult) rejection() string { return a.denials() + a.applyError }

// admitPod evaluates a pod and applies the changes of the policies.
func admitPod(t *testing.T, set *engine.Set, project input.Project, pools []input.NodePool, pod map[string]any) admissionResult {
	t.Helper()
	request, err := workload.ParsePod(toPod(t, pod))
	if err != nil {
		t.Fatalf("the pod is malformed: %v", err)
	}
	in := engine.Input{
		Subject: engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod", Department: project.Department, Project: project.Name},
		Review:  newDocument(t, map[string]any{"operation": "CREATE", "userInfo": map[string]any{"username": "anna"}}),
		Object:  newDocument(t, pod), Workload: newDocument(t, request), Project: newDocument(t, project), NodePools: newDocument(t, pools),
		Now: time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC),
	}
	if request.Type == "" {
		if request.Type, err = set.WorkloadType(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		in.Workload = newDocument(t, request)
	}
	outcome, err := set.Evaluate(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range outcome.Failures {
		t.Errorf("%s failed: %v", failure.Policy, failure.Err)
	}
	a := admissionResult{pod: pod, outcome: outcome}
	if len(outcome.Denials) > 0 {
		return a
	}
	merged, err := merge.Apply(pod, outcome.Changes, schema.ClusterDefaults{})
	if err != nil {
		a.applyError = err.Error()
		return a
	}
	patch, err := merged.Patch()
	if err != nil {
		t.Fatal(err)
	}
	a.pod, a.patch, a.changedPaths = merged.Object, string(patch), merged.ChangedPaths
	for _, warning := range outcome.Warnings {
		a.warnings = append(a.warnings, warning.Message)
	}
	for _, warning := range merged.Warnings {
		a.warnings = append(a.warnings, warning.String())
	}
	return a
}

// denials returns the messages for the pod's author, with the names of the policies.
func (a admissionResult) denials() string {
	var all []string
	for _, denial := range a.outcome.Denials {
		text := denial.Policy + ": " + denial.Message
		if denial.Fix != "" {
			text += " (" + denial.Fix + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

// summary returns the changed pod in lines.
func (a admissionResult) summary(t *testing.T) string {
	t.Helper()
	pod := toPod(t, a.pod)
	var lines []string
	say := func(what, value string) {
		if value != "" {
			lines = append(lines, what+" "+value)
		}
	}
	say("type", pod.Labels[v1alpha1.LabelWorkloadType])
	say("pool", pod.Labels[v1alpha1.LabelNodePool])
	say("class", pod.Spec.PriorityClassName)
	say("limit", pod.Annotations[v1alpha1.AnnotationTimeLimit])
	hasGPU := pod.Spec.PriorityClassName != v1alpha1.PriorityClassCPU
	if active, found := pod.Annotations[v1alpha1.AnnotationActive]; found != hasGPU || found && active != testProject.Activity {
		t.Errorf("the pod's activity is %q, want %q on pods with GPUs only", active, testProject.Activity)
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		say("grace", strconv.FormatInt(*grace, 10))
	}
	if affinity := pod.Spec.Affinity; affinity != nil {
		say("nodes", fmt.Sprint(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms))
	}
	// The pool's toleration alone is left out.
	if own := pod.Spec.Tolerations; len(own) > 1 {
		for _, toleration := range own {
			lines = append(lines, "tolerates "+toleration.Key)
		}
	}
	for _, container := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		var words []string
		for name, quantity := range container.Resources.Limits {
			// The API server defaults an absent request to the limit.
			if request, ok := container.Resources.Requests[name]; ok && request.Cmp(quantity) != 0 {
				t.Errorf("%s: the request of %s is %s, the limit %s", container.Name, name, &request, &quantity)
			}
			words = append(words, fmt.Sprintf("%s=%s", name, &quantity))
		}
		for _, variable := range container.Env {
			words = append(words, variable.Name+"="+variable.Value)
		}
		slices.Sort(words)
		say(container.Name, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

func newDocument(t *testing.T, value any) document.Document {
	t.Helper()
	d, err := document.FromGo(value)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func toPod(t *testing.T, object map[string]any) *corev1.Pod {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		t.Fatal(err)
	}
	return &pod
}

// decodeYAML decodes a pod from YAML.
func decodeYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}
