// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/test/lab/cluster"
)

// testSink is a mail sink that runs until the test ends.
type testSink struct {
	Config
	roots *x509.CertPool
}

func startSink(t *testing.T) *testSink {
	t.Helper()
	dir := t.TempDir()
	ca, err := cluster.OpenCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("localhost")
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	s := &testSink{roots: x509.NewCertPool(), Config: Config{
		Listen: free.Addr().String(), Dir: filepath.Join(dir, "mail"), Certificates: dir, Username: "lifecycle", Password: "se cret",
	}}
	s.roots.AppendCertsFromPEM(ca.CertPEM())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s.Config, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for ready := Ready(s.Listen); ; {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		err := ready(ctx)
		stop()
		if err == nil {
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatal("the sink ended")
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *testSink) client(t *testing.T) *smtp.Client {
	t.Helper()
	c, err := smtp.DialStartTLS(s.Listen, &tls.Config{RootCAs: s.roots, ServerName: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (s *testSink) authenticatedClient(t *testing.T) *smtp.Client {
	t.Helper()
	c := s.client(t)
	if err := c.Auth(sasl.NewPlainClient("", s.Username, s.Password)); err != nil {
		t.Fatal(err)
	}
	return c
}

func mailSubjects(t *testing.T, dir string) (list []string) {
	t.Helper()
	found, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range found {
		list = append(list, fmt.Sprintf("%d %s %s%s", h.Number, h.To, h.Subject, h.Problem))
	}
	return list
}

func newMessage(to, subject string) string {
	return "From: Sluice <sluice@cluster.example>\r\nTo: <" + to + ">\r\nSubject: " + subject +
		"\r\nDate: Sat, 21 Nov 2026 11:14:03 +0000\r\nMessage-ID: <1@cluster.example>\r\n\r\n.hello\r\n"
}

func TestServerStoresMail(t *testing.T) {
	s := startSink(t)
	c := s.authenticatedClient(t)
	for _, subject := range []string{"one", "=?utf-8?q?zwei_=C3=9C?="} {
		if err := c.SendMail("sluice@cluster.example", []string{"anna@example.org"},
			strings.NewReader(newMessage("anna@example.org", subject))); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"1 anna@example.org one", "2 anna@example.org zwei Ü"}, mailSubjects(t, s.Dir)); diff != "" {
		t.Fatal(diff)
	}
	list, err := List(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(s.Dir, list[1].File)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newMessage("anna@example.org", "=?utf-8?q?zwei_=C3=9C?="), string(read.Raw)); diff != "" {
		t.Errorf("the bytes differ: %s", diff)
	}
	if read.Text != ".hello\n" || !read.Date.Equal(time.Date(2026, 11, 21, 11, 14, 3, 0, time.UTC)) ||
		read.MessageID != "<1@cluster.example>" {
		t.Errorf("read %+v", read)
	}
	if info, err := os.Stat(filepath.Join(s.Dir, list[0].File)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

func TestServerRequiresAuthentication(t *testing.T) {
	s := startSink(t)
	tests := map[string]func(c *smtp.Client) error{
		"no authentication": func(c *smtp.Client) error { return c.Mail("x@example.org", nil) },
		"a wrong password":  func(c *smtp.Client) error { return c.Auth(sasl.NewPlainClient("", s.Username, "secret")) },
		"a wrong name":      func(c *smtp.Client) error { return c.Auth(sasl.NewPlainClient("", "root", s.Password)) },
		"two recipients": func(c *smtp.Client) error {
			if err := c.Auth(sasl.NewPlainClient("", s.Username, s.Password)); err != nil {
				return nil //nolint:nilerr // the missing error fails the test
			}
			return c.SendMail("x@example.org", []string{"a@example.org", "b@example.org"}, strings.NewReader("x"))
		},
	}
	for name, try := range tests {
		t.Run(name, func(t *testing.T) {
			if err := try(s.client(t)); err == nil {
				t.Error("want an error")
			}
		})
	}
	t.Run("without TLS", func(t *testing.T) {
		c, err := smtp.Dial(s.Listen)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Auth(sasl.NewPlainClient("", s.Username, s.Password)); err == nil {
			t.Error("the sink accepts a password without TLS")
		}
	})
	if list := mailSubjects(t, s.Dir); list != nil {
		t.Errorf("kept %q", list)
	}
}

// The sink stores no mail that is interrupted or too large.
// Mail to an owner whose address does not exist can be tried.
func TestServerRefusesUndeliverableAddress(t *testing.T) {
	c := startSink(t).client(t)
	if err := c.Auth(sasl.NewPlainClient("", "lifecycle", "se cret")); err != nil {
		t.Fatal(err)
	}
	if err := c.Mail("sluice@example.org", nil); err != nil {
		t.Fatal(err)
	}
	var refused *smtp.SMTPError
	if err := c.Rcpt("gone@Example.INVALID", nil); !errors.As(err, &refused) || refused.Code != 550 {
		t.Errorf("the answer is %v, want 550", err)
	}
	if err := c.Rcpt("anna@invalid.example.org", nil); err != nil {
		t.Error(err)
	}
}

func TestServerDiscardsIncompleteMail(t *testing.T) {
	s := startSink(t)
	c := s.authenticatedClient(t)
	begin := func() io.WriteCloser {
		if err := c.Mail("x@example.org", nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Rcpt("anna@example.org", nil); err != nil {
			t.Fatal(err)
		}
		w, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := begin()
	line := strings.Repeat("x", 998) + "\r\n"
	for range MaxSize/len(line) + 2 {
		if _, err := io.WriteString(w, line); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "size") {
		t.Errorf("too large: %v", err)
	}
	if _, err := io.WriteString(begin(), newMessage("anna@example.org", "half")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	// The server handles the next mail after it has ended the interrupted one.
	if err := s.authenticatedClient(t).SendMail("x@example.org", []string{"../../etc/pass*wd@example.org"},
		strings.NewReader(newMessage("anna@example.org", "whole"))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1 anna@example.org whole"}, mailSubjects(t, s.Dir)); diff != "" {
		t.Error(diff)
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil || len(entries) != 1 || !strings.HasSuffix(entries[0].Name(), "-.._.._etc_pass_wd@example.org-1.eml") {
		t.Errorf("%v %v", entries, err)
	}
}

func TestLoadConfigRejectsUnknownFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	good := Config{Listen: "127.0.0.1:1", Dir: "/mail", Certificates: "/certificates", Username: "u", Password: "p"}
	if err := WriteConfig(path, good); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadConfig(path); err != nil || got != good {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(*Config){
		"listen":   func(c *Config) { c.Listen = "0.0.0.0:25" },
		"password": func(c *Config) { c.Password = "" },
		"dir":      func(c *Config) { c.Dir = "" },
	} {
		bad := good
		change(&bad)
		if err := WriteConfig(path, bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(raw, "more: x\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), "more") {
		t.Errorf("an unknown field: %v", err)
	}
}
