// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTemporaryFolderIsRemoved(t *testing.T) {
	f, err := temporaryFolder()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// A socket in <dir>/nodes/<node>/ must fit into 108 bytes.
	if len(f.path) > 50 {
		t.Errorf("%s is too long for sockets below it", f.path)
	}
	if err := f.close(false); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(f.path); !os.IsNotExist(err) {
		t.Errorf("%s remains: %v", f.path, err)
	}
}

func TestRemoveAbandoned(t *testing.T) {
	base := t.TempDir()
	old := time.Now().Add(-2 * minSweepAge)
	folder := func(name, mark string, age time.Time) string {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Join(dir, "etcd"), 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, mark)
		err := os.WriteFile(path, []byte(`{"mine":"precious"}`), 0o600)
		if mark == stateFile && name != "sluice-foreign" {
			err = writeMark(dir, state{Temporary: name != "sluice-named"})
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, age, age); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	left := folder("sluice-left", stateFile, old)
	kept := map[string]string{
		"in use":                 folder("sluice-inuse", stateFile, old),
		"just created":           folder("sluice-new", stateFile, time.Now()),
		"without a mark":         folder("sluice-notes", "notes.txt", old),
		"another program's mark": folder("sluice-foreign", stateFile, old),
		"named by the user":      folder("sluice-named", stateFile, old),
		"another name":           folder("other", stateFile, old),
	}
	inUse, err := lockFolder(kept["in use"])
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.lock.Unlock()

	removeAbandoned(base)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the abandoned folder remains: %v", err)
	}
	for name, dir := range kept {
		if _, err := os.Stat(filepath.Join(dir, "etcd")); err != nil {
			t.Errorf("folder %q: %v", name, err)
		}
	}
}

func TestTemporaryBaseIsShort(t *testing.T) {
	t.Setenv("TMPDIR", "/var/folders/zz/"+strings.Repeat("x", 40)+"/T")
	if got := temporaryBase(); got != "/tmp" {
		t.Errorf("got %s", got)
	}
	t.Setenv("TMPDIR", "/scratch")
	if got := temporaryBase(); got != "/scratch" {
		t.Errorf("got %s", got)
	}
}
