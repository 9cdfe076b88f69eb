// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	if diff := cmp.Diff([]string{"kwok", "lock"}, names); diff != "" {
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

func TestUnknownProgram(t *testing.T) {
	_, err := Programs(t.Context(), nil, "kubelet")
	if err == nil || !strings.Contains(err.Error(), `no program "kubelet"; the programs are etcd, kube-apiserver`) {
		t.Errorf("got %v", err)
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

func TestProgramsOfAPinsModuleCompileWithTheSameFlags(t *testing.T) {
	for _, p := range programs {
		if first := programsPinnedIn(p.pins)[0]; !slices.Equal(compileFlags(p), compileFlags(first)) {
			t.Errorf("%s compiles with %v, %s with %v", p.name, compileFlags(p), first.name, compileFlags(first))
		}
	}
}
