// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// moduleInfo is what the go command knows of a pinned module.
type moduleInfo struct {
	Path, Version string
	Time          *time.Time
	Origin        *struct{ Hash string }
}

// moduleInfos asks the pins for the modules of the programs, by path.
func moduleInfos(ctx context.Context, pins string, of []program) (map[string]moduleInfo, error) {
	args := []string{"list", "-m", "-json"}
	for _, p := range of {
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

// flags of the build; what the stamps add follows from the pins' go.mod.
func flags(p program, module moduleInfo) []string {
	ld := []string{"-s", "-w"}
	if p.stamps != nil {
		stamps := p.stamps(module)
		for _, name := range slices.Sorted(maps.Keys(stamps)) {
			ld = append(ld, "-X", name+"="+stamps[name])
		}
	}
	return []string{"-trimpath", "-buildvcs=false", "-ldflags", strings.Join(ld, " ")}
}

// kubernetesStamps are what Kubernetes' own release build sets. Without them its
// programs call themselves v0.0.0-master, and clients that compare versions
// (Helm charts, skew checks) turn away.
func kubernetesStamps(module moduleInfo) map[string]string {
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
	stamps := map[string]string{}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for name, value := range values {
			stamps[pkg+"."+name] = value
		}
	}
	return stamps
}

func kwokStamps(module moduleInfo) map[string]string {
	return map[string]string{"sigs.k8s.io/kwok/pkg/consts.Version": strings.TrimPrefix(module.Version, "v")}
}

// kueueStamps name Kueue in its log and in the user agent of its requests.
func kueueStamps(module moduleInfo) map[string]string {
	const pkg = "sigs.k8s.io/kueue/pkg/version"
	stamps := map[string]string{pkg + ".GitVersion": module.Version, pkg + ".GitCommit": ""}
	if module.Origin != nil {
		stamps[pkg+".GitCommit"] = module.Origin.Hash
	}
	if module.Time != nil {
		stamps[pkg+".BuildDate"] = module.Time.UTC().Format(time.RFC3339)
	}
	return stamps
}
