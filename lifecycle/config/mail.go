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

// Mail says how people are written to. Without it nothing is sent, and who was to be
// told what is only recorded.
type Mail struct {
	// Server is the mail server, as host:port: the one that takes mail from within
	// your institution.
	Server string `json:"server"`
	// TLS is StartTLS, Implicit or None. Default StartTLS. None sends mail and
	// addresses in the clear, never a password.
	TLS MailTLS `json:"tls,omitempty"`
	// PlaintextTo is the server's host once more, where tls is None and that is not
	// this machine: that nothing is protected on the way there is meant.
	PlaintextTo string `json:"plaintextTo,omitempty"`
	// CAFile is a file with the certificates, as PEM, that vouch for the server.
	// Default those of the system.
	CAFile string `json:"caFile,omitempty"`
	// ServerName is the name in the server's certificate. Default the server's host.
	ServerName string `json:"serverName,omitempty"`
	// Hello is the name by which Sluice greets the server. Default domain.
	Hello string `json:"hello,omitempty"`
	// From is the sender, with or without a name: GPU cluster <gpu@example.org>.
	// What cannot be delivered goes back there.
	From string `json:"from"`
	// ReplyTo is the address to which answers go, and whom mails name for questions.
	// Default that of from.
	ReplyTo string `json:"replyTo,omitempty"`
	// Domain stands in each mail's Message-ID. Default that of from's address.
	Domain string `json:"domain,omitempty"`
	// Auth is PLAIN, LOGIN or None. Default PLAIN with a credentialsSecret, else None.
	Auth MailAuth `json:"auth,omitempty"`
	// CredentialsSecret is the Secret with the keys username and password. It is read
	// at each connection.
	CredentialsSecret *SecretReference `json:"credentialsSecret,omitempty"`
	// DKIM signs each mail. Default none: mail servers do it.
	DKIM *DKIM `json:"dkim,omitempty"`
	// Rate bounds how much mail is sent. What is more waits.
	Rate MailRate `json:"rate,omitempty"`
	// Templates is the name of a ConfigMap in Sluice's own namespace with texts in
	// place of those that are built in. Default none.
	Templates string `json:"templates,omitempty"`
}

// MailTLS is how the way to the mail server is protected.
type MailTLS string

// How the way to the mail server may be protected.
const (
	MailStartTLS MailTLS = "StartTLS"
	MailImplicit MailTLS = "Implicit"
	MailNoTLS    MailTLS = "None"
)

// MailAuth is how Sluice tells the mail server who it is.
type MailAuth string

// How Sluice may tell the mail server who it is.
const (
	MailPlain  MailAuth = "PLAIN"
	MailLogin  MailAuth = "LOGIN"
	MailNoAuth MailAuth = "None"
)

// SecretReference names a Secret.
type SecretReference struct {
	// Namespace is where it is. Default sluice-system.
	Namespace string `json:"namespace,omitempty"`
	// Name is its name. Lifecycle may read sluice-mail and sluice-mail-dkim in
	// sluice-system; another wants a Role of its own.
	Name string `json:"name"`
}

// DKIM signs mails (RFC 6376).
type DKIM struct {
	// Domain is the signing domain, and Selector the name under which its key is
	// published there.
	Domain   string `json:"domain"`
	Selector string `json:"selector"`
	// KeySecret is the Secret with the private key, as PEM, under the key tls.key.
	KeySecret SecretReference `json:"keySecret"`
}

// MailRate bounds mail, in machine time.
type MailRate struct {
	// PerMinute is how many mails a minute, 0 for any number. Default 60.
	PerMinute *int `json:"perMinute,omitempty"`
	// PerRecipientPerDay is how many to one address within 24 hours, 0 for any
	// number. Default 100.
	PerRecipientPerDay *int `json:"perRecipientPerDay,omitempty"`
}

// The rates where nobody sets them.
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

// Host is the mail server's host, and Port its port.
func (m *Mail) Host() string { host, _, _ := net.SplitHostPort(m.Server); return host }

// Port is the mail server's port; 0 where it has none, which Validate finds.
func (m *Mail) Port() int {
	_, text, _ := net.SplitHostPort(m.Server)
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}

// Sender is from, taken apart.
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
	invalid := func(name string, value any, want string) {
		errs = append(errs, field.Invalid(path.Child(name), value, want))
	}
	if m.Host() == "" || m.Port() == 0 {
		invalid("server", m.Server, "want host:port, such as mail.example.org:587")
	}
	if from, err := m.Sender(); err != nil || !addressPattern.MatchString(from.Address) {
		invalid("from", m.From, "want one mail address, with or without a name, such as GPU cluster <gpu@example.org>")
	}
	if m.ReplyTo != "" && !addressPattern.MatchString(m.ReplyTo) {
		invalid("replyTo", m.ReplyTo, "want one plain mail address, such as gpu-help@example.org")
	}
	for name, value := range map[string]string{"domain": m.Domain, "hello": m.Hello, "serverName": m.ServerName} {
		if value != "" && net.ParseIP(value) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(value))) > 0 {
			invalid(name, value, "want the name of a domain or a host, such as gpu.example.org")
		}
	}
	if m.Templates != "" {
		for _, problem := range validation.IsDNS1123Subdomain(m.Templates) {
			invalid("templates", m.Templates, problem)
		}
	}
	errs = append(errs, m.validateTransport(path)...)
	for name, n := range map[string]int{"perMinute": ptr.Deref(m.Rate.PerMinute, 0), "perRecipientPerDay": ptr.Deref(m.Rate.PerRecipientPerDay, 0)} {
		if n < 0 {
			errs = append(errs, field.Invalid(path.Child("rate", name), n, "want 0 (any number) or more"))
		}
	}
	return errs
}

// validateTransport is about how the server is reached and told who comes.
func (m *Mail) validateTransport(path *field.Path) (errs field.ErrorList) {
	switch m.TLS {
	case MailStartTLS, MailImplicit:
		if m.PlaintextTo != "" {
			errs = append(errs, field.Invalid(path.Child("plaintextTo"), m.PlaintextTo, "only with tls: None"))
		}
	case MailNoTLS:
		if ip := net.ParseIP(m.Host()); (ip == nil || !ip.IsLoopback()) && m.Host() != "localhost" && m.PlaintextTo != m.Host() {
			errs = append(errs, field.Invalid(path.Child("tls"), m.TLS,
				"would send everything in the clear to "+m.Host()+": want StartTLS or Implicit, or, if it is meant, plaintextTo: "+m.Host()))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("tls"), m.TLS, []MailTLS{MailStartTLS, MailImplicit, MailNoTLS}))
	}
	switch m.Auth {
	case MailNoAuth:
		if m.CredentialsSecret != nil {
			errs = append(errs, field.Invalid(path.Child("auth"), m.Auth, "with a credentialsSecret want PLAIN or LOGIN"))
		}
	case MailPlain, MailLogin:
		if m.TLS == MailNoTLS {
			errs = append(errs, field.Invalid(path.Child("auth"), m.Auth, "a password is never sent in the clear: want tls: StartTLS or Implicit, or auth: None"))
		}
		if m.CredentialsSecret == nil {
			errs = append(errs, field.Required(path.Child("credentialsSecret"), "auth: "+string(m.Auth)+" wants the Secret with username and password"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("auth"), m.Auth, []MailAuth{MailPlain, MailLogin, MailNoAuth}))
	}
	if m.CredentialsSecret != nil {
		errs = append(errs, m.CredentialsSecret.validate(path.Child("credentialsSecret"))...)
	}
	if m.DKIM != nil {
		at := path.Child("dkim")
		for name, value := range map[string]string{"domain": m.DKIM.Domain, "selector": m.DKIM.Selector} {
			for _, problem := range validation.IsDNS1123Subdomain(value) {
				errs = append(errs, field.Invalid(at.Child(name), value, problem))
			}
		}
		errs = append(errs, m.DKIM.KeySecret.validate(at.Child("keySecret"))...)
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
