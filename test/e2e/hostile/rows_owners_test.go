// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// A budget keeps no pods of others from eviction.
var _ = attacks(
	budgetOf("every pod", "{matchLabels: null}"),
	budgetOf("every pod without a label", "{matchLabels: null, matchExpressions: [{key: mine, operator: DoesNotExist}]}"),
	row{
		class: owners, name: "a budget of every pod of the project by its label", roles: []role{namespaceAdmin}, rbac: workers,
		attack: create("PodDisruptionBudget", `{spec: {selector: {matchLabels: {sluice.dev/project: "{project}"}}}}`),
		want:   "spec.selector: sluice.dev/project: pods of other users have this label too",
	},
)

// workers may create workloads, but no budgets.
var workers = []role{l2, l1, editor, serviceAccount, engineer}

func budgetOf(pods, selector string) row {
	return row{
		class: owners, name: "a budget of " + pods, roles: []role{namespaceAdmin}, rbac: workers,
		attack: create("PodDisruptionBudget", "{spec: {selector: "+selector+"}}"),
		want:   "spec.selector: it also matches pods of other users, and would keep them from eviction",
	}
}

// Only a controller says what controls an object: the time of the object counts for its controller.
var _ = attacks(
	colleaguesController("Pod"), colleaguesController("Job"), colleaguesController("ReplicaSet"),
	forgedController("Pod", "quota", quotaOwner, "ResourceQuota", writers, everyEngine),
	forgedController("CronJob", "pod named ..", "{apiVersion: v1, kind: Pod, name: .., uid: u}", "Pod", writers, everyEngine),
	forgedController("Job", "quota", quotaOwner, "ResourceQuota", writers, everyEngine),
	forgedController("Job", "CronJob", "{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: u}", "CronJob.batch", writers, everyEngine),
	forgedController("CronJob", "quota", quotaOwner, "ResourceQuota", writers, everyEngine),
	forgedController("Deployment", "queue", queueOwner, "LocalQueue.kueue.x-k8s.io", writers, everyEngine),
	forgedController("StatefulSet", "quota", quotaOwner, "ResourceQuota", writers, everyEngine),
	forgedController("ReplicaSet", "queue", queueOwner, "LocalQueue.kueue.x-k8s.io", []role{namespaceAdmin}, everyEngine),
	forgedController("DaemonSet", "quota", quotaOwner, "ResourceQuota", []role{namespaceAdmin}, everyEngine),
	forgedController("ReplicationController", "Node", "{apiVersion: v1, kind: Node, name: dgx-2, uid: u}", "Node", []role{namespaceAdmin}, everyEngine),
	addedController("Pod"), addedController("Job"), addedController("Deployment"),
	row{
		class: owners, name: "a controller added through the status", roles: []role{namespaceAdmin}, engines: everyEngine,
		attack: patchStatus(own("Job"), `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ResourceQuota","name":"q","uid":"u","controller":true}]}}`),
		want:   "only a controller may say that an object of kind ResourceQuota controls this one",
	},
	row{
		class: owners, name: "a controller of an odd kind", engines: everyEngine,
		attack: create("Job", `{metadata: {ownerReferences: [{apiVersion: v1, kind: "A\nB", name: q, uid: u, controller: true}]}}`),
		want:   "only a controller may say that such an object controls this one, and {user} is no known controller",
	},
	row{
		class: owners, name: "a reference for garbage collection", engines: everyEngine, allowed: true,
		attack: create("Job", "{metadata: {ownerReferences: [{apiVersion: v1, kind: ResourceQuota, name: q, uid: u}]}}"),
	},
	row{
		class: owners, name: "a run of the CronJob controller", roles: []role{cronController}, engines: everyEngine, allowed: true,
		attack: create("Job", "{metadata: {ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: u, controller: true}]}}"),
	},
	row{
		class: owners, name: "an operator that an administrator added", roles: []role{editor}, allowed: true, attack: addedOperator("Farm", "Farm"),
	},
	row{
		class: owners, name: "another kind than that of the added operator", roles: []role{editor}, attack: addedOperator("Farm", "Field"),
		want: "only a controller may say that an object of kind Field.example.org controls this one", control: addedOperator("Farm", "Farm"),
	},
)

const (
	quotaOwner = "{apiVersion: v1, kind: ResourceQuota, name: sluice, uid: u}"
	queueOwner = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, name: default, uid: u}"
)

// forgedController creates an object with a controller reference.
func forgedController(kind, name, reference, ownerKind string, roles []role, engines []engine) row {
	return row{
		class: owners, name: "a " + kind + " controlled by a " + name, roles: roles, engines: engines,
		attack: create(kind, "{metadata: {ownerReferences: ["+strings.TrimSuffix(reference, "}")+", controller: true}]}}"),
		want:   "only a controller may say that an object of kind " + ownerKind + " controls this one, and {user} is no known controller of it; remove controller: true",
	}
}

// colleaguesController creates an object that a colleague's Job controls, so that its time would be
// the colleague's.
func colleaguesController(kind string) row {
	roles := writers
	if kind == "ReplicaSet" {
		roles = []role{namespaceAdmin}
	}
	return row{
		class: owners, name: "a " + kind + " controlled by a colleague's Job", roles: roles, engines: everyEngine,
		attack: do("create a "+kind+" of a colleague's Job", func(a *attacker) (*unstructured.Unstructured, error) {
			job, err := colleagues("Job").find(a)
			if err != nil {
				return nil, err
			}
			object, err := a.ordinary(kind, a.intruder(), fmt.Sprintf(
				"{metadata: {ownerReferences: [{apiVersion: batch/v1, kind: Job, name: %s, uid: %s, controller: true}]}}", job.GetName(), job.GetUID()))
			if err != nil {
				return nil, err
			}
			return object, a.create(object)
		}),
		want:    "only a controller may say that an object of kind Job.batch controls this one, and {user} is no known controller of it",
		control: create(kind, ""),
	}
}

// addedController adds a controller reference to an object of the attacker.
func addedController(kind string) row {
	return row{
		class: owners, name: "a controller added to a " + kind, engines: everyEngine,
		attack: patch(own(kind), `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ResourceQuota","name":"q","uid":"u","controller":true}]}}`),
		want:   "only a controller may say that an object of kind ResourceQuota controls this one",
	}
}

// addedOperator creates a Job with a controller of a kind, as a user who is an operator of the
// kind added.
func addedOperator(added, kind string) attempt {
	return do("create a Job of a "+kind+" as the operator of a "+added, func(a *attacker) (*unstructured.Unstructured, error) {
		parameters := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"kindControllers": []any{map[string]any{
			"kind": added + ".example.org", "users": []any{a.role.user(a.namespace)},
		}}}}}
		parameters.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AdmissionParameters"))
		parameters.SetName(v1alpha1.AdmissionParametersName)
		err := a.world.Admin.Apply(a.t.Context(), client.ApplyConfigurationFromUnstructured(parameters), client.FieldOwner("hostile"))
		if err != nil {
			return nil, err
		}
		of := func(kind string) (*unstructured.Unstructured, error) {
			return a.ordinary("Job", a.intruder(), fmt.Sprintf(
				"{metadata: {ownerReferences: [{apiVersion: example.org/v1, kind: %s, name: f, uid: u, controller: true}]}}", kind))
		}
		permitted, err := of(added)
		if err != nil {
			return nil, err
		}
		a.eventually(func() error { return a.create(permitted.DeepCopy()) })
		object, err := of(kind)
		if err != nil {
			return nil, err
		}
		return object, a.create(object)
	})
}

// Work whose root ignores its stop ends at its limit.
var _ = attacks(
	heldAtLimit("a Deployment deleted and held by a finalizer", l2, kube, "Deployment"),
	heldAtLimit("a Job deleted and held by a finalizer", l2, kube, "Job"),
	heldAtLimit("a Job of a queue deleted and held by a finalizer", l1, kueue, "Job"),
	row{
		class: policyTime, name: "a pod with a forged controller from before the installation", alone: true, fresh: true,
		roles: []role{jobController}, harmless: ended,
		attack: do("run a pod controlled by a quota for longer than its limit", func(a *attacker) (*unstructured.Unstructured, error) {
			quotas := &corev1.ResourceQuotaList{}
			if err := a.world.Admin.List(a.t.Context(), quotas, client.InNamespace(a.namespace)); err != nil || len(quotas.Items) == 0 {
				return nil, fmt.Errorf("%d quotas: %w", len(quotas.Items), err)
			}
			reference := fmt.Sprintf("{metadata: {ownerReferences: [{apiVersion: v1, kind: ResourceQuota, name: %s, uid: %s, controller: true}]}}",
				quotas.Items[0].Name, quotas.Items[0].UID)
			return a.runForLimit("Pod", reference, nil)
		}),
	},
)

const jobController role = "system:serviceaccount:kube-system:job-controller"

// heldAtLimit deletes a workload that a finalizer holds, so that its controller ignores suspend and
// replicas, and runs it for longer than its limit.
func heldAtLimit(name string, as role, on engine, kind string) row {
	return row{
		class: policyTime, name: name, alone: true, fresh: true, roles: []role{as}, engines: []engine{on}, harmless: ended,
		attack: do("delete a "+kind+" with a finalizer and run it for longer than its limit", func(a *attacker) (*unstructured.Unstructured, error) {
			return a.runForLimit(kind, "{metadata: {finalizers: [example.org/hold]}}", func(object *unstructured.Unstructured) error {
				return a.client.Delete(a.t.Context(), object, client.PropagationPolicy("Background"))
			})
		}),
	}
}

// runForLimit runs a workload with a GPU for longer than its limit. Once it runs, it calls then.
func (a *attacker) runForLimit(kind, fragment string, then func(*unstructured.Unstructured) error) (*unstructured.Unstructured, error) {
	a.dry = false
	gpu := inTemplate(kind, "{metadata: {labels: {sluice.dev/workload-type: train}}, spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}")
	object, err := a.ordinary(kind, "held-"+rand.String(5), gpu, fragment)
	if err != nil {
		return nil, err
	}
	if err := a.create(object); err != nil {
		return nil, err
	}
	a.t.Cleanup(func() {
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := a.world.Admin.Patch(context.Background(), object.DeepCopy(), none); client.IgnoreNotFound(err) != nil {
			a.t.Error(err)
		}
	})
	a.waitForClock("runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.RunningSince != nil })
	if then != nil {
		if err := then(object.DeepCopy()); err != nil {
			return nil, err
		}
	}
	a.advanceTimeTo(a.world.clock.Now().Add(48 * time.Hour))
	a.waitForClock("was announced", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Deadline != nil && s.Deadline.AnnouncedAt != nil })
	a.advanceTimeTo(a.world.clock.Now().Add(time.Hour)) // the warning was late, so the end moved by the shortest lead
	return object, nil
}

// waitForClock waits until the only clock in the namespace meets a condition.
func (a *attacker) waitForClock(what string, met func(*v1alpha1.WorkloadClockStatus) bool) {
	a.t.Helper()
	a.eventually(func() error {
		var clocks v1alpha1.WorkloadClockList
		if err := a.world.Admin.List(a.t.Context(), &clocks, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		if len(clocks.Items) != 1 || !met(&clocks.Items[0].Status) {
			return fmt.Errorf("want that one workload %s: %d clocks, %+v", what, len(clocks.Items), clocks.Items)
		}
		return nil
	})
}

// ended is a harmless result: no pod of the namespace runs on.
func ended(a *attacker, _ *unstructured.Unstructured) error {
	a.eventually(func() error {
		var pods corev1.PodList
		if err := a.world.Admin.List(a.t.Context(), &pods, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil && pods.Items[i].Status.Phase == corev1.PodRunning {
				return fmt.Errorf("pod %s runs on", pods.Items[i].Name)
			}
		}
		return nil
	})
	return nil
}
