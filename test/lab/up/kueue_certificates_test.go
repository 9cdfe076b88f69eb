// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func parseCertificate(t *testing.T, raw []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(raw)
	if block == nil {
		t.Fatalf("no PEM: %q", raw)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// Kueue renews certificates that fail one of these checks. The API server would then
// reject the webhooks.
func TestIssuedCertificatesAreKeptByKueue(t *testing.T) {
	files, err := issueKueueCertificates()
	if err != nil {
		t.Fatal(err)
	}
	authority, server := parseCertificate(t, files[caCertFile]), parseCertificate(t, files[serverCertFile])
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	const lookahead = 90 * 24 * time.Hour
	for _, tc := range []struct {
		certificate *x509.Certificate
		name        string
	}{
		{authority, "kueue-ca"},
		{server, "kueue-webhook-service.kueue-system.svc"},
		{server, "127.0.0.1"}, // the API server's own check
	} {
		options := x509.VerifyOptions{
			DNSName: tc.name, Roots: roots, CurrentTime: time.Now().Add(lookahead),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		if _, err := tc.certificate.Verify(options); err != nil {
			t.Errorf("as %s: %v", tc.name, err)
		}
	}
	for cert, key := range map[string]string{caCertFile: caKeyFile, serverCertFile: serverKeyFile} {
		if _, err := tls.X509KeyPair(files[cert], files[key]); err != nil {
			t.Errorf("%s and %s: %v", cert, key, err)
		}
	}
	block, _ := pem.Decode(files[caKeyFile])
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
		t.Errorf("the authority's key: %v", err)
	}
}

func TestKueueCertificatesWriteOnlyServerPair(t *testing.T) {
	files := kueueCertificates{caCertFile: []byte("a"), caKeyFile: []byte("b"), serverCertFile: []byte("c"), serverKeyFile: []byte("d")}
	dir := filepath.Join(t.TempDir(), "certificates")
	if err := files.Write(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("%v", entries)
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(content, files[name]) {
			t.Errorf("%s has %q, %v", name, content, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
