// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/config"
)

// Keys of the Secrets, as in the Secret types of Kubernetes.
const (
	usernameKey    = corev1.BasicAuthUsernameKey
	passwordKey    = corev1.BasicAuthPasswordKey
	dkimPrivateKey = corev1.TLSPrivateKeyKey
)

// secretReader reads the Secrets of the mail configuration, uncached.
type secretReader struct {
	live client.Reader
	mail *config.Mail
}

// readSecret returns a Secret that has a value for each key.
func (s *secretReader) readSecret(ctx context.Context, field string, ref config.SecretReference, keys ...string) (*corev1.Secret, error) {
	var secret corev1.Secret
	if err := s.live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &secret); err != nil {
		return nil, readFailure(err, fmt.Errorf("mail.%s: get Secret: %w", field, err))
	}
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return nil, &Failure{
				Kind: ConfigurationFailure,
				Err:  fmt.Errorf("mail.%s: Secret %s in namespace %s lacks the key %s", field, ref.Name, ref.Namespace, key),
			}
		}
	}
	return &secret, nil
}

// credentials returns the credentials for the mail server.
func (s *secretReader) credentials(ctx context.Context) (user, password string, err error) {
	secret, err := s.readSecret(ctx, "credentialsSecret", *s.mail.CredentialsSecret, usernameKey, passwordKey)
	if err != nil {
		return "", "", err
	}
	return string(secret.Data[usernameKey]), string(secret.Data[passwordKey]), nil
}

// readFailure classifies a read error: ConfigurationFailure if the object is missing or forbidden,
// else ServerFailure.
func readFailure(err, wrapped error) error {
	kind := ServerFailure
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		kind = ConfigurationFailure
	}
	return &Failure{Kind: kind, Err: wrapped}
}

// fingerprint hashes the mail configuration: the section of the file, the CA file, and the versions
// of the Secrets and templates. It reveals none of them.
func (s *secretReader) fingerprint(ctx context.Context) (string, error) {
	section, err := json.Marshal(s.mail)
	if err != nil {
		return "", fmt.Errorf("marshal mail configuration: %w", err)
	}
	hash := sha256.New()
	hash.Write(section)
	if s.mail.CAFile != "" {
		// An unreadable file has another fingerprint than a readable one.
		ca, _ := os.ReadFile(s.mail.CAFile)
		fmt.Fprintf(hash, "\x00%x", sha256.Sum256(ca))
	}
	version := func(object client.Object, namespace, name string) error {
		err := s.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
		switch {
		case err == nil:
			fmt.Fprintf(hash, "\x00%s %s", object.GetUID(), object.GetResourceVersion())
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
			fmt.Fprint(hash, "\x00none")
		default:
			return fmt.Errorf("mail: get %s: %w", name, err)
		}
		return nil
	}
	if ref := s.mail.CredentialsSecret; ref != nil {
		if err := version(&corev1.Secret{}, ref.Namespace, ref.Name); err != nil {
			return "", err
		}
	}
	if s.mail.DKIM != nil {
		if err := version(&corev1.Secret{}, s.mail.DKIM.KeySecret.Namespace, s.mail.DKIM.KeySecret.Name); err != nil {
			return "", err
		}
	}
	if s.mail.Templates != "" {
		if err := version(&corev1.ConfigMap{}, v1alpha1.SystemNamespace, s.mail.Templates); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}
