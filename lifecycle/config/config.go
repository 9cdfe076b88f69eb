// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
}

// Validate implements config.File.
func (c *Config) Validate() field.ErrorList {
	errs := c.Common.Validate(nil)
	for _, problem := range validation.IsDNS1123Label(c.LeaderElection.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("leaderElection", "namespace"), c.LeaderElection.Namespace, problem))
	}
	return errs
}
