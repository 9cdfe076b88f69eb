// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice.dev/test/cluster"
)

// schedulerFile is in a cluster's folder, and says which scheduler it has.
const schedulerFile = "scheduler"

// chooseScheduler returns the scheduler of the cluster in dir, which is one for
// all its life: what was asked for, or what it had before, or the default.
func chooseScheduler(dir, asked string) (string, error) {
	if asked != "" {
		if err := checkScheduler(asked); err != nil {
			return "", err
		}
	}
	kept, err := keptScheduler(dir)
	switch {
	case err != nil:
		return "", err
	case kept == "" && asked == "":
		return Schedulers[0], nil
	case kept == "":
		return asked, nil
	case asked != "" && asked != kept:
		who := theCaller()
		return "", fmt.Errorf("--scheduler %s: the cluster in %s has %s, and keeps it; name another folder with --dir, or remove this one first, with `%s down --dir %[2]s`",
			asked, who.path(dir), kept, who.program)
	default:
		return kept, nil
	}
}

func checkScheduler(name string) error {
	if !slices.Contains(Schedulers, name) {
		return fmt.Errorf("--scheduler %s: want %s", quoted(name), strings.Join(Schedulers, " or "))
	}
	return nil
}

// keptScheduler is that of the cluster in dir; empty where there is no cluster.
func keptScheduler(dir string) (string, error) {
	if !cluster.Exists(dir) {
		return "", nil
	}
	path := filepath.Join(dir, schedulerFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, reportFile)); err == nil {
			return Schedulers[0], nil // it was started when there was no other
		}
		return "", nil // its first start was cut short
	}
	if err != nil {
		return "", fmt.Errorf("the cluster's scheduler: %w", err)
	}
	kept := strings.TrimSpace(string(raw))
	if !slices.Contains(Schedulers, kept) {
		return "", fmt.Errorf("the cluster's scheduler: %s says %q; want %s in it", path, kept, strings.Join(Schedulers, " or "))
	}
	return kept, nil
}

// keepScheduler notes it in the cluster's folder for the next start.
func (o Options) keepScheduler() error {
	path := filepath.Join(o.Dir, schedulerFile)
	if err := os.WriteFile(path+".new", []byte(o.Scheduler+"\n"), 0o600); err != nil {
		return fmt.Errorf("noting the scheduler: %w", err)
	}
	return os.Rename(path+".new", path)
}
