// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/process"
)

// Start builds the programs of a cluster where that was not done before, starts
// them, and returns when the API server, the controllers and the scheduler are
// ready and a pod can be made in namespace default. When it fails, or ctx ends
// first, nothing of it runs any more; a Dir that the caller has named stays, with
// the logs. The end of ctx after Start has returned means nothing: see Stop.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options, err := options.validated()
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := checkPort(options.Port); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	folder, err := openFolder(options)
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	c := &Cluster{options: options, folder: folder}
	if err := c.start(ctx); err != nil {
		// A folder that was named stays: its logs say why, and data that it may
		// have from before must not go with a failed start.
		c.options.KeepData = options.Dir != ""
		return nil, fmt.Errorf("start cluster: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	group, err := process.NewGroup(c.folder.path)
	if err != nil {
		return err
	}
	c.group = group
	programs, err := build.Programs(ctx, c.options.Progress, controlPlane...)
	if err != nil {
		return err
	}
	begin := time.Now()
	plane, err := newPlane(c.options, c.folder, &c.reserved, programs)
	if err != nil {
		return err
	}
	c.ca = plane.ca
	if err := plane.start(ctx, group); err != nil {
		return err
	}
	if c.config, c.kubeconfig, err = plane.admin(); err != nil {
		return err
	}
	if c.tokens, err = newTokens(c); err != nil {
		return err
	}
	if err := awaitPods(ctx, c.config); err != nil {
		return err
	}
	c.options.say("Kubernetes is ready on %s, after %s", httpsURL(plane.ports.APIServer), time.Since(begin).Round(100*time.Millisecond))
	return nil
}
