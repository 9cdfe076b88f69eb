// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeFiles writes files below a folder.
func writeFiles(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodeUsers(t *testing.T) {
	root := newOwnProcfs(t)
	for pid, cgroup := range map[string]string{
		"11": "0::/system.slice/nvidia-persistenced.service\n",
		"12": "12:pids:/\n0::/../../system.slice/system-nvsm.slice/nvsm@1.service/worker\n",
		"13": "0::/kubepods.slice/kubepods-pod0f3c1111_2222_3333_4444_555566667777.slice/cri-containerd-1.scope\n",
		"14": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.service\n",
		"15": "0::/system.slice/ssh.service\n", // only a file of the same name
		"16": "0::/system.slice/idle.service\n",
	} {
		writeFiles(t, root, map[string]string{pid + "/cgroup": cgroup, pid + "/comm": "daemon-" + pid + "\n", pid + "/null": "", pid + "/fd/unreadable": ""})
		target := map[string]string{"15": filepath.Join(root, pid, "null"), "16": "/dev/zero"}[pid]
		if target == "" {
			target = "/dev/null"
		}
		if err := os.Symlink(target, filepath.Join(root, pid, "fd", "3")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/usr/bin/nvidia-persistenced (deleted)", filepath.Join(root, "11", "exe")); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	users, err := nodeUsers(root, "null")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range users {
		if u.PID == 5000001 {
			u.Service, u.Pods = "", nil // where the test runs
		}
		got = append(got, strings.Replace(u.String(), filepath.Base(os.Args[0]), "this test", 1))
	}
	want := []string{
		"process nvidia-persistenced (11) of the host's service nvidia-persistenced.service: stop it with `systemctl stop nvidia-persistenced.service`",
		"process daemon-12 (12) of the host's service nvsm@1.service: stop it with `systemctl stop nvsm@1.service`",
		"process daemon-13 (13) of a pod",
		"process daemon-14 (14) of the host",
		"process this test (5000001) of the host",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if own, err := nodeUsers("/proc", "null"); err != nil || len(own) > 0 && own[0].PID == os.Getpid() {
		t.Errorf("%v, %v", own, err)
	}
}

func TestUsersOfUnusedGPU(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		"driver/nvidia/gpus/0000:07:00.0/information": "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1\nDevice Minor: \t 3\n",
		"driver/nvidia/gpus/0000:0f:00.0/information": "GPU UUID: \t GPU-2\nDevice Minor: \t 0\n",
	})
	if _, err := DeviceUsers(root, "GPU-3"); err == nil || !strings.Contains(err.Error(), "has the UUID GPU-3") {
		t.Errorf("%v", err)
	}
	if users, err := DeviceUsers(root, "GPU-1"); len(users) > 0 || err != nil {
		t.Errorf("%v, %v", users, err)
	}
}
