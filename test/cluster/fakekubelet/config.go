// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"sluice.dev/test/cluster/fakekubelet/machine"
)

// Config says which nodes to play, and where. Its fields with names in YAML are
// those of the configuration file.
type Config struct {
	// Kubeconfig is the path of the file with which LoadConfig makes API. Run
	// does not read it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Dir holds the nodes' files, in nodes/<node>. It is made (0700) where it
	// does not exist. Required, and short: a socket's path may have 107 bytes.
	Dir string `json:"dir"`
	// Nodes to play, at least one. Pods on other nodes are ignored.
	Nodes []Node `json:"nodes"`

	// API is how the API server is reached, with the rights in RBAC. Required.
	API *rest.Config `json:"-"`
	// Log is told what happens; the default is slog.Default().
	Log *slog.Logger `json:"-"`
}

// Node is one simulated node.
type Node struct {
	// Name of the Node object.
	Name string `json:"name"`
	// Pool is the value of its label sluice.dev/node-pool.
	Pool string `json:"pool"`
	// Machine is what it consists of.
	Machine machine.Machine `json:"machine"`
}

// DGXA100 is a node that is a DGX A100 with eight whole GPUs.
func DGXA100(name, pool string) Node {
	return Node{Name: name, Pool: pool, Machine: machine.DGXA100()}
}

// DGXA100MIG is a node that is a DGX A100 whose GPUs are in MIG mode, and empty.
func DGXA100MIG(name, pool string) Node {
	return Node{Name: name, Pool: pool, Machine: machine.DGXA100MIG()}
}

// DGXA100Balanced is a node that is a DGX A100 with each GPU cut into 2 x 1g.5gb,
// 1 x 2g.10gb and 1 x 3g.20gb.
func DGXA100Balanced(name, pool string) Node {
	return Node{Name: name, Pool: pool, Machine: machine.DGXA100Balanced()}
}

// Validate returns an error that names the first field that is wrong, the value
// and what is allowed. API is not looked at.
func (c Config) Validate() error {
	if c.Dir == "" {
		return errors.New("dir: is empty; name the folder for the nodes' files")
	}
	if len(c.Nodes) == 0 {
		return errors.New("nodes: is empty; describe at least one")
	}
	index := map[string]int{}
	for i, node := range c.Nodes {
		if err := node.validate(); err != nil {
			return fmt.Errorf("nodes[%d].%w", i, err)
		}
		if first, twice := index[node.Name]; twice {
			return fmt.Errorf("nodes[%d].name %q: is nodes[%d]'s already", i, node.Name, first)
		}
		index[node.Name] = i
	}
	return nil
}

func (n Node) validate() error {
	// The name is a label's value too (kubernetes.io/hostname), and a folder's.
	if errs := validation.IsDNS1123Label(n.Name); len(errs) > 0 {
		return fmt.Errorf("name %q: %s", n.Name, errs[0])
	}
	if errs := validation.IsValidLabelValue(n.Pool); n.Pool == "" || len(errs) > 0 {
		return fmt.Errorf("pool %q: must be a node pool's name, a label value that is not empty", n.Pool)
	}
	if err := n.Machine.Validate(); err != nil {
		return fmt.Errorf("machine.%w", err)
	}
	return nil
}
