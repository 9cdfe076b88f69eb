// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// writeCgroup writes the cgroup of a process; an empty one ends it.
func writeCgroup(t *testing.T, proc string, pid int, cgroup string) {
	t.Helper()
	folder := filepath.Join(proc, strconv.Itoa(pid))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if cgroup == "" {
		return
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "cgroup"), []byte(cgroup), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	uidA = "0f3c1a52-7d1e-4a37-9d0a-6b1f6c2d8e90"
	uidB = "aaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90"
)

// A process whose PID is given to a process of another pod never counts for the former pod, and for the
// other only from its second round on. Guards invariant 12: no pod's use counts for another.
func TestResolvedPodFollowsPID(t *testing.T) {
	proc := t.TempDir()
	r := &PodResolver{Proc: proc}
	step := func(name, cgroup string, want []types.UID, wantSettled bool) {
		t.Helper()
		writeCgroup(t, proc, 7, cgroup)
		r.NextRound()
		for range 2 { // on two devices
			pods, settled, err := r.Resolve(7)
			if errors.Is(err, fs.ErrNotExist) != (cgroup == "") {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, pods); diff != "" || settled != wantSettled {
				t.Errorf("%s: settled is %v, want %v; %s", name, settled, wantSettled, diff)
			}
		}
	}
	a, b := "0::/kubepods/burstable/pod"+uidA+"/x\n", "0::/kubepods/burstable/pod"+uidB+"/y\n"
	step("new", a, []types.UID{uidA}, false)
	step("again", a, []types.UID{uidA}, true)
	step("reused", b, []types.UID{uidB}, false)
	step("reused, again", b, []types.UID{uidB}, true)
	step("ended", "", nil, false)
	step("reused after its end", b, []types.UID{uidB}, false)
	step("outside of pods", "0::/system.slice/docker-1.scope\n", nil, false)
	step("still outside of pods", "0::/system.slice/docker-1.scope\n", nil, true)
	r.NextRound()
	step("absent from a round", "0::/system.slice/docker-1.scope\n", nil, false)
	if len(r.processes) != 1 {
		t.Errorf("it keeps %d processes", len(r.processes))
	}
}
