// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sluice.dev/test/cluster/pki"
	"sluice.dev/test/cluster/process"
)

// AttachVariable names the environment variable with the kubeconfig of the user's own
// cluster, for Attach and for tests.
const AttachVariable = "SLUICE_KUBECONFIG"

const attachTimeout = 10 * time.Second

// Attach returns the user's own cluster: the current context of the kubeconfig at path, or
// at $SLUICE_KUBECONFIG if path is empty. Attach starts and stops nothing there. Components
// in Processes run on this machine until Stop, with files in a temporary folder. Attach
// fails if the cluster does not answer within ten seconds or before ctx ends.
func Attach(ctx context.Context, path string) (*Cluster, error) {
	if path == "" {
		path = os.Getenv(AttachVariable)
	}
	if path == "" {
		return nil, fmt.Errorf("attach to a cluster: name a kubeconfig, or set %s", AttachVariable)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("attach to a cluster: %w", err)
	}
	config, err := loadConfig(path)
	if err != nil {
		return nil, fmt.Errorf("attach to a cluster: %w", err)
	}
	if err := checkReachable(ctx, config); err != nil {
		return nil, fmt.Errorf("attach to the cluster of %s: %w", path, err)
	}
	folder, err := temporaryFolder()
	if err != nil {
		return nil, fmt.Errorf("attach to a cluster: %w", err)
	}
	c := &Cluster{folder: folder, attached: true, config: config, kubeconfig: path}
	if err := c.initAttached(); err != nil {
		folder.close(false)
		return nil, fmt.Errorf("attach to a cluster: %w", err)
	}
	return c, nil
}

// checkReachable requests the server's version, which all users may read.
func checkReachable(ctx context.Context, config *rest.Config) error {
	probe := rest.CopyConfig(config)
	probe.Timeout = attachTimeout
	client, err := kubernetes.NewForConfig(probe)
	if err != nil {
		return err
	}
	return client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// initAttached creates the parts of an attached cluster that run on this machine.
func (c *Cluster) initAttached() error {
	keys, err := c.folder.makeDir("pki")
	if err != nil {
		return err
	}
	if c.ca, err = pki.OpenCA(keys, "serving-ca"); err != nil {
		return err
	}
	if c.tokens, err = newTokenRenewer(c); err != nil {
		return err
	}
	c.group, err = process.NewGroup(c.folder.path)
	return err
}
