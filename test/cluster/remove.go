// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ownEntry is the name of what a cluster, and Sluice's components with it, make in
// the cluster's folder. The suffixes are of files that are being replaced.
var ownEntry = regexp.MustCompile(`^(etcd|pki|logs|run|nodes|components|mail|kubeconfigs|flexvolumes` +
	`|(cluster\.json|scheduler|kubeconfig|kube-scheduler\.yaml|report\.json)(\.new)?` +
	`|clock\.json(\.lock|\.[0-9]+)?|lock)$`)

// LeftError says that a cluster was removed but its folder was not, since there
// are files in it that are no cluster's.
type LeftError struct {
	// Dir is the folder.
	Dir string
	// Names are those of the files and folders that were left in it.
	Names []string
}

// Error names what was left, at most the first few.
func (e *LeftError) Error() string {
	const most = 5
	names, more := e.Names, ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return fmt.Sprintf("the cluster in %s is removed; the folder stays, since other files are in it (%s%s): remove them by hand if nobody needs them",
		e.Dir, strings.Join(names, ", "), more)
}

// removeFolder removes what is a cluster's in dir, or with whole all, and then dir.
func removeFolder(dir string, whole bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range removalOrder(entries, whole) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if whole { // also what was written meanwhile
		return os.RemoveAll(dir)
	}
	return removeEmpty(dir)
}

// removalOrder returns what is to be removed, the mark and the lock last: where the
// removal is cut short it can be done again, and until then nobody else begins
// there.
func removalOrder(entries []os.DirEntry, whole bool) []string {
	var order []string
	for _, entry := range entries {
		name := entry.Name()
		if name != stateFile && name != lockFile && (whole || ownEntry.MatchString(name)) {
			order = append(order, name)
		}
	}
	return append(order, stateFile, lockFile)
}

func removeEmpty(dir string) error {
	failed := os.Remove(dir)
	if failed == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return failed
	}
	left := &LeftError{Dir: dir}
	for _, entry := range entries {
		// A new lock is that of a cluster that begins here at this moment.
		if entry.Name() != lockFile {
			left.Names = append(left.Names, entry.Name())
		}
	}
	if len(left.Names) == 0 {
		return nil
	}
	return left
}

var holderFormat = regexp.MustCompile(`^[0-9]*\n?$`)

// onlyLocked reports whether a lock of ours is all there is in dir: a start was
// killed before it wrote the mark, or a removal after it had removed it.
func onlyLocked(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != lockFile || !entries[0].Type().IsRegular() {
		return false
	}
	info, err := entries[0].Info()
	if err != nil || info.Size() > 20 { // digits of a process id
		return false
	}
	content, err := os.ReadFile(filepath.Join(dir, lockFile))
	return err == nil && holderFormat.Match(content)
}
