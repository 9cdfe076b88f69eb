// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the configuration file of each Sluice binary: YAML with apiVersion
// and kind. It returns a typed configuration with defaults, or one error that names every
// invalid field with its value and what is allowed. [Common] is the part that all
// binaries share.
//
// Unknown and repeated fields are errors. Of the environment the package reads only KUBECONFIG, and it
// never merges files.
package config

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"sluice.dev/api/policytime"
)

// Common is the part of the configuration that all binaries share.
type Common struct {
	// Kubeconfig is the path of the kubeconfig. Default: that of the environment variable KUBECONFIG,
	// or without it the pod's ServiceAccount.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Metrics is the address, host:port, of the metrics endpoint for Prometheus. Default
	// ":8080"; "0" disables it.
	Metrics string `json:"metrics,omitempty"`
	// MetricsAccess is Authorized or Open. Authorized serves the metrics over TLS, to clients with a token of
	// the cluster that may get the path /metrics, as the ClusterRole sluice-metrics-reader allows. Open
	// serves them over HTTP to every client. Default Authorized.
	MetricsAccess MetricsAccess `json:"metricsAccess,omitempty"`
	// Profiling serves Go's profiles at /debug/pprof beside the metrics, with the same protection. The
	// ClusterRole sluice-profile-reader allows the path. Default false.
	Profiling bool `json:"profiling,omitempty"`
	// Health is the address, host:port, of /healthz and /readyz. Default ":8081".
	Health string `json:"health,omitempty"`
	// Logging configures the log output.
	Logging Logging `json:"logging,omitempty"`
	// ClockFile is the file with the policy time of an embedded cluster. Default: none,
	// policy time is real time.
	ClockFile string `json:"clockFile,omitempty"`
}

// MetricsAccess names the clients that may read the metrics.
type MetricsAccess string

// The kinds of access.
const (
	MetricsAuthorized MetricsAccess = "Authorized"
	MetricsOpen       MetricsAccess = "Open"
)

// DisabledAddress as an address disables the endpoint.
const DisabledAddress = "0"

// Default sets the fields that the file leaves out.
func (c *Common) Default() {
	if c.Metrics == "" {
		c.Metrics = ":8080"
	}
	if c.Health == "" {
		c.Health = ":8081"
	}
	if c.MetricsAccess == "" {
		c.MetricsAccess = MetricsAuthorized
	}
	c.Logging.Default()
}

// Validate returns all problems below path, which is nil at the top.
func (c *Common) Validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Metrics != DisabledAddress {
		errs = append(errs, ValidateAddress(path.Child("metrics"), c.Metrics)...)
	}
	errs = append(errs, ValidateAddress(path.Child("health"), c.Health)...)
	errs = append(errs, validateOneOf(path.Child("metricsAccess"), c.MetricsAccess, []MetricsAccess{MetricsAuthorized, MetricsOpen})...)
	return append(errs, c.Logging.Validate(path.Child("logging"))...)
}

// RESTConfig returns the client configuration for Kubeconfig, the environment variable KUBECONFIG or
// the pod's ServiceAccount, whichever is set first.
func (c *Common) RESTConfig() (*rest.Config, error) {
	source, path := "kubeconfig", c.Kubeconfig
	if path == "" {
		source, path = clientcmd.RecommendedConfigPathEnvVar, os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	if path == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: not set, nor is KUBECONFIG, and this is not a pod of a cluster: %w", err)
		}
		return withoutRateLimit(cfg), nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return withoutRateLimit(cfg), nil
}

// withoutRateLimit disables the client's rate limit. The API server shares its capacity among
// clients; the client's default of five requests a second would delay the end of a thousand
// workloads by minutes.
func withoutRateLimit(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}

// Clock returns the policy time for ClockFile. If the file becomes unusable later, the error is
// logged and the last policy time stays in force.
func (c *Common) Clock(logger logr.Logger) (policytime.Clock, error) {
	if c.ClockFile == "" {
		return policytime.System(), nil
	}
	return policytime.OpenFile(c.ClockFile, func(err error) {
		logger.Error(err, "Failed to read policy time, keeping the last one")
	})
}

// ValidateAddress returns the problems of a host:port to listen on.
func ValidateAddress(path *field.Path, value string) field.ErrorList {
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

// Logging configures the log output.
type Logging struct {
	// Level is debug, info (the default), warn or error.
	Level string `json:"level,omitempty"`
	// Format is json (the default), one object per line, or text.
	Format string `json:"format,omitempty"`
}

var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"json", "text"}
)

// Default sets the fields that the file leaves out.
func (l *Logging) Default() {
	if l.Level == "" {
		l.Level = "info"
	}
	if l.Format == "" {
		l.Format = "json"
	}
}

// Validate returns all problems below path.
func (l *Logging) Validate(path *field.Path) field.ErrorList {
	return append(
		validateOneOf(path.Child("level"), l.Level, logLevels),
		validateOneOf(path.Child("format"), l.Format, logFormats)...)
}

// SetupLogging returns a logger that writes to w, and sets it as the logger of client-go.
func (c *Common) SetupLogging(w io.Writer) logr.Logger {
	l := c.Logging
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // validated; else info
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if l.Format == "text" {
		handler = slog.NewTextHandler(w, options)
	}
	logger := logr.FromSlogHandler(handler)
	klog.SetLogger(logger)
	return logger
}

func validateOneOf[T ~string](path *field.Path, value T, allowed []T) field.ErrorList {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}
