// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/build"
)

// errStopped is the outcome of what was cut short by the end of its context.
var errStopped = errors.New("stopped on the way up, as was asked")

// Build builds the programs of a cluster with a scheduler, empty for the
// default, where that was not done before, and starts nothing. The first time
// takes minutes; progress is shown on output.
func Build(ctx context.Context, output io.Writer, scheduler string) (map[string]string, error) {
	if scheduler == "" {
		scheduler = Schedulers[0]
	}
	if err := validateScheduler(scheduler); err != nil {
		return nil, err
	}
	programs, err := build.Programs(ctx, output, slices.Concat(build.Names(), sampleSpecs[scheduler].programs)...)
	if err != nil && ctx.Err() != nil {
		return nil, errStopped
	}
	return programs, err
}

// Run brings everything up, shows the screen, calls ready, and stays until ctx
// ends; then it stops everything and leaves the folder for a later run. It is no
// error if ctx ends on the way up; it is one if somebody removes the folder.
func Run(ctx context.Context, options Options, ready func() error) (err error) {
	options, err = options.validate()
	if err != nil {
		return err
	}
	if err := checkPrograms(); err != nil {
		return err
	}
	begin := time.Now()
	programs, err := Build(ctx, options.Output, options.Scheduler)
	if err != nil {
		return startupError(ctx, options.Output, err)
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: options.Dir, Port: options.Port, KeepData: true, Progress: options.Output})
	if err != nil {
		return startupError(ctx, options.Output, err)
	}
	defer func() {
		err = errors.Join(err, c.Stop())
		if !cluster.Exists(options.Dir) {
			removeEmptyDirs(options.Dir)
		}
	}()

	if err := options.saveScheduler(); err != nil {
		return err
	}
	if err := options.applyTimeScale(); err != nil {
		return err
	}
	ports, release, err := reservePorts(options.components())
	if err != nil {
		return err
	}
	defer release() // not before the components have ended, below
	if err := installAndStart(ctx, c, options, programs, ports); err != nil {
		return startupError(ctx, options.Output, err)
	}
	report := newReport(c, options)
	if err := report.save(c.Processes().List()); err != nil {
		return err
	}
	fmt.Fprintf(options.Output, "everything is ready, after %s\n\n", time.Since(begin).Round(100*time.Millisecond))
	now, err := report.withComponents(c.Processes().List()).refresh()
	if err != nil {
		return err
	}
	if err := WriteReport(options.Output, now); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	err = watchComponents(ctx, c, report, options.Output)
	fmt.Fprintln(options.Output, "stopping")
	return err
}

// startupError is the outcome of a start that failed with err. Where ctx has ended
// there are as many reasons as components, and none that matters.
func startupError(ctx context.Context, output io.Writer, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if !inBackground() { // else Detach says it
		fmt.Fprintln(output, errStopped)
	}
	return nil
}

func installAndStart(ctx context.Context, c *cluster.Cluster, options Options, programs map[string]string, ports map[string][]int) error {
	kinds, err := api.NewScheme()
	if err != nil {
		return err
	}
	if err := apiextensionsv1.AddToScheme(kinds); err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	admin, err := client.New(c.Config(), client.Options{Scheme: kinds})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	fmt.Fprintln(options.Output, "installing Sluice's objects")
	if err := installBase(ctx, admin, "https://127.0.0.1:"+strconv.Itoa(ports["webhook"][webhookPort])); err != nil {
		return err
	}
	access, err := installMail(ctx, admin, ports[mailsinkName])
	if err != nil {
		return err
	}
	access.authority = c.CA().CertFile()
	list := options.nodes()
	common := componentContext{
		cluster:   c,
		programs:  programs,
		clockFile: filepath.Join(c.Dir(), policytime.FileName),
		nodes:     list,
		scheduler: options.Scheduler,
		mail:      access,
	}
	if options.Scheduler == schedulerKueue {
		fmt.Fprintln(options.Output, "installing Kueue's objects")
		if err := installKueue(ctx, admin, common.forComponent(component{name: build.Kueue}, ports)); err != nil {
			return err
		}
	}
	if err := removeStaleNodes(ctx, admin, list); err != nil {
		return err
	}
	fmt.Fprintln(options.Output, "starting Sluice's components and the simulated nodes")
	if err := startComponents(ctx, common, options.components(), ports); err != nil {
		return err
	}
	fmt.Fprintf(options.Output, "founding the sample: %s\n", options.sample().name)
	if err := installSample(ctx, admin, options.sample()); err != nil {
		return err
	}
	if err := waitForAdmissionPolicies(ctx, admin); err != nil {
		return err
	}
	if err := waitForNodesAndComponents(ctx, admin, list, c.Processes().List); err != nil {
		return err
	}
	return waitForGPUModels(ctx, admin, list)
}

const (
	// pollInterval is how often a condition that is waited for is looked at.
	pollInterval = 100 * time.Millisecond
	// waitTimeout is how long anything that is waited for may take.
	waitTimeout = time.Minute
)

// waitFor waits for a condition, and says which one it was where it does not come.
// An error of the condition is only the reason for the next look.
func waitFor(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		done, err := condition(ctx)
		last = err
		return done && err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, errors.Join(err, last))
	}
	return nil
}
