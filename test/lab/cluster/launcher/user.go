// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/lab/cluster/process"
)

// user returns the user of a container's process, and gives that user the pod's folder. It
// returns nil, and logs the reason once, where the process has to run as this process's user.
func (w *worker) user(pod *corev1.Pod, spec *corev1.Container, program string) (*process.User, error) {
	uid := runAsUser(pod, spec)
	if uid == nil || *uid == int64(os.Geteuid()) {
		return nil, nil //nolint:nilnil // this process's user
	}
	skip := func(reason string) {
		w.launcher.skippedUsers.Do(func() {
			w.log.Info("Containers run as the user of this process instead of runAsUser", "reason", reason)
		})
	}
	if os.Geteuid() != 0 {
		skip("this process is not root")
		return nil, nil //nolint:nilnil // this process's user
	}
	for _, path := range []string{program, filepath.Dir(w.dir)} {
		if blocked := unreachable(path); blocked != "" {
			skip(fmt.Sprintf("another user cannot reach %s: %s has no permission x for others", path, blocked))
			return nil, nil //nolint:nilnil // this process's user
		}
	}
	user := &process.User{UID: uint32(*uid)} //nolint:gosec // the API server validates the range
	if gid := runAsGroup(pod, spec); gid != nil {
		user.GID = uint32(*gid) //nolint:gosec // likewise
	}
	return user, chownAll(w.dir, user)
}

// unreachable returns the first part of a path that other users cannot pass, or an empty
// string.
func unreachable(path string) string {
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return at
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

func chownAll(dir string, user *process.User) error {
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(user.UID), int(user.GID))
	})
	if err != nil {
		return fmt.Errorf("give the pod's folder to its user: %w", err)
	}
	return nil
}
