// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package fakekubelet

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/config"
	"sluice.dev/test/lab/cluster/fakekubelet/devices"
	"sluice.dev/test/lab/cluster/fakekubelet/streaming"
)

// Config configures the simulated nodes. Its fields with names in YAML are those of the
// configuration file.
type Config struct {
	// Kubeconfig is the path of the file from which LoadConfig sets API. Run does not read
	// it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Dir holds the nodes' files, in nodes/<node>. Run creates it (0700) if necessary.
	// Required, and short: a socket's path is limited to 107 bytes.
	Dir string `json:"dir"`
	// Nodes lists the nodes, at least one. The package ignores pods on other nodes.
	Nodes []Node `json:"nodes"`
	// Streams configures the kubelet's API for logs, exec, attach and port-forward, on
	// StreamSocket. Without it the nodes serve none.
	Streams *streaming.Config `json:"streams,omitempty"`

	// API is the client configuration for the API server, with the rights in RBAC.
	// Required.
	API *rest.Config `json:"-"`
	// Log is the logger; the default is slog.Default().
	Log *slog.Logger `json:"-"`
}

// Node is one simulated node.
type Node struct {
	// Name of the Node object.
	Name string `json:"name"`
	// Pool is the value of its label sluice.dev/node-pool.
	Pool string `json:"pool"`
	// Machine describes its hardware.
	Machine devices.Machine `json:"machine"`
}

// DGXA100 returns a node that is a DGX A100 with eight whole GPUs.
func DGXA100(name, pool string) Node {
	return Node{Name: name, Pool: pool, Machine: devices.DGXA100()}
}

// DGXA100MIG returns a node that is a DGX A100 whose GPUs are in MIG mode without
// instances.
func DGXA100MIG(name, pool string) Node {
	return Node{Name: name, Pool: pool, Machine: devices.DGXA100MIG()}
}

// DGXA100Balanced returns a node that is a DGX A100 with each GPU partitioned into 2 x
// 1g.5gb, 1 x 2g.10gb and 1 x 3g.20gb.
func DGXA100Balanced(name, pool string) Node {
	return Node{Name: name, Pool: pool, Machine: devices.DGXA100Balanced()}
}

// Validate returns an error that names the first invalid field, its value and the allowed
// values. It does not check API.
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
	if c.Streams != nil {
		if err := c.Streams.Validate(); err != nil {
			return fmt.Errorf("streams.%w", err)
		}
	}
	return nil
}

func (n Node) validate() error {
	// The name is also a label value (kubernetes.io/hostname) and the name of a folder.
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

const kind = "FakeKubeletConfig"

// configFile is the format of the file, with its version.
type configFile struct {
	metav1.TypeMeta `json:",inline"`
	Config          `json:",inline"`
}

// LoadConfig reads a configuration file (YAML, apiVersion config.sluice.dev/v1alpha1, kind
// FakeKubeletConfig) and the kubeconfig that it names. Its paths are relative to the file.
// Unknown fields are errors.
func LoadConfig(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	c, err := parseConfig(raw)
	if err != nil {
		return Config{}, fmt.Errorf("fake kubelet's configuration %s: %w", path, err)
	}
	base := filepath.Dir(path)
	c.Dir, c.Kubeconfig = resolveRelative(base, c.Dir), resolveRelative(base, c.Kubeconfig)
	if s := c.Streams; s != nil {
		s.Certificate, s.Key, s.ClientCA = resolveRelative(base, s.Certificate), resolveRelative(base, s.Key), resolveRelative(base, s.ClientCA)
	}
	if c.API, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return Config{}, fmt.Errorf("fake kubelet's configuration %s: kubeconfig: %w", path, err)
	}
	return c, nil
}

// WriteConfig writes a configuration file (0600) that LoadConfig reads. The file does not
// contain API and Log.
func WriteConfig(path string, c Config) error {
	if err := validateFile(c); err != nil {
		return fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	raw, err := yaml.Marshal(configFile{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: kind},
		Config:   c,
	})
	if err != nil {
		return fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("fake kubelet's configuration: %w", err)
	}
	return nil
}

func parseConfig(raw []byte) (Config, error) {
	var file configFile
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return Config{}, err
	}
	if file.APIVersion != config.APIVersion || file.Kind != kind {
		return Config{}, fmt.Errorf("apiVersion %q and kind %q: must be %s and %s", file.APIVersion, file.Kind, config.APIVersion, kind)
	}
	return file.Config, validateFile(file.Config)
}

func validateFile(c Config) error {
	if c.Kubeconfig == "" {
		return errors.New("kubeconfig: is empty; name the file for the connection to the API server")
	}
	return c.Validate()
}

func resolveRelative(base, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}

// RBAC holds, as YAML documents, the fake kubelet's ServiceAccount (fakekubelet, in
// namespace sluice-sim, which is not among them) and its rights.
//
//go:embed rbac.yaml
var RBAC []byte
