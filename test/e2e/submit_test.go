// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// createProjectWithMembers creates a governed project, and waits until the members have their rights.
func (s *sluiceCluster) createProjectWithMembers(t *testing.T, department, name string, members map[string]v1alpha1.Role, quotas ...v1alpha1.PoolQuota) {
	t.Helper()
	s.createGovernedProject(t, department, name, quotas...)
	eventually(t, func() error {
		project := &v1alpha1.Project{}
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Name: name}, project); err != nil {
			return err
		}
		project.Spec.Members = nil
		for user, role := range members {
			project.Spec.Members = append(project.Spec.Members, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: user, Role: role})
		}
		return s.adminClient.Update(t.Context(), project)
	})
	for user := range members {
		impersonatedConfig(t, user, name)
	}
}

// sluiceOf runs sluice on the shared cluster as a user.
func (s *sluiceCluster) sluiceOf(t testing.TB, user string, arguments ...string) (string, error) {
	t.Helper()
	arguments = append([]string{arguments[0], "--dir", s.dir, "--as", user}, arguments[1:]...)
	out, err := exec.CommandContext(t.Context(), s.binary, arguments...).CombinedOutput()
	return string(out), err
}

// A member submits training on a share, an array of training, and a notebook with a Service; all run. What cannot run as
// it was meant is refused in one sentence, and nothing of it is left.
func TestSubmit(t *testing.T) {
	t.Parallel()
	const ns, user = "submit", "submit-anna@example.org"
	s := sharedCluster
	department := newServiceDepartment(ns, newPoolQuota("dgx", "1", "2"), newPoolQuota("dgx-mig", "2", "2"))
	department.Spec.Services.IngressHosts = []v1alpha1.IngressHost{"gpu.example.org"}
	s.createForTest(t, department)
	s.createProjectWithMembers(t, ns, ns, map[string]v1alpha1.Role{user: v1alpha1.RoleL1Researcher}, newPoolQuota("dgx", "1", "2"), newPoolQuota("dgx-mig", "1", "2"))
	submit := func(arguments ...string) string {
		t.Helper()
		out, err := s.sluiceOf(t, user, append([]string{"submit", "-p", ns, "-i", "python:3.12"}, arguments...)...)
		if err != nil {
			t.Fatalf("sluice submit %v: %s", arguments, out)
		}
		return out
	}
	if out := submit("half", "-g", "0.5", "--node-pools", "dgx-mig", "--command", "--", "python", "-c", "1"); !strings.HasPrefix(out, "job/half created in namespace submit\n") {
		t.Errorf("printed %s", out)
	}
	submit("array", "--parallelism", "2", "--completions", "3", "--cpu", "100m")
	submit("notebook", "-g", "1", "--node-pools", "dgx", "--interactive", "--port", "8888", "--new-pvc", "name=scratch,path=/scratch,size=1Gi,storageclass=none")
	s.waitForLabelledPods(t, ns, "half", 1)
	s.waitForLabelledPods(t, ns, "array", 2)
	var service corev1.Service
	if err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "notebook"}, &service); err != nil {
		t.Error(err)
	}

	var array batchv1.Job
	if err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "array"}, &array); err != nil || ptr.Deref(array.Spec.CompletionMode, "") != batchv1.IndexedCompletion {
		t.Errorf("%v: the array's pods have no index: %v", err, array.Spec.CompletionMode)
	}
	submit("web", "--interactive", "--port", "8888", "--service-type", "ingress", "--host", "gpu.example.org")
	var ingress networkingv1.Ingress
	if err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, &ingress); err != nil || ingress.Spec.Rules[0].Host != "gpu.example.org" {
		t.Errorf("%v: the Ingress has %v", err, ingress.Spec.Rules)
	}
	s.checkFetches(t, ns, submit, func(arguments ...string) (string, error) { return s.sluiceOf(t, user, arguments...) })

	for want, arguments := range map[string][]string{
		"ingress/all-hosts is refused: host (none, which is all hosts): the department allows gpu.example.org; choose one of these, or ask a system administrator " +
			"to add it to the department's services.ingressHosts; sluice submit: --host gpu.example.org": {"all-hosts", "--interactive", "--port", "8888", "--service-type", "ingress"},
		"job/half exists in namespace submit: choose another name, or delete it with sluice delete job/half": {"half"},
		"job/nowhere is refused: ": {"nowhere", "-g", "1", "--node-pools", "elsewhere"},
		"the cluster has no kind PyTorchJob: ask its administrator to install the operator of kubeflow.org": {"ddp", "--pytorch", "workers=2"},
	} {
		out, err := s.sluiceOf(t, user, append([]string{"submit", "-p", ns, "-i", "python:3.12"}, arguments...)...)
		if err == nil || !strings.Contains(out, "sluice: "+want) || strings.Contains(out, "admission webhook") {
			t.Errorf("sluice submit %v: %v %s\nwant %s", arguments, err, out, want)
		}
	}
	if out, err := s.sluiceOf(t, "stranger@example.org", "submit", "mine", "-n", ns, "-i", "a"); err == nil || !strings.Contains(out, "your role does not allow Job in namespace \"submit\"") {
		t.Errorf("a stranger's: %v %s", err, out)
	}
	if out, err := kubectl(t.Context(), "get", "jobs,services,pvc", "-n", ns, "-o", "name"); err != nil || strings.Contains(out, "nowhere") || strings.Contains(out, "ddp") {
		t.Errorf("%v: a refused submission left something: %s", err, out)
	}
}

// checkFetches submits jobs with code from Git, by a flag and by a preset, which are refused until an administrator names an image. Nothing
// is cloned: the pods are simulated.
func (s *sluiceCluster) checkFetches(t *testing.T, ns string, submit func(...string) string, sluice func(...string) (string, error)) {
	t.Helper()
	code := []string{"code", "--git-sync", "source=https://git.example.org/course/model.git,target=/code"}
	out, err := sluice(append([]string{"submit", "-p", ns, "-i", "python:3.12"}, code...)...)
	if want := "--git-sync: this cluster names no image for it; ask your administrators to set git-image in ConfigMap submission"; err == nil || !strings.Contains(out, want) {
		t.Errorf("%v %s\nwant %s", err, out, want)
	}
	images := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "submission", Namespace: v1alpha1.SystemNamespace}}
	images.Data = map[string]string{"git-image": "registry.example.org/tools/git:2.51"}
	s.createForTest(t, images)
	submit(code...)
	// A preset of the same flag needs the same image.
	if out, err := sluice("preset", "create", "code", "--type", "datasource", "-p", ns, code[1], code[2]); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	submit("code-of-preset", "--preset", "code")
	for _, name := range []string{"code", "code-of-preset"} {
		s.waitForLabelledPods(t, ns, name, 1)
		var job batchv1.Job
		if err := s.adminClient.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &job); err != nil {
			t.Fatal(err)
		}
		if containers := job.Spec.Template.Spec.InitContainers; len(containers) != 1 || containers[0].Image != images.Data["git-image"] {
			t.Errorf("job %s: init containers %v", name, containers)
		}
	}
}

// submit --attach waits for the pod, says why, and attaches to it. Ctrl-C leaves the workload, in the wait and afterwards.
func TestSubmitAttach(t *testing.T) {
	t.Parallel()
	const ns, user = "submit-attach", "attach-anna@example.org"
	s := sharedCluster
	s.createForTest(t, newServiceDepartment(ns, newPoolQuota("dgx-mig", "1", "1")))
	s.createProjectWithMembers(t, ns, ns, map[string]v1alpha1.Role{user: v1alpha1.RoleL1Researcher}, newPoolQuota("dgx-mig", "500m", "1"))
	for _, tt := range []struct {
		name, until, want string
		arguments         []string
		runs              bool
	}{
		{"shell", "Attached to pod shell-", "shell goes on. To come back: sluice attach shell -it -n " + ns, []string{"-g", "0.5", "--interactive", "-it"}, true},
		{"watched", "Attached to pod watched-", "watched goes on. To come back: sluice attach watched -n " + ns, []string{"--cpu", "100m"}, true},
		{"waits", "Waiting for job/waits: Pending: the GPU quota in node pool dgx-mig has no room", "waits goes on.", []string{"-g", "1"}, false},
	} {
		arguments := append([]string{"submit", tt.name, "--dir", s.dir, "--as", user, "-p", ns, "-i", "python:3.12", "--attach"}, tt.arguments...)
		command := exec.CommandContext(t.Context(), s.binary, arguments...)
		notes, err := command.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		var printed strings.Builder
		for lines := bufio.NewScanner(notes); lines.Scan(); {
			fmt.Fprintln(&printed, lines.Text())
			if strings.HasPrefix(lines.Text(), tt.until) {
				if err := command.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := command.Wait(); err != nil || !strings.Contains(printed.String(), tt.until) || !strings.Contains(printed.String(), tt.want) {
			t.Errorf("%s: %v\n%s\nwant %s, and then %s", tt.name, err, printed.String(), tt.until, tt.want)
		}
		if tt.runs {
			s.waitForLabelledPods(t, ns, tt.name, 1)
		}
		if out, err := s.sluiceOf(t, user, "get", tt.name, "-n", ns); err != nil {
			t.Errorf("after Ctrl-C: %v %s", err, out)
		}
	}
}

// waitForLabelledPods waits until pods of a submission run or have run.
func (s *sluiceCluster) waitForLabelledPods(t *testing.T, ns, name string, want int) {
	t.Helper()
	eventuallyLong(t, func() error {
		pods, err := s.clientset.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + name})
		if err != nil {
			return err
		}
		started := 0
		for i := range pods.Items {
			if phase := pods.Items[i].Status.Phase; phase == corev1.PodRunning || phase == corev1.PodSucceeded {
				started++
			}
		}
		if started < want {
			return unexpectedState(fmt.Sprintf("%d pods of %s started", want, name), started)
		}
		return nil
	})
}
