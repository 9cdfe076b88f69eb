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
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// The webhook rejects what only it can validate, with the field, the value and the allowed
// values. Guards invariant 4 of the design: a Project that names another user's namespace or
// department.
func TestWebhookRejectsInvalidObjects(t *testing.T) {
	t.Parallel()
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
		texts  []string
	}{
		"no such department":                     {newProject("bad", func(p *v1alpha1.Project) { p.Spec.Department = "h2-unknown" }), []string{"spec.department", "h2-unknown"}},
		"a node pool without quota":              {newProject("bad", func(p *v1alpha1.Project) { p.Spec.NodePools[0].Name = "dgx" }), []string{"spec.nodePools[0].name", `"dgx"`, `"dgx-mig"`}},
		"a longer time limit":                    {newProject("bad", withLongerTimeLimit), []string{"spec.workloads[interactive].maxRuntime", "49h", "48h"}},
		"an unmarked namespace":                  {newProject("bad", inNamespace("bystander")), []string{"spec.namespace", "kubectl annotate namespace bystander sluice.dev/adopt-by=bad"}},
		"marked for another":                     {newProject("bad", inNamespace("promised")), []string{"spec.namespace", "marked for project course-ml"}},
		"another project's namespace":            {newProject("bad", inNamespace("thesis-mueller")), []string{"spec.namespace", "thesis-mueller", "one namespace has one project"}},
		"an operator's namespace":                {newProject("bad", inNamespace("gpu-operator")), []string{"spec.namespace", "belongs to the system"}},
		"an existing namespace of the same name": {newProject("bystander"), []string{"spec.namespace", "exists already"}},
		"an unknown time zone":                   {department(func(n *v1alpha1.NoticeTerms) { n.TimeZone = "Europe/Magdeburg" }), []string{"spec.notices.timeZone", "Europe/Magdeburg", "Europe/Berlin"}},
		"a digest without a day":                 {department(func(n *v1alpha1.NoticeTerms) { n.Digest = "0 8 30 2 *" }), []string{"spec.notices.digest", "0 8 30 2 *", "never"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := sharedCluster.adminClient.Create(t.Context(), tc.object, client.DryRunAll)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v\ndoes not contain %q", err, text)
				}
			}
		})
	}
	t.Run("the deletion of a department with projects", func(t *testing.T) {
		err := sharedCluster.adminClient.Delete(t.Context(), &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-students"}})
		if err == nil || !strings.Contains(err.Error(), "course-ml, thesis-mueller") {
			t.Errorf("err = %v, want a rejection that names the projects", err)
		}
	})
	t.Run("an update with a longer time limit", func(t *testing.T) {
		p := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}}
		if err := refresh(t, p); err != nil {
			t.Fatal(err)
		}
		withLongerTimeLimit(p)
		if err := sharedCluster.adminClient.Update(t.Context(), p, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "49h") {
			t.Errorf("err = %v, want a rejection of the longer time limit", err)
		}
	})
}

func withLongerTimeLimit(p *v1alpha1.Project) {
	p.Spec.Workloads = map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{
		v1alpha1.WorkloadInteractive: {MaxRuntime: ptr.To(period.MustParseDuration("49h"))},
	}
}

// The webhook is called for a pod in a governed namespace, and records it. It is not
// called for other pods. Guards invariant 2 of the design: Sluice does not change other
// pods.
func TestWebhookCalledForGovernedPodsOnly(t *testing.T) {
	pod := func(namespace, name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "main", Image: "any"}}},
		}
	}
	create(t, pod("thesis-mueller", "governed-pod"))
	create(t, pod("default", "outside-pod"))
	eventually(t, func() error { return checkLogContains("webhook", `"namespace":"thesis-mueller","name":"governed-pod"`) })
	if checkLogContains("webhook", "outside-pod") == nil {
		t.Error("the webhook was called for a pod outside projects")
	}
}

// A webhook that does not respond blocks new governed pods and nothing else. Guards
// invariant 2 of the design. The process is suspended, not killed: a hanging process is the
// worst outage, since it is not restarted and each request waits for the whole timeout.
func TestHangingWebhookBlocksGovernedPodsOnly(t *testing.T) {
	const ns, other = "outage", "outage-other"
	s := newDedicatedCluster(t)
	s.createDepartment(t, "outage", newPoolQuota("dgx", "4", "8"))
	s.createGovernedProject(t, "outage", ns, newPoolQuota("dgx", "2", "4"))
	s.createGovernedProject(t, "outage", other, newPoolQuota("dgx", "0", "1"))
	pods := s.clientset.CoreV1().Pods(ns)
	s.allowGate(t, "example.org/later")
	// These exist before the outage: a pod that is not bound, a Job and a Deployment.
	gated := newPod(ns, "gated", withGPU, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/later"}}
	})
	eventually(t, func() error { return s.adminClient.Create(t.Context(), gated.DeepCopy(), client.DryRunAll) })
	gated = s.createPod(t, gated)
	job := s.createGPUJob(t, ns, "job")
	deployment := s.createGPUDeployment(t, ns, "web", 2)
	bystander := s.createPod(t, newPod(other, "bystander", withGPU))
	s.waitForRunningPods(t, ns, 3)
	s.waitForRunningPods(t, other, 1)

	s.createForTest(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "researcher"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sluice:l2-researcher"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "researcher"}},
	})
	researcher := rest.CopyConfig(s.config)
	researcher.Impersonate = rest.ImpersonationConfig{UserName: "researcher", Groups: []string{"system:authenticated"}}
	eventually(t, func() error {
		_, err := kubernetes.NewForConfigOrDie(researcher).CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		return err
	})

	s.suspendComponent(t, "webhook")

	t.Run("a governed pod is rejected with the reason", func(t *testing.T) {
		_, err := pods.Create(t.Context(), newPod(ns, "new"), metav1.CreateOptions{})
		if err == nil || !isWebhookTimeout(err) || !strings.Contains(err.Error(), "pods.sluice.dev") {
			t.Errorf("err = %v, want a rejection that names the webhook", err)
		}
	})
	t.Run("an L2 researcher connects to no pod, and an administrator to each", func(t *testing.T) {
		exec := func(config *rest.Config) error {
			return kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(gated.Name).
				SubResource("exec").Param("command", "sh").Param("stdout", "true").Do(t.Context()).Error()
		}
		expectError(t, exec(researcher), `failed calling webhook "connections.sluice.dev"`)
		if err := exec(s.config); err == nil || strings.Contains(err.Error(), "connections.sluice.dev") {
			t.Errorf("an administrator: %v", err)
		}
	})
	t.Run("a pod outside projects starts", func(t *testing.T) {
		s.createPod(t, newPod(metav1.NamespaceDefault, "outside"))
		s.waitForRunningPods(t, metav1.NamespaceDefault, 1)
	})
	t.Run("an admitted pod is bound and runs", func(t *testing.T) {
		// The scheduler may bind the pod after the gate is removed.
		if _, err := pods.Patch(t.Context(), gated.Name, types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.waitForBinding(t, gated, "dgx", true)
		s.waitForRunningPods(t, ns, 4)
	})
	t.Run("a finished Job completes", func(t *testing.T) {
		selected := metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name}
		created, err := pods.List(t.Context(), selected)
		if err != nil || len(created.Items) != 1 {
			t.Fatalf("the pods of the Job are %v (%v), want one", created.Items, err)
		}
		annotation := fmt.Sprintf(`{"metadata":{"annotations":{%q:"0s"}}}`, v1alpha1.AnnotationSimRunFor)
		if _, err := pods.Patch(t.Context(), created.Items[0].Name, types.MergePatchType, []byte(annotation), metav1.PatchOptions{}); err != nil {
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
			remaining, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment.Name})
			if err == nil && len(remaining.Items) > 0 {
				err = unexpectedState("no pod exists", len(remaining.Items))
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
			// The project still exists, so lifecycle may create a new namespace of the same
			// name.
			now, err := namespaces.Get(t.Context(), other, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil && now.UID == before.UID {
				err = unexpectedState("the namespace is deleted", now.Status)
			}
			return err
		})
		if _, err := s.clientset.CoreV1().Pods(other).Get(t.Context(), bystander.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the pod of the namespace: %v, want NotFound", err)
		}
	})
	t.Run("a project can be deleted", func(t *testing.T) {
		if err := s.adminClient.Delete(t.Context(), newProject(ns)); err != nil {
			t.Fatal(err)
		}
		eventuallyLong(t, func() error { return s.projectAndNamespaceDeleted(t, ns) })
	})
}

// The API server calls the webhook for governed pods only.
func TestWebhookNotCalledOutsideProjects(t *testing.T) {
	s := newDedicatedCluster(t)
	s.createDepartment(t, "called", newPoolQuota("dgx", "1", "1"))
	s.createGovernedProject(t, "called", "called", newPoolQuota("dgx", "0", "1"))
	before := s.podWebhookRequests(t)
	for i := range 5 {
		s.createPod(t, newPod(metav1.NamespaceDefault, "outside-"+strconv.Itoa(i)))
	}
	s.waitForRunningPods(t, metav1.NamespaceDefault, 5)
	if after := s.podWebhookRequests(t); after != before {
		t.Errorf("the webhook was called %d times for pods outside projects", after-before)
	}
	// The counter must increase for governed pods.
	s.createPod(t, newPod("called", "inside"))
	if after := s.podWebhookRequests(t); after <= before {
		t.Errorf("the webhook was called %d times, but not for a governed pod", after)
	}
}

// podWebhookRequests returns how many requests for pods the API server has sent to Sluice's
// webhook.
func (s *sluiceCluster) podWebhookRequests(t *testing.T) int64 {
	t.Helper()
	return s.webhookRequests(t, "pods.sluice.dev")
}

// webhookRequests returns how many requests the API server has sent to the webhook.
func (s *sluiceCluster) webhookRequests(t *testing.T, webhook string) int64 {
	t.Helper()
	raw, err := s.clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const metric = "apiserver_admission_webhook_request_total{"
	quotedName := strconv.Quote(webhook)
	total := int64(0)
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, metric) || !strings.Contains(line, "name="+quotedName) {
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

// allowGate allows a scheduling gate on pods with GPUs, by which a test keeps them from their nodes.
func (s *sluiceCluster) allowGate(t testing.TB, gate string) {
	t.Helper()
	s.mustKubectl(t, "patch", "slpol", "core.limits", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"parameters":{"schedulingGates":[%q]}}}`, gate))
}

func (s *sluiceCluster) createPod(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := s.clientset.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// createGPUJob creates a Job of one pod with a GPU, which runs until it is stopped.
func (s *sluiceCluster) createGPUJob(t *testing.T, ns, name string) *batchv1.Job {
	t.Helper()
	template := newPod(ns, name, withGPU)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	created, err := s.clientset.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template.Spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (s *sluiceCluster) createGPUDeployment(t *testing.T, ns, name string, replicas int32) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	created, err := s.clientset.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
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
	return created
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

// projectAndNamespaceDeleted returns an error while the project or its namespace exists.
func (s *sluiceCluster) projectAndNamespaceDeleted(t *testing.T, name string) error {
	p := newProject(name)
	if err := s.adminClient.Get(t.Context(), types.NamespacedName{Name: name}, p); !apierrors.IsNotFound(err) {
		return unexpectedState("project "+name+" is deleted", err)
	}
	if _, err := s.clientset.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return unexpectedState("namespace "+name+" is deleted", err)
	}
	return nil
}

// suspendComponent suspends a component until the test ends. It must run again before it can
// shut down.
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
		// A thread on another processor stops a moment later.
		eventuallyLong(t, func() error { return processStopped(c.PID) })
		return
	}
	t.Fatalf("%s is not in the report", component)
}

// processStopped returns an error unless all threads of the process are stopped.
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
		// The name in brackets may contain any characters; the state follows it.
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("%s: %.40s", thread, stat)
		}
	}
	return nil
}
