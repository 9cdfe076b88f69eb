// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kwok makes kwok play the nodes and pods of a simulated cluster.
//
// What enters is a kubeconfig. What leaves is kwok's configuration file, the
// command to start it with, and the rights it needs (RBAC). The package never
// starts anything, and knows no device: which pod gets which GPU is the fake kubelet's, and a pod
// starts only after that has admitted it (condition PodReadyToStartContainers).
//
// What kwok then plays, in stages/*.yaml: a node is made ready and kept so; an
// admitted pod runs until it is deleted, and then takes its whole grace period to
// end. It is the fake kubelet that removes it from the API afterwards, since kwok
// can delete only by name. A pod's author may say more, with the annotations
// RunFor, FailAfter and ExitCode. Containers that end are started
// again as the pod's restart policy says, with the usual back-off. A Job's pods
// are no exception: without RunFor they never complete.
//
// Not played: init containers' time (they end at once), probes, logs, exec,
// activeDeadlineSeconds, volumes. After a restart kwok may give a pod's address
// to a second pod; nothing listens on either.
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

//go:embed stages/*.yaml
var stageFiles embed.FS

// configurationYAML is the part of kwok's configuration that has no flag. kwok has defaults
// only where the whole document is missing: each worker must be counted here.
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

// Config returns kwok's configuration: its options and the stages, as YAML
// documents. It is the same at every call.
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

// RBAC holds, as YAML documents, kwok's ServiceAccount (kwok, in namespace
// sluice-sim, which is not among them) and all that it may do.
//
//go:embed rbac.yaml
var RBAC []byte

// What a pod's author may write on it. The stages read the same names.
const (
	// RunFor is how long the pod's containers run before they end with exit code
	// 0: a Go duration such as "30s" or "1h30m". Without it they run until the
	// pod is deleted.
	RunFor = "sim.sluice.dev/run-for"
	// FailAfter is how long the pod's containers run before they fail, as
	// RunFor. Of the two, only one may be set.
	FailAfter = "sim.sluice.dev/fail-after"
	// ExitCode is what containers end with after FailAfter: 1 to 255, default 1.
	ExitCode = "sim.sluice.dev/exit-code"
)

// durationPattern are those that the stages' jq can read; signs and exponents would
// be beyond it.
var durationPattern = regexp.MustCompile(`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`)

// CheckAnnotations returns an error that says which of the annotations above is
// wrong, and how it would be right. The stages ignore a pod's wrong ones.
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

// CheckDuration returns an error that names the annotation where value is not a
// duration as they are written here: 30s, 1h30m, 0.5s, at most 100 years.
func CheckDuration(annotation, value string) error {
	if durationPattern.MatchString(value) {
		if d, err := time.ParseDuration(value); err == nil && d < 100*365*24*time.Hour {
			return nil
		}
	}
	return fmt.Errorf("annotation %s: %q is not a duration: write it like 30s or 1h30m", annotation, value)
}
