// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

// Workload is a workload whose pods were rejected.
type Workload struct {
	RejectedObject
	// Root is the Deployment of a ReplicaSet, else the object itself.
	Root corev1.ObjectReference
	// MissingPods is the number of missing pods, at least 1.
	MissingPods int32
	// Since is when the workload became pending.
	Since time.Time
	// RetriedAt is the time of the last triggered retry. It is zero if there was none.
	RetriedAt time.Time
}

// PendingCharge returns the GPU quota that the missing pods need.
func (w *Workload) PendingCharge() workload.Milli { return workload.Milli(w.MissingPods) * w.Charge }

// statusSettleDelay is the time after a rejection in which the object's status may not include it yet.
const statusSettleDelay = 10 * time.Second

// ObserveWorkload returns the pending workload of an object, which has at least existingPods pods:
// its status may not count the latest yet. It returns false if the object is not pending.
func ObserveWorkload(rejected RejectedObject, object client.Object, existingPods int32, now time.Time) (Workload, bool) {
	w := Workload{RejectedObject: rejected, Since: rejected.First, Root: rootOfObject(rejected, object)}
	if object.GetUID() != rejected.UID || !object.GetDeletionTimestamp().IsZero() {
		return w, false
	}
	if w.MissingPods = workloadKinds[rejected.Kind].missingPods(object, existingPods); w.MissingPods == 0 {
		return w, false
	}
	if since, reported, known := replicaFailureSince(object); reported {
		w.Since = since
	} else if known && now.Sub(rejected.Last) > statusSettleDelay {
		return w, false
	}
	// An invalid value or a future time was not written by Sluice.
	if retried, err := time.Parse(time.RFC3339Nano, object.GetAnnotations()[v1alpha1.AnnotationRetriedAt]); err == nil && !retried.After(now) {
		w.RetriedAt = retried
	}
	return w, true
}

// rootOfObject returns the object's controller. A Job of a CronJob is its own root.
func rootOfObject(rejected RejectedObject, object client.Object) corev1.ObjectReference {
	root := corev1.ObjectReference{
		APIVersion: workloadKinds[rejected.Kind].GroupVersion().String(), Kind: rejected.Kind,
		Namespace: rejected.Namespace, Name: rejected.Name, UID: rejected.UID,
	}
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind != "CronJob" {
		root.APIVersion, root.Kind, root.Name, root.UID = owner.APIVersion, owner.Kind, owner.Name, owner.UID
	}
	return root
}

// compareAge sorts the oldest first.
func compareAge(a, b Workload) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Root.Kind, b.Root.Kind),
		cmp.Compare(a.Root.Name, b.Root.Name), cmp.Compare(a.Name, b.Name))
}

// pendingTimes keeps since when workloads are pending, by UID. The API server may delete events
// earlier; without it, workloads would become younger and events would be repeated.
type pendingTimes map[types.UID]time.Time

// workloadKind is a kind whose controller creates pods, reports rejections as events, and retries
// immediately when the object changes (a Job one second later). DaemonSets are left out: their
// pods have no GPUs.
type workloadKind struct {
	schema.GroupVersionKind
	newObject func() client.Object
	// missingPods returns the number of pods that the object, which has at least existing ones,
	// still has to create.
	missingPods func(object client.Object, existing int32) int32
}

// workloadKinds lists these kinds by the name in events.
var workloadKinds = map[string]workloadKind{
	"Job": {
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), missingPods: missingJobPods,
		newObject: func() client.Object { return &batchv1.Job{} },
	},
	"ReplicaSet": {
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), missingPods: missingReplicas,
		newObject: func() client.Object { return &appsv1.ReplicaSet{} },
	},
	"ReplicationController": {
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ReplicationController"), missingPods: missingReplicas,
		newObject: func() client.Object { return &corev1.ReplicationController{} },
	},
	"StatefulSet": {
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), missingPods: missingReplicas,
		newObject: func() client.Object { return &appsv1.StatefulSet{} },
	},
}

func missingReplicas(object client.Object, existing int32) int32 {
	var desired *int32
	var counted int32
	switch set := object.(type) {
	case *appsv1.ReplicaSet:
		desired, counted = set.Spec.Replicas, set.Status.Replicas
	case *appsv1.StatefulSet:
		desired, counted = set.Spec.Replicas, set.Status.Replicas
	case *corev1.ReplicationController:
		desired, counted = set.Spec.Replicas, set.Status.Replicas
	}
	return max(0, valueOr(desired, 1)-max(counted, existing))
}

// missingJobPods counts like the Job controller: the parallelism, limited by the missing
// completions, minus the active pods.
func missingJobPods(object client.Object, existing int32) int32 {
	job, ok := object.(*batchv1.Job)
	if !ok || job.Spec.Suspend != nil && *job.Spec.Suspend || isJobFinished(job) {
		return 0
	}
	desired := valueOr(job.Spec.Parallelism, 1)
	switch {
	case job.Spec.Completions != nil:
		desired = min(desired, *job.Spec.Completions-job.Status.Succeeded)
	case job.Status.Succeeded > 0:
		return 0 // a Job with a work queue creates no pods after one succeeded
	}
	return max(0, desired-max(job.Status.Active, existing))
}

func isJobFinished(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		over := c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed ||
			c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget
		if over && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func valueOr(value *int32, otherwise int32) int32 {
	if value == nil {
		return otherwise
	}
	return *value
}

// replicaFailureSince returns since when a ReplicaSet reports that it cannot create pods. known
// is false for the other kinds, which do not report it in their status.
func replicaFailureSince(object client.Object) (since time.Time, reported, known bool) {
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
