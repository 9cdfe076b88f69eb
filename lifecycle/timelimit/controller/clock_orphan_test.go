// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/lifecycle/podcache"
)

// Protects the time limit and invariant 12: a pod whose Job was deleted without it continues the Job's
// time, for the user who created the Job, and is evicted at the limit. So it is after a restart.
func TestOrphanedPodContinuesTimeOfItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(40 * time.Hour)
		pod := c.orphan(jobKind, "work")
		c.advance(time.Hour)
		c.expectRan(podKind, pod.Name, 41*time.Hour)
		if s := c.clockStatus(podKind, pod.Name); s.CreatedBy != alice {
			t.Errorf("its time counts for %q", s.CreatedBy)
		}
		c.restart()
		c.advance(5 * time.Hour)
		c.expectRan(podKind, pod.Name, 46*time.Hour)
		c.advance(4 * time.Hour)
		if s := c.clockStatus(podKind, pod.Name); s.Stopped == nil {
			t.Errorf("it runs on at its limit: %+v", s)
		}
	})
}

// Protects the time limit: a Job that replaces the orphaned pod continues its time.
func TestCopyOfOrphanedPodContinuesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(30 * time.Hour)
		pod := c.orphan(jobKind, "work")
		c.advance(time.Hour)
		c.delete(podKind, pod.Name)
		c.create(jobKind, "copy", alice)
		c.advance(time.Hour)
		c.expectRan(jobKind, "copy", 32*time.Hour)
	})
}

// A pod that its owner releases when it is deleted itself continues no time, and neither does another
// user's workload that the owner's name is given to.
func TestTerminatingPodPassesNoTimeOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.create(jobKind, "work", alice)
		c.advance(30 * time.Hour)
		pod := c.pods["root-1-pod"]
		c.terminate(pod.UID)
		released := *pod
		released.Controller = podcache.Owner{}
		c.pods[pod.UID] = &released
		c.workloads.handlePodChange(podcache.Change{Before: pod, After: &released})
		c.advance(0)
		if s := c.clockStatus(jobKind, "work"); s.Successor != "" {
			t.Errorf("its Job passed its time on to %s", s.Successor)
		}
	})
}

// Protects the time limit: a Deployment that is deleted without its ReplicaSet and created again adopts it, and continues
// the time of its pods.
func TestDeploymentThatAdoptsItsReplicaSetContinuesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTeamCluster(t)
		c.mapper.Add(deploymentKind, meta.RESTScopeNamespace)
		c.mapper.Add(replicaSetKind, meta.RESTScopeNamespace)
		c.createObject(deploymentKind, "web", alice)
		c.create(replicaSetKind, "web-1", "system:serviceaccount:kube-system:deployment-controller", c.ownedBy("web"))
		c.advance(30 * time.Hour)
		c.expectRan(deploymentKind, "web", 30*time.Hour)
		replicaSet := c.getObject(replicaSetKind, "web-1")
		c.replacePod(replicaSet)
		c.advance(5 * time.Hour)
		c.expectRan(deploymentKind, "web", 35*time.Hour)

		ran := 35 * time.Hour
		for range 2 {
			if err := c.rawClient.Delete(t.Context(), c.getObject(deploymentKind, "web")); err != nil {
				t.Fatal(err)
			}
			replicaSet.SetOwnerReferences(nil)
			if err := c.rawClient.Update(t.Context(), replicaSet); err != nil {
				t.Fatal(err)
			}
			c.advance(time.Hour)
			c.expectRan(replicaSetKind, "web-1", ran+time.Hour)

			c.createObject(deploymentKind, "web", alice)
			c.ownedBy("web")(replicaSet)
			if err := c.rawClient.Update(t.Context(), replicaSet); err != nil {
				t.Fatal(err)
			}
			c.advance(2 * time.Hour) // owners are read again after an hour
			c.replacePod(replicaSet)
			c.advance(time.Hour)
			ran += 4 * time.Hour
			c.expectRan(deploymentKind, "web", ran)
		}
	})
}

// ownedBy makes a Deployment the controller of an object.
func (c *teamCluster) ownedBy(deployment string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(c.getObject(deploymentKind, deployment), deploymentKind)})
	}
}

// replacePod replaces the pod of a workload by a new one.
func (c *teamCluster) replacePod(object *unstructured.Unstructured) {
	c.endPods(object.GetUID())
	c.startRootPod(object)
}

var (
	deploymentKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	replicaSetKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
)
