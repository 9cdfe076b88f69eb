// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// setProjectPhase sets the phase of a held project, which lifecycle leaves as it is.
func (s *sluiceCluster) setProjectPhase(t *testing.T, name string, phase v1alpha1.ProjectPhase) {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	closed := "null"
	if phase == v1alpha1.ProjectSuspended {
		closed = `"` + now + `"`
	}
	body := fmt.Appendf(nil, `{"status":{"phase":%q,"phaseSince":%q,"closedAt":%s}}`, phase, now, closed)
	p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.adminClient.Status().Patch(t.Context(), p, client.RawPatch(types.MergePatchType, body)); err != nil {
		t.Fatal(err)
	}
}

// A suspended project stops all that uses GPUs or waits for them: a running Job, a Deployment whose pods its quota
// rejects, a CronJob. Work without GPUs continues. Nothing can be started, and a renewal starts nothing by itself, but
// allows each start at once. Guards invariant 4.
func TestSuspendedProject(t *testing.T) {
	t.Parallel()
	const ns = "suspended-lab"
	department := departmentNamed(ns)
	department.Spec.NodePools = []v1alpha1.PoolQuota{newPoolQuota("dgx", "1", "1")}
	department.Spec.Projects.Validity = ptr.To(period.MustParsePeriod("P6M"))
	create(t, department)
	p := create(t, newProject(ns, func(p *v1alpha1.Project) {
		p.Spec.Department, p.Spec.NodePools = ns, []v1alpha1.PoolQuota{newPoolQuota("dgx", "1", "1")}
		p.Spec.Hold = &v1alpha1.Exception{Reason: "the test sets the phase"}
	}))
	waitForProjectReady(t, p)
	researcher := clientFor(t, researcherConfig(t, ns))

	running := newGPUJob(ns, "running", withGPU)
	web := newGangDeployment(ns, "web", 2, v1alpha1.WorkloadTrain, withGPU)
	web.Annotations = nil
	nightly := &batchv1.CronJob{ObjectMeta: workloadMeta(ns, "nightly"), Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: newGPUJob(ns, "nightly", withGPU).Spec},
	}}
	site := &appsv1.Deployment{ObjectMeta: workloadMeta(ns, "site"), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "site"}}, Template: labeledTemplate("site"),
	}}
	create := func(object client.Object) {
		t.Helper()
		eventually(t, func() error { return researcher.Create(t.Context(), object) })
		t.Cleanup(func() { deleteAndWait(t, object) })
	}
	create(running)
	waitForRunningPod(t, sharedCluster.clientset, running)
	for _, object := range []client.Object{web, nightly, site} {
		create(object)
	}
	sharedCluster.waitForReplacement(t, ns, "site", "")

	sharedCluster.setProjectPhase(t, ns, v1alpha1.ProjectSuspended)
	state := func() string {
		for _, object := range []client.Object{running, web, nightly, site} {
			if err := refresh(t, object); err != nil {
				return err.Error()
			}
		}
		marks := 0
		for _, object := range []client.Object{running, web, nightly, site} {
			if object.GetAnnotations()[v1alpha1.AnnotationStoppedUntil] != "" {
				marks++
			}
		}
		return fmt.Sprintf("running suspended %v, %d pods; web %d; nightly suspended %v; site %d; %d marks", ptr.Deref(running.Spec.Suspend, false),
			len(listJobPods(t, sharedCluster.clientset, running)), *web.Spec.Replicas, ptr.Deref(nightly.Spec.Suspend, false), *site.Spec.Replicas, marks)
	}
	expect := func(want string) {
		t.Helper()
		eventuallyLong(t, func() error {
			if got := state(); got != want {
				return unexpectedState(want, got)
			}
			return nil
		})
	}
	expect("running suspended true, 0 pods; web 0; nightly suspended true; site 1; 3 marks")
	patch := func(object client.Object, body string) func() error {
		return func() error {
			copied, _ := object.DeepCopyObject().(client.Object)
			return researcher.Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(body)))
		}
	}
	const start = `{"spec":{"suspend":false}}`
	for object, body := range map[client.Object]string{running: start, nightly: start, web: `{"spec":{"replicas":1}}`} {
		eventuallyRejected(t, patch(object, body), "cannot get further pods: project suspended-lab has expired")
	}
	var clock v1alpha1.WorkloadClock
	key := client.ObjectKey{Namespace: ns, Name: v1alpha1.WorkloadClockName("batch", "Job", "running")}
	if err := sharedCluster.adminClient.Get(t.Context(), key, &clock); err != nil || clock.Status.Stopped == nil ||
		clock.Status.Stopped.Reason != v1alpha1.EndProjectSuspended {
		t.Errorf("the clock has %+v, %v", clock.Status.Stopped, err)
	}

	sharedCluster.setProjectPhase(t, ns, v1alpha1.ProjectActive)
	expect("running suspended true, 0 pods; web 0; nightly suspended true; site 1; 0 marks")
	eventually(t, patch(running, start))
	eventually(t, patch(nightly, start))
	waitForRunningPod(t, sharedCluster.clientset, running)
}
