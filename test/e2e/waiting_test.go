// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
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
	"sluice.dev/test/cluster/clustertest"
)

// half is a pod's template that has half a GPU, as training: up to the limit.
func half(name string) corev1.PodTemplateSpec {
	p := podIn("", name, func(p *corev1.Pod) {
		p.Labels["app"] = name
		p.Labels[v1alpha1.LabelWorkloadType] = "train"
		p.Annotations[v1alpha1.AnnotationGPU] = "500m"
	})
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec}
}

// holder is a pod of that template, by itself.
func holder(t *testing.T, ns, name string) *corev1.Pod {
	t.Helper()
	template := half(name)
	return shared.pod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec})
}

// end ends a pod at once.
func end(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := shared.admin.Delete(t.Context(), p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// endAll ends all pods of a namespace, and those which controllers that are about
// to go still make.
func endAll(t *testing.T, ns string) {
	ctx := context.Background() // a clean-up's test context has ended
	within(t, func() error {
		pods, err := shared.native.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		if err := shared.native.CoreV1().Pods(ns).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
			return err
		}
		return errNotYet("no pods are left", len(pods.Items))
	})
}

// awaitRefusals waits until pods of the object of that kind were refused so often.
func awaitRefusals(t *testing.T, ns, kind string, want int32) {
	t.Helper()
	within(t, func() error {
		var told corev1.EventList
		if err := shared.admin.List(t.Context(), &told, client.InNamespace(ns)); err != nil {
			return err
		}
		n := int32(0)
		for i := range told.Items {
			if e := &told.Items[i]; e.Reason == "FailedCreate" && e.InvolvedObject.Kind == kind {
				n += e.Count
			}
		}
		if n < want {
			return fmt.Errorf("%d refusals of a %s, want %d", n, kind, want)
		}
		return nil
	})
}

// kubectl is what it prints.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", filepath.Join(shared.dir, "kubeconfig")}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// awaitPending waits until the project and its department are said to wait for
// so much, for workloads that the condition names.
func awaitPending(t *testing.T, ns, pending string, names ...string) *v1alpha1.Project {
	t.Helper()
	p, d := project(ns), &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "waiting"}}
	within(t, func() error {
		if err := get(t, p); err != nil {
			return err
		}
		status, reason := metav1.ConditionFalse, v1alpha1.ReasonNothingWaits
		if len(names) > 0 {
			status, reason = metav1.ConditionTrue, v1alpha1.ReasonQuotaExceeded
		}
		if err := hasCondition(p.Status.Conditions, v1alpha1.ConditionWaiting, status, reason); err != nil {
			return err
		}
		if got := p.Status.GPU.Pending.String(); got != pending {
			return errNotYet(pending+" are pending", got)
		}
		for _, c := range p.Status.Conditions {
			for _, name := range names {
				if c.Type == v1alpha1.ConditionWaiting && !strings.Contains(c.Message, name) {
					return errNotYet(name+" is named", c.Message)
				}
			}
		}
		if err := get(t, d); err != nil {
			return err
		}
		if got := d.Status.GPU.Pending.String(); got != pending {
			return errNotYet(pending+" are pending in the department", got)
		}
		return nil
	})
	return p
}

// A Deployment for which there is no quota says so to its people, and has its pod
// seconds after there is room, however long its controller would have waited.
func TestWhatWaitsForQuotaIsShownAndWoken(t *testing.T) {
	const ns = "waiting-a"
	shared.department(t, "waiting", quota("dgx-mig", "500m", "1"))
	shared.governed(t, "waiting", ns, quota("dgx-mig", "500m", "1"))
	t.Cleanup(func() { endAll(t, ns) })
	first, second := holder(t, ns, "first"), holder(t, ns, "second")

	labels := map[string]string{"app": "web"}
	web := create(t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: half("web")},
	})
	awaitPending(t, ns, "500m", "Deployment web (1 pod of 0.5 of a GPU of node pool dgx-mig, since ")
	eventually(t, func() error { return hasEvent(t, web.Name, "WaitingForQuota") })
	shown := map[string][]string{
		kubectl(t, "describe", "slproj", ns):                  {"Waiting", "Deployment web (1 pod of 0.5 of a GPU", "QuotaExceeded"},
		kubectl(t, "describe", "deployment", "web", "-n", ns): {"WaitingForQuota", "project " + ns + " holds 1 GPU and may hold 1 GPU at once"},
	}
	eventually(t, func() error {
		columns := strings.Fields(kubectl(t, "get", "sldept", "waiting", "--no-headers"))
		if got := strings.Join(columns[:min(len(columns), 7)], " "); got != "waiting True 1 500m 1 1 500m" {
			return errNotYet("the department shows what its project has and waits for", got)
		}
		return nil
	})
	for printed, wants := range shown {
		for _, want := range wants {
			if !strings.Contains(printed, want) {
				t.Errorf("kubectl does not show %q:\n%s", want, printed)
			}
		}
	}

	// By then each next try is further away than the pod may take here.
	awaitRefusals(t, ns, "ReplicaSet", 13)
	end(t, first)
	clustertest.EventuallyWithin(t, 10*time.Second, func() error {
		if err := get(t, web); err != nil {
			return err
		}
		if web.Status.Replicas != 1 {
			return errNotYet("it has its pod", web.Status)
		}
		return nil
	})
	awaitPending(t, ns, "0")
	eventually(t, func() error { return hasEvent(t, web.Name, "QuotaAvailable") })

	train := half("train")
	train.Spec.RestartPolicy = corev1.RestartPolicyNever
	others := map[string]struct {
		object client.Object
		tries  int32 // after which the next one is ten seconds away, or more
	}{
		"StatefulSet": {&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
			Spec:       appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Template: half("db")},
		}, 13},
		"Job": {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "train"}, Spec: batchv1.JobSpec{Template: train}}, 5},
	}
	for kind, other := range others {
		object := create(t, other.object)
		awaitPending(t, ns, "500m", kind+" "+object.GetName())
		awaitRefusals(t, ns, kind, other.tries)
		end(t, second)
		within(t, func() error {
			if err := get(t, object); err != nil {
				return err
			}
			if object.GetAnnotations()[v1alpha1.AnnotationWokenAt] == "" {
				return errNotYet("the "+kind+" is woken", object.GetAnnotations())
			}
			return shared.used(t.Context(), ns, 1000)
		})
		awaitPending(t, ns, "0")
		remove(t, object)
		for _, p := range shared.podsOf(t, ns) {
			if p.Labels["app"] == object.GetName() {
				end(t, &p)
			}
		}
		within(t, func() error { return shared.used(t.Context(), ns, 500) })
		second = holder(t, ns, "second")
	}
}

// Whoever applies a Deployment that fits, but whose next version never could,
// hears of it at once.
func TestRollingUpdateThatNeverFitsIsWarnedOf(t *testing.T) {
	const ns = "waiting-rolling"
	shared.department(t, "rolling", quota("dgx-mig", "500m", "1"))
	shared.governed(t, "rolling", ns, quota("dgx-mig", "500m", "1"))
	deployment := func(name, workloadType string, replicas int32, strategy appsv1.DeploymentStrategy) *appsv1.Deployment {
		template := half(name)
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
		says       string // nothing where it is empty
	}{
		"serving within the guarantee": {deployment("serve", "inference", 1, appsv1.DeploymentStrategy{}), "spec.strategy: a rolling update of this Deployment would never end: it begins with a pod more than its 1 of 0.5 of a GPU, and project " + ns + " may have 0.5 of a GPU of node pool dgx-mig for pods that cannot be preempted; set rollingUpdate to maxSurge: 0 and maxUnavailable: 1"},
		"more than fits":               {deployment("many", "train", 3, appsv1.DeploymentStrategy{}), "spec.replicas: 3 pods of 0.5 of a GPU would count as 1.5 GPUs"},
		"room for one more":            {deployment("roomy", "train", 1, appsv1.DeploymentStrategy{}), ""},
		"all old ones go first":        {deployment("recreated", "inference", 1, recreate), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			heard := &warnings{}
			config := rest.CopyConfig(shared.config)
			config.WarningHandler = heard
			native, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := native.AppsV1().Deployments(ns).Create(t.Context(), tc.deployment, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(heard.sorted(), "\n")
			if tc.says == "" && strings.Contains(got, "spec.strategy") || !strings.Contains(got, tc.says) {
				t.Errorf("warnings\n%s\nwant %q", got, tc.says)
			}
		})
	}
}
