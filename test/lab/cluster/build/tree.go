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

// Tree is a module of the source tree with programs to build.
type Tree struct {
	// Dir is the folder of the module.
	Dir string
	// Packages are those of the programs, such as ./cmd/webhook.
	Packages []string
}

// TreesAndPrograms builds the programs of trees into the folder bin, with flags of go build, and at the same time the programs of every
// embedded cluster that are not built yet. It reports the progress of all builds as one.
func TreesAndPrograms(ctx context.Context, out io.Writer, trees []Tree, bin string, flags ...string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	progress := newProgressWriter(out)
	begin := time.Now()
	common := progress.start()
	defer common.finish()
	group, ctx := errgroup.WithContext(ctx)
	for _, tree := range trees {
		group.Go(func() error { return tree.build(ctx, common, bin, flags) })
	}
	group.Go(func() error {
		_, err := findOrBuild(ctx, progress, common, Names())
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if common.total > 0 {
		common.note("all programs are built, in %s", time.Since(begin).Round(time.Second))
	}
	return nil
}

func (t Tree) build(ctx context.Context, common *task, bin string, flags []string) error {
	env := []string{"CGO_ENABLED=0", "GOWORK=off"}
	stale, err := stalePackages(ctx, t.Dir, env, slices.Concat(flags, t.Packages))
	if err != nil {
		return err
	}
	weight := len(stale)
	if weight > 0 { // else the programs may be up to date, and linking takes seconds at most
		weight += linkWeight * len(t.Packages)
	}
	common.grow(weight)
	args := slices.Concat([]string{"-o", bin + string(filepath.Separator)}, flags, t.Packages)
	if err := buildVerbosely(ctx, t.Dir, env, args, stale, common); err != nil {
		return fmt.Errorf("build %s: %w", strings.Join(t.Packages, ", "), err)
	}
	common.advance(linkWeight * len(t.Packages))
	return nil
}
