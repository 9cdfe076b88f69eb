// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// Annotations of the simulated nodes, which docs/developer/embedded-kubernetes.md describes.
const (
	failAfter = "sim.sluice.dev/fail-after"
	exitCode  = "sim.sluice.dev/exit-code"
	exitDelay = "sim.sluice.dev/exit-delay"
	// kwokNode marks the nodes that kwok simulates.
	kwokNode = "kwok.x-k8s.io/node"
)

// kubectl logs, exec, attach and port-forward work on simulated pods, through the API server
// as on a real cluster.
func TestStreamsOfSimulatedPods(t *testing.T) {
	t.Parallel()
	const ns = "streams"
	s := sharedCluster
	s.createDepartment(t, ns, newPoolQuota("dgx-mig", "1", "1"))
	s.createGovernedProject(t, ns, ns, newPoolQuota("dgx-mig", "1", "1"))
	s.createPod(t, newPod(ns, "lab", func(p *corev1.Pod) {
		p.Labels[v1alpha1.LabelWorkloadType] = "interactive"
		c := &p.Spec.Containers[0]
		c.Image, c.Env = "quay.io/jupyter/pytorch-notebook:cuda12-2025-10-20", []corev1.EnvVar{{Name: "EPOCHS", Value: "10"}}
		c.Ports = []corev1.ContainerPort{{ContainerPort: 8888}}
		c.Resources.Limits = corev1.ResourceList{v1alpha1.ResourceMIG("1g.5gb"): resource.MustParse("1")}
	}))
	s.waitForRunningPod(t, ns, "lab") // its GPU is partitioned first
	s.createPod(t, newPod(ns, "short", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, failAfter, "15s")
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, exitCode, "3")
	}))
	s.waitForRunningPod(t, ns, "short")

	// The log of a pod that ends, followed and by attach.
	attached := make(chan string, 1)
	go func() {
		out, err := s.kubectl(t.Context(), "-n", ns, "attach", "short")
		attached <- fmt.Sprint(out, err)
	}()
	followed := s.mustKubectl(t, "-n", ns, "logs", "-f", "short")
	for _, want := range []string{"image: any", "container main ended with exit code 3"} {
		if !strings.Contains(followed, want) {
			t.Errorf("the followed log lacks %q: %s", want, followed)
		}
	}
	if out := <-attached; !strings.Contains(out, "container main ended with exit code 3") {
		t.Errorf("attach: %s", out)
	}

	log := s.mustKubectl(t, "-n", ns, "logs", "lab", "--timestamps")
	if !regexp.MustCompile(`http://127\.0\.0\.1:8888/lab\?token=[0-9a-f]{48}`).MatchString(log) {
		t.Errorf("the log has no address of the notebook: %s", log)
	}
	if out := s.mustKubectl(t, "-n", ns, "logs", "lab", "--tail=1"); strings.Count(out, "\n") != 1 {
		t.Errorf("--tail=1: %q", out)
	}

	for _, tc := range []struct {
		arguments []string
		want      string
		code      int
	}{
		{[]string{"lab", "--", "hostname"}, "lab\n", 0},
		{[]string{"lab", "-c", "main", "--", "sh", "-c", "echo $EPOCHS | id"}, "not in this simulation", 2},
		{[]string{"lab", "--", "bash", "-c", "echo $EPOCHS; exit 5"}, "10\n", 5},
		{[]string{"lab", "--", "nvidia-smi", "-L"}, "MIG 1g.5gb", 0},
		{[]string{"lab", "--", "cat", "/etc/passwd"}, "No such file or directory", 1},
		{[]string{"short", "--", "hostname"}, "cannot exec into a container in a completed pod", 1},
	} {
		out, err := s.kubectl(t.Context(), append([]string{"-n", ns, "exec"}, tc.arguments...)...)
		code := 0
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if !strings.Contains(out, tc.want) || code != tc.code {
			t.Errorf("exec %q: exit %d, %q; want %d, %q", tc.arguments, code, out, tc.code, tc.want)
		}
	}

	// A shell with standard input. Without a terminal of its own kubectl asks for none.
	shell := exec.CommandContext(t.Context(), "kubectl", "--kubeconfig", filepath.Join(s.dir, "kubeconfig"), "-n", ns, "exec", "-it", "lab", "--", "bash")
	shell.Stdin = strings.NewReader("cd /tmp\npwd\nexit 4\n")
	out, err := shell.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.Contains(string(out), "/tmp\n") {
		t.Errorf("exec -it bash: %q, %v", out, err)
	}

	// Sluice's own pods are processes, whose logs the message names.
	if out, err := s.kubectl(t.Context(), "-n", v1alpha1.SystemNamespace, "logs", "deployment/lifecycle"); err == nil || !strings.Contains(out, "sluice status") {
		t.Errorf("the log of lifecycle: %q, %v", out, err)
	}
	s.checkForwardedPort(t, "lab", "8888", "-n", ns)
}

// checkForwardedPort forwards a port of a pod, with kubectl's flags for its namespace and the user, and fetches the page that names it.
func (s *sluiceCluster) checkForwardedPort(t *testing.T, pod, port string, flags ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), restartTimeout)
	defer cancel()
	arguments := append([]string{"--kubeconfig", filepath.Join(s.dir, "kubeconfig"), "port-forward", "pod/" + pod, ":" + port}, flags...)
	forward := exec.CommandContext(ctx, "kubectl", arguments...)
	output, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	first, err := bufio.NewReader(output).ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(first)
	if err != nil || address == "" {
		t.Fatalf("port-forward printed %q, %v", first, err)
	}
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(response.Body)
	response.Body.Close()
	if want := fmt.Sprintf("Port %s of pod %s/%s", port, flags[slices.Index(flags, "-n")+1], pod); err != nil || !strings.Contains(string(page), want) {
		t.Errorf("the page is %q, %v; want %q", page, err, want)
	}
	cancel()
	_ = forward.Wait() // it was killed
}

// waitForRunningPod waits until a pod runs.
func (s *sluiceCluster) waitForRunningPod(t *testing.T, ns, name string) {
	t.Helper()
	eventuallyLong(t, func() error {
		pod, err := s.clientset.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = unexpectedState("the pod runs", pod.Status)
		}
		return err
	})
}
