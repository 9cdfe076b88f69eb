// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/test/clustertest"
)

// writeCertificate writes a certificate and its key, as a kubelet does for a mounted Secret, and returns the certificate.
func writeCertificate(t *testing.T, directory string, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: end, DNSNames: []string{"localhost"}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		corev1.TLSPrivateKeyKey: {Type: "PRIVATE KEY", Bytes: rawKey}, corev1.TLSCertKey: {Type: "CERTIFICATE", Bytes: raw},
	} {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	return raw
}

// The webhook starts before it has a certificate, and is not ready until then. It serves a changed certificate, keeps the last good one
// while the files are unusable, and is not ready once it has expired.
func TestServingCertificate(t *testing.T) {
	s := &servingCertificate{directory: t.TempDir(), logger: testr.New(t)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := s.ready(nil); err == nil || !strings.Contains(err.Error(), "there is no certificate yet in "+s.directory) {
		t.Errorf("ready without a certificate: %v", err)
	}
	serves := func(want []byte) {
		t.Helper()
		clustertest.Eventually(t, func() error {
			certificate, err := s.get(nil)
			if err == nil && !bytes.Equal(certificate.Certificate[0], want) {
				err = os.ErrNotExist
			}
			return err
		})
	}
	serves(writeCertificate(t, s.directory, time.Now().Add(time.Hour)))
	if err := s.ready(nil); err != nil {
		t.Error(err)
	}
	second := writeCertificate(t, s.directory, time.Now().Add(time.Hour))
	serves(second)
	for _, content := range []string{"garbage", ""} {
		if err := os.WriteFile(filepath.Join(s.directory, corev1.TLSCertKey), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		serves(second)
	}
	serves(writeCertificate(t, s.directory, time.Now().Add(-time.Hour)))
	if err := s.ready(nil); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("ready with an expired certificate: %v", err)
	}
}
