// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is one whose controller makes pods, says when it cannot, and tries again
// at once when the object changes (a Job's a second later), whatever its
// back-off. A DaemonSet's pods have no GPUs.
type kind struct {
	schema.GroupVersionKind
	object func() client.Object
	// missing is how many pods the object still wants.
	missing func(client.Object) int32
}

// kinds are all of them, by their names in events.
var kinds = map[string]kind{
	"Job":                   {batchv1.SchemeGroupVersion.WithKind("Job"), func() client.Object { return &batchv1.Job{} }, missingOfJob},
	"ReplicaSet":            {appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), func() client.Object { return &appsv1.ReplicaSet{} }, missingOfSet},
	"ReplicationController": {corev1.SchemeGroupVersion.WithKind("ReplicationController"), func() client.Object { return &corev1.ReplicationController{} }, missingOfSet},
	"StatefulSet":           {appsv1.SchemeGroupVersion.WithKind("StatefulSet"), func() client.Object { return &appsv1.StatefulSet{} }, missingOfSet},
}

func missingOfSet(object client.Object) int32 {
	var wanted *int32
	var there int32
	switch set := object.(type) {
	case *appsv1.ReplicaSet:
		wanted, there = set.Spec.Replicas, set.Status.Replicas
	case *appsv1.StatefulSet:
		wanted, there = set.Spec.Replicas, set.Status.Replicas
	case *corev1.ReplicationController:
		wanted, there = set.Spec.Replicas, set.Status.Replicas
	}
	return max(0, or(wanted, 1)-there)
}

// missingOfJob is as the Job controller counts: what may run at once, as far as
// it is needed, less what runs.
func missingOfJob(object client.Object) int32 {
	job, ok := object.(*batchv1.Job)
	if !ok || job.Spec.Suspend != nil && *job.Spec.Suspend || finished(job) {
		return 0
	}
	wanted := or(job.Spec.Parallelism, 1)
	switch {
	case job.Spec.Completions != nil:
		wanted = min(wanted, *job.Spec.Completions-job.Status.Succeeded)
	case job.Status.Succeeded > 0:
		return 0 // of a work queue no new pods are made once one succeeded
	}
	return max(0, wanted-job.Status.Active)
}

func finished(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		over := c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed ||
			c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget
		if over && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func or(value *int32, otherwise int32) int32 {
	if value == nil {
		return otherwise
	}
	return *value
}

// failing is since when a ReplicaSet says that it cannot make its pods; false
// where it does not say so. Of the other kinds only events tell.
func failing(object client.Object) (since time.Time, says, known bool) {
	set, ok := object.(*appsv1.ReplicaSet)
	if !ok {
		return time.Time{}, false, false
	}
	for _, c := range set.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, true, true
		}
	}
	return time.Time{}, false, true
}
