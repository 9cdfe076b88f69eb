// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

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
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
)

// Sluice is one `sluice-lab up` in the foreground. It is a child of the test process and never outlives it.
type Sluice struct {
	Binary    string // path of the program sluice
	Dir       string // the cluster's folder
	Config    *rest.Config
	Admin     client.Client
	Clientset kubernetes.Interface
	up        *Process
}

// SluiceTests builds Sluice once for the tests of a package, unless `make build` has built it, and starts clusters
// of it.
type SluiceTests struct {
	base  string
	build func() error
	mu    sync.Mutex
	list  []*Sluice
}

// parallelTests is the number of parallel tests that run at a time unless -parallel is given. Most of
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

// failedBesideTests is the exit code if something else than a test failed: a run of the failed tests alone would not
// repeat it (sluice.dev/test/flaky/record).
const failedBesideTests = 3

// RunWithSluice runs a package's tests, stops all clusters that they started with s, and returns
// the exit code. TestMain calls it.
func RunWithSluice(run func(s *SluiceTests) (int, error)) (code int) {
	ctrl.SetLogger(logr.Discard())
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = failedBesideTests
		}
	}
	// The API servers use half of the processor time. Fewer garbage collections save a fifth
	// of that for 200 MB more of memory each.
	if err := errors.Join(setParallelTests(), os.Setenv("GOGC", cmp.Or(os.Getenv("GOGC"), "400"))); err != nil {
		fail(err)
		return code
	}
	base, err := os.MkdirTemp("/tmp", "sluice-e2e-") // a short path, since it contains sockets
	if err != nil {
		fail(err)
		return code
	}
	defer os.RemoveAll(base)
	s := &SluiceTests{base: base}
	s.build = sync.OnceValue(func() error { return BuildPrograms(context.Background(), s.bin()) })
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.list {
			fail(c.Stop())
		}
	}()
	if code, err = run(s); err != nil {
		fail(err)
	}
	return code
}

func (s *SluiceTests) bin() string { return filepath.Join(s.base, "bin") }

// Start starts a cluster that runs until the tests of the package end. Its folder has that name.
func (s *SluiceTests) Start(name string, flags ...string) (*Sluice, error) {
	if err := s.build(); err != nil {
		return nil, err
	}
	c, err := StartSluice(context.Background(), s.bin(), filepath.Join(s.base, name), flags...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, c)
	return c, nil
}

// StartSluice runs `sluice-lab up` on dir with the programs in bin, and returns when the cluster is ready.
func StartSluice(ctx context.Context, bin, dir string, flags ...string) (*Sluice, error) {
	lab := filepath.Join(bin, labName)
	// Before the start, whose time is limited: the first build takes long.
	programs := []string{"programs"}
	if slices.Contains(flags, "kueue") {
		programs = append(programs, "kueue")
	}
	build := exec.CommandContext(ctx, lab, programs...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build the cluster's programs: %w", err)
	}
	s := &Sluice{Binary: filepath.Join(bin, "sluice"), Dir: dir}
	// On a busy machine `sluice status` takes longer than a probe may.
	ready := func(ctx context.Context) error { _, err := s.Report(ctx); return err }
	var err error
	if s.up, err = StartProcess(ctx, dir+".log", ready, lab, append([]string{"up", "--dir", dir}, flags...)...); err != nil {
		return nil, err
	}
	if err := s.connect(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// AttachSluice returns the cluster in dir, which another process runs.
func AttachSluice(dir string) (*Sluice, error) {
	s := &Sluice{Dir: dir}
	return s, s.connect()
}

func (s *Sluice) connect() (err error) {
	if s.Config, err = loadConfig(filepath.Join(s.Dir, "kubeconfig")); err != nil {
		return err
	}
	return s.newClients()
}

func (s *Sluice) newClients() error {
	scheme, err := api.NewScheme()
	if err != nil {
		return err
	}
	if s.Admin, err = client.New(s.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	s.Clientset, err = kubernetes.NewForConfig(s.Config)
	return err
}

// Stop stops `sluice-lab up` with all its processes, but keeps the folder.
func (s *Sluice) Stop() error { return s.up.Stop() }

// Report is the output of `sluice status --output json`.
type Report struct {
	PID        int
	Server     string
	Kubeconfig string
	Components []struct {
		Name, State, Log, LastExit string
		PID, Restarts              int
	}
}

// Report returns the state of the cluster.
func (s *Sluice) Report(ctx context.Context) (Report, error) {
	var r Report
	out, err := exec.CommandContext(ctx, s.Binary, "status", "--dir", s.Dir, "--output", "json").Output()
	if err != nil {
		return r, fmt.Errorf("sluice status: %w: %s", err, out)
	}
	return r, json.Unmarshal(out, &r)
}

// AsUser returns a configuration that impersonates a user, whose groups are those of every user
// and the given ones.
func (s *Sluice) AsUser(name string, groups ...string) *rest.Config {
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append([]string{"system:authenticated"}, groups...)}
	config.WarningHandler = rest.NoWarnings{}
	return config
}
