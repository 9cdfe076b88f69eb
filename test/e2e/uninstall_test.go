// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// suspendComponents stops Sluice's own processes, as if they were dead, until the test ends.
func (s *sluiceCluster) suspendComponents(t *testing.T) {
	t.Helper()
	report, err := s.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Components {
		if c.Name != "webhook" && c.Name != "lifecycle" && !strings.HasPrefix(c.Name, "gpuagent") {
			continue
		}
		if err := syscall.Kill(c.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(c.PID, syscall.SIGCONT) })
		eventuallyLong(t, func() error { return processStopped(c.PID) })
	}
}

// killedUninstall kills `sluice uninstall` after some lines of its output, and reports whether it ended before.
func (s *sluiceCluster) killedUninstall(t *testing.T, lines int) (ended bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, "uninstall", "--yes", "--dir", s.dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := bufio.NewScanner(out)
	for range lines {
		if !read.Scan() || strings.HasPrefix(read.Text(), "What stays") {
			ended = true
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return ended
}

// `sluice uninstall` works while webhook, lifecycle and agents are dead, and after it was killed in each step. Every
// object is then as before but for the written list; pods run on, and new ones start. Guards invariants 2 and 8 of
// the design.
func TestUninstall(t *testing.T) {
	c := newPolicyTimeCluster(t)
	const ns = "leaving"
	c.createGovernedProject(t, "h2-students", ns, newPoolQuota("dgx-mig", "500m", "2"))
	running, stopped := newDeploymentWorkload(ns, "stays", migDevice), newJobWorkload(ns, "stopped", migDevice)
	c.startWorkloads(t, stopped)
	c.advanceTime(t, 49*time.Hour)
	announced := c.waitForClock(t, stopped, "has all warnings", func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == len(universityLeads) })
	c.advanceTimeTo(t, announced.Deadline.At.Time)
	c.assertStopped(t, v1alpha1.EndMaxRuntime, 48*time.Hour, stopped)
	c.startWorkloads(t, running)
	c.eventuallyAfterStep(t, func() error {
		if pods := c.listPods(t, ns); len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
			return unexpectedState("only the pod of the Deployment runs", len(pods))
		}
		return nil
	})
	node := c.listPods(t, ns)[0].Spec.NodeName
	c.mustKubectl(t, "taint", "node", node, v1alpha1.TaintRepartitioning+"=:NoSchedule")
	c.suspendComponents(t)
	before := clustertest.TakeSnapshot(t, c.config)

	plan := c.runSluice(t, "uninstall", "--dry-run")
	planned := clustertest.TakeSnapshot(t, c.config)
	for key, was := range before {
		if is := planned[key]; is == nil || is.GetUID() != was.GetUID() || !slices.Equal(was.GetFinalizers(), is.GetFinalizers()) {
			t.Errorf("%s is gone or was changed", key)
		}
	}
	for _, text := range []string{"delete ValidatingWebhookConfiguration", "remove the finalizer of Project " + ns, "delete ResourceQuota " + ns + "/", "What stays:"} {
		if !strings.Contains(plan, text) {
			t.Errorf("the plan lacks %q:\n%s", text, plan)
		}
	}
	lines := 1
	for ; !c.killedUninstall(t, lines); lines += 5 {
	}
	out := c.runSluice(t, "uninstall", "--yes")
	after := clustertest.TakeSnapshot(t, c.config)
	taints, _, _ := unstructured.NestedSlice(after["Node /"+node].Object, "spec", "taints")
	if slices.ContainsFunc(taints, func(taint any) bool { return taint.(map[string]any)["key"] == v1alpha1.TaintRepartitioning }) {
		t.Errorf("node %s has the taints %v", node, taints)
	}
	unstructured.RemoveNestedField(before["Node /"+node].Object, "spec", "taints")
	unstructured.RemoveNestedField(after["Node /"+node].Object, "spec", "taints")
	before.CompareAfterRemoval(t, after, nil)
	if again := c.runSluice(t, "uninstall", "--yes"); !strings.HasPrefix(again, "What stays:") {
		t.Errorf("a further run changes something:\n%s", again)
	}

	// The printed command starts the stopped Job, and new pods start with and without a GPU.
	_, command, found := strings.Cut(out, "Job "+ns+"/stopped: ")
	if !found {
		t.Fatalf("the stopped Job is not listed:\n%s", out)
	}
	command, _, _ = strings.Cut(command, "\n")
	start := exec.CommandContext(t.Context(), "sh", "-c", command)
	start.Env = append(start.Environ(), "KUBECONFIG="+c.dir+"/kubeconfig")
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	for name, gpus := range map[string]string{"with-a-gpu": "1", "without-a-gpu": ""} {
		p := newPod(ns, name)
		if gpus != "" {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{v1alpha1.ResourceNVIDIAGPU: resource.MustParse(gpus)}
		}
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		if err := c.adminClient.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	c.eventuallyAfterStep(t, func() error {
		// The pod of the Job may wait for the MIG instance of the Deployment: the layout stays as it was.
		all, count := c.listPods(t, ns), 0
		for _, p := range all {
			if p.Status.Phase == corev1.PodRunning {
				count++
			}
		}
		if len(all) != 4 || count < 3 {
			return unexpectedState("four pods exist and three run", fmt.Sprint(len(all), count))
		}
		return nil
	})

	// With --delete-data Sluice's objects go, and nothing else does.
	if out, err := exec.CommandContext(t.Context(), c.binary, "uninstall", "--yes", "--delete-data", "--confirm", "another", "--dir", c.dir).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "is not the name of the cluster") {
		t.Errorf("another cluster's name: %v: %s", err, out)
	}
	var config struct {
		Clusters []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(c.mustKubectl(t, "config", "view", "-o", "json")), &config); err != nil {
		t.Fatal(err)
	}
	pods := c.listPods(t, ns)
	c.runSluice(t, "uninstall", "--yes", "--delete-data", "--confirm", config.Clusters[0].Name)
	if crds := c.mustKubectl(t, "get", "crds", "-o", "name"); strings.Contains(crds, "sluice.dev") {
		t.Errorf("kinds of Sluice are left: %s", crds)
	}
	for _, p := range pods {
		if is, err := c.clientset.CoreV1().Pods(ns).Get(t.Context(), p.Name, metav1.GetOptions{}); err != nil || is.UID != p.UID || is.DeletionTimestamp != nil {
			t.Errorf("pod %s is not as before: %v", p.Name, err)
		}
	}
}
