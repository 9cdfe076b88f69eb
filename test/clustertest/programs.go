// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Root returns the folder of the source tree: the nearest one above the working directory with the product's go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(raw), "module sluice.dev\n") {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod of module sluice.dev above the working directory: run the tests in Sluice's source tree")
}

// binVariable names a folder with all programs. The Makefile sets it for the tests, which then use what `make build` has just built.
const binVariable = "SLUICE_BIN"

func prebuilt() (string, error) {
	bin := os.Getenv(binVariable)
	if bin != "" && !filepath.IsAbs(bin) { // the go command runs a test in the folder of its package
		return "", fmt.Errorf("%s=%s: must be an absolute path", binVariable, bin)
	}
	return bin, nil
}

const (
	labName = "sluice-lab"
	// labModule is the folder of its module.
	labModule = "test/lab"
)

// programGroups are all programs, as `make build` builds them, whose compiled packages are then in Go's cache.
var programGroups = []struct {
	module, cgo string
	names       []string
}{
	{"", "CGO_ENABLED=0", []string{"sluice", "webhook", "lifecycle"}},
	{"", "CGO_ENABLED=1", []string{"gpuagent"}},
	{labModule, "CGO_ENABLED=0", []string{labName, "sluice-lab-gpuagent"}},
}

// BuildPrograms builds the named programs of the source tree into a folder, or all, or copies them from the folder that SLUICE_BIN
// names. A later build does not change the copies. It has no time limit: with empty caches a build takes an hour on a busy machine.
func BuildPrograms(ctx context.Context, dir string, only ...string) error {
	bin, err := prebuilt()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, group := range programGroups {
		names := slices.DeleteFunc(slices.Clone(group.names), func(name string) bool { return len(only) > 0 && !slices.Contains(only, name) })
		if bin == "" {
			if err := goBuild(ctx, group.module, group.cgo, dir, names...); err != nil {
				return err
			}
			continue
		}
		for _, name := range names {
			program, err := os.ReadFile(filepath.Join(bin, name))
			if err != nil {
				return fmt.Errorf("%s=%s: %w; `make build` builds all programs into bin", binVariable, bin, err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), program, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// goBuild builds programs of a module of the source tree into a folder. The go command rebuilds only changed packages.
func goBuild(ctx context.Context, module, cgo, dir string, names ...string) error {
	root, err := Root()
	if err != nil || len(names) == 0 {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", dir+string(filepath.Separator))
	for _, name := range names {
		build.Args = append(build.Args, "./cmd/"+name)
	}
	build.Dir, build.Env = filepath.Join(root, module), append(os.Environ(), cgo, "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(names, ", "), err, out)
	}
	return nil
}

// labProgram returns the path of sluice-lab: in the folder that SLUICE_BIN names, or built into the user's cache folder.
var labProgram = sync.OnceValues(func() (string, error) {
	bin, err := prebuilt()
	if err != nil {
		return "", err
	}
	if bin == "" {
		root, err := Root()
		if err != nil {
			return "", err
		}
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		tree := sha256.Sum256([]byte(root))
		bin = filepath.Join(cache, "sluice", "bin-"+hex.EncodeToString(tree[:6]))
		if err := os.MkdirAll(bin, 0o755); err != nil {
			return "", err
		}
		// The tests of several packages build it at the same time: each gets a whole one.
		temporary, err := os.MkdirTemp(bin, "build-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(temporary)
		if err := goBuild(context.Background(), labModule, "CGO_ENABLED=0", temporary, labName); err != nil {
			return "", err
		}
		return filepath.Join(bin, labName), os.Rename(filepath.Join(temporary, labName), filepath.Join(bin, labName))
	}
	program := filepath.Join(bin, labName)
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("%s=%s: %w; `make build` builds all programs into bin", binVariable, bin, err)
	}
	return program, nil
})

// Programs returns the paths of programs that sluice-lab builds, such as helm and promtool, by name. The first build takes minutes.
func Programs(ctx context.Context, names ...string) (map[string]string, error) {
	lab, err := labProgram()
	if err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, lab, append([]string{"programs"}, names...)...)
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", strings.Join(names, ", "), err)
	}
	paths := map[string]string{}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(names) {
		return nil, fmt.Errorf("build %s: sluice-lab prints %q", strings.Join(names, ", "), out)
	}
	for i, path := range lines {
		paths[names[i]] = path
	}
	return paths, nil
}
