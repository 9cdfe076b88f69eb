// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// resolved returns the absolute path of the folder itself where dir is a link or
// lies behind one, also of a folder that does not exist yet. Who removes a
// cluster means what the link points to; the link is a person's, and stays.
func resolved(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return resolve(dir)
}

// resolve ends: a circle of links is an error of EvalSymlinks.
func resolve(dir string) (string, error) {
	behind, err := filepath.EvalSymlinks(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return behind, err
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return "", err
	}
	if parent, err = resolve(parent); err != nil {
		return "", err
	}
	dir = filepath.Join(parent, filepath.Base(dir))
	target, err := os.Readlink(dir)
	if err != nil {
		return dir, nil //nolint:nilerr // no link, and not there yet
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(parent, target)
	}
	return resolve(target)
}
