// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

func TestMissingPods(t *testing.T) {
	n := func(i int32) *int32 { return &i }
	job := func(spec batchv1.JobSpec, status batchv1.JobStatus) client.Object {
		return &batchv1.Job{Spec: spec, Status: status}
	}
	over := []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}
	tests := map[string]struct {
		object client.Object
		want   int32
	}{
		"a ReplicaSet":            {&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: n(3)}, Status: appsv1.ReplicaSetStatus{Replicas: 1}}, 2},
		"that has too many":       {&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: n(0)}, Status: appsv1.ReplicaSetStatus{Replicas: 1}}, 0},
		"a StatefulSet":           {&appsv1.StatefulSet{}, 1},
		"a ReplicationController": {&corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Replicas: n(2)}}, 2},
		"a Job":                   {job(batchv1.JobSpec{}, batchv1.JobStatus{}), 1},
		"that runs":               {job(batchv1.JobSpec{}, batchv1.JobStatus{Active: 1}), 0},
		"that needs few more": {
			job(batchv1.JobSpec{Parallelism: n(4), Completions: n(10)}, batchv1.JobStatus{Succeeded: 7, Active: 1}), 2,
		},
		"that is suspended": {job(batchv1.JobSpec{Suspend: new(true)}, batchv1.JobStatus{}), 0},
		"that failed":       {job(batchv1.JobSpec{}, batchv1.JobStatus{Conditions: over}), 0},
		"a work queue":      {job(batchv1.JobSpec{Parallelism: n(3)}, batchv1.JobStatus{Active: 1}), 2},
		"that is nearly empty": {
			job(batchv1.JobSpec{Parallelism: n(3)}, batchv1.JobStatus{Active: 1, Succeeded: 1}), 0,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			missing := missingReplicas
			if _, ok := tc.object.(*batchv1.Job); ok {
				missing = missingJobPods
			}
			if got := missing(tc.object, 0); got != tc.want {
				t.Errorf("missing = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestObserveWorkload(t *testing.T) {
	failing := appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noonPlus(-60))}
	set := func(change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "uid", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true),
		}}}}
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{failing}
		for _, c := range change {
			c(rs)
		}
		return rs
	}
	silent := func(rs *appsv1.ReplicaSet) { rs.Status.Conditions = nil }
	retried := func(text string) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Annotations = map[string]string{v1alpha1.AnnotationRetriedAt: text} }
	}
	tests := map[string]struct {
		object  *appsv1.ReplicaSet
		now     int
		waits   bool
		since   time.Time
		retried time.Time
	}{
		"reports its failure":   {set(), 100, true, noonPlus(-60), time.Time{}},
		"not reported yet":      {set(silent), 5, true, noonPlus(0), time.Time{}},
		"no longer reported":    {set(silent), 100, false, time.Time{}, time.Time{}},
		"was retried":           {set(retried("2026-05-01T12:00:30.5Z")), 100, true, noonPlus(-60), noonPlus(30).Add(500 * time.Millisecond)},
		"retried by a forger":   {set(retried("2099-05-01T12:00:30Z")), 100, true, noonPlus(-60), time.Time{}},
		"retried at no time":    {set(retried("now")), 100, true, noonPlus(-60), time.Time{}},
		"another of that name":  {set(func(rs *appsv1.ReplicaSet) { rs.UID = "other" }), 100, false, time.Time{}, time.Time{}},
		"is going":              {set(func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = &metav1.Time{Time: noon} }), 100, false, time.Time{}, time.Time{}},
		"was scaled down":       {set(func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = new(int32) }), 100, false, time.Time{}, time.Time{}},
		"has its pods meantime": {set(func(rs *appsv1.ReplicaSet) { rs.Status.Replicas = 1 }), 100, false, time.Time{}, time.Time{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			refused := RejectedObject{Kind: "ReplicaSet", Namespace: "ns", Name: "web-1", UID: "uid", First: noonPlus(0), Last: noonPlus(1)}
			got, waits := ObserveWorkload(refused, tc.object, 0, noonPlus(tc.now))
			if waits != tc.waits {
				t.Fatalf("waits = %v", waits)
			}
			if !waits {
				return
			}
			if !got.Since.Equal(tc.since) || !got.RetriedAt.Equal(tc.retried) || got.MissingPods != 1 {
				t.Errorf("workload = %+v", got)
			}
			if want := (corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: "web", UID: "deployment"}); got.Root != want {
				t.Errorf("root = %+v", got.Root)
			}
		})
	}
}

// A CronJob is known by its Jobs, a Job without an owner by itself.
func TestRootOfJob(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "CronJob", Name: "nightly", Controller: new(true)}}}}
	want := corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "ns", Name: "nightly-1", UID: "uid"}
	if got := rootOfObject(RejectedObject{Kind: "Job", Namespace: "ns", Name: "nightly-1", UID: "uid"}, job); got != want {
		t.Errorf("root = %+v", got)
	}
}
