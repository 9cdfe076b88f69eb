// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/config"
)

// Kind is the kind of the file.
const Kind = "GPUAgentConfig"

// NodeNameVariable is the variable of the environment that names the node where the
// file does not.
const NodeNameVariable = "NODE_NAME"

// maxSocketPath is as long, in bytes, as the path of a Unix socket may be.
const maxSocketPath = 107

// Config is the configuration of a node's agent.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`

	// NodeName is the node on which the agent runs. Default: the variable NODE_NAME of
	// the environment.
	NodeName string `json:"nodeName,omitempty"`
	// Driver is the driver of the node's GPUs.
	Driver Driver `json:"driver,omitempty"`
	// Proc is the root of the host's procfs. Default "/proc", which is the host's in a
	// pod with hostPID.
	Proc string `json:"proc,omitempty"`
	// PodResources is the socket on which the kubelet says which pod has which device.
	// Default "/var/lib/kubelet/pod-resources/kubelet.sock".
	PodResources string `json:"podResources,omitempty"`
	// StateDir is the folder in which the agent keeps its journal and its own socket.
	// It has to survive the agent, and belongs to it alone. Default
	// "/var/lib/sluice/gpuagent".
	StateDir string `json:"stateDir,omitempty"`
	// DevicePlugin is how the NVIDIA device plugin is found, which has to look again
	// after each change.
	DevicePlugin DevicePlugin `json:"devicePlugin,omitempty"`
	// Intervals say how often what is looked at.
	Intervals Intervals `json:"intervals,omitempty"`
}

// Driver is the driver of the node's GPUs: NVIDIA's library, or a simulator.
type Driver struct {
	// Library is the path of libnvidia-ml.so.1. Default: where the system's linker
	// finds it.
	Library string `json:"library,omitempty"`
	// Simulator is the socket of a simulated driver, in place of the library. Default
	// none.
	Simulator string `json:"simulator,omitempty"`
}

// DevicePlugin is how the NVIDIA device plugin is found among the node's processes.
type DevicePlugin struct {
	// Command is how its command line begins, the program without its folder:
	// "nvidia-device-plugin", which is the default, or "sluice fakekubelet".
	Command string `json:"command,omitempty"`
}

var _ config.File = (*Config)(nil)

// Kind implements config.File.
func (c *Config) Kind() string { return Kind }

// Type implements config.File.
func (c *Config) Type() metav1.TypeMeta { return c.TypeMeta }

// Default implements config.File.
func (c *Config) Default() {
	c.Common.Default()
	for at, value := range map[*string]string{
		&c.NodeName:             os.Getenv(NodeNameVariable),
		&c.Proc:                 "/proc",
		&c.PodResources:         "/var/lib/kubelet/pod-resources/kubelet.sock",
		&c.StateDir:             "/var/lib/sluice/gpuagent",
		&c.DevicePlugin.Command: "nvidia-device-plugin",
	} {
		if *at == "" {
			*at = value
		}
	}
	c.Intervals.fill()
}

// Socket is where the agent tells what it sees, to read only.
func (c *Config) Socket() string { return filepath.Join(c.StateDir, "agent.sock") }

// Journal is the folder of the agent's journal.
func (c *Config) Journal() string { return filepath.Join(c.StateDir, "journal") }

// Validate implements config.File.
func (c *Config) Validate() field.ErrorList {
	errs := c.Common.Validate(nil)
	name := field.NewPath("nodeName")
	if c.NodeName == "" {
		errs = append(errs, field.Required(name, "want the node's name, here or in the environment as "+NodeNameVariable))
	} else {
		for _, problem := range validation.IsDNS1123Subdomain(c.NodeName) {
			errs = append(errs, field.Invalid(name, c.NodeName, problem))
		}
	}
	for path, value := range map[*field.Path]string{
		field.NewPath("proc"):                c.Proc,
		field.NewPath("podResources"):        c.PodResources,
		field.NewPath("stateDir"):            c.StateDir,
		field.NewPath("driver", "library"):   c.Driver.Library,
		field.NewPath("driver", "simulator"): c.Driver.Simulator,
	} {
		if value != "" && !filepath.IsAbs(value) {
			errs = append(errs, field.Invalid(path, value, "want an absolute path"))
		}
	}
	for path, socket := range map[*field.Path]string{
		field.NewPath("podResources"):        c.PodResources,
		field.NewPath("stateDir"):            c.Socket(),
		field.NewPath("driver", "simulator"): c.Driver.Simulator,
	} {
		if len(socket) > maxSocketPath {
			errs = append(errs, field.TooLong(path, socket, maxSocketPath))
		}
	}
	if c.Driver.Library != "" && c.Driver.Simulator != "" {
		errs = append(errs, field.Invalid(field.NewPath("driver"), c.Driver, "want a library or a simulator, not both"))
	}
	if words := strings.Fields(c.DevicePlugin.Command); len(words) == 0 || strings.Contains(words[0], "/") {
		errs = append(errs, field.Invalid(field.NewPath("devicePlugin", "command"), c.DevicePlugin.Command,
			"want how a command line begins, the program without its folder, such as nvidia-device-plugin"))
	}
	return append(errs, c.Intervals.validate(field.NewPath("intervals"))...)
}
