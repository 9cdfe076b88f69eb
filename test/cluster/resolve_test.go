// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestResolved(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(path string) string { return filepath.Join(base, path) }
	put(t, base, "real/file")
	link(t, in("real"), in("link"))
	link(t, "link", in("relative"))
	link(t, in("later"), in("dangling"))
	link(t, "dangling", in("twice"))
	link(t, in("circle"), in("circle"))
	for path, want := range map[string]string{
		"real": "real", "link": "real", "relative": "real",
		"new": "new", "new/below": "new/below", "link/new/below": "real/new/below",
		"dangling": "later", "twice": "later", "twice/below": "later/below",
	} {
		if got, err := resolved(in(path)); err != nil || got != in(want) {
			t.Errorf("%s: %s, %v; want %s", path, got, err, in(want))
		}
	}
	for _, path := range []string{"circle", "circle/below", "real/file/below"} {
		if got, err := resolved(in(path)); err == nil {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// What is behind a link is removed, and the link stays: it was a person who made
// it. A start through it makes what it points to.
func TestClusterBehindALink(t *testing.T) {
	dir := fakeCluster(t)
	path := filepath.Join(t.TempDir(), "link")
	link(t, dir, path)
	if !Exists(path) {
		t.Error("it does not exist")
	}
	lock, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := Holder(path); err != nil || pid != os.Getpid() {
		t.Errorf("its holder is %d, %v", pid, err)
	}
	if err := Reap(path); err == nil {
		t.Error("Reap while it is held")
	}
	if err := lock.close(true); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing behind it any more
		if err := Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if left := names(t, dir); left != nil {
		t.Errorf("left behind the link: %v", left)
	}
	if _, err := os.Readlink(path); err != nil {
		t.Errorf("the link: %v", err)
	}
	options, err := Options{Dir: path}.validated()
	if err != nil {
		t.Fatal(err)
	}
	f, err := openFolder(options)
	if err != nil {
		t.Fatal(err)
	}
	if !Exists(dir) || !Exists(path) {
		t.Error("nothing was made behind the link")
	}
	if err := f.close(false); err != nil {
		t.Error(err)
	}
}
