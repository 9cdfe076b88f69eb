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

// Config is the configuration file of the webhook. It has no secrets: certificates are in a Secret or in
// separate files.
type Config struct {
	metav1.TypeMeta `json:",inline"`
	config.Common   `json:",inline"`

	// Listen is the webhook's address, host:port. Default ":9443".
	Listen string `json:"listen,omitempty"`
	// Certificates is the source of the webhook's certificate.
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
	// PolicyTimeout is the processor time that one policy may use for one object, 1ms to 10s. Default 200ms.
	PolicyTimeout metav1.Duration `json:"policyTimeout,omitempty"`
	// RequestTimeout is the time limit of all policies for one request, from policyTimeout to 10s. Waiting for
	// a processor or for other requests counts; a request that takes longer is refused with the advice to try
	// again. It is of use below the timeout of the webhook configurations (2s as shipped). Default 1500ms.
	RequestTimeout metav1.Duration `json:"requestTimeout,omitempty"`
	// Registration names the webhook configurations that register this webhook.
	Registration Registration `json:"registration,omitempty"`
	// Decisions configure the records of decisions.
	Decisions Decisions `json:"decisions,omitempty"`
}

// CertificateSource is where the certificate of the webhook comes from.
type CertificateSource string

// The sources of the certificate.
const (
	// CertificatesInSecret is a Secret that the webhook watches.
	CertificatesInSecret CertificateSource = "Secret"
	// CertificatesInFiles is a directory that the webhook reads.
	CertificatesInFiles CertificateSource = "Files"
)

// Certificates is the source of the webhook's certificate.
type Certificates struct {
	// Source is Secret, or Files for a directory. Default Secret.
	Source CertificateSource `json:"source,omitempty"`
	// Secret is the name of the Secret in sluice-system with tls.crt, tls.key and ca.crt. The webhook may read
	// and write only webhook-certificates; another name needs a Role. Default "webhook-certificates".
	Secret string `json:"secret,omitempty"`
	// Issue makes the webhook issue and renew the certificate in the Secret. Set it to false if cert-manager
	// issues it. Default true.
	Issue *bool `json:"issue,omitempty"`
	// DNSNames are the names that a certificate in the Secret must have: those by which the API server calls the
	// webhook. Default "webhook.sluice-system.svc".
	DNSNames []string `json:"dnsNames,omitempty"`
	// Directory is the directory with tls.crt, tls.key and ca.crt, for the source Files. They are read again when
	// they change. Default "/etc/sluice/certificates".
	Directory string `json:"directory,omitempty"`
}

func (c *Certificates) setDefaults() {
	c.Source = cmp.Or(c.Source, CertificatesInSecret)
	c.Secret = cmp.Or(c.Secret, "webhook-certificates")
	c.Directory = cmp.Or(c.Directory, "/etc/sluice/certificates")
	if c.Issue == nil {
		c.Issue = new(true)
	}
	if c.DNSNames == nil {
		c.DNSNames = []string{"webhook." + v1alpha1.SystemNamespace + ".svc"}
	}
}

func (c *Certificates) validate(path *field.Path) (errs field.ErrorList) {
	if c.Source != CertificatesInSecret && c.Source != CertificatesInFiles {
		errs = append(errs, field.NotSupported(path.Child("source"), c.Source, []CertificateSource{CertificatesInSecret, CertificatesInFiles}))
	}
	for _, problem := range validation.IsDNS1123Subdomain(c.Secret) {
		errs = append(errs, field.Invalid(path.Child("secret"), c.Secret, problem))
	}
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
	c.Certificates.setDefaults()
	c.Decisions.setDefaults()
	if c.DrainPeriod == nil {
		c.DrainPeriod = &metav1.Duration{Duration: defaultDrainPeriod}
	}
	for setting, value := range map[*string]string{
		&c.Listen:                  ":9443",
		&c.Registration.Validating: "sluice",
		&c.Registration.Mutating:   "sluice",
	} {
		if *setting == "" {
			*setting = value
		}
	}
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
	errs = append(errs, c.Decisions.validate(field.NewPath("decisions"))...)
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
