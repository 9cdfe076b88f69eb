// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/cmd/sluice/up/kueue"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/process"
)

// kueueGroup is the group of Kueue's kinds.
const kueueGroup = "kueue.x-k8s.io"

// kueueDir is where its files lie below the folder of its cluster.
func kueueDir(c *cluster.Cluster) string { return filepath.Join(c.Dir(), "components", build.Kueue) }

// installKueue applies Kueue's objects, and writes what its process is started
// with: the certificates that a node would mount for its pod, and the text that
// stands in its ConfigMap.
func installKueue(ctx context.Context, admin client.Client, s componentContext) error {
	dir := kueueDir(s.cluster)
	certificates, err := kueue.Issue()
	if err != nil {
		return err
	}
	if err := certificates.Write(filepath.Join(dir, "certificates")); err != nil {
		return err
	}
	configuration, err := kueue.Configuration(kueue.Settings{
		Health:       s.loopbackAddress(healthPort),
		Metrics:      s.loopbackAddress(metricsPort),
		WebhookPort:  s.ports[webhookPort],
		Certificates: filepath.Join(dir, "certificates"),
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), configuration, 0o600); err != nil {
		return fmt.Errorf("kueue's configuration: %w", err)
	}
	files := os.DirFS(build.Manifests(s.programs[build.Kueue]))
	objects, err := kueue.Objects(files, "https://"+s.loopbackAddress(webhookPort), certificates, configuration)
	if err != nil {
		return err
	}
	if err := applyObjects(ctx, admin, objects); err != nil {
		return err
	}
	return waitFor(ctx, "Kueue's kinds to be served", func(ctx context.Context) (bool, error) {
		return groupServed(ctx, admin, kueueGroup)
	})
}

func kueueCommand(s componentContext) (process.Spec, error) {
	return process.Spec{
		Path: s.programs[build.Kueue],
		Args: []string{
			"--config=" + filepath.Join(s.dir, "config.yaml"),
			"--kubeconfig=" + s.kubeconfig,
			"--zap-log-level=" + strconv.Itoa(kueueVerbosity),
		},
		// What its own manifests give to its pod.
		Env:   []string{"GOMEMLIMIT=512MiB"},
		Ready: cluster.Readyz(s.loopbackAddress(healthPort)),
		// It looks for its certificates with growing pauses first.
		ReadyTimeout: 2 * time.Minute,
	}, nil
}

// kueueVerbosity is what its own manifests have: it says what is admitted and
// what is preempted.
const kueueVerbosity = 2
