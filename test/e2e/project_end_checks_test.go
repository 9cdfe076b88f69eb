// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
)

// kubectlOf runs kubectl against the cluster and returns all of its output.
func (c *policyTimeCluster) kubectlOf(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "kubectl", append(args, "--kubeconfig", filepath.Join(c.dir, "kubeconfig"))...).CombinedOutput()
	return string(out), err
}

// kueueWorkloadOf returns the Workload of Kueue for a Job; nil if it has none yet.
func (l *projectEnds) kueueWorkloadOf(t *testing.T, ns, name string) *unstructured.Unstructured {
	t.Helper()
	job := &batchv1.Job{}
	if err := l.adminClient.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, job); err != nil {
		t.Fatal(err)
	}
	workloads := &unstructured.UnstructuredList{}
	workloads.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "WorkloadList"})
	err := l.adminClient.List(t.Context(), workloads, client.InNamespace(ns), client.MatchingLabels{workloadkind.LabelKueueJobUID: string(job.UID)})
	if err != nil {
		t.Fatal(err)
	}
	if len(workloads.Items) == 0 {
		return nil
	}
	return &workloads.Items[0]
}

// waitForQueued waits until Kueue holds the Job.
func (l *projectEnds) waitForQueued(t *testing.T, ns, name string) {
	t.Helper()
	l.eventuallyAfterStep(t, func() error {
		if w := l.kueueWorkloadOf(t, ns, name); w == nil || conditionTrue(w, "Admitted") {
			return unexpectedState("Job "+name+" waits in the queue", w)
		}
		return nil
	})
}

// expectNotices plans the warnings of a step, which the owner gets when they are due.
func (l *projectEnds) expectNotices(t *testing.T, e *expiringProject, deadline time.Time, kind v1alpha1.NoticeKind, days ...int) {
	for i, d := range days {
		l.at(e.dueAt(t, deadline, d), func() {
			l.eventuallyAfterStep(t, func() error {
				var sent []string
				for _, n := range l.noticesTo(t, e) {
					if n.Spec.Kind == kind && n.Spec.Lead != nil && n.Spec.Deadline.Time.Equal(deadline) && n.Status.Phase == v1alpha1.NoticeSent {
						sent = append(sent, n.Spec.Lead.String())
					}
				}
				if len(sent) != i+1 {
					return unexpectedState(fmt.Sprintf("at %s, the owner of %s has %d warnings of %s", l.clockFile.Now(), e.name, i+1, deadline), sent)
				}
				return nil
			})
		})
	}
}

// noticesTo returns the Notices to the owner about the project.
func (l *projectEnds) noticesTo(t *testing.T, e *expiringProject) []v1alpha1.Notice {
	t.Helper()
	var list v1alpha1.NoticeList
	if err := l.adminClient.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(n v1alpha1.Notice) bool {
		return n.Spec.Subject == nil || n.Spec.Subject.Name != e.name || n.Spec.Recipient.Email != e.owner.Email
	})
}

// waitForRequest waits until the approval of the project's deletion is requested.
func (l *projectEnds) waitForRequest(t *testing.T, e *expiringProject) {
	t.Helper()
	var p *v1alpha1.Project
	l.eventuallyAfterStep(t, func() error {
		p = e.waitFor(t, "awaits the approval of its deletion", func(s *v1alpha1.ProjectStatus) bool {
			return s.Phase == v1alpha1.ProjectPendingDeletion && s.DeletionRequest != ""
		})
		request := &v1alpha1.Extension{}
		return l.adminClient.Get(t.Context(), client.ObjectKey{Namespace: p.NamespaceName(), Name: p.Status.DeletionRequest}, request)
	})
	out := l.runSluice(t, "projects", "--pending-deletion")
	if !strings.Contains(out, e.name) {
		t.Errorf("sluice projects --pending-deletion lacks %s:\n%s", e.name, out)
	}
}

// attemptDecisions tries to decide, to delete and to forge as others than the department's administrators.
func (l *projectEnds) attemptDecisions(t *testing.T, e *expiringProject) {
	t.Helper()
	p := e.waitForPhase(t, v1alpha1.ProjectPendingDeletion)
	request := p.Status.DeletionRequest
	for _, user := range []string{e.owner.User, "stranger@example.org"} {
		for _, args := range [][]string{
			{"approve", "project/" + e.name, "--delete", "--message", "mine"},
			{"dismiss", "project/" + e.name, "--until", "2099-01-01", "--message", "mine"},
			{"approve", request, "-n", e.name, "--message", "mine"},
			{"deny", request, "-n", e.name, "--message", "mine"},
		} {
			if out, err := l.sluiceAs(t, user, args...); err == nil {
				t.Errorf("%s did %q: %s", user, args, out)
			}
		}
		for _, args := range [][]string{{"delete", "slproj", e.name}, {"delete", "slext", request, "-n", e.name}} {
			if out, err := l.kubectlOf(t, append(args, "--as", user, "--as-group", "system:authenticated")...); err == nil {
				t.Errorf("%s did kubectl %q: %s", user, args, out)
			}
		}
	}
	if out, err := l.sluiceAs(t, expiryAdministrator, "approve", "project/"+e.name, "--delete"); err == nil || !strings.Contains(err.Error(), "message") {
		t.Errorf("a deletion was approved without a reason: %v %s", err, out)
	}
}

// approve approves the deletion as an administrator of the department, and waits until its owner has the mail.
func (l *projectEnds) approve(t *testing.T, e *expiringProject) {
	t.Helper()
	if out, err := l.sluiceAs(t, expiryAdministrator, "approve", "project/"+e.name, "--delete", "--message", "three mails without an answer"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := e.waitFor(t, "was told of the approval", func(s *v1alpha1.ProjectStatus) bool {
		return s.Next != nil && s.Next.Phase == v1alpha1.ProjectDeleting && s.Expiry.LastWarnedAt != nil
	})
	if d := p.Status.Expiry.Deletion; d == nil || d.ApprovedBy != expiryAdministrator || p.Status.Next.At.Before(ptr.To(metav1.NewTime(p.Status.Expiry.LastWarnedAt.AddDate(0, 0, 7)))) {
		t.Errorf("approved: %+v, next %+v, warned %s", d, p.Status.Next, p.Status.Expiry.LastWarnedAt)
	}
}

// deletionOf returns when the approved deletion begins.
func (l *projectEnds) deletionOf(t *testing.T, e *expiringProject) time.Time {
	t.Helper()
	p := e.waitFor(t, "has a date of its deletion", func(s *v1alpha1.ProjectStatus) bool { return s.Next != nil && s.Next.Phase == v1alpha1.ProjectDeleting })
	return p.Status.Next.At.Time
}

// waitUntilDeleted waits until the Project is gone, and checks that no GPU pod runs ungoverned in its namespace meanwhile.
func (l *projectEnds) waitUntilDeleted(t *testing.T, name string) {
	t.Helper()
	l.eventuallyAfterStep(t, func() error {
		ns, pods := &corev1.Namespace{}, &corev1.PodList{}
		err := l.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, ns)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil && ns.DeletionTimestamp.IsZero() && ns.Labels[v1alpha1.LabelProject] == "" {
			if err := l.adminClient.List(t.Context(), pods, client.InNamespace(name)); err != nil {
				return err
			}
			for i := range pods.Items {
				if _, gpu := pods.Items[i].Spec.Containers[0].Resources.Limits[withGPUDevice]; gpu {
					t.Fatalf("pod %s is in namespace %s without a project", pods.Items[i].Name, name)
				}
			}
		}
		var p v1alpha1.Project
		if err := l.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, &p); !apierrors.IsNotFound(err) {
			return unexpectedState("project "+name+" is gone", fmt.Sprintf("%v %s %+v", err, p.Status.Phase, p.Status.Conditions))
		}
		return nil
	})
}

func (l *projectEnds) waitUntilNamespaceGone(t *testing.T, name string) {
	t.Helper()
	l.eventuallyAfterStep(t, func() error {
		var ns corev1.Namespace
		if err := l.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, &ns); !apierrors.IsNotFound(err) {
			return unexpectedState("namespace "+name+" is gone", fmt.Sprint(err, ns.Status))
		}
		return nil
	})
}

// requireReleased fails the test unless the namespace stayed, without a label, and says which project it had.
func (l *projectEnds) requireReleased(t *testing.T, name, cause string) {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := l.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		t.Fatal(err)
	}
	var former struct{ Project, Department, Cause, ApprovedBy string }
	if err := json.Unmarshal([]byte(ns.Annotations[v1alpha1.AnnotationFormerProject]), &former); err != nil {
		t.Errorf("namespace %s has the annotations %v: %v", name, ns.Annotations, err)
	}
	if former.Cause != cause || former.ApprovedBy != expiryAdministrator || ns.Labels[v1alpha1.LabelProject] != "" || !ns.DeletionTimestamp.IsZero() {
		t.Errorf("namespace %s: %+v, %+v", name, former, ns.ObjectMeta)
	}
	if err := l.adminClient.Create(t.Context(), newPod(name, "new", withGPU), client.DryRunAll); err == nil {
		t.Errorf("namespace %s, which had a project, accepts pods with GPUs", name)
	}
	if out := l.runSluice(t, "projects", "--orphaned"); !strings.Contains(out, name) || !strings.Contains(out, former.Project) {
		t.Errorf("sluice projects --orphaned prints\n%s", out)
	}
}

// remainingKinds are the kinds that requireRemains lists.
var remainingKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "batch", Version: "v1", Kind: "CronJob"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Version: "v1", Kind: "ResourceQuota"},
	{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "LocalQueue"},
	{Group: v1alpha1.Group, Version: "v1alpha1", Kind: "Extension"},
}

// requireRemains waits until these objects are what a namespace holds. While its project exists, quotas, queues and the
// bindings of members are left out.
func (l *projectEnds) requireRemains(t *testing.T, ns string, want ...string) {
	t.Helper()
	slices.Sort(want)
	l.eventuallyAfterStep(t, func() error {
		var namespace corev1.Namespace
		if err := l.adminClient.Get(t.Context(), client.ObjectKey{Name: ns}, &namespace); err != nil {
			return err
		}
		kinds := remainingKinds
		if namespace.Labels[v1alpha1.LabelProject] != "" {
			kinds = kinds[:5]
		}
		var found []string
		for _, kind := range kinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := l.adminClient.List(t.Context(), list, client.InNamespace(ns)); err != nil {
				return err
			}
			for i := range list.Items {
				name, _, _ := strings.Cut(list.Items[i].GetName(), "-") // of a request, without its time
				found = append(found, kind.Kind+" "+name)
			}
		}
		slices.Sort(found)
		if diff := cmp.Diff(want, found); diff != "" {
			return unexpectedState("what remains in namespace "+ns, diff)
		}
		return nil
	})
}

// requireStopped waits until the workloads are stopped and none of their pods is left.
func (l *projectEnds) requireStopped(t *testing.T, e *expiringProject, names ...string) {
	t.Helper()
	for _, each := range names {
		kind, name, _ := strings.Cut(each, " ")
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(map[string]string{"Deployment": "apps/v1"}[kind])
		if kind != "Deployment" {
			object.SetAPIVersion("batch/v1")
		}
		object.SetKind(kind)
		l.eventuallyAfterStep(t, func() error {
			if err := l.adminClient.Get(t.Context(), client.ObjectKey{Namespace: e.name, Name: name}, object); err != nil {
				return err
			}
			if !workloadkind.IsPaused(object) || object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil] == "" {
				return unexpectedState(each+" is stopped", fmt.Sprint(object.GetAnnotations(), object.Object["spec"]))
			}
			return nil
		})
	}
	l.eventuallyAfterStep(t, func() error {
		for _, p := range l.listPods(t, e.name) {
			if _, gpu := p.Spec.Containers[0].Resources.Limits[withGPUDevice]; gpu {
				return unexpectedState("no pod with GPUs is left", p.Name)
			}
		}
		return nil
	})
}

func (l *projectEnds) requireReplicas(t *testing.T, ns, name string, want int32) {
	t.Helper()
	var d appsv1.Deployment
	if err := l.adminClient.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &d); err != nil || ptr.Deref(d.Spec.Replicas, 1) != want {
		t.Errorf("Deployment %s has %v replicas, want %d: %v", name, d.Spec.Replicas, want, err)
	}
}

// assertNotStarted checks that a Job and a Deployment did not start by themselves.
func (l *projectEnds) assertNotStarted(t *testing.T, ns, job, deployment string) {
	t.Helper()
	var j batchv1.Job
	if err := l.adminClient.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: job}, &j); err != nil || !ptr.Deref(j.Spec.Suspend, false) {
		t.Errorf("Job %s runs after the renewal: %v", job, err)
	}
	l.requireReplicas(t, ns, deployment, 0)
}
