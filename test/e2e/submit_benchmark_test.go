// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// BenchmarkSubmit compares `sluice submit` of a Job on one GPU with `kubectl apply` of the same object, in turn. One
// operation is a submission with each of them.
//
//	ms-submit, ms-apply          the command, from its start to its end, median
//	times                        the first divided by the second, median of the pairs
//	ms-running-submit, -apply    from the start of the command until the pod runs, median
func BenchmarkSubmit(b *testing.B) {
	const ns, user, name = "submit-speed", "speed-anna@example.org", "speed"
	s := sharedCluster
	s.createDepartment(b, ns, newPoolQuota("dgx", "1", "1"))
	s.createGovernedProject(b, ns, ns, newPoolQuota("dgx", "1", "1"))
	project := []string{"submit", name, "-n", ns, "-i", "python:3.12", "-g", "1"}
	object, err := s.sluiceOf(b, user, append(project, "--dry-run=client", "-o", "yaml")...)
	if err != nil {
		b.Fatal(object)
	}
	file := filepath.Join(b.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
		b.Fatal(err)
	}
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	commands := map[string][]string{
		"submit": append([]string{s.binary}, append(project, "--kubeconfig", kubeconfig)...),
		"apply":  {"kubectl", "apply", "-f", file, "--kubeconfig", kubeconfig},
	}
	command, running := map[string][]float64{}, map[string][]float64{}
	var ratios []float64
	measure := func(keep bool) {
		order := []string{"submit", "apply"}
		if len(ratios)%2 == 1 {
			order = []string{"apply", "submit"}
		}
		for _, kind := range order {
			ended, started := s.measureSubmission(b, ns, commands[kind])
			if keep {
				command[kind], running[kind] = append(command[kind], ended), append(running[kind], started)
			}
		}
		if last := len(command["apply"]) - 1; keep {
			ratios = append(ratios, command["submit"][last]/command["apply"][last])
		}
	}
	measure(false) // kubectl caches what it discovers
	b.ResetTimer()
	for b.Loop() {
		measure(true)
	}
	b.ReportMetric(0, "ns/op") // the sum of both has no meaning
	for kind := range commands {
		b.ReportMetric(median(command[kind]), "ms-"+kind)
		b.ReportMetric(median(running[kind]), "ms-running-"+kind)
	}
	b.ReportMetric(median(ratios), "times")
}

// measureSubmission runs a command that creates a Job, and returns the milliseconds until it ended and until the pod ran.
// It deletes the Job and waits until its pod is gone.
func (s *sluiceCluster) measureSubmission(b *testing.B, ns string, arguments []string) (ended, running float64) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	pods, err := s.clientset.CoreV1().Pods(ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer pods.Stop()
	start := policytime.MachineNow()
	milliseconds := func() float64 { return float64(policytime.MachineNow().Sub(start).Microseconds()) / 1000 }
	if out, err := exec.CommandContext(ctx, arguments[0], arguments[1:]...).CombinedOutput(); err != nil {
		b.Fatalf("%q: %v %s", arguments, err, out)
	}
	ended = milliseconds()
	for event := range pods.ResultChan() {
		if pod, isPod := event.Object.(*corev1.Pod); isPod && event.Type != watch.Deleted && pod.Status.Phase == corev1.PodRunning {
			running = milliseconds()
			break
		}
	}
	if running == 0 {
		b.Fatal("the pod does not run")
	}
	s.mustKubectl(b, "delete", "job", "speed", "-n", ns, "--wait=false")
	s.mustKubectl(b, "delete", "pods", "--all", "-n", ns, "--grace-period=0", "--force") // the simulated node needs no time for it
	eventuallyLong(b, func() error {
		list, err := s.clientset.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelWorkloadType})
		if err == nil && len(list.Items) > 0 {
			err = unexpectedState("no pod is left", len(list.Items))
		}
		return err
	})
	return ended, running
}
