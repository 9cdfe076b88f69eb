// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification/mail"
)

// labLists are the kinds that the namespace of these tests has.
func labLists() []client.ObjectList {
	return []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &appsv1.StatefulSetList{}, &batchv1.CronJobList{}, &batchv1.JobList{},
		&corev1.PodList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ResourceQuotaList{}, &corev1.ServiceAccountList{},
		&rbacv1.RoleBindingList{},
	}
}

// remaining returns the kinds and names of what the namespace has.
func (c *deletedCluster) remaining() (names []string) {
	c.Helper()
	for _, list := range labLists() {
		kind := fmt.Sprintf("%T", list)
		kind = kind[len("*v1.") : len(kind)-len("List")]
		for _, name := range c.names(list) {
			names = append(names, kind+" "+name)
		}
	}
	slices.Sort(names)
	return names
}

// collectGarbage is Kubernetes' garbage collector: it deletes what has no owner any more.
func (c *deletedCluster) collectGarbage() {
	c.Helper()
	for again := true; again; {
		again = false
		exists, owned := map[types.UID]bool{}, []client.Object{}
		for _, list := range labLists() {
			if err := c.List(c.Context(), list, client.InNamespace("lab")); err != nil {
				c.Fatal(err)
			}
			_ = meta.EachListItem(list, func(item runtime.Object) error {
				object := item.(client.Object)
				exists[object.GetUID()] = true
				if len(object.GetOwnerReferences()) > 0 {
					owned = append(owned, object)
				}
				return nil
			})
		}
		for _, object := range owned {
			if slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == "Farm" || exists[o.UID] }) {
				continue
			}
			if _, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
				c.Fatalf("volume claim %s is lost with its owner", object.GetName())
			}
			if err := c.Delete(c.Context(), object); err != nil {
				c.Fatal(err)
			}
			again = true
		}
	}
}

// in returns the object as one of the namespace with the UID and name, and an owner if it is not nil.
func in[T client.Object](object T, name string, owner client.Object) T {
	object.SetNamespace("lab")
	object.SetName(name)
	object.SetUID(types.UID(fmt.Sprintf("%T-%s", object, name)))
	object.SetCreationTimestamp(metav1.Now())
	if owner != nil {
		object.SetOwnerReferences([]metav1.OwnerReference{ownerOf(owner)})
	}
	return object
}

func ownerOf(owner client.Object) metav1.OwnerReference {
	reference := metav1.OwnerReference{Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true)}
	switch owner.(type) {
	case *corev1.Pod:
		reference.APIVersion, reference.Kind = "v1", "Pod"
	case *appsv1.Deployment:
		reference.APIVersion, reference.Kind = "apps/v1", "Deployment"
	case *appsv1.ReplicaSet:
		reference.APIVersion, reference.Kind = "apps/v1", "ReplicaSet"
	case *appsv1.StatefulSet:
		reference.APIVersion, reference.Kind = "apps/v1", "StatefulSet"
	case *batchv1.CronJob:
		reference.APIVersion, reference.Kind = "batch/v1", "CronJob"
	case *batchv1.Job:
		reference.APIVersion, reference.Kind = "batch/v1", "Job"
	}
	return reference
}

// newLab returns workloads of every relation to volume claims, and rights.
func newLab() []client.Object {
	older := func(object client.Object) client.Object {
		object.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-2 * time.Hour)))
		return object
	}
	web := in(&appsv1.Deployment{}, "web", nil)
	webSet := in(&appsv1.ReplicaSet{}, "web-1", web)
	scratch := in(&appsv1.Deployment{}, "scratch", nil)
	scratchSet := in(&appsv1.ReplicaSet{}, "scratch-1", scratch)
	scratchPod := in(&corev1.Pod{}, "scratch-1-a", scratchSet)
	nightly := in(&batchv1.CronJob{}, "nightly", nil)
	database := in(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
		Replicas:                             ptr.To[int32](2),
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Delete"},
	}}, "database", nil)
	fresh := in(database.DeepCopy(), "fresh", nil) // its claims have no owner yet
	export := in(&batchv1.Job{}, "export", nil)
	operated := in(&appsv1.Deployment{}, "operated", nil)
	operated.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: "Farm", Name: "farm", UID: "farm", Controller: ptr.To(true)}}
	finalized := in(&batchv1.Job{}, "finalized", nil)
	finalized.Finalizers = []string{"example.org/clean-up"}
	return []client.Object{
		web, webSet, in(&corev1.Pod{}, "web-1-a", webSet), scratch, scratchSet, scratchPod,
		nightly, in(&batchv1.Job{}, "nightly-1", nightly), in(&appsv1.StatefulSet{}, "cache", nil), database, fresh, export, operated, finalized,
		in(&corev1.Pod{}, "shell", nil), older(in(&appsv1.Deployment{}, "older", nil)),
		newClaim("data"), newClaim("data-cache-0"), newClaim("data-database-0", ownerOf(database)), newClaim("data-fresh-0"),
		newClaim("results", ownerOf(export)), newClaim("scratch", ownerOf(scratchPod)),
		in(&corev1.ServiceAccount{}, "default", nil), older(in(&corev1.ServiceAccount{}, "older", nil)),
		in(&rbacv1.RoleBinding{}, "mine", nil), older(in(&rbacv1.RoleBinding{}, "older", nil)),
	}
}

// The lists of what stays.
var (
	claimsOfLab = []string{
		"PersistentVolumeClaim data", "PersistentVolumeClaim data-cache-0", "PersistentVolumeClaim data-database-0",
		"PersistentVolumeClaim data-fresh-0", "PersistentVolumeClaim results", "PersistentVolumeClaim scratch",
	}
	remainingLab = slices.Sorted(slices.Values(append([]string{
		"Deployment older", "RoleBinding older", "ServiceAccount older", // than the project
		"StatefulSet database", "StatefulSet fresh", "Job export", "Job finalized", // stopped
		"Deployment scratch", "ReplicaSet scratch-1", "Pod scratch-1-a", "Deployment operated", // run on
	}, claimsOfLab...)))
)

// requireGoverned fails the test if a volume claim is gone, or the namespace has neither a project nor the mark by which
// the API server refuses pods with GPUs.
func (c *deletedCluster) requireGoverned() {
	c.Helper()
	var namespace corev1.Namespace
	if err := c.Get(c.Context(), client.ObjectKey{Name: "lab"}, &namespace); err != nil {
		c.Fatal(err)
	}
	if (namespace.Labels[v1alpha1.LabelProject] == "") == (namespace.Labels[v1alpha1.LabelFormerProject] == "") {
		c.Fatalf("the namespace has the labels %v", namespace.Labels)
	}
	var claims []string
	for _, name := range c.names(&corev1.PersistentVolumeClaimList{}) {
		claims = append(claims, "PersistentVolumeClaim "+name)
	}
	if diff := cmp.Diff(claimsOfLab, claims); diff != "" {
		c.Fatalf("volume claims (-want +got):\n%s", diff)
	}
}

// However often lifecycle is killed, at any of its calls and after any, the same remains of a namespace that stays, its
// volumes are never lost, and it is never ungoverned. Guards invariants 3, 4 and 8.
func TestDeletionSurvivesCrashAtEveryCall(t *testing.T) {
	writes := []bool{false} // of each call without a crash
	for fails := 0; fails < len(writes); fails++ {
		for _, lost := range []bool{false, true} {
			if lost && !writes[fails] {
				continue // a read whose answer is lost is one that failed
			}
			synctest.Test(t, func(t *testing.T) {
				c := newDeletedCluster(t, fakePods{}, newLab()...)
				c.fails, c.lost = fails, lost
				c.onCall = func(verb string, _ runtime.Object) {
					write := verb != "get" && verb != "list"
					if write {
						c.requireGoverned()
					}
					if fails == 0 {
						writes = append(writes, write)
					}
				}
				if !c.reconcile() {
					t.Fatalf("killed at call %d: the project stays", fails)
				}
				c.collectGarbage()
				c.requireGoverned()
				if diff := cmp.Diff(remainingLab, c.remaining()); diff != "" {
					t.Fatalf("killed at call %d, lost %v: the namespace has (-want +got):\n%s", fails, lost, diff)
				}
				c.requireRecord(mail.CauseVolumeClaims)
				var notices v1alpha1.NoticeList
				if err := c.List(t.Context(), &notices); err != nil || len(notices.Items) != 1 {
					t.Fatalf("%d notices, %v", len(notices.Items), err)
				}
				inputs := notices.Items[0].Spec.Inputs
				if removed, kept := inputs[mail.InputRemoved], inputs[mail.InputKept]; removed != "CronJob=1,Deployment=1,Job=1,Pod=1,StatefulSet=1" ||
					kept != "Namespace=1,PersistentVolumeClaim=6,Deployment=2,Job=2,StatefulSet=2" {
					t.Errorf("the mail says removed %s, kept %s", removed, kept)
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}

// requireRecord checks the record of the former project on the namespace.
func (c *deletedCluster) requireRecord(cause string) {
	c.Helper()
	var namespace corev1.Namespace
	if err := c.Get(c.Context(), client.ObjectKey{Name: "lab"}, &namespace); err != nil {
		c.Fatal(err)
	}
	var record formerProject
	if err := json.Unmarshal([]byte(namespace.Annotations[v1alpha1.AnnotationFormerProject]), &record); err != nil {
		c.Fatal(err)
	}
	record.DeletedAt = time.Time{}
	want := formerProject{Project: "thesis", Department: "students", Cause: cause, VolumeClaims: 6}
	if diff := cmp.Diff(want, record); diff != "" {
		c.Errorf("record (-want +got):\n%s", diff)
	}
}
