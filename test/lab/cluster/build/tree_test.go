// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Sluice, the lab and the embedded Kubernetes are built with one progress. A program that does not compile is named, with the message
// of the compiler.
func TestTreeAndPrograms(t *testing.T) {
	t.Setenv(assetsVariable, newAssets(t, Names()...))
	tree := Tree{
		Dir: newSourceTree(t, map[string]string{
			"go.work":             "go 1.24\n\nuse (\n\t.\n\t./lab\n)\n",
			"go.mod":              "module sluice.dev\n\ngo 1.24\n",
			"word/word.go":        "package word\n\n// No build before has compiled it: " + rand.Text() + "\n\nconst Word = \"webhook\"\n",
			"cmd/webhook/main.go": "package main\n\nimport \"sluice.dev/word\"\n\nfunc main() { print(word.Word) }\n",
			"lab/go.mod":          "module sluice.dev/lab\n\ngo 1.24\n",
			"lab/cmd/lab/main.go": "package main\n\nfunc main() { print(\"lab\") }\n",
		}),
		Packages: []string{"./cmd/webhook", "./lab/cmd/lab"},
	}
	tree.Workspace = filepath.Join(tree.Dir, "go.work")
	var output syncBuffer
	bin := t.TempDir()
	if err := TreeAndPrograms(t.Context(), &output, tree, bin, "-trimpath"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"webhook", "lab"} {
		if got := run(t, filepath.Join(bin, name)); got != name {
			t.Errorf("%s prints %q", name, got)
		}
	}
	if !strings.Contains(output.String(), "all programs are built, in ") {
		t.Errorf("the progress is %q", output.String())
	}
	write(t, tree.Dir, map[string]string{"lab/cmd/lab/main.go": "package main\n\nfunc main() { nothing() }\n"})
	err := TreeAndPrograms(t.Context(), &output, tree, bin, "-trimpath")
	if err == nil || !strings.Contains(err.Error(), "build ./cmd/webhook, ./lab/cmd/lab: ") || !strings.Contains(err.Error(), "undefined: nothing") {
		t.Errorf("a program that does not compile: %v", err)
	}
}

// What Sluice and Kubernetes both need is compiled once: no build compiles while another does.
func TestOneBuildCompilesAtATime(t *testing.T) {
	command, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	write(t, newFakePins(t, hello), map[string]string{
		"kwok/pkg/consts/consts.go": "package consts\n\nvar Version = \"none\" // No build before has compiled it: " + rand.Text() + "\n",
	})
	log, lock := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "lock")
	dir := newSourceTree(t, map[string]string{
		"go.work": "go 1.24\n\nuse .\n",
		"go.mod":  "module sluice.dev\n\ngo 1.24\n",
		"main.go": "package main\n\nfunc main() { println() } // " + rand.Text() + "\n",
		"bin/go": fmt.Sprintf(`#!/bin/sh
case "$1 $2" in "build -v") ;; *) exec %[1]s "$@" ;; esac
mkdir %[2]s || echo another build compiles >> %[3]s
echo compile >> %[3]s
%[1]s "$@"
code=$?
rmdir %[2]s
exit $code
`, command, lock, log),
	})
	if err := os.Chmod(filepath.Join(dir, "bin", "go"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	task := startTask(nil)
	defer task.finish()
	var group errgroup.Group
	group.Go(func() error {
		return Tree{Dir: dir, Workspace: filepath.Join(dir, "go.work"), Packages: []string{"."}}.build(t.Context(), task, t.TempDir(), nil)
	})
	group.Go(func() error {
		_, err := findOrBuild(t.Context(), task, []string{"etcd", "kwok"})
		return err
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(log); err != nil || string(got) != "compile\ncompile\n" {
		t.Errorf("%v, the builds: %s", err, got)
	}
	if task.done != task.total {
		t.Errorf("%d of %d units of work are done", task.done, task.total)
	}
}

// Go's cache has a package twice if Sluice and Kubernetes are built with different flags.
func TestFlagsOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	want := "COMPILE_FLAGS := -tags=" + strings.Join(withoutC, ",") + " " + withoutDebugInformation + "\n"
	if !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile lacks %q", want)
	}
}
