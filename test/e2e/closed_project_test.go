// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// trainsOneGPU is a pod of the type train with a GPU.
func trainsOneGPU(p *corev1.Pod) {
	withGPU(p)
	p.Labels[v1alpha1.LabelWorkloadType] = string(v1alpha1.WorkloadTrain)
}

// closeProject closes a project since a time, as lifecycle does when it expires; with nil it opens the project again.
func (s *sluiceCluster) closeProject(t *testing.T, name string, since *metav1.Time) {
	t.Helper()
	at := "null"
	if since != nil {
		at = `"` + since.UTC().Format(time.RFC3339) + `"`
	}
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"closedAt":`+at+`}}`))
	if err := s.adminClient.Status().Patch(t.Context(), p, patch); err != nil {
		t.Fatal(err)
	}
}

// waitUntilClockRan waits until the clock of a workload has started and returns the next second, at which its project can
// close.
func (s *sluiceCluster) waitUntilClockRan(t *testing.T, ns, group, kind, name string) *metav1.Time {
	t.Helper()
	clock := &v1alpha1.WorkloadClock{}
	key := client.ObjectKey{Namespace: ns, Name: v1alpha1.WorkloadClockName(group, kind, name)}
	eventuallyLong(t, func() error {
		if err := s.adminClient.Get(t.Context(), key, clock); err != nil {
			return err
		}
		if clock.Status.RunningSince == nil || kind == "Deployment" && len(clock.Status.PodControllers) == 0 {
			return unexpectedState("the clock of "+name+" runs", clock.Status)
		}
		return nil
	})
	return ptr.To(metav1.NewTime(clock.Status.StartedAt.Add(time.Second)))
}

// waitForReplacement waits until a pod of the app runs that is none of the former ones.
func (s *sluiceCluster) waitForReplacement(t *testing.T, ns, app string, former types.UID) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventuallyLong(t, func() error {
		pods := s.listPods(t, ns)
		for i := range pods {
			if p := &pods[i]; p.Labels["app"] == app && p.UID != former && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				found = p
				return nil
			}
		}
		return unexpectedState("a new pod of "+app+" runs", describePods(pods))
	})
	return found
}

// Guards invariant 4 of the design: an expired project gets no new GPU work, by whatever request, while its workloads run
// on and their controllers replace pods.
func TestExpiredProjectReplacesPodsOnly(t *testing.T) {
	t.Parallel()
	const ns = "closed"
	sharedCluster.createDepartment(t, ns, newPoolQuota("dgx", "2", "4"))
	sharedCluster.createGovernedProject(t, ns, ns, newPoolQuota("dgx", "0", "4"))
	researcher := clientFor(t, researcherConfig(t, ns))
	web := newGangDeployment(ns, "web", 1, v1alpha1.WorkloadTrain, withGPU)
	web.Annotations = nil
	plain := &appsv1.Deployment{ObjectMeta: workloadMeta(ns, "plain"), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "plain"}}, Template: labeledTemplate("plain"),
	}}
	later := suspended(newGPUJob(ns, "later", withGPU))
	for _, object := range []client.Object{web, plain, later} {
		if err := researcher.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteAndWait(t, object) })
	}
	running := sharedCluster.waitForReplacement(t, ns, "web", "")
	sharedCluster.closeProject(t, ns, sharedCluster.waitUntilClockRan(t, ns, "apps", "Deployment", "web"))

	const closed = "project closed has expired: it has accepted no new pods with GPUs since "
	newWork := func() error { return researcher.Create(t.Context(), newPod(ns, "new", withGPU), client.DryRunAll) }
	eventuallyRejected(t, newWork, closed, "can renew it with sluice renew project/closed")

	patch := func(object client.Object, patch string) func() error {
		return func() error {
			copied, _ := object.DeepCopyObject().(client.Object)
			return researcher.Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		}
	}
	scaleTo := func(object client.Object, replicas int) func() error {
		return func() error {
			body := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
			copied, _ := object.DeepCopyObject().(client.Object)
			return researcher.SubResource("scale").Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, body))
		}
	}
	set := metav1.GetControllerOf(running)
	replicaSet := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: set.Name}}
	forged := newPod(ns, "forged", withGPU)
	forged.OwnerReferences = []metav1.OwnerReference{*set}
	for name, tc := range map[string]struct {
		attempt func() error
		want    string
	}{
		"a Job": {func() error { return researcher.Create(t.Context(), newGPUJob(ns, "job", withGPU), client.DryRunAll) }, closed},
		"a Deployment": {func() error {
			return researcher.Create(t.Context(), newGangDeployment(ns, "more", 1, v1alpha1.WorkloadTrain, withGPU), client.DryRunAll)
		}, closed},
		"a suspended Job resumed":  {patch(later, `{"spec":{"suspend":false}}`), "jobs later cannot get further pods: " + closed},
		"replicas patched":         {patch(web, `{"spec":{"replicas":2}}`), "deployments web cannot get further pods: " + closed},
		"kubectl scale":            {scaleTo(web, 2), "deployments web cannot get further pods: " + closed},
		"another template":         {patch(web, `{"spec":{"template":{"metadata":{"annotations":{"again":"1"}}}}}`), closed},
		"its ReplicaSet scaled":    {scaleTo(replicaSet, 2), "cannot get further pods: " + closed},
		"its ReplicaSet patched":   {patch(replicaSet, `{"spec":{"replicas":2}}`), "cannot get further pods: " + closed},
		"its ReplicaSet's program": {patch(replicaSet, `{"spec":{"template":{"metadata":{"annotations":{"again":"1"}}}}}`), "cannot get further pods: " + closed},
		"a forged owner":           {func() error { return researcher.Create(t.Context(), forged, client.DryRunAll) }, closed},
	} {
		t.Run(name, func(t *testing.T) { expectError(t, tc.attempt(), tc.want) })
	}
	for name, allowed := range map[string]func() error{
		"a pod without GPUs":       func() error { return researcher.Create(t.Context(), newPod(ns, "cpu"), client.DryRunAll) },
		"a workload without GPUs":  scaleTo(plain, 1),
		"a label of the workload":  patch(web, `{"metadata":{"labels":{"mine":"1"}}}`),
		"a suspended Job's labels": patch(later, `{"metadata":{"labels":{"mine":"1"}}}`),
	} {
		if err := allowed(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	deletePodNow(t, running)
	replacement := sharedCluster.waitForReplacement(t, ns, "web", running.UID)
	p := newProject(ns)
	eventually(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		return checkCondition(p.Status.Conditions, v1alpha1.ConditionUnsupported, metav1.ConditionTrue, v1alpha1.ReasonClosedInPart)
	})
	deletePodNow(t, replacement)
	sharedCluster.waitForReplacement(t, ns, "web", replacement.UID)

	sharedCluster.closeProject(t, ns, nil)
	eventually(t, newWork)
	eventually(t, scaleTo(web, 2))
}

// Kueue admits nothing more in an expired project, and does not end what it admitted. A Job's replacement pods need no
// admission.
func TestExpiredProjectOnKueue(t *testing.T) {
	s := newDedicatedCluster(t, "--scheduler", "kueue")
	const team, limit = "team-a", 16
	s.waitForGoverned(t, team)
	job := newGPUJob(team, "running", trainsOneGPU)
	job.Spec.Template.Labels = map[string]string{"app": "running", v1alpha1.LabelWorkloadType: "train"}
	job.Spec.BackoffLimit = ptr.To(int32(6))
	s.createForTest(t, job)
	running := s.waitForReplacement(t, team, "running", "")
	closedAt := s.waitUntilClockRan(t, team, "batch", "Job", "running")
	// The node pool is full, so that some of these wait.
	for i := range limit {
		s.createForTest(t, newGPUJob(team, fmt.Sprintf("more-%d", i), withGPU))
	}
	admitted := func() (names map[string]bool, total int, err error) {
		workloads := &unstructured.UnstructuredList{}
		workloads.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "WorkloadList"})
		if err := s.adminClient.List(t.Context(), workloads, client.InNamespace(team)); err != nil {
			return nil, 0, err
		}
		names = map[string]bool{}
		for i := range workloads.Items {
			if conditionTrue(&workloads.Items[i], "Admitted") {
				names[workloads.Items[i].GetName()] = true
			}
		}
		return names, len(workloads.Items), nil
	}
	var before map[string]bool
	eventuallyLong(t, steadily(3*time.Second, func() error {
		now, total, err := admitted()
		if err == nil && (total != limit+1 || len(now) == 0 || len(now) == total || len(now) != len(before)) {
			err = unexpectedState("some workloads wait", fmt.Sprint(len(now), " of ", total))
		}
		before = now
		return err
	}))
	s.closeProject(t, team, closedAt)
	queue := &unstructured.Unstructured{}
	queue.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "LocalQueue"})
	eventuallyLong(t, func() error {
		err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: team, Name: "default"}, queue)
		policy, _, _ := unstructured.NestedString(queue.Object, "spec", "stopPolicy")
		if err == nil && policy != "Hold" {
			err = unexpectedState("the queue is on hold", policy)
		}
		return err
	})

	if err := s.adminClient.Delete(t.Context(), running, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.waitForReplacement(t, team, "running", running.UID)
	// Room for those that wait: they would be admitted within a second.
	ended := false
	for i := range limit {
		other := newGPUJob(team, fmt.Sprintf("more-%d", i), withGPU)
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
			t.Fatal(err)
		}
		if other.Spec.Suspend != nil && !*other.Spec.Suspend {
			if err := s.adminClient.Delete(t.Context(), other, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
				t.Fatal(err)
			}
			ended = true
			break
		}
	}
	if !ended {
		t.Fatal("no other Job runs")
	}
	eventuallyLong(t, steadily(10*time.Second, func() error {
		now, _, err := admitted()
		if err == nil && len(now) != len(before)-1 {
			err = unexpectedState(fmt.Sprint(len(before)-1, " workloads are admitted"), len(now))
		}
		return err
	}))
	s.closeProject(t, team, nil)
	eventuallyLong(t, func() error {
		now, _, err := admitted()
		if err == nil && len(now) < len(before) {
			err = unexpectedState(fmt.Sprint(len(before), " workloads are admitted again"), len(now))
		}
		return err
	})
	s.assertSuspensionOnKueue(t, team)
}

// assertSuspensionOnKueue suspends a project whose Jobs run and wait in Kueue. Kueue starts none of them again, though it has
// room for all.
func (s *sluiceCluster) assertSuspensionOnKueue(t *testing.T, team string) {
	t.Helper()
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: team}}
	if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	for object, body := range map[client.Object]string{
		&v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.Department}}: `{"spec":{"projects":{"validity":"P6M"}}}`,
		p: `{"spec":{"hold":{"reason":"the test sets the phase"}}}`,
	} {
		eventually(t, func() error {
			return s.adminClient.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(body)))
		})
	}
	eventually(t, func() error {
		err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(p), p)
		if err == nil && p.Status.ObservedGeneration != p.Generation {
			err = unexpectedState("the hold is observed", p.Status.ObservedGeneration)
		}
		return err
	})
	s.setProjectPhase(t, team, v1alpha1.ProjectSuspended)
	eventuallyLong(t, steadily(5*time.Second, func() error {
		active, workloads := 0, &unstructured.UnstructuredList{}
		workloads.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "WorkloadList"})
		if err := s.adminClient.List(t.Context(), workloads, client.InNamespace(team)); err != nil {
			return err
		}
		for i := range workloads.Items {
			if on, found, _ := unstructured.NestedBool(workloads.Items[i].Object, "spec", "active"); (on || !found) && !conditionTrue(&workloads.Items[i], "Finished") {
				active++
			}
		}
		if pods := s.listPods(t, team); active > 0 || len(pods) > 0 || len(workloads.Items) == 0 {
			return unexpectedState("nothing runs or waits", fmt.Sprint(active, " of ", len(workloads.Items), " active; ", describePods(pods)))
		}
		return nil
	}))
}
