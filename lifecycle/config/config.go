// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config defines the configuration file of lifecycle: YAML of kind LifecycleConfig,
// with defaults and validation. The file refers to Secrets and contains none.
package config

import (
	"cmp"
	"strings"
	"time"

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

	// LeaderElection allows several replicas, of which one is active.
	LeaderElection LeaderElection `json:"leaderElection,omitempty"`
	// GPUPodsOutside is the action for pods and claims that request a GPU outside of
	// projects: Warn or Deny. Default Warn. Set Deny when no such pods are needed any more.
	GPUPodsOutside GPUPodsOutside `json:"gpuPodsOutside,omitempty"`
	// DeviceClasses are DeviceClasses of GPUs, in addition to those of NVIDIA's driver.
	// Default none.
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// MaxLabels is the largest number of labels of a pod, a workload or its pod template in a
	// project, 64 to 4096. The labels of Sluice do not count. Default 256.
	MaxLabels int32 `json:"maxLabels,omitempty"`
	// MaxAnnotations is the same for annotations. Default 256.
	MaxAnnotations int32 `json:"maxAnnotations,omitempty"`
	// PodTemplates are kinds that Sluice does not know and that create pods, as in the AdmissionParameters. The rules of
	// the webhook configurations need them, too: the chart's value workloadKinds sets both. Default none.
	PodTemplates []v1alpha1.PodTemplates `json:"podTemplates,omitempty"`
	// Identities are trusted in addition to those of Kubernetes.
	Identities Identities `json:"identities,omitempty"`
	// Stopping configures how workloads are stopped at their time limit.
	Stopping Stopping `json:"stopping,omitempty"`
	// Eviction configures how single pods are evicted.
	Eviction Eviction `json:"eviction,omitempty"`
	// Audit configures the audit of objects that exist.
	Audit Audit `json:"audit,omitempty"`
	// Mail configures the mail server. Without it no mail is sent.
	Mail *Mail `json:"mail,omitempty"`
}

// GPUPodsOutside is an action for pods that request a GPU outside of projects.
type GPUPodsOutside string

// The actions.
const (
	Warn GPUPodsOutside = "Warn"
	Deny GPUPodsOutside = "Deny"
)

// Identities are Kubernetes users with special permissions in projects. A trailing * matches
// every suffix.
type Identities struct {
	// Binders may bind pods to nodes, in addition to kube-scheduler.
	Binders []string `json:"binders,omitempty"`
	// Controllers may set controller references on pods, in addition to the controllers of
	// Kubernetes. Add the operators that create pods.
	Controllers []string `json:"controllers,omitempty"`
	// Queues may set and remove scheduling gates and write queue objects, in addition to the
	// service account kueue-controller-manager in kueue-system.
	Queues []string `json:"queues,omitempty"`
	// Managers may change the objects that Sluice manages, in addition to lifecycle.
	Managers []string `json:"managers,omitempty"`
}

func (i Identities) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	lists := map[string][]string{"binders": i.Binders, "controllers": i.Controllers, "queues": i.Queues, "managers": i.Managers}
	for name, list := range lists {
		for at, user := range list {
			// A lone * would trust every user.
			if user == "" || user == "*" || strings.ContainsAny(user, "\n\r") || strings.Contains(strings.TrimSuffix(user, "*"), "*") {
				errs = append(errs, field.Invalid(path.Child(name).Index(at), user, "must be a user name in one line, or a prefix followed by *"))
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
		PodTemplates:  c.PodTemplates,

		MaxLabels: c.MaxLabels, MaxAnnotations: c.MaxAnnotations,
	}
}

func userPatterns(names []string) []v1alpha1.UserPattern {
	patterns := make([]v1alpha1.UserPattern, len(names))
	for i, name := range names {
		patterns[i] = v1alpha1.UserPattern(name)
	}
	return patterns
}

// LeaderElection configures the election of the active replica.
type LeaderElection struct {
	// Disabled disables the election, for a single replica. Default false.
	Disabled bool `json:"disabled,omitempty"`
	// Namespace is the namespace of the Lease. Default sluice-system.
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
	c.MaxLabels = cmp.Or(c.MaxLabels, v1alpha1.DefaultMaxLabels)
	c.MaxAnnotations = cmp.Or(c.MaxAnnotations, v1alpha1.DefaultMaxAnnotations)
	c.Stopping.StopLimiter.setDefaults()
	if c.Stopping.RetryInterval.Duration == 0 {
		c.Stopping.RetryInterval.Duration = defaultRetryInterval
	}
	c.Eviction.setDefaults()
	c.Audit.setDefaults()
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
	for name, number := range map[string]int32{"maxLabels": c.MaxLabels, "maxAnnotations": c.MaxAnnotations} {
		if number < 64 || number > 4096 {
			errs = append(errs, field.Invalid(field.NewPath(name), number, "must be 64 to 4096"))
		}
	}
	for at, class := range c.DeviceClasses {
		for _, problem := range validation.IsDNS1123Subdomain(class) {
			errs = append(errs, field.Invalid(field.NewPath("deviceClasses").Index(at), class, problem))
		}
	}
	errs = append(errs, c.Identities.validate(field.NewPath("identities"))...)
	errs = append(errs, c.Stopping.validate(field.NewPath("stopping"))...)
	errs = append(errs, c.Eviction.validate(field.NewPath("eviction"))...)
	errs = append(errs, c.Audit.validate(field.NewPath("audit"))...)
	return append(errs, c.Mail.validate(field.NewPath("mail"))...)
}

// Stopping configures how workloads are stopped at their time limit.
type Stopping struct {
	// StopLimiter prevents mass stops.
	StopLimiter StopLimiter `json:"stopLimiter,omitempty"`
	// DeleteUnknownKinds deletes workloads of an unknown kind with neither spec.suspend nor a
	// scale subresource, with their pods. Default false: they are reported as Unstoppable.
	DeleteUnknownKinds bool `json:"deleteUnknownKinds,omitempty"`
	// RetryInterval is the pause before the second attempt to stop a workload whose pods run on, 1s to
	// 10m. Each further pause is twice as long, up to twenty times this. Default 30s.
	RetryInterval metav1.Duration `json:"retryInterval,omitempty"`
}

// StopLimiter limits the workloads of a department that may be stopped within an hour of
// policy time, at an end that a changed limit or a step of Sluice's own brought forward. If
// both limits are exceeded, none of these is stopped until an administrator releases the
// limiter. Other ends never count and never wait.
type StopLimiter struct {
	// Percent is the share of the department's running workloads, 0 to 100. Default 30; 100 disables the
	// limiter.
	Percent *int `json:"percent,omitempty"`
	// Workloads is the number of workloads, at least 0. Default 50.
	Workloads *int `json:"workloads,omitempty"`
}

// The limits of the RetryInterval, and its default.
const (
	defaultRetryInterval = 30 * time.Second
	minRetryInterval     = time.Second
	maxRetryInterval     = 10 * time.Minute
)

// The defaults of the StopLimiter.
const (
	defaultStopLimiterPercent   = 30
	defaultStopLimiterWorkloads = 50
)

func (l *StopLimiter) setDefaults() {
	if l.Percent == nil {
		l.Percent = ptr.To(defaultStopLimiterPercent)
	}
	if l.Workloads == nil {
		l.Workloads = ptr.To(defaultStopLimiterWorkloads)
	}
}

func (s *Stopping) validate(path *field.Path) (errs field.ErrorList) {
	if p := ptr.Deref(s.StopLimiter.Percent, 0); p < 0 || p > 100 {
		errs = append(errs, field.Invalid(path.Child("stopLimiter", "percent"), p, "must be 0 to 100"))
	}
	if n := ptr.Deref(s.StopLimiter.Workloads, 0); n < 0 {
		errs = append(errs, field.Invalid(path.Child("stopLimiter", "workloads"), n, "must be 0 or more"))
	}
	if d := s.RetryInterval.Duration; d < minRetryInterval || d > maxRetryInterval {
		errs = append(errs, field.Invalid(path.Child("retryInterval"), d.String(), "must be 1s to 10m"))
	}
	return errs
}
