// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// ConfigKind is the kind of the configuration file.
const ConfigKind = "WebhookConfig"

// Config is the configuration file of the webhook. It has no secrets: certificates are in separate
// files.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`

	// Listen is the webhook's address, host:port. Default ":9443".
	Listen string `json:"listen,omitempty"`
	// Certificates configures the webhook's certificate.
	Certificates Certificates `json:"certificates,omitempty"`
	// ClientCA is a file with the CA certificates of the API server's client certificate, in PEM form. Other
	// clients are then refused. Without it, every client that reaches the webhook can ask for its answer to an
	// object. The API server needs a client certificate for webhooks: AdmissionConfiguration, kubeConfigFile.
	// Default "": clients need no certificate.
	ClientCA string `json:"clientCA,omitempty"`
	// ClientNames are the common names and DNS names that the client's certificate may have, with clientCA.
	// Default none: every certificate of the authority will do.
	ClientNames []string `json:"clientNames,omitempty"`
	// DrainPeriod is the time after SIGTERM for which the webhook still accepts requests, until the API server
	// has stopped sending them, 0s to 5m. Then it answers those in flight and ends. Meanwhile /readyz fails.
	// The pod's terminationGracePeriodSeconds has to be longer. Default 10s.
	DrainPeriod *metav1.Duration `json:"drainPeriod,omitempty"`
	// PolicyTimeout is how long one policy may be evaluated for one object, 1ms to 10s. Default 250ms.
	PolicyTimeout metav1.Duration `json:"policyTimeout,omitempty"`
	// RequestTimeout is the time limit of all policies for one request, from policyTimeout to 10s. Waiting for
	// a processor or for other requests counts; a request that takes longer is refused with the advice to try
	// again. It is of use below the timeout of the webhook configurations (2s as shipped). Default 1500ms.
	RequestTimeout metav1.Duration `json:"requestTimeout,omitempty"`
	// Decisions configure the records of decisions.
	Decisions Decisions `json:"decisions,omitempty"`
}

// Certificates configures the webhook's certificate.
type Certificates struct {
	// DNSNames are the names of the certificate that "webhook certificates" creates: those by which the API server
	// calls the webhook. Default "webhook.sluice-system.svc".
	DNSNames []string `json:"dnsNames,omitempty"`
	// Directory is the directory with tls.crt and tls.key. The webhook waits for them, and reads them again when
	// they change. Default "/run/sluice/certificates", where its pods mount the Secret webhook-certificates.
	Directory string `json:"directory,omitempty"`
}

func (c *Certificates) setDefaults() {
	c.Directory = cmp.Or(c.Directory, "/run/sluice/certificates")
	if c.DNSNames == nil {
		c.DNSNames = []string{"webhook." + v1alpha1.SystemNamespace + ".svc"}
	}
}

func (c *Certificates) validate(path *field.Path) (errs field.ErrorList) {
	if len(c.DNSNames) == 0 {
		errs = append(errs, field.Required(path.Child("dnsNames"), "want the name by which the API server calls the webhook"))
	}
	for i, name := range c.DNSNames {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(path.Child("dnsNames").Index(i), name, problem))
		}
	}
	return errs
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
	c.Certificates.setDefaults()
	c.Decisions.setDefaults()
	if c.DrainPeriod == nil {
		c.DrainPeriod = &metav1.Duration{Duration: defaultDrainPeriod}
	}
	c.Listen = cmp.Or(c.Listen, ":9443")
}

// The default and the longest time for which the webhook drains.
const (
	defaultDrainPeriod = 10 * time.Second
	maxDrainPeriod     = 5 * time.Minute
)

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
	if d := c.DrainPeriod.Duration; d < 0 || d > maxDrainPeriod {
		errs = append(errs, field.Invalid(field.NewPath("drainPeriod"), d.String(), "must be 0s to "+maxDrainPeriod.String()))
	}
	if len(c.ClientNames) > 0 && c.ClientCA == "" {
		errs = append(errs, field.Required(field.NewPath("clientCA"), "clientNames are the names in certificates of this authority"))
	}
	errs = append(errs, c.Certificates.validate(field.NewPath("certificates"))...)
	return append(errs, c.Decisions.validate(field.NewPath("decisions"))...)
}
