// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// podCgroupPattern finds a pod's identity in the name of a cgroup, in both forms that the
// kubelet writes:
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f3c_….slice/…
//	/kubepods/burstable/pod0f3c…/…
//
// Of a static pod it is 32 digits without dashes.
var podCgroupPattern = regexp.MustCompile(`(?:^|-)pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})(?:\.slice)?$`)

// ParsePodUIDs are the identities of the pods in the text of /proc/<pid>/cgroup, the
// innermost last: there are several where a node is itself a container.
func ParsePodUIDs(cgroup string) (uids []types.UID) {
	seen := map[types.UID]bool{}
	for line := range strings.Lines(cgroup) {
		// hierarchy:controllers:path
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ := strings.Cut(rest, ":")
		// Seen from a cgroup namespace of one's own it begins at the nearest common folder.
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

// ProcessPodUIDs are the identities of the pods in which a process runs; none where it runs in
// no pod. The error wraps fs.ErrNotExist where the process is gone.
func ProcessPodUIDs(proc string, pid uint32) ([]types.UID, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.FormatUint(uint64(pid), 10), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("the pod of process %d: %w", pid, err)
	}
	return ParsePodUIDs(string(text)), nil
}
