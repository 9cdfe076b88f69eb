// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/test/clustertest"
)

// Each subject gets the objects that policies render, and a condition about them. A changed input
// changes the objects; without a policy they are removed, and the finalizer too.
func TestQueuesAreCreatedAndRemoved(t *testing.T) {
	installCRDs(t)
	w := startTestEnv(t)
	pool := w.createPool("q-dgx", v1alpha1.SchedulerKueue)
	department := w.createDepartment("q-cs", pool.Name)
	other := w.createDepartment("q-math", pool.Name)
	project := w.createProject("q-thesis", department.Name, pool.Name)
	w.policies.setPolicy(enginePolicy)

	w.waitForCondition(pool, &pool.Status.Conditions, metav1.ConditionTrue, "ResourceFlavor q-dgx")
	w.waitForCondition(department, &department.Status.Conditions, metav1.ConditionTrue, "Cohort q-cs")
	w.waitForCondition(project, &project.Status.Conditions, metav1.ConditionTrue, "ClusterQueue q-thesis, LocalQueue default")
	w.waitForField(newKueueObject("Cohort", "q-cs"), "nominal", "2")
	w.waitForField(newKueueObject("Cohort", "q-math"), "nominal", "0")
	w.waitForField(newKueueObject("ClusterQueue", "q-thesis"), "cohortName", "q-cs")
	w.waitForField(newKueueObject("LocalQueue", "q-thesis"), "clusterQueue", "q-thesis")
	for _, object := range []client.Object{pool, department, other} {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || !slices.Contains(object.GetFinalizers(), v1alpha1.FinalizerRendered) {
			t.Errorf("%s has the finalizers %v (%v)", object.GetName(), object.GetFinalizers(), err)
		}
	}

	// A move.
	w.mergePatch(project, `{"spec":{"department":"q-math"}}`)
	w.waitForField(newKueueObject("ClusterQueue", "q-thesis"), "cohortName", "q-math")
	w.waitForField(newKueueObject("Cohort", "q-cs"), "nominal", "0")
	w.waitForField(newKueueObject("Cohort", "q-math"), "nominal", "2")

	// Another scheduler: the new quota, and then no queue.
	w.mergePatch(pool, `{"spec":{"scheduler":"kube-scheduler"}}`)
	for _, object := range []*unstructured.Unstructured{
		newKueueObject("ClusterQueue", "q-thesis"), newKueueObject("LocalQueue", "q-thesis"), newKueueObject("Cohort", "q-cs"), newKueueObject("ResourceFlavor", "q-dgx"),
	} {
		w.waitForDeletion(object)
	}
	clustertest.Eventually(t, func() error {
		var quota corev1.ResourceQuota
		err := w.Get(t.Context(), client.ObjectKey{Namespace: "q-thesis", Name: v1alpha1.QuotaName}, &quota)
		_, former := quota.Spec.Hard["requests.sluice.dev/gpu-milli"]
		if _, has := quota.Spec.Hard["requests.sluice.dev/gpu-milli.q-dgx"]; err != nil || !has || former {
			return fmt.Errorf("the quota has %v, %w", quota.Spec.Hard, err)
		}
		return nil
	})
	w.waitForCondition(project, &project.Status.Conditions, metav1.ConditionTrue, "no queue is needed")
	w.waitForCondition(pool, &pool.Status.Conditions, metav1.ConditionTrue, "no queue is needed")
	for _, object := range []client.Object{pool, department, other} {
		clustertest.Eventually(t, func() error {
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || slices.Contains(object.GetFinalizers(), v1alpha1.FinalizerRendered) {
				return fmt.Errorf("%s has the finalizers %v (%w)", object.GetName(), object.GetFinalizers(), err)
			}
			return nil
		})
	}

	// And back, and without the pool, and with it, and away with all of it.
	w.mergePatch(pool, `{"spec":{"scheduler":"kueue"}}`)
	w.waitForField(newKueueObject("ClusterQueue", "q-thesis"), "cohortName", "q-math")
	w.mergePatch(project, `{"spec":{"nodePools":[]}}`)
	w.waitForDeletion(newKueueObject("ClusterQueue", "q-thesis"))
	project.Spec.NodePools = poolQuotas("1", pool.Name)
	before := project.DeepCopy()
	before.Spec.NodePools = nil
	if err := w.Patch(t.Context(), project, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.waitForField(newKueueObject("ClusterQueue", "q-thesis"), "cohortName", "q-math")
	for _, object := range []client.Object{project, department, other, pool} {
		if err := w.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		w.waitForDeletion(object)
	}
	for _, object := range []*unstructured.Unstructured{newKueueObject("ClusterQueue", "q-thesis"), newKueueObject("Cohort", "q-cs"), newKueueObject("Cohort", "q-math"), newKueueObject("ResourceFlavor", "q-dgx")} {
		w.waitForDeletion(object)
	}
	w.requireNoErrors()
}

// A changed object is restored. A status that a scheduler writes
// causes no write, and nothing is written at rest.
func TestDriftIsCorrected(t *testing.T) {
	installCRDs(t)
	w := startTestEnv(t)
	w.policies.setPolicy(enginePolicy)
	pool := w.createPool("drift", v1alpha1.SchedulerKueue)
	department := w.createDepartment("drift", pool.Name)
	w.createProject("drift", department.Name, pool.Name)
	w.waitForField(newKueueObject("LocalQueue", "drift"), "clusterQueue", "drift")
	w.waitForField(newKueueObject("Cohort", "drift"), "nominal", "2")
	as := client.FieldOwner("another")
	for what, change := range map[string]func(*unstructured.Unstructured){
		"changed": func(o *unstructured.Unstructured) {
			w.mergePatch(o, `{"spec":{"cohortName":"mine","parentName":"mine"}}`, as)
		},
		"the subject's off": func(o *unstructured.Unstructured) {
			w.mergePatch(o, `{"metadata":{"labels":{"sluice.dev/project":null,"sluice.dev/department":null}}}`, as)
		},
		"another's": func(o *unstructured.Unstructured) {
			label := map[string]string{"Cohort": v1alpha1.LabelDepartment, "ClusterQueue": v1alpha1.LabelProject}[o.GetKind()]
			w.mergePatch(o, `{"metadata":{"labels":{"`+label+`":"other"}}}`, as)
		},
		"all labels off": func(o *unstructured.Unstructured) { w.mergePatch(o, `{"metadata":{"labels":null}}`, as) },
		"deleted": func(o *unstructured.Unstructured) {
			if err := w.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for object, parent := range map[*unstructured.Unstructured][2]string{
			newKueueObject("ClusterQueue", "drift"): {"cohortName", "drift"}, newKueueObject("Cohort", "drift"): {"parentName", "sluice"},
		} {
			t.Run(what+"/"+object.GetKind(), func(t *testing.T) {
				if _, err := w.specField(object, parent[0]); err != nil {
					t.Fatal(err)
				}
				labels, uid := object.GetLabels(), object.GetUID()
				change(object)
				clustertest.Eventually(t, func() error {
					got, err := w.specField(object, parent[0])
					if made := object.GetUID() != uid; err != nil || got != parent[1] || !equality.Semantic.DeepEqual(object.GetLabels(), labels) || made != (what == "deleted") {
						return fmt.Errorf("%s is %q, labels %v (%w)", parent[0], got, object.GetLabels(), err)
					}
					return nil
				})
			})
		}
	}
	w.waitUntilIdle()
	before := w.writes.Load()
	queue := newKueueObject("ClusterQueue", "drift")
	if _, err := w.specField(queue, "cohortName"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		status := queue.DeepCopy()
		status.Object["status"] = map[string]any{"pending": int64(i)}
		if err := w.Status().Patch(t.Context(), status, client.MergeFrom(queue)); err != nil {
			t.Fatal(err)
		}
	}
	w.waitUntilIdle()
	if after := w.writes.Load(); after != before {
		t.Errorf("%d writes because of a status", after-before)
	}
	w.requireNoErrors()
}

// waitUntilIdle waits until lifecycle has written nothing for five seconds.
func (w *testEnv) waitUntilIdle() {
	w.Helper()
	last, since := w.writes.Load(), time.Now()
	clustertest.Eventually(w, func() error {
		if now := w.writes.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 5*time.Second {
			return fmt.Errorf("it writes: %d times until now", last)
		}
		return nil
	})
}

// Kinds that are not there are no error, and what they are for follows as soon as
// they are; and once they are gone again, subjects are free to go.
func TestKindsInstalledLater(t *testing.T) {
	uninstallCRDs(t)
	w := startTestEnv(t)
	pool := w.createPool("later", v1alpha1.SchedulerKueue)
	department := w.createDepartment("later", pool.Name)
	project := w.createProject("later", department.Name, pool.Name)
	w.policies.setPolicy(enginePolicy)
	w.waitForCondition(department, &department.Status.Conditions, metav1.ConditionFalse, "the API server does not serve kueue.x-k8s.io/v1beta2 Cohort; install")
	w.waitForCondition(project, &project.Status.Conditions, metav1.ConditionFalse, "the API server does not serve kueue.x-k8s.io/v1beta2 ClusterQueue; install")
	w.requireNoErrors()
	installCRDs(t)
	w.waitForCondition(department, &department.Status.Conditions, metav1.ConditionTrue, "Cohort later")
	w.waitForCondition(project, &project.Status.Conditions, metav1.ConditionTrue, "ClusterQueue later, LocalQueue default")
	w.waitForCondition(pool, &pool.Status.Conditions, metav1.ConditionTrue, "ResourceFlavor later")
	w.mergePatch(newKueueObject("Cohort", "later"), `{"spec":{"parentName":"mine"}}`, client.FieldOwner("another"))
	w.waitForField(newKueueObject("Cohort", "later"), "parentName", "sluice")
	w.requireNoErrors()
	uninstallCRDs(t)
	w.waitForCondition(department, &department.Status.Conditions, metav1.ConditionFalse, "does not serve")
	for _, object := range []client.Object{project, department, pool} {
		if err := w.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		w.waitForDeletion(object)
	}
	w.requireNoErrors()
}

// Another person's object is neither changed nor deleted until it is handed over.
func TestForeignObjectsArePreserved(t *testing.T) {
	installCRDs(t)
	w := startTestEnv(t)
	theirs := newKueueObject("Cohort", "foreign")
	theirs.Object["spec"] = map[string]any{"parentName": "theirs"}
	createObject(w, theirs)
	// The labels of the department do not make it Sluice's.
	lookalike := newKueueObject("ClusterQueue", "foreign.extra")
	lookalike.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelDepartment: "foreign"})
	createObject(w, lookalike)
	w.policies.setPolicy(enginePolicy)
	pool := w.createPool("foreign", v1alpha1.SchedulerKueue)
	department := w.createDepartment("foreign", pool.Name)
	w.waitForCondition(department, &department.Status.Conditions, metav1.ConditionFalse, "Cohort foreign exists and is not Sluice's; rename or delete it, or hand it over with: kubectl annotate cohort.kueue.x-k8s.io foreign sluice.dev/adopt-by=foreign")
	if parent, err := w.specField(theirs, "parentName"); err != nil || parent != "theirs" || len(theirs.GetLabels()) != 0 {
		t.Errorf("their cohort = %v, %v", theirs.Object, err)
	}
	w.mergePatch(theirs, `{"metadata":{"annotations":{"sluice.dev/adopt-by":"foreign"}}}`)
	w.mergePatch(department, `{"metadata":{"annotations":{"reconcile":"again"}}}`)
	w.waitForField(theirs, "parentName", "sluice")
	w.waitForCondition(department, &department.Status.Conditions, metav1.ConditionTrue, "Cohort foreign")
	if err := w.Delete(t.Context(), department); err != nil {
		t.Fatal(err)
	}
	w.waitForDeletion(department)
	w.waitForDeletion(newKueueObject("Cohort", "foreign"))
	if _, err := w.specField(lookalike, "cohortName"); err != nil {
		t.Errorf("another person's object is gone: %v", err)
	}
	w.requireNoErrors()
}

// A field that the kind does not have is rejected and reported.
func TestUnknownFieldIsReported(t *testing.T) {
	installCRDs(t)
	w := startTestEnv(t)
	w.policies.setPolicy(`package wrong
objects contains {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": input.department.name}, "spec": {"nominall": "1"}} if input.object.kind == "Department"
`)
	department := w.createDepartment("misspelt")
	w.waitForCondition(department, &department.Status.Conditions, metav1.ConditionFalse, "nominall")
	w.waitForDeletion(newKueueObject("Cohort", "misspelt"))
}

// After a crash at any point all rendered objects are removed.
func TestCrashLeavesNoOrphans(t *testing.T) {
	installCRDs(t)
	for writes := range 9 {
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			name := fmt.Sprintf("crash-%d", writes)
			w := startTestEnv(t)
			w.limit.Store(int64(writes))
			pool := w.createPool(name, v1alpha1.SchedulerKueue)
			department := w.createDepartment(name, pool.Name)
			project := w.createProject(name, department.Name, pool.Name)
			w.policies.setPolicy(enginePolicy)
			clustertest.Eventually(t, func() error {
				if w.writes.Load() <= int64(writes) {
					return fmt.Errorf("%d writes", w.writes.Load())
				}
				return nil
			})
			w.stop()
			for _, object := range []client.Object{project, department, pool} {
				if err := w.Delete(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			next := startTestEnv(t)
			next.policies.setPolicy("package nothing\n")
			for _, object := range []client.Object{project, department, pool} {
				next.waitForDeletion(object)
			}
			clustertest.Eventually(t, func() error { return next.checkNoObjects(name) })
		})
	}
}

// A finalizer that a user removed leaves nothing either.
func TestForcedDeletionLeavesNoOrphans(t *testing.T) {
	installCRDs(t)
	w := startTestEnv(t)
	w.policies.setPolicy(enginePolicy)
	pool := w.createPool("force", v1alpha1.SchedulerKueue)
	department := w.createDepartment("force", pool.Name)
	w.waitForField(newKueueObject("Cohort", "force"), "parentName", "sluice")
	w.waitUntilIdle()
	w.stop()
	w.mergePatch(department, `{"metadata":{"finalizers":null}}`)
	if err := w.Delete(t.Context(), department); err != nil {
		t.Fatal(err)
	}
	next := startTestEnv(t)
	next.policies.setPolicy(enginePolicy)
	next.waitForDeletion(newKueueObject("Cohort", "force"))
}

// checkNoObjects returns an error if an object of lifecycle has a subject's name.
func (w *testEnv) checkNoObjects(name string) error {
	for _, kind := range apply.QueueKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := w.List(context.Background(), list, client.MatchingLabels(apply.ManagedLabels())); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return err
		}
		for i := range list.Items {
			for _, label := range []string{v1alpha1.LabelProject, v1alpha1.LabelDepartment, v1alpha1.LabelNodePool} {
				if list.Items[i].Labels[label] == name {
					return fmt.Errorf("%s %s is left", kind.Kind, list.Items[i].Name)
				}
			}
		}
	}
	return nil
}
