// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kwok configures kwok, which simulates the nodes and pods of a cluster. Write
// returns the command that starts kwok, and RBAC the rights that it needs. The stages
// (stages/*.yaml) make a node ready and keep it so, and start a pod after the fake kubelet
// has admitted it (condition PodReadyToStartContainers). The pod runs until it is deleted
// and then uses its whole grace period, unless it has the annotations RunFor or FailAfter.
// So a Job's pods complete only with RunFor. Containers that end restart by the pod's
// restart policy, with the usual back-off.
//
// The fake kubelet assigns devices, serves logs, exec, attach and port-forward, and removes
// ended pods from the API, since kwok can delete only by name. Not simulated: the duration of
// init containers, probes, activeDeadlineSeconds, volumes. After a restart kwok may give a pod's address to a second
// pod.
package kwok

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

const (
	// NodeAnnotation marks the nodes that kwok simulates; kwok ignores all other nodes and
	// their pods.
	NodeAnnotation = "kwok.x-k8s.io/node"
	// NodeAnnotationValue is NodeAnnotation's value.
	NodeAnnotationValue = "fake"

	// PodCIDR is the range of pods' addresses: half of the block reserved for benchmarks
	// (RFC 2544), which no real network uses.
	PodCIDR = "198.19.0.0/16"

	// kwok renews a lease at a quarter of its duration. It has a new identity at each
	// start, and waits until the leases of the earlier process have expired: so they are
	// shorter than a kubelet's 40 seconds.
	leaseSeconds = 12
	// podWorkers is the number of pods that kwok patches concurrently.
	podWorkers = 16

	configFile = "kwok.yaml"
)

// Options configures Write.
type Options struct {
	// Kubeconfig is the path of the file with which kwok connects to the API server, as the
	// ServiceAccount of RBAC. Required.
	Kubeconfig string
}

// Command describes how to start kwok.
type Command struct {
	// Args are kwok's arguments, without its own name.
	Args []string
	// Env holds the variables ("KEY=value") that kwok needs.
	Env []string
}

// Write writes kwok's configuration into dir and returns the command that uses it. It
// creates dir if necessary. kwok then opens no port and needs no CustomResourceDefinition.
// Relative paths refer to the working directory; the command has absolute ones.
func Write(dir string, opts Options) (Command, error) {
	if opts.Kubeconfig == "" {
		return Command{}, errors.New("kwok: Options.Kubeconfig is empty: name the file with which kwok connects to the API server")
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
		return Command{}, fmt.Errorf("kwok: create directory: %w", err)
	}
	path := filepath.Join(dir, configFile)
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return Command{}, fmt.Errorf("kwok: write configuration: %w", err)
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
			// Without an address and a port kwok does not listen.
			"--server-address=",
			"--node-port=0",
		},
		// kwok also reads a kwok.yaml in its work directory, by default in the user's home,
		// and would use the stages in it.
		Env: []string{"KWOK_WORKDIR=" + filepath.Join(dir, "work")},
	}, nil
}

//go:embed stages/*.yaml
var stageFiles embed.FS

// configurationYAML is the part of kwok's configuration that has no flag. kwok has defaults
// only for a missing document, so this one sets the number of all workers.
const configurationYAML = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
metadata:
  name: kwok
options:
  podPlayStageParallelism: %d
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 4
  podsOnNodeSyncParallelism: 1
  enablePodsOnNodeSyncListPager: true
  enableDebuggingHandlers: false
`

// Config returns kwok's configuration: its options and the stages, as YAML documents. The
// result is always the same.
func Config() ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, configurationYAML, podWorkers)
	paths, err := fs.Glob(stageFiles, "stages/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("kwok: list the stages: %w", err)
	}
	for _, path := range paths {
		stage, err := stageFiles.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("kwok: read stage %s: %w", path, err)
		}
		out.WriteString("---\n")
		out.Write(stage)
	}
	return out.Bytes(), nil
}

// RBAC holds, as YAML documents, kwok's ServiceAccount (kwok, in namespace sluice-sim,
// which is not among them) and its rights.
//
//go:embed rbac.yaml
var RBAC []byte

// Annotations of a pod for the simulation. The stages use the same names.
const (
	// RunFor is the time for which the pod's containers run before they end with exit code 0: a Go
	// duration such as "30s" or "1h30m". Without it they run until the pod is deleted.
	RunFor = "sim.sluice.dev/run-for"
	// FailAfter is the time for which the pod's containers run before they fail, in the format of
	// RunFor. A pod may have only one of the two.
	FailAfter = "sim.sluice.dev/fail-after"
	// ExitCode is the exit code of containers after FailAfter: 1 to 255, default 1.
	ExitCode = "sim.sluice.dev/exit-code"
)

// durationPattern matches the durations that the stages' jq can parse, without signs and
// exponents.
var durationPattern = regexp.MustCompile(`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`)

// CheckAnnotations returns an error that names the invalid annotation and the remedy. The
// stages ignore invalid annotations.
func CheckAnnotations(annotations map[string]string) error {
	runFor, runs := annotations[RunFor]
	failAfter, fails := annotations[FailAfter]
	code, coded := annotations[ExitCode]
	if runs {
		if err := CheckDuration(RunFor, runFor); err != nil {
			return err
		}
	}
	if fails {
		if err := CheckDuration(FailAfter, failAfter); err != nil {
			return err
		}
	}
	switch {
	case runs && fails:
		return fmt.Errorf("annotations %s and %s: set only one: a pod either completes or fails", RunFor, FailAfter)
	case coded && !fails:
		return fmt.Errorf("annotation %s: has no effect without %s", ExitCode, FailAfter)
	case coded:
		if n, err := strconv.Atoi(code); err != nil || n < 1 || n > 255 || strconv.Itoa(n) != code {
			return fmt.Errorf("annotation %s: %q is not an exit code of a failure: write a number from 1 to 255", ExitCode, code)
		}
	}
	return nil
}

// CheckDuration returns an error that names the annotation if value is not a duration of
// the simulation: 30s, 1h30m, 0.5s, at most 100 years.
func CheckDuration(annotation, value string) error {
	if durationPattern.MatchString(value) {
		if d, err := time.ParseDuration(value); err == nil && d < 100*365*24*time.Hour {
			return nil
		}
	}
	return fmt.Errorf("annotation %s: %q is not a duration: write it like 30s or 1h30m", annotation, value)
}
