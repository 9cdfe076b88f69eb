// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// halfGPUTemplate returns the template of a training pod with half a GPU.
func halfGPUTemplate(name string) corev1.PodTemplateSpec {
	p := newPod("", name, func(p *corev1.Pod) {
		p.Labels["app"] = name
		p.Labels[v1alpha1.LabelWorkloadType] = "train"
		p.Annotations[v1alpha1.AnnotationGPU] = "500m"
	})
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

// createQuotaHolder creates a pod of that template without a controller.
func createQuotaHolder(t *testing.T, ns, name string) *corev1.Pod {
	t.Helper()
	template := halfGPUTemplate(name)
	return sharedCluster.createPod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec})
}

// deletePodNow deletes a pod without a grace period.
func deletePodNow(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := sharedCluster.adminClient.Delete(t.Context(), p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// deleteAllPods deletes all pods of a namespace, also those that controllers still create
// before they are deleted.
func deleteAllPods(t *testing.T, ns string) {
	ctx := context.Background() // the test context has ended
	eventuallyLong(t, func() error {
		pods, err := sharedCluster.clientset.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		if err := sharedCluster.clientset.CoreV1().Pods(ns).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
			return err
		}
		return unexpectedState("no pods exist", len(pods.Items))
	})
}

// waitForRejections waits until at least want pods of controllers of the kind were rejected.
func waitForRejections(t *testing.T, ns, kind string, want int32) {
	t.Helper()
	eventuallyLong(t, func() error {
		var events corev1.EventList
		if err := sharedCluster.adminClient.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
			return err
		}
		n := int32(0)
		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == "FailedCreate" && e.InvolvedObject.Kind == kind {
				n += e.Count
			}
		}
		if n < want {
			return fmt.Errorf("%d rejections of a %s, want %d", n, kind, want)
		}
		return nil
	})
}

// waitForPending waits until the project and its department report the pending quota, and
// until the project's condition names the workloads.
func waitForPending(t *testing.T, ns, pending string, names ...string) *v1alpha1.Project {
	t.Helper()
	p, d := newProject(ns), &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "waiting"}}
	eventuallyLong(t, func() error {
		if err := refresh(t, p); err != nil {
			return err
		}
		status, reason := metav1.ConditionFalse, v1alpha1.ReasonNoPendingWorkloads
		if len(names) > 0 {
			status, reason = metav1.ConditionTrue, v1alpha1.ReasonQuotaExceeded
		}
		if err := checkCondition(p.Status.Conditions, v1alpha1.ConditionPending, status, reason); err != nil {
			return err
		}
		if got := p.Status.GPU.Pending.String(); got != pending {
			return unexpectedState(pending+" are pending", got)
		}
		for _, c := range p.Status.Conditions {
			for _, name := range names {
				if c.Type == v1alpha1.ConditionPending && !strings.Contains(c.Message, name) {
					return unexpectedState(name+" is in the message", c.Message)
				}
			}
		}
		if err := refresh(t, d); err != nil {
			return err
		}
		if got := d.Status.GPU.Pending.String(); got != pending {
			return unexpectedState(pending+" are pending in the department", got)
		}
		return nil
	})
	return p
}

// checkRetriedAtOnce fails the test unless the pod of the Deployment was created within thirty
// seconds after lifecycle triggered the retry of its ReplicaSet.
func checkRetriedAtOnce(t *testing.T, ns, app string) {
	t.Helper()
	var sets appsv1.ReplicaSetList
	if err := sharedCluster.adminClient.List(t.Context(), &sets, client.InNamespace(ns), client.MatchingLabels{"app": app}); err != nil {
		t.Fatal(err)
	}
	for _, p := range sharedCluster.listPods(t, ns) {
		if p.Labels["app"] != app {
			continue
		}
		for i := range sets.Items {
			retried, err := time.Parse(time.RFC3339Nano, sets.Items[i].Annotations[v1alpha1.AnnotationRetriedAt])
			if err != nil {
				t.Errorf("ReplicaSet %s was not retried: %v", sets.Items[i].Name, err)
			} else if after := p.CreationTimestamp.Sub(retried); after < -time.Second || after > 30*time.Second {
				t.Errorf("pod %s was created %s after the retry", p.Name, after)
			}
		}
	}
}

// A Deployment without quota reports why, and its pod starts seconds after quota is
// available, however long its controller would have waited.
func TestPendingWorkloadReportedAndRetried(t *testing.T) {
	t.Parallel()
	const ns = "waiting-a"
	sharedCluster.createDepartment(t, "waiting", newPoolQuota("dgx-mig", "500m", "1"))
	sharedCluster.createGovernedProject(t, "waiting", ns, newPoolQuota("dgx-mig", "500m", "1"))
	t.Cleanup(func() { deleteAllPods(t, ns) })
	first, second := createQuotaHolder(t, ns, "first"), createQuotaHolder(t, ns, "second")

	labels := map[string]string{"app": "web"}
	web := create(t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: halfGPUTemplate("web")},
	})
	waitForPending(t, ns, "500m", "Deployment web (1 pod of 0.5 of a GPU of node pool dgx-mig, since ")
	eventually(t, func() error { return checkEvent(t, web.Name, "QuotaExceeded") })
	outputs := map[string][]string{
		sharedCluster.mustKubectl(t, "describe", "slproj", ns):                  {"Pending", "Deployment web (1 pod of 0.5 of a GPU", "QuotaExceeded"},
		sharedCluster.mustKubectl(t, "describe", "deployment", "web", "-n", ns): {"QuotaExceeded", "project " + ns + " uses 1 GPU of a limit of 1 GPU"},
	}
	eventually(t, func() error {
		columns := strings.Fields(sharedCluster.mustKubectl(t, "get", "sldept", "waiting", "--no-headers"))
		if got := strings.Join(columns[:min(len(columns), 7)], " "); got != "waiting True 1 500m dgx-mig 1/1 500m" {
			return unexpectedState("the department shows the allocated quota and the limit of its project", got)
		}
		return nil
	})
	for output, texts := range outputs {
		for _, want := range texts {
			if !strings.Contains(output, want) {
				t.Errorf("the output of kubectl does not contain %q:\n%s", want, output)
			}
		}
	}

	// After so many rejections the controller would wait for forty seconds and more.
	waitForRejections(t, ns, "ReplicaSet", 14)
	deletePodNow(t, first)
	eventuallyLong(t, func() error {
		if err := refresh(t, web); err != nil {
			return err
		}
		if web.Status.Replicas != 1 {
			return unexpectedState("the Deployment has its pod", web.Status)
		}
		return nil
	})
	checkRetriedAtOnce(t, ns, "web")
	waitForPending(t, ns, "0")
	eventually(t, func() error { return checkEvent(t, web.Name, "QuotaAvailable") })

	train := halfGPUTemplate("train")
	train.Spec.RestartPolicy = corev1.RestartPolicyNever
	others := map[string]struct {
		object client.Object
		tries  int32 // after which the controller waits at least ten seconds
	}{
		"StatefulSet": {&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
			Spec:       appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Template: halfGPUTemplate("db")},
		}, 13},
		"Job": {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "train"}, Spec: batchv1.JobSpec{Template: train}}, 5},
	}
	for kind, other := range others {
		object := create(t, other.object)
		waitForPending(t, ns, "500m", kind+" "+object.GetName())
		waitForRejections(t, ns, kind, other.tries)
		deletePodNow(t, second)
		eventuallyLong(t, func() error {
			if err := refresh(t, object); err != nil {
				return err
			}
			if object.GetAnnotations()[v1alpha1.AnnotationRetriedAt] == "" {
				return unexpectedState("the "+kind+" was retried", object.GetAnnotations())
			}
			return sharedCluster.checkQuotaUsed(t.Context(), ns, 1000)
		})
		waitForPending(t, ns, "0")
		deleteAndWait(t, object)
		for _, p := range sharedCluster.listPods(t, ns) {
			if p.Labels["app"] == object.GetName() {
				deletePodNow(t, &p)
			}
		}
		eventuallyLong(t, func() error { return sharedCluster.checkQuotaUsed(t.Context(), ns, 500) })
		second = createQuotaHolder(t, ns, "second")
	}
}

// A user who applies a Deployment that fits, but whose next version never could, gets a
// warning at once.
func TestRollingUpdateOverQuotaWarns(t *testing.T) {
	t.Parallel()
	const ns = "waiting-rolling"
	sharedCluster.createDepartment(t, "rolling", newPoolQuota("dgx-mig", "500m", "1"))
	sharedCluster.createGovernedProject(t, "rolling", ns, newPoolQuota("dgx-mig", "500m", "1"))
	deployment := func(name, workloadType string, replicas int32, strategy appsv1.DeploymentStrategy) *appsv1.Deployment {
		template := halfGPUTemplate(name)
		template.Labels[v1alpha1.LabelWorkloadType] = workloadType
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Strategy: strategy,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template,
			},
		}
	}
	recreate := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	tests := map[string]struct {
		deployment *appsv1.Deployment
		message    string // empty for no warning
	}{
		"an inference workload within the guarantee": {deployment("serve", "inference", 1, appsv1.DeploymentStrategy{}), "spec.strategy: a rolling update of this Deployment would never finish: it starts an additional pod beside its 1 of 0.5 of a GPU, and project " + ns + " has a quota of 0.5 of a GPU in node pool dgx-mig for non-preemptible pods; set rollingUpdate to maxSurge: 0 and maxUnavailable: 1"},
		"more replicas than the quota allows":        {deployment("many", "train", 3, appsv1.DeploymentStrategy{}), "spec.replicas: 3 pods of 0.5 of a GPU each need a quota of 1.5 GPUs"},
		"quota for one more pod":                     {deployment("roomy", "train", 1, appsv1.DeploymentStrategy{}), ""},
		"strategy Recreate":                          {deployment("recreated", "inference", 1, recreate), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			received := &warnings{}
			config := rest.CopyConfig(sharedCluster.config)
			config.WarningHandler = received
			clientset, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := clientset.AppsV1().Deployments(ns).Create(t.Context(), tc.deployment, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(received.sorted(), "\n")
			if tc.message == "" && strings.Contains(got, "spec.strategy") || !strings.Contains(got, tc.message) {
				t.Errorf("warnings\n%s\nwant %q", got, tc.message)
			}
		})
	}
}
