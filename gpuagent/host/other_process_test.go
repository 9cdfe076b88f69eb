// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
)

const containerID = "1f0c9d8e7b6a5f4e3d2c1b0a99887766554433221100ffeeddccbbaa99887766"

// cgroupV1 returns the text of a process's cgroup with the controllers of version 1.
func cgroupV1(path string) string {
	return "13:memory:" + path + "\n12:cpu,cpuacct:" + path + "\n11:devices:" + path + "\n1:name=systemd:" + path + "\n0::/system.slice/containerd.service\n"
}

// The owners of processes outside of pods, by cgroups as docker, Podman, Slurm and systemd write them.
func TestOtherOwners(t *testing.T) {
	job := func(paths ...string) string { return strings.Join(paths, "\n") + "\n" }
	for name, tc := range map[string]struct {
		cgroup string
		kind   v1alpha1.OtherProcessKind
		owner  string
	}{
		"docker, v2, systemd":         {"0::/system.slice/docker-" + containerID + ".scope\n", "Container", "docker 1f0c9d8e7b6a"},
		"docker, v2, cgroupfs":        {"0::/docker/" + containerID + "\n", "Container", "docker 1f0c9d8e7b6a"},
		"docker, v1, cgroupfs":        {cgroupV1("/docker/" + containerID), "Container", "docker 1f0c9d8e7b6a"},
		"docker, v1, systemd":         {cgroupV1("/system.slice/docker-" + containerID + ".scope"), "Container", "docker 1f0c9d8e7b6a"},
		"docker, a parent of its own": {"0::/lab/" + containerID + "\n", "Container", "1f0c9d8e7b6a"},
		"docker, rootless": {
			"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + containerID + ".scope\n", "Container", "docker 1f0c9d8e7b6a",
		},
		"docker, relative to another cgroup": {"0::/../../system.slice/docker-" + containerID + ".scope\n", "Container", "docker 1f0c9d8e7b6a"},
		"docker, a deleted cgroup":           {"0::/docker/" + containerID + " (deleted)\n", "Container", "docker 1f0c9d8e7b6a"},
		"Podman":                             {"0::/machine.slice/libpod-" + containerID + ".scope/container\n", "Container", "podman 1f0c9d8e7b6a"},
		"Podman, cgroupfs":                   {"0::/libpod_parent/libpod-" + containerID + "\n", "Container", "podman 1f0c9d8e7b6a"},
		"nerdctl":                            {"0::/system.slice/nerdctl-" + containerID + ".scope\n", "Container", "nerdctl 1f0c9d8e7b6a"},
		"systemd-nspawn":                     {"0::/machine.slice/machine-lab.scope/payload\n", "Container", "lab"},
		"LXC, v2":                            {"0::/lxc.payload.lab/system.slice/ssh.service\n", "Container", "lab"},
		"LXC, v1":                            {cgroupV1("/lxc/lab"), "Container", "lab"},

		"Slurm, v2":                     {"0::/system.slice/slurmstepd.scope/job_463/step_0/user/task_0\n", "Slurm", "job 463"},
		"Slurm, v2, several daemons":    {"0::/system.slice/node1_slurmstepd.scope/job_463/step_batch/user/task_special\n", "Slurm", "job 463"},
		"Slurm, v1":                     {cgroupV1("/slurm/uid_1000/job_42/step_batch"), "Slurm", "job 42"},
		"Slurm, v1, with the node name": {cgroupV1("/slurm_node-1/uid_1000/job_42/step_0/task_0"), "Slurm", "job 42"},
		"Slurm, v1, some controllers": {
			job("12:pids:/system.slice/slurmd.service", "9:devices:/slurm/uid_1000/job_7/step_0", "1:name=systemd:/system.slice/slurmd.service"),
			"Slurm", "job 7",
		},
		"docker in a job of Slurm": {"0::/system.slice/slurmstepd.scope/job_463/step_0/user/docker-" + containerID + ".scope\n", "Slurm", "job 463"},
		"a job in a container":     {"0::/docker/" + containerID + "/slurm/uid_0/job_1\n", "Container", "docker 1f0c9d8e7b6a"},
		"Slurm's own daemon":       {"0::/system.slice/slurmd.service\n", "Service", "slurmd.service"},

		"a service":          {"0::/system.slice/nvidia-dcgm.service\n", "Service", "nvidia-dcgm.service"},
		"a service, v1":      {"12:pids:/system.slice/nvidia-persistenced.service\n1:name=systemd:/system.slice/nvidia-persistenced.service\n", "Service", "nvidia-persistenced.service"},
		"an instance":        {"0::/system.slice/system-nvsm.slice/nvsm@1.service/worker\n", "Service", "nvsm@1.service"},
		"docker's daemon":    {"0::/system.slice/docker.service\n", "Service", "docker.service"},
		"a session":          {"0::/user.slice/user-1000.slice/session-3.scope\n", "Host", ""},
		"a user's service":   {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service\n", "Host", ""},
		"no cgroup":          {"0::/\n", "Host", ""},
		"nothing":            {"", "Host", ""},
		"not a text":         {"\xff\xfe::\x00/slurm\n::\n:::::/docker/\n", "Host", ""},
		"a job without one":  {"0::/system.slice/slurmstepd.scope/system\n", "Host", ""},
		"a job elsewhere":    {"0::/user.slice/job_463/step_0\n", "Host", ""},
		"no job number":      {"0::/system.slice/slurmstepd.scope/job_1e9/step_0\n", "Host", ""},
		"a short identifier": {"0::/docker/1f0c9d8e7b6a\n", "Host", ""},
		"hostile names": {
			"0::/lxc.payload.\x1b[2J\u202elab\xff" + strings.Repeat("x", 300) + "\n", "Container", "?[2J?lab?" + strings.Repeat("x", 54) + "…",
		},
	} {
		kind, owner := parseOtherOwner(tc.cgroup)
		if kind != tc.kind || owner != tc.owner {
			t.Errorf("%s: %s %q, want %s %q", name, kind, owner, tc.kind, tc.owner)
		}
	}
}

// A process is described once, and again if its PID has another cgroup.
func TestResolveOtherProcess(t *testing.T) {
	proc := t.TempDir()
	r := &PodResolver{Proc: proc}
	resolve := func(cgroup string) *v1alpha1.OtherProcess {
		t.Helper()
		writeCgroup(t, proc, 7, cgroup)
		r.NextRound()
		if _, _, err := r.Resolve(7); err != nil {
			t.Fatal(err)
		}
		return r.Other(7)
	}
	docker := "0::/docker/" + containerID + "\n"
	resolve(docker)
	writeFiles(t, proc, map[string]string{"7/comm": "python\x1b3\n"})
	if diff := cmp.Diff(&v1alpha1.OtherProcess{PID: 7, Name: "unknown", Kind: "Container", Owner: "docker 1f0c9d8e7b6a"}, r.Other(7)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	writeCgroup(t, proc, 7, "0::/system.slice/x.service\n")
	writeFiles(t, proc, map[string]string{"7/comm": "python\x1b3\n"})
	r.NextRound()
	if _, _, err := r.Resolve(7); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&v1alpha1.OtherProcess{PID: 7, Name: "python?3", Kind: "Service", Owner: "x.service"}, r.Other(7)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := resolve("0::/kubepods/burstable/pod" + uidA + "/x\n"); got != nil {
		t.Errorf("a process of a pod is described as %+v", got)
	}
	if got := r.Other(8); got != nil {
		t.Errorf("an unknown process is described as %+v", got)
	}
}

// The text of a cgroup is read as a whole, up to a limit.
func TestLongCgroup(t *testing.T) {
	proc := t.TempDir()
	r := &PodResolver{Proc: proc}
	for _, size := range []int{0, 1, 4095, 4096, 4097, 20_000, maxCgroupBytes, 10 * maxCgroupBytes} {
		want := strings.Repeat("x", size)
		writeFiles(t, proc, map[string]string{"7/cgroup": want})
		got, err := r.readCgroup(7)
		if err != nil || string(got) != want[:min(size, maxCgroupBytes)] {
			t.Errorf("of %d bytes it reads %d, %v", size, len(got), err)
		}
	}
	if err := os.Remove(filepath.Join(proc, "7", "cgroup")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.readCgroup(7); !os.IsNotExist(err) {
		t.Errorf("without the file: %v", err)
	}
}

// The texts of any cgroup and any name are within the schema's limits and printable.
func FuzzOtherProcess(f *testing.F) {
	f.Add("0::/docker/"+containerID+"\n", "python3")
	f.Add(cgroupV1("/slurm_node1/uid_1000/job_42/step_0"), "\x1b[2J")
	f.Add("0::/machine.slice/machine-\u202e.scope\n0::/lxc/\xff\n", "")
	f.Fuzz(func(t *testing.T, cgroup, name string) {
		kind, owner := parseOtherOwner(cgroup)
		for _, text := range []string{owner, cleanName(name)} {
			if utf8.RuneCountInString(text) > maxOtherText || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '\u202e' }) {
				t.Errorf("%q", text)
			}
		}
		switch kind {
		case v1alpha1.OtherSlurm, v1alpha1.OtherContainer, v1alpha1.OtherService:
			if owner == "" {
				t.Errorf("%s without an owner", kind)
			}
		case v1alpha1.OtherHost:
		default:
			t.Errorf("unknown kind %q", kind)
		}
		if cleanName(name) == "" {
			t.Error("no name")
		}
	})
}
