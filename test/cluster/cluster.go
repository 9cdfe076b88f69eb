// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/pki"
	"sluice.dev/test/cluster/process"
)

// stopTimeout is how long Stop lets components end by themselves, in all.
const stopTimeout = 30 * time.Second

// Cluster is a running Kubernetes, or one that was attached to. Its methods may be
// called from several goroutines.
type Cluster struct {
	options    Options
	folder     *folder
	ca         *pki.CA // signs clients and servers; nil for clients where attached
	attached   bool
	config     *rest.Config
	kubeconfig string
	group      *process.Group
	tokens     *tokenRenewer
	reserved   portReservations

	stopOnce sync.Once
	stopErr  error
}

// Config returns a copy of the administrator's client configuration, without
// client-side throttling.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of the administrator's kubeconfig, for kubectl and
// other programs. Of a started cluster it is gone after Stop unless
// Options.KeepData.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir returns the folder of the cluster, links resolved. Components may keep files
// of their own in its subfolder "components"; Stop removes them with it. What
// else is put into a folder that Options.Dir names stays, and keeps the folder.
func (c *Cluster) Dir() string { return c.folder.path }

// Processes returns the group of the cluster's processes, to which further ones
// may be added; Stop ends those first.
func (c *Cluster) Processes() *process.Group { return c.group }

// Attached reports whether this is a person's own cluster.
func (c *Cluster) Attached() bool { return c.attached }

// CA returns the authority that signs the cluster's certificates. Where attached
// it is one of our own, which the cluster trusts as a webhook's caBundle only.
func (c *Cluster) CA() *pki.CA { return c.ca }

// IssueServing writes tls.crt, tls.key and ca.crt into dir (made 0700 where
// missing), for a server that is reached as name, localhost or 127.0.0.1: for a
// webhook, say "sluice-webhook.sluice-system.svc". They are valid for a year.
func (c *Cluster) IssueServing(name, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("issue serving certificate for %s: %w", name, err)
	}
	pair, err := c.ca.Server(name)
	if err != nil {
		return fmt.Errorf("issue serving certificate for %s: %w", name, err)
	}
	if err := writeFile(filepath.Join(dir, "ca.crt"), c.ca.CertPEM()); err != nil {
		return fmt.Errorf("issue serving certificate for %s: %w", name, err)
	}
	return pair.Write(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
}

// Stop ends everything that was started in Processes, the last first, and removes
// Dir unless Options.KeepData; the error wraps a *LeftError where Dir has files in
// it that are no cluster's, which stay. An attached cluster itself goes on. Stop may be
// called more than once.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		c.tokens.stop()
		var stopped error
		if c.group != nil { // else a start failed early
			stopped = c.group.Stop(ctx)
		}
		c.reserved.release()
		c.stopErr = errors.Join(stopped, c.folder.close(c.options.KeepData))
	})
	return c.stopErr
}

// Start builds the programs of a cluster where that was not done before, starts
// them, and returns when the API server, the controllers and the scheduler are
// ready and a pod can be made in namespace default. When it fails, or ctx ends
// first, nothing of it runs any more; a Dir that the caller has named stays, with
// the logs. The end of ctx after Start has returned means nothing: see Stop.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options, err := options.validate()
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
	programs, err := build.Programs(ctx, c.options.Progress, controlPlaneComponents...)
	if err != nil {
		return err
	}
	begin := time.Now()
	plane, err := newControlPlaneSetup(c.options, c.folder, &c.reserved, programs)
	if err != nil {
		return err
	}
	c.ca = plane.ca
	if err := plane.start(ctx, group); err != nil {
		return err
	}
	if c.config, c.kubeconfig, err = plane.adminConfig(); err != nil {
		return err
	}
	if c.tokens, err = newTokenRenewer(c); err != nil {
		return err
	}
	if err := waitForPodCreation(ctx, c.config); err != nil {
		return err
	}
	c.options.progressf("Kubernetes is ready on %s, after %s", httpsURL(plane.ports.APIServer), time.Since(begin).Round(100*time.Millisecond))
	return nil
}
