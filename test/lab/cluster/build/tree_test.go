// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Sluice, the lab and the embedded Kubernetes are built with one progress. A program that does not compile is named, with the message
// of the compiler.
func TestTreesAndPrograms(t *testing.T) {
	t.Setenv(assetsVariable, newAssets(t, Names()...))
	trees := []Tree{
		{newSourceTree(t, map[string]string{
			"go.mod":              "module sluice.dev\n\ngo 1.24\n",
			"word/word.go":        "package word\n\n// No build before has compiled it: " + rand.Text() + "\n\nconst Word = \"webhook\"\n",
			"cmd/webhook/main.go": "package main\n\nimport \"sluice.dev/word\"\n\nfunc main() { print(word.Word) }\n",
		}), []string{"./cmd/webhook"}},
		{newSourceTree(t, map[string]string{
			"go.mod":          "module sluice.dev/test/lab\n\ngo 1.24\n",
			"cmd/lab/main.go": "package main\n\nfunc main() { print(\"lab\") }\n",
		}), []string{"./cmd/lab"}},
	}
	var output syncBuffer
	bin := t.TempDir()
	if err := TreesAndPrograms(t.Context(), &output, trees, bin, "-trimpath"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"webhook", "lab"} {
		if got := run(t, filepath.Join(bin, name+executableSuffix())); got != name {
			t.Errorf("%s prints %q", name, got)
		}
	}
	if !strings.Contains(output.String(), "all programs are built, in ") {
		t.Errorf("the progress is %q", output.String())
	}
	write(t, trees[1].Dir, map[string]string{"cmd/lab/main.go": "package main\n\nfunc main() { nothing() }\n"})
	err := TreesAndPrograms(t.Context(), &output, trees, bin, "-trimpath")
	if err == nil || !strings.Contains(err.Error(), "build ./cmd/lab: ") || !strings.Contains(err.Error(), "undefined: nothing") {
		t.Errorf("a program that does not compile: %v", err)
	}
}

// Go's cache has a package twice if Sluice and Kubernetes are built with different tags.
func TestTagsOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if tags := " -tags=" + strings.Join(withoutC, ",") + "\n"; !strings.Contains(string(makefile), tags) {
		t.Errorf("the Makefile's GOFLAGS lack %q", tags)
	}
}
