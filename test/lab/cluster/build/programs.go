// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice.dev/test/lab/cluster/process"
)

// unfinished is the suffix of a program that is being built.
const unfinished = ".new"

// The programs that are built only on request. Kueue's manifests are stored beside it: see
// [Manifests]. Helm installs the chart. Promtool tests the rules that Prometheus evaluates.
const (
	Kueue      = "kueue"
	Helm       = "helm"
	Prometheus = "prometheus"
	Promtool   = "promtool"
)

// program is a program that a pins module can build.
type program struct {
	name, pkg    string
	module       string // the version and time of the version flags
	versionFlags func(moduleInfo) map[string]string
	tags         []string // of the build, besides withoutC
	// pins is the folder of the pins module below the first one. Each module has its own
	// cache key, so that a change of one does not rebuild the programs of the other.
	pins string
	// manifests is the folder of the module that is stored beside the program.
	manifests string
}

// programs is in the order of a cluster's start, so that a build with a full disk or a
// missing module fails early.
var programs = []program{
	{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3"},
	{
		name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: kubernetesModule,
		versionFlags: kubernetesVersionFlags,
	},
	{
		name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: kubernetesModule,
		versionFlags: kubernetesVersionFlags,
	},
	{
		name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler", module: kubernetesModule,
		versionFlags: kubernetesVersionFlags,
	},
	{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", module: "sigs.k8s.io/kwok", versionFlags: kwokVersionFlags},
	{
		name: Kueue, pkg: "sigs.k8s.io/kueue/cmd/kueue", module: "sigs.k8s.io/kueue", versionFlags: kueueVersionFlags,
		pins: "kueue", manifests: "config",
	},
	{name: Helm, pkg: "helm.sh/helm/v4/cmd/helm", module: "helm.sh/helm/v4", versionFlags: helmVersionFlags, pins: "helm"},
	{
		name: Prometheus, pkg: prometheusModule + "/cmd/prometheus", module: prometheusModule, versionFlags: prometheusVersionFlags,
		pins: "prometheus", tags: []string{withoutServiceDiscovery},
	},
	{
		name: Promtool, pkg: prometheusModule + "/cmd/promtool", module: prometheusModule, versionFlags: prometheusVersionFlags,
		pins: "prometheus", tags: []string{withoutServiceDiscovery},
	},
}

const (
	kubernetesModule = "k8s.io/kubernetes"
	prometheusModule = "github.com/prometheus/prometheus"
	// withoutServiceDiscovery leaves out the clients of two dozen clouds, which tests do not need.
	withoutServiceDiscovery = "remove_all_sd"
)

// Names returns the programs of every embedded cluster.
func Names() []string { return namesOf(programsPinnedIn("")) }

func namesOf(list []program) []string {
	names := make([]string, 0, len(list))
	for _, p := range list {
		names = append(names, p.name)
	}
	return names
}

// programsPinnedIn returns the programs of one pins module.
func programsPinnedIn(pins string) []program {
	return slices.DeleteFunc(slices.Clone(programs), func(p program) bool { return p.pins != pins })
}

// Programs returns the path of each named program, and builds those that are neither in
// KUBEBUILDER_ASSETS nor in the cache. It writes the builds, waits and ready programs to
// progress, which may be nil. The first build takes minutes. A failed build keeps the
// programs that it has built.
func Programs(ctx context.Context, out io.Writer, names ...string) (map[string]string, error) {
	task := startTask(out)
	defer task.finish()
	return findOrBuild(ctx, task, names)
}

func findOrBuild(ctx context.Context, task *task, names []string) (map[string]string, error) {
	var missing []program
	for _, name := range names {
		i := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("build: no program %q; the programs are %s", name, strings.Join(namesOf(programs), ", "))
		}
		missing = append(missing, programs[i])
	}
	paths := findInAssets(task, missing)
	missing = slices.DeleteFunc(missing, func(p program) bool { return paths[p.name] != "" })
	for len(missing) > 0 {
		pins := missing[0].pins
		other := func(p program) bool { return p.pins != pins }
		if err := addFromCache(ctx, task, pins, slices.DeleteFunc(slices.Clone(missing), other), paths); err != nil {
			return nil, err
		}
		missing = slices.DeleteFunc(missing, func(p program) bool { return !other(p) })
	}
	return paths, nil
}

// assetsVariable names a folder of ready programs. Other test suites for Kubernetes use the
// same variable.
const assetsVariable = "KUBEBUILDER_ASSETS"

// findInAssets returns the paths of the programs in KUBEBUILDER_ASSETS. Their version is the
// choice of the person who put them there. Those of Kubernetes replace built ones together
// or not at all: other test suites need only an API server, which would be older than built
// controllers.
func findInAssets(task *task, requested []program) map[string]string {
	paths := map[string]string{}
	assets := os.Getenv(assetsVariable)
	if assets == "" {
		return paths
	}
	isMissing := func(p program) bool { return !p.existsAt(filepath.Join(assets, p.name)) }
	isKubernetes := func(p program) bool { return p.module == kubernetesModule }
	incomplete := slices.ContainsFunc(programs, func(p program) bool { return isKubernetes(p) && isMissing(p) })
	for _, p := range requested {
		switch {
		case isMissing(p):
		case isKubernetes(p) && incomplete:
			task.note("not using %s from %s: a program of Kubernetes is missing there", p.name, assets)
		default:
			task.note("using %s from %s", p.name, assets)
			paths[p.name] = filepath.Join(assets, p.name)
		}
	}
	return paths
}

// addFromCache adds the paths of programs of one pins module, and builds those that are not
// in the cache.
func addFromCache(ctx context.Context, task *task, below string, requested []program, paths map[string]string) error {
	pins, err := findPins(below)
	if err != nil {
		return err
	}
	key, err := cacheKey(ctx, pins, programsPinnedIn(below))
	if err != nil {
		return err
	}
	cache, err := cacheFolder(key)
	if err != nil {
		return err
	}
	for _, p := range requested {
		paths[p.name] = filepath.Join(cache, p.name)
	}
	missing := missingFrom(cache, requested)
	if len(missing) == 0 {
		return nil
	}
	lock, err := process.WaitForLock(ctx, filepath.Join(cache, "lock"), func(held *process.LockHeldError) {
		task.note("waiting for process %d, which builds the cluster's programs", held.PID)
	})
	if err != nil {
		return fmt.Errorf("build the cluster's programs: %w", err)
	}
	defer func() { _ = lock.Unlock() }() // the lock file stays
	return buildPrograms(ctx, task, pins, cache, missingFrom(cache, missing))
}

// linkWeight is the time of linking one program, in packages to compile.
const linkWeight = 40

// buildPrograms builds the programs into the cache folder, whose lock the caller holds. One go
// command compiles the packages of all programs, so that it uses all processors and compiles
// no package twice. The programs are then linked at the same time.
func buildPrograms(ctx context.Context, task *task, pins, cache string, todo []program) error {
	if len(todo) == 0 {
		return nil // another process has built them
	}
	removeUnfinished(cache)
	modules, err := moduleInfos(ctx, pins, todo)
	if err != nil {
		return err
	}
	var versions []string
	for _, p := range todo {
		versions = append(versions, p.name+" "+modules[p.module].Version)
	}
	task.note("building the cluster's programs into %s (once; the first build takes minutes): %s", cache, strings.Join(versions, ", "))
	begin := time.Now()
	stale, err := staleOf(ctx, pins, todo)
	if err != nil {
		return err
	}
	task.expect(stale)
	task.grow(linkWeight * len(todo))
	// An error of a package is reported below, with the program that needs it.
	compile(ctx, pins, todo, stale, task)
	task.compiled(stale...) // those of a program that failed, too
	var built atomic.Int32
	var group errgroup.Group // a failure keeps the other builds
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range todo {
		group.Go(func() error {
			err := buildProgram(ctx, pins, filepath.Join(cache, p.name), p, modules[p.module])
			if err != nil {
				task.note("building %s failed", versions[i])
				return err
			}
			task.advance(linkWeight)
			task.note("built %s (%d of %d)", versions[i], built.Add(1), len(todo))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	task.note("the cluster's programs are built, in %s", time.Since(begin).Round(time.Second))
	return nil
}

// buildProgram builds one program under a temporary name and renames it, so that the cache
// never holds half a program.
func buildProgram(ctx context.Context, pins, path string, p program, module moduleInfo) error {
	temporary := path + unfinished
	defer os.Remove(temporary)
	args := append([]string{"build", "-o", temporary}, buildFlags(p, module)...)
	if err := goCommand(ctx, pins, hostEnv(), append(args, p.pkg)...); err != nil {
		return fmt.Errorf("build %s: %w", p.name, err)
	}
	if p.manifests != "" {
		if err := copyManifests(ctx, pins, path, p); err != nil {
			return fmt.Errorf("build %s: its manifests: %w", p.name, err)
		}
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("build %s: %w", p.name, err)
	}
	return nil
}

// removeUnfinished removes the files of killed builds. The caller holds the lock, so no
// build is running.
func removeUnfinished(cache string) {
	left, _ := filepath.Glob(filepath.Join(cache, "*"+unfinished))
	for _, path := range left {
		_ = os.RemoveAll(path)
	}
}

func missingFrom(cache string, requested []program) []program {
	return slices.DeleteFunc(slices.Clone(requested), func(p program) bool {
		return p.existsAt(filepath.Join(cache, p.name))
	})
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
