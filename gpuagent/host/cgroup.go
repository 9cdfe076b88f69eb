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
)

// podCgroupPattern matches a cgroup with a pod's UID in both forms that the kubelet writes:
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f3c_….slice/…
//	/kubepods/burstable/pod0f3c…/…
//
// The UID of a static pod has 32 digits without dashes.
var podCgroupPattern = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?$`)

// ParsePodUIDs returns the UIDs of the pods in the text of /proc/<pid>/cgroup, the innermost last. There
// are several if the node itself is a container.
func ParsePodUIDs(cgroup string) (uids []types.UID) {
	seen := map[types.UID]bool{}
	for line := range strings.Lines(cgroup) {
		// hierarchy:controllers:path
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ := strings.Cut(rest, ":")
		// In another cgroup namespace the path begins at the nearest common folder.
		if !strings.Contains(path, "kubepods") && !strings.HasPrefix(path, "/../") {
			continue
		}
		for segment := range strings.SplitSeq(path, "/") {
			if found := podCgroupPattern.FindStringSubmatch(segment); found != nil {
				uid := types.UID(strings.ReplaceAll(found[1], "_", "-"))
				if !seen[uid] {
					seen[uid] = true
					uids = append(uids, uid)
				}
			}
		}
	}
	return uids
}

// ProcessPodUIDs returns the UIDs of the pods in which a process runs, none for a process outside of
// pods. The error wraps fs.ErrNotExist if the process ended.
func ProcessPodUIDs(proc string, pid uint32) ([]types.UID, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.FormatUint(uint64(pid), 10), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("read pod of process %d: %w", pid, err)
	}
	return ParsePodUIDs(string(text)), nil
}
