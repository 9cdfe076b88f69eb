// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// Sluice rejects every way to restart a workload that it stopped, or stops the workload
// again. After an extension, or when the cooldown is over, the workload can start.
func TestStoppedWorkloadsNotRestarted(t *testing.T) {
	s := newRestartTest(t)
	train, longer, slips := s.newJob("train", "train"), s.newJob("longer", "longer"), s.newJob("slips", "slips")
	serve, db, notebook := s.newDeployment("serve", "serve", 2), s.newStatefulSet("db", "db", 1), s.newWorkloadPod("notebook", "notebook")
	all := []client.Object{train, longer, slips, serve, db, notebook}
	for _, object := range all {
		s.createAsAda(t, object)
	}
	s.waitForRunningPods(t, s.ns, 7)
	for _, object := range all {
		s.waitUntilRunning(t, object)
	}
	for i, duration := range []time.Duration{24*time.Hour + time.Minute, 20 * time.Hour, 3*time.Hour + 30*time.Minute} {
		s.advanceTime(t, duration)
		for _, object := range all {
			s.waitForClock(t, s.asWorkload(t, object), fmt.Sprintf("has warning %d", i+1), func(c *v1alpha1.WorkloadClockStatus) bool {
				return len(c.Leads) == i+1 && c.State == v1alpha1.ClockStateRunning
			})
		}
	}
	s.advanceTime(t, 30*time.Minute)
	for _, object := range all {
		s.waitUntilStopped(t, object, 1)
	}
	s.waitForRunningPods(t, s.ns, 0)

	t.Run("restarts are rejected", func(t *testing.T) { s.testRestartsRejected(t, train, serve, db) })
	t.Run("other changes are allowed", func(t *testing.T) { s.testAllowedStarts(t, train, serve) })
	t.Run("bypassed restarts are stopped", func(t *testing.T) { s.testBypassedRestartsStopped(t, slips, serve) })
	t.Run("an extension allows a restart", func(t *testing.T) { s.testExtensionAllowsRestart(t, longer, serve) })
	t.Run("the end of the cooldown allows a restart", func(t *testing.T) { s.testRestartAfterCooldown(t, train, db) })
	s.assertMatchConditionsEvaluated(t)
}

// testRestartsRejected tries the restarts that admission rejects. It recreates db without
// replicas.
func (s *restartTest) testRestartsRejected(t *testing.T, train *batchv1.Job, serve *appsv1.Deployment, db *appsv1.StatefulSet) {
	const over = " was stopped by Sluice after it had run for 48h, its time limit, and can be started again at "
	jobs, deployments, pods := s.ada.BatchV1().Jobs(s.ns), s.ada.AppsV1().Deployments(s.ns), s.ada.CoreV1().Pods(s.ns)
	patch := metav1.PatchOptions{DryRun: dryRun}
	create := metav1.CreateOptions{DryRun: dryRun}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: serve.Name}, Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
	tests := map[string]struct {
		attempt  func(context.Context) error
		messages []string
	}{
		"a Job resumed": {func(ctx context.Context) error { return s.resumeJob(ctx, train.Name) }, []string{"Job train" + over, " CE", "wait until then, or request more time: sluice extend job/train -n stopped --by 24h"}},
		"a Job resumed by an administrator": {func(ctx context.Context) error {
			kind, body := mergePatch(`{"spec":{"suspend":null}}`)
			_, err := s.clientset.BatchV1().Jobs(s.ns).Patch(ctx, train.Name, kind, body, patch)
			return err
		}, []string{"Job train" + over}},
		"a Job resumed without the annotation stopped-until": {func(ctx context.Context) error {
			kind, body := mergePatch(`{"metadata":{"annotations":{"sluice.dev/stopped-until":null}},"spec":{"suspend":false}}`)
			_, err := jobs.Patch(ctx, train.Name, kind, body, patch)
			return err
		}, []string{"written by Sluice alone"}}, // from the admission policy or the webhook
		"the annotation stopped-until removed": {func(ctx context.Context) error {
			kind, body := mergePatch(`{"metadata":{"annotations":{"sluice.dev/stopped-until":null}}}`)
			_, err := jobs.Patch(ctx, train.Name, kind, body, patch)
			return err
		}, []string{"written by Sluice alone"}},
		"a Deployment's replicas patched": {func(ctx context.Context) error {
			kind, body := mergePatch(`{"spec":{"replicas":2}}`)
			_, err := deployments.Patch(ctx, serve.Name, kind, body, patch)
			return err
		}, []string{"Deployment serve" + over}},
		"a Deployment's replicas removed": {func(ctx context.Context) error {
			kind, body := mergePatch(`{"spec":{"replicas":null}}`)
			_, err := deployments.Patch(ctx, serve.Name, kind, body, patch)
			return err
		}, []string{"Deployment serve" + over}},
		"kubectl scale": {func(context.Context) error {
			return s.kubectlAsUser(t, "scale", "deployments.apps/serve", "--replicas=2")
		}, []string{"Deployment serve" + over}},
		"kubectl scale of a StatefulSet": {func(context.Context) error {
			return s.kubectlAsUser(t, "scale", "statefulsets.apps/db", "--replicas=1")
		}, []string{"StatefulSet db" + over}},
		"an autoscaler": {func(ctx context.Context) error {
			_, err := s.automationClients[autoscaler].AppsV1().Deployments(s.ns).UpdateScale(ctx, serve.Name, scale, metav1.UpdateOptions{DryRun: dryRun})
			return err
		}, []string{"Deployment serve" + over}},
		"a pod created again": {func(ctx context.Context) error {
			_, err := pods.Create(ctx, s.newWorkloadPod("notebook", "notebook"), create)
			return err
		}, []string{"Pod notebook" + over, "sluice extend pod/notebook"}},
		"a pod created again with another program": {func(ctx context.Context) error {
			_, err := pods.Create(ctx, s.newWorkloadPod("notebook", "another"), create)
			return err
		}, []string{"Pod notebook" + over}},
		"a copy of a Job": {func(ctx context.Context) error {
			_, err := jobs.Create(ctx, s.newJob("copy", "train"), create)
			return err
		}, []string{"Job copy runs the same as Job train, which" + over, "sluice extend job/train"}},
		"a copy under a generated name": {func(ctx context.Context) error {
			jobCopy := s.newJob("", "train")
			jobCopy.GenerateName = "copy-"
			_, err := jobs.Create(ctx, jobCopy, create)
			return err
		}, []string{"runs the same as Job train"}},
		"a copy of another kind": {func(ctx context.Context) error {
			_, err := deployments.Create(ctx, s.newDeployment("copy", "db", 1), create)
			return err
		}, []string{"Deployment copy runs the same as StatefulSet db"}},
		"a copy by a service account": {func(ctx context.Context) error {
			_, err := s.automationClients[ciAccount].BatchV1().Jobs(s.ns).Create(ctx, s.newJob("copy", "train"), create)
			return err
		}, []string{"Job copy runs the same as Job train"}},
		"a copy with a forged controller": {func(ctx context.Context) error {
			jobCopy := s.newJob("copy", "train")
			owner := *metav1.NewControllerRef(serve, appsv1.SchemeGroupVersion.WithKind("Deployment"))
			owner.BlockOwnerDeletion = nil
			jobCopy.OwnerReferences = []metav1.OwnerReference{owner}
			_, err := jobs.Create(ctx, jobCopy, create)
			return err
		}, []string{"only a controller may say that an object of kind Deployment.apps controls this one"}},
		"a copy by a service account with a forged controller": {func(ctx context.Context) error {
			jobCopy := s.newJob("copy", "train")
			jobCopy.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1", Controller: ptr.To(true)}}
			_, err := s.automationClients[ciAccount].BatchV1().Jobs(s.ns).Create(ctx, jobCopy, create)
			return err
		}, []string{"only a controller may say that an object of kind ConfigMap controls this one"}},
		"a bare pod as a copy": {func(ctx context.Context) error {
			_, err := pods.Create(ctx, s.newWorkloadPod("copy", "train"), create)
			return err
		}, []string{"Pod copy runs the same as Job train"}},
		"a bare pod with another owner": {func(ctx context.Context) error {
			owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: serve.Name, UID: serve.UID}
			_, err := pods.Create(ctx, s.newWorkloadPod("copy", "train", owner), create)
			return err
		}, []string{"Pod copy runs the same as Job train"}},
		"a pod with another owner as its controller": {func(ctx context.Context) error {
			owner := *metav1.NewControllerRef(serve, appsv1.SchemeGroupVersion.WithKind("Deployment"))
			owner.BlockOwnerDeletion = nil
			_, err := pods.Create(ctx, s.newWorkloadPod("copy", "train", owner), create)
			return err
		}, []string{"ownerReferences"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.attempt(t.Context())
			for _, message := range tc.messages {
				expectError(t, err, message)
			}
		})
	}
	t.Run("created again without replicas, and scaled", func(t *testing.T) {
		uid := db.UID
		if err := s.adminClient.Delete(t.Context(), db.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		recreated := s.newStatefulSet("db", "db", 1)
		eventually(t, func() error {
			if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(db), db); err == nil && db.UID == uid {
				return unexpectedState("the StatefulSet is deleted", db.UID)
			}
			return nil
		})
		_, err := s.ada.AppsV1().StatefulSets(s.ns).Create(t.Context(), recreated, metav1.CreateOptions{})
		expectError(t, err, "StatefulSet db"+over)
		s.createAsAda(t, s.newStatefulSet("db", "db", 0))
		expectError(t, s.kubectlAsUser(t, "scale", "statefulsets.apps/db", "--replicas=1"), "StatefulSet db"+over)
		kind, body := mergePatch(`{"spec":{"replicas":1}}`)
		_, err = s.ada.AppsV1().StatefulSets(s.ns).Patch(t.Context(), "db", kind, body, metav1.PatchOptions{})
		expectError(t, err, "StatefulSet db"+over)
	})
	t.Run("a suspended copy, resumed", func(t *testing.T) {
		later := s.newJob("later", "train")
		later.Spec.Suspend = ptr.To(true)
		s.createAsAda(t, later)
		expectError(t, s.resumeJob(t.Context(), later.Name), "Job later runs the same as Job train")
	})
}

// testAllowedStarts tries changes that must be allowed.
func (s *restartTest) testAllowedStarts(t *testing.T, train *batchv1.Job, serve *appsv1.Deployment) {
	cpu := s.newJob("cpu", "train")
	cpu.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	noReplicas := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: serve.Name}}
	body := func(object client.Object, patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			kind, data := mergePatch(patch)
			return s.adminClient.Patch(ctx, object, client.RawPatch(kind, data), client.DryRunAll)
		}
	}
	for name, attempt := range map[string]func(context.Context) error{
		"a Job's label":                  body(train.DeepCopy(), `{"metadata":{"labels":{"mine":"yes"}}}`),
		"a finalizer":                    body(train.DeepCopy(), `{"metadata":{"finalizers":["example.org/mine"]}}`),
		"suspended again":                body(train.DeepCopy(), `{"spec":{"suspend":true}}`),
		"a new version without replicas": body(serve.DeepCopy(), `{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`),
		"the same program without a GPU": func(ctx context.Context) error { return s.adminClient.Create(ctx, cpu, client.DryRunAll) },
		"a run of another user's CronJob": func(ctx context.Context) error {
			run := s.newJob("nightly-29312345", "train")
			run.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", UID: "1", Controller: ptr.To(true)}}
			_, err := s.automationClients[scheduler].BatchV1().Jobs(s.ns).Create(ctx, run, metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"a copy of another user's workload": func(ctx context.Context) error {
			return s.adminClient.Create(ctx, s.newJob("copy", "train"), client.DryRunAll)
		},
		"another user's workload of that name": func(ctx context.Context) error {
			return s.adminClient.Create(ctx, s.newWorkloadPod("notebook", "notebook"), client.DryRunAll)
		},
		"another program": func(ctx context.Context) error {
			return s.adminClient.Create(ctx, s.newJob("other", "other"), client.DryRunAll)
		},
		"a copy without replicas": func(ctx context.Context) error {
			return s.adminClient.Create(ctx, s.newDeployment("copy", "serve", 0), client.DryRunAll)
		},
		"a new version of another Deployment": func(ctx context.Context) error {
			deployment := s.newDeployment("other", "train", 1)
			replicaSet := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
				Namespace: s.ns, Name: "other-1",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "other", UID: "1", Controller: ptr.To(true)}},
			}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(1)), Selector: deployment.Spec.Selector, Template: deployment.Spec.Template}}
			_, err := s.automationClients[rollouts].AppsV1().ReplicaSets(s.ns).Create(ctx, replicaSet, metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"deletion": func(ctx context.Context) error { return s.adminClient.Delete(ctx, train.DeepCopy(), client.DryRunAll) },
		"scaled to zero": func(ctx context.Context) error {
			_, err := s.ada.AppsV1().Deployments(s.ns).UpdateScale(ctx, serve.Name, noReplicas, metav1.UpdateOptions{DryRun: dryRun})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { expectError(t, attempt(t.Context()), "") })
	}
}

// testBypassedRestartsStopped starts workloads in ways that admission does not reject, with
// and without the webhook, and waits until they are stopped again.
func (s *restartTest) testBypassedRestartsStopped(t *testing.T, slips *batchv1.Job, serve *appsv1.Deployment) {
	scaled := s.newDeployment("scaled", "train", 0)
	s.createAsAda(t, scaled)
	expectError(t, s.kubectlAsUser(t, "scale", "deployments.apps/scaled", "--replicas=1"), "")

	s.setRestartWebhook(t, false)
	expectError(t, s.resumeJob(t.Context(), slips.Name), "")
	expectError(t, s.kubectlAsUser(t, "scale", "deployments.apps/serve", "--replicas=1"), "")
	jobCopy, err := s.ada.BatchV1().Jobs(s.ns).Create(t.Context(), s.newJob("unseen", "slips"), metav1.CreateOptions{})
	expectError(t, err, "")
	podCopy, err := s.ada.CoreV1().Pods(s.ns).Create(t.Context(), s.newWorkloadPod("unseen", "slips"), metav1.CreateOptions{})
	expectError(t, err, "")
	for _, object := range []client.Object{scaled, jobCopy, podCopy} {
		s.waitUntilStopped(t, object, 1)
	}
	s.waitUntilStopped(t, slips, 2)
	s.waitUntilStopped(t, serve, 2)
	s.waitForRunningPods(t, s.ns, 0)
	s.setRestartWebhook(t, true)
}

// testExtensionAllowsRestart extends workloads, which allows users to restart them at once.
func (s *restartTest) testExtensionAllowsRestart(t *testing.T, longer *batchv1.Job, serve *appsv1.Deployment) {
	starts := map[client.Object]func() error{
		longer: func() error { return s.resumeJob(t.Context(), longer.Name) },
		serve:  func() error { return s.kubectlAsUser(t, "scale", "deployments.apps/serve", "--replicas=2") },
	}
	for object, start := range starts {
		s.approveExtension(t, object)
		s.eventuallyAfterStep(t, start)
		s.waitForClock(t, s.asWorkload(t, object), "continues with a limit of 72h", func(c *v1alpha1.WorkloadClockStatus) bool {
			return c.State == v1alpha1.ClockStateRunning && c.AccumulatedSeconds >= int64(48*time.Hour/time.Second) &&
				c.Limit != nil && c.Limit.InForce.Length() == 72*time.Hour
		})
	}
	s.waitForRunningPods(t, s.ns, 3)
}

// testRestartAfterCooldown restarts stopped workloads after their cooldown, with reset
// clocks.
func (s *restartTest) testRestartAfterCooldown(t *testing.T, train *batchv1.Job, db *appsv1.StatefulSet) {
	s.advanceTime(t, 2*time.Hour)
	expectError(t, s.resumeJob(t.Context(), train.Name), "")
	expectError(t, s.kubectlAsUser(t, "scale", "statefulsets.apps/db", "--replicas=1"), "")
	notebook := s.createPod(t, s.newWorkloadPod("notebook", "notebook"))
	t.Cleanup(func() {
		if t.Failed() {
			out, err := s.kubectl(context.Background(), "get", "events,pods,resourcequotas,statefulsets", "-n", s.ns)
			t.Logf("the present state: %v\n%s", err, out)
		}
	})
	for _, object := range []client.Object{train, db, notebook} {
		s.waitForClock(t, s.asWorkload(t, object), "was reset", func(c *v1alpha1.WorkloadClockStatus) bool {
			return c.State == v1alpha1.ClockStateRunning && c.AccumulatedSeconds == 0 && c.Stopped == nil
		})
	}
	s.eventuallyAfterStep(t, func() error {
		if err := s.adminClient.Get(t.Context(), client.ObjectKeyFromObject(train), train); err != nil {
			return err
		}
		if value, found := train.Annotations[v1alpha1.AnnotationStoppedUntil]; found {
			return unexpectedState("the annotation stopped-until is removed", value)
		}
		return nil
	})
}
