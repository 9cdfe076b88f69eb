// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUnreachable(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "launcher")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	open, closed := filepath.Join(dir, "open"), filepath.Join(dir, "closed")
	for path, mode := range map[string]os.FileMode{dir: 0o711, open: 0o711, closed: 0o700} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		open: "", closed: closed, filepath.Join(closed, "x"): filepath.Join(closed, "x"), filepath.Join(open, "missing"): filepath.Join(open, "missing"),
	} {
		if got := unreachable(path); got != want {
			t.Errorf("unreachable(%s) = %q, want %q", path, got, want)
		}
	}
}
