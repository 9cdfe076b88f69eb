// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Tree is the source tree with programs to build.
type Tree struct {
	// Dir is the folder of the tree, and Workspace the go.work file of its modules.
	Dir, Workspace string
	// Packages are those of the programs, such as ./cmd/webhook.
	Packages []string
}

// TreeAndPrograms builds the programs of a tree into the folder bin, with flags of go build, and the programs of every embedded cluster
// that are not built yet. It reports the progress of all builds as one.
func TreeAndPrograms(ctx context.Context, out io.Writer, tree Tree, bin string, flags ...string) error {
	task := startTask(out)
	defer task.finish()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return tree.build(ctx, task, bin, flags) })
	group.Go(func() error {
		_, err := findOrBuild(ctx, task, Names())
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if task.total > 0 {
		task.note("all programs are built, in %s", time.Since(task.started).Round(time.Second))
	}
	return nil
}

func (t Tree) build(ctx context.Context, task *task, bin string, flags []string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	workspace, err := filepath.Abs(t.Workspace)
	if err != nil {
		return err
	}
	env := []string{"CGO_ENABLED=0", "GOWORK=" + workspace}
	stale, err := stalePackages(ctx, t.Dir, env, slices.Concat(flags, t.Packages))
	if err != nil {
		return err
	}
	links := 0
	if len(stale) > 0 { // else the programs may be up to date, and linking takes seconds at most
		links = linkWeight * len(t.Packages)
	}
	task.expect(stale)
	task.grow(links)
	args := slices.Concat([]string{"-o", bin + string(filepath.Separator)}, flags, t.Packages)
	if err := buildVerbosely(ctx, t.Dir, env, args, task); err != nil {
		return fmt.Errorf("build %s: %w", strings.Join(t.Packages, ", "), err)
	}
	task.compiled(stale...)
	task.advance(links)
	return nil
}
