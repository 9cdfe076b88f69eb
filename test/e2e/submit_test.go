// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	s.createDepartment(t, ns, newPoolQuota("dgx", "1", "2"), newPoolQuota("dgx-mig", "2", "2"))
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

	for want, arguments := range map[string][]string{
		"job/half exists in namespace submit: choose another name, or delete it with sluice delete half":    {"half"},
		"job/nowhere is refused: pods of Job nowhere would be denied: ":                                     {"nowhere", "-g", "1", "--node-pools", "elsewhere"},
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
