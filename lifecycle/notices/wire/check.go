// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
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

// check says what is wrong with a configuration, all of it at once.
func (c *Config) check() error {
	var wrong []error
	field := func(name string, is any, rule string) {
		wrong = append(wrong, fmt.Errorf("%s %v: %s", name, is, rule))
	}

	if !isDNSName(c.Host) && !isIP(c.Host) {
		field("host", quoted(c.Host), "give the DNS name or the IP address of the mail server")
	}
	if c.Port < 1 || c.Port > 65535 {
		field("port", c.Port, "give 1 to 65535, as 587 for StartTLS or 465 for Implicit")
	}
	if c.ServerName != "" && !isDNSName(c.ServerName) && !isIP(c.ServerName) {
		field("serverName", quoted(c.ServerName), "give the DNS name in the server's certificate")
	}
	if c.HELO != "" && !isDNSName(c.HELO) {
		field("hello", quoted(c.HELO), "give the DNS name of the sender")
	}

	switch c.TLS {
	case "", StartTLS, ImplicitTLS:
	case NoTLS:
		if !c.localByName() && c.PlaintextTo != c.Host {
			field("tls", c.TLS, fmt.Sprintf("mails would cross the network in the clear to %s; use StartTLS or Implicit, or allow it by naming the host", quoted(c.Host)))
		}
	default:
		field("tls", quoted(string(c.TLS)), "give StartTLS, Implicit or None")
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
		field("auth", quoted(string(c.Auth)), "give PLAIN, LOGIN or None")
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

func (c *Config) hello() string {
	if c.HELO != "" {
		return c.HELO
	}
	if name, err := os.Hostname(); err == nil && isDNSName(name) {
		return name
	}
	return "localhost"
}

// localByName is whether the host is this machine, as far as its name tells.
func (c *Config) localByName() bool {
	if ip, err := netip.ParseAddr(c.Host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(c.Host, "localhost")
}

// leavesMachine is whether a connection goes to another machine: what localhost
// resolved to is known only now.
func leavesMachine(conn net.Conn) bool {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

func isIP(s string) bool {
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Zone() == ""
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }
