// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// compileFlags returns the flags that change the compiled packages of a program. Those of the
// linker do not, so that programs with other versions share compiled packages.
func compileFlags(p program) []string {
	return slices.DeleteFunc(buildFlags(p, moduleInfo{}), func(flag string) bool {
		return flag == "-ldflags" || strings.HasPrefix(flag, "-s -w")
	})
}

// compileGroups returns the packages of programs by the flags that compile them.
func compileGroups(todo []program) map[string][]string {
	groups := map[string][]string{}
	for _, p := range todo {
		flags := strings.Join(compileFlags(p), " ")
		groups[flags] = append(groups[flags], p.pkg)
	}
	return groups
}

// stalePackages returns the packages that the build of the programs compiles: those that are
// not in Go's build cache.
func stalePackages(ctx context.Context, pins string, todo []program) (map[string]bool, error) {
	stale := map[string]bool{}
	for flags, packages := range compileGroups(todo) {
		// With -e a package that does not compile is reported by its build.
		args := slices.Concat([]string{"list", "-e", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, strings.Fields(flags), packages)
		out, err := goOutput(ctx, pins, hostEnv(), args...)
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Fields(out) {
			stale[name] = true
		}
	}
	return stale, nil
}

// compile compiles the packages of the programs, as far as it can, and advances the task by
// each stale package.
func compile(ctx context.Context, pins string, todo []program, stale map[string]bool, task *task) {
	for flags, packages := range compileGroups(todo) {
		// The null device prevents linking.
		args := slices.Concat([]string{"-o", os.DevNull}, strings.Fields(flags), packages)
		_ = buildVerbosely(ctx, pins, hostEnv(), args, stale, task)
	}
}

// buildVerbosely runs `go build` and advances the task by each stale package. The error has no messages of the go command.
func buildVerbosely(ctx context.Context, dir string, env, args []string, stale map[string]bool, task *task) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-v"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	reader, writer := io.Pipe()
	cmd.Stderr = writer
	ended := make(chan error, 1)
	go func() {
		err := cmd.Run()
		ended <- err
		writer.CloseWithError(err)
	}()
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if stale[strings.TrimSpace(lines.Text())] {
			task.advance(1)
		}
	}
	_, _ = io.Copy(io.Discard, reader) // a line that is too long must not block the command
	return <-ended
}
