// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/mail"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// Mail configures the mail server. Without it Notices are recorded but no mail is sent.
type Mail struct {
	// Server is the mail server of your institution, as host:port.
	Server string `json:"server"`
	// TLS is StartTLS, Implicit or None. Default StartTLS. None sends mails and addresses
	// unencrypted, but never a password.
	TLS MailTLS `json:"tls,omitempty"`
	// PlaintextTo confirms tls: None for a server on another machine. It must repeat the
	// server's host.
	PlaintextTo string `json:"plaintextTo,omitempty"`
	// CAFile is a PEM file with the CA certificates of the server. Default those of the
	// system.
	CAFile string `json:"caFile,omitempty"`
	// ServerName is the name in the server's certificate. Default the server's host.
	ServerName string `json:"serverName,omitempty"`
	// Hello is the host name in Sluice's EHLO command. Default domain.
	Hello string `json:"hello,omitempty"`
	// From is the sender, with or without a name: GPU cluster <gpu@example.org>. Bounces go
	// to this address.
	From string `json:"from"`
	// ReplyTo is the address for replies and questions. Default the address in from.
	ReplyTo string `json:"replyTo,omitempty"`
	// Domain is the domain in each Message-ID. Default the domain of from.
	Domain string `json:"domain,omitempty"`
	// Auth is PLAIN, LOGIN or None. Default PLAIN with a credentialsSecret, else None.
	Auth MailAuth `json:"auth,omitempty"`
	// CredentialsSecret is the Secret with the keys username and password. It is read for
	// each connection.
	CredentialsSecret *SecretReference `json:"credentialsSecret,omitempty"`
	// DKIM signs each mail. Default none, because mail servers usually sign.
	DKIM *DKIM `json:"dkim,omitempty"`
	// Rate limits the number of mails. Mails above it wait.
	Rate MailRate `json:"rate,omitempty"`
	// UserAddress is the mail address of users whose name is not an address and who are listed
	// without one, with the name as {user}: {user}@example.org. It applies to names of
	// letters, digits, dots, underscores and hyphens. Default none: then the project's owners
	// receive the mail about these users' workloads.
	UserAddress string `json:"userAddress,omitempty"`
	// Templates is the name of a ConfigMap in Sluice's namespace with texts that replace the
	// built-in ones. Default none.
	Templates string `json:"templates,omitempty"`
}

// MailTLS is the encryption of the connection to the mail server.
type MailTLS string

// The kinds of encryption.
const (
	MailStartTLS MailTLS = "StartTLS"
	MailImplicit MailTLS = "Implicit"
	MailNoTLS    MailTLS = "None"
)

// MailAuth is the authentication mechanism.
type MailAuth string

// The authentication mechanisms.
const (
	MailPlain  MailAuth = "PLAIN"
	MailLogin  MailAuth = "LOGIN"
	MailNoAuth MailAuth = "None"
)

// SecretReference refers to a Secret.
type SecretReference struct {
	// Namespace is the Secret's namespace. Default sluice-system.
	Namespace string `json:"namespace,omitempty"`
	// Name is the Secret's name. Lifecycle may read sluice-mail and sluice-mail-dkim in
	// sluice-system; for any other Secret it needs a Role.
	Name string `json:"name"`
}

// DKIM signs mails (RFC 6376).
type DKIM struct {
	// Domain is the signing domain.
	Domain string `json:"domain"`
	// Selector is the name of the public key in the domain's DNS.
	Selector string `json:"selector"`
	// KeySecret is the Secret with the private key, as PEM, under the key tls.key.
	KeySecret SecretReference `json:"keySecret"`
}

// MailRate limits mails, in machine time.
type MailRate struct {
	// PerMinute is the number of mails per minute; 0 means unlimited. Default 60.
	PerMinute *int `json:"perMinute,omitempty"`
	// PerRecipientPerDay is the number of mails to one address within 24 hours; 0 means
	// unlimited. Default 100.
	PerRecipientPerDay *int `json:"perRecipientPerDay,omitempty"`
}

// The defaults of MailRate.
const (
	defaultMailsPerMinute          = 60
	defaultMailsPerRecipientPerDay = 100
)

func (m *Mail) setDefaults() {
	if m == nil {
		return
	}
	if m.TLS == "" {
		m.TLS = MailStartTLS
	}
	if m.Auth == "" {
		m.Auth = MailNoAuth
		if m.CredentialsSecret != nil {
			m.Auth = MailPlain
		}
	}
	if m.CredentialsSecret != nil {
		m.CredentialsSecret.setDefaults()
	}
	if m.DKIM != nil {
		m.DKIM.KeySecret.setDefaults()
	}
	from, err := mail.ParseAddress(m.From)
	if m.Domain == "" && err == nil {
		m.Domain = from.Address[strings.LastIndex(from.Address, "@")+1:]
	}
	if m.Hello == "" {
		m.Hello = m.Domain
	}
	if m.Rate.PerMinute == nil {
		m.Rate.PerMinute = ptr.To(defaultMailsPerMinute)
	}
	if m.Rate.PerRecipientPerDay == nil {
		m.Rate.PerRecipientPerDay = ptr.To(defaultMailsPerRecipientPerDay)
	}
}

func (r *SecretReference) setDefaults() {
	if r.Namespace == "" {
		r.Namespace = v1alpha1.SystemNamespace
	}
}

// Host returns the mail server's host.
func (m *Mail) Host() string { host, _, _ := net.SplitHostPort(m.Server); return host }

// Port returns the mail server's port, or 0 if it is invalid.
func (m *Mail) Port() int {
	_, text, _ := net.SplitHostPort(m.Server)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}

// Sender parses From.
func (m *Mail) Sender() (mail.Address, error) {
	address, err := mail.ParseAddress(m.From)
	if err != nil {
		return mail.Address{}, err
	}
	return *address, nil
}

var addressPattern = regexp.MustCompile(v1alpha1.EmailPattern)

func (m *Mail) validate(path *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	invalid := func(name string, value any, detail string) {
		errs = append(errs, field.Invalid(path.Child(name), value, detail))
	}
	if m.Host() == "" || m.Port() == 0 {
		invalid("server", m.Server, "must be host:port, such as mail.example.org:587")
	}
	if from, err := m.Sender(); err != nil || !addressPattern.MatchString(from.Address) {
		invalid("from", m.From, "must be one mail address, with or without a name, such as GPU cluster <gpu@example.org>")
	}
	if m.ReplyTo != "" && !addressPattern.MatchString(m.ReplyTo) {
		invalid("replyTo", m.ReplyTo, "must be one plain mail address, such as gpu-help@example.org")
	}
	if text := m.UserAddress; text != "" &&
		(strings.Count(text, "{user}") != 1 || !addressPattern.MatchString(strings.Replace(text, "{user}", "user", 1))) {
		invalid("userAddress", text, "must be one plain mail address with {user} for the name, such as {user}@example.org")
	}
	for name, value := range map[string]string{"domain": m.Domain, "hello": m.Hello, "serverName": m.ServerName} {
		if value != "" && net.ParseIP(value) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(value))) > 0 {
			invalid(name, value, "must be a domain or host name, such as gpu.example.org")
		}
	}
	if m.Templates != "" {
		for _, problem := range validation.IsDNS1123Subdomain(m.Templates) {
			invalid("templates", m.Templates, problem)
		}
	}
	errs = append(errs, m.validateTransport(path)...)
	for name, n := range map[string]*int{"perMinute": m.Rate.PerMinute, "perRecipientPerDay": m.Rate.PerRecipientPerDay} {
		if n := ptr.Deref(n, 0); n < 0 {
			errs = append(errs, field.Invalid(path.Child("rate", name), n, "must be 0 (unlimited) or more"))
		}
	}
	return errs
}

// validateTransport validates encryption, authentication and signing.
func (m *Mail) validateTransport(path *field.Path) (errs field.ErrorList) {
	switch m.TLS {
	case MailStartTLS, MailImplicit:
		if m.PlaintextTo != "" {
			errs = append(errs, field.Invalid(path.Child("plaintextTo"), m.PlaintextTo, "must only be set with tls: None"))
		}
	case MailNoTLS:
		if ip := net.ParseIP(m.Host()); (ip == nil || !ip.IsLoopback()) && m.Host() != "localhost" && m.PlaintextTo != m.Host() {
			errs = append(errs, field.Invalid(path.Child("tls"), m.TLS,
				"must be StartTLS or Implicit, because None sends mail unencrypted to "+m.Host()+"; to confirm None, set plaintextTo: "+m.Host()))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("tls"), m.TLS, []MailTLS{MailStartTLS, MailImplicit, MailNoTLS}))
	}
	switch m.Auth {
	case MailNoAuth:
		if m.CredentialsSecret != nil {
			errs = append(errs, field.Invalid(path.Child("auth"), m.Auth, "must be PLAIN or LOGIN with a credentialsSecret"))
		}
	case MailPlain, MailLogin:
		if m.TLS == MailNoTLS {
			errs = append(errs, field.Invalid(path.Child("auth"), m.Auth,
				"must be None with tls: None, because a password is never sent in the clear; or set tls to StartTLS or Implicit"))
		}
		if m.CredentialsSecret == nil {
			errs = append(errs, field.Required(path.Child("credentialsSecret"),
				"auth: "+string(m.Auth)+" needs the Secret with username and password"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("auth"), m.Auth, []MailAuth{MailPlain, MailLogin, MailNoAuth}))
	}
	if m.CredentialsSecret != nil {
		errs = append(errs, m.CredentialsSecret.validate(path.Child("credentialsSecret"))...)
	}
	if m.DKIM != nil {
		dkim := path.Child("dkim")
		for name, value := range map[string]string{"domain": m.DKIM.Domain, "selector": m.DKIM.Selector} {
			for _, problem := range validation.IsDNS1123Subdomain(value) {
				errs = append(errs, field.Invalid(dkim.Child(name), value, problem))
			}
		}
		errs = append(errs, m.DKIM.KeySecret.validate(dkim.Child("keySecret"))...)
	}
	return errs
}

func (r *SecretReference) validate(path *field.Path) (errs field.ErrorList) {
	for _, problem := range validation.IsDNS1123Label(r.Namespace) {
		errs = append(errs, field.Invalid(path.Child("namespace"), r.Namespace, problem))
	}
	for _, problem := range validation.IsDNS1123Subdomain(r.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), r.Name, problem))
	}
	return errs
}
