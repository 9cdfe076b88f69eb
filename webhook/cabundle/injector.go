// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cabundle injects the webhook's CA bundle into its webhook configurations, so that the API server trusts it.
//
// The injector reads the CA certificates from ca.crt and writes them to the caBundle of each entry of the two
// configurations, whenever either changes. It never adds, removes or otherwise changes an entry: the manifests declare
// the webhooks. While the certificate authority changes, replicas have different files: each adds its own certificates,
// and removes another's only after an hour.
package cabundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// syncInterval is the interval of checks, in machine time. It is far shorter than the overlap of certificate authorities
// in a rotation.
const syncInterval = 30 * time.Second

// retryInterval is the interval before the first success.
const retryInterval = time.Second

// Injector injects the CA bundle. It runs in every replica.
type Injector struct {
	// Client reads from and writes to the API server, without a cache.
	Client client.Client
	// Logger logs changes and failures.
	Logger logr.Logger
	// CAFile is the path of the CA certificates, in PEM form.
	CAFile string
	// Validating and Mutating are the names of the configurations.
	Validating, Mutating string

	injected atomic.Bool
	now      func() time.Time // machine time, if a test does not set it
	// others are the certificates of other replicas, of each configuration for itself.
	othersValidating, othersMutating otherCertificates
}

// Start injects the CA bundle until ctx ends. It implements manager.Runnable.
func (i *Injector) Start(ctx context.Context) error {
	lastFailure := "" // logged once, not at each retry
	for {
		err := i.sync(ctx)
		switch {
		case err == nil:
			i.injected.Store(true)
			lastFailure = ""
		case err.Error() != lastFailure && ctx.Err() == nil:
			lastFailure = err.Error()
			i.Logger.Error(err, "Failed to inject CA bundle, retrying")
		}
		wait := syncInterval
		if !i.injected.Load() {
			wait = retryInterval
		}
		timer := time.NewTimer(wait) //nolint:forbidigo // machine time: the interval of checks
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (i *Injector) NeedLeaderElection() bool { return false }

// Ready is a health check. It fails until the first injection.
func (i *Injector) Ready(*http.Request) error {
	if !i.injected.Load() {
		return errors.New("the CA bundle is not injected yet")
	}
	return nil
}

func (i *Injector) sync(ctx context.Context) error {
	own, err := readBundle(i.CAFile)
	if err != nil {
		return err
	}
	if i.now == nil {
		i.now = policytime.MachineNow
	}
	var validating admissionv1.ValidatingWebhookConfiguration
	var mutating admissionv1.MutatingWebhookConfiguration
	return errors.Join(
		i.inject(ctx, i.Validating, &validating, own, &i.othersValidating, func() []webhookEntry {
			return webhookEntries(validating.Webhooks, func(w admissionv1.ValidatingWebhook) webhookEntry {
				return webhookEntry{w.Name, w.ClientConfig.CABundle}
			})
		}),
		i.inject(ctx, i.Mutating, &mutating, own, &i.othersMutating, func() []webhookEntry {
			return webhookEntries(mutating.Webhooks, func(w admissionv1.MutatingWebhook) webhookEntry {
				return webhookEntry{w.Name, w.ClientConfig.CABundle}
			})
		}),
	)
}

// webhookEntry is one webhook of a configuration.
type webhookEntry struct {
	name     string
	caBundle []byte
}

func webhookEntries[W any](webhooks []W, newEntry func(W) webhookEntry) []webhookEntry {
	entries := make([]webhookEntry, 0, len(webhooks))
	for _, w := range webhooks {
		entries = append(entries, newEntry(w))
	}
	return entries
}

// inject patches one configuration. entries returns the webhooks of the object once it is read.
func (i *Injector) inject(ctx context.Context, name string, object client.Object, own []certificate, others *otherCertificates, entries func() []webhookEntry) error {
	if err := i.Client.Get(ctx, types.NamespacedName{Name: name}, object); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s does not exist: apply the manifests, or name another in registration: %w", object, name, err)
		}
		return fmt.Errorf("get %T %s: %w", object, name, err)
	}
	present := entries()
	patch := bundlePatch(present, encodeBundle(others.merge(own, present, i.now())))
	if patch == nil {
		return nil
	}
	// A strategic merge patch merges the list of webhooks by their names.
	rawPatch := client.RawPatch(types.StrategicMergePatchType, patch)
	if err := i.Client.Patch(ctx, object, rawPatch, client.FieldOwner(v1alpha1.FieldManagerWebhook)); err != nil {
		return fmt.Errorf("patch the caBundle of %T %s: %w", object, name, err)
	}
	i.Logger.Info("Injected CA bundle", "configuration", name, "type", fmt.Sprintf("%T", object))
	return nil
}

// bundlePatch returns the patch that sets the bundle of every entry; nil if all entries have it.
func bundlePatch(entries []webhookEntry, bundle []byte) []byte {
	var webhooks []map[string]any
	for _, e := range entries {
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
