// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/test/lab/cluster/process"
)

// newSourceTree writes files, by path, into a new folder.
func newSourceTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	return dir
}

// write writes files, by path, into a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// newFakePins creates a pins module whose etcd and kwok are tiny programs, so that the test
// builds real programs quickly. main is the code of etcd.
func newFakePins(t *testing.T, main string) string {
	t.Helper()
	dir := newSourceTree(t, map[string]string{
		"go.mod": `module sluice.dev/test/lab/cluster/pins

go 1.24

require (
	go.etcd.io/etcd/server/v3 v3.7.3
	sigs.k8s.io/kwok v0.8.0
)

replace go.etcd.io/etcd/server/v3 => ./etcd

replace sigs.k8s.io/kwok => ./kwok
`,
		"go.sum":                    "",
		"etcd/go.mod":               "module go.etcd.io/etcd/server/v3\n\ngo 1.24\n",
		"etcd/main.go":              main,
		"kwok/go.mod":               "module sigs.k8s.io/kwok\n\ngo 1.24\n",
		"kwok/pkg/consts/consts.go": "package consts\n\nvar Version = \"none\"\n",
		"kwok/cmd/kwok/main.go":     "package main\n\nimport \"sigs.k8s.io/kwok/pkg/consts\"\n\nfunc main() { print(consts.Version) }\n",
	})
	t.Setenv(pinsVariable, dir)
	t.Setenv(cacheVariable, t.TempDir())
	t.Setenv(assetsVariable, "")
	return dir
}

const hello = "package main\n\nfunc main() { print(\"hello\") }\n"

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

// newFakeKueue adds a tiny Kueue to the fake pins.
func newFakeKueue(t *testing.T, pins string) {
	t.Helper()
	write(t, pins, map[string]string{
		"kueue/go.mod": "module sluice.dev/test/lab/cluster/pins/kueue\n\ngo 1.24\n\n" +
			"require sigs.k8s.io/kueue v0.15.0\n\nreplace sigs.k8s.io/kueue => ./module\n",
		"kueue/go.sum":                        "",
		"kueue/module/go.mod":                 "module sigs.k8s.io/kueue\n\ngo 1.24\n",
		"kueue/module/config/crd/queues.yaml": "kind: Queue\n",
		"kueue/module/pkg/version/version.go": "package version\n\nvar GitVersion, GitCommit, BuildDate = \"none\", \"\", \"\"\n",
		"kueue/module/cmd/kueue/main.go": "package main\n\nimport \"sigs.k8s.io/kueue/pkg/version\"\n\n" +
			"func main() { print(version.GitVersion) }\n",
	})
}

func TestKueueBuiltSeparatelyWithManifests(t *testing.T) {
	pins := newFakePins(t, hello)
	if _, err := Programs(t.Context(), nil, "etcd"); err != nil {
		t.Fatal(err)
	}
	newFakeKueue(t, pins)
	var output bytes.Buffer
	paths, err := Programs(t.Context(), &output, "etcd", Kueue)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, paths[Kueue]); got != "v0.15.0" {
		t.Errorf("version is %q, want the pinned one", got)
	}
	if filepath.Dir(paths[Kueue]) == filepath.Dir(paths["etcd"]) || strings.Contains(output.String(), "etcd") {
		t.Errorf("programs of the first module were built again: %s", &output)
	}
	manifest := filepath.Join(Manifests(paths[Kueue]), "crd", "queues.yaml")
	if content, err := os.ReadFile(manifest); err != nil || string(content) != "kind: Queue\n" {
		t.Errorf("manifest is %q, %v", content, err)
	}
	// A program without its manifests is incomplete: a start would fail.
	if err := os.RemoveAll(Manifests(paths[Kueue])); err != nil {
		t.Fatal(err)
	}
	if _, err := Programs(t.Context(), nil, Kueue); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(manifest); err != nil {
		t.Error(err)
	}
}

func TestKueueBuiltOnlyWhenRequested(t *testing.T) {
	if slices.Contains(Names(), Kueue) {
		t.Errorf("%v contains %s", Names(), Kueue)
	}
	pins := newFakePins(t, hello) // without Kueue
	_, err := Programs(t.Context(), nil, Kueue)
	if want := "must be the folder of module " + pinsModule; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	newFakeKueue(t, pins)
	assets := newAssets(t, Kueue)
	t.Setenv(assetsVariable, assets)
	paths, err := Programs(t.Context(), nil, Kueue)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(paths[Kueue]) == assets {
		t.Error("a Kueue without manifests was used from the assets")
	}
	if err := os.Mkdir(filepath.Join(assets, "kueue.manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if paths, err = Programs(t.Context(), nil, Kueue); err != nil || filepath.Dir(paths[Kueue]) != assets {
		t.Errorf("got %v, %v; want it from %s", paths, err, assets)
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

// cancelingWriter cancels a context once the text was written.
type cancelingWriter struct {
	syncBuffer
	text   string
	cancel func()
}

func (w *cancelingWriter) Write(p []byte) (int, error) {
	n, err := w.syncBuffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.cancel()
	}
	return n, err
}

func TestFailedBuild(t *testing.T) {
	pins := newFakePins(t, "package main\n\nfunc main() { undefinedName() }\n")
	var output bytes.Buffer
	_, err := Programs(t.Context(), &output, "kwok", "etcd")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"build etcd: ", "undefined: undefinedName", "main.go:3", "what was built before is kept"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if !strings.Contains(output.String(), "failed") {
		t.Errorf("progress:\n%s", &output)
	}
	cache := cacheDirOf(t, pins)
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff([]string{"kwok" + executableSuffix(), "lock"}, names); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
}

func TestInterruptedBuildCleansUp(t *testing.T) {
	pins := newFakePins(t, hello)
	cache := cacheDirOf(t, pins)
	left := filepath.Join(cache, "etcd"+unfinished) // of a killed build
	if err := os.WriteFile(left, []byte("half"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Programs(ctx, nil, "etcd"); err == nil {
		t.Error("no error")
	}
	if isProgram(filepath.Join(cache, "etcd")) {
		t.Error("the program exists")
	}
	if _, err := Programs(t.Context(), nil, "etcd"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("half a program remains: %v", err)
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

func TestUnknownProgram(t *testing.T) {
	_, err := Programs(t.Context(), nil, "kubelet")
	if err == nil || !strings.Contains(err.Error(), `no program "kubelet"; the programs are etcd, kube-apiserver`) {
		t.Errorf("got %v", err)
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

func TestVersionFlags(t *testing.T) {
	when := time.Date(2026, 7, 22, 20, 7, 38, 0, time.FixedZone("CEST", 7200))
	got := kubernetesVersionFlags(moduleInfo{Version: "v1.36.3", Time: &when})
	want := map[string]string{
		"gitVersion": "v1.36.3", "gitMajor": "1", "gitMinor": "36", "gitCommit": "",
		"gitTreeState": "archive", "buildDate": "2026-07-22T18:07:38Z",
	}
	for name, value := range want {
		for _, pkg := range []string{"k8s.io/component-base/version.", "k8s.io/client-go/pkg/version."} {
			if got[pkg+name] != value {
				t.Errorf("%s%s is %q, want %q", pkg, name, got[pkg+name], value)
			}
		}
	}
}

func TestPrometheusVersion(t *testing.T) {
	for module, want := range map[string]string{"v0.316.0": "3.16.0", "v0.305.2": "3.5.2", "v0.1.2": "v0.1.2"} {
		if got := prometheusVersionFlags(moduleInfo{Version: module}); got["github.com/prometheus/common/version.Version"] != want {
			t.Errorf("module %s has the version %v, want %s", module, got, want)
		}
	}
}

// Prometheus is built without the clients of clouds, and never for a cluster alone.
func TestPrometheusBuiltOnlyWhenRequested(t *testing.T) {
	for _, name := range []string{Prometheus, Promtool} {
		at := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
		if flags := buildFlags(programs[at], moduleInfo{Version: "v0.316.0"}); !strings.HasSuffix(flags[len(flags)-1], ",remove_all_sd") {
			t.Errorf("%s is built with %v", name, flags)
		}
		if slices.Contains(Names(), name) {
			t.Errorf("%v contains %s", Names(), name)
		}
	}
}

func TestSuggestFix(t *testing.T) {
	tests := []struct{ output, want string }{
		{"link: writing out: no space left on device", "make room on the disk"},
		{`Get "https://proxy.golang.org/...": dial tcp: lookup proxy.golang.org: no such host`, "Go module proxy"},
		{"go: module lookup disabled by GOPROXY=off", "set GOPROXY"},
		{"compile: signal: killed", "memory"},
		{"undefined: x", "run again"},
	}
	for _, tt := range tests {
		if got := suggestFix(tt.output); !strings.Contains(got, tt.want) {
			t.Errorf("%q: %q", tt.output, got)
		}
	}
}

func TestProgressRemindersWithoutTerminal(t *testing.T) {
	var output syncBuffer
	s := newProgressWriter(&output)
	s.every = 10 * time.Millisecond
	task := s.start()
	task.grow(200)
	task.advance(86)
	for strings.Count(output.String(), "building: 43 %, 0s so far") < 2 {
		time.Sleep(time.Millisecond)
	}
	task.note("built etcd")
	task.finish()
	if lines := strings.Split(output.String(), "\n"); !slices.Contains(lines, "built etcd") {
		t.Errorf("progress:\n%s", output.String())
	}
}

func TestRemainingTime(t *testing.T) {
	for _, tc := range []struct {
		total, done int
		elapsed     time.Duration
		want        string
	}{
		{200, 0, 31 * time.Second, "building: 0 %, 31s so far"},
		{200, 50, time.Minute, "building: 25 %, 1m0s so far, about 3m0s left"},
		{200, 150, 91 * time.Second, "building: 75 %, 1m31s so far, about 30s left"},
		{200, 200, time.Minute, "building: 100 %, 1m0s so far"},
		{0, 0, time.Second, "building: 0 %, 1s so far"},
	} {
		task := &task{total: tc.total}
		task.advance(tc.done)
		if got := task.describe(tc.elapsed); got != tc.want {
			t.Errorf("%d of %d: %q, want %q", tc.done, tc.total, got, tc.want)
		}
	}
}

// The percentage counts the packages that are compiled, not those in Go's build cache.
func TestProgressCountsStalePackages(t *testing.T) {
	pins := newFakePins(t, hello)
	t.Setenv("GOCACHE", t.TempDir())
	list := programsPinnedIn("")
	list = slices.DeleteFunc(list, func(p program) bool { return p.name != "kwok" })
	stale, err := staleOf(t.Context(), pins, list)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(stale, "sigs.k8s.io/kwok/pkg/consts") || !slices.Contains(stale, "runtime") {
		t.Fatalf("stale packages: %v", stale)
	}
	task := newProgressWriter(nil).start()
	task.expect(stale)
	task.expect(stale[1:]) // of another program, compiled once for both
	defer task.finish()
	compile(t.Context(), pins, list, task)
	if task.done != len(stale) || task.total != len(stale) {
		t.Errorf("%d of %d packages are counted, %d are stale", task.done, task.total, len(stale))
	}
	if stale, err = staleOf(t.Context(), pins, list); err != nil || slices.Contains(stale, "runtime") {
		t.Errorf("after the build: %v, %v", stale, err)
	}
}

// newAssets returns a folder with programs that do nothing.
func newAssets(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name+executableSuffix()), []byte("#!/bin/sh\n"), 0o755); err != nil {
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
