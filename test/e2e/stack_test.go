// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// sharedCluster is the cluster of all tests that do not damage it.
var sharedCluster *sluiceCluster

// sluiceCluster is one `sluice up` in the foreground. It is a child of the test process and
// never outlives it.
type sluiceCluster struct {
	binary      string // path of the program sluice
	dir         string // the cluster's folder
	config      *rest.Config
	adminClient client.Client
	clientset   kubernetes.Interface
	stack       *clustertest.Sluice
}

func newSluiceCluster(s *clustertest.Sluice) *sluiceCluster {
	return &sluiceCluster{binary: s.Binary, dir: s.Dir, config: s.Config, adminClient: s.Admin, clientset: s.Clientset, stack: s}
}

func TestMain(m *testing.M) {
	if err := selectPasses(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(clustertest.RunWithSluice(func(tests *clustertest.SluiceTests) (int, error) {
		s, err := tests.Start("shared")
		if err != nil {
			return 1, err
		}
		if err := s.RepeatBusyRequests(); err != nil {
			return 1, err
		}
		sharedCluster = newSluiceCluster(s)
		// Tests that run at the same time have projects in the department of the sample.
		students := &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "h2-students"}}
		more := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodePools":[{"name":"dgx-mig","gpu":{"guaranteed":"1","limit":"20"}}]}}`))
		if err := sharedCluster.adminClient.Patch(context.Background(), students, more); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}))
}

// kubectl runs kubectl on the cluster and returns its output. The error contains the output.
func (s *sluiceCluster) kubectl(ctx context.Context, arguments ...string) (string, error) {
	arguments = append([]string{"--kubeconfig", filepath.Join(s.dir, "kubeconfig")}, arguments...)
	out, err := exec.CommandContext(ctx, "kubectl", arguments...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, out)
	}
	return string(out), err
}

// mustKubectl runs kubectl on the cluster and returns its output.
func (s *sluiceCluster) mustKubectl(t testing.TB, arguments ...string) string {
	t.Helper()
	out, err := s.kubectl(t.Context(), arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// configurationFile returns the path of the configuration that the process of a pod reads: webhook, lifecycle or that of a node's
// agent, gpuagent-dgx-1.
func (s *sluiceCluster) configurationFile(pod string) string {
	program, _, _ := strings.Cut(pod, "-")
	return filepath.Join(s.podDir(pod), "volumes", "configuration", program+".yaml")
}

// podDir returns the folder in which the launcher keeps the files of a pod.
func (s *sluiceCluster) podDir(pod string) string { return filepath.Join(s.dir, "pods", pod) }

// componentPID returns the process of a component.
func (s *sluiceCluster) componentPID(t testing.TB, name string) int {
	t.Helper()
	report, err := s.readReport(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Components {
		if c.Name == name {
			return c.PID
		}
	}
	t.Fatalf("%s is not in the report", name)
	return 0
}

// startSluice runs `sluice up` on dir and returns when the cluster is ready.
func startSluice(ctx context.Context, bin, dir string, flags ...string) (*sluiceCluster, error) {
	s, err := clustertest.StartSluice(ctx, bin, dir, flags...)
	if err != nil {
		return nil, err
	}
	return newSluiceCluster(s), nil
}

// stop stops `sluice up` with all its processes, but keeps the folder.
func (s *sluiceCluster) stop() error { return s.stack.Stop() }

func (s *sluiceCluster) readReport(ctx context.Context) (clustertest.Report, error) {
	return s.stack.Report(ctx)
}

// eventually waits until the shared cluster meets the condition.
func eventually(t testing.TB, condition func() error) {
	t.Helper()
	clustertest.Eventually(t, condition)
}
