// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// TLSMode selects the protection of the connection.
type TLSMode string

const (
	// StartTLS starts in plaintext and switches to TLS (RFC 3207), usually on port 587 or 25.
	// If the server does not offer it, Send fails; it never continues in plaintext. It is the
	// default.
	StartTLS TLSMode = "StartTLS"
	// ImplicitTLS uses TLS from the first byte (RFC 8314), usually on port 465.
	ImplicitTLS TLSMode = "Implicit"
	// NoTLS is for a server on the same machine; see [Config.PlaintextTo].
	NoTLS TLSMode = "None"
)

// AuthMode selects how the sender authenticates.
type AuthMode string

const (
	// NoAuth is for servers that accept a sender by its network address. It is the default.
	NoAuth AuthMode = "None"
	// PlainAuth is the mechanism PLAIN (RFC 4616).
	PlainAuth AuthMode = "PLAIN"
	// LoginAuth is the mechanism LOGIN, for servers without PLAIN.
	LoginAuth AuthMode = "LOGIN"
)

// Config configures the mail server and the connection to it. [New] validates it.
type Config struct {
	// Host is the DNS name or the IP address of the server.
	Host string
	// Port is its port, 1 to 65535.
	Port int

	// TLS selects the protection; empty means StartTLS.
	TLS TLSMode
	// CA is PEM with the trusted certificate authorities; empty means those of the system.
	CA []byte
	// ServerName is the name in the server's certificate; empty means Host.
	ServerName string
	// PlaintextTo allows NoTLS to a remote server: it must repeat Host. Without it NoTLS is
	// limited to loopback addresses.
	PlaintextTo string

	// HELO is the client's name in EHLO, a DNS name; empty means the host name, or localhost if
	// that is no DNS name.
	HELO string

	// Auth selects the authentication; empty means None. Others need TLS and Credentials.
	Auth AuthMode
	// Credentials is called before each new connection is dialed, so changed ones take effect
	// at once. Its error is a Configuration failure, unless it is a *Failure or results from
	// the end of ctx. Its error must not contain the password.
	Credentials func(ctx context.Context) (user, password string, err error)

	// Timeouts bounds each step.
	Timeouts Timeouts
	// Reuse bounds the reuse of connections.
	Reuse Reuse

	// DKIM signs each message; nil leaves signing to the server.
	DKIM *DKIM

	// Dial opens the connection; nil means TCP. Tests use it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Timeouts bounds each step of a Send, and all of them together. Zero means the default. The
// defaults follow RFC 5321 section 4.5.3.2, since a server may delay a reply for minutes.
type Timeouts struct {
	// Dial bounds the resolution of the name and the connection: 30 s.
	Dial time.Duration
	// TLS bounds the handshake: 30 s.
	TLS time.Duration
	// Command bounds each command and its reply: 5 min.
	Command time.Duration
	// Body bounds the transfer of the message: 5 min.
	Body time.Duration
	// Final bounds the wait for the reply after the final dot: 10 min. A short timeout causes
	// duplicates, since the server may still accept the message.
	Final time.Duration
	// Total bounds a [Sender.Send] with its connection: 15 min. A claim on a message must last
	// longer.
	Total time.Duration
}

// WithDefaults returns t with defaults for zero values.
func (t Timeouts) WithDefaults() Timeouts {
	for _, limit := range []struct {
		value        *time.Duration
		defaultValue time.Duration
	}{
		{&t.Dial, 30 * time.Second},
		{&t.TLS, 30 * time.Second},
		{&t.Command, 5 * time.Minute},
		{&t.Body, 5 * time.Minute},
		{&t.Final, 10 * time.Minute},
		{&t.Total, 15 * time.Minute},
	} {
		if *limit.value == 0 {
			*limit.value = limit.defaultValue
		}
	}
	return t
}

// Reuse bounds the reuse of connections. A connection is reused only after success.
type Reuse struct {
	// Messages bounds the messages of one connection: 100, which common servers allow. 1 opens
	// a connection for each message.
	Messages int
	// Idle bounds how long a connection stays idle: 5 s. It is short, since servers limit idle
	// connections.
	Idle time.Duration
	// Connections bounds the idle connections: 2.
	Connections int
}

func (r Reuse) withDefaults() Reuse {
	if r.Messages == 0 {
		r.Messages = 100
	}
	if r.Idle == 0 {
		r.Idle = 5 * time.Second
	}
	if r.Connections == 0 {
		r.Connections = 2
	}
	return r
}

// validate returns all errors of a configuration at once.
func (c *Config) validate() error {
	var errs []error
	field := func(name string, value any, rule string) {
		errs = append(errs, fmt.Errorf("%s %v: %s", name, value, rule))
	}

	if !isDNSName(c.Host) && !isIP(c.Host) {
		field("host", quote(c.Host), "give the DNS name or the IP address of the mail server")
	}
	if c.Port < 1 || c.Port > 65535 {
		field("port", c.Port, "give 1 to 65535, as 587 for StartTLS or 465 for Implicit")
	}
	if c.ServerName != "" && !isDNSName(c.ServerName) && !isIP(c.ServerName) {
		field("serverName", quote(c.ServerName), "give the DNS name in the server's certificate")
	}
	if c.HELO != "" && !isDNSName(c.HELO) {
		field("hello", quote(c.HELO), "give the DNS name of the sender")
	}

	switch c.TLS {
	case "", StartTLS, ImplicitTLS:
	case NoTLS:
		if !c.isLoopbackHost() && c.PlaintextTo != c.Host {
			field(
				"tls", c.TLS,
				fmt.Sprintf("mails would be sent unencrypted to %s; use StartTLS or Implicit, or allow it by naming the host", quote(c.Host)),
			)
		}
	default:
		field("tls", quote(string(c.TLS)), "give StartTLS, Implicit or None")
	}

	switch c.Auth {
	case "", NoAuth:
	case PlainAuth, LoginAuth:
		if c.TLS == NoTLS {
			field("auth", c.Auth, "a password is sent over TLS only; use StartTLS or Implicit, or auth None")
		}
		if c.Credentials == nil {
			field("auth", c.Auth, "needs credentials")
		}
	default:
		field("auth", quote(string(c.Auth)), "give PLAIN, LOGIN or None")
	}

	t := c.Timeouts
	for _, limit := range []struct {
		name  string
		value time.Duration
	}{
		{"dial", t.Dial}, {"tls", t.TLS}, {"command", t.Command}, {"body", t.Body}, {"final", t.Final}, {"total", t.Total},
	} {
		if limit.value < 0 {
			field("timeouts."+limit.name, limit.value, "give a positive duration, or nothing for the default")
		}
	}
	if c.Reuse.Messages < 0 || c.Reuse.Idle < 0 || c.Reuse.Connections < 0 {
		field("reuse", c.Reuse, "give positive figures, or nothing for the defaults")
	}
	return errors.Join(errs...)
}

// tlsConfig returns the TLS configuration; nil for NoTLS.
func (c *Config) tlsConfig() (*tls.Config, error) {
	if c.TLS == NoTLS {
		return nil, nil
	}
	config := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if config.ServerName == "" {
		config.ServerName = c.Host
	}
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("ca: it holds no certificate; give PEM that begins with -----BEGIN CERTIFICATE-----")
		}
	}
	return config, nil
}

func (c *Config) helloName() string {
	if c.HELO != "" {
		return c.HELO
	}
	if name, err := os.Hostname(); err == nil && isDNSName(name) {
		return name
	}
	return "localhost"
}

// isLoopbackHost reports whether the host is a loopback address or localhost.
func (c *Config) isLoopbackHost() bool {
	if ip, err := netip.ParseAddr(c.Host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(c.Host, "localhost")
}

// isRemote reports whether a connection goes to another machine; localhost may resolve to one.
func isRemote(conn net.Conn) bool {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func isIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == ""
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
