// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is the configuration file of the webhook.
//
// Enters: YAML of kind WebhookConfig. Leaves: a defaulted and validated
// [Config]. It never holds a secret; certificates are files of their own.
package webhook

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/config"
)

// ConfigKind is the kind of the file.
const ConfigKind = "WebhookConfig"

// Config is the configuration of the webhook.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`

	// Listen is the address, host:port, on which the API server finds the
	// webhook. Default ":9443".
	Listen string `json:"listen,omitempty"`
	// Certificates is the directory with tls.crt, tls.key and ca.crt. They are
	// read again when they change. Default "/etc/sluice/certificates".
	Certificates string `json:"certificates,omitempty"`
	// Registration names the webhook configurations through which the API server
	// knows this webhook.
	Registration Registration `json:"registration,omitempty"`
}

// Registration names the two objects whose caBundle the webhook keeps right.
type Registration struct {
	// Validating is a ValidatingWebhookConfiguration. Default "sluice".
	Validating string `json:"validating,omitempty"`
	// Mutating is a MutatingWebhookConfiguration. Default "sluice".
	Mutating string `json:"mutating,omitempty"`
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
		&c.Listen:                  ":9443",
		&c.Certificates:            "/etc/sluice/certificates",
		&c.Registration.Validating: "sluice",
		&c.Registration.Mutating:   "sluice",
	} {
		if *at == "" {
			*at = value
		}
	}
}

// Validate implements config.File.
func (c *Config) Validate() field.ErrorList {
	errs := append(c.Common.Validate(nil), config.ValidateAddress(field.NewPath("listen"), c.Listen)...)
	registration := field.NewPath("registration")
	for path, name := range map[*field.Path]string{
		registration.Child("validating"): c.Registration.Validating,
		registration.Child("mutating"):   c.Registration.Mutating,
	} {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(path, name, problem))
		}
	}
	return errs
}
