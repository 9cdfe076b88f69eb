// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration file of the lifecycle controller.
//
// Enters: YAML of kind LifecycleConfig. Leaves: a defaulted and validated
// [Config]. It never holds a secret.
package config

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
)

// Kind is the kind of the file.
const Kind = "LifecycleConfig"

// Config is the configuration of the lifecycle controller.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`

	// LeaderElection lets several replicas run, of which one acts.
	LeaderElection LeaderElection `json:"leaderElection,omitempty"`
	// GPUPodsOutside is what becomes of pods and claims that ask for a GPU outside
	// of projects: Warn or Deny. Default Warn; Deny is switched on deliberately,
	// once nobody depends on such pods any more.
	GPUPodsOutside GPUPodsOutside `json:"gpuPodsOutside,omitempty"`
	// DeviceClasses are DeviceClasses whose devices are GPUs, beside those of
	// NVIDIA's driver, which are known. Default none.
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// Identities are believed in addition to Kubernetes' own.
	Identities Identities `json:"identities,omitempty"`
	// Stopping says how workloads are stopped whose time is over.
	Stopping Stopping `json:"stopping,omitempty"`
	// Mail says how people are written to. Without it nothing is sent.
	Mail *Mail `json:"mail,omitempty"`
}

// GPUPodsOutside is Warn or Deny.
type GPUPodsOutside string

// What may become of pods that ask for a GPU outside of projects.
const (
	Warn GPUPodsOutside = "Warn"
	Deny GPUPodsOutside = "Deny"
)

// Identities are users, by their names in Kubernetes, that may do in projects
// what others may not. A name that ends in * stands for all that begin so.
type Identities struct {
	// Binders may bind pods to nodes. kube-scheduler is one in any case.
	Binders []string `json:"binders,omitempty"`
	// Controllers are believed when they say that they control a pod. Those of
	// Kubernetes are in any case; name here the operators that make pods.
	Controllers []string `json:"controllers,omitempty"`
	// Queues may hold pods back and let them go, and write what is in the queue. The
	// service account kueue-controller-manager in kueue-system is one in any case.
	Queues []string `json:"queues,omitempty"`
	// Managers may change what Sluice manages. Lifecycle is one in any case.
	Managers []string `json:"managers,omitempty"`
}

func (i Identities) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, list := range map[string][]string{"binders": i.Binders, "controllers": i.Controllers, "queues": i.Queues, "managers": i.Managers} {
		for at, user := range list {
			// A lone * would believe everybody.
			if user == "" || user == "*" || strings.ContainsAny(user, "\n\r") || strings.Contains(strings.TrimSuffix(user, "*"), "*") {
				errs = append(errs, field.Invalid(path.Child(name).Index(at), user, "want a user's name in one line, or the beginning of some followed by *"))
			}
		}
	}
	return errs
}

// AdmissionParameters returns the parameters of the admission policies that the file adds.
func (c *Config) AdmissionParameters() v1alpha1.AdmissionParametersSpec {
	return v1alpha1.AdmissionParametersSpec{
		Binders:       userPatterns(c.Identities.Binders),
		Controllers:   userPatterns(c.Identities.Controllers),
		Queues:        userPatterns(c.Identities.Queues),
		Managers:      userPatterns(c.Identities.Managers),
		DeviceClasses: c.DeviceClasses,
	}
}

func userPatterns(names []string) []v1alpha1.UserPattern {
	patterns := make([]v1alpha1.UserPattern, len(names))
	for i, name := range names {
		patterns[i] = v1alpha1.UserPattern(name)
	}
	return patterns
}

// LeaderElection says whether replicas elect one that acts, and where.
type LeaderElection struct {
	// Disabled runs without election: for a single replica. Default false.
	Disabled bool `json:"disabled,omitempty"`
	// Namespace is where the Lease lies. Default sluice-system.
	Namespace string `json:"namespace,omitempty"`
}

var _ config.File = (*Config)(nil)

// Kind implements config.File.
func (c *Config) Kind() string { return Kind }

// Type implements config.File.
func (c *Config) Type() metav1.TypeMeta { return c.TypeMeta }

// Default implements config.File.
func (c *Config) Default() {
	c.Common.Default()
	if c.LeaderElection.Namespace == "" {
		c.LeaderElection.Namespace = v1alpha1.SystemNamespace
	}
	if c.GPUPodsOutside == "" {
		c.GPUPodsOutside = Warn
	}
	c.Stopping.StopLimiter.setDefaults()
	c.Mail.setDefaults()
}

// Validate implements config.File.
func (c *Config) Validate() field.ErrorList {
	errs := c.Common.Validate(nil)
	for _, problem := range validation.IsDNS1123Label(c.LeaderElection.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("leaderElection", "namespace"), c.LeaderElection.Namespace, problem))
	}
	if c.GPUPodsOutside != Warn && c.GPUPodsOutside != Deny {
		errs = append(errs, field.NotSupported(field.NewPath("gpuPodsOutside"), c.GPUPodsOutside, []GPUPodsOutside{Warn, Deny}))
	}
	for at, class := range c.DeviceClasses {
		for _, problem := range validation.IsDNS1123Subdomain(class) {
			errs = append(errs, field.Invalid(field.NewPath("deviceClasses").Index(at), class, problem))
		}
	}
	errs = append(errs, c.Identities.validate(field.NewPath("identities"))...)
	errs = append(errs, c.Stopping.validate(field.NewPath("stopping"))...)
	return append(errs, c.Mail.validate(field.NewPath("mail"))...)
}

// Stopping says how workloads are stopped whose time is over.
type Stopping struct {
	// StopLimiter keeps very many from being stopped at once.
	StopLimiter StopLimiter `json:"brake,omitempty"`
	// DeleteUnknownKinds has a workload deleted, with its pods, that is of a kind
	// which Sluice does not know and which has neither spec.suspend nor a scale
	// subresource. Default false: that it cannot be stopped is only reported.
	DeleteUnknownKinds bool `json:"deleteUnknownKinds,omitempty"`
}

// StopLimiter is how many workloads may be stopped within an hour of policy time. What
// is more than both engages the brake: then none is stopped until an administrator
// releases it.
type StopLimiter struct {
	// Percent is the share of the running workloads, 0 to 100. Default 30; with 100
	// the brake is never engaged.
	Percent *int `json:"percent,omitempty"`
	// Workloads is how many, at least 0. Default 50.
	Workloads *int `json:"workloads,omitempty"`
}

// The brake where nobody sets it.
const (
	defaultStopLimiterPercent   = 30
	defaultStopLimiterWorkloads = 50
)

func (b *StopLimiter) setDefaults() {
	if b.Percent == nil {
		b.Percent = ptr.To(defaultStopLimiterPercent)
	}
	if b.Workloads == nil {
		b.Workloads = ptr.To(defaultStopLimiterWorkloads)
	}
}

func (s *Stopping) validate(path *field.Path) (errs field.ErrorList) {
	if p := ptr.Deref(s.StopLimiter.Percent, 0); p < 0 || p > 100 {
		errs = append(errs, field.Invalid(path.Child("brake", "percent"), p, "want 0 to 100"))
	}
	if n := ptr.Deref(s.StopLimiter.Workloads, 0); n < 0 {
		errs = append(errs, field.Invalid(path.Child("brake", "workloads"), n, "want 0 or more"))
	}
	return errs
}
