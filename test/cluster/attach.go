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

// AttachVariable names the environment variable by which a person hands their
// own cluster to Attach and to tests.
const AttachVariable = "SLUICE_KUBECONFIG"

const attachTimeout = 10 * time.Second

// Attach returns a person's own cluster: the current context of the kubeconfig
// at path, or where path is empty at $SLUICE_KUBECONFIG. Nothing is started or
// stopped there. What is started in Processes runs on this machine, with files in
// a temporary folder, until Stop. A cluster that does not answer within ten
// seconds, or before ctx ends, is an error.
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

// checkReachable asks the cluster for its version, which every user may see.
func checkReachable(ctx context.Context, config *rest.Config) error {
	asking := rest.CopyConfig(config)
	asking.Timeout = attachTimeout
	client, err := kubernetes.NewForConfig(asking)
	if err != nil {
		return err
	}
	return client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// initAttached gives an attached cluster what a started one has of its own.
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
