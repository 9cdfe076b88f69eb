// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// maxOtherText is the largest number of characters of a program's or owner's name, as in the schema of GPUNodes.
const maxOtherText = 64

// ProcessOwner returns the UIDs of the pods in which a process runs, the outermost first, and outside of pods its
// description. The error wraps fs.ErrNotExist if the process ended.
func ProcessOwner(proc string, pid uint32) (pods []types.UID, other *v1alpha1.OtherProcess, err error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.FormatUint(uint64(pid), 10), "cgroup"))
	if err != nil {
		return nil, nil, fmt.Errorf("read owner of process %d: %w", pid, err)
	}
	if pods = ParsePodUIDs(string(text)); len(pods) > 0 {
		return pods, nil, nil
	}
	return nil, describeOther(proc, pid, string(text)), nil
}

// describeOther returns a process outside of pods by the text of its /proc/<pid>/cgroup, without its memory.
func describeOther(proc string, pid uint32, cgroup string) *v1alpha1.OtherProcess {
	kind, owner := parseOtherOwner(cgroup)
	name := cleanName(programName(filepath.Join(proc, strconv.FormatUint(uint64(pid), 10))))
	return &v1alpha1.OtherProcess{PID: int64(pid), Name: name, Kind: kind, Owner: owner}
}

// parseOtherOwner returns the kind and the owner of a process outside of pods by the text of its
// /proc/<pid>/cgroup. A job of Slurm or a container counts before a service: with cgroup v1 the process may be in
// it by some controllers only. Of several in one path the outermost counts: containers and jobs may create cgroups
// of any name below their own.
func parseOtherOwner(cgroup string) (kind v1alpha1.OtherProcessKind, owner string) {
	for line := range strings.Lines(cgroup) {
		_, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), ":") // hierarchy:controllers:path
		_, path, _ := strings.Cut(rest, ":")
		if kind, owner := parseJobOrContainer(path); kind != "" {
			return kind, owner
		}
	}
	if service := parseService(cgroup); service != "" {
		return v1alpha1.OtherService, cleanName(service)
	}
	return v1alpha1.OtherHost, ""
}

var (
	// slurmPattern matches the cgroup of Slurm: slurm and slurm_node1 (v1), slurmstepd.scope and
	// node1_slurmstepd.scope (v2). The job's cgroup, job_463, lies below it.
	slurmPattern = regexp.MustCompile(`^(?:slurm(?:_[^/]+)?|(?:[^/]+_)?slurmstepd\.scope)$`)
	jobPattern   = regexp.MustCompile(`^job_([0-9]{1,10})$`)
	// scopePattern matches a container's scope of systemd: docker-<id>.scope, libpod-<id>.scope (Podman),
	// nerdctl-<id>.scope, cri-containerd-<id>.scope.
	scopePattern = regexp.MustCompile(`^([a-z][a-z-]{0,30})-([0-9a-f]{64})\.scope$`)
	// containerPattern matches a container's cgroup without systemd: <id>, libpod-<id>.
	containerPattern = regexp.MustCompile(`^(?:([a-z][a-z-]{0,30})-)?([0-9a-f]{64})$`)
	// machinePattern matches a container of systemd-nspawn or LXC: machine-<name>.scope, lxc.payload.<name>.
	machinePattern = regexp.MustCompile(`^(?:machine-(.+)\.scope|lxc\.payload\.(.+))$`)
)

// shortID is the number of digits of a container's ID that docker and Podman print.
const shortID = 12

// parseJobOrContainer returns the outermost job of Slurm or container in the path of a cgroup; "" for none.
func parseJobOrContainer(path string) (kind v1alpha1.OtherProcessKind, owner string) {
	parent, inSlurm := "", false
	for segment := range strings.SplitSeq(strings.TrimSuffix(path, " (deleted)"), "/") {
		if found := jobPattern.FindStringSubmatch(segment); found != nil && inSlurm {
			return v1alpha1.OtherSlurm, "job " + found[1]
		}
		if found := scopePattern.FindStringSubmatch(segment); found != nil {
			return v1alpha1.OtherContainer, containerName(found[1], found[2])
		}
		if found := containerPattern.FindStringSubmatch(segment); found != nil {
			runtime := found[1]
			if runtime == "" && parent == "docker" {
				runtime = parent
			}
			return v1alpha1.OtherContainer, containerName(runtime, found[2])
		}
		if found := machinePattern.FindStringSubmatch(segment); found != nil {
			return v1alpha1.OtherContainer, cleanName(found[1] + found[2])
		}
		if parent == "lxc" && segment != "" {
			return v1alpha1.OtherContainer, cleanName(segment)
		}
		inSlurm = inSlurm || slurmPattern.MatchString(segment)
		parent = segment
	}
	return "", ""
}

// containerName returns a container's runtime, as its cgroup names it, and the short form of its ID.
func containerName(runtime, id string) string {
	if runtime == "libpod" {
		runtime = "podman"
	}
	return strings.TrimSpace(runtime + " " + id[:shortID])
}

// cleanName returns a name with its characters that are not printable replaced, and shortened to what the schema
// accepts. Users choose the names of programs and of containers.
func cleanName(name string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !strconv.IsGraphic(r) || r == '\uFFFD' {
			return '?'
		}
		return r
	}, name))
	switch {
	case len(runes) == 0:
		return "unknown"
	case len(runes) > maxOtherText:
		return string(runes[:maxOtherText-1]) + "…"
	}
	return string(runes)
}
