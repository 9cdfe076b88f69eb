// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
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

// stalePackages returns the packages of libraries that a build compiles: those that are not in Go's build cache.
func stalePackages(ctx context.Context, dir string, env, args []string) (map[string]bool, error) {
	// With -e a package that does not compile is reported by its build.
	list := []string{"list", "-e", "-deps", "-f", `{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}`}
	out, err := goOutput(ctx, dir, env, append(list, args...)...)
	if err != nil {
		return nil, err
	}
	stale := map[string]bool{}
	for _, name := range strings.Fields(out) {
		stale[name] = true
	}
	return stale, nil
}

// staleOf returns the packages that the build of the programs compiles.
func staleOf(ctx context.Context, pins string, todo []program) (map[string]bool, error) {
	all := map[string]bool{}
	for flags, packages := range compileGroups(todo) {
		stale, err := stalePackages(ctx, pins, hostEnv(), append(strings.Fields(flags), packages...))
		if err != nil {
			return nil, err
		}
		maps.Copy(all, stale)
	}
	return all, nil
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

// buildVerbosely runs `go build` and advances the task by each stale package.
func buildVerbosely(ctx context.Context, dir string, env, args []string, stale map[string]bool, task *task) error {
	_, err := runGo(ctx, dir, env, func(line string) bool {
		if stale[line] {
			task.advance(1)
		}
		return !strings.ContainsAny(line, " :") // the path of a package
	}, append([]string{"build", "-v"}, args...)...)
	return err
}
