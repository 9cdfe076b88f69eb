// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Manifests returns the folder of the manifests that the module of a program has,
// from the path at which Programs has it; only Kueue has such a folder.
func Manifests(path string) string { return strings.TrimSuffix(path, exe()) + ".manifests" }

// keepManifests copies the manifests of the program's module to where the program
// at path has them, which comes last: where it is, they are.
func keepManifests(ctx context.Context, pins, path string, p program) error {
	dir, err := goOutput(ctx, pins, hostEnv(), "list", "-m", "-f", "{{.Dir}}", p.module)
	if err != nil {
		return err
	}
	kept := Manifests(path)
	aside := kept + unfinished
	if err := errors.Join(os.RemoveAll(aside), os.RemoveAll(kept)); err != nil {
		return err
	}
	if err := os.CopyFS(aside, os.DirFS(filepath.Join(strings.TrimSpace(dir), p.manifests))); err != nil {
		return err
	}
	return os.Rename(aside, kept)
}

// isAt reports whether the program is there, with its manifests where it has some.
func (p program) isAt(path string) bool {
	if !isProgram(path) {
		return false
	}
	if p.manifests == "" {
		return true
	}
	info, err := os.Stat(Manifests(path))
	return err == nil && info.IsDir()
}
