// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

// actionPin is a commit with the version that it has.
var actionPin = regexp.MustCompile(`^[^@]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// actionlint finds no error in the workflows, and each action is pinned to a commit: a tag can be moved.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, ".github/workflows/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		found, err := linter.LintFile(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range found {
			t.Error(problem)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if _, action, ok := strings.Cut(strings.TrimSpace(line), "uses: "); ok && !actionPin.MatchString(action) {
				t.Errorf("%s: %s is not pinned to a commit", filepath.Base(file), action)
			}
		}
	}
}

// The workflow of a release builds each target of the Dockerfile.
func TestReleaseBuildsEachTarget(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(repository, ".github/workflows/release.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	workflow, problems := actionlint.Parse(raw)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	built := map[string]bool{}
	for _, value := range workflow.Jobs["build"].Strategy.Matrix.Rows["target"].Values {
		built[strings.Trim(value.String(), `"`)] = true
	}
	for _, name := range binaries {
		if !built[name] {
			t.Errorf("the release does not build %s, only %v", name, built)
		}
	}
}

// Names of images have no upper-case letters, and owners of repositories may.
func TestReleaseNamesRegistryInLowerCase(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(repository, ".github/workflows/release.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	workflow, problems := actionlint.Parse(raw)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if strings.Contains(string(raw), "github.repository_owner") {
		t.Error("github.repository_owner is used as it is")
	}
	for _, job := range []string{"build", "publish", "release"} {
		script, ok := workflow.Jobs[job].Steps[0].Exec.(*actionlint.ExecRun)
		if !ok {
			t.Errorf("%s: the first step names no registry", job)
			continue
		}
		environment := filepath.Join(t.TempDir(), "environment")
		command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script.Run.Value)
		command.Env = append(os.Environ(), "GITHUB_REPOSITORY_OWNER=Example-ORG", "GITHUB_ENV="+environment)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", job, err, output)
		}
		if written, err := os.ReadFile(environment); err != nil || string(written) != "REGISTRY=ghcr.io/example-org\n" {
			t.Errorf("%s: %q, %v", job, written, err)
		}
	}
}

// A release without notes fails before anything is built, and keeps the files of the former one.
func TestReleaseNeedsNotes(t *testing.T) {
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "make"), []byte("#!/bin/sh\necho make was called\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(repository, ".ci/release-files"))
	command.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "VERSION=v99.0.0", "COMMIT=x", "IMAGES=registry.example.org/sluice")
	output, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "CHANGELOG.md has no section for v99.0.0") || strings.Contains(string(output), "make was called") {
		t.Errorf("%v: %s", err, output)
	}
}
