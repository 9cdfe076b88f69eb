// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/api/clock"
	"sluice.dev/cmd/sluice/up"
)

// clock is the policy time of the cluster that is meant: that of the folder that
// was named; else of the folder in which the kubeconfig in use lies, where that
// is an embedded cluster's; else real time.
func (o Options) clock(loader clientcmd.ClientConfig) (clock.Clock, error) {
	if o.Dir != "" {
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			return nil, fmt.Errorf("--dir %s: %w", o.Dir, err)
		}
		return up.Clock(dir)
	}
	dir, err := o.folder(loader)
	if err != nil || dir == "" {
		return clock.System(), err
	}
	file, err := up.Clock(dir)
	if errors.Is(err, up.ErrNoCluster) {
		return clock.System(), nil
	}
	return file, err
}

// folder is where the file lies from which the cluster in use was read; empty
// where that is no file. KUBECONFIG may name several.
func (o Options) folder(loader clientcmd.ClientConfig) (string, error) {
	raw, err := loader.RawConfig()
	if err != nil {
		return "", fmt.Errorf("kubeconfig: %w", err)
	}
	context := raw.Contexts[cmp.Or(o.Context, raw.CurrentContext)]
	if context == nil {
		return "", nil
	}
	server := raw.Clusters[context.Cluster]
	if server == nil || server.LocationOfOrigin == "" {
		return "", nil
	}
	return filepath.Abs(filepath.Dir(server.LocationOfOrigin))
}
