// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/test/lab/cluster/process"
)

func TestProgramsCached(t *testing.T) {
	newFakePins(t, hello)
	var output bytes.Buffer
	first, err := Programs(t.Context(), &output, "etcd", "kwok")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"building the cluster's programs into ", ": etcd v3.7.3, kwok v0.8.0\n", "built etcd v3.7.3 (", "built kwok v0.8.0 (", " (2 of 2)\n",
		"are built",
	} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("progress lacks %q:\n%s", want, &output)
		}
	}
	if got := run(t, first["etcd"]); got != "hello" {
		t.Errorf("etcd printed %q", got)
	}
	if got := run(t, first["kwok"]); got != "0.8.0" {
		t.Errorf("kwok's version is %q, want the pinned version", got)
	}
	if others, _ := filepath.Glob(filepath.Join(filepath.Dir(first["etcd"]), "*"+unfinished)); len(others) != 0 {
		t.Errorf("left: %v", others)
	}

	built := modified(t, first["etcd"])
	output.Reset()
	second, err := Programs(t.Context(), &output, "etcd", "kwok")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("paths (-first +second):\n%s", diff)
	}
	if output.Len() != 0 || modified(t, second["etcd"]) != built {
		t.Errorf("the program was built again: %s", &output)
	}
}

func TestConcurrentBuildsShareOneBuild(t *testing.T) {
	newFakePins(t, hello)
	var all sync.WaitGroup
	outputs := make([]bytes.Buffer, 4)
	for i := range outputs {
		all.Go(func() {
			if _, err := Programs(context.Background(), &outputs[i], "etcd"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	builds := 0
	for i := range outputs {
		if strings.Contains(outputs[i].String(), "building the cluster's programs") {
			builds++
		}
	}
	if builds != 1 {
		t.Errorf("%d builds, want 1", builds)
	}
}

func TestWaitingForAnotherBuildIsReported(t *testing.T) {
	pins := newFakePins(t, hello)
	lock, err := process.TryLock(filepath.Join(cacheDirOf(t, pins), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	// The wait ends when it is reported. The time limit only ends a test that fails.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	output := &cancelingWriter{text: "waiting for process", cancel: cancel}
	if _, err = Programs(ctx, output, "etcd"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(output.String(), "waiting for process") {
		t.Errorf("progress is %q", output)
	}
}

func TestCacheKey(t *testing.T) {
	key := func(t *testing.T, pins string) string {
		t.Helper()
		k, err := cacheKey(t.Context(), pins, programsPinnedIn(""))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	pins := newFakePins(t, hello)
	base := key(t, pins)
	if again := key(t, pins); again != base {
		t.Errorf("%s, then %s", base, again)
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		path := filepath.Join(pins, file)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(before, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		if changed := key(t, pins); changed == base {
			t.Errorf("a change of %s does not change the key", file)
		}
		if err := os.WriteFile(path, before, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOEXPERIMENT", "nodwarf5")
	if changed := key(t, pins); changed == base {
		t.Error("another compiler setting does not change the key")
	}
}

func TestFindPins(t *testing.T) {
	t.Setenv(pinsVariable, "")
	found, err := findPins("")
	if err != nil {
		t.Fatal(err)
	}
	if got := moduleOf(found); got != pinsModule {
		t.Errorf("found %s, of module %q", found, got)
	}
	// The search passes other modules on its way to the product's.
	root := newSourceTree(t, map[string]string{
		"go.mod":                       "module sluice.dev\n",
		"test/lab/cluster/pins/go.mod": "// pins\nmodule sluice.dev/test/lab/cluster/pins\n",
		"test/bench/peers/main.go":     "package main\n",
		"test/bench/go.mod":            "module sluice.dev/test/bench\n",
	})
	t.Chdir(filepath.Join(root, "test", "bench", "peers"))
	found, err = findPins("")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(root, "test", "lab", "cluster", "pins"); !sameFile(t, found, want) {
		t.Errorf("found %s, want %s", found, want)
	}
}

// newAssets returns a folder with programs that do nothing.
func newAssets(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Programs of Kubernetes in KUBEBUILDER_ASSETS are used together or not at all, and need no pins.
func TestProgramsInAssets(t *testing.T) {
	t.Setenv(pinsVariable, "/nowhere")
	for missing, names := range map[string][]string{
		"":            Names(),
		"Kubernetes":  {"etcd", "kwok", "kube-apiserver"},
		"another one": {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"},
	} {
		assets := newAssets(t, names...)
		t.Setenv(assetsVariable, assets)
		var output bytes.Buffer
		paths, err := Programs(t.Context(), &output, Names()...)
		if missing != "" {
			if err == nil || !strings.Contains(err.Error(), "SLUICE_PINS=/nowhere: must be the folder of module") {
				t.Errorf("without %s: %v", missing, err)
			}
			continue
		}
		if err != nil || len(paths) != len(names) || filepath.Dir(paths["kube-scheduler"]) != assets || !strings.Contains(output.String(), "using etcd from "+assets) {
			t.Errorf("%v, %v, output %s", paths, err, &output)
		}
	}
}
