// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"sluice.dev/test/lab/cluster/process"
)

// Exists reports whether dir is the folder of a cluster, running or not. It follows links,
// as do the functions below.
func Exists(dir string) bool {
	_, marked, err := findCluster(dir)
	return marked && err == nil
}

// Holder returns the process that runs the cluster in dir, or 0 if none does. A
// cluster.json of another program is an error.
func Holder(dir string) (int, error) {
	dir, marked, err := findCluster(dir)
	if err != nil || !marked {
		return 0, err
	}
	lock, err := process.TryLock(filepath.Join(dir, lockFile))
	var held *process.LockHeldError
	if errors.As(err, &held) {
		return held.PID, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the process that runs the cluster in %s: %w", dir, err)
	}
	return 0, lock.Unlock()
}

// Remove ends the remaining processes of a killed cluster and removes dir. It fails without
// a change if a process runs a cluster in dir, or if dir does not belong to a cluster. A
// missing dir is no error. Remove keeps the user's files in dir and then returns a
// *LeftError. An interrupted Remove can be repeated.
func Remove(dir string) error {
	dir, marked, err := findCluster(dir)
	if err != nil {
		return fmt.Errorf("remove the cluster: %w", err)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !marked && !hasOnlyLock(dir) {
		return fmt.Errorf("remove the cluster in %s: the folder is no cluster's (it has no %s)", dir, stateFile)
	}
	folder, err := lockExisting(dir)
	if err != nil {
		return fmt.Errorf("remove the cluster in %s: %w", dir, err)
	}
	if _, err := process.ReapLeftovers(dir); err != nil {
		return fmt.Errorf("remove the cluster in %s: %w", dir, errors.Join(err, folder.close(true)))
	}
	return folder.close(false)
}

// Reap ends the remaining processes of a killed cluster and keeps dir for a later Start. It
// fails if a process runs a cluster in dir, and if its cluster.json belongs to another
// program.
func Reap(dir string) error {
	dir, marked, err := findCluster(dir)
	if err != nil {
		return fmt.Errorf("end the processes of a killed cluster: %w", err)
	}
	if !marked {
		return nil
	}
	folder, err := lockExisting(dir)
	if err != nil {
		return fmt.Errorf("end the processes of a killed cluster in %s: %w", dir, err)
	}
	_, err = process.ReapLeftovers(dir)
	return errors.Join(err, folder.close(true))
}

// findCluster resolves the links in dir and reports whether the folder has a cluster's
// mark.
func findCluster(dir string) (path string, marked bool, err error) {
	path, err = resolveDir(dir)
	if err != nil {
		return dir, false, folderError(dir, err)
	}
	_, err = readMark(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return path, false, nil
	}
	if err != nil {
		return path, false, folderError(path, err)
	}
	return path, true, nil
}

// lockExisting locks the folder of a cluster without changing it. The mark can change until
// the lock is held.
func lockExisting(dir string) (*folder, error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if f.state, err = readMark(dir); err != nil && !hasOnlyLock(dir) {
		_ = f.lock.Unlock() // the first error counts
		return nil, err
	}
	return f, nil
}

// clusterEntryPattern matches the names of all files that a cluster and Sluice's components
// create in the cluster's folder. The suffixes belong to files that are being replaced.
var clusterEntryPattern = regexp.MustCompile(`^(etcd|pki|logs|run|nodes|components|mail|kubeconfigs|flexvolumes|pods|services\.sock` +
	`|(cluster\.json|scheduler|kubeconfig|kube-scheduler\.yaml|egress-selector\.yaml|report\.json)(\.new)?` +
	`|clock\.json(\.lock|\.[0-9]+)?|lock)$`)

// LeftError reports that a cluster was removed and its folder was kept, since the folder
// holds other files.
type LeftError struct {
	// Dir is the folder.
	Dir string
	// Names lists the files and folders that remain in it.
	Names []string
}

// Error names the first few of the remaining files.
func (e *LeftError) Error() string {
	const most = 5
	names, more := e.Names, ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return fmt.Sprintf("the cluster in %s is removed; the folder stays, since other files are in it (%s%s): "+
		"remove them by hand if they are not needed",
		e.Dir, strings.Join(names, ", "), more)
}

// removeFolder removes the cluster's files in dir, or with whole all files, and then dir.
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
	if whole { // includes files that were written meanwhile
		return os.RemoveAll(dir)
	}
	return removeEmpty(dir)
}

// removalOrder returns the entries to remove, the mark and the lock last. Until then no
// other process uses the folder, and an interrupted removal can be repeated.
func removalOrder(entries []os.DirEntry, whole bool) []string {
	var order []string
	for _, entry := range entries {
		name := entry.Name()
		if name != stateFile && name != lockFile && (whole || clusterEntryPattern.MatchString(name)) {
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
		// A new lock belongs to a cluster that starts here at this moment.
		if entry.Name() != lockFile {
			left.Names = append(left.Names, entry.Name())
		}
	}
	if len(left.Names) == 0 {
		return nil
	}
	return left
}

var lockHolderPattern = regexp.MustCompile(`^[0-9]*\n?$`)

// hasOnlyLock reports whether dir holds only the lock of a cluster. This is the case after
// a start that was killed before it wrote the mark, or a removal that was killed after it
// had removed the mark.
func hasOnlyLock(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != lockFile || !entries[0].Type().IsRegular() {
		return false
	}
	info, err := entries[0].Info()
	if err != nil || info.Size() > 20 { // digits of a process id
		return false
	}
	content, err := os.ReadFile(filepath.Join(dir, lockFile))
	return err == nil && lockHolderPattern.Match(content)
}
