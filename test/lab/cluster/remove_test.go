// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeCluster creates a folder like that of a stopped cluster, with additional files.
func fakeCluster(t *testing.T, extra ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeMark(dir, state{Ports: ports{APIServer: 23456}}); err != nil {
		t.Fatal(err)
	}
	own := []string{
		"lock", "scheduler", "scheduler.new", "kubeconfig", "kube-scheduler.yaml", "report.json", "report.json.new",
		"clock.json", "clock.json.lock", "clock.json.12345",
		"etcd/member/snap/db", "pki/ca.key", "logs/etcd.log", "run/etcd.json.new", "nodes/dgx-1/checkpoint",
		"components/kwok/config.yaml", "mail/1.eml",
		"kubeconfigs/anna.token", "flexvolumes/x",
	}
	writeTestFile(t, dir, append(own, extra...)...)
	return dir
}

func writeTestFile(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, file := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// entryNames returns the entries of dir; nil if dir does not exist.
func entryNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestRemoveKeepsOtherFiles(t *testing.T) {
	tests := []struct {
		name  string
		extra []string
		left  []string
	}{
		{"no other files", nil, nil},
		{
			"the user's files",
			[]string{"thesis.tex", "data/run-1.csv", "kubeconfig.bak", "clock.json.bak", "my-etcd/x"},
			[]string{"clock.json.bak", "data", "kubeconfig.bak", "my-etcd", "thesis.tex"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := fakeCluster(t, tt.extra...)
			err := Remove(dir)
			var left *LeftError
			if errors.As(err, &left) {
				if diff := cmp.Diff(tt.left, left.Names); diff != "" {
					t.Errorf("names in the error (-want +got):\n%s", diff)
				}
				if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "data") {
					t.Errorf("the error does not list them: %v", err)
				}
			} else if err != nil || tt.left != nil {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff(tt.left, entryNames(t, dir)); diff != "" {
				t.Errorf("remaining files (-want +got):\n%s", diff)
			}
			if Exists(dir) {
				t.Error("the remaining folder still counts as a cluster's")
			}
		})
	}
}

func TestLeftErrorListsFirstNames(t *testing.T) {
	err := &LeftError{Dir: "/x", Names: []string{"a", "b", "c", "d", "e", "f", "g"}}
	if want := "(a, b, c, d, e and 2 more)"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// A folder with another program's cluster.json is never changed.
func TestRemoveRejectsForeignDir(t *testing.T) {
	ours := `"apiVersion": "sim.sluice.dev/v1alpha1", "kind": "EmbeddedCluster"`
	for name, mark := range map[string]string{
		"another program's": `{"mine":"precious"}`,
		"an empty object":   `{}`,
		"an earlier format": `{"ports":{"apiServer":23456,"etcd":1,"etcdPeer":2,"controllerManager":3,"scheduler":4}}`,
		"a later version":   `{"apiVersion":"sim.sluice.dev/v1","kind":"EmbeddedCluster"}`,
		"another kind":      `{"apiVersion":"sim.sluice.dev/v1alpha1","kind":"Cluster"}`,
		"an unknown field":  `{` + ours + `, "mine": "precious"}`,
		"trailing data":     `{` + ours + `} {}`,
		"no JSON":           `mine = precious`,
		"empty":             ``,
		"an oversized file": `{` + ours + `}` + strings.Repeat(" ", maxMarkSize),
		"a list":            `[{` + ours + `}]`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeTestFile(t, dir, "etcd/member", "logs/a", "thesis.tex", stateFile)
			if err := os.WriteFile(filepath.Join(dir, stateFile), []byte(mark), 0o600); err != nil {
				t.Fatal(err)
			}
			if Exists(dir) {
				t.Error("the folder counts as a cluster's")
			}
			_, holder := Holder(dir)
			_, start := Start(t.Context(), Options{Dir: dir})
			for what, err := range map[string]error{"Holder": holder, "Start": start, "Reap": Reap(dir), "Remove": Remove(dir)} {
				if err == nil || !strings.Contains(err.Error(), stateFile+" is no cluster's, or one's of another version") ||
					!strings.Contains(err.Error(), dir) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if diff := cmp.Diff([]string{stateFile, "etcd", "logs", "thesis.tex"}, entryNames(t, dir)); diff != "" {
				t.Errorf("remaining files (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a folder with the mark's name", func(t *testing.T) {
		dir := t.TempDir()
		writeTestFile(t, dir, filepath.Join(stateFile, "x"))
		if err := Remove(dir); err == nil || Exists(dir) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRemovalOrder(t *testing.T) {
	dir := fakeCluster(t, "a-first", "z-last")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, whole := range []bool{false, true} {
		order := removalOrder(entries, whole)
		if diff := cmp.Diff([]string{stateFile, lockFile}, order[len(order)-2:]); diff != "" {
			t.Errorf("whole %v (-want +got):\n%s", whole, diff)
		}
		if got := slices.Contains(order, "a-first") && slices.Contains(order, "z-last"); got != whole {
			t.Errorf("whole %v: removes %v", whole, order)
		}
	}
}

// A killed removal has removed some entries; it can be repeated from any state.
func TestRemoveCanBeRepeated(t *testing.T) {
	entries, err := os.ReadDir(fakeCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	order := removalOrder(entries, false)
	for n := range order {
		dir := fakeCluster(t)
		for _, name := range order[:n] {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := Remove(dir); err != nil {
			t.Errorf("after the removal of %v: %v", order[:n], err)
		}
		if left := entryNames(t, dir); left != nil {
			t.Errorf("after the removal of %v: %v remains", order[:n], left)
		}
	}
}

func TestRemoveKeepsForeignLock(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, lockFile), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err == nil || !strings.Contains(err.Error(), "is no cluster's") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff([]string{lockFile}, entryNames(t, dir)); diff != "" {
		t.Error(diff)
	}
}

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
