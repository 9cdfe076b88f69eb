// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each refusal names what was asked for and what to do, and leaves nothing behind.
func TestOptionsRejectHostileInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	homely := t.TempDir()
	if err := os.WriteFile(filepath.Join(homely, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address(0))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port
	fresh := filepath.Join(t.TempDir(), "fresh")

	tests := []struct {
		name    string
		options Options
		want    []string
	}{
		{"port above all", Options{Port: 70000}, []string{"port 70000: ", "1 to 65535", "0 for a free one"}},
		{"negative port", Options{Port: -1}, []string{"port -1: "}},
		{"port taken", Options{Port: taken}, []string{"port " + strconv.Itoa(taken) + ": ", "address already in use", "name another, or 0"}},
		{"dir is a file", Options{Dir: file}, []string{"the cluster's folder " + file, "is a file; name a folder"}},
		{"dir below a file", Options{Dir: filepath.Join(file, "sub")}, []string{"the cluster's folder", "not a directory"}},
		{"dir that cannot be made", Options{Dir: "/proc/sluice"}, []string{"the cluster's folder /proc/sluice: ", "name a folder that you may write"}},
		{"dir with a person's files", Options{Dir: homely}, []string{"the cluster's folder " + homely, "thesis.tex", "empty or a new folder"}},
		{"dir with a broken state", Options{Dir: broken}, []string{"the cluster's folder " + broken, stateFile, "remove this one by hand"}},
		{"unknown component", Options{ExtraArgs: map[string][]string{"kubelet": nil}}, []string{`Options.ExtraArgs["kubelet"]`, "there are etcd, kube-apiserver"}},
		{"kept without a name", Options{KeepData: true}, []string{"Options.KeepData", "set Dir"}},
		{"negative time-out", Options{ReadyTimeout: -time.Second}, []string{"Options.ReadyTimeout -1s"}},
		{
			"argument that the API server does not know",
			Options{Dir: fresh, ExtraArgs: map[string][]string{APIServer: {"--nonsense"}}},
			[]string{"start kube-apiserver: it ended before it was ready", "unknown flag: --nonsense", filepath.Join(fresh, "logs", APIServer+".log")},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Start(t.Context(), tt.options)
			if err == nil {
				c.Stop()
				t.Fatal("it started")
			}
			for _, want := range append(tt.want, "start cluster: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(homely, "thesis.tex")); err != nil {
		t.Errorf("the person's file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(fresh, "logs", APIServer+".log")); err != nil {
		t.Errorf("the log that the error names: %v", err)
	}
}

func TestCheckDirAcceptsClusterDirs(t *testing.T) {
	empty, started, killedEarly := t.TempDir(), t.TempDir(), t.TempDir()
	if err := writeMark(started, state{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(started, "clock.json"), filepath.Join(killedEarly, lockFile), filepath.Join(killedEarly, stateFile+".new")} {
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{empty, started, killedEarly, filepath.Join(empty, "new")} {
		if err := checkDir(dir); err != nil {
			t.Error(err)
		}
	}
}

func createSymlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestResolveDir(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(path string) string { return filepath.Join(base, path) }
	writeTestFile(t, base, "real/file")
	createSymlink(t, in("real"), in("link"))
	createSymlink(t, "link", in("relative"))
	createSymlink(t, in("later"), in("dangling"))
	createSymlink(t, "dangling", in("twice"))
	createSymlink(t, in("circle"), in("circle"))
	for path, want := range map[string]string{
		"real": "real", "link": "real", "relative": "real",
		"new": "new", "new/below": "new/below", "link/new/below": "real/new/below",
		"dangling": "later", "twice": "later", "twice/below": "later/below",
	} {
		if got, err := resolveDir(in(path)); err != nil || got != in(want) {
			t.Errorf("%s: %s, %v; want %s", path, got, err, in(want))
		}
	}
	for _, path := range []string{"circle", "circle/below", "real/file/below"} {
		if got, err := resolveDir(in(path)); err == nil {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// What is behind a link is removed, and the link stays: it was a person who made
// it. A start through it makes what it points to.
func TestClusterBehindSymlink(t *testing.T) {
	dir := fakeCluster(t)
	path := filepath.Join(t.TempDir(), "link")
	createSymlink(t, dir, path)
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
	if left := entryNames(t, dir); left != nil {
		t.Errorf("left behind the link: %v", left)
	}
	if _, err := os.Readlink(path); err != nil {
		t.Errorf("the link: %v", err)
	}
	options, err := Options{Dir: path}.validate()
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
