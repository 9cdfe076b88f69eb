// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The deletion of a project with running GPU work is refused until it is confirmed. Then the work is
// stopped before the namespace, which holds a volume, loses its label and quotas, and the owner and
// the contacts get a mail. Work that is not bound yet does not start in the namespace without a
// project. Guards invariants 2 and 3.
func TestProjectWithRunningWorkDeleted(t *testing.T) {
	t.Parallel()
	const name, owner, contact = "ended", "ended-owner@example.org", "ended-contact@example.org"
	department := departmentNamed("ended")
	department.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("dgx", "1", "2")}
	department.Spec.Contacts = []v1alpha1.Contact{{Name: "GPU desk", Email: contact}}
	create(t, department)
	p := create(t, newProject(name, func(p *v1alpha1.Project) {
		p.Spec.Department, p.Spec.NodePools = department.Name, []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "2")}
		p.Spec.Owners[0].Email = owner
	}))
	waitForProjectReady(t, p)
	ns := newNamespace(name)
	t.Cleanup(func() { deleteAndWait(t, ns) })
	create(t, newVolumeClaim(name, "data"))
	web := create(t, newWebDeployment(name))
	binding := create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "mine"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: name, Name: "default"}},
	})
	running, unbound := newGPUJob(name, "running", withGPU), newGPUJob(name, "unbound", withGPU, func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{"example.org/never": "true"}
	})
	for _, job := range []*batchv1.Job{running, unbound} {
		eventually(t, func() error { return sharedCluster.adminClient.Create(t.Context(), job) })
	}
	waitForRunningPod(t, sharedCluster.clientset, running)

	eventually(t, func() error { // the webhook knows running work from its clock
		err := sharedCluster.adminClient.Delete(t.Context(), p, client.DryRunAll)
		if err == nil {
			return unexpectedState("the deletion is refused", err)
		}
		return nil
	})
	expectRejection(t, sharedCluster.adminClient.Delete(t.Context(), p), apierrors.IsForbidden,
		"its deletion would end running GPU work:", "Job ended/running: 1 GPU, created by ", ", running since 20",
		"To confirm: kubectl annotate slproj ended sluice.dev/confirm-delete=ended, and delete it again")
	if err := refresh(t, p); err != nil || !p.DeletionTimestamp.IsZero() {
		t.Fatalf("after the refusal: %v, %v", p.DeletionTimestamp, err)
	}

	sharedCluster.mustKubectl(t, "annotate", "slproj", name, v1alpha1.AnnotationConfirmDelete+"="+name)
	if err := sharedCluster.adminClient.Delete(t.Context(), p); err != nil {
		t.Fatalf("delete the project after the confirmation: %v", err)
	}
	eventuallyRejected(t, func() error {
		return sharedCluster.adminClient.Create(t.Context(), newPod(name, "new", withGPU), client.DryRunAll)
	}, "project ended is being deleted: it accepts no new pods with GPUs")
	eventuallyLong(t, func() error {
		if err := refresh(t, ns); err != nil {
			return err
		}
		if len(listJobPods(t, sharedCluster.clientset, running))+len(listJobPods(t, sharedCluster.clientset, unbound)) > 0 &&
			ns.Labels[v1alpha1.LabelProject] == "" {
			t.Fatal("the namespace has no label although a GPU pod exists in it")
		}
		return checkDeleted(t.Context(), p)
	})
	assertReleasedAfterStop(t, ns, running, unbound)
	for _, object := range []client.Object{web, binding} {
		if err := checkDeleted(t.Context(), object); err != nil {
			t.Errorf("%T: %v", object, err)
		}
	}
	for _, to := range []string{owner, contact} {
		assertDeletionMail(t, to)
	}
}

func newWebDeployment(namespace string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod(namespace, "web").Spec},
		},
	}
}

func newVolumeClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// assertReleasedAfterStop checks the namespace of a deleted project, and that its Jobs were stopped before they were deleted.
func assertReleasedAfterStop(t *testing.T, ns *corev1.Namespace, jobs ...*batchv1.Job) {
	t.Helper()
	if err := refresh(t, ns); err != nil || !ns.DeletionTimestamp.IsZero() || ns.Labels[v1alpha1.LabelProject] != "" ||
		ns.Labels[v1alpha1.LabelFormerProject] != ns.Name || !strings.Contains(ns.Annotations[v1alpha1.AnnotationFormerProject], `"cause":"VolumeClaims"`) {
		t.Errorf("namespace = %+v, %v; want the namespace of a former project", ns.ObjectMeta, err)
	}
	var quotas corev1.ResourceQuotaList
	if err := sharedCluster.adminClient.List(t.Context(), &quotas, client.InNamespace(ns.Name)); err != nil || len(quotas.Items) > 0 {
		t.Errorf("%d quotas are left, %v", len(quotas.Items), err)
	}
	for _, job := range jobs {
		if err := checkDeleted(t.Context(), job); err != nil {
			t.Errorf("Job %s: %v", job.Name, err)
		}
		eventually(t, func() error { // by garbage collection
			if pods := listJobPods(t, sharedCluster.clientset, job); len(pods) > 0 {
				return unexpectedState("no pods of Job "+job.Name, len(pods))
			}
			return nil
		})
		var clock v1alpha1.WorkloadClock
		key := client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.WorkloadClockName("batch", "Job", job.Name)}
		if err := sharedCluster.adminClient.Get(t.Context(), key, &clock); err != nil ||
			clock.Status.Stopped == nil || clock.Status.Stopped.Reason != v1alpha1.EndProjectDeleted {
			t.Errorf("the clock of Job %s has %+v, %v", job.Name, clock.Status.Stopped, err)
		}
	}
	expectRejection(t, sharedCluster.adminClient.Create(t.Context(), newPod(ns.Name, "late", withGPU)), apierrors.IsForbidden, "namespace ended is not a project's")
	// The API server may know the deleted quota for a moment longer.
	eventually(t, func() error { return sharedCluster.adminClient.Create(t.Context(), newVolumeClaim(ns.Name, "later")) })
}

// assertDeletionMail waits for the mail about the project that the test deleted.
func assertDeletionMail(t *testing.T, to string) {
	t.Helper()
	var list struct{ Mails []sinkMail }
	eventually(t, func() error {
		out, err := exec.CommandContext(t.Context(), sharedCluster.binary, "mail", "list", "--to", to, "--output", "json", "--dir", sharedCluster.dir).Output()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &list); err != nil {
			return err
		}
		if len(list.Mails) != 1 {
			return unexpectedState("one mail to "+to, string(out))
		}
		return nil
	})
	var shown sinkMail
	out, err := exec.CommandContext(t.Context(), sharedCluster.binary,
		"mail", "show", strconv.Itoa(list.Mails[0].Number), "--output", "json", "--dir", sharedCluster.dir).Output()
	if err == nil {
		err = json.Unmarshal(out, &shown)
	}
	if err != nil {
		t.Fatalf("show the mail to %s: %v", to, err)
	}
	text := shown.Subject + "\n" + strings.Join(strings.Fields(shown.Text), " ")
	for _, want := range []string{
		"Project ended was deleted", "This ended 2 workloads with GPUs: Job running, Job unbound.",
		"Namespace ended stays, because it holds volumes.", "Deleted: 1 Deployment, 2 Jobs.", "Kept: 1 Namespace, 1 volume.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the mail to %s does not contain %q:\n%s\n%s", to, want, shown.Subject, shown.Text)
		}
	}
}

// Lifecycle may delete projects, and does so only after an approval: the API server refuses it before, in a defect, too.
func TestLifecycleDeletesNoActiveProject(t *testing.T) {
	t.Parallel()
	config := rest.CopyConfig(sharedCluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:sluice-system:lifecycle", Groups: []string{"system:authenticated"}}
	lifecycle := clientFor(t, config)
	expectError(t, lifecycle.Delete(t.Context(), newProject("thesis-mueller"), client.DryRunAll), "is not in the phase Deleting")
}
