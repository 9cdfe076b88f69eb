// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/config"
)

// ConfigKind is the kind of the configuration file.
const ConfigKind = "GPUAgentConfig"

// NodeNameVariable is the environment variable that names the node if the file does not. One file
// so serves all nodes.
const NodeNameVariable = "NODE_NAME"

// maxSocketPath is the maximal length of a Unix socket's path, in bytes.
const maxSocketPath = 107

// Config is the agent's configuration. It never holds a secret.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`

	// NodeName is the node on which the agent runs. Default: the environment variable NODE_NAME.
	NodeName string `json:"nodeName,omitempty"`
	// Driver is the driver of the node's GPUs.
	Driver Driver `json:"driver,omitempty"`
	// Proc is the root of the host's procfs. Default "/proc". In a container it is a mount of the
	// host's /proc, since NVIDIA's runtime may hide the driver's files in the container's own.
	Proc string `json:"proc,omitempty"`
	// Sys is the root of sysfs, which shows when the driver was loaded. Default "/sys".
	Sys string `json:"sys,omitempty"`
	// HostRoot is the folder below which the host's folders are mounted: dev, for the device nodes of
	// MIG devices, that of DriverRoot, and etc/systemd/system, which shows whether the host's MIG
	// manager is enabled. Default "/host". For an agent outside of containers it is "/".
	HostRoot string `json:"hostRoot,omitempty"`
	// DriverRoot is the folder on the host with the root of the container that contains the driver.
	// Without such a container the folder need not exist. Default "/run/nvidia/driver", as in the
	// GPU operator.
	DriverRoot string `json:"driverRoot,omitempty"`
	// PodResources is the socket on which the kubelet reports the devices of pods. Default
	// "/var/lib/kubelet/pod-resources/kubelet.sock".
	PodResources string `json:"podResources,omitempty"`
	// StateDir is the folder of the agent's journal and socket. It has to outlive the agent, and no
	// other program may use it. Default "/var/lib/sluice/gpuagent".
	StateDir string `json:"stateDir,omitempty"`
	// DevicePlugin finds the NVIDIA device plugin, which has to enumerate its devices after each
	// change.
	DevicePlugin Daemon `json:"devicePlugin,omitempty"`
	// DCGMExporter finds dcgm-exporter, which reports new MIG devices only after it has been reloaded.
	// It need not run. On A100 and A30 in MIG mode it is the source of the utilization.
	DCGMExporter Exporter `json:"dcgmExporter,omitempty"`
	// Intervals are the agent's intervals.
	Intervals Intervals `json:"intervals,omitempty"`
}

// Driver is the driver of the node's GPUs.
type Driver struct {
	// Library is the path of libnvidia-ml.so.1. Default: the path that the dynamic linker finds.
	Library string `json:"library,omitempty"`
}

// Daemon finds a program among the node's processes.
type Daemon struct {
	// Command is the start of its command line, the program without its folder: "dcgm-exporter" or
	// "sluice-lab simulate kubelet". Default "nvidia-device-plugin" and "dcgm-exporter".
	Command string `json:"command,omitempty"`
}

// Exporter is dcgm-exporter.
type Exporter struct {
	Daemon `json:",inline"`
	// Namespaces are the namespaces in which its pod may run. No user may create pods in them, who could
	// pose as it. Default: gpu-operator, kube-system and nvidia-gpu-operator.
	Namespaces []string `json:"namespaces,omitempty"`
	// Interval is the interval at which it collects (its option --collect-interval), 1s to 5m. Default 30s.
	Interval metav1.Duration `json:"interval,omitempty"`
}

var _ config.File = (*Config)(nil)

// Kind implements config.File.
func (c *Config) Kind() string { return ConfigKind }

// Type implements config.File.
func (c *Config) Type() metav1.TypeMeta { return c.TypeMeta }

// Default implements config.File.
func (c *Config) Default() {
	c.Common.Default()
	for at, value := range map[*string]string{
		&c.NodeName:             os.Getenv(NodeNameVariable),
		&c.Proc:                 "/proc",
		&c.Sys:                  "/sys",
		&c.HostRoot:             "/host",
		&c.DriverRoot:           "/run/nvidia/driver",
		&c.PodResources:         "/var/lib/kubelet/pod-resources/kubelet.sock",
		&c.StateDir:             "/var/lib/sluice/gpuagent",
		&c.DevicePlugin.Command: "nvidia-device-plugin",
		&c.DCGMExporter.Command: "dcgm-exporter",
	} {
		if *at == "" {
			*at = value
		}
	}
	if c.DCGMExporter.Namespaces == nil {
		c.DCGMExporter.Namespaces = []string{"gpu-operator", "kube-system", "nvidia-gpu-operator"}
	}
	if c.DCGMExporter.Interval.Duration == 0 {
		c.DCGMExporter.Interval.Duration = 30 * time.Second
	}
	c.Intervals.setDefaults()
}

// onHost returns the path at which the agent sees a path of the host; "" if it sees none.
func (c *Config) onHost(path string) string {
	if c.HostRoot == "" {
		return ""
	}
	return filepath.Join(c.HostRoot, path)
}

// Socket returns the socket on which the agent serves its observed state, read-only.
func (c *Config) Socket() string { return filepath.Join(c.StateDir, "agent.sock") }

// Journal returns the folder of the agent's journal.
func (c *Config) Journal() string { return filepath.Join(c.StateDir, "journal") }

// Validate implements config.File.
func (c *Config) Validate() field.ErrorList {
	errs := c.Common.Validate(nil)
	name := field.NewPath("nodeName")
	if c.NodeName == "" {
		errs = append(errs, field.Required(name, "want the node's name, in the file or in the environment variable "+NodeNameVariable))
	} else {
		for _, problem := range validation.IsDNS1123Subdomain(c.NodeName) {
			errs = append(errs, field.Invalid(name, c.NodeName, problem))
		}
	}
	for path, value := range map[*field.Path]string{
		field.NewPath("proc"):              c.Proc,
		field.NewPath("sys"):               c.Sys,
		field.NewPath("hostRoot"):          c.HostRoot,
		field.NewPath("driverRoot"):        c.DriverRoot,
		field.NewPath("podResources"):      c.PodResources,
		field.NewPath("stateDir"):          c.StateDir,
		field.NewPath("driver", "library"): c.Driver.Library,
	} {
		if value != "" && !filepath.IsAbs(value) {
			errs = append(errs, field.Invalid(path, value, "want an absolute path"))
		}
	}
	for path, socket := range map[*field.Path]string{
		field.NewPath("podResources"): c.PodResources,
		field.NewPath("stateDir"):     c.Socket(),
	} {
		if len(socket) > maxSocketPath {
			errs = append(errs, field.TooLong(path, socket, maxSocketPath))
		}
	}
	for name, command := range map[string]string{"devicePlugin": c.DevicePlugin.Command, "dcgmExporter": c.DCGMExporter.Command} {
		if words := strings.Fields(command); len(words) == 0 || strings.Contains(words[0], "/") {
			errs = append(errs, field.Invalid(field.NewPath(name, "command"), command,
				"want the start of a command line, the program without its folder, such as nvidia-device-plugin"))
		}
	}
	exporter := field.NewPath("dcgmExporter")
	for i, name := range c.DCGMExporter.Namespaces {
		for _, problem := range validation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(exporter.Child("namespaces").Index(i), name, problem))
		}
	}
	if interval := c.DCGMExporter.Interval; interval.Duration < time.Second || interval.Duration > 5*time.Minute {
		errs = append(errs, field.Invalid(exporter.Child("interval"), interval.Duration.String(), "want 1s to 5m0s"))
	}
	return append(errs, c.Intervals.validate(field.NewPath("intervals"))...)
}

// Intervals are the agent's intervals in machine time.
type Intervals struct {
	// Observe is the interval at which the agent observes the GPUs, their processes and the
	// kubelet, 200ms to 1m. It reacts to changes in the cluster at once. Default 2s.
	Observe metav1.Duration `json:"observe,omitempty"`
	// Sample is the interval at which the agent samples the use of the GPUs, 200ms to 30s. Default 1s.
	Sample metav1.Duration `json:"sample,omitempty"`
	// Report is the shortest time between two reports of the use in the GPUNode, 1s to 1m. Changes of
	// the GPUs and of the pods with GPUs are reported at once. Default 30s.
	Report metav1.Duration `json:"report,omitempty"`
	// Retry is the longest wait before a retry, as for a missing driver or a layout in use. The
	// first wait is a second. 1s to 10m; default 30s.
	Retry metav1.Duration `json:"retry,omitempty"`
	// CallTimeout is the time after which a hung driver call makes the agent unhealthy, so that it
	// is restarted. 10s to 30m; default 2m.
	CallTimeout metav1.Duration `json:"callTimeout,omitempty"`
}

// The default intervals.
const (
	defaultObserveInterval = 2 * time.Second
	defaultSampleInterval  = time.Second
	defaultReportInterval  = 30 * time.Second
	defaultRetryInterval   = 30 * time.Second
	defaultCallTimeout     = 2 * time.Minute
)

func (i *Intervals) setDefaults() {
	for at, value := range map[*metav1.Duration]time.Duration{
		&i.Observe:     defaultObserveInterval,
		&i.Sample:      defaultSampleInterval,
		&i.Report:      defaultReportInterval,
		&i.Retry:       defaultRetryInterval,
		&i.CallTimeout: defaultCallTimeout,
	} {
		if at.Duration == 0 {
			at.Duration = value
		}
	}
}

func (i *Intervals) validate(path *field.Path) (errs field.ErrorList) {
	for _, each := range []struct {
		name        string
		value       metav1.Duration
		least, most time.Duration
	}{
		{"observe", i.Observe, 200 * time.Millisecond, time.Minute},
		{"sample", i.Sample, 200 * time.Millisecond, 30 * time.Second},
		{"report", i.Report, time.Second, time.Minute},
		{"retry", i.Retry, time.Second, 10 * time.Minute},
		{"callTimeout", i.CallTimeout, 10 * time.Second, 30 * time.Minute},
	} {
		if each.value.Duration < each.least || each.value.Duration > each.most {
			errs = append(errs, field.Invalid(path.Child(each.name), each.value.Duration.String(),
				"want "+each.least.String()+" to "+each.most.String()))
		}
	}
	return errs
}
