// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the one configuration file that each of Sluice's
// binaries has.
//
// Enters: a YAML file with apiVersion and kind. Leaves: a typed, defaulted and
// validated configuration, or one error that names every wrong field with its
// value and what is allowed. [Common] is the part that all binaries share.
//
// It is strict: an unknown or repeated field is an error, never ignored. It
// never reads the environment and never merges files.
package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
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

// DisabledAddress as an address serves nothing.
const DisabledAddress = "0"

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
	if c.Metrics != DisabledAddress {
		errs = append(errs, ValidateAddress(path.Child("metrics"), c.Metrics)...)
	}
	errs = append(errs, ValidateAddress(path.Child("health"), c.Health)...)
	return append(errs, c.Logging.Validate(path.Child("logging"))...)
}

// RESTConfig is the client configuration that Kubeconfig stands for.
func (c *Common) RESTConfig() (*rest.Config, error) {
	if c.Kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: not set, and this is not a pod of a cluster: %w", err)
		}
		return withoutRateLimit(cfg), nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return withoutRateLimit(cfg), nil
}

// withoutRateLimit leaves it to the API server how many requests it takes at a time: it
// shares its time among its clients. Client-go's own default, five a second, would
// have the end of a thousand workloads take minutes.
func withoutRateLimit(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}

// Clock is the policy time that ClockFile stands for. Should the file become
// unusable later, the logger says so and the last policy time stays in force.
func (c *Common) Clock(logger logr.Logger) (policytime.Clock, error) {
	if c.ClockFile == "" {
		return policytime.System(), nil
	}
	return policytime.OpenFile(c.ClockFile, func(err error) {
		logger.Error(err, "keeping the last policy time that could be read")
	})
}

// ValidateAddress tells what is wrong with a host:port to listen on.
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

// Logging says how much is logged and in which form.
type Logging struct {
	// Level is debug, info, warn or error. Default info.
	Level string `json:"level,omitempty"`
	// Format is json, one object a line, or text. Default json.
	Format string `json:"format,omitempty"`
}

var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"json", "text"}
)

// Default fills what was left open.
func (l *Logging) Default() {
	if l.Level == "" {
		l.Level = "info"
	}
	if l.Format == "" {
		l.Format = "json"
	}
}

// Validate tells all that is wrong below path.
func (l *Logging) Validate(path *field.Path) field.ErrorList {
	return append(
		validateOneOf(path.Child("level"), l.Level, logLevels),
		validateOneOf(path.Child("format"), l.Format, logFormats)...)
}

// SetupLogging makes a logger that writes to w, and makes it the one of the
// Kubernetes libraries too.
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
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return logger
}

func validateOneOf(path *field.Path, value string, allowed []string) field.ErrorList {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

// ManagerOptions are the options of a controller-runtime manager that this
// configuration stands for; the caller adds its own.
func (c *Common) ManagerOptions(logger logr.Logger) (ctrl.Options, error) {
	kinds, err := api.NewScheme()
	return ctrl.Options{
		Scheme:                 kinds,
		Logger:                 logger,
		Metrics:                metricsserver.Options{BindAddress: c.Metrics},
		HealthProbeBindAddress: c.Health,
	}, err
}

// AddHealthChecks makes mgr answer /healthz, and /readyz once its caches are filled
// and every check in ready passes.
func AddHealthChecks(mgr ctrl.Manager, ready map[string]healthz.Checker) error {
	errs := []error{
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", func(req *http.Request) error {
			if !mgr.GetCache().WaitForCacheSync(req.Context()) {
				return errors.New("the caches are not filled yet")
			}
			return nil
		}),
	}
	for name, check := range ready {
		errs = append(errs, mgr.AddReadyzCheck(name, check))
	}
	return errors.Join(errs...)
}
