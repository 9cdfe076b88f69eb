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

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/up/kueue"
	"sluice.dev/test/cluster"
	"sluice.dev/test/cluster/build"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/process"
)

// component is one program beside Kubernetes' own. Each runs under its own
// ServiceAccount's token, if under any.
type component struct {
	name string
	// node is the node that it runs on; empty for what belongs to no node. Its token is
	// bound to it.
	node string
	// account is the ServiceAccount's namespace and name; empty for what never speaks
	// to Kubernetes.
	namespace, account string
	// ports is how many ports on loopback it is given.
	ports int
	// command makes its program, arguments and configuration file.
	command func(componentContext) (process.Spec, error)
	// onlyWithScheduler is the scheduler of the clusters that have it; empty for all.
	onlyWithScheduler string
}

// componentRegistry has all components in the order of the screen. Those of a cluster are
// started together, and stopped before Kubernetes is.
var componentRegistry = []component{
	{name: "kwok", namespace: simulationNamespace, account: "kwok", command: kwokCommand},
	{name: "fakekubelet", namespace: simulationNamespace, account: "fakekubelet", command: fakekubeletCommand},
	{name: mailsinkName, ports: 1, command: mailsinkCommand},
	{name: "lifecycle", namespace: v1alpha1.SystemNamespace, account: "lifecycle", ports: 2, command: lifecycleCommand},
	{name: "webhook", namespace: v1alpha1.SystemNamespace, account: "webhook", ports: 3, command: webhookCommand},
	{name: build.Kueue, namespace: kueue.Namespace, account: kueue.Account, ports: 3, command: kueueCommand, onlyWithScheduler: schedulerKueue},
}

// agentProgram is the program that each node has one of, after all others on the screen.
const agentProgram = "gpuagent"

// components are those of a cluster.
func (o Options) components() []component {
	list := slices.DeleteFunc(slices.Clone(componentRegistry), func(c component) bool { return c.onlyWithScheduler != "" && c.onlyWithScheduler != o.Scheduler })
	for _, node := range o.nodes() {
		list = append(list, component{
			name: agentProgram + "-" + node.Name, node: node.Name,
			namespace: v1alpha1.SystemNamespace, account: agentProgram, ports: 2, command: agentCommand,
		})
	}
	return list
}

// componentContext is what a component is told of the cluster it belongs to.
type componentContext struct {
	cluster *cluster.Cluster
	// programs are the paths of the built ones by name.
	programs map[string]string
	// kubeconfig is the component's own.
	kubeconfig string
	// dir is the component's own folder.
	dir string
	// clockFile is where policy time is read.
	clockFile string
	// ports are the component's own; their meaning is its command's.
	ports []int
	nodes []fakekubelet.Node
	// node is the component's own; empty where it has none.
	node string
	// scheduler is the one that the cluster is started with.
	scheduler string
	// mail is how mails reach the mail sink.
	mail mailAccess
}

// forComponent is the setting of one component.
func (s componentContext) forComponent(c component, ports map[string][]int) componentContext {
	s.node = c.node
	s.ports = ports[c.name]
	s.dir = filepath.Join(s.cluster.Dir(), "components", c.name)
	return s
}

func (s componentContext) loopbackAddress(i int) string {
	return "127.0.0.1:" + strconv.Itoa(s.ports[i])
}

// startComponents starts all of them at once and returns when all are ready.
func startComponents(ctx context.Context, common componentContext, list []component, ports map[string][]int) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range list {
		group.Go(func() error {
			own := common.forComponent(c, ports)
			err := os.MkdirAll(own.dir, 0o700)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if own.kubeconfig, err = c.componentKubeconfig(ctx, common.cluster); err != nil {
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

// componentKubeconfig is the kubeconfig of the component's account; empty where it has none. The Node
// of one that runs on a node is made by another component: its token waits for it.
func (c component) componentKubeconfig(ctx context.Context, in *cluster.Cluster) (kubeconfig string, err error) {
	switch {
	case c.account == "":
		return "", nil
	case c.node == "":
		return in.ServiceAccountKubeconfig(ctx, c.namespace, c.account)
	}
	err = waitFor(ctx, "a token for "+c.name, func(ctx context.Context) (bool, error) {
		kubeconfig, err = in.NodeBoundKubeconfig(ctx, c.namespace, c.account, c.node)
		return err == nil, err
	})
	return kubeconfig, err
}

// reservePorts gives every component the ports that it asks for, which no other
// cluster is given until release is called.
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

// checkPrograms tells whether Sluice's own programs are there: better now than when
// Kubernetes runs already.
func checkPrograms() error {
	programs := []string{agentProgram}
	for _, c := range componentRegistry {
		if c.namespace == v1alpha1.SystemNamespace {
			programs = append(programs, c.name)
		}
	}
	for _, name := range programs {
		if _, err := siblingProgram(name); err != nil {
			return err
		}
	}
	return nil
}

// siblingProgram is the path of another of Sluice's programs, which lies beside this one.
func siblingProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the program %s has to lie beside this one: %w; `make build` puts them into one folder", name, err)
	}
	return path, nil
}
