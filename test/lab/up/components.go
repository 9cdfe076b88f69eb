// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/test/lab/cluster"
	"sluice.dev/test/lab/cluster/build"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/process"
)

// component is one program that runs beside those of Kubernetes.
type component struct {
	name string
	// namespace and account name the ServiceAccount; empty for a component that does
	// not use the Kubernetes API.
	namespace, account string
	// ports is the number of ports on loopback.
	ports int
	// command writes the configuration and returns the program and its arguments.
	command func(componentContext) (process.Spec, error)
	// onlyWithScheduler limits the component to clusters with this scheduler.
	onlyWithScheduler string
}

// componentRegistry has all components that are no pods, in the order of the screen.
var componentRegistry = []component{
	{name: "kwok", namespace: simulationNamespace, account: "kwok", command: kwokCommand},
	{name: "fakekubelet", namespace: simulationNamespace, account: "fakekubelet", command: fakekubeletCommand},
	{name: mailsinkName, ports: 1, command: mailsinkCommand},
	{name: "launcher", namespace: simulationNamespace, account: "launcher", command: launcherCommand},
	{
		name: build.Kueue, namespace: kueueNamespace, account: kueueAccount, ports: 3,
		command: kueueCommand, onlyWithScheduler: schedulerKueue,
	},
}

// The programs in Sluice's pods, and the names of their objects.
const (
	lifecycleProgram = "lifecycle"
	webhookProgram   = "webhook"
	// agentProgram runs on each node.
	agentProgram = "gpuagent"
)

// sluicePrograms are the programs of pods, in the order of the screen.
var sluicePrograms = []string{lifecycleProgram, webhookProgram, agentProgram}

// components returns the components of a cluster.
func (o Options) components() []component {
	return slices.DeleteFunc(slices.Clone(componentRegistry), func(c component) bool {
		return c.onlyWithScheduler != "" && c.onlyWithScheduler != o.Scheduler
	})
}

// podNames returns the processes of the pods of Sluice's installation.
func (s componentContext) podNames() []string {
	names := []string{lifecycleProgram, webhookProgram}
	for _, node := range s.nodes {
		names = append(names, agentProgram+"-"+node.Name)
	}
	return names
}

// componentContext is the input of a component's command.
type componentContext struct {
	cluster *cluster.Cluster
	// programs has the paths of the built programs by name.
	programs map[string]string
	// clockFile has policy time.
	clockFile string
	nodes     []fakekubelet.Node
	scheduler string
	replicas  installation.Replicas
	mail      mailAccess
	// self is the name of this program.
	self string

	// The following fields are the component's own.
	kubeconfig string
	dir        string
	ports      []int
}

func (s componentContext) forComponent(c component, ports map[string][]int) componentContext {
	s.ports = ports[c.name]
	s.dir = filepath.Join(s.cluster.Dir(), "components", c.name)
	return s
}

// configFile returns the path of the component's configuration.
func (s componentContext) configFile() string { return filepath.Join(s.dir, "config.yaml") }

func (s componentContext) loopbackAddress(i int) string {
	return "127.0.0.1:" + strconv.Itoa(s.ports[i])
}

// startComponents starts all components concurrently, and returns when all are
// ready.
func startComponents(ctx context.Context, common componentContext, list []component, ports map[string][]int) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range list {
		group.Go(func() error {
			own := common.forComponent(c, ports)
			err := os.MkdirAll(own.dir, 0o700)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if own.kubeconfig, err = c.writeKubeconfig(ctx, common.cluster); err != nil {
				return err
			}
			spec, err := c.command(own)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			spec.Name = c.name
			return common.cluster.Processes().Start(ctx, spec)
		})
	}
	return group.Wait()
}

// writeKubeconfig writes the kubeconfig of the component's ServiceAccount and
// returns its path.
func (c component) writeKubeconfig(ctx context.Context, in *cluster.Cluster) (path string, err error) {
	if c.account == "" {
		return "", nil
	}
	return in.ServiceAccountKubeconfig(ctx, c.namespace, c.account)
}

// reservePorts reserves the ports of all components until release is called.
func reservePorts(list []component) (ports map[string][]int, release func(), err error) {
	total := 0
	for _, c := range list {
		total += c.ports
	}
	free, release, err := cluster.FreePorts(total)
	if err != nil {
		return nil, nil, err
	}
	ports = map[string][]int{}
	for _, c := range list {
		ports[c.name], free = free[:c.ports], free[c.ports:]
	}
	return ports, release, nil
}

// checkPrograms fails if one of Sluice's own programs is missing.
func checkPrograms() error {
	for _, name := range append([]string{"sluice"}, sluicePrograms...) {
		if _, err := siblingProgram(fileOf(name)); err != nil {
			return err
		}
	}
	return nil
}

// fileOf returns the file of a program: the agents run on simulated GPUs.
func fileOf(program string) string {
	if program == agentProgram {
		return "sluice-lab-gpuagent"
	}
	return program
}

// siblingProgram returns the path of a program in the folder of this one.
func siblingProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("program %s is not in the folder of this one: %w; `make build` builds all programs into one folder", name, err)
	}
	return path, nil
}
