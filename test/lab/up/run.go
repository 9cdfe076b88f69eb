// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sluice.dev/api/policytime"
	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/build"
)

// errStopped is the error of a start that its context ended.
var errStopped = errors.New("stopped before the cluster was ready")

// Run builds the programs, starts the cluster, installs Sluice's objects, starts
// the components, installs the sample, prints the screen and calls ready. It then
// watches the cluster until ctx ends, stops everything, and keeps the folder for
// the next run. The end of ctx is no error; the removal of the folder is one.
func Run(ctx context.Context, options Options, ready func() error) (err error) {
	options, err = options.validate()
	if err != nil {
		return err
	}
	if err := checkPrograms(); err != nil {
		return err
	}
	started := time.Now()
	programs, err := Build(ctx, options)
	if err != nil {
		return startError(ctx, options.Output, err)
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: options.Dir, Port: options.Port, KeepData: true, Progress: options.Output, Programs: programs})
	if err != nil {
		return startError(ctx, options.Output, err)
	}
	defer func() {
		err = errors.Join(err, c.Stop())
		if !cluster.Exists(options.Dir) {
			removeEmptyDirs(options.Dir)
		}
	}()
	if err := errors.Join(options.saveScheduler(), options.applyTimeScale()); err != nil {
		return err
	}
	ports, release, err := reservePorts(options.components())
	if err != nil {
		return err
	}
	defer release() // after the components have stopped
	if err := installAndStart(ctx, c, options, programs, ports); err != nil {
		return startError(ctx, options.Output, err)
	}
	report := newReport(c, options)
	if err := report.save(c.Processes().List()); err != nil {
		return err
	}
	fmt.Fprintf(options.Output, "The cluster is ready, after %s\n\n", time.Since(started).Round(100*time.Millisecond))
	current, err := report.withComponents(c.Processes().List()).refresh()
	if err != nil {
		return err
	}
	if err := WriteReport(options.Output, current); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	err = watchComponents(ctx, c, report, options.Output)
	fmt.Fprintln(options.Output, "Stopping the cluster")
	return err
}

// Build builds the programs of a cluster with the scheduler in options, empty for the default, unless fitting ones
// are installed on this machine, and returns their paths by name. The first build takes minutes.
func Build(ctx context.Context, options Options) (map[string]string, error) {
	scheduler := options.Scheduler
	if scheduler == "" {
		scheduler = Schedulers[0]
	}
	if err := validateScheduler(scheduler); err != nil {
		return nil, err
	}
	programs, err := build.Programs(ctx, options.Output, slices.Concat(build.Names(), sampleSpecs[scheduler].programs)...)
	if err != nil && ctx.Err() != nil {
		return nil, errStopped
	}
	return programs, err
}

// startError returns the error of a start. If ctx has ended, every component fails,
// and none of the errors matters.
func startError(ctx context.Context, output io.Writer, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if !inBackground() { // Detach prints it otherwise
		fmt.Fprintln(output, errStopped)
	}
	return nil
}

// installAndStart installs all objects, starts all components, installs the sample,
// and waits until the cluster is ready.
func installAndStart(ctx context.Context, c *cluster.Cluster, options Options, programs map[string]string, ports map[string][]int) error {
	admin, err := installation.NewAdminClient(c.Config())
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	common := componentContext{
		cluster:   c,
		programs:  programs,
		clockFile: filepath.Join(c.Dir(), policytime.FileName),
		nodes:     options.nodes(),
		scheduler: options.Scheduler,
		replicas:  options.Replicas,
		mail:      newMailAccess(ports[mailsinkName], c.CA().CertFile()),
		self:      filepath.Base(self),
	}

	fmt.Fprintln(options.Output, "Installing Sluice's objects")
	if err := removeStaleNodes(ctx, admin, common.nodes); err != nil {
		return err
	}
	if err := errors.Join(createControlPlaneNode(ctx, c, admin), createNodeFolders(common)); err != nil {
		return err
	}
	if err := installBase(ctx, admin, common); err != nil {
		return err
	}
	if common.mail, err = installMail(ctx, admin, common.mail); err != nil {
		return err
	}
	if options.Scheduler == schedulerKueue {
		fmt.Fprintln(options.Output, "Installing Kueue's objects")
		if err := installKueue(ctx, admin, common.forComponent(component{name: build.Kueue}, ports)); err != nil {
			return err
		}
	}

	fmt.Fprintln(options.Output, "Starting Sluice's components and the simulated nodes")
	if err := startComponents(ctx, common, options.components(), ports); err != nil {
		return err
	}
	if err := waitForPods(ctx, admin, common); err != nil {
		return err
	}

	fmt.Fprintf(options.Output, "Installing the sample: %s\n", options.sample().name)
	if err := installSample(ctx, admin, options.sample()); err != nil {
		return err
	}
	if err := waitForAdmissionPolicies(ctx, admin); err != nil {
		return err
	}
	if err := waitForNodesAndComponents(ctx, admin, common.nodes, c.Processes().List); err != nil {
		return err
	}
	return waitForGPUModels(ctx, admin, common.nodes)
}
