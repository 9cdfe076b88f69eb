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

// maxTrackedBytes is the largest size of a file in the repository. The reference of the API has 140 kB.
const maxTrackedBytes = 1 << 20

// A compiled program does not get into the repository, where it would stay in the history of every clone.
func TestFilesOfTheRepositoryAreSmall(t *testing.T) {
	root := filepath.Join("..", "..")
	listed := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	listed.Dir = root
	out, err := listed.Output()
	if err != nil {
		t.Skipf("this is no clone of the repository: %v", err)
	}
	names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if len(names) < 20 {
		t.Fatalf("found only %d files", len(names))
	}
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Size() > maxTrackedBytes {
			t.Errorf("%s has %d bytes; at most %d are allowed. Is it a built program?", name, info.Size(), maxTrackedBytes)
		}
	}
}
