// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/build"
	"sluice.dev/test/lab/cluster/process"
)

// kueueGroup is the API group of Kueue.
const kueueGroup = "kueue.x-k8s.io"

// kueueVerbosity is that of Kueue's manifests: it logs admissions and preemptions.
const kueueVerbosity = 2

// installKueue adapts Kueue to a cluster where it is a process and not a pod, without changing its
// RBAC permissions. It applies Kueue's objects, and writes the certificates and the
// configuration that a pod would mount.
func installKueue(ctx context.Context, admin client.Client, s componentContext) error {
	certificates, err := issueKueueCertificates()
	if err != nil {
		return err
	}
	certificateDir := filepath.Join(s.dir, "certificates")
	if err := certificates.Write(certificateDir); err != nil {
		return err
	}
	configuration, err := kueueConfiguration(kueueSettings{
		Health:       s.loopbackAddress(healthPort),
		Metrics:      s.loopbackAddress(metricsPort),
		WebhookPort:  s.ports[webhookPort],
		Certificates: certificateDir,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.configFile(), configuration, 0o600); err != nil {
		return fmt.Errorf("write Kueue's configuration: %w", err)
	}
	files := os.DirFS(build.Manifests(s.programs[build.Kueue]))
	objects, err := kueueObjects(files, "https://"+s.loopbackAddress(webhookPort), certificates, configuration)
	if err != nil {
		return err
	}
	if err := applyObjects(ctx, admin, objects); err != nil {
		return err
	}
	return installation.WaitForGroup(ctx, admin, kueueGroup)
}

func kueueCommand(s componentContext) (process.Spec, error) {
	return process.Spec{
		Path: s.programs[build.Kueue],
		Args: []string{
			"--config=" + s.configFile(),
			"--kubeconfig=" + s.kubeconfig,
			"--zap-log-level=" + strconv.Itoa(kueueVerbosity),
		},
		Env:   []string{"GOMEMLIMIT=512MiB"}, // as in Kueue's manifests
		Ready: cluster.Readyz(s.loopbackAddress(healthPort)),
	}, nil
}
