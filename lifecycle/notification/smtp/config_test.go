// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"strings"
	"testing"
	"time"
)

func TestNewValidatesConfig(t *testing.T) {
	t.Parallel()
	password := staticCredentials("sluice", testPassword)
	for name, c := range map[string]struct {
		config Config
		want   string // in the error; empty means none
	}{
		"least":                         {config: Config{Host: "mail.example.org", Port: 587}},
		"an IPv6 address":               {config: Config{Host: "2001:db8::1", Port: 25}},
		"no host":                       {Config{Port: 587}, `host "": give the DNS name`},
		"host with a port":              {Config{Host: "mail.example.org:587", Port: 587}, "host"},
		"no port":                       {Config{Host: "mail.example.org"}, "port 0: give 1 to 65535"},
		"a command in the hello name":   {Config{Host: "h", Port: 25, HELO: "x\r\nMAIL FROM:<>"}, "hello"},
		"unknown TLS":                   {Config{Host: "h", Port: 25, TLS: "Maybe"}, "give StartTLS, Implicit or None"},
		"unknown auth":                  {Config{Host: "h", Port: 25, Auth: "NTLM"}, "give PLAIN, LOGIN or None"},
		"plaintext to a remote host":    {Config{Host: "mail.example.org", Port: 25, TLS: NoTLS}, "mails would be sent unencrypted"},
		"plaintext, another host named": {Config{Host: "mail.example.org", Port: 25, TLS: NoTLS, PlaintextTo: "mail"}, "mails would be sent"},
		"in the clear, named":           {config: Config{Host: "mail.example.org", Port: 25, TLS: NoTLS, PlaintextTo: "mail.example.org"}},
		"in the clear, loopback":        {config: Config{Host: "::1", Port: 25, TLS: NoTLS}},
		"in the clear, mapped":          {config: Config{Host: "::ffff:127.0.0.2", Port: 25, TLS: NoTLS}},
		"plaintext password": {
			Config{Host: "localhost", Port: 25, TLS: NoTLS, Auth: PlainAuth, Credentials: password}, "a password is sent over TLS only",
		},
		"no credentials":             {Config{Host: "h", Port: 25, Auth: LoginAuth}, "needs credentials"},
		"a CA that is none":          {Config{Host: "h", Port: 25, CA: []byte("x")}, "ca: it holds no certificate"},
		"negative time-out":          {Config{Host: "h", Port: 25, Timeouts: Timeouts{Final: -time.Second}}, "timeouts.final -1s"},
		"negative reuse":             {Config{Host: "h", Port: 25, Reuse: Reuse{Messages: -1}}, "reuse"},
		"a server name that is none": {Config{Host: "h", Port: 25, ServerName: "*."}, "serverName"},
	} {
		_, err := New(c.config)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}
