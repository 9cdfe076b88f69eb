// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// assetsVariable names a folder of ready programs. Other test suites for Kubernetes use the
// same variable.
const assetsVariable = "KUBEBUILDER_ASSETS"

// The versions of installed programs that fit. The newest version of Kubernetes is the
// pinned one.
const (
	oldestKubernetes, newestKubernetes = 32, 36 // minor versions of 1
	oldestEtcd                         = 5      // minor version of 3
)

// kubernetesPrograms run with one version of Kubernetes, so that they replace built ones
// together or not at all.
var kubernetesPrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// versionTimeout bounds the time in which a program must print its version.
const versionTimeout = 10 * time.Second

// installed is a ready program on this machine.
type installed struct {
	path, version string
	major, minor  int
}

// findInstalled returns the paths of the named programs in KUBEBUILDER_ASSETS, and if
// searchPath is set in the folders of PATH. It reports what it uses, and why it does not use
// a program that it found.
func findInstalled(ctx context.Context, progress *progressWriter, names []string, searchPath bool) map[string]string {
	found := map[string]installed{}
	for _, name := range slices.Concat([]string{"etcd"}, kubernetesPrograms) {
		if !slices.Contains(names, name) {
			continue
		}
		path := locate(name, searchPath)
		if path == "" {
			continue
		}
		program, err := readVersion(ctx, path)
		if err == nil {
			err = program.checkVersion(name)
		}
		if err != nil {
			progress.printf("not using %s: %v", path, err)
			continue
		}
		found[name] = program
	}
	if reason := checkKubernetesSet(found, names); reason != "" {
		progress.printf("not using the installed programs of Kubernetes: %s", reason)
		for _, name := range kubernetesPrograms {
			delete(found, name)
		}
	}
	paths := map[string]string{}
	for _, name := range names {
		if program, ok := found[name]; ok {
			progress.printf("using %s %s from %s", name, program.version, filepath.Dir(program.path))
			paths[name] = program.path
		}
	}
	return paths
}

// findInAssets adds the paths of other programs in KUBEBUILDER_ASSETS. Their version is the
// choice of the person who put them there.
func findInAssets(progress *progressWriter, requested []program, paths map[string]string) {
	assets := os.Getenv(assetsVariable)
	for _, p := range requested {
		path := filepath.Join(assets, p.name+executableSuffix())
		versioned := p.name == "etcd" || slices.Contains(kubernetesPrograms, p.name)
		if assets != "" && !versioned && p.existsAt(path) {
			progress.printf("using %s from %s", p.name, assets)
			paths[p.name] = path
		}
	}
}

// checkKubernetesSet returns why the found programs cannot run Kubernetes together; empty if
// they can, or if none was found.
func checkKubernetesSet(found map[string]installed, names []string) string {
	var missing, versions []string
	minors := map[int]bool{}
	for _, name := range kubernetesPrograms {
		program, ok := found[name]
		switch {
		case ok:
			versions = append(versions, name+" "+program.version)
			minors[program.minor] = true
		case slices.Contains(names, name):
			missing = append(missing, name)
		}
	}
	switch {
	case len(versions) == 0:
		return ""
	case len(missing) > 0:
		return fmt.Sprintf("%s is missing, and the API server's version must not be below that of its controllers", strings.Join(missing, ", "))
	case len(minors) > 1:
		return "they have different minor versions: " + strings.Join(versions, ", ")
	}
	return ""
}

// locate returns the path of a program, empty if there is none.
func locate(name string, searchPath bool) string {
	if assets := os.Getenv(assetsVariable); assets != "" {
		if path := filepath.Join(assets, name+executableSuffix()); isProgram(path) {
			return path
		}
	}
	if searchPath {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// versionFormat matches "Kubernetes v1.34.1" and "etcd Version: 3.6.4".
var versionFormat = regexp.MustCompile(`v?(\d+)\.(\d+)\.\d+\S*`)

func readVersion(ctx context.Context, path string) (installed, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return installed{}, fmt.Errorf("`%s --version`: %w", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	match := versionFormat.FindStringSubmatch(line)
	if match == nil {
		return installed{}, fmt.Errorf("`%s --version` prints no version: %.80q", path, line)
	}
	program := installed{path: path, version: "v" + strings.TrimPrefix(match[0], "v")}
	program.major, _ = strconv.Atoi(match[1])
	program.minor, _ = strconv.Atoi(match[2])
	return program, nil
}

// checkVersion returns an error unless a cluster of Sluice can use the program.
func (p installed) checkVersion(name string) error {
	switch {
	case name == "etcd" && (p.major != 3 || p.minor < oldestEtcd):
		return fmt.Errorf("it has version %s; a cluster needs etcd 3.%d or newer", p.version, oldestEtcd)
	case name != "etcd" && (p.major != 1 || p.minor < oldestKubernetes || p.minor > newestKubernetes):
		return fmt.Errorf("it has version %s; Sluice supports Kubernetes 1.%d to 1.%d", p.version, oldestKubernetes, newestKubernetes)
	}
	return nil
}
