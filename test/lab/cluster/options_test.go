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

// Each error names the invalid value and the remedy, and a failed start leaves no files.
func TestOptionsRejectHostileInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "thesis.tex"), nil, 0o600); err != nil {
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
		{"port above the maximum", Options{Port: 70000}, []string{"port 70000: ", "1 to 65535", "0 for a free one"}},
		{"negative port", Options{Port: -1}, []string{"port -1: "}},
		{"port taken", Options{Port: taken}, []string{
			"port " + strconv.Itoa(taken) + ": ", "address already in use",
			"name another, or 0",
		}},
		{"dir is a file", Options{Dir: file}, []string{"the cluster's folder " + file, "is a file; name a folder"}},
		{"dir below a file", Options{Dir: filepath.Join(file, "sub")}, []string{"the cluster's folder", "not a directory"}},
		{
			"dir that cannot be created",
			Options{Dir: "/proc/sluice"},
			[]string{"the cluster's folder /proc/sluice: ", "name a folder that you may write"},
		},
		{
			"dir with the user's files",
			Options{Dir: occupied},
			[]string{"the cluster's folder " + occupied, "thesis.tex", "empty or a new folder"},
		},
		{
			"dir with an invalid mark",
			Options{Dir: broken},
			[]string{"the cluster's folder " + broken, stateFile, "remove this one by hand"},
		},
		{
			"unknown component",
			Options{ExtraArgs: map[string][]string{"kubelet": nil}},
			[]string{`Options.ExtraArgs["kubelet"]`, "there are etcd, kube-apiserver"},
		},
		{"KeepData without Dir", Options{KeepData: true}, []string{"Options.KeepData", "set Dir"}},
		{"negative timeout", Options{ReadyTimeout: -time.Second}, []string{"Options.ReadyTimeout -1s"}},
		{
			"argument unknown to the API server",
			Options{Dir: fresh, ExtraArgs: map[string][]string{APIServer: {"--nonsense"}}},
			[]string{
				"start kube-apiserver: it ended before it was ready", "unknown flag: --nonsense",
				filepath.Join(fresh, "logs", APIServer+".log"),
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Start(t.Context(), tt.options)
			if err == nil {
				c.Stop()
				t.Fatal("Start succeeded")
			}
			for _, want := range append(tt.want, "start cluster: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(occupied, "thesis.tex")); err != nil {
		t.Errorf("the user's file: %v", err)
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
	for _, path := range []string{
		filepath.Join(started, "clock.json"), filepath.Join(killedEarly, lockFile),
		filepath.Join(killedEarly, stateFile+".new"),
	} {
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

// Stop removes the folder behind a link and keeps the link, which belongs to the user. A
// start through a link creates the missing folder behind it.
func TestClusterBehindSymlink(t *testing.T) {
	dir := fakeCluster(t)
	path := filepath.Join(t.TempDir(), "link")
	createSymlink(t, dir, path)
	if !Exists(path) {
		t.Error("Exists is false")
	}
	lock, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := Holder(path); err != nil || pid != os.Getpid() {
		t.Errorf("its holder is %d, %v", pid, err)
	}
	if err := Reap(path); err == nil {
		t.Error("Reap succeeded on a locked folder")
	}
	if err := lock.close(true); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time the folder is already gone
		if err := Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if left := entryNames(t, dir); left != nil {
		t.Errorf("files remain behind the link: %v", left)
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
		t.Error("the folder behind the link was not created")
	}
	if err := f.close(false); err != nil {
		t.Error(err)
	}
}
