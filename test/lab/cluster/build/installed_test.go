// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newInstalledPrograms creates programs that print these versions, and returns their folder.
func newInstalledPrograms(t *testing.T, output map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range output {
		script := "#!/bin/sh\ncat <<'EOT'\n" + text + "\nEOT\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func kubernetes(version string) map[string]string {
	return map[string]string{
		"kube-apiserver":          "Kubernetes " + version,
		"kube-controller-manager": "Kubernetes " + version,
		"kube-scheduler":          "Kubernetes " + version,
	}
}

func TestFindInstalled(t *testing.T) {
	all := append([]string{"etcd"}, kubernetesPrograms...)
	with := func(programs map[string]string, name, output string) map[string]string {
		programs[name] = output
		return programs
	}
	without := func(programs map[string]string, name string) map[string]string {
		delete(programs, name)
		return programs
	}
	const etcd = "etcd Version: 3.5.16\nGit SHA: f20bbadd4\nGo Version: go1.22.7"
	for name, tc := range map[string]struct {
		programs map[string]string
		found    []string
		report   string
	}{
		"all fit":              {with(kubernetes("v1.34.2"), "etcd", etcd), all, "using kube-scheduler v1.34.2 from "},
		"the oldest version":   {kubernetes("v1.32.0"), kubernetesPrograms, "using kube-apiserver v1.32.0"},
		"too old":              {kubernetes("v1.31.9"), nil, "it has version v1.31.9; Sluice supports Kubernetes 1.32 to 1.36"},
		"too new":              {kubernetes("v1.37.0"), nil, "supports Kubernetes 1.32 to 1.36"},
		"a build of a vendor":  {kubernetes("v1.33.4+k3s1"), kubernetesPrograms, "using kube-apiserver v1.33.4+k3s1"},
		"an old etcd":          {map[string]string{"etcd": "etcd Version: 3.4.30"}, nil, "a cluster needs etcd 3.5 or newer"},
		"only the API server":  {map[string]string{"kube-apiserver": "Kubernetes v1.34.2", "etcd": etcd}, []string{"etcd"}, "kube-controller-manager, kube-scheduler is missing"},
		"no scheduler":         {without(kubernetes("v1.34.2"), "kube-scheduler"), nil, "kube-scheduler is missing"},
		"mixed minor versions": {with(kubernetes("v1.34.2"), "kube-scheduler", "Kubernetes v1.33.1"), nil, "different minor versions"},
		"no version":           {map[string]string{"etcd": "hello"}, nil, "prints no version"},
		"none":                 {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newInstalledPrograms(t, tc.programs)
			want := map[string]string{}
			for _, name := range tc.found {
				want[name] = filepath.Join(dir, name)
			}
			for variable, searchPath := range map[string]bool{assetsVariable: false, "PATH": true} {
				t.Run(variable, func(t *testing.T) {
					t.Setenv(assetsVariable, "")
					t.Setenv("PATH", "/bin:/usr/bin") // for the scripts
					if variable == "PATH" {
						t.Setenv("PATH", dir+":/bin:/usr/bin")
					} else {
						t.Setenv(variable, dir)
					}
					var output bytes.Buffer
					got := findInstalled(t.Context(), newProgressWriter(&output), all, searchPath)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					if !strings.Contains(output.String(), tc.report) || (tc.report == "") != (output.Len() == 0) {
						t.Errorf("report %q, want %q", &output, tc.report)
					}
				})
			}
		})
	}
}

// Tests run on the pinned programs: only KUBEBUILDER_ASSETS replaces them, not PATH.
func TestProgramsIgnorePath(t *testing.T) {
	newFakePins(t, hello)
	dir := newInstalledPrograms(t, map[string]string{"etcd": "etcd Version: 3.6.4"})
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	paths, err := Programs(t.Context(), nil, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(paths["etcd"]) == dir {
		t.Error("the program in PATH is used")
	}
	if paths, err = ProgramsOrInstalled(t.Context(), nil, "etcd"); err != nil || filepath.Dir(paths["etcd"]) != dir {
		t.Errorf("ProgramsOrInstalled: %v, %v", paths, err)
	}
}

func TestAssetsNeedNoPins(t *testing.T) {
	t.Setenv(assetsVariable, newInstalledPrograms(t, map[string]string{"etcd": "etcd Version: 3.6.4"}))
	t.Setenv(pinsVariable, "/nowhere")
	if _, err := Programs(t.Context(), nil, "etcd"); err != nil {
		t.Error(err)
	}
	_, err := Programs(t.Context(), nil, "kwok")
	if err == nil || !strings.Contains(err.Error(), "SLUICE_PINS=/nowhere: must be the folder of module") {
		t.Errorf("got %v", err)
	}
}

// The newest version that fits is the pinned one.
func TestNewestKubernetesIsPinned(t *testing.T) {
	pins, err := findPins("")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := moduleInfos(t.Context(), pins, []program{{module: "k8s.io/kubernetes"}})
	if err != nil {
		t.Fatal(err)
	}
	if version := modules["k8s.io/kubernetes"].Version; !strings.HasPrefix(version, "v1.36.") || newestKubernetes != 36 {
		t.Errorf("Kubernetes %s is pinned, and 1.%d is the newest that fits", version, newestKubernetes)
	}
}
