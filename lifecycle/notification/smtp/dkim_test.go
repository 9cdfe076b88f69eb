// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package smtp

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
)

// TestDKIMSignature verifies the received message with the public key; a message with a changed or
// added field fails.
func TestDKIMSignature(t *testing.T) {
	t.Parallel()
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(long.Public())
	if err != nil {
		t.Fatal(err)
	}
	record := func(kind string, key []byte) string {
		return "v=DKIM1; k=" + kind + "; p=" + base64.StdEncoding.EncodeToString(key)
	}
	for name, c := range map[string]struct{ pem, record string }{
		"RSA, PKCS #8":     {encodePKCS8(t, long), record("rsa", spki)},
		"RSA, PKCS #1":     {encodePEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(long)), record("rsa", spki)},
		"Ed25519, PKCS #8": {encodePKCS8(t, private), record("ed25519", public)},
	} {
		t.Run(name, func(t *testing.T) {
			backend := &fakeBackend{}
			wire := newMemoryListener()
			serve(t, wire, backend, nil)
			s := newTestSender(t, Config{
				Host: "localhost", Port: 25, TLS: NoTLS, Dial: wire.dial, Timeouts: shortTimeouts(),
				DKIM: &DKIM{Domain: "example.org", Selector: "mail2026", Key: []byte(c.pem)},
			})
			if err := sendTo(t, s, testRecipient); err != nil {
				t.Fatal(err)
			}
			got := backend.receivedMessages()[0].Data
			if !strings.HasSuffix(got, testMessage) || !strings.HasPrefix(got, "DKIM-Signature:") || !strings.Contains(got, "c=relaxed/relaxed") {
				t.Errorf("the server has %q", got)
			}
			verify := func(message string) error {
				v, err := dkim.VerifyWithOptions(strings.NewReader(message), &dkim.VerifyOptions{
					LookupTXT: func(name string) ([]string, error) {
						if name != "mail2026._domainkey.example.org" {
							return nil, fmt.Errorf("looked up %s", name)
						}
						return []string{c.record}, nil
					},
				})
				if err != nil || len(v) != 1 {
					t.Fatalf("%d verifications, %v", len(v), err)
				}
				return v[0].Err
			}
			if err := verify(got); err != nil {
				t.Errorf("as it arrived: %v", err)
			}
			if verify(strings.Replace(got, "two days", "two years", 1)) == nil {
				t.Error("a changed subject verifies")
			}
			if verify(strings.Replace(got, "Subject:", "Date: Thu, 1 Jan 2026 00:00:00 +0000\r\nSubject:", 1)) == nil {
				t.Error("an added date verifies")
			}
			if verify(got+"and more\r\n") == nil {
				t.Error("an added line verifies")
			}
		})
	}
}

func TestDKIMKeys(t *testing.T) {
	t.Parallel()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dkim DKIM
		want string
	}{
		"no PEM":           {DKIM{"example.org", "s", []byte("secret")}, "holds no PEM"},
		"a certificate":    {DKIM{"example.org", "s", []byte(encodePEM("CERTIFICATE", nil))}, `holds "CERTIFICATE"`},
		"with passphrase":  {DKIM{"example.org", "s", []byte(encodePEM("ENCRYPTED PRIVATE KEY", nil))}, "without a passphrase"},
		"cannot be read":   {DKIM{"example.org", "s", []byte(encodePEM("PRIVATE KEY", []byte("x")))}, "cannot be read"},
		"of another kind":  {DKIM{"example.org", "s", []byte(encodePKCS8(t, curve))}, "give an RSA or Ed25519 key"},
		"domain injected":  {DKIM{"example.org; x=1", "s", nil}, "dkim.domain"},
		"selector missing": {DKIM{"example.org", "", nil}, "dkim.selector"},
	} {
		_, err := New(Config{Host: "localhost", Port: 25, DKIM: &c.dkim})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

func encodePKCS8(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encodePEM("PRIVATE KEY", der)
}

func encodePEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
