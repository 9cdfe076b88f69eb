// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

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

// every is how often, in machine time, the file and the configurations are
// looked at: two small reads, and a rotation is done well within the overlap
// that any authority gives.
const every = 30 * time.Second

// retryEvery is the same until the first success, while nobody trusts us yet.
const retryEvery = time.Second

// Keeper keeps the caBundle right. It runs in every replica; they all write the
// same.
type Keeper struct {
	// Client reads from and writes to the API server, without a cache.
	Client client.Client
	// Logger tells of changes and failures.
	Logger logr.Logger
	// CAFile is the path of the certificate authority's certificates, PEM.
	CAFile string
	// Validating and Mutating are the names of the two configurations.
	Validating, Mutating string

	registered atomic.Bool
}

// Start keeps the caBundle right until ctx ends. It implements manager.Runnable.
func (k *Keeper) Start(ctx context.Context) error {
	said := "" // the last failure that was logged: one line each, not one a second
	for {
		err := k.keep(ctx)
		switch {
		case err == nil:
			k.registered.Store(true)
			said = ""
		case err.Error() != said && ctx.Err() == nil:
			said = err.Error()
			k.Logger.Error(err, "the API server may not trust this webhook; trying on")
		}
		wait := every
		if !k.registered.Load() {
			wait = retryEvery
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
func (k *Keeper) NeedLeaderElection() bool { return false }

// Ready is a health check: an error until the webhook was registered once.
func (k *Keeper) Ready(*http.Request) error {
	if !k.registered.Load() {
		return errors.New("not registered with the API server yet")
	}
	return nil
}

func (k *Keeper) keep(ctx context.Context) error {
	bundle, err := readBundle(k.CAFile)
	if err != nil {
		return err
	}
	var validating admissionv1.ValidatingWebhookConfiguration
	var mutating admissionv1.MutatingWebhookConfiguration
	return errors.Join(
		k.inject(ctx, k.Validating, &validating, bundle, func() []entry {
			return entries(validating.Webhooks, func(w admissionv1.ValidatingWebhook) entry { return entry{w.Name, w.ClientConfig.CABundle} })
		}),
		k.inject(ctx, k.Mutating, &mutating, bundle, func() []entry {
			return entries(mutating.Webhooks, func(w admissionv1.MutatingWebhook) entry { return entry{w.Name, w.ClientConfig.CABundle} })
		}),
	)
}

// entry is one webhook of a configuration, and the authority it trusts.
type entry struct {
	name   string
	bundle []byte
}

func entries[W any](webhooks []W, of func(W) entry) []entry {
	list := make([]entry, 0, len(webhooks))
	for _, w := range webhooks {
		list = append(list, of(w))
	}
	return list
}

func (k *Keeper) inject(ctx context.Context, name string, into client.Object, bundle []byte, list func() []entry) error {
	if err := k.Client.Get(ctx, types.NamespacedName{Name: name}, into); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s is not there: apply the manifests, or name another in registration: %w", into, name, err)
		}
		return fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	patch := bundlePatch(list(), bundle)
	if patch == nil {
		return nil
	}
	// A strategic merge patch merges the list of webhooks by their names.
	if err := k.Client.Patch(ctx, into, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(v1alpha1.FieldManagerWebhook)); err != nil {
		return fmt.Errorf("writing the caBundle of %T %s: %w", into, name, err)
	}
	k.Logger.Info("registered", "configuration", name, "type", fmt.Sprintf("%T", into))
	return nil
}

// bundlePatch is the change that makes every entry trust the bundle; nil where
// all of them do.
func bundlePatch(list []entry, bundle []byte) []byte {
	var webhooks []map[string]any
	for _, e := range list {
		if !bytes.Equal(e.bundle, bundle) {
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
