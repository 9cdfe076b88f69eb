// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// newOwnProcfs returns a procfs with this process under another PID.
func newOwnProcfs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Symlink(filepath.Join("/proc", strconv.Itoa(os.Getpid())), filepath.Join(root, "5000001")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "sys"), 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestSendSIGHUP(t *testing.T) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	p, err := pinProcess(newOwnProcfs(t), 5000001)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if catches, err := p.handlesSIGHUP(); !catches || err != nil {
		t.Errorf("catches %v, %v", catches, err)
	}
	for name, send := range map[string]func() error{"by its folder": p.sendSIGHUP, "on an old kernel": p.killByPID} {
		if err := send(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		<-hangups
	}
}

// A folder that only resembles a process's gets no signal.
func TestOpenFakeProcessFolder(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "17"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := pinProcess(root, 17)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.sendSIGHUP(); !errors.Is(err, unix.EBADF) {
		t.Errorf("signal: %v", err)
	}
	for _, status := range []string{"Name:\tx\n", "Pid:\t1\nSigCgt:\txyz\n", "Pid:\t-4\n"} {
		if err := os.WriteFile(filepath.Join(root, "17", "status"), []byte(status), 0o600); err != nil {
			t.Fatal(err)
		}
		if catches, err := p.handlesSIGHUP(); catches || err == nil {
			t.Errorf("%q: catches %v, %v", status, catches, err)
		}
		if err := p.killByPID(); err == nil {
			t.Errorf("%q: signaled", status)
		}
	}
}

func TestRunningProcesses(t *testing.T) {
	commands, err := RunningProcesses(newOwnProcfs(t))
	if err != nil || len(commands) != 1 {
		t.Fatalf("%v, %v", commands, err)
	}
	if want := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...); !slices.Equal(commands[0].Command, want) {
		t.Errorf("%q, want %q", commands[0], want)
	}
	if _, err := RunningProcesses(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// A process with locked memory is skipped, and occupies one thread, not one for each attempt.
func TestUnreadableProcess(t *testing.T) {
	root := t.TempDir()
	pipe := filepath.Join(root, "42", "cmdline")
	if err := errors.Join(os.Mkdir(filepath.Dir(pipe), 0o700), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, err := listProcesses(root)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if _, err := readWithTimeout(pipe, time.Millisecond, all[0].CmdLine); !errors.Is(err, ErrReadTimeout) {
		t.Errorf("%v", err)
	}
	if commands, err := RunningProcesses(root); len(commands) != 0 || err != nil {
		t.Errorf("%v, %v", commands, err)
	}
	if _, err := writer.WriteString("train\x00"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for { // until the pending read ends
		if _, waits := pendingReads.Load(pipe); !waits {
			break
		}
		runtime.Gosched()
	}
}

func TestBootID(t *testing.T) {
	if id, err := BootID("/proc"); err != nil || len(id) != 36 {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := BootID(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestParsePodUIDs(t *testing.T) {
	const uid = "0f3c1a52-7d1e-4a37-9d0a-6b1f6c2d8e90"
	const container = "8ad9f1c1d7c34b0cb5f4a3f0a9e6d1b28ad9f1c1d7c34b0cb5f4a3f0a9e6d1b2"
	tests := map[string]struct {
		cgroup string
		want   []types.UID
	}{
		"systemd": {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f3c1a52_7d1e_4a37_9d0a_6b1f6c2d8e90.slice/cri-containerd-" + container + ".scope\n", []types.UID{uid}},
		"systemd, guaranteed": {
			"0::/kubepods.slice/kubepods-pod0f3c1a52_7d1e_4a37_9d0a_6b1f6c2d8e90.slice/crio-" + container + ".scope\n",
			[]types.UID{uid},
		},
		"cgroupfs": {"0::/kubepods/besteffort/pod" + uid + "/" + container + "\n", []types.UID{uid}},
		"version 1": {"12:pids:/kubepods/burstable/pod" + uid + "/" + container + "\n" +
			"11:cpu,cpuacct:/kubepods/burstable/pod" + uid + "/" + container + "\n1:name=systemd:/system.slice/ssh.service\n", []types.UID{uid}},
		"static pod": {
			"0::/kubepods/burstable/pod3f2504e04f8941d39a0c0305e82c3301/" + container + "\n",
			[]types.UID{"3f2504e04f8941d39a0c0305e82c3301"},
		},
		"in a container": {
			"0::/kubepods/podaaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90/x/kubelet/kubepods/burstable/pod" + uid + "/y\n",
			[]types.UID{"aaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90", uid},
		},
		"CRI-O": {
			"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0f3c1a52_7d1e_4a37_9d0a_6b1f6c2d8e90.slice/crio-" + container +
				".scope/container\n", []types.UID{uid},
		},
		"version 1, systemd": {"5:devices:/kubepods.slice/kubepods-pod0f3c1a52_7d1e_4a37_9d0a_6b1f6c2d8e90.slice/docker-" + container + ".scope\n" +
			"1:name=systemd:/kubepods.slice/kubepods-pod0f3c1a52_7d1e_4a37_9d0a_6b1f6c2d8e90.slice/docker-" + container + ".scope\n0::/\n", []types.UID{uid}},
		"a container's own cgroup with another pod's name": {
			"0::/kubepods/burstable/pod" + uid + "/" + container + "/kubepods-podaaaaaaaa_7d1e_4a37_9d0a_6b1f6c2d8e90.slice\n",
			[]types.UID{uid, "aaaaaaaa-7d1e-4a37-9d0a-6b1f6c2d8e90"},
		},
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

func TestDriverLoad(t *testing.T) {
	sys := t.TempDir()
	if load, err := DriverLoad(sys); load != "" || err != nil {
		t.Errorf("without the driver: %q, %v", load, err)
	}
	module, next := filepath.Join(sys, "module/nvidia"), filepath.Join(sys, "module/next")
	if err := errors.Join(os.MkdirAll(module, 0o700), os.Mkdir(next, 0o700)); err != nil {
		t.Fatal(err)
	}
	first, err := DriverLoad(sys)
	if again, _ := DriverLoad(sys); first == "" || err != nil || again != first {
		t.Errorf("loaded: %q, then %q, %v", first, again, err)
	}
	if err := errors.Join(os.Remove(module), os.Rename(next, module)); err != nil {
		t.Fatal(err)
	}
	if second, err := DriverLoad(sys); second == "" || second == first || err != nil {
		t.Errorf("loaded again: %q, then %q, %v", first, second, err)
	}
	if err := os.WriteFile(filepath.Join(sys, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := DriverLoad(filepath.Join(sys, "file")); err == nil || !strings.Contains(err.Error(), "module/nvidia") {
		t.Errorf("%v", err)
	}
}

// Reads of a command line that follow each other at once, or run at the same time, are no hung process.
func TestReadsOfOneProcessAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				if _, err := readWithTimeout("/proc/1/cmdline", time.Minute, func() ([]string, error) { return nil, nil }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
