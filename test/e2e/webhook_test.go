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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// What only the webhook can know is refused with the field, the value and what
// is allowed. Guards invariant 4 of the design: a Project that names somebody
// else's namespace or department.
func TestWebhookRejectsInvalidObjects(t *testing.T) {
	create(t, newNamespace("bystander"))
	create(t, newNamespace("promised", v1alpha1.AnnotationAdoptBy, "course-ml"))
	create(t, newNamespace("mislabeled"))
	department := func(change func(*v1alpha1.NoticeTerms)) client.Object {
		d := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
		change(&d.Spec.Notices)
		return d
	}
	tests := map[string]struct {
		object client.Object
		wants  []string
	}{
		"no such department":     {newProject("bad", func(p *v1alpha1.Project) { p.Spec.Department = "h2-nobody" }), []string{"spec.department", "h2-nobody"}},
		"a foreign pool":         {newProject("bad", func(p *v1alpha1.Project) { p.Spec.NodePools[0].Name = "dgx" }), []string{"spec.nodePools[0].name", `"dgx"`, `"dgx-mig"`}},
		"looser":                 {newProject("bad", withoutPodSecurity), []string{"spec.workloads[interactive].maxRuntime", "49h", "48h"}},
		"an unmarked namespace":  {newProject("bad", inNamespace("bystander")), []string{"spec.namespace", "kubectl annotate namespace bystander sluice.dev/adopt-by=bad"}},
		"marked for another":     {newProject("bad", inNamespace("promised")), []string{"spec.namespace", "marked for project course-ml"}},
		"another's namespace":    {newProject("bad", inNamespace("thesis-mueller")), []string{"spec.namespace", "thesis-mueller", "one namespace has one project"}},
		"an operator's":          {newProject("bad", inNamespace("gpu-operator")), []string{"spec.namespace", "belongs to the system"}},
		"an unmarked own name":   {newProject("bystander"), []string{"spec.namespace", "exists already"}},
		"a zone that is not":     {department(func(n *v1alpha1.NoticeTerms) { n.TimeZone = "Europe/Magdeburg" }), []string{"spec.notices.timeZone", "Europe/Magdeburg", "Europe/Berlin"}},
		"a digest without a day": {department(func(n *v1alpha1.NoticeTerms) { n.Digest = "0 8 30 2 *" }), []string{"spec.notices.digest", "0 8 30 2 *", "never"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := sharedCluster.adminClient.Create(t.Context(), tc.object, client.DryRunAll)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
	t.Run("a department that has projects", func(t *testing.T) {
		err := sharedCluster.adminClient.Delete(t.Context(), &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-students"}})
		if err == nil || !strings.Contains(err.Error(), "course-ml, thesis-mueller") {
			t.Errorf("err = %v, want a refusal that names the projects", err)
		}
	})
	t.Run("loosened later", func(t *testing.T) {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}}
		if err := refresh(t, p); err != nil {
			t.Fatal(err)
		}
		withoutPodSecurity(p)
		if err := sharedCluster.adminClient.Update(t.Context(), p, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "49h") {
			t.Errorf("err = %v, want the loosening refused", err)
		}
	})
}

func withoutPodSecurity(p *v1alpha1.Project) {
	p.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
		v1alpha1.WorkloadInteractive: {MaxRuntime: ptr.To(period.MustParseDuration("49h"))},
	}
}

// A pod of a governed namespace passes the webhook, whose record is one line;
// no other pod does. Guards invariant 2 of the design: no other pod is touched.
func TestWebhookCalledForGovernedPodsOnly(t *testing.T) {
	pod := func(namespace, name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "main", Image: "any"}}},
		}
	}
	create(t, pod("thesis-mueller", "governed-pod"))
	create(t, pod("default", "stranger-pod"))
	eventually(t, func() error { return checkLogContains("webhook", `"namespace":"thesis-mueller","name":"governed-pod"`) })
	if checkLogContains("webhook", "stranger-pod") == nil {
		t.Error("a pod outside of projects came to the webhook")
	}
}

// A webhook that does not answer stops new governed pods, and nothing else.
// Guards invariant 2 of the design. It is stopped, not killed: a process that
// hangs is the worst of outages, since nobody starts it again and each question
// costs its whole time-out.
func TestHangingWebhookBlocksGovernedPodsOnly(t *testing.T) {
	const ns, other = "outage", "outage-other"
	s := newDedicatedCluster(t)
	s.createDepartment(t, "outage", newPoolQuota("dgx", "4", "8"))
	s.createGovernedProject(t, "outage", ns, newPoolQuota("dgx", "2", "4"))
	s.createGovernedProject(t, "outage", other, newPoolQuota("dgx", "0", "1"))
	pods := s.clientset.CoreV1().Pods(ns)
	// What came in before: a pod that is not bound yet, a Job and a Deployment.
	gated := s.createPod(t, newPod(ns, "gated", withGPU, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/later"}}
	}))
	job := s.createGPUJob(t, ns, "job")
	deployment := s.createGPUDeployment(t, ns, "web", 2)
	bystander := s.createPod(t, newPod(other, "bystander", withGPU))
	s.waitForRunningPods(t, ns, 3)
	s.waitForRunningPods(t, other, 1)

	s.suspendComponent(t, "webhook")

	t.Run("a governed pod is refused, and told why", func(t *testing.T) {
		_, err := pods.Create(t.Context(), newPod(ns, "new"), metav1.CreateOptions{})
		if err == nil || !isWebhookTimeout(err) || !strings.Contains(err.Error(), "pods.sluice.dev") {
			t.Errorf("err = %v, want a refusal that names the webhook", err)
		}
	})
	t.Run("a pod outside of projects starts", func(t *testing.T) {
		s.createPod(t, newPod(metav1.NamespaceDefault, "outside"))
		s.waitForRunningPods(t, metav1.NamespaceDefault, 1)
	})
	t.Run("an admitted pod is bound and runs", func(t *testing.T) {
		// The gate goes, and with it the last thing that kept the scheduler back.
		if _, err := pods.Patch(t.Context(), gated.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.waitForBinding(t, gated, "dgx", true)
		s.waitForRunningPods(t, ns, 4)
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
			now, err := s.clientset.BatchV1().Jobs(ns).Get(t.Context(), job.Name, metav1.GetOptions{})
			if err == nil && now.Status.CompletionTime == nil {
				err = unexpectedState("the Job is complete", now.Status)
			}
			return err
		})
	})
	t.Run("a Deployment scales to 0", func(t *testing.T) {
		scale, err := s.clientset.AppsV1().Deployments(ns).GetScale(t.Context(), deployment.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		scale.Spec.Replicas = 0
		if _, err := s.clientset.AppsV1().Deployments(ns).UpdateScale(t.Context(), deployment.Name, scale, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			left, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment.Name})
			if err == nil && len(left.Items) > 0 {
				err = unexpectedState("no pod is left", len(left.Items))
			}
			return err
		})
	})
	t.Run("a namespace can be deleted", func(t *testing.T) {
		namespaces := s.clientset.CoreV1().Namespaces()
		before, err := namespaces.Get(t.Context(), other, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := namespaces.Delete(t.Context(), other, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventuallyLong(t, func() error {
			// The project is still there, so lifecycle may make a new one of that name.
			now, err := namespaces.Get(t.Context(), other, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil && now.UID == before.UID {
				err = unexpectedState("the namespace is gone", now.Status)
			}
			return err
		})
		if _, err := s.clientset.CoreV1().Pods(other).Get(t.Context(), bystander.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("its pod: %v, want it gone", err)
		}
	})
	t.Run("a project can be deleted", func(t *testing.T) {
		if err := s.adminClient.Delete(t.Context(), newProject(ns)); err != nil {
			t.Fatal(err)
		}
		eventuallyLong(t, func() error { return s.projectAndNamespaceDeleted(t, ns) })
	})
}

// The API server asks the webhook about governed pods only.
func TestWebhookNotCalledOutsideProjects(t *testing.T) {
	s := newDedicatedCluster(t)
	s.createDepartment(t, "asked", newPoolQuota("dgx", "1", "1"))
	s.createGovernedProject(t, "asked", "asked", newPoolQuota("dgx", "0", "1"))
	before := s.podWebhookRequests(t)
	for i := range 5 {
		s.createPod(t, newPod(metav1.NamespaceDefault, "outside-"+strconv.Itoa(i)))
	}
	s.waitForRunningPods(t, metav1.NamespaceDefault, 5)
	if after := s.podWebhookRequests(t); after != before {
		t.Errorf("the webhook was asked %d times about pods outside of projects", after-before)
	}
	// The same count does grow where it should.
	s.createPod(t, newPod("asked", "inside"))
	if after := s.podWebhookRequests(t); after <= before {
		t.Errorf("the webhook was asked %d times, and not about a governed pod", after)
	}
}

// podWebhookRequests is how often the API server has asked Sluice's webhook about pods.
func (s *sluiceCluster) podWebhookRequests(t *testing.T) int64 {
	t.Helper()
	return s.webhookRequests(t, "pods.sluice.dev")
}

// webhookRequests is how often the API server has asked the webhook of that name.
func (s *sluiceCluster) webhookRequests(t *testing.T, webhook string) int64 {
	t.Helper()
	raw, err := s.clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
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

func (s *sluiceCluster) createPod(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := s.clientset.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// createGPUJob makes a Job of one pod with a GPU, which runs until it is told to end.
func (s *sluiceCluster) createGPUJob(t *testing.T, ns, name string) *batchv1.Job {
	t.Helper()
	template := newPod(ns, name, withGPU)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	made, err := s.clientset.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template.Spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (s *sluiceCluster) createGPUDeployment(t *testing.T, ns, name string, replicas int32) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	made, err := s.clientset.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod(ns, name).Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// waitForRunningPods waits until n pods of the namespace run.
func (s *sluiceCluster) waitForRunningPods(t *testing.T, ns string, n int) {
	t.Helper()
	eventuallyLong(t, func() error {
		running := 0
		for _, p := range s.listPods(t, ns) {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != n {
			return unexpectedState(fmt.Sprintf("%d pods of %s run", n, ns), running)
		}
		return nil
	})
}

// projectAndNamespaceDeleted tells whether the project and its namespace are gone.
func (s *sluiceCluster) projectAndNamespaceDeleted(t *testing.T, name string) error {
	p := newProject(name)
	if err := s.adminClient.Get(t.Context(), types.NamespacedName{Name: name}, p); !apierrors.IsNotFound(err) {
		return unexpectedState("project "+name+" is gone", err)
	}
	if _, err := s.clientset.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return unexpectedState("namespace "+name+" is gone", err)
	}
	return nil
}

// suspendComponent stops a component as it stands, until the test ends: only who runs can
// be ended in order.
func (s *sluiceCluster) suspendComponent(t *testing.T, component string) {
	t.Helper()
	r, err := s.readReport(t.Context())
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
		eventuallyLong(t, func() error { return processStopped(c.PID) })
		return
	}
	t.Fatalf("%s is not in the report", component)
}

// processStopped tells whether all threads of a process are stopped.
func processStopped(pid int) error {
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
