// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/config"
	"sluice.dev/policies/engine"
)

// ConfigKind is the kind of the configuration file.
const ConfigKind = "WebhookConfig"

// Config is the configuration file of the webhook. It has no secrets: certificates are separate files.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`

	// Listen is the webhook's address, host:port. Default ":9443".
	Listen string `json:"listen,omitempty"`
	// Certificates is the directory of tls.crt, tls.key and ca.crt, which are reloaded when they change.
	// Default "/etc/sluice/certificates".
	Certificates string `json:"certificates,omitempty"`
	// ClientCA is a file with the CA certificates of the API server's client certificate, in PEM form. Other
	// clients are then refused. Without it, every client that reaches the webhook can ask for its answer to an
	// object. The API server needs a client certificate for webhooks: AdmissionConfiguration, kubeConfigFile.
	// Default "": clients need no certificate.
	ClientCA string `json:"clientCA,omitempty"`
	// PolicyTimeout is the processor time that one policy may use for one object, 1ms to 10s. Default 200ms.
	PolicyTimeout metav1.Duration `json:"policyTimeout,omitempty"`
	// RequestTimeout is the time limit of all policies for one request, from policyTimeout to 10s. Waiting for
	// a processor or for other requests counts; a request that takes longer is refused with the advice to try
	// again. It is of use below the timeout of the webhook configurations (2s as shipped). Default 1500ms.
	RequestTimeout metav1.Duration `json:"requestTimeout,omitempty"`
	// Registration names the webhook configurations that register this webhook.
	Registration Registration `json:"registration,omitempty"`
}

// Registration names the configurations whose caBundle the webhook writes.
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
	limits := engine.Limits{Evaluation: c.PolicyTimeout.Duration, Request: c.RequestTimeout.Duration}.WithDefaults()
	c.PolicyTimeout.Duration, c.RequestTimeout.Duration = limits.Evaluation, limits.Request
	for setting, value := range map[*string]string{
		&c.Listen:                  ":9443",
		&c.Certificates:            "/etc/sluice/certificates",
		&c.Registration.Validating: "sluice",
		&c.Registration.Mutating:   "sluice",
	} {
		if *setting == "" {
			*setting = value
		}
	}
}

// maxPolicyTimeout is the longest time limit. The API server gives up after at most 30 seconds.
const maxPolicyTimeout = 10 * time.Second

// Validate implements config.File.
func (c *Config) Validate() field.ErrorList {
	errs := append(c.Common.Validate(nil), config.ValidateAddress(field.NewPath("listen"), c.Listen)...)
	if d := c.PolicyTimeout.Duration; d < time.Millisecond || d > maxPolicyTimeout {
		errs = append(errs, field.Invalid(field.NewPath("policyTimeout"), d.String(), "must be 1ms to "+maxPolicyTimeout.String()))
	}
	if d := c.RequestTimeout.Duration; d < c.PolicyTimeout.Duration || d > maxPolicyTimeout {
		errs = append(errs, field.Invalid(field.NewPath("requestTimeout"), d.String(),
			"must be policyTimeout ("+c.PolicyTimeout.Duration.String()+") to "+maxPolicyTimeout.String()))
	}
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
