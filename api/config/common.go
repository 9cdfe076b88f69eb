// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sluice.dev/api/clock"
)

// Common is what every binary's configuration has.
type Common struct {
	// Kubeconfig is the path of the kubeconfig to use. Default: the rights of
	// the pod's ServiceAccount.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Metrics is the address, host:port, that Prometheus reads over HTTP.
	// Default ":8080"; "0" serves none.
	Metrics string `json:"metrics,omitempty"`
	// Health is the address, host:port, of /healthz and /readyz over HTTP.
	// Default ":8081".
	Health string `json:"health,omitempty"`
	// Logging says how much is logged and in which form.
	Logging Logging `json:"logging,omitempty"`
	// ClockFile is the file from which policy time is read in an embedded
	// cluster. Default: none, policy time is real time.
	ClockFile string `json:"clockFile,omitempty"`
}

// Off as an address serves nothing.
const Off = "0"

// Default fills what was left open.
func (c *Common) Default() {
	if c.Metrics == "" {
		c.Metrics = ":8080"
	}
	if c.Health == "" {
		c.Health = ":8081"
	}
	c.Logging.Default()
}

// Validate tells all that is wrong below path, which is nil at the top.
func (c *Common) Validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Metrics != Off {
		errs = append(errs, Address(path.Child("metrics"), c.Metrics)...)
	}
	errs = append(errs, Address(path.Child("health"), c.Health)...)
	return append(errs, c.Logging.Validate(path.Child("logging"))...)
}

// Rest is the client configuration that Kubeconfig stands for.
func (c *Common) Rest() (*rest.Config, error) {
	if c.Kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: not set, and this is not a pod of a cluster: %w", err)
		}
		return unbraked(cfg), nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return unbraked(cfg), nil
}

// unbraked leaves it to the API server how many requests it takes at a time: it
// shares its time among its clients. Client-go's own default, five a second, would
// have the end of a thousand workloads take minutes.
func unbraked(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}

// Clock is the policy time that ClockFile stands for. Should the file become
// unusable later, the logger says so and the last policy time stays in force.
func (c *Common) Clock(logger logr.Logger) (clock.Clock, error) {
	if c.ClockFile == "" {
		return clock.System(), nil
	}
	return clock.OpenFile(c.ClockFile, func(err error) {
		logger.Error(err, "keeping the last policy time that could be read")
	})
}

// Address tells what is wrong with a host:port to listen on.
func Address(path *field.Path, value string) field.ErrorList {
	const want = `want host:port or :port, such as ":8080" or "127.0.0.1:8080"`
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, value, want)}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return field.ErrorList{field.Invalid(path, value, "the port is a number from 0 to 65535, where 0 takes any free one")}
	}
	return nil
}
