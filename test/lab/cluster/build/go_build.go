// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// hostEnv makes the go command build for this machine from the pins alone: without a C
// compiler, a workspace or the user's flags.
func hostEnv() []string {
	return []string{
		"CGO_ENABLED=0", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH,
		"GOWORK=off", "GOFLAGS=-mod=readonly",
	}
}

func goCommand(ctx context.Context, dir string, env []string, args ...string) error {
	_, err := goOutput(ctx, dir, env, args...)
	return err
}

// goOutput runs the go command and returns its output. The error contains the go command's
// messages and a remedy.
func goOutput(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	return runGo(ctx, dir, env, func(string) bool { return false }, args...)
}

// runGo is goOutput. A line for which isProgress returns true is no message.
func runGo(ctx context.Context, dir string, env []string, isProgress func(line string) bool, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	// An interrupted go command removes its temporary folder; a killed one does not.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	messages := &messageWriter{isProgress: isProgress}
	cmd.Stdout, cmd.Stderr = &out, messages
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
	output := lastLines(messages.kept.String()+messages.partial, 40)
	return "", fmt.Errorf("go %s in %s: %w\n%s\n%s", args[0], dir, err, output, suggestFix(output))
}

// messageWriter keeps the lines that report no progress.
type messageWriter struct {
	isProgress func(line string) bool
	partial    string // of the last line
	kept       strings.Builder
}

// Write implements io.Writer.
func (w *messageWriter) Write(p []byte) (int, error) {
	w.partial += string(p)
	for {
		line, rest, complete := strings.Cut(w.partial, "\n")
		if !complete {
			return len(p), nil
		}
		w.partial = rest
		if !w.isProgress(strings.TrimSpace(line)) {
			w.kept.WriteString(line + "\n")
		}
	}
}

// suggestFix returns a remedy for the go command's error messages.
func suggestFix(output string) string {
	for _, known := range []struct{ sign, do string }{
		{
			"no space left on device",
			"make room on the disk (about 3 GB for the build cache of the first build, 400 MB for the programs) and run again",
		},
		{"signal: killed", "the compiler was killed, likely for memory: free some (2 GB are enough) and run again"},
		{"dial tcp", "the first build needs a Go module proxy: check the network and `go env GOPROXY`, and run again"},
		{"module lookup disabled", "the first build needs a Go module proxy: set GOPROXY, and run again"},
		{"missing go.sum entry", "go.sum of the pins is not complete: run `go mod tidy` in that folder"},
		{"toolchain not available", "install the Go version that go.mod names, or set GOTOOLCHAIN=auto"},
	} {
		if strings.Contains(output, known.sign) {
			return known.do
		}
	}
	return "what was built before is kept: correct the cause above and run again"
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// moduleInfo describes a pinned module, as reported by the go command.
type moduleInfo struct {
	Path, Version string
	Time          *time.Time
	Origin        *struct{ Hash string }
}

// moduleInfos returns the modules of the programs by path, as pinned.
func moduleInfos(ctx context.Context, pins string, list []program) (map[string]moduleInfo, error) {
	args := []string{"list", "-m", "-json"}
	for _, p := range list {
		if !slices.Contains(args, p.module) {
			args = append(args, p.module)
		}
	}
	out, err := goOutput(ctx, pins, hostEnv(), args...)
	if err != nil {
		return nil, fmt.Errorf("read the pinned versions: %w", err)
	}
	modules := map[string]moduleInfo{}
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var module moduleInfo
		if err := decoder.Decode(&module); errors.Is(err, io.EOF) {
			return modules, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the pinned versions: %w", err)
		}
		modules[module.Path] = module
	}
}

// The tags and the flag with which the Makefile builds all: Go's cache has once what Sluice, its tests and Kubernetes need.
var (
	withoutC                = []string{"netgo", "osusergo", "kustomize_disable_go_plugin_support"}
	withoutDebugInformation = "-gcflags=all=-dwarf=false"
)

// buildFlags returns the flags of the build. The version flags follow from the pins'
// go.mod.
func buildFlags(p program, module moduleInfo) []string {
	ld := []string{"-s", "-w"}
	if p.versionFlags != nil {
		flags := p.versionFlags(module)
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			ld = append(ld, "-X", name+"="+flags[name])
		}
	}
	tags := strings.Join(slices.Concat(withoutC, p.tags), ",")
	return []string{"-trimpath", "-buildvcs=false", withoutDebugInformation, "-ldflags", strings.Join(ld, " "), "-tags", tags}
}

// kubernetesVersionFlags returns the flags of Kubernetes' own release build. Without them
// the version is v0.0.0-master, and clients that compare versions fail (Helm charts, skew
// checks).
func kubernetesVersionFlags(module moduleInfo) map[string]string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(module.Version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	values := map[string]string{
		"gitVersion":   module.Version,
		"gitMajor":     major,
		"gitMinor":     minor,
		"gitCommit":    "",
		"gitTreeState": "archive", // a module is a tree without its repository
	}
	if module.Origin != nil {
		values["gitCommit"] = module.Origin.Hash
	}
	if module.Time != nil {
		values["buildDate"] = module.Time.UTC().Format(time.RFC3339)
	}
	flags := map[string]string{}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for name, value := range values {
			flags[pkg+"."+name] = value
		}
	}
	return flags
}

func kwokVersionFlags(module moduleInfo) map[string]string {
	return map[string]string{"sigs.k8s.io/kwok/pkg/consts.Version": strings.TrimPrefix(module.Version, "v")}
}

// kueueVersionFlags sets the version in Kueue's log and in the user agent of its requests.
func kueueVersionFlags(module moduleInfo) map[string]string {
	const pkg = "sigs.k8s.io/kueue/pkg/version"
	flags := map[string]string{pkg + ".GitVersion": module.Version, pkg + ".GitCommit": ""}
	if module.Origin != nil {
		flags[pkg+".GitCommit"] = module.Origin.Hash
	}
	if module.Time != nil {
		flags[pkg+".BuildDate"] = module.Time.UTC().Format(time.RFC3339)
	}
	return flags
}

// helmVersionFlags sets the version of `helm version`. Without them Helm reports the minor version only.
func helmVersionFlags(module moduleInfo) map[string]string {
	return map[string]string{"helm.sh/helm/v4/internal/version.version": module.Version}
}

// prometheusVersionFlags sets the version that Prometheus reports.
func prometheusVersionFlags(module moduleInfo) map[string]string {
	// The Go module has the major version 0: v0.316.0 is Prometheus 3.16.0.
	minor, patch, _ := strings.Cut(strings.TrimPrefix(module.Version, "v0."), ".")
	version := module.Version
	if n := len(minor); n > 2 {
		major, rest := minor[:n-2], strings.TrimPrefix(minor[n-2:], "0")
		version = fmt.Sprintf("%s.%s.%s", major, cmp.Or(rest, "0"), patch)
	}
	return map[string]string{"github.com/prometheus/common/version.Version": version}
}
