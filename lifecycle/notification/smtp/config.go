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

// TLSMode says how the connection is protected.
type TLSMode string

const (
	// StartTLS begins in the clear and changes to TLS (RFC 3207), usually on port
	// 587 or 25. A server that does not offer it is a failure, never a reason to
	// go on in the clear. It is the default.
	StartTLS TLSMode = "StartTLS"
	// ImplicitTLS speaks TLS from the first byte (RFC 8314), usually on port 465.
	ImplicitTLS TLSMode = "Implicit"
	// NoTLS is for a server on this very machine; see [Config.PlaintextTo].
	NoTLS TLSMode = "None"
)

// AuthMode says how the sender proves who it is.
type AuthMode string

const (
	// NoAuth is for servers that know a sender by its network address. It is the
	// default.
	NoAuth AuthMode = "None"
	// PlainAuth is the mechanism PLAIN (RFC 4616).
	PlainAuth AuthMode = "PLAIN"
	// LoginAuth is the mechanism LOGIN, for servers that have only that.
	LoginAuth AuthMode = "LOGIN"
)

// Config says which server takes the mails, and how it is spoken to. [New]
// checks it.
type Config struct {
	// Host is the DNS name or the IP address of the server.
	Host string
	// Port is its port, 1 to 65535.
	Port int

	// TLS is how the connection is protected; empty means StartTLS.
	TLS TLSMode
	// CA is PEM with the certificates that may have signed the server's; empty
	// means those of the system.
	CA []byte
	// ServerName is the name that the server's certificate has to carry; empty
	// means Host.
	ServerName string
	// PlaintextTo allows NoTLS to a server elsewhere: it has to repeat Host.
	// Without it NoTLS reaches loopback addresses only.
	PlaintextTo string

	// HELO is the name by which the client introduces itself, a DNS name; empty
	// means the name of this machine, or localhost where that is not a DNS name.
	HELO string

	// Auth is how the sender proves who it is; empty means None. Anything else
	// needs TLS and Credentials.
	Auth AuthMode
	// Credentials is asked at each new connection, before it is dialled, so that
	// changed ones are used at once. Its error is a Configuration failure, unless
	// it is a *Failure of its own or comes of the end of ctx. It never puts a
	// password into its error.
	Credentials func(ctx context.Context) (user, password string, err error)

	// Timeouts bounds every step.
	Timeouts Timeouts
	// Reuse says how long a connection serves.
	Reuse Reuse

	// DKIM signs each message; nil leaves that to the server.
	DKIM *DKIM

	// Dial opens the connection; nil means TCP. Tests use it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Timeouts bounds every step of a sending, and all of them together. Zero means
// the default; those follow RFC 5321 section 4.5.3.2, because a server may hold
// back a reply for minutes for good reasons.
type Timeouts struct {
	// Dial bounds the resolution of the name and the connection: 30 s.
	Dial time.Duration
	// TLS bounds the handshake: 30 s.
	TLS time.Duration
	// Command bounds each command and its reply: 5 min.
	Command time.Duration
	// Body bounds the transfer of the message: 5 min.
	Body time.Duration
	// Final bounds the wait for the reply after the final dot: 10 min. A short
	// one makes duplicates: the server may take the message all the same.
	Final time.Duration
	// Total bounds a whole [Sender.Send], its connection included: 15 min. A claim
	// on a message has to last longer than this.
	Total time.Duration
}

// WithDefaults is t with the defaults in place of zeroes.
func (t Timeouts) WithDefaults() Timeouts {
	for _, limit := range []struct {
		of      *time.Duration
		absence time.Duration
	}{
		{&t.Dial, 30 * time.Second},
		{&t.TLS, 30 * time.Second},
		{&t.Command, 5 * time.Minute},
		{&t.Body, 5 * time.Minute},
		{&t.Final, 10 * time.Minute},
		{&t.Total, 15 * time.Minute},
	} {
		if *limit.of == 0 {
			*limit.of = limit.absence
		}
	}
	return t
}

// Reuse says how long a connection serves. Only one on which everything went
// well is used again.
type Reuse struct {
	// Messages is how many messages one connection carries at most: 100, which
	// common servers allow. 1 opens a connection for each message.
	Messages int
	// Idle is for how long a connection waits for the next message: 5 s. It is
	// short because servers count idle connections.
	Idle time.Duration
	// Connections is how many wait at most: 2.
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

// validate says what is wrong with a configuration, all of it at once.
func (c *Config) validate() error {
	var wrong []error
	field := func(name string, is any, rule string) {
		wrong = append(wrong, fmt.Errorf("%s %v: %s", name, is, rule))
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
			field("tls", c.TLS, fmt.Sprintf("mails would cross the network in the clear to %s; use StartTLS or Implicit, or allow it by naming the host", quote(c.Host)))
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
		name string
		is   time.Duration
	}{
		{"dial", t.Dial}, {"tls", t.TLS}, {"command", t.Command}, {"body", t.Body}, {"final", t.Final}, {"total", t.Total},
	} {
		if limit.is < 0 {
			field("timeouts."+limit.name, limit.is, "give a positive duration, or nothing for the default")
		}
	}
	if c.Reuse.Messages < 0 || c.Reuse.Idle < 0 || c.Reuse.Connections < 0 {
		field("reuse", c.Reuse, "give positive figures, or nothing for the defaults")
	}
	return errors.Join(wrong...)
}

// tlsConfig is how the server's certificate is checked; nil for NoTLS.
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

// isLoopbackHost is whether the host is this machine, as far as its name tells.
func (c *Config) isLoopbackHost() bool {
	if ip, err := netip.ParseAddr(c.Host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(c.Host, "localhost")
}

// isRemote is whether a connection goes to another machine: what localhost
// resolved to is known only now.
func isRemote(conn net.Conn) bool {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func isIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == ""
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
