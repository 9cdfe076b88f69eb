// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/clustertest"
	"sluice.dev/test/cluster/process"
)

// sharedCluster is the cluster of all tests that do not damage it.
var sharedCluster *sluiceCluster

// sluiceCluster is one `sluice up` in the foreground. It is a child of the test process and
// never outlives it.
type sluiceCluster struct {
	binary      string // path of the program sluice
	dir         string // the cluster's folder
	group       *process.Group
	config      *rest.Config
	adminClient client.Client
	clientset   kubernetes.Interface
}

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// parallelTests is how many parallel tests run at a time unless -parallel is given. Most of
// their time they wait for timers of Kubernetes and for the simulated nodes, so there may be
// more of them than processors.
const parallelTests = "4"

// setParallelTests replaces the default of -parallel, the number of processors.
func setParallelTests() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", parallelTests)
}

func runTests(m *testing.M) (code int) {
	ctrl.SetLogger(logr.Discard())
	if err := setParallelTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The API servers use half of the processor time. Fewer garbage collections save a fifth
	// of that for 200 MB more of memory each.
	if err := os.Setenv("GOGC", cmp.Or(os.Getenv("GOGC"), "400")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	base, err := os.MkdirTemp("/tmp", "sluice-e2e-") // a short path, since it contains sockets
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(base)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	bin := filepath.Join(base, "bin")
	if err := buildPrograms(ctx, bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if sharedCluster, err = startSluice(ctx, bin, filepath.Join(base, "shared")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := sharedCluster.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return m.Run()
}

// buildPrograms builds Sluice from this tree, and the programs of the cluster if they are
// missing.
func buildPrograms(ctx context.Context, bin string) error {
	root, err := build.Root()
	if err != nil {
		return err
	}
	if _, err := build.Programs(ctx, os.Stderr, append(build.Names(), build.Kueue)...); err != nil {
		return err
	}
	_, err = build.Product(ctx, root, bin, "sluice", "webhook", "lifecycle", "gpuagent")
	return err
}

// startSluice runs `sluice up` on dir and returns when the cluster is ready.
func startSluice(ctx context.Context, bin, dir string, flags ...string) (*sluiceCluster, error) {
	s := &sluiceCluster{binary: filepath.Join(bin, "sluice"), dir: dir}
	logs := dir + ".up"
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.group, err = process.NewGroup(logs); err != nil {
		return nil, err
	}
	err = s.group.Start(ctx, process.Spec{
		Name:         "sluice-up",
		Path:         s.binary,
		Args:         append([]string{"up", "--dir", dir}, flags...),
		Ready:        func(ctx context.Context) error { _, err := s.readReport(ctx); return err },
		ReadyTimeout: 5 * time.Minute,
		StopTimeout:  time.Minute,
	})
	if err == nil {
		err = s.newClients()
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *sluiceCluster) newClients() (err error) {
	if s.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig")); err != nil {
		return err
	}
	s.config.QPS = -1
	scheme, err := api.NewScheme()
	if err != nil {
		return err
	}
	if s.adminClient, err = client.New(s.config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	s.clientset, err = kubernetes.NewForConfig(s.config)
	return err
}

// stop stops `sluice up` with all its processes, but keeps the folder.
func (s *sluiceCluster) stop() error { return s.group.Stop(context.Background()) }

// report is the output of `sluice status --output json`.
type report struct {
	PID        int
	Server     string
	Kubeconfig string
	Components []struct {
		Name, State, Log, LastExit string
		PID, Restarts              int
	}
}

func (s *sluiceCluster) readReport(ctx context.Context) (report, error) {
	var r report
	out, err := exec.CommandContext(ctx, s.binary, "status", "--dir", s.dir, "--output", "json").Output()
	if err != nil {
		return r, fmt.Errorf("sluice status: %w: %s", err, out)
	}
	return r, json.Unmarshal(out, &r)
}

// eventually waits until the shared cluster meets the condition.
func eventually(t testing.TB, condition func() error) {
	t.Helper()
	clustertest.Eventually(t, condition)
}
