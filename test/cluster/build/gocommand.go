// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// hostEnv makes the go command build for this machine from the pins alone: no
// C compiler, no workspace around, no flags of a person's own.
func hostEnv() []string {
	return []string{
		"CGO_ENABLED=0", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH,
		"GOWORK=off", "GOFLAGS=-mod=readonly",
	}
}

// Product builds the product's programs cmd/<name>, from the source tree at
// root, into outDir, and returns their paths by name. They are built each time:
// the go command knows what has changed.
func Product(ctx context.Context, root, outDir string, names ...string) (map[string]string, error) {
	outDir, err := filepath.Abs(outDir)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", strings.Join(names, ", "), err)
	}
	paths := make(map[string]string, len(names))
	// The separator at the end makes the go command take it for a folder.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", outDir + string(filepath.Separator)}
	for _, name := range names {
		pkg := filepath.Join(root, "cmd", name)
		if _, err := os.Stat(pkg); err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		paths[name] = filepath.Join(outDir, name+exe())
		args = append(args, "./cmd/"+name)
	}
	if len(names) == 0 {
		return paths, nil
	}
	if err := goCommand(ctx, root, nil, args...); err != nil {
		return nil, fmt.Errorf("build %s: %w", strings.Join(names, ", "), err)
	}
	return paths, nil
}

func goCommand(ctx context.Context, dir string, env []string, args ...string) error {
	_, err := goOutput(ctx, dir, env, args...)
	return err
}

// goOutput runs the go command and returns what it printed. Its error shows what
// the go command said and what to do about it.
func goOutput(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	// An interrupted go command removes its temporary folder, a killed one leaves it.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: install Go (https://go.dev/dl) or set %s to a folder with the programs", err, assetsVariable)
	}
	said := lastLines(errs.String(), 40)
	return "", fmt.Errorf("go %s in %s: %w\n%s\n%s", args[0], dir, err, said, advice(said))
}

// advice says what to do about what the go command said.
func advice(said string) string {
	for _, known := range []struct{ sign, do string }{
		{"no space left on device", "make room on the disk (about 3 GB for the build cache of the first build, 400 MB for the programs) and run again"},
		{"signal: killed", "the compiler was killed, likely for memory: free some (2 GB are enough) and run again"},
		{"dial tcp", "the first build needs a Go module proxy: check the network and `go env GOPROXY`, and run again"},
		{"module lookup disabled", "the first build needs a Go module proxy: set GOPROXY, and run again"},
		{"missing go.sum entry", "go.sum of the pins is not complete: run `go mod tidy` in that folder"},
		{"toolchain not available", "install the Go version that go.mod names, or set GOTOOLCHAIN=auto"},
	} {
		if strings.Contains(said, known.sign) {
			return known.do
		}
	}
	return "what was built before is kept: correct the cause above and run again"
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
