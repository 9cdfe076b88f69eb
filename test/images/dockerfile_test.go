// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const (
	repository = "../.."
	buildStage = "build"
	sourceDir  = "/src" // the working directory of the build stage
)

// binaries are the targets of the Dockerfile, and the programs in their images.
var binaries = []string{"gpuagent", "lifecycle", "sluice", "webhook"}

func parseDockerfile(t *testing.T) []instructions.Stage {
	t.Helper()
	file, err := os.Open(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	result, err := parser.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range result.Warnings {
		t.Errorf("Dockerfile: %s", warning.Short)
	}
	stages, _, err := instructions.Parse(result.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

func findStage(t *testing.T, stages []instructions.Stage, name string) instructions.Stage {
	t.Helper()
	index := slices.IndexFunc(stages, func(s instructions.Stage) bool { return s.Name == name })
	if index < 0 {
		t.Fatalf("the Dockerfile has no stage %s", name)
	}
	return stages[index]
}

// commandsOf returns the commands of a type in a stage and in the stages that it is based on, those of
// the stage last.
func commandsOf[C instructions.Command](t *testing.T, stages []instructions.Stage, stage instructions.Stage) []C {
	t.Helper()
	var found []C
	if slices.ContainsFunc(stages, func(s instructions.Stage) bool { return s.Name == stage.BaseName }) {
		found = commandsOf[C](t, stages, findStage(t, stages, stage.BaseName))
	}
	for _, command := range stage.Commands {
		if c, ok := command.(C); ok {
			found = append(found, c)
		}
	}
	return found
}

// Each target contains one binary, which it runs, and the binary's bill of materials, both from the build
// stage. Only the agent, which partitions GPUs, runs as root.
func TestTargetsContainOneBinaryEach(t *testing.T) {
	stages := parseDockerfile(t)
	for _, name := range binaries {
		stage := findStage(t, stages, name)
		var copied []string
		for _, c := range commandsOf[*instructions.CopyCommand](t, stages, stage) {
			if c.From != buildStage {
				t.Errorf("%s: COPY from %q, want the build stage", name, c.From)
			}
			copied = append(copied, append(slices.Clone(c.SourcePaths), c.DestPath)...)
		}
		want := []string{sourceDir + "/bin/sbom/" + name + ".cdx.json", "/usr/share/sbom/", sourceDir + "/bin/" + name, "/" + name}
		if !slices.Equal(copied, want) {
			t.Errorf("%s: copies %q, want %q", name, copied, want)
		}
		entry := commandsOf[*instructions.EntrypointCommand](t, stages, stage)
		if len(entry) != 1 || entry[0].PrependShell || !slices.Equal(entry[0].CmdLine, []string{"/" + name}) {
			t.Errorf("%s: ENTRYPOINT is not [\"/%s\"]", name, name)
		}
		if run := commandsOf[*instructions.RunCommand](t, stages, stage); len(run) > 0 {
			t.Errorf("%s: the image has no shell, and runs %q", name, run[0])
		}
		user := commandsOf[*instructions.UserCommand](t, stages, stage)
		wantUser := "65532:65532"
		if name == "gpuagent" {
			wantUser = "0:0"
		}
		if len(user) != 1 || user[0].User != wantUser {
			t.Errorf("%s: USER %v, want %s", name, user, wantUser)
		}
	}
}

// The Go version of the image is that of go.mod's toolchain or newer, never older.
func TestBuildImageHasTheGoOfTheModule(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(raw), "ARG GO_VERSION=")
	version, _, _ = strings.Cut(version, "\n")
	_, required, _ := strings.Cut(string(module), "\ngo ")
	required, _, _ = strings.Cut(required, "\n")
	minor := func(v string) string { parts := strings.SplitN(v, ".", 3); return path.Join(parts[0], parts[1]) }
	if minor(version) != minor(required) {
		t.Errorf("the Dockerfile builds with Go %s, go.mod requires %s", version, required)
	}
}
