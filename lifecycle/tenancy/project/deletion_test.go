// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/podcache"
)

// fakePods are the GPU pods of one namespace; nil if the cache is not synced.
type fakePods []podcache.Pod

func (p fakePods) HasSynced() bool { return p != nil }

func (p fakePods) InNamespace(string) iter.Seq[*podcache.Pod] {
	return func(yield func(*podcache.Pod) bool) {
		for i := range p {
			if !yield(&p[i]) {
				return
			}
		}
	}
}

// newClock returns the clock of a Job.
func newClock(name string, change func(*v1alpha1.WorkloadClockStatus)) *v1alpha1.WorkloadClock {
	c := &v1alpha1.WorkloadClock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "job-" + name},
		Spec:       v1alpha1.WorkloadClockSpec{Root: v1alpha1.WorkloadReference{APIVersion: "batch/v1", Kind: "Job", Name: name}},
	}
	change(&c.Status)
	return c
}

func holdsGPUs(s *v1alpha1.WorkloadClockStatus) { s.GPUs = resource.NewQuantity(1, resource.DecimalSI) }

func stoppedAt(reason v1alpha1.EndReason, at time.Time) func(*v1alpha1.WorkloadClockStatus) {
	return func(s *v1alpha1.WorkloadClockStatus) {
		s.Stopped = &v1alpha1.ClockStop{At: metav1.NewTime(at), Reason: reason}
	}
}

func isUnstoppable(s *v1alpha1.WorkloadClockStatus) {
	s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUnstoppable, Status: metav1.ConditionTrue, Reason: "StopWithoutEffect"}}
}

// newDeletion returns a reconciler, and a project that is being deleted for a minute.
func newDeletion(t *testing.T, pods fakePods, objects ...client.Object) (*Reconciler, *v1alpha1.Project) {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	deletedAt := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	project := &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "thesis", UID: "uid", DeletionTimestamp: &deletedAt},
		Spec: v1alpha1.ProjectSpec{
			Department: "students", Owners: []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: "Anna", Email: "anna@example.org"}}},
		},
		Status: v1alpha1.ProjectStatus{Phase: v1alpha1.ProjectDeleting, PhaseSince: &deletedAt},
	}
	r := &Reconciler{
		Client: c, Live: c, Pods: pods, Clock: policytime.System(), Notices: notification.Recorder{Client: c, Live: c},
	}
	return r, project
}

// Guards invariant 3 and data path 2: the labels and quotas of a namespace that stays hold until its
// last GPU pod has ended.
func TestReleaseWaitsForGPUPods(t *testing.T) {
	running := podcache.Pod{Namespace: "lab", Name: "train-1", Node: "dgx-1", Running: true}
	pending := podcache.Pod{Namespace: "lab", Name: "queued-1"}
	overdue := podcache.Pod{Namespace: "lab", Name: "lost-1", Node: "gone", Running: true, Deleting: true, GraceEndsAt: time.Now().Add(-time.Minute)}
	overdueOnNode := overdue
	overdueOnNode.Node = "dgx-1"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	tests := map[string]struct {
		pods    fakePods
		clocks  []client.Object
		change  func(*v1alpha1.Project)
		reason  string
		message string
	}{
		"no pods":                          {pods: fakePods{}},
		"a running pod":                    {pods: fakePods{running}, reason: ReasonStoppingWorkloads, message: "waiting for its GPU pods to end: train-1"},
		"a pod that is not bound":          {pods: fakePods{pending}, reason: ReasonStoppingWorkloads, message: "queued-1"},
		"a pod on a lost node":             {pods: fakePods{overdue}},
		"a pod that ignores its deletion":  {pods: fakePods{overdueOnNode}, reason: ReasonStoppingWorkloads, message: "lost-1"},
		"before the pods are known":        {reason: ReasonStoppingWorkloads},
		"before admission has observed it": {pods: fakePods{}, reason: ReasonStoppingWorkloads, change: func(p *v1alpha1.Project) { p.Status.PhaseSince = &metav1.Time{Time: time.Now()} }},
		"before the phase is recorded":     {pods: fakePods{}, reason: ReasonStoppingWorkloads, change: func(p *v1alpha1.Project) { p.Status.Phase = v1alpha1.ProjectActive }},
		"an unstoppable workload": {
			pods: fakePods{running}, clocks: []client.Object{newClock("train", isUnstoppable)}, reason: ReasonWorkloadUnstoppable,
			message: "Sluice could not stop Job train, whose clock says why: end the pods, and the deletion continues",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, project := newDeletion(t, tc.pods, append(tc.clocks, node.DeepCopy())...)
			if tc.change != nil {
				tc.change(project)
			}
			waits, err := r.waitForGPUWork(t.Context(), project, "lab")
			if err != nil {
				t.Fatal(err)
			}
			if (waits == nil) != (tc.reason == "") || waits != nil && (waits.reason != tc.reason || !strings.Contains(waits.message, tc.message)) {
				t.Errorf("waits for %+v, want %s with %q", waits, tc.reason, tc.message)
			}
		})
	}
}

func TestJoinNamesIsBounded(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("pod-", i))
	}
	if got := joinNames(names); !strings.HasSuffix(got, "pod-9, +990") {
		t.Errorf("names = %s", got)
	}
}

// The Notice of a deletion goes once to each owner and contact, names what ended and what stays, and
// has no owner with which it would be deleted.
func TestDeletionIsRecorded(t *testing.T) {
	department := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "students"}, Spec: v1alpha1.DepartmentSpec{
		Contacts: []v1alpha1.Contact{{Name: "GPU desk", Email: "gpu-desk@example.org"}, {Name: "Anna", Email: "ANNA@example.org"}},
	}}
	r, project := newDeletion(t, fakePods{}, department,
		newClock("running", holdsGPUs), newClock("stopped", stoppedAt(v1alpha1.EndProjectDeleted, time.Now())),
		newClock("earlier", stoppedAt(v1alpha1.EndProjectDeleted, time.Now().Add(-time.Hour))),
		newClock("limit", stoppedAt(v1alpha1.EndMaxRuntime, time.Now())))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
	for range 2 {
		if err := r.recordDeletion(t.Context(), project, namespace, retention{mail.CauseVolumeClaims, 2}, removal{}); err != nil {
			t.Fatal(err)
		}
	}
	var notices v1alpha1.NoticeList
	if err := r.Client.List(t.Context(), &notices); err != nil {
		t.Fatal(err)
	}
	var to []string
	want := map[string]string{
		mail.InputProject: "thesis", mail.InputDepartment: "students", mail.InputNamespace: "lab",
		mail.InputDeletedAt: project.DeletionTimestamp.UTC().Format(time.RFC3339), mail.InputCause: mail.CauseVolumeClaims,
		mail.InputKept: "Namespace=1,PersistentVolumeClaim=2", mail.InputStopped: "2", mail.InputEnded: "Job running, Job stopped",
	}
	for _, n := range notices.Items {
		to = append(to, string(n.Spec.Recipient.Email))
		if diff := cmp.Diff(want, n.Spec.Inputs); diff != "" || n.Spec.Kind != v1alpha1.NoticeProjectDeleted || len(n.OwnerReferences) > 0 {
			t.Errorf("notice %s, kind %s, owners %v; inputs (-want +got):\n%s", n.Name, n.Spec.Kind, n.OwnerReferences, diff)
		}
	}
	slices.Sort(to)
	if diff := cmp.Diff([]string{"anna@example.org", "gpu-desk@example.org"}, to); diff != "" {
		t.Errorf("recipients (-want +got):\n%s", diff)
	}
}

// The Notice of a project without a namespace or a department names neither.
func TestDeletionWithoutNamespaceIsRecorded(t *testing.T) {
	r, project := newDeletion(t, fakePods{})
	if err := r.recordDeletion(t.Context(), project, nil, retention{}, removal{}); err != nil {
		t.Fatal(err)
	}
	var notices v1alpha1.NoticeList
	if err := r.Client.List(t.Context(), &notices); err != nil || len(notices.Items) != 1 {
		t.Fatalf("%d notices, %v", len(notices.Items), err)
	}
	if inputs := notices.Items[0].Spec.Inputs; inputs[mail.InputNamespace] != "" || inputs[mail.InputKept]+inputs[mail.InputRemoved] != "" {
		t.Errorf("inputs = %v", inputs)
	}
}
