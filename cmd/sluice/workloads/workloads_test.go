// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloads

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/workloadkind"
)

// parseObjects returns the objects of a YAML stream.
func parseObjects(t *testing.T, text string) []client.Object {
	t.Helper()
	var objects []client.Object
	for part := range strings.SplitSeq(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &object.Object); err != nil {
			t.Fatalf("%v\n%s", err, part)
		}
		objects = append(objects, object)
	}
	return objects
}

// listObjects returns the workloads of a cluster with objects.
func listObjects(t *testing.T, text string) []*Workload {
	t.Helper()
	list, err := newTestReader(t, text).List(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func newTestReader(t *testing.T, text string) Reader {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithObjects(parseObjects(t, text)...).Build()
	return Reader{Client: c}
}

const labObjects = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: notebook, namespace: lab, uid: d1, annotations: {sluice.dev/created-by: anna@h2.example}}
spec:
  replicas: 1
  selector: {matchLabels: {app: notebook}}
  template:
    metadata: {labels: {app: notebook, sluice.dev/workload-type: interactive}}
    spec:
      containers: [{name: jupyter, image: "quay.io/jupyter/base-notebook:2026", resources: {limits: {nvidia.com/gpu: "1"}}}]
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: notebook-5d
  namespace: lab
  uid: r1
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: notebook, uid: d1, controller: true}]
spec: {selector: {matchLabels: {app: notebook}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: notebook-5d-x
  namespace: lab
  uid: p1
  labels: {app: notebook, sluice.dev/workload-type: interactive, sluice.dev/project: thesis}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: notebook-5d, uid: r1, controller: true}]
spec:
  nodeName: dgx-1
  containers: [{name: jupyter, image: "quay.io/jupyter/base-notebook:2026", resources: {limits: {nvidia.com/gpu: "1"}}}]
status:
  phase: Pending
  containerStatuses: [{name: jupyter, state: {waiting: {reason: ContainerCreating}}}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: lab}
spec: {selector: {app: notebook}, ports: [{port: 80, targetPort: 8888}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: lab}
spec: {selector: {app: other}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: lab}
spec:
  tls: [{hosts: [gpu.h2.example]}]
  rules: [{host: gpu.h2.example, http: {paths: [{path: /notebook, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: training, namespace: lab, uid: j1}
spec:
  template: {spec: {containers: [{name: main, image: pytorch}]}, metadata: {annotations: {gpu-fraction: "0.5"}}}
---
apiVersion: v1
kind: Event
metadata: {name: e1, namespace: lab}
involvedObject: {kind: Job, name: training, uid: j1}
reason: FailedCreate
message: "Error creating: project thesis has no quota left"
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: lab, uid: c1}
spec: {schedule: "0 3 * * *", jobTemplate: {spec: {template: {spec: {containers: [{name: main, image: pytorch}]}}}}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: nightly-1
  namespace: lab
  uid: j2
  ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: c1, controller: true}]
status: {conditions: [{type: Failed, status: "True", message: "reached its backoff limit"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: training, namespace: lab, uid: p2}
spec: {containers: [{name: main, image: debug}]}
status:
  phase: Pending
  conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/2 nodes are available"}]
`

func TestListReturnsRoots(t *testing.T) {
	type row struct{ Reference, Status, Reason, GPUs, Type, User, Project, Addresses, Nodes string }
	var got []row
	for _, w := range listObjects(t, labObjects) {
		status, reason := w.Status()
		got = append(got, row{
			w.Reference(), status, reason, w.GPUs(), string(w.Type()), w.User(), w.Project(),
			strings.Join(w.Addresses(), " "), strings.Join(w.Nodes(), " "),
		})
	}
	want := []row{
		{Reference: "CronJob/nightly", Status: StatusScheduled, Reason: "0 3 * * *"},
		{
			Reference: "Deployment/notebook", Status: "ContainerCreating", GPUs: "1", Type: "interactive", User: "anna@h2.example",
			Project: "thesis", Addresses: "https://gpu.h2.example/notebook web.lab:80", Nodes: "dgx-1",
		},
		{Reference: "Job/nightly-1", Status: StatusFailed, Reason: "reached its backoff limit"},
		{Reference: "Job/training", Status: StatusPending, Reason: "project thesis has no quota left", GPUs: "0.5"},
		{Reference: "Pod/training", Status: StatusPending, Reason: "0/2 nodes are available"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workloads differ (-want +got):\n%s", diff)
	}
}

func TestFind(t *testing.T) {
	reader := newTestReader(t, labObjects)
	tests := map[string]struct{ want, err string }{
		"notebook":                     {want: "Deployment/notebook"},
		"job/training":                 {want: "Job/training"},
		"jobs.batch/training":          {want: "Job/training"},
		"pods/training":                {want: "Pod/training"},
		"training":                     {err: "2 workloads in namespace lab are named training: name one of job/training, pod/training"},
		"notebook-5d-x":                {err: "workload notebook-5d-x not found: it is a pod of deployment/notebook"},
		"pod/notebook-5d-x":            {err: "it is a pod of deployment/notebook"},
		"notebook-5d":                  {err: "workload notebook-5d not found: it belongs to deployment/notebook"},
		"replicasets.apps/notebook-5d": {err: "it belongs to deployment/notebook"},
		"replicaset/nothing":           {err: "ReplicaSet nothing not found in namespace lab, which has"},
		"trainin":                      {err: "workload trainin not found in namespace lab, which has nightly, notebook, nightly-1, training"},
		"":                             {err: "want NAME or KIND/NAME"},
		"job/":                         {err: "want NAME or KIND/NAME"},
		"/training":                    {err: "want NAME or KIND/NAME"},
		"job/training/x":               {err: "want NAME or KIND/NAME"},
		"trainingjob/training":         {err: `kind "trainingjob": the cluster has no such kind; name the workload without it, or`},
	}
	for text, tc := range tests {
		w, err := reader.Find(t.Context(), "lab", text)
		switch {
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("Find(%q) = %v, want an error with %q", text, err, tc.err)
		case tc.err == "" && (err != nil || w.Reference() != tc.want):
			t.Errorf("Find(%q) = %v, %v; want %s", text, w, err, tc.want)
		}
	}
	if _, err := reader.Find(t.Context(), "empty", "x"); err == nil || !strings.Contains(err.Error(), "namespace empty has no workloads") {
		t.Errorf("in an empty namespace: %v", err)
	}
}

// After `sluice delete` the garbage collector deletes the parts of a workload, one after another. They are no workloads. A pod that does not end
// still holds its GPUs, and is listed.
func TestListAfterDelete(t *testing.T) {
	const replicaSet = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, namespace: lab, uid: r1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d1, controller: true}]}`
	pod := func(deletion string) string {
		return `
apiVersion: v1
kind: Pod
metadata: {name: web-1-x, namespace: lab, uid: p1, finalizers: [x], ` + deletion + `ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: r1, controller: true}]}`
	}
	const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: nightly-1, namespace: lab, uid: j2, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: c1, controller: true}]}`
	deletedAt := func(age time.Duration) string {
		return "deletionTimestamp: \"" + policytime.MachineNow().Add(-age).UTC().Format(time.RFC3339) + "\", "
	}
	for name, tc := range map[string]struct {
		objects string
		want    []string
	}{
		"the Deployment is deleted": {replicaSet + "\n---\n" + pod(""), nil},
		"its ReplicaSet, too":       {pod(""), nil},
		"the pod ends":              {pod(deletedAt(-20 * time.Second)), nil},
		"the pod does not end":      {pod(deletedAt(10 * time.Minute)), []string{"Pod/web-1-x"}},
		"a new Deployment has the name": {replicaSet + "\n---\n" + pod("") + `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: lab, uid: d2}`, []string{"Deployment/web"}},
		"a CronJob is deleted": {job, nil},
	} {
		var got []string
		for _, w := range listObjects(t, tc.objects) {
			got = append(got, w.Reference())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: workloads differ (-want +got):\n%s", name, diff)
		}
	}
}

// After a stop, the pods that are still ending are no longer counted.
func TestStoppedWorkloadHasNoPods(t *testing.T) {
	w := newWorkload(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 0}}")
	ready := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	w.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}, Spec: corev1.PodSpec{NodeName: "dgx-1"}, Status: ready}}
	status, _ := w.Status()
	if ready, all := w.ReadyPods(); status != StatusStopped || ready != 0 || all != 0 || len(w.Nodes()) != 0 {
		t.Errorf("%s with %d of %d pods on %v", status, ready, all, w.Nodes())
	}
}

func FuzzParseReference(f *testing.F) {
	for _, text := range []string{"training", "job/training", "/", "a//b", "", "a b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reference, err := ParseReference(text)
		if err == nil && (reference.Name == "" || strings.ContainsAny(reference.Name, "/ ")) {
			t.Fatalf("ParseReference(%q) = %+v", text, reference)
		}
	})
}

// newWorkload returns a workload of an object.
func newWorkload(t *testing.T, text string) *Workload {
	t.Helper()
	object := parseObjects(t, text)[0].(*unstructured.Unstructured)
	kind, _ := workloadkind.Lookup(object.GroupVersionKind().GroupKind())
	return &Workload{Object: object, Kind: kind.ForObject(object)}
}

// Each kind that can be stopped can be started by the patch, and is then as before.
func TestStopAndStartEachKind(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	reversible := 0
	for _, kind := range workloadkind.All() {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": kind.Group + "/v1", "kind": kind.Kind, "metadata": map[string]any{"name": "x", "uid": "u"},
			"spec": map[string]any{"replicas": int64(3)},
		}}
		if kind.Group == "" {
			object.SetAPIVersion("v1")
		}
		if kind.Kind == "DevWorkspace" {
			object.Object["spec"] = map[string]any{"started": true}
		}
		w := &Workload{Object: object, Kind: kind}
		changes, err := w.Stop(now, false)
		if !kind.IsReversible() {
			if err == nil {
				t.Errorf("%s: stopped without --final", kind.GroupKind)
			}
			continue
		}
		reversible++
		if err != nil || len(changes) != 1 {
			t.Errorf("%s: %d changes, %v", kind.GroupKind, len(changes), err)
			continue
		}
		mergeInto(object.Object, jsonValues(changes[0].Patch))
		if kind.RequestsPods(object) {
			t.Errorf("%s requests pods after %v", kind.GroupKind, changes[0].Patch)
		}
		if again, err := w.Stop(now, false); err != nil || again != nil {
			t.Errorf("%s: stopped twice: %v, %v", kind.GroupKind, again, err)
		}
		change, err := w.Start()
		if err != nil || change == nil {
			t.Errorf("%s: start: %v, %v", kind.GroupKind, change, err)
			continue
		}
		mergeInto(object.Object, jsonValues(change.Patch))
		if !kind.RequestsPods(object) || workloadkind.ReplicasAt(object, []string{"spec", "replicas"}) != 3 && kind.Kind != "DevWorkspace" {
			t.Errorf("%s is %v after its start", kind.GroupKind, object.Object)
		}
		if change, err := w.Start(); err != nil || change != nil {
			t.Errorf("%s: started twice: %v, %v", kind.GroupKind, change, err)
		}
	}
	if reversible < 20 {
		t.Errorf("%d kinds can be started again", reversible)
	}
}

// jsonValues returns a patch with the numbers that a decoder returns.
func jsonValues(patch map[string]any) map[string]any {
	for key, value := range patch {
		switch value := value.(type) {
		case map[string]any:
			jsonValues(value)
		case int:
			patch[key] = int64(value)
		}
	}
	return patch
}

// Kueue would resume a Job that is only suspended: its Workload is deactivated first, and starts it.
func TestStopAndStartQueuedJob(t *testing.T) {
	w := newWorkload(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: training, uid: j1, labels: {kueue.x-k8s.io/queue-name: thesis}}
spec: {suspend: false}`)
	w.Queued = parseObjects(t, `
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: job-training, uid: w1}
spec: {active: true}`)[0].(*unstructured.Unstructured)
	changes, err := w.Stop(time.Time{}, false)
	if err != nil || len(changes) != 2 || changes[0].Object != w.Queued || changes[1].Object != w.Object {
		t.Fatalf("changes %v, %v; want the Workload, then the Job", changes, err)
	}
	for _, change := range changes {
		mergeInto(change.Object.Object, change.Patch)
	}
	if status, reason := w.Status(); status != StatusStopped || reason != "stopped by a user" {
		t.Errorf("status %s (%s)", status, reason)
	}
	change, err := w.Start()
	if err != nil || change == nil || change.Object != w.Queued {
		t.Fatalf("start: %v, %v; want the Workload", change, err)
	}
	mergeInto(change.Object.Object, change.Patch)
	if status, reason := w.Status(); status != StatusQueued || reason != "waits for Kueue" {
		t.Errorf("status %s (%s), want that Kueue queues it", status, reason)
	}
}

func TestStopErrors(t *testing.T) {
	tests := map[string]string{
		"{apiVersion: v1, kind: Pod, metadata: {name: x}}":                                                                                            "sluice delete pod/x",
		"{apiVersion: argoproj.io/v1, kind: Workflow, metadata: {name: x}}":                                                                           "--final",
		"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x}}":                                                                                 "cannot be stopped",
		"{apiVersion: example.org/v1, kind: Farm, metadata: {name: x}}":                                                                               "cannot be stopped",
		`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, status: {conditions: [{type: Complete, status: "True"}]}}`:                            "has finished",
		"{apiVersion: batch/v1, kind: Job, metadata: {name: x, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: y, controller: true}]}}": "--final",
	}
	for text, want := range tests {
		if changes, err := newWorkload(t, text).Stop(time.Time{}, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want an error with %q", text, changes, err, want)
		}
	}
}

func TestStoppedBySluice(t *testing.T) {
	w := newWorkload(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: x, annotations: {sluice.dev/stopped-until: "2026-11-29T10:00:00Z"}}
spec: {suspend: true}`)
	if status, reason := w.Status(); status != StatusStopped || reason != "stopped by Sluice: its limit; may start from 2026-11-29 10:00 UTC" {
		t.Errorf("status %s (%s)", status, reason)
	}
	w.Object.SetAnnotations(map[string]string{"sluice.dev/stopped-until": "9999-12-31T23:59:59Z"})
	if _, reason := w.Status(); reason != "stopped by Sluice: its limit; until an administrator decides" {
		t.Errorf("reason %s", reason)
	}
}

func TestDescribeFailedCreate(t *testing.T) {
	tests := map[string]string{
		`Error creating: pods "x" is forbidden: exceeded quota: sluice, requested: requests.sluice.dev/gpu-milli.dgx-mig=500, used: requests.sluice.dev/gpu-milli.dgx-mig=1500, limited: requests.sluice.dev/gpu-milli.dgx-mig=2k`: "the GPU quota in node pool dgx-mig has no room for 0.5 of a GPU",
		`(combined from similar events): Error creating: pods "x" is forbidden: exceeded quota: sluice, requested: pods=1, used: pods=5, limited: pods=5`:                                                                          "exceeded quota: sluice, requested: pods=1, used: pods=5, limited: pods=5",
		`Error creating: admission webhook "pods.sluice.dev" denied the request: project thesis has expired`:                                                                                                                       "project thesis has expired",
		"Error creating: ":        "Error creating: ",
		"Internal error occurred": "Internal error occurred",
	}
	for message, want := range tests {
		if got := describeFailedCreate(message); got != want {
			t.Errorf("%s\nis described as %q, want %q", message, got, want)
		}
	}
}

func TestCopy(t *testing.T) {
	tests := map[string]struct{ object, want string }{
		"a stopped Deployment": {`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: notebook
  namespace: lab
  uid: d1
  resourceVersion: "7"
  generation: 3
  creationTimestamp: "2026-10-01T00:00:00Z"
  managedFields: [{manager: x}]
  labels: {app.kubernetes.io/instance: notebook, app.kubernetes.io/managed-by: sluice-submit, team: vision}
  annotations:
    sluice.dev/created-by: anna
    sluice.dev/stopped-until: "2026-11-29T10:00:00Z"
    sluice.dev/replicas-before: "2"
    sluice.dev/max-runtime: 6h
    deployment.kubernetes.io/revision: "4"
    kubectl.kubernetes.io/last-applied-configuration: "{}"
spec:
  replicas: 0
  selector: {matchLabels: {app: notebook}}
  template:
    metadata: {labels: {app: notebook, sluice.dev/workload-type: interactive}, annotations: {gpu-fraction: "0.5"}}
    spec: {containers: [{name: main, image: x}]}
status: {replicas: 0}`, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: other
  namespace: lab
  labels: {app.kubernetes.io/instance: other, app.kubernetes.io/managed-by: sluice-submit, team: vision}
  annotations: {sluice.dev/max-runtime: 6h}
spec:
  replicas: 2
  selector: {matchLabels: {app: other, app.kubernetes.io/instance: other}}
  template:
    metadata:
      labels: {app: other, app.kubernetes.io/instance: other, sluice.dev/workload-type: interactive}
      annotations: {gpu-fraction: "0.5"}
    spec: {containers: [{name: main, image: x}]}`},
		"a Job": {`
apiVersion: batch/v1
kind: Job
metadata: {name: training, namespace: lab, labels: {job: training}, ownerReferences: [{kind: CronJob}], finalizers: [x]}
spec:
  suspend: true
  parallelism: 4
  selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}
  template:
    metadata:
      creationTimestamp: null
      labels: {batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: training, controller-uid: u, job-name: training}
    spec: {restartPolicy: Never}
status: {failed: 1}`, `
apiVersion: batch/v1
kind: Job
metadata: {name: other, namespace: lab, labels: {job: other}}
spec:
  suspend: false
  parallelism: 4
  template: {metadata: {}, spec: {restartPolicy: Never}}`},
		"a pod": {`
apiVersion: v1
kind: Pod
metadata: {name: x, namespace: lab, labels: {sluice.dev/project: p, app: x}, annotations: {sluice.dev/decisions: "[]", sluice.dev/gpu: 500m}}
spec:
  nodeName: dgx-1
  schedulerName: kai-scheduler
  priorityClassName: sluice-train
  priority: 50
  serviceAccount: default
  serviceAccountName: default
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists}, {key: mine, operator: Exists}]
  volumes: [{name: kube-api-access-x7, projected: {}}, {name: data, emptyDir: {}}]
  containers: [{name: main, image: x, volumeMounts: [{name: kube-api-access-x7, mountPath: /t}]}]
status: {phase: Running}`, `
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: lab, labels: {app: other}, annotations: {sluice.dev/gpu: 500m}}
spec:
  serviceAccountName: default
  tolerations: [{key: mine, operator: Exists}]
  volumes: [{name: data, emptyDir: {}}]
  containers: [{name: main, image: x}]`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(t, tc.object)
			before := w.Object.DeepCopy()
			got, err := w.Copy("other")
			if err != nil {
				t.Fatal(err)
			}
			want := newWorkload(t, tc.want).Object.Object
			if diff := cmp.Diff(want, normalize(t, got.Object)); diff != "" {
				t.Errorf("the copy differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, w.Object); diff != "" {
				t.Errorf("the original changed:\n%s", diff)
			}
		})
	}
	if _, err := newWorkload(t, "{apiVersion: v1, kind: Pod, metadata: {name: x}}").Copy("x"); err == nil {
		t.Error("a workload was copied under its own name")
	}
}

// normalize returns an object as a decoder returns it.
func normalize(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	raw, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := yaml.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}
