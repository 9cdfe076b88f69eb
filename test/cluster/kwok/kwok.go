// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package kwok

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

const (
	// NodeAnnotation and NodeAnnotationValue mark the nodes that kwok plays; it
	// leaves all others, and their pods, alone.
	NodeAnnotation = "kwok.x-k8s.io/node"
	// NodeAnnotationValue is NodeAnnotation's value.
	NodeAnnotationValue = "fake"

	// PodCIDR is where pods' addresses come from: half of the block that is set
	// aside for benchmarks (RFC 2544), so that they are nobody's.
	PodCIDR = "198.19.0.0/16"

	// A lease is renewed at a quarter of its time. kwok has a new identity each
	// time it starts, and waits until its predecessor's leases have run out: so
	// they are shorter than a kubelet's 40 seconds.
	leaseSeconds = 12
	// podWorkers is how many pods kwok patches at the same time.
	podWorkers = 16

	configFile = "kwok.yaml"
)

// Options says for whom kwok is configured.
type Options struct {
	// Kubeconfig is the path of the file with which kwok reaches the API server,
	// as the ServiceAccount of RBAC. Required.
	Kubeconfig string
}

// Command is how kwok is to be started.
type Command struct {
	// Args are kwok's arguments, without its own name.
	Args []string
	// Env holds the variables ("KEY=value") that it needs.
	Env []string
}

// Write puts kwok's configuration into dir, which is made where it does not
// exist, and returns the command that uses it. kwok then opens no port and
// needs no CustomResourceDefinition. Paths may be relative to the working
// directory; the command has them absolute.
func Write(dir string, opts Options) (Command, error) {
	if opts.Kubeconfig == "" {
		return Command{}, errors.New("kwok: Options.Kubeconfig is empty: name the file that kwok reaches the API server with")
	}
	kubeconfig, err := filepath.Abs(opts.Kubeconfig)
	if err != nil {
		return Command{}, fmt.Errorf("kwok: Options.Kubeconfig: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Command{}, fmt.Errorf("kwok: directory: %w", err)
	}
	config, err := Config()
	if err != nil {
		return Command{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Command{}, fmt.Errorf("kwok: make its directory: %w", err)
	}
	path := filepath.Join(dir, configFile)
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return Command{}, fmt.Errorf("kwok: write its configuration: %w", err)
	}
	return Command{
		Args: []string{
			"--config=" + path,
			"--kubeconfig=" + kubeconfig,
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=" + NodeAnnotation + "=" + NodeAnnotationValue,
			"--node-lease-duration-seconds=" + strconv.Itoa(leaseSeconds),
			"--cidr=" + PodCIDR,
			"--enable-crds=",
			// Without an address and a port kwok does not listen at all.
			"--server-address=",
			"--node-port=0",
		},
		// kwok also reads a kwok.yaml in its work directory, by default in the
		// user's home: stages that lie there would be played as well.
		Env: []string{"KWOK_WORKDIR=" + filepath.Join(dir, "work")},
	}, nil
}
