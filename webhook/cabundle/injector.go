// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration lets the API server trust the webhook.
//
// Enters: the certificate authority's file, ca.crt, and the two webhook
// configurations that the manifests install. Leaves: that authority as the
// caBundle of each of their entries, again whenever either changes.
//
// It never adds, removes or otherwise changes an entry: what is asked of the
// webhook is declared in the manifests, where people can read it.
package cabundle

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// syncInterval is how often, in machine time, the file and the configurations are
// looked at: two small reads, and a rotation is done well within the overlap
// that any authority gives.
const syncInterval = 30 * time.Second

// retryInterval is the same until the first success, while nobody trusts us yet.
const retryInterval = time.Second

// Injector keeps the caBundle right. It runs in every replica; they all write the
// same.
type Injector struct {
	// Client reads from and writes to the API server, without a cache.
	Client client.Client
	// Logger tells of changes and failures.
	Logger logr.Logger
	// CAFile is the path of the certificate authority's certificates, PEM.
	CAFile string
	// Validating and Mutating are the names of the two configurations.
	Validating, Mutating string

	injected atomic.Bool
}

// Start keeps the caBundle right until ctx ends. It implements manager.Runnable.
func (k *Injector) Start(ctx context.Context) error {
	said := "" // the last failure that was logged: one line each, not one a second
	for {
		err := k.sync(ctx)
		switch {
		case err == nil:
			k.injected.Store(true)
			said = ""
		case err.Error() != said && ctx.Err() == nil:
			said = err.Error()
			k.Logger.Error(err, "Failed to inject CA bundle, retrying")
		}
		wait := syncInterval
		if !k.injected.Load() {
			wait = retryInterval
		}
		timer := time.NewTimer(wait) //nolint:forbidigo // machine time: how often files are looked at
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k *Injector) NeedLeaderElection() bool { return false }

// Ready is a health check: an error until the webhook was registered once.
func (k *Injector) Ready(*http.Request) error {
	if !k.injected.Load() {
		return errors.New("the CA bundle is not injected yet")
	}
	return nil
}

func (k *Injector) sync(ctx context.Context) error {
	bundle, err := readBundle(k.CAFile)
	if err != nil {
		return err
	}
	var validating admissionv1.ValidatingWebhookConfiguration
	var mutating admissionv1.MutatingWebhookConfiguration
	return errors.Join(
		k.inject(ctx, k.Validating, &validating, bundle, func() []webhookEntry {
			return webhookEntries(validating.Webhooks, func(w admissionv1.ValidatingWebhook) webhookEntry {
				return webhookEntry{w.Name, w.ClientConfig.CABundle}
			})
		}),
		k.inject(ctx, k.Mutating, &mutating, bundle, func() []webhookEntry {
			return webhookEntries(mutating.Webhooks, func(w admissionv1.MutatingWebhook) webhookEntry { return webhookEntry{w.Name, w.ClientConfig.CABundle} })
		}),
	)
}

// webhookEntry is one webhook of a configuration, and the authority it trusts.
type webhookEntry struct {
	name     string
	caBundle []byte
}

func webhookEntries[W any](webhooks []W, of func(W) webhookEntry) []webhookEntry {
	list := make([]webhookEntry, 0, len(webhooks))
	for _, w := range webhooks {
		list = append(list, of(w))
	}
	return list
}

func (k *Injector) inject(ctx context.Context, name string, into client.Object, bundle []byte, list func() []webhookEntry) error {
	if err := k.Client.Get(ctx, types.NamespacedName{Name: name}, into); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s does not exist: apply the manifests, or name another in registration: %w", into, name, err)
		}
		return fmt.Errorf("get %T %s: %w", into, name, err)
	}
	patch := bundlePatch(list(), bundle)
	if patch == nil {
		return nil
	}
	// A strategic merge patch merges the list of webhooks by their names.
	if err := k.Client.Patch(ctx, into, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerWebhook)); err != nil {
		return fmt.Errorf("patch the caBundle of %T %s: %w", into, name, err)
	}
	k.Logger.Info("Injected CA bundle", "configuration", name, "type", fmt.Sprintf("%T", into))
	return nil
}

// bundlePatch is the change that makes every entry trust the bundle; nil where
// all of them do.
func bundlePatch(list []webhookEntry, bundle []byte) []byte {
	var webhooks []map[string]any
	for _, e := range list {
		if !bytes.Equal(e.caBundle, bundle) {
			webhooks = append(webhooks, map[string]any{"name": e.name, "clientConfig": map[string]any{"caBundle": bundle}})
		}
	}
	if len(webhooks) == 0 {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"webhooks": webhooks})
	if err != nil {
		panic(err) // strings and bytes always marshal
	}
	return raw
}

func readBundle(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("certificate authority: %s holds no certificate in PEM form", path)
	}
	return raw, nil
}
