// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// ada is the user of researcherConfig.
const ada = "ada@example.org"

// labeledTemplate returns a pod template with the label app.
func labeledTemplate(name string, change ...func(*corev1.Pod)) corev1.PodTemplateSpec {
	p := newPod("", "", change...)
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: p.Spec}
}

func neverRestarted(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

// newGPUJob returns a Job of one such pod.
func newGPUJob(namespace, name string, change ...func(*corev1.Pod)) *batchv1.Job {
	template := labeledTemplate(name, append([]func(*corev1.Pod){neverRestarted}, change...)...)
	return &batchv1.Job{ObjectMeta: workloadMeta(namespace, name), Spec: batchv1.JobSpec{Template: template}}
}

// newGPUCronJob returns a CronJob with a GPU whose next run is far away.
func newGPUCronJob(ns, name string) *batchv1.CronJob {
	return &batchv1.CronJob{ObjectMeta: workloadMeta(ns, name), Spec: batchv1.CronJobSpec{
		Schedule: "0 0 29 2 *", JobTemplate: batchv1.JobTemplateSpec{Spec: newGPUJob(ns, name, withGPU).Spec},
	}}
}

// newCPUDeployment returns a Deployment of one pod without GPUs.
func newCPUDeployment(ns, name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: workloadMeta(ns, name), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: labeledTemplate(name),
	}}
}

func suspended(j *batchv1.Job) *batchv1.Job {
	j.Spec.Suspend = ptr.To(true)
	return j
}

// creatorAnnotations returns the recorded creators of an object and its templates.
func creatorAnnotations(object client.Object) []string {
	var found []string
	add := func(annotations map[string]string) {
		if name, ok := annotations[v1alpha1.AnnotationCreatedBy]; ok {
			found = append(found, name)
		}
	}
	add(object.GetAnnotations())
	switch o := object.(type) {
	case *batchv1.Job:
		add(o.Spec.Template.Annotations)
	case *batchv1.CronJob:
		add(o.Spec.JobTemplate.Annotations)
		add(o.Spec.JobTemplate.Spec.Template.Annotations)
	case *appsv1.Deployment:
		add(o.Spec.Template.Annotations)
	}
	return found
}

// Workloads and their templates record the user who created them, even if the user writes another name.
// Objects of controllers record the controller, unless the controller copies the annotation.
func TestWorkloadsRecordCreator(t *testing.T) {
	t.Parallel()
	const ns, creatorKey, other = "workloads-creators", v1alpha1.AnnotationCreatedBy, "other@example.org"
	sharedCluster.createDepartment(t, "workloads-creators", newPoolQuota("dgx", "2", "4"))
	sharedCluster.createGovernedProject(t, "workloads-creators", ns, newPoolQuota("dgx", "1", "2"))
	researcher := clientFor(t, researcherConfig(t, ns))
	forged, job := workloadMeta(ns, "forged", creatorKey, other), newGPUJob(ns, "forged")
	inTemplate := func(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
		t.Annotations = map[string]string{creatorKey: other}
		return t
	}
	pods, labelSelector := labeledTemplate("forged"), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "forged"}}
	tests := map[string]struct {
		object client.Object
		want   []string
	}{
		"a Job":                        {&batchv1.Job{ObjectMeta: forged, Spec: job.Spec}, []string{ada}},
		"a Job without the annotation": {job, []string{ada}},
		"a Job's pods":                 {&batchv1.Job{ObjectMeta: forged, Spec: batchv1.JobSpec{Template: inTemplate(job.Spec.Template)}}, []string{ada, ada}},
		"a CronJob": {&batchv1.CronJob{ObjectMeta: forged, Spec: batchv1.CronJobSpec{
			Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: forged.Annotations}, Spec: batchv1.JobSpec{Template: inTemplate(job.Spec.Template)}},
		}}, []string{ada, ada, ada}},
		"a Deployment":            {&appsv1.Deployment{ObjectMeta: forged, Spec: appsv1.DeploymentSpec{Selector: labelSelector, Template: inTemplate(pods)}}, []string{ada, ada}},
		"a StatefulSet":           {&appsv1.StatefulSet{ObjectMeta: forged, Spec: appsv1.StatefulSetSpec{Selector: labelSelector, Template: pods}}, []string{ada}},
		"a ReplicaSet":            {&appsv1.ReplicaSet{ObjectMeta: forged, Spec: appsv1.ReplicaSetSpec{Selector: labelSelector, Template: pods}}, []string{ada}},
		"a DaemonSet":             {&appsv1.DaemonSet{ObjectMeta: forged, Spec: appsv1.DaemonSetSpec{Selector: labelSelector, Template: pods}}, []string{ada}},
		"a ReplicationController": {&corev1.ReplicationController{ObjectMeta: forged, Spec: corev1.ReplicationControllerSpec{Selector: labelSelector.MatchLabels, Template: &pods}}, []string{ada}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			created, _ := tc.object.DeepCopyObject().(client.Object)
			if err := researcher.Create(t.Context(), created, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, creatorAnnotations(created)); diff != "" {
				t.Errorf("creators (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a Deployment's ReplicaSet", func(t *testing.T) {
		d := &appsv1.Deployment{ObjectMeta: workloadMeta(ns, "web"), Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(0)), Selector: labelSelector, Template: pods}}
		if err := researcher.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteAndWait(t, d) })
		var sets appsv1.ReplicaSetList
		eventually(t, func() error {
			err := sharedCluster.adminClient.List(t.Context(), &sets, client.InNamespace(ns))
			if err == nil && len(sets.Items) != 1 {
				err = unexpectedState("the Deployment has a ReplicaSet", len(sets.Items))
			}
			return err
		})
		// The first version has the creator: no later update corrected it.
		if diff := cmp.Diff([]string{ada}, creatorAnnotations(&sets.Items[0])); diff != "" || sets.Items[0].Generation != 1 {
			t.Errorf("generation %d, creators (-want +got):\n%s", sets.Items[0].Generation, diff)
		}
	})
	t.Run("a CronJob's Job", func(t *testing.T) {
		const controller = "system:serviceaccount:kube-system:cronjob-controller"
		created := newGPUJob(ns, "scheduled")
		created.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "cron", UID: "u", Controller: ptr.To(true)}}
		if err := clientFor(t, impersonatedConfig(t, controller, ns)).Create(t.Context(), created, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{controller}, creatorAnnotations(created)); diff != "" {
			t.Errorf("creators (-want +got):\n%s", diff)
		}
	})
}

// The user who creates a ReplicationController also gets the errors that its pods would get.
func TestReplicationControllerTemplateValidated(t *testing.T) {
	t.Parallel()
	const ns = "workloads-replicas"
	sharedCluster.createDepartment(t, "workloads-replicas", newPoolQuota("dgx", "2", "4"))
	sharedCluster.createGovernedProject(t, "workloads-replicas", ns, newPoolQuota("dgx", "1", "2"))
	researcher := clientFor(t, researcherConfig(t, ns))
	replicationController := func(template corev1.PodTemplateSpec) *corev1.ReplicationController {
		return &corev1.ReplicationController{ObjectMeta: workloadMeta(ns, "old"), Spec: corev1.ReplicationControllerSpec{
			Selector: map[string]string{"app": "old"}, Template: &template,
		}}
	}
	half := labeledTemplate("old")
	half.Annotations = map[string]string{v1alpha1.AnnotationGPUFraction: "0.5"}
	expectError(t, researcher.Create(t.Context(), replicationController(half), client.DryRunAll), "spec.template: the pod requests 0.5 of a GPU; node pool dgx offers whole GPUs only")
	expectError(t, researcher.Create(t.Context(), replicationController(labeledTemplate("old", withGPU)), client.DryRunAll), "")
}

// A Job with GPUs gets a policy by which preempted pods do not count as failures. Other Jobs
// are unchanged.
func TestJobMutation(t *testing.T) {
	const ns = "workloads-jobs"
	sharedCluster.createDepartment(t, "workloads-jobs", newPoolQuota("dgx", "2", "4"))
	sharedCluster.createGovernedProject(t, "workloads-jobs", ns, newPoolQuota("dgx", "1", "2"))
	researcherConfig(t, ns)
	ignored := []batchv1.PodFailurePolicyRule{{
		Action:          batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}
	own := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action:      batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}},
	}}}
	changed := func(j *batchv1.Job, change func(*batchv1.JobSpec)) *batchv1.Job {
		change(&j.Spec)
		return j
	}
	type jobResult struct {
		Policy      *batchv1.PodFailurePolicy
		Replacement batchv1.PodReplacementPolicy
		Warnings    []string
	}
	defaulted := jobResult{&batchv1.PodFailurePolicy{Rules: ignored}, batchv1.Failed, nil}
	warning := "spec.podFailurePolicy.rules: a pod that is preempted or evicted counts as a failure of this Job; put a rule with action Ignore for the pod condition DisruptionTarget first (policy core.jobs)"
	tests := map[string]struct {
		job  *batchv1.Job
		want jobResult
	}{
		"with a GPU": {newGPUJob(ns, "a", withGPU), defaulted},
		"an indexed Job": {changed(newGPUJob(ns, "a", withGPU), func(s *batchv1.JobSpec) {
			s.Completions, s.Parallelism, s.CompletionMode, s.BackoffLimitPerIndex = ptr.To(int32(3)), ptr.To(int32(2)), ptr.To(batchv1.IndexedCompletion), ptr.To(int32(1))
		}), defaulted},
		"restarted in place":                      {newGPUJob(ns, "a", withGPU, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }), jobResult{nil, batchv1.TerminatingOrFailed, nil}},
		"without GPUs":                            {newGPUJob(ns, "a"), jobResult{nil, batchv1.TerminatingOrFailed, nil}},
		"with the user's policy":                  {changed(newGPUJob(ns, "a", withGPU), func(s *batchv1.JobSpec) { s.PodFailurePolicy = own }), jobResult{own, batchv1.Failed, []string{warning}}},
		"with the same policy":                    {changed(newGPUJob(ns, "a", withGPU), func(s *batchv1.JobSpec) { s.PodFailurePolicy = defaulted.Policy }), defaulted},
		"with the user's policy and without GPUs": {changed(newGPUJob(ns, "a"), func(s *batchv1.JobSpec) { s.PodFailurePolicy = own }), jobResult{own, batchv1.Failed, nil}},
		"suspended":                               {suspended(newGPUJob(ns, "a", withGPU)), defaulted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			received := &warnings{}
			created, err := sharedCluster.impersonate(t, ada, received).BatchV1().Jobs(ns).Create(t.Context(), tc.job, metav1.CreateOptions{DryRun: dryRun})
			if err != nil {
				t.Fatal(err)
			}
			got := jobResult{created.Spec.PodFailurePolicy, ptr.Deref(created.Spec.PodReplacementPolicy, ""), nil}
			for _, text := range received.sorted() {
				if !strings.HasPrefix(text, "spec.template: ") { // warnings about its pods
					got.Warnings = append(got.Warnings, text)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("updates do not change the Job", func(t *testing.T) {
		jobs := sharedCluster.impersonate(t, ada, &warnings{}).BatchV1().Jobs(ns)
		created, err := jobs.Create(t.Context(), suspended(newGPUJob(ns, "later")), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteAndWait(t, created) })
		before := sharedCluster.webhookRequests(t, workloadsWebhook)
		after, err := jobs.Patch(t.Context(), created.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"mine":"yes"}},"spec":{"parallelism":2}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if after.Annotations[v1alpha1.AnnotationCreatedBy] != ada || after.Spec.PodFailurePolicy != nil {
			t.Errorf("the Job has %v, %v", after.Annotations, after.Spec)
		}
		if now := sharedCluster.webhookRequests(t, workloadsWebhook); now != before {
			t.Errorf("the webhook was called for an update: %d times, then %d", before, now)
		}
	})
	t.Run("outside projects", func(t *testing.T) {
		before := sharedCluster.webhookRequests(t, workloadsWebhook)
		job := suspended(newGPUJob(metav1.NamespaceDefault, "outside"))
		job.Annotations[v1alpha1.AnnotationCreatedBy] = "other@example.org"
		create(t, job)
		if job.Annotations[v1alpha1.AnnotationCreatedBy] != "other@example.org" || job.Spec.PodFailurePolicy != nil {
			t.Errorf("the Job has %v, %v", job.Annotations, job.Spec)
		}
		if now := sharedCluster.webhookRequests(t, workloadsWebhook); now != before {
			t.Errorf("the webhook was called: %d times, then %d", before, now)
		}
	})
	t.Run("the webhook records each request", func(t *testing.T) {
		for _, text := range []string{`{"kind":"DecisionRecord","version":1,`, `"webhook":"workloads"`, `"changed":{"core.jobs":["spec.`} {
			eventually(t, func() error { return checkLogContains("webhook", text) })
		}
	})
}

// Evictions do not count as failures of GPU Jobs. Of two Jobs that allow no failure, the GPU
// Job continues and the other, which Sluice does not change, fails.
func TestEvictedGPUJobPodNotCountedAsFailure(t *testing.T) {
	t.Parallel()
	const ns = "workloads-evicted"
	sharedCluster.createDepartment(t, "workloads-evicted", newPoolQuota("dgx", "2", "4"))
	sharedCluster.createGovernedProject(t, "workloads-evicted", ns, newPoolQuota("dgx", "1", "2"))
	researcherConfig(t, ns)
	clientset := sharedCluster.impersonate(t, ada, &warnings{})
	for name, tc := range map[string]struct {
		change []func(*corev1.Pod)
		done   func(*batchv1.Job, []corev1.Pod) bool
	}{
		"with-gpu": {[]func(*corev1.Pod){withGPU}, func(j *batchv1.Job, pods []corev1.Pod) bool {
			running := 0
			for i := range pods {
				if pods[i].Status.Phase == corev1.PodRunning {
					running++
				}
			}
			return j.Status.Failed == 0 && len(j.Status.Conditions) == 0 && running == 1 && ptr.Deref(j.Status.Terminating, 0) == 0
		}},
		"without": {nil, func(j *batchv1.Job, _ []corev1.Pod) bool { return jobFailed(j) }},
	} {
		t.Run(name, func(t *testing.T) {
			job := newGPUJob(ns, name, tc.change...)
			job.Spec.BackoffLimit = ptr.To(int32(0))
			job, err := clientset.BatchV1().Jobs(ns).Create(t.Context(), job, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { deleteJob(t, job) })
			first := waitForRunningPod(t, clientset, job)
			err = sharedCluster.clientset.PolicyV1().Evictions(ns).Evict(t.Context(), &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: ns, Name: first.Name},
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))},
			})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error {
				now, err := clientset.BatchV1().Jobs(ns).Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				pods := listJobPods(t, clientset, job)
				for i := range pods {
					if pods[i].UID == first.UID && pods[i].Status.Phase == corev1.PodRunning {
						return unexpectedState("the evicted pod has ended", pods[i].Status)
					}
				}
				if jobFailed(now) && name == "with-gpu" {
					t.Fatalf("the Job failed: %+v", now.Status)
				}
				if !tc.done(now, pods) {
					return unexpectedState("the Job has processed the eviction", now.Status)
				}
				return nil
			})
		})
	}
}

func jobFailed(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func listJobPods(t *testing.T, clientset kubernetes.Interface, job *batchv1.Job) []corev1.Pod {
	t.Helper()
	pods, err := clientset.CoreV1().Pods(job.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

func waitForRunningPod(t *testing.T, clientset kubernetes.Interface, job *batchv1.Job) (running corev1.Pod) {
	t.Helper()
	eventually(t, func() error {
		pods := listJobPods(t, clientset, job)
		if len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
			return unexpectedState("the Job's pod runs", len(pods))
		}
		running = pods[0]
		return nil
	})
	return running
}

// deleteJob deletes a Job and its pods without a grace period.
func deleteJob(t *testing.T, job *batchv1.Job) {
	t.Helper()
	deleteAndWait(t, job)
	if err := sharedCluster.adminClient.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(job.Namespace),
		client.MatchingLabels{batchv1.JobNameLabel: job.Name}, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}
}

// If the webhook hangs, Jobs are admitted unchanged, but still no user can name another
// creator, since an admission policy validates it.
func TestJobsAdmittedDuringWebhookOutage(t *testing.T) {
	const ns, creatorKey = "workloads-alone", v1alpha1.AnnotationCreatedBy
	s := newDedicatedCluster(t)
	s.createDepartment(t, "workloads-alone", newPoolQuota("dgx", "2", "4"))
	s.createGovernedProject(t, "workloads-alone", ns, newPoolQuota("dgx", "1", "2"))
	jobs := s.clientset.BatchV1().Jobs(ns)
	s.suspendComponent(t, "webhook")
	created, err := jobs.Create(t.Context(), suspended(newGPUJob(ns, "plain", withGPU)), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if name, ok := created.Annotations[creatorKey]; ok || created.Spec.PodFailurePolicy != nil {
		t.Errorf("the creator is %q and the policy %v: the webhook was called", name, created.Spec.PodFailurePolicy)
	}
	forged := suspended(newGPUJob(ns, "forged", withGPU))
	forged.Annotations[creatorKey] = "other@example.org"
	// The API server applies a policy to a namespace a moment after it got its label.
	eventually(t, func() error {
		_, err := jobs.Create(t.Context(), forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return checkRejected(err, "names the creator, and that is ")
	})
}

// workloadsWebhook is the name of the webhook for workloads.
const workloadsWebhook = "workloads.sluice.dev"

// disableMutatingWebhook disables a mutating webhook until the test ends, for tests of what
// must hold without it.
func disableMutatingWebhook(t *testing.T, webhook string) {
	t.Helper()
	setSelector := func(selector *metav1.LabelSelector) {
		eventually(t, func() error {
			var configuration admissionv1.MutatingWebhookConfiguration
			ctx := context.Background()
			if err := sharedCluster.adminClient.Get(ctx, client.ObjectKey{Name: "sluice"}, &configuration); err != nil {
				return err
			}
			for i := range configuration.Webhooks {
				if configuration.Webhooks[i].Name == webhook {
					configuration.Webhooks[i].NamespaceSelector = selector
					return sharedCluster.adminClient.Update(ctx, &configuration)
				}
			}
			return unexpectedState("the configuration has webhook "+webhook, len(configuration.Webhooks))
		})
	}
	project := metav1.LabelSelectorRequirement{Key: v1alpha1.LabelProject, Operator: metav1.LabelSelectorOpExists}
	t.Cleanup(func() {
		setSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{project}})
		waitForWebhookState(t, true)
	})
	setSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"matches": "nothing"}})
	waitForWebhookState(t, false)
}

// waitForWebhookState waits until the API server has applied the change of the webhook.
func waitForWebhookState(t *testing.T, want bool) {
	t.Helper()
	eventually(t, func() error {
		job := newGPUJob("course-ml", "probe")
		if err := sharedCluster.adminClient.Create(context.Background(), job, client.DryRunAll); err != nil {
			return err
		}
		if _, called := job.Annotations[v1alpha1.AnnotationCreatedBy]; called != want {
			return unexpectedState("the API server has applied the change of the webhook", called)
		}
		return nil
	})
}
