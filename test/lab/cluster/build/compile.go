// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"slices"
	"strings"
)

// compileFlags returns the flags that change the compiled packages of a program, the same for all of a pins module. Those of the linker
// do not, so that programs with other versions share compiled packages.
func compileFlags(p program) []string {
	return slices.DeleteFunc(buildFlags(p, moduleInfo{}), func(flag string) bool {
		return flag == "-ldflags" || strings.HasPrefix(flag, "-s -w")
	})
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

// staleOf returns the packages of libraries that the build of programs of one pins module compiles.
func staleOf(ctx context.Context, pins string, todo []program) ([]string, error) {
	args := compileFlags(todo[0])
	for _, p := range todo {
		args = append(args, p.pkg)
	}
	return stalePackages(ctx, pins, hostEnv(), args)
}

// compile compiles packages of libraries for programs of one pins module, as far as it can. It links nothing, as go build of the programs
// would.
func compile(ctx context.Context, pins string, todo []program, libraries []string, task *task) {
	if len(libraries) > 0 {
		_ = buildVerbosely(ctx, pins, hostEnv(), append(compileFlags(todo[0]), libraries...), task)
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
