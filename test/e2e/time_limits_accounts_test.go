// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// testServiceAccounts shows that a ServiceAccount continues the time of another one's deleted Job
// with the same template, also one of another namespace, and that it gets no new time after the
// stop. Guards the time limit against users who switch ServiceAccounts.
func (c *policyTimeCluster) testServiceAccounts(t *testing.T) {
	const ns, other = "robots", "pipelines"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "1"))
	c.updateProject(t, ns, func(p *v1alpha1.Project) {
		p.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("3h"))}}
	})
	c.createForTest(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}})
	first, second := c.clientOfAccount(t, ns, ns, "first"), c.clientOfAccount(t, ns, other, "second")

	job := newJobWorkload(ns, "train", migDevice)
	c.createAs(t, first, job)
	c.waitForClock(t, job, "runs", func(s *v1alpha1.WorkloadClockStatus) bool { return s.State == v1alpha1.ClockStateRunning })
	c.advanceTime(t, 2*time.Hour)
	c.deleteAs(t, first, job)
	again := newJobWorkload(ns, "train", migDevice) // the same template
	again.SetName("again")
	c.createAs(t, second, again)
	s := c.waitForClock(t, again, "continues the time of the deleted Job", func(s *v1alpha1.WorkloadClockStatus) bool {
		return s.State == v1alpha1.ClockStateRunning && s.AccumulatedSeconds >= int64(2*time.Hour/time.Second)
	})
	if want := "system:serviceaccount:" + other + ":second"; s.CreatedBy != want || s.InheritedFrom != "system:serviceaccount:"+ns+":first" {
		t.Errorf("the clock is of %s and continues that of %s", s.CreatedBy, s.InheritedFrom)
	}
	c.advanceTimeTo(t, c.deadline(t, again).Add(-20*time.Minute))
	s = c.waitForClock(t, again, "has a warning", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Deadline != nil && s.Deadline.AnnouncedAt != nil })
	c.advanceTimeTo(t, s.Deadline.At.Time)
	c.waitForClock(t, again, "is stopped", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Stopped != nil && s.RunningSince == nil })
	c.deleteAs(t, second, again)
	third := newJobWorkload(ns, "train", migDevice)
	third.SetName("third")
	expectError(t, first.Create(t.Context(), third.Object), "runs the same as Job again")
}

// clientOfAccount creates a ServiceAccount that may edit a project's namespace, and returns a client
// with a token of it.
func (c *policyTimeCluster) clientOfAccount(t *testing.T, project, ns, name string) client.Client {
	t.Helper()
	c.createForTest(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	c.createForTest(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: "edit-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	})
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}
	response, err := c.clientset.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken, config.WarningHandler = response.Status.Token, rest.NoWarnings{}
	account, err := client.New(config, client.Options{Scheme: c.adminClient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// createAs creates an object as soon as the user may do so.
func (c *policyTimeCluster) createAs(t *testing.T, user client.Client, w workload) {
	t.Helper()
	c.eventuallyAfterStep(t, func() error { return user.Create(t.Context(), w.Object) })
}

// deleteAs deletes an object and waits until its pods are gone.
func (c *policyTimeCluster) deleteAs(t *testing.T, user client.Client, w workload) {
	t.Helper()
	if err := user.Delete(t.Context(), w.Object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	c.eventuallyAfterStep(t, func() error {
		for _, p := range c.listPods(t, w.GetNamespace()) {
			if strings.HasPrefix(p.Name, w.GetName()+"-") {
				return unexpectedState("the pods of "+w.GetName()+" are gone", p.Name)
			}
		}
		return nil
	})
}
