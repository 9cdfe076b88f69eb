// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A StatefulSet that deletes its claims with it, which have no owner yet, is not deleted with the object that controls it.
// Guards "volumes are never deleted".
func TestControllerOfStatefulSetKeepsClaims(t *testing.T) {
	operator := in(&appsv1.Deployment{}, "operator", nil)
	object := func(kind string, of client.Object) metav1.PartialObjectMetadata {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: of.GetNamespace(), Name: of.GetName(), UID: of.GetUID(), OwnerReferences: of.GetOwnerReferences(),
		}}
		o.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
		return o
	}
	set := in(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete"},
	}}, "database", operator)
	objects := []metav1.PartialObjectMetadata{object("StatefulSet", set), object("Deployment", operator)}
	plan := newRemoval(metav1.Time{}, objects, []appsv1.StatefulSet{*set}, nil)
	if len(plan.deleted) > 0 || len(plan.stopped) != 1 || plan.stopped[0].Name != "operator" {
		t.Errorf("deleted %v, stopped %v", plan.deleted, plan.stopped)
	}
}

// No workload of a member survives the deletion in a namespace that stays: by a reference to an object that stays, which
// any user can write, by a finalizer, or as the run of a CronJob that is only stopped. Guards invariant 4.
func TestWorkloadsDoNotSurviveDeletion(t *testing.T) {
	older := func(object client.Object) client.Object {
		object.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-2 * time.Hour)))
		return object
	}
	refers := func(to client.Object, apiVersion, kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: to.GetName(), UID: to.GetUID()}}
	}
	synctest.Test(t, func(t *testing.T) {
		account := in(&corev1.ServiceAccount{}, "older", nil)
		toAccount, toItself := in(&appsv1.Deployment{}, "to-account", nil), in(&appsv1.Deployment{}, "to-itself", nil)
		toAccount.OwnerReferences, toItself.OwnerReferences = refers(account, "v1", "ServiceAccount"), refers(toItself, "apps/v1", "Deployment")
		toFarm := in(&appsv1.Deployment{}, "to-farm", nil)
		toFarm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Farm", Name: "farm", UID: "farm"}}
		held := in(&appsv1.Deployment{}, "held", nil)
		now := metav1.Now()
		held.Finalizers, held.DeletionTimestamp = []string{"example.org/hold"}, &now
		heldSet := in(&appsv1.ReplicaSet{}, "held-1", held)
		nightly := in(&batchv1.CronJob{}, "nightly", nil)
		nightly.Finalizers = []string{"example.org/hold"}
		oldNightly := in(&batchv1.CronJob{}, "older", nil)
		oldWeb := in(&appsv1.Deployment{}, "older", nil)
		c := newDeletedCluster(t, fakePods{}, newClaim("data"), older(account), toAccount, toFarm, toItself,
			held, heldSet, in(&corev1.Pod{}, "held-1-a", heldSet), nightly, in(&batchv1.Job{}, "nightly-1", nightly),
			older(oldNightly), in(&batchv1.Job{}, "older-1", oldNightly), older(oldWeb), in(&appsv1.ReplicaSet{}, "older-1", oldWeb))
		if !c.reconcile() {
			t.Fatal("the project stays")
		}
		c.collectGarbage()
		want := []string{
			"CronJob nightly", "CronJob older", "Deployment held", "Deployment older", "Job older-1", "PersistentVolumeClaim data",
			"ReplicaSet older-1", "ServiceAccount older",
		}
		if diff := cmp.Diff(want, c.remaining()); diff != "" {
			t.Errorf("remaining (-want +got):\n%s", diff)
		}
	})
}
