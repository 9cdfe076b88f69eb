// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/lifecycle/podcache"
)

const (
	alice = "alice@example.org"
	bob   = "bob@example.org"
	carol = "carol@example.org"

	firstAccount  = "system:serviceaccount:" + testNamespace + ":default-editor"
	secondAccount = "system:serviceaccount:" + testNamespace + ":another"
	// foreignAccount is a ServiceAccount of another namespace.
	foreignAccount = "system:serviceaccount:pipelines:runner"

	cronJobController = "system:serviceaccount:kube-system:cronjob-controller"
)

var (
	jobKind        = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	rayClusterKind = schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}
)

// teamCluster is a fakeCluster in which several users run workloads with one template.
type teamCluster struct {
	*fakeCluster
	objects int
	// withoutNodes creates pods that wait for a node.
	withoutNodes bool
}

func newTeamCluster(t testing.TB) *teamCluster {
	c := &teamCluster{fakeCluster: newFakeCluster(t)}
	c.mapper.Add(rayClusterKind, meta.RESTScopeNamespace)
	waitForWholeSecond()
	return c
}

// create creates a workload and starts its pod.
func (c *teamCluster) create(kind schema.GroupVersionKind, name, creator string, change ...func(*unstructured.Unstructured)) {
	c.t.Helper()
	c.startRootPod(c.createObject(kind, name, creator, change...))
	c.advance(0)
}

// createObject creates a workload that has no pod of its own.
func (c *teamCluster) createObject(
	kind schema.GroupVersionKind, name, creator string, change ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	c.t.Helper()
	c.objects++
	uid := types.UID(fmt.Sprint("root-", c.objects))
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(testNamespace)
	object.SetName(name)
	object.SetUID(uid)
	object.SetCreationTimestamp(metav1.Now())
	object.SetAnnotations(map[string]string{v1alpha1.AnnotationCreatedBy: creator})
	template := map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": "main", "image": "registry.example.org/course", "command": []any{"sleep", "infinity"}},
	}}}
	switch kind {
	case podKind:
		object.Object["spec"] = template["spec"]
	case rayClusterKind:
		object.Object["spec"] = map[string]any{"headGroupSpec": map[string]any{"template": template}}
	default:
		object.Object["spec"] = map[string]any{"template": template}
	}
	for _, apply := range change {
		apply(object)
	}
	if err := c.rawClient.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	return object
}

// startRootPod starts the pod of a workload.
func (c *teamCluster) startRootPod(object *unstructured.Unstructured) {
	kind, name, uid := object.GroupVersionKind(), object.GetName(), object.GetUID()
	pod := &podcache.Pod{
		Namespace: testNamespace, Name: name, UID: uid, Node: "dgx-1", Running: true,
		CreatedAt: time.Now(), StartedAt: time.Now(), WorkloadType: v1alpha1.WorkloadTrain, Milli: 1000,
	}
	if kind != podKind {
		pod.Name, pod.UID = name+"-pod", uid+"-pod"
		version, ownerKind := kind.ToAPIVersionAndKind()
		pod.Controller = podcache.Owner{APIVersion: version, Kind: ownerKind, Name: name, UID: uid}
	}
	if c.withoutNodes {
		pod.Node, pod.Running, pod.StartedAt = "", false, time.Time{}
	}
	c.pods[pod.UID] = pod
}

func (c *teamCluster) getObject(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	c.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := c.rawClient.Get(c.t.Context(), client.ObjectKey{Namespace: testNamespace, Name: name}, object); err != nil {
		c.t.Fatal(err)
	}
	return object
}

// delete deletes a workload and its pods.
func (c *teamCluster) delete(kind schema.GroupVersionKind, name string) {
	c.t.Helper()
	object := c.getObject(kind, name)
	if err := c.rawClient.Delete(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	c.endPods(object.GetUID())
	c.advance(0)
}

// pause suspends a Job as its user does.
func (c *teamCluster) pause(name string) {
	c.t.Helper()
	c.setSuspended(name, true)
	c.advance(0)
}

// resume lets a paused Job run again, in a new pod.
func (c *teamCluster) resume(name string) {
	c.t.Helper()
	c.setSuspended(name, false)
	object := c.getObject(jobKind, name)
	c.startRootPod(object)
	c.advance(0)
}

func (c *teamCluster) setSuspended(name string, suspended bool) {
	c.t.Helper()
	job := c.getJob(name)
	job.Spec.Suspend = &suspended
	if err := c.rawClient.Update(c.t.Context(), job); err != nil {
		c.t.Fatal(err)
	}
}

// orphan deletes a workload with the propagation policy Orphan: its pod runs on without controller.
func (c *teamCluster) orphan(kind schema.GroupVersionKind, name string) *podcache.Pod {
	c.t.Helper()
	object := c.getObject(kind, name)
	if err := c.rawClient.Delete(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	before := c.pods[object.GetUID()+"-pod"]
	released := *before
	released.Controller = podcache.Owner{}
	pod := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"containers": []any{}}}}
	pod.SetGroupVersionKind(podKind)
	pod.SetNamespace(released.Namespace)
	pod.SetName(released.Name)
	pod.SetUID(released.UID)
	pod.SetAnnotations(map[string]string{v1alpha1.AnnotationCreatedBy: "system:serviceaccount:kube-system:job-controller"})
	if err := c.rawClient.Create(c.t.Context(), pod); err != nil {
		c.t.Fatal(err)
	}
	c.pods[released.UID] = &released
	c.workloads.handlePodChange(podcache.Change{Before: before, After: &released})
	c.advance(0)
	return &released
}

// complete lets a workload complete. The object stays.
func (c *teamCluster) complete(kind schema.GroupVersionKind, name string) {
	c.t.Helper()
	object := c.getObject(kind, name)
	status := map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
	if kind == podKind {
		status = map[string]any{"phase": "Succeeded"}
	}
	object.Object["status"] = status
	if err := c.rawClient.Status().Update(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	c.endPods(object.GetUID())
	c.advance(0)
}

var kueueWorkloadKind = schema.GroupVersionKind{Group: workloadkind.GroupKueue, Version: "v1beta1", Kind: "Workload"}

// queue creates the Kueue Workload of a Job. It returns a function that sets whether it is active.
func (c *teamCluster) queue(name string) (setActive func(bool)) {
	c.t.Helper()
	c.mapper.Add(kueueWorkloadKind, meta.RESTScopeNamespace)
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"active": true}}}
	object.SetGroupVersionKind(kueueWorkloadKind)
	object.SetNamespace(testNamespace)
	object.SetName("job-" + name)
	object.SetLabels(map[string]string{workloadkind.LabelKueueJobUID: string(c.getObject(jobKind, name).GetUID())})
	if err := c.rawClient.Create(c.t.Context(), object); err != nil {
		c.t.Fatal(err)
	}
	return func(active bool) {
		object.Object["spec"] = map[string]any{"active": active}
		if err := c.rawClient.Update(c.t.Context(), object); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *teamCluster) endPods(root types.UID) {
	delete(c.pods, root)
	delete(c.pods, root+"-pod")
}

func (c *teamCluster) clockStatus(kind schema.GroupVersionKind, name string) *v1alpha1.WorkloadClockStatus {
	c.t.Helper()
	var clock v1alpha1.WorkloadClock
	key := client.ObjectKey{Namespace: testNamespace, Name: v1alpha1.WorkloadClockName(kind.Group, kind.Kind, name)}
	if err := c.rawClient.Get(c.t.Context(), key, &clock); err != nil {
		c.t.Fatal(err)
	}
	return &clock.Status
}

// ranTime returns the running time of a workload.
func (c *teamCluster) ranTime(kind schema.GroupVersionKind, name string) time.Duration {
	c.t.Helper()
	s := c.clockStatus(kind, name)
	ran := time.Duration(s.AccumulatedSeconds) * time.Second
	if s.RunningSince != nil {
		ran += time.Since(s.RunningSince.Time)
	}
	return ran
}

// expectRan checks the running time of a workload.
func (c *teamCluster) expectRan(kind schema.GroupVersionKind, name string, want time.Duration) {
	c.t.Helper()
	s := c.clockStatus(kind, name)
	if ran := c.ranTime(kind, name); ran != want || s.Stopped != nil {
		c.t.Errorf("%s %s of %s ran for %s, stopped: %v; want %s", kind.Kind, name, s.CreatedBy, ran, s.Stopped, want)
	}
}
