// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// A webhook that does not answer stops new governed pods, and nothing else.
// Guards invariant 2 of the design. It is stopped, not killed: a process that
// hangs is the worst of outages, since nobody starts it again and each question
// costs its whole time-out.
func TestWebhookThatHangsStopsNewGovernedPodsOnly(t *testing.T) {
	const ns, other = "outage", "outage-other"
	s := own(t)
	s.department(t, "outage", quota("dgx", "4", "8"))
	s.governed(t, "outage", ns, quota("dgx", "2", "4"))
	s.governed(t, "outage", other, quota("dgx", "0", "1"))
	pods := s.native.CoreV1().Pods(ns)
	// What came in before: a pod that is not bound yet, a Job and a Deployment.
	gated := s.pod(t, podIn(ns, "gated", withGPU, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/later"}}
	}))
	job := s.job(t, ns, "job")
	deployment := s.deployment(t, ns, "web", 2)
	bystander := s.pod(t, podIn(other, "bystander", withGPU))
	s.awaitRunning(t, ns, 3)
	s.awaitRunning(t, other, 1)

	s.pause(t, "webhook")

	t.Run("a governed pod is refused, and told why", func(t *testing.T) {
		_, err := pods.Create(t.Context(), podIn(ns, "new"), metav1.CreateOptions{})
		if err == nil || !webhookSilent(err) || !strings.Contains(err.Error(), "pods.sluice.dev") {
			t.Errorf("err = %v, want a refusal that names the webhook", err)
		}
	})
	t.Run("a pod outside of projects starts", func(t *testing.T) {
		s.pod(t, podIn(metav1.NamespaceDefault, "outside"))
		s.awaitRunning(t, metav1.NamespaceDefault, 1)
	})
	t.Run("an admitted pod is bound and runs", func(t *testing.T) {
		// The gate goes, and with it the last thing that kept the scheduler back.
		if _, err := pods.Patch(t.Context(), gated.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.awaitBound(t, gated, "dgx", true)
		s.awaitRunning(t, ns, 4)
	})
	t.Run("a finished Job completes", func(t *testing.T) {
		selected := metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name}
		made, err := pods.List(t.Context(), selected)
		if err != nil || len(made.Items) != 1 {
			t.Fatalf("the Job has pods %v (%v), want one", made.Items, err)
		}
		end := fmt.Sprintf(`{"metadata":{"annotations":{%q:"0s"}}}`, v1alpha1.AnnotationSimRunFor)
		if _, err := pods.Patch(t.Context(), made.Items[0].Name, types.MergePatchType, []byte(end), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			now, err := s.native.BatchV1().Jobs(ns).Get(t.Context(), job.Name, metav1.GetOptions{})
			if err == nil && now.Status.CompletionTime == nil {
				err = errNotYet("the Job is complete", now.Status)
			}
			return err
		})
	})
	t.Run("a Deployment scales to 0", func(t *testing.T) {
		scale, err := s.native.AppsV1().Deployments(ns).GetScale(t.Context(), deployment.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		scale.Spec.Replicas = 0
		if _, err := s.native.AppsV1().Deployments(ns).UpdateScale(t.Context(), deployment.Name, scale, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			left, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment.Name})
			if err == nil && len(left.Items) > 0 {
				err = errNotYet("no pod is left", len(left.Items))
			}
			return err
		})
	})
	t.Run("a namespace can be deleted", func(t *testing.T) {
		namespaces := s.native.CoreV1().Namespaces()
		before, err := namespaces.Get(t.Context(), other, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := namespaces.Delete(t.Context(), other, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		within(t, func() error {
			// The project is still there, so lifecycle may make a new one of that name.
			now, err := namespaces.Get(t.Context(), other, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil && now.UID == before.UID {
				err = errNotYet("the namespace is gone", now.Status)
			}
			return err
		})
		if _, err := s.native.CoreV1().Pods(other).Get(t.Context(), bystander.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("its pod: %v, want it gone", err)
		}
	})
	t.Run("a project can be deleted", func(t *testing.T) {
		if err := s.admin.Delete(t.Context(), project(ns)); err != nil {
			t.Fatal(err)
		}
		within(t, func() error { return s.goneForGood(t, ns) })
	})
}

// The API server asks the webhook about governed pods only.
func TestPodsOutsideOfProjectsAreNotAskedAbout(t *testing.T) {
	s := own(t)
	s.department(t, "asked", quota("dgx", "1", "1"))
	s.governed(t, "asked", "asked", quota("dgx", "0", "1"))
	before := s.asked(t)
	for i := range 5 {
		s.pod(t, podIn(metav1.NamespaceDefault, "outside-"+strconv.Itoa(i)))
	}
	s.awaitRunning(t, metav1.NamespaceDefault, 5)
	if after := s.asked(t); after != before {
		t.Errorf("the webhook was asked %d times about pods outside of projects", after-before)
	}
	// The same count does grow where it should.
	s.pod(t, podIn("asked", "inside"))
	if after := s.asked(t); after <= before {
		t.Errorf("the webhook was asked %d times, and not about a governed pod", after)
	}
}

// asked is how often the API server has asked Sluice's webhook about pods.
func (s *stack) asked(t *testing.T) int64 {
	t.Helper()
	return s.askedBy(t, "pods.sluice.dev")
}

// askedBy is how often the API server has asked the webhook of that name.
func (s *stack) askedBy(t *testing.T, webhook string) int64 {
	t.Helper()
	raw, err := s.native.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const metric = "apiserver_admission_webhook_request_total{"
	about := strconv.Quote(webhook)
	total := int64(0)
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, metric) || !strings.Contains(line, "name="+about) {
			continue
		}
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		total += int64(n)
	}
	return total
}

func withGPU(p *corev1.Pod) {
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse("1")}
}

func (s *stack) pod(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := s.native.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// job makes a Job of one pod with a GPU, which runs until it is told to end.
func (s *stack) job(t *testing.T, ns, name string) *batchv1.Job {
	t.Helper()
	template := podIn(ns, name, withGPU)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	made, err := s.native.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template.Spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (s *stack) deployment(t *testing.T, ns, name string, replicas int32) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	made, err := s.native.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podIn(ns, name).Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// awaitRunning waits until n pods of the namespace run.
func (s *stack) awaitRunning(t *testing.T, ns string, n int) {
	t.Helper()
	within(t, func() error {
		running := 0
		for _, p := range s.podsOf(t, ns) {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != n {
			return errNotYet(fmt.Sprintf("%d pods of %s run", n, ns), running)
		}
		return nil
	})
}

// goneForGood tells whether the project and its namespace are gone.
func (s *stack) goneForGood(t *testing.T, name string) error {
	p := project(name)
	if err := s.admin.Get(t.Context(), types.NamespacedName{Name: name}, p); !apierrors.IsNotFound(err) {
		return errNotYet("project "+name+" is gone", err)
	}
	if _, err := s.native.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return errNotYet("namespace "+name+" is gone", err)
	}
	return nil
}

// pause stops a component as it stands, until the test ends: only who runs can
// be ended in order.
func (s *stack) pause(t *testing.T, component string) {
	t.Helper()
	r, err := s.report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Components {
		if c.Name != component {
			continue
		}
		if err := syscall.Kill(c.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Kill(c.PID, syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		})
		// A thread that runs on another processor is stopped a moment later.
		within(t, func() error { return standsStill(c.PID) })
		return
	}
	t.Fatalf("%s is not in the report", component)
}

// standsStill tells whether all threads of a process are stopped.
func standsStill(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return err
		}
		// The name, in brackets, may hold anything; the state follows it.
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("%s: %.40s", thread, stat)
		}
	}
	return nil
}
