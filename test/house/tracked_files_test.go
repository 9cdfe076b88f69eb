// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxTrackedSize is far above the largest source and far below the smallest binary.
const maxTrackedSize = 1 << 20

// Git keeps a binary in the history for ever: `go build ./cmd/sluice` writes one into the current folder.
func TestNoBinaryIsTracked(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("the sources are not in a git repository")
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(files) < 20 {
		t.Fatalf("git lists only %d files", len(files))
	}
	for _, file := range files {
		// A file that is tracked and deleted is no problem of size.
		if info, err := os.Lstat(filepath.Join(root, file)); err == nil && info.Size() > maxTrackedSize {
			t.Errorf("%s has %d MiB; tracked files have at most %d: remove it with git rm --cached", file, info.Size()>>20, maxTrackedSize>>20)
		}
	}
}
