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

	"sluice.dev/test/cluster/filelock"
	"sluice.dev/test/cluster/process"
)

// Exists reports whether dir is a cluster's folder, running or not. A link counts
// as what it points to, here and in the functions below.
func Exists(dir string) bool {
	_, marked, err := findCluster(dir)
	return marked && err == nil
}

// Holder returns the process that runs the cluster in dir; 0 where none does. A
// dir whose cluster.json is something else's is an error.
func Holder(dir string) (int, error) {
	dir, marked, err := findCluster(dir)
	if err != nil || !marked {
		return 0, err
	}
	lock, err := filelock.Try(filepath.Join(dir, lockFile))
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return held.PID, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look who runs the cluster in %s: %w", dir, err)
	}
	return 0, lock.Unlock()
}

// Remove ends what a killed cluster has left running and removes dir. It fails,
// and touches nothing, where a process runs a cluster there, or where dir is no
// cluster's; a dir that does not exist is no error. What a person has put into
// dir stays: then the error is a *LeftError. A Remove that was cut short can be
// done again.
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

// Reap ends what a killed cluster has left running in dir, and leaves dir for a
// later Start. It fails where a process runs a cluster there, and where dir's
// cluster.json is something else's.
func Reap(dir string) error {
	dir, marked, err := findCluster(dir)
	if err != nil {
		return fmt.Errorf("end what is left of the cluster: %w", err)
	}
	if !marked {
		return nil
	}
	folder, err := lockExisting(dir)
	if err != nil {
		return fmt.Errorf("end what is left of the cluster in %s: %w", dir, err)
	}
	_, err = process.ReapLeftovers(dir)
	return errors.Join(err, folder.close(true))
}

// findCluster returns the folder itself that dir names, and whether it has a cluster's mark.
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

// lockExisting locks a cluster's folder as it is. Only under the lock is what the
// mark says certain.
func lockExisting(dir string) (*folder, error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	if f.state, err = readMark(dir); err != nil && !hasOnlyLock(dir) {
		_ = f.lock.Unlock() // the reason for giving up counts
		return nil, err
	}
	return f, nil
}

// clusterEntryPattern is the name of what a cluster, and Sluice's components with it, make in
// the cluster's folder. The suffixes are of files that are being replaced.
var clusterEntryPattern = regexp.MustCompile(`^(etcd|pki|logs|run|nodes|components|mail|kubeconfigs|flexvolumes` +
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

var lockHolderPattern = regexp.MustCompile(`^[0-9]*\n?$`)

// hasOnlyLock reports whether a lock of ours is all there is in dir: a start was
// killed before it wrote the mark, or a removal after it had removed it.
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
