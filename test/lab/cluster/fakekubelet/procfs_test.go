// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

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

func readFiles(t *testing.T, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func listEntries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

func TestAddProcess(t *testing.T) {
	tree := procFS{t.TempDir()}
	booted := time.Now().Add(-time.Hour)
	if err := errors.Join(tree.Boot(), os.Chtimes(tree.bootIDPath(), booted, booted)); err != nil {
		t.Fatal(err)
	}
	p := procEntry{
		PID: firstPID, Command: []string{"/usr/bin/python3.12-with-a-long-name", "train.py", "--epochs", "3"},
		Cgroup:  cgroupPath(burstablePods, "0f4c3f0e-7a4e-4f0e-9a39-0a6f2f6f8c01", strings.Repeat("ab", 32)),
		Started: booted.Add(90*time.Second + 20*time.Millisecond),
	}
	for range 2 { // the second call replaces the first
		if err := tree.AddProcess(p); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, name := range listEntries(t, filepath.Join(tree.Root, "5000001")) {
		got[name] = readFiles(t, tree.Root, "5000001", name)
	}
	want := map[string]string{
		"cgroup": "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f4c3f0e_7a4e_4f0e_9a39_0a6f2f6f8c01.slice/cri-containerd-" +
			strings.Repeat("ab", 32) + ".scope\n",
		"cmdline": "/usr/bin/python3.12-with-a-long-name\x00train.py\x00--epochs\x003\x00",
		"comm":    "python3.12-with\n",
		"stat":    "5000001 (python3.12-with) S 1 5000001 5000001 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9002 " + strings.Repeat("0 ", 29) + "0\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(strings.Fields(got["stat"])); n != 52 {
		t.Errorf("stat has %d fields, want the kernel's 52", n)
	}
}

func TestCgroups(t *testing.T) {
	for class, want := range map[cgroupClass]string{
		guaranteedPods: "/kubepods.slice/kubepods-poda_b.slice/cri-containerd-c.scope",
		bestEffortPods: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/cri-containerd-c.scope",
	} {
		if got := cgroupPath(class, "a-b", "c"); got != want {
			t.Errorf("%q is %s, want %s", class, got, want)
		}
	}
}

func TestAddAndRemoveProcesses(t *testing.T) {
	tree := procFS{filepath.Join(t.TempDir(), "proc")}
	if id, err := tree.BootID(); id != "" || err != nil {
		t.Errorf("before the first boot the boot ID is %q (%v)", id, err)
	}
	if err := tree.Boot(); err != nil {
		t.Fatal(err)
	}
	first, err := tree.BootID()
	if err != nil || len(first) != 36 {
		t.Fatalf("boot identity %q (%v), want a UUID", first, err)
	}
	for pid := firstPID; pid < firstPID+3; pid++ {
		if err := tree.AddProcess(procEntry{PID: pid, Command: []string{"python"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(tree.Root, "5000009.next"), 0o700); err != nil { // remains of a crash
		t.Fatal(err)
	}
	for range 2 {
		if err := tree.RemoveProcess(firstPID); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.RetainProcesses(map[uint32]bool{firstPID + 1: true}); err != nil {
		t.Fatal(err)
	}
	if got := listEntries(t, tree.Root); !slices.Equal(got, []string{"5000002", "sys"}) {
		t.Errorf("the processes are %v, want the retained one", got)
	}
	for range 2 {
		if err := tree.LinkProcess(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if comm, err := os.ReadFile(filepath.Join(tree.linkPath(os.Getpid()), "comm")); err != nil || len(comm) == 0 {
		t.Errorf("the real process shows %q (%v)", comm, err)
	}
	for range 2 {
		if err := tree.UnlinkProcess(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Boot(); err != nil {
		t.Fatal(err)
	}
	if second, err := tree.BootID(); err != nil || second == first {
		t.Errorf("after another boot the boot ID is %q (%v), unchanged", second, err)
	}
	if got := listEntries(t, tree.Root); !slices.Equal(got, []string{"sys"}) {
		t.Errorf("after a boot the processes are %v", got)
	}
}
