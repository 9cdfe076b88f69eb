// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The lifetimes are those of cert-controller.
const (
	authorityLifetime   = 10 * 365 * 24 * time.Hour
	certificateLifetime = 365 * 24 * time.Hour
	// renewBefore is the time before the expiry of a certificate or an authority at which it is renewed.
	renewBefore = 90 * 24 * time.Hour
	// clockSkew is how far the clock of an API server may be behind the webhook's.
	clockSkew = time.Hour
)

// authorityName is the common name of the authority.
const authorityName = "sluice-webhook-ca"

// annotationCertManager is the annotation of cert-manager on its Secrets.
const annotationCertManager = "cert-manager.io/certificate-name"

var errCertManager = errors.New("cert-manager issues this Secret: set certificates.issue to false, or name another Secret")

// rotation is what has to be issued.
type rotation string

const (
	noRotation          rotation = ""
	rotationCertificate rotation = "certificate"
	rotationAuthority   rotation = "authority" // and a certificate of it
)

// Issuer issues the authority and the certificate in the Secret, and renews them. Several replicas may do so: the first write
// wins, and the others use its certificate.
//
// It signs with the functions of cert-controller. It does not run cert-controller's rotator, which writes the caBundle without
// the authorities of others, and the certificate before any API server trusts it.
type Issuer struct {
	// Client writes the Secret, without a cache.
	Client client.Client
	// Secret is the Secret, with a namespace and a name.
	Secret client.ObjectKey
	// Names are the DNS names of the certificate.
	Names []string
}

// due returns what has to be issued. The Secret is nil if it does not exist.
func (i *Issuer) due(secret *corev1.Secret, now time.Time) rotation {
	if secret == nil {
		return rotationAuthority
	}
	// Two authorities that overlap: a certificate never outlasts its authority.
	if ok, err := rotator.ValidCert(secret.Data[keyAuthority], secret.Data[keyAuthority], secret.Data[keyAuthorityKey], authorityName, nil,
		now.Add(renewBefore)); err != nil || !ok {
		return rotationAuthority
	}
	if _, err := parseBundle(secret.Data, i.Names, now); err != nil {
		return rotationCertificate
	}
	if _, err := parseBundle(secret.Data, i.Names, now.Add(renewBefore)); err != nil {
		return rotationCertificate
	}
	return noRotation
}

// issue writes a new certificate, and a new authority if that is due, and returns the written Secret. It returns an error of the
// API server if the Secret changed since it was read.
func (i *Issuer) issue(ctx context.Context, former *corev1.Secret, due rotation, now time.Time) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.Secret.Namespace, Name: i.Secret.Name},
		Type:       corev1.SecretTypeTLS,
	}
	if former != nil {
		secret = former.DeepCopy()
	}
	if secret.Annotations[annotationCertManager] != "" {
		return nil, errCertManager
	}
	signer := rotator.CertRotator{
		CAName: authorityName, CAOrganization: v1alpha1.Group, DNSName: i.Names[0], ExtraDNSNames: i.Names[1:],
		ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authority, err := i.authority(&signer, secret, due, now)
	if err != nil {
		return nil, err
	}
	expiry := now.Add(certificateLifetime)
	if expiry.After(authority.Cert.NotAfter) {
		expiry = authority.Cert.NotAfter
	}
	certificate, key, err := signer.CreateCertPEM(authority, now.Add(-clockSkew), expiry)
	if err != nil {
		return nil, fmt.Errorf("issue certificate: %w", err)
	}
	secret.Data = map[string][]byte{
		keyAuthority: authority.CertPEM, keyAuthorityKey: authority.KeyPEM, keyCertificate: certificate, keyPrivateKey: key,
	}
	if former == nil {
		err = i.Client.Create(ctx, secret, client.FieldOwner(v1alpha1.FieldManagerWebhook))
	} else {
		err = i.Client.Update(ctx, secret, client.FieldOwner(v1alpha1.FieldManagerWebhook))
	}
	return secret, err
}

// authority returns a new authority, or the Secret's if only the certificate is due.
func (*Issuer) authority(signer *rotator.CertRotator, secret *corev1.Secret, due rotation, now time.Time) (*rotator.KeyPairArtifacts, error) {
	if due == rotationAuthority {
		authority, err := signer.CreateCACert(now.Add(-clockSkew), now.Add(authorityLifetime))
		if err != nil {
			return nil, fmt.Errorf("issue authority: %w", err)
		}
		return authority, nil
	}
	certificate, key := bytes.TrimSpace(secret.Data[keyAuthority]), secret.Data[keyAuthorityKey]
	parsed, err := parseCertificates(certificate)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyAuthority, err)
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New(keyAuthorityKey + " contains no key in PEM form")
	}
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New(keyAuthorityKey + " is no RSA key in the form PKCS #1")
	}
	return &rotator.KeyPairArtifacts{Cert: parsed[0], Key: private, CertPEM: append(certificate, '\n'), KeyPEM: key}, nil
}
