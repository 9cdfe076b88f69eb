// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadkind_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

func TestStoppedUntilRoundTrip(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	for _, until := range []time.Time{{}, time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 18, 0, 0, 0, berlin)} {
		o := newObject(t, groupKind("batch", "Job"), `{}`)
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationStoppedUntil: workloadkind.FormatStoppedUntil(until)})
		if got, stopped := workloadkind.ParseStoppedUntil(o); !stopped || !got.Equal(until) {
			t.Errorf("%s: %v, %v", until, got, stopped)
		}
	}
	if _, err := time.Parse(time.RFC3339, workloadkind.FormatStoppedUntil(time.Time{})); err != nil {
		t.Errorf("until decided is no time: %v", err)
	}
}

func TestParseStoppedUntilOfInvalidValue(t *testing.T) {
	for value, want := range map[string]bool{"": true, "tomorrow": true, "2026-13-01T00:00:00Z": true} {
		o := newObject(t, groupKind("batch", "Job"), `{}`)
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationStoppedUntil: value})
		if until, stopped := workloadkind.ParseStoppedUntil(o); stopped != want || !until.IsZero() {
			t.Errorf("%q: %v, %v", value, until, stopped)
		}
	}
	if _, stopped := workloadkind.ParseStoppedUntil(newObject(t, groupKind("batch", "Job"), `{}`)); stopped {
		t.Error("without the annotation it is stopped")
	}
}

func TestStartCommandAndDescribeStop(t *testing.T) {
	tests := []struct {
		kind         schema.GroupKind
		stops, start string
	}{
		{groupKind("apps", "Deployment"), "`spec.replicas: 0`", "kubectl scale deployments.apps/x -n ns --replicas=3"},
		{groupKind("", "ReplicationController"), "`spec.replicas: 0`", "kubectl scale replicationcontrollers/x -n ns --replicas=3"},
		{groupKind("batch", "Job"), "`spec.suspend: true`", `kubectl patch jobs.batch/x -n ns --type=merge -p '{"spec":{"suspend":false}}'`},
		{groupKind("kubeflow.org", "MPIJob"), "`spec.runPolicy.suspend: true`", `kubectl patch mpijobs.kubeflow.org/x -n ns --type=merge -p '{"spec":{"runPolicy":{"suspend":false}}}'`},
		{groupKind("kubeflow.org", "Notebook"), "annotation `kubeflow-resource-stopped`", "kubectl annotate notebooks.kubeflow.org/x -n ns kubeflow-resource-stopped-"},
		{groupKind("serving.kserve.io", "InferenceService"), "annotation `serving.kserve.io/stop: \"true\"`", "kubectl annotate inferenceservices.serving.kserve.io/x -n ns serving.kserve.io/stop-"},
		{groupKind("tekton.dev", "TaskRun"), "`spec.status: TaskRunCancelled`", ""},
		{groupKind("", "Pod"), "is deleted", ""},
		{groupKind("apps", "DaemonSet"), "is never stopped", ""},
	}
	for _, tc := range tests {
		kind, _ := workloadkind.Lookup(tc.kind)
		if got := kind.DescribeStop(); got != tc.stops {
			t.Errorf("%s is stopped by %s, want %s", tc.kind, got, tc.stops)
		}
		if got := kind.StartCommand("ns", "x", 3); got != tc.start {
			t.Errorf("%s is started by %s, want %s", tc.kind, got, tc.start)
		}
	}
	odd := workloadkind.Kind{GroupKind: groupKind("example.org", "Farm"), Resource: "farms", StopAction: workloadkind.StopAction{Method: workloadkind.StopByScaling, Path: []string{"spec", "workers", "count"}}}
	if got, want := odd.StartCommand("ns", "x", 0), `kubectl patch farms.example.org/x -n ns --type=merge -p '{"spec":{"workers":{"count":1}}}'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The command for an object knows its former replicas, that a CronJob's run cannot be started, and that Kueue starts what
// it queues.
func TestStartCommandOf(t *testing.T) {
	tests := map[string]struct {
		kind         schema.GroupKind
		object, want string
	}{
		"scaled": {
			groupKind("apps", "Deployment"), `{metadata: {name: x, namespace: ns, annotations: {sluice.dev/replicas-before: "3"}}}`,
			"kubectl scale deployments.apps/x -n ns --replicas=3",
		},
		"a run of a CronJob": {
			groupKind("batch", "Job"),
			`{metadata: {name: x, namespace: ns, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: c, controller: true}]}}`, "",
		},
		"queued": {
			groupKind("batch", "Job"), `{metadata: {name: x, namespace: ns, uid: u, labels: {kueue.x-k8s.io/queue-name: lab}}}`,
			`kubectl get workloads.kueue.x-k8s.io -n ns -l kueue.x-k8s.io/job-uid=u -o name | ` +
				`xargs kubectl patch -n ns --type=merge -p '{"spec":{"active":true}}'`,
		},
		"unknown": {groupKind("example.org", "Farm"), `{metadata: {name: x, namespace: ns}}`, ""},
	}
	for name, tc := range tests {
		if got := workloadkind.StartCommandOf(newObject(t, tc.kind, tc.object)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestPreviousReplicas(t *testing.T) {
	for value, want := range map[string]int64{"3": 3, "": 1, "0": 1, "-4": 1, "many": 1, "99999999999": 1, "9999999999999999999999": 1} {
		o := newObject(t, groupKind("apps", "Deployment"), `{}`)
		o.SetAnnotations(map[string]string{v1alpha1.AnnotationReplicasBefore: value})
		if got := workloadkind.PreviousReplicas(o); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}
