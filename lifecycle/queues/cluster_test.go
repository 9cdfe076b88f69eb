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
	"sluice.dev/lifecycle/render"
	"sluice.dev/test/cluster/clustertest"
)

// Each subject has what policies render for it, and says so; a change of what they
// are told changes it, and without a policy it goes, the finalizer too.
func TestSubjectsHaveTheirQueuesAndLoseThem(t *testing.T) {
	install(t)
	w := start(t)
	pool := w.pool("q-dgx", v1alpha1.SchedulerKueue)
	department := w.department("q-cs", pool.Name)
	other := w.department("q-math", pool.Name)
	project := w.project("q-thesis", department.Name, pool.Name)
	w.policies.are(enginePolicy)

	w.says(pool, &pool.Status.Conditions, metav1.ConditionTrue, "ResourceFlavor q-dgx")
	w.says(department, &department.Status.Conditions, metav1.ConditionTrue, "Cohort q-cs")
	w.says(project, &project.Status.Conditions, metav1.ConditionTrue, "ClusterQueue q-thesis, LocalQueue default")
	w.becomes(a("Cohort", "q-cs"), "nominal", "2")
	w.becomes(a("Cohort", "q-math"), "nominal", "0")
	w.becomes(a("ClusterQueue", "q-thesis"), "cohortName", "q-cs")
	w.becomes(a("LocalQueue", "q-thesis"), "clusterQueue", "q-thesis")
	for _, object := range []client.Object{pool, department, other} {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || !slices.Contains(object.GetFinalizers(), v1alpha1.FinalizerRendered) {
			t.Errorf("%s has the finalizers %v (%v)", object.GetName(), object.GetFinalizers(), err)
		}
	}

	// A move.
	w.merge(project, `{"spec":{"department":"q-math"}}`)
	w.becomes(a("ClusterQueue", "q-thesis"), "cohortName", "q-math")
	w.becomes(a("Cohort", "q-cs"), "nominal", "0")
	w.becomes(a("Cohort", "q-math"), "nominal", "2")

	// Another scheduler: the new quota, and then no queue.
	w.merge(pool, `{"spec":{"scheduler":"kube-scheduler"}}`)
	for _, object := range []*unstructured.Unstructured{
		a("ClusterQueue", "q-thesis"), a("LocalQueue", "q-thesis"), a("Cohort", "q-cs"), a("ResourceFlavor", "q-dgx"),
	} {
		w.goes(object)
	}
	w.goes(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "q-thesis", Name: "sluice-kueue"}})
	w.says(project, &project.Status.Conditions, metav1.ConditionTrue, "no queue is needed")
	w.says(pool, &pool.Status.Conditions, metav1.ConditionTrue, "no queue is needed")
	for _, object := range []client.Object{pool, department, other} {
		clustertest.Eventually(t, func() error {
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || slices.Contains(object.GetFinalizers(), v1alpha1.FinalizerRendered) {
				return fmt.Errorf("%s has the finalizers %v (%w)", object.GetName(), object.GetFinalizers(), err)
			}
			return nil
		})
	}

	// And back, and without the pool, and with it, and away with all of it.
	w.merge(pool, `{"spec":{"scheduler":"kueue"}}`)
	w.becomes(a("ClusterQueue", "q-thesis"), "cohortName", "q-math")
	w.merge(project, `{"spec":{"nodePools":[]}}`)
	w.goes(a("ClusterQueue", "q-thesis"))
	project.Spec.NodePools = gpus("1", pool.Name)
	before := project.DeepCopy()
	before.Spec.NodePools = nil
	if err := w.Patch(t.Context(), project, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.becomes(a("ClusterQueue", "q-thesis"), "cohortName", "q-math")
	for _, object := range []client.Object{project, department, other, pool} {
		if err := w.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		w.goes(object)
	}
	for _, object := range []*unstructured.Unstructured{a("ClusterQueue", "q-thesis"), a("Cohort", "q-cs"), a("Cohort", "q-math"), a("ResourceFlavor", "q-dgx")} {
		w.goes(object)
	}
	w.quiet()
}

// What somebody changes is put right within a second; a status that an engine
// writes is nobody's business, and nothing is written where nothing changes.
func TestDriftIsPutRight(t *testing.T) {
	install(t)
	w := start(t)
	w.policies.are(enginePolicy)
	pool := w.pool("drift", v1alpha1.SchedulerKueue)
	department := w.department("drift", pool.Name)
	w.project("drift", department.Name, pool.Name)
	w.becomes(a("LocalQueue", "drift"), "clusterQueue", "drift")
	w.becomes(a("Cohort", "drift"), "nominal", "2")
	as := client.FieldOwner("somebody")
	for what, change := range map[string]func(*unstructured.Unstructured){
		"changed": func(o *unstructured.Unstructured) {
			w.merge(o, `{"spec":{"cohortName":"mine","parentName":"mine"}}`, as)
		},
		"the subject's off": func(o *unstructured.Unstructured) {
			w.merge(o, `{"metadata":{"labels":{"sluice.dev/project":null,"sluice.dev/department":null}}}`, as)
		},
		"another's": func(o *unstructured.Unstructured) {
			label := map[string]string{"Cohort": v1alpha1.LabelDepartment, "ClusterQueue": v1alpha1.LabelProject}[o.GetKind()]
			w.merge(o, `{"metadata":{"labels":{"`+label+`":"other"}}}`, as)
		},
		"all labels off": func(o *unstructured.Unstructured) { w.merge(o, `{"metadata":{"labels":null}}`, as) },
		"deleted": func(o *unstructured.Unstructured) {
			if err := w.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for object, parent := range map[*unstructured.Unstructured][2]string{
			a("ClusterQueue", "drift"): {"cohortName", "drift"}, a("Cohort", "drift"): {"parentName", "sluice"},
		} {
			t.Run(what+"/"+object.GetKind(), func(t *testing.T) {
				if _, err := w.spec(object, parent[0]); err != nil {
					t.Fatal(err)
				}
				labels, uid := object.GetLabels(), object.GetUID()
				change(object)
				clustertest.EventuallyWithin(t, time.Second, func() error {
					got, err := w.spec(object, parent[0])
					if made := object.GetUID() != uid; err != nil || got != parent[1] || !equality.Semantic.DeepEqual(object.GetLabels(), labels) || made != (what == "deleted") {
						return fmt.Errorf("%s is %q, labels %v (%w)", parent[0], got, object.GetLabels(), err)
					}
					return nil
				})
			})
		}
	}
	w.settles()
	before := w.writes.Load()
	queue := a("ClusterQueue", "drift")
	if _, err := w.spec(queue, "cohortName"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		status := queue.DeepCopy()
		status.Object["status"] = map[string]any{"pending": int64(i)}
		if err := w.Status().Patch(t.Context(), status, client.MergeFrom(queue)); err != nil {
			t.Fatal(err)
		}
	}
	w.settles()
	if after := w.writes.Load(); after != before {
		t.Errorf("%d writes because of a status", after-before)
	}
	w.quiet()
}

// settles waits until lifecycle has written nothing for two seconds.
func (w *world) settles() {
	w.Helper()
	last, since := w.writes.Load(), time.Now()
	clustertest.Eventually(w, func() error {
		if now := w.writes.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("it writes: %d times until now", last)
		}
		return nil
	})
}

// Kinds that are not there are no error, and what they are for follows as soon as
// they are; and once they are gone again, subjects are free to go.
func TestKindsThatComeLater(t *testing.T) {
	uninstall(t)
	w := start(t)
	pool := w.pool("later", v1alpha1.SchedulerKueue)
	department := w.department("later", pool.Name)
	project := w.project("later", department.Name, pool.Name)
	w.policies.are(enginePolicy)
	w.says(department, &department.Status.Conditions, metav1.ConditionFalse, "the API server does not serve kueue.x-k8s.io/v1beta2 Cohort; install")
	w.says(project, &project.Status.Conditions, metav1.ConditionFalse, "the API server does not serve kueue.x-k8s.io/v1beta2 ClusterQueue; install")
	w.quiet()
	install(t)
	w.says(department, &department.Status.Conditions, metav1.ConditionTrue, "Cohort later")
	w.says(project, &project.Status.Conditions, metav1.ConditionTrue, "ClusterQueue later, LocalQueue default")
	w.says(pool, &pool.Status.Conditions, metav1.ConditionTrue, "ResourceFlavor later")
	w.merge(a("Cohort", "later"), `{"spec":{"parentName":"mine"}}`, client.FieldOwner("somebody"))
	w.becomes(a("Cohort", "later"), "parentName", "sluice")
	w.quiet()
	uninstall(t)
	w.says(department, &department.Status.Conditions, metav1.ConditionFalse, "does not serve")
	for _, object := range []client.Object{project, department, pool} {
		if err := w.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		w.goes(object)
	}
	w.quiet()
}

// What somebody else made is neither changed nor taken away; handed over it is.
func TestWhatIsSomebodyElsesStays(t *testing.T) {
	install(t)
	w := start(t)
	theirs := a("Cohort", "foreign")
	theirs.Object["spec"] = map[string]any{"parentName": "theirs"}
	made(w, theirs)
	// It bears the labels of the department, and is somebody else's all the same.
	lookalike := a("ClusterQueue", "foreign.extra")
	lookalike.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, v1alpha1.LabelDepartment: "foreign"})
	made(w, lookalike)
	w.policies.are(enginePolicy)
	pool := w.pool("foreign", v1alpha1.SchedulerKueue)
	department := w.department("foreign", pool.Name)
	w.says(department, &department.Status.Conditions, metav1.ConditionFalse, "Cohort foreign is there and is not Sluice's; rename or delete it, or hand it over with: kubectl annotate cohort.kueue.x-k8s.io foreign sluice.dev/adopt-by=foreign")
	if parent, err := w.spec(theirs, "parentName"); err != nil || parent != "theirs" || len(theirs.GetLabels()) != 0 {
		t.Errorf("their cohort = %v, %v", theirs.Object, err)
	}
	w.merge(theirs, `{"metadata":{"annotations":{"sluice.dev/adopt-by":"foreign"}}}`)
	w.merge(department, `{"metadata":{"annotations":{"look":"again"}}}`)
	w.becomes(theirs, "parentName", "sluice")
	w.says(department, &department.Status.Conditions, metav1.ConditionTrue, "Cohort foreign")
	if err := w.Delete(t.Context(), department); err != nil {
		t.Fatal(err)
	}
	w.goes(department)
	w.goes(a("Cohort", "foreign"))
	if _, err := w.spec(lookalike, "cohortName"); err != nil {
		t.Errorf("what somebody else made is gone: %v", err)
	}
	w.quiet()
}

// A field that the kind does not have is refused, and said.
func TestAFieldThatTheKindDoesNotHave(t *testing.T) {
	install(t)
	w := start(t)
	w.policies.are(`package wrong
objects contains {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": input.department.name}, "spec": {"nominall": "1"}} if input.object.kind == "Department"
`)
	department := w.department("misspelt")
	w.says(department, &department.Status.Conditions, metav1.ConditionFalse, "nominall")
	w.goes(a("Cohort", "misspelt"))
}

// Wherever lifecycle crashes, nothing is left that nobody takes back.
func TestACrashLeavesNothing(t *testing.T) {
	install(t)
	for writes := range 9 {
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			name := fmt.Sprintf("crash-%d", writes)
			w := start(t)
			w.limit.Store(int64(writes))
			pool := w.pool(name, v1alpha1.SchedulerKueue)
			department := w.department(name, pool.Name)
			project := w.project(name, department.Name, pool.Name)
			w.policies.are(enginePolicy)
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
			next := start(t)
			next.policies.are("package nothing\n")
			for _, object := range []client.Object{project, department, pool} {
				next.goes(object)
			}
			clustertest.Eventually(t, func() error { return next.nothingOf(name) })
		})
	}
}

// A finalizer that somebody took off leaves nothing either.
func TestASubjectThatIsGoneByForce(t *testing.T) {
	install(t)
	w := start(t)
	w.policies.are(enginePolicy)
	pool := w.pool("force", v1alpha1.SchedulerKueue)
	department := w.department("force", pool.Name)
	w.becomes(a("Cohort", "force"), "parentName", "sluice")
	w.settles()
	w.stop()
	w.merge(department, `{"metadata":{"finalizers":null}}`)
	if err := w.Delete(t.Context(), department); err != nil {
		t.Fatal(err)
	}
	next := start(t)
	next.policies.are(enginePolicy)
	next.goes(a("Cohort", "force"))
}

// nothingOf tells whether no object of lifecycle's bears a subject's name.
func (w *world) nothingOf(name string) error {
	for _, kind := range render.QueueKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := w.List(context.Background(), list, client.MatchingLabels(render.Ours())); meta.IsNoMatchError(err) {
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
