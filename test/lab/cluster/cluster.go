// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"sluice.dev/test/lab/cluster/build"
	"sluice.dev/test/lab/cluster/process"
)

// stopTimeout bounds the time that Stop gives all components together to end.
const stopTimeout = 30 * time.Second

// Cluster is a running Kubernetes that this process started. Its
// methods are safe for concurrent use.
type Cluster struct {
	options    Options
	folder     *folder
	ca         *CA // signs clients and servers
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

// Kubeconfig returns the path of the administrator's kubeconfig, for kubectl and other
// programs. Stop removes the file of a started cluster unless Options.KeepData is set.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir returns the folder of the cluster, with links resolved. Components may keep their
// files in its subfolder "components", which Stop removes. Stop leaves other files in a
// folder that Options.Dir names, and then keeps the folder.
func (c *Cluster) Dir() string { return c.folder.path }

// ServiceSocket returns the path of the Unix socket through which the API server connects to
// Services, with HTTP CONNECT. A component may serve it; until then the connections fail.
func (c *Cluster) ServiceSocket() string { return c.folder.pathOf(serviceSocket) }

// Processes returns the group of the cluster's processes. Callers may add components to it;
// Stop ends those first.
func (c *Cluster) Processes() *process.Group { return c.group }

// CA returns the authority that signs the cluster's certificates.
func (c *Cluster) CA() *CA { return c.ca }

// IssueServing writes tls.crt, tls.key and ca.crt into dir for a server that clients reach
// as name, localhost or 127.0.0.1, such as "sluice-webhook.sluice-system.svc". It creates
// dir with mode 0700 if needed. The certificate is valid for a year.
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

// Stop ends all components in Processes, the last one first, and removes Dir unless
// Options.KeepData is set. Stop keeps files in Dir that do not belong to a cluster, and its
// error then wraps a *LeftError. Stop may be called more than once.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		c.tokens.stop()
		var stopped error
		if c.group != nil { // nil if the start failed early
			stopped = c.group.Stop(ctx)
		}
		c.reserved.release()
		c.stopErr = errors.Join(stopped, c.folder.close(c.options.KeepData))
	})
	return c.stopErr
}

// Start builds the programs of a cluster if necessary and starts them. It returns when the
// API server, the controllers and the scheduler are ready and pods can be created in
// namespace default. If it fails, or ctx ends first, it ends everything that it started. A
// Dir that the caller named stays, with the logs. A running cluster ignores the end of ctx;
// Stop ends it.
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
		// A named folder stays: its logs explain the failure, and it may hold data of an
		// earlier run.
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
	missing := slices.DeleteFunc(slices.Clone(controlPlaneComponents), func(name string) bool { return c.options.Programs[name] != "" })
	programs, err := build.Programs(ctx, c.options.Progress, missing...)
	if err != nil {
		return err
	}
	maps.Copy(programs, c.options.Programs)
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
	c.options.progressf("Kubernetes is ready on %s, after %s", httpsURL(plane.ports.APIServer),
		time.Since(begin).Round(100*time.Millisecond))
	return nil
}
