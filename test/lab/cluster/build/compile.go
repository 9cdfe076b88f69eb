// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
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
func stalePackages(ctx context.Context, dir string, env, args []string) ([]string, error) {
	// With -e a package that does not compile is reported by its build.
	list := []string{"list", "-e", "-deps", "-f", `{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}`}
	out, err := goOutput(ctx, dir, env, append(list, args...)...)
	if err != nil {
		return nil, err
	}
	return strings.Fields(out), nil
}

// staleOf returns the packages that the build of the programs compiles.
func staleOf(ctx context.Context, pins string, todo []program) ([]string, error) {
	var all []string
	for flags, packages := range compileGroups(todo) {
		stale, err := stalePackages(ctx, pins, hostEnv(), append(strings.Fields(flags), packages...))
		if err != nil {
			return nil, err
		}
		all = append(all, stale...)
	}
	return all, nil
}

// compile compiles the packages of the programs, as far as it can, and tells the task of each.
func compile(ctx context.Context, pins string, todo []program, task *task) {
	for flags, packages := range compileGroups(todo) {
		// The null device prevents linking.
		args := slices.Concat([]string{"-o", os.DevNull}, strings.Fields(flags), packages)
		_ = buildVerbosely(ctx, pins, hostEnv(), args, task)
	}
}

// buildVerbosely runs `go build` and tells the task of each package that it compiles. The builds of a task compile one after the other:
// two at a time would both compile what both need, since Go's cache has a package only when it is done.
func buildVerbosely(ctx context.Context, dir string, env, args []string, task *task) error {
	task.compiling.Lock()
	defer task.compiling.Unlock()
	_, err := runGo(ctx, dir, env, func(line string) bool {
		task.compiled(line)
		return !strings.ContainsAny(line, " :") // the path of a package
	}, append([]string{"build", "-v"}, args...)...)
	return err
}
