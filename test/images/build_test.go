// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// The arguments of the build.
const (
	version = "v9.8.7"
	commit  = "0123456789abcdef0123456789abcdef01234567"
)

// The build stage's commands give the same binaries and bills of materials in two folders without git. The
// binaries say the version and the commit that the build was given, and need what their images have.
func TestBuildIsReproducible(t *testing.T) {
	stages := parseDockerfile(t)
	first, second := runBuildStage(t, stages, "first"), runBuildStage(t, stages, filepath.Join("second", "and", "deeper"))
	hashes := hashOutputs(t, first)
	if other := hashOutputs(t, second); !maps.Equal(hashes, other) {
		t.Errorf("two builds of the same sources differ:\n%v\n%v", hashes, other)
	}
	if len(hashes) != 2*len(binaries) {
		t.Errorf("the build has %d files, want a binary and a bill of materials for each of %v", len(hashes), binaries)
	}
	for _, name := range binaries {
		program := filepath.Join(first, "bin", name)
		out, err := exec.CommandContext(t.Context(), program, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), version) || !strings.Contains(string(out), commit) {
			t.Errorf("%s --version: %v: %s; want version %s and commit %s", name, err, out, version, commit)
		}
		checkLinkage(t, name, program)
		checkBillOfMaterials(t, name, filepath.Join(first, "bin", "sbom", name+".cdx.json"))
	}
}

// runBuildStage copies the sources, as COPY does with .dockerignore, and runs the stage's RUN commands there. It returns
// the folder.
func runBuildStage(t *testing.T, stages []instructions.Stage, folder string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), folder)
	copySources(t, dir)
	arguments := map[string]string{"VERSION": version, "COMMIT": commit}
	environment := os.Environ()
	for _, command := range findStage(t, stages, buildStage).Commands {
		switch c := command.(type) {
		case *instructions.ArgCommand:
			for _, arg := range c.Args {
				value, known := arguments[arg.Key]
				if !known {
					t.Fatalf("ARG %s: the test gives no value", arg.Key)
				}
				environment = append(environment, arg.Key+"="+value)
			}
		case *instructions.RunCommand:
			run := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.Join(c.CmdLine, " "))
			run.Dir, run.Env = dir, environment
			if out, err := run.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", c, err, out)
			}
		}
	}
	return dir
}

// copySources copies the files that git lists, tracked and new, except those that .dockerignore names.
func copySources(t *testing.T, dir string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	list.Dir = repository
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	ignored := readLines(t, filepath.Join(repository, ".dockerignore"))
	for _, raw := range bytes.Split(bytes.TrimRight(out, "\x00"), []byte{0}) {
		file := string(raw)
		if slices.Contains(ignored, strings.Split(file, "/")[0]) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(repository, file))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

func readLines(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// hashOutputs returns the hash of each binary and bill of materials by its name.
func hashOutputs(t *testing.T, dir string) map[string]string {
	t.Helper()
	hashes := map[string]string{}
	for _, name := range binaries {
		for _, file := range []string{name, filepath.Join("sbom", name+".cdx.json")} {
			raw, err := os.ReadFile(filepath.Join(dir, "bin", file))
			if err != nil {
				t.Fatal(err)
			}
			hashes[file] = fmt.Sprintf("%x", sha256.Sum256(raw))
		}
	}
	return hashes
}

// checkLinkage checks that a binary needs no more than its base image has: the agent glibc, the others nothing.
func checkLinkage(t *testing.T, name, program string) {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{}
	if name == "gpuagent" {
		allowed = []string{"libc.so.6", "libdl.so.2", "libpthread.so.0", "libresolv.so.2"}
		if len(libraries) == 0 {
			t.Errorf("%s is static: it cannot load NVIDIA's library", name)
		}
	}
	for _, library := range libraries {
		if !slices.Contains(allowed, library) {
			t.Errorf("%s needs %s, which its base image lacks", name, library)
		}
	}
	dynamic := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if dynamic != (name == "gpuagent") {
		t.Errorf("%s: dynamically linked is %v", name, dynamic)
	}
}

// checkBillOfMaterials checks that the document names the binary's version and its modules.
func checkBillOfMaterials(t *testing.T, name, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		BOMFormat string `json:"bomFormat"`
		Metadata  struct {
			Component struct {
				Version string `json:"version"`
			} `json:"component"`
		} `json:"metadata"`
		Components []struct {
			Name, Version, Purl string
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if document.BOMFormat != "CycloneDX" || document.Metadata.Component.Version != version {
		t.Errorf("%s: format %q, version %q", path, document.BOMFormat, document.Metadata.Component.Version)
	}
	module := map[string]string{"gpuagent": "github.com/NVIDIA/go-nvml"}[name]
	if module == "" {
		module = "sigs.k8s.io/controller-runtime"
	}
	found := false
	for _, component := range document.Components {
		found = found || component.Name == module && component.Version != "" && strings.HasPrefix(component.Purl, "pkg:golang/")
	}
	if !found {
		t.Errorf("%s: %s is not among its %d components", path, module, len(document.Components))
	}
}
