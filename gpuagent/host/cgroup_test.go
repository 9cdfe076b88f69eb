// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestParsePodUIDs(t *testing.T) {
	const uid = "0f3c1a52-7d1e-4a37-9d0a-6b1f6c2d8e90"
	const container = "8ad9f1c1d7c34b0cb5f4a3f0a9e6d1b28ad9f1c1d7c34b0cb5f4a3f0a9e6d1b2"
	tests := map[string]struct {
		cgroup string
		want   []types.UID
	}{
		"systemd": {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f3c1a52_7d1e_4a37_9d0a_6b1f6c2d8e90.slice/cri-containerd-" + container + ".scope\n", []types.UID{uid}},
		"systemd, guaranteed": {"0::/kubepods.slice/kubepods-pod0f3c1a52_7d1e_4a37_9d0a_6b1f6c2d8e90.slice/crio-" + container + ".scope\n",
			[]types.UID{uid}},
		"cgroupfs": {"0::/kubepods/besteffort/pod" + uid + "/" + container + "\n", []types.UID{uid}},
		"version 1": {"12:pids:/kubepods/burstable/pod" + uid + "/" + container + "\n" +
			"11:cpu,cpuacct:/kubepods/burstable/pod" + uid + "/" + container + "\n1:name=systemd:/system.slice/ssh.service\n", []types.UID{uid}},
		"static pod": {"0::/kubepods/burstable/pod3f2504e04f8941d39a0c0305e82c3301/" + container + "\n",
			[]types.UID{"3f2504e04f8941d39a0c0305e82c3301"}},
		"in a container": {"0::/kubepods/podaaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90/x/kubelet/kubepods/burstable/pod" + uid + "/y\n",
			[]types.UID{"aaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90", uid}},
		"from a cgroup namespace": {"0::/../../pod" + uid + "/" + container + "\n", []types.UID{uid}},
		"no pod":                  {"0::/system.slice/sshd.service\n", nil},
		"a person's name":         {"0::/user.slice/pod" + uid + "\n", nil},
		"not an identity":         {"0::/kubepods/burstable/podrunner/x\n", nil},
		"nothing":                 {"", nil},
		"broken":                  {"kubepods", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ParsePodUIDs(tc.cgroup)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProcessPodUIDs(t *testing.T) {
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "42"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "42", "cgroup"), []byte("0::/kubepods/pod0f3c1a52-7d1e-4a37-9d0a-6b1f6c2d8e90/x\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ProcessPodUIDs(proc, 42); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ProcessPodUIDs(proc, 43); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func FuzzParsePodUIDs(f *testing.F) {
	f.Add("0::/kubepods/burstable/pod0f3c1a52-7d1e-4a37-9d0a-6b1f6c2d8e90/x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, uid := range ParsePodUIDs(text) {
			if len(uid) < 32 || len(uid) > 36 {
				t.Errorf("%q", uid)
			}
		}
	})
}
