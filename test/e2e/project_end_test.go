// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// Projects from their expiry to their deletion, on Kueue: one with running, queued and scheduled work and a volume, one
// without a volume, one that adopted its namespace, one whose namespace was deleted by hand, one that is renewed after it
// was suspended, one whose deletion is dismissed twice, one whose approval a renewal undoes in the last minute; and a
// research project that no owner confirms, which is dismissed, and a year later approved. What remains is compared with
// a list each time. Guards invariants 3, 6 and 11 of the design, and that no volume is deleted.
func TestProjectsEndInOrder(t *testing.T) {
	c := newPolicyTimeCluster(t, "--scheduler", "kueue")
	validity := func(text string) *period.Period { return ptr.To(period.MustParsePeriod(text)) }
	students := c.createExpiryDepartment(t, "end-students", v1alpha1.ProjectTerms{
		Validity: validity("P6M"), Renewals: v1alpha1.RenewalTerms{SelfService: ptr.To(int32(1))},
		SuspendAfter: ptr.To(period.MustParseDuration("14d")), DeleteAfter: ptr.To(period.MustParseDuration("30d")),
	}, onWholeGPUs)
	research := c.createExpiryDepartment(t, "end-research", v1alpha1.ProjectTerms{
		Validity: validity("P12M"), AtExpiry: v1alpha1.ExpiryConfirm, DeleteAfter: ptr.To(period.MustParseDuration("60d")),
	}, onWholeGPUs)
	c.createForTest(t, newNamespace("end-adopted", v1alpha1.AnnotationAdoptBy, "end-adopter"))
	c.createForTest(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "end-adopted", Name: "older"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "auditor@example.org"}},
	})

	l := &projectEnds{policyTimeCluster: c}
	l.planThesis(t, c.createExpiringProject(t, students, "end-thesis", usesWholeGPUs))
	l.planWithoutVolume(t, c.createExpiringProject(t, students, "end-plain", usesWholeGPUs))
	l.planAdopted(t, c.createExpiringProject(t, students, "end-adopter", usesWholeGPUs, inNamespace("end-adopted")))
	l.planNamespaceDeleted(t, c.createExpiringProject(t, students, "end-byhand", usesWholeGPUs))
	l.planRenewed(t, c.createExpiringProject(t, students, "end-renewed", usesWholeGPUs))
	l.planDismissed(t, c.createExpiringProject(t, students, "end-dismissed", usesWholeGPUs))
	l.planApprovalUndone(t, c.createExpiringProject(t, students, "end-undone", usesWholeGPUs))
	l.planLab(t, c.createExpiringProject(t, research, "end-lab", usesWholeGPUs))
	l.run(t)
}

// The node pool of the sample for Kueue.
func onWholeGPUs(d *v1alpha1.Department) {
	d.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("whole", "0", "16")}
}

func usesWholeGPUs(p *v1alpha1.Project) {
	p.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("whole", "0", "2")}
}

// projectEnds are moments in the last weeks of several projects.
type projectEnds struct {
	*policyTimeCluster
	moments []moment
}

func (l *projectEnds) at(when time.Time, do func()) { l.moments = append(l.moments, moment{when, do}) }

// run advances to each moment in their order. What happens at one can plan others.
func (l *projectEnds) run(t *testing.T) {
	t.Helper()
	for len(l.moments) > 0 {
		slices.SortStableFunc(l.moments, func(a, b moment) int { return cmp.Compare(a.at.Unix(), b.at.Unix()) })
		next := l.moments[:1]
		l.moments = l.moments[1:]
		l.runMoments(t, next)
	}
}

// The terms of the students' department.
const (
	suspendAfterDays = 14
	deleteAfterDays  = 30
)

// planSuspension plans the steps up to the suspension, with their warnings.
func (l *projectEnds) planSuspension(t *testing.T, e *expiringProject) {
	end := e.endOfPeriod(t, 1)
	suspension := end.AddDate(0, 0, suspendAfterDays)
	l.expectNotices(t, e, end, v1alpha1.NoticeProjectExpiring, 30, 7, 1)
	l.at(end, func() { e.waitForPhase(t, v1alpha1.ProjectExpired) })
	l.expectNotices(t, e, suspension, v1alpha1.NoticeProjectSuspending, 7, 1)
	l.at(suspension, func() { e.waitForPhase(t, v1alpha1.ProjectSuspended) })
}

// planRequest plans the request of the deletion, with its warnings, and returns its time.
func (l *projectEnds) planRequest(t *testing.T, e *expiringProject) time.Time {
	deletable := e.endOfPeriod(t, 1).AddDate(0, 0, deleteAfterDays)
	l.expectNotices(t, e, deletable, v1alpha1.NoticeProjectDeletion, 7, 1)
	l.at(deletable, func() { l.waitForRequest(t, e) })
	return deletable
}

// planThesis plans a project with all kinds of work and a volume. Its deletion is approved.
func (l *projectEnds) planThesis(t *testing.T, e *expiringProject) {
	end := e.endOfPeriod(t, 1)
	running, queued := newJobWorkload(e.name, "running", withGPUDevice), newJobWorkload(e.name, "queued", withGPUDevice)
	web := newDeploymentWorkload(e.name, "web", withGPUDevice, withWorkloadType(v1alpha1.WorkloadTrain))
	l.at(end.AddDate(0, 0, -31), func() {
		l.createForTest(t, newVolumeClaim(e.name, "data"))
		l.startWorkloads(t, running, web) // the limit of the project
		l.createForTest(t, queued.Object)
		l.createForTest(t, newGPUCronJob(e.name, "nightly"))
		l.createForTest(t, newCPUDeployment(e.name, "files"))
		l.waitForQueued(t, e.name, "queued")
	})
	l.planSuspension(t, e)
	l.at(end, func() { l.assertRunning(t, "after the expiry", running, web) })
	l.at(end.AddDate(0, 0, suspendAfterDays), func() {
		l.requireStopped(t, e, "Job running", "Job queued", "CronJob nightly", "Deployment web")
		l.requireRemains(t, e.name, "Job running", "Job queued", "CronJob nightly", "Deployment web", "Deployment files", "PersistentVolumeClaim data")
		l.requireReplicas(t, e.name, "files", 1)
	})
	deletable := l.planRequest(t, e)
	l.at(deletable, func() { l.attemptDecisions(t, e) })
	l.at(deletable.AddDate(0, 0, 1).Add(10*time.Hour), func() {
		l.approve(t, e)
		l.at(l.deletionOf(t, e).Add(-time.Minute), func() { e.waitForPhase(t, v1alpha1.ProjectPendingDeletion) })
		l.at(l.deletionOf(t, e), func() {
			l.waitUntilDeleted(t, e.name)
			l.requireReleased(t, e.name, "VolumeClaims")
			l.requireRemains(t, e.name, "Extension deletion", "PersistentVolumeClaim data")
		})
	})
}

// planWithoutVolume plans a project of whose namespace nothing remains.
func (l *projectEnds) planWithoutVolume(t *testing.T, e *expiringProject) {
	l.planSuspension(t, e)
	deletable := l.planRequest(t, e)
	l.at(deletable.Add(11*time.Hour), func() {
		l.approve(t, e)
		l.at(l.deletionOf(t, e), func() {
			l.waitUntilDeleted(t, e.name)
			l.waitUntilNamespaceGone(t, e.name)
			// Three warnings of the expiry, two of the suspension, two of the request; these three; the approval, the deletion.
			e.waitForOwnerMails(t, 12)
		})
	})
}

// planAdopted plans a project whose namespace is older than itself and stays.
func (l *projectEnds) planAdopted(t *testing.T, e *expiringProject) {
	const ns = "end-adopted"
	l.planSuspension(t, e)
	deletable := l.planRequest(t, e)
	l.at(deletable.Add(11*time.Hour), func() {
		l.approve(t, e)
		l.at(l.deletionOf(t, e), func() {
			l.waitUntilDeleted(t, e.name)
			l.requireReleased(t, ns, "NamespaceAdopted")
			l.requireRemains(t, ns, "Extension deletion", "RoleBinding older")
		})
	})
}

// planNamespaceDeleted plans a project whose namespace is deleted by hand after the suspension. It is made again, with the
// request of the deletion.
func (l *projectEnds) planNamespaceDeleted(t *testing.T, e *expiringProject) {
	l.planSuspension(t, e)
	deletable := l.planRequest(t, e)
	l.at(deletable.AddDate(0, 0, -3), func() { l.deleteNamespace(t, e) })
	l.at(deletable.Add(9*time.Hour), func() {
		l.deleteNamespace(t, e)
		l.waitForRequest(t, e)
	})
	l.at(deletable.Add(11*time.Hour), func() {
		l.approve(t, e)
		l.deleteNamespace(t, e) // the approval does not go with it
		l.at(l.deletionOf(t, e), func() {
			l.waitUntilDeleted(t, e.name)
			l.waitUntilNamespaceGone(t, e.name)
		})
	})
}

// planRenewed plans a project that is renewed after its suspension: nothing starts by itself, all can be started.
func (l *projectEnds) planRenewed(t *testing.T, e *expiringProject) {
	end := e.endOfPeriod(t, 1)
	job, web := newJobWorkload(e.name, "train", withGPUDevice), newDeploymentWorkload(e.name, "web", withGPUDevice, withWorkloadType(v1alpha1.WorkloadTrain))
	l.at(end.AddDate(0, 0, -2), func() { l.startWorkloads(t, job, web) })
	l.planSuspension(t, e)
	l.at(end.AddDate(0, 0, suspendAfterDays), func() {
		l.requireStopped(t, e, "Job train", "Deployment web")
		if out, err := l.kubectlOf(t, "scale", "deployment/web", "--replicas=1", "-n", e.name); err == nil || !strings.Contains(out, "sluice renew project/"+e.name) {
			t.Errorf("a suspended project starts work again: %v %s", err, out)
		}
	})
	l.at(end.AddDate(0, 0, suspendAfterDays+2), func() {
		e.renew(t)
		p := e.waitForPhase(t, v1alpha1.ProjectActive)
		if p.Status.ClosedAt != nil || p.Status.ExpiresAt == nil || !p.Status.ExpiresAt.Time.Equal(e.endOfPeriod(t, 2)) {
			t.Errorf("renewed: %+v", p.Status)
		}
		l.assertNotStarted(t, e.name, "train", "web")
		for _, args := range [][]string{
			{"scale", "deployment/web", "--replicas=1", "-n", e.name},
			// Kueue starts the Job.
			{"patch", "workloads.kueue.x-k8s.io", "-n", e.name, l.kueueWorkloadOf(t, e.name, "train").GetName(), "--type=merge", "-p", `{"spec":{"active":true}}`},
		} {
			l.eventuallyAfterStep(t, func() error {
				if out, err := l.kubectlOf(t, args...); err != nil {
					return unexpectedState("work starts by "+strings.Join(args, " "), out)
				}
				return nil
			})
		}
		for _, w := range []workload{job, web} {
			l.waitForClock(t, w, "runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
		}
	})
}

// planDismissed plans a project whose deletion is dismissed twice, and that is asked again at the end of each.
func (l *projectEnds) planDismissed(t *testing.T, e *expiringProject) {
	l.planSuspension(t, e)
	deletable := l.planRequest(t, e)
	dismissed := func(when time.Time, days int) (again time.Time) {
		until := period.DateOf(when.AddDate(0, 0, days), berlinZone(t))
		l.at(when.Add(10*time.Hour), func() {
			l.waitForRequest(t, e)
			if out, err := l.sluiceAs(t, expiryAdministrator, "dismiss", "project/"+e.name, "--until", until.String(), "--message", "the exam is late"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p := e.waitFor(t, "is suspended again", func(s *v1alpha1.ProjectStatus) bool { return s.Phase == v1alpha1.ProjectSuspended && s.Next != nil })
			if p.Status.ClosedAt == nil || !p.Status.Next.At.Time.Equal(until.End(berlinZone(t))) || p.Status.Next.Phase != v1alpha1.ProjectPendingDeletion {
				t.Errorf("dismissed until %s: %+v", until, p.Status)
			}
		})
		return until.End(berlinZone(t))
	}
	again := dismissed(deletable, 40)
	l.expectNotices(t, e, again, v1alpha1.NoticeProjectDeletion, 30, 7, 1)
	again = dismissed(again, 60)
	l.expectNotices(t, e, again, v1alpha1.NoticeProjectDeletion, 30, 7, 1)
	l.at(again, func() { l.waitForRequest(t, e) })
}

// planApprovalUndone plans a project that its owner renews a minute before its deletion.
func (l *projectEnds) planApprovalUndone(t *testing.T, e *expiringProject) {
	l.planSuspension(t, e)
	deletable := l.planRequest(t, e)
	l.at(deletable.Add(11*time.Hour), func() {
		l.approve(t, e)
		deletion := l.deletionOf(t, e)
		l.at(deletion.Add(-time.Minute), func() {
			e.renew(t)
			p := e.waitForPhase(t, v1alpha1.ProjectActive)
			if x := p.Status.Expiry; x.Deletion != nil || p.Status.ClosedAt != nil || p.Status.DeletionRequest != "" {
				t.Errorf("renewed in the last minute: %+v %+v", p.Status, x)
			}
		})
		l.at(deletion.AddDate(0, 0, 2), func() {
			if p := e.waitForPhase(t, v1alpha1.ProjectActive); !p.DeletionTimestamp.IsZero() {
				t.Error("a renewed project is deleted")
			}
		})
	})
}

// planLab plans a research project: no owner confirms it, its deletion is dismissed, and a year later approved. It stays
// usable until its deletion.
func (l *projectEnds) planLab(t *testing.T, e *expiringProject) {
	first, second := e.endOfPeriod(t, 1).AddDate(0, 0, 60), e.endOfPeriod(t, 2).AddDate(0, 0, 60)
	job := newJobWorkload(e.name, "experiment", withGPUDevice)
	l.at(first.AddDate(0, 0, -2), func() { l.startWorkloads(t, job) })
	l.expectNotices(t, e, first, v1alpha1.NoticeProjectConfirm, 60, 30, 7, 1)
	l.at(first, func() { l.waitForRequest(t, e) })
	l.expectNotices(t, e, second, v1alpha1.NoticeProjectConfirm, 60, 30, 7, 1)
	l.at(first.Add(10*time.Hour), func() {
		if out, err := l.sluiceAs(t, expiryAdministrator, "dismiss", "project/"+e.name, "--message", "they work on it"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		p := e.waitForPhase(t, v1alpha1.ProjectActive)
		if !p.Status.ExpiresAt.Time.Equal(e.endOfPeriod(t, 2)) {
			t.Errorf("dismissed: until %s, want the next anniversary %s", p.Status.ExpiresAt, e.endOfPeriod(t, 2))
		}
		l.assertRunning(t, "after the dismissal", job)
	})
	l.at(second, func() { l.waitForRequest(t, e) })
	l.at(second.Add(10*time.Hour), func() {
		l.approve(t, e)
		deletion := l.deletionOf(t, e)
		l.at(deletion.Add(-time.Minute), func() { l.assertRunning(t, "until the deletion", job) })
		l.at(deletion, func() {
			l.waitUntilDeleted(t, e.name)
			l.waitUntilNamespaceGone(t, e.name)
		})
	})
}

const withGPUDevice = corev1.ResourceName("nvidia.com/gpu")

func (l *projectEnds) deleteNamespace(t *testing.T, e *expiringProject) {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := l.adminClient.Get(t.Context(), client.ObjectKey{Name: e.name}, ns); err != nil {
		t.Fatal(err)
	}
	if err := l.adminClient.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	e.waitFor(t, "has another namespace", func(s *v1alpha1.ProjectStatus) bool { return s.Namespace != nil && s.Namespace.UID != ns.UID })
}
