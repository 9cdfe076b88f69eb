// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// syncInterval is the interval of checks, in machine time. It is far shorter than the overlap of certificate authorities
// in a rotation.
const syncInterval = 30 * time.Second

// retryInterval is the interval before the first success, and after a failure.
const retryInterval = time.Second

// trustDelay is the time after the injection after which every API server has observed it, in machine time. They watch the
// configurations, and observe a change within a second unless they are overloaded.
const trustDelay = 15 * time.Second

// Injector injects the CA bundle, and the rules that depend on settings. It runs in every replica.
//
// It writes the replica's CA certificates to the caBundle of each entry of the two configurations, whenever either changes, and
// the rules of those entries that the manifests declare without rules. It never adds or removes an entry, or changes it in
// another way: the manifests declare the webhooks. While the certificate authority
// changes, replicas have different ones: each adds its own certificates, and removes another's only after an hour.
type Injector struct {
	// Client reads from and writes to the API server, without a cache.
	Client client.Client
	// Registrations is a client of admissionregistration.k8s.io/v1, which watches the two configurations.
	Registrations rest.Interface
	// Logger logs changes and failures.
	Logger logr.Logger
	// Authorities returns the CA certificates of this replica; none while it has no certificate.
	Authorities func() []*x509.Certificate
	// Rules returns the rules of entries, by name; the rules of all other entries stay as they are. Nil means none.
	Rules func(context.Context) (EntryRules, error)
	// Validating and Mutating are the names of the configurations.
	Validating, Mutating string

	injected atomic.Bool
	now      func() time.Time // machine time, if a test does not set it
	interval time.Duration    // syncInterval, if a test does not set it
	changed  chan struct{}    // wakes Start up

	mu sync.Mutex
	// trustedSince has when this replica first knew its own certificates in all entries.
	trustedSince map[certificate]time.Time
	// others are the certificates of other replicas, of each configuration for itself.
	othersValidating, othersMutating otherCertificates
}

// EntryRules are the rules of entries of the configurations, by the names of the entries.
type EntryRules map[string][]admissionv1.RuleWithOperations

// NewInjector returns an injector. The caller sets its fields before it starts.
func NewInjector() *Injector {
	return &Injector{changed: make(chan struct{}, 1), now: policytime.MachineNow, interval: syncInterval}
}

// Update injects the present authorities and rules soon.
func (i *Injector) Update() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// Trusted reports whether all API servers have had the time to observe the authority in the configurations.
func (i *Injector) Trusted(authority *x509.Certificate) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	since, known := i.trustedSince[certificate(authority.Raw)]
	return known && i.now().Sub(since) >= trustDelay
}

// The limit of passes that changes of a configuration cause: twenty at once, then one in ten seconds.
const (
	changesPerSecond = 0.1
	changesAtOnce    = 20
)

// Start injects the CA bundle until ctx ends. It implements manager.Runnable.
func (i *Injector) Start(ctx context.Context) error {
	i.watch(ctx)
	// Another program that writes the bundle too must not make the API servers load it without end.
	changes := flowcontrol.NewTokenBucketRateLimiter(changesPerSecond, changesAtOnce)
	defer changes.Stop()
	lastFailure := "" // logged once, not at each retry
	for {
		err := i.sync(ctx)
		switch {
		case errors.Is(err, errNoAuthority): // logged by the store of the certificates
		case err == nil:
			i.injected.Store(true)
			lastFailure = ""
		case err.Error() != lastFailure && ctx.Err() == nil:
			lastFailure = err.Error()
			i.Logger.Error(err, "Failed to inject CA bundle and rules, retrying")
		}
		wait := i.interval
		if err != nil {
			wait = retryInterval
		}
		timer := time.NewTimer(wait) //nolint:forbidigo // machine time: the interval of checks
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-i.changed:
			timer.Stop()
			if changes.Wait(ctx) != nil {
				return nil
			}
		case <-timer.C:
		}
	}
}

// watch calls Update at each change of a configuration until ctx ends: one that was deleted and applied again has no bundle, and
// the API server trusts no webhook of it. The checks at intervals do not depend on the watch.
func (i *Injector) watch(ctx context.Context) {
	update := func(any) { i.Update() }
	handler := cache.ResourceEventHandlerFuncs{AddFunc: update, UpdateFunc: func(_, _ any) { i.Update() }, DeleteFunc: update}
	for _, watched := range []struct {
		resource, name string
		object         runtime.Object
	}{
		{"validatingwebhookconfigurations", i.Validating, &admissionv1.ValidatingWebhookConfiguration{}},
		{"mutatingwebhookconfigurations", i.Mutating, &admissionv1.MutatingWebhookConfiguration{}},
	} {
		// The rights of the webhook are limited to these names.
		selected := cache.NewListWatchFromClient(i.Registrations, watched.resource, metav1.NamespaceNone,
			fields.OneTermEqualSelector(metav1.ObjectNameField, watched.name))
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: selected, ObjectType: watched.object, Handler: handler})
		go informer.RunWithContext(ctx)
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

var errNoAuthority = errors.New("no certificate yet")

func (i *Injector) sync(ctx context.Context) error {
	own := ownCertificates(i.Authorities())
	if len(own) == 0 {
		return errNoAuthority
	}
	var validating admissionv1.ValidatingWebhookConfiguration
	var mutating admissionv1.MutatingWebhookConfiguration
	// The certificates do not wait for the rules.
	var rules EntryRules
	var rulesErr error
	if i.Rules != nil {
		rules, rulesErr = i.Rules(ctx)
	}
	var before []webhookEntry
	err := errors.Join(
		i.inject(ctx, i.Validating, &validating, own, &i.othersValidating, rules, &before, func() []webhookEntry {
			return webhookEntries(validating.Webhooks, func(w admissionv1.ValidatingWebhook) webhookEntry {
				return webhookEntry{w.Name, w.ClientConfig.CABundle, w.Rules}
			})
		}),
		i.inject(ctx, i.Mutating, &mutating, own, &i.othersMutating, rules, &before, func() []webhookEntry {
			return webhookEntries(mutating.Webhooks, func(w admissionv1.MutatingWebhook) webhookEntry {
				return webhookEntry{w.Name, w.ClientConfig.CABundle, w.Rules}
			})
		}),
	)
	if err == nil {
		i.recordTrust(own, before)
	}
	return errors.Join(err, rulesErr)
}

// recordTrust records since when the own certificates are in all entries. At the first injection of the process, that is long
// ago for a certificate that they had before; and if they had none, no replica serves yet and no request can fail.
func (i *Injector) recordTrust(own []certificate, before []webhookEntry) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now, first := i.now(), i.trustedSince == nil
	trusted := make(map[certificate]time.Time, len(own))
	for _, c := range own {
		since, known := i.trustedSince[c]
		switch {
		case known && inAll(c, before):
			trusted[c] = since
		case first && (inAll(c, before) || noAuthority(before, now)):
			trusted[c] = time.Time{}
		default:
			trusted[c] = now
		}
	}
	i.trustedSince = trusted
}

// webhookEntry is one webhook of a configuration.
type webhookEntry struct {
	name     string
	caBundle []byte
	rules    []admissionv1.RuleWithOperations
}

func webhookEntries[W any](webhooks []W, newEntry func(W) webhookEntry) []webhookEntry {
	entries := make([]webhookEntry, 0, len(webhooks))
	for _, w := range webhooks {
		entries = append(entries, newEntry(w))
	}
	return entries
}

// inject patches one configuration, and adds its former entries to before. entries returns the webhooks of the object once it is
// read.
func (i *Injector) inject(ctx context.Context, name string, object client.Object, own []certificate, others *otherCertificates,
	rules EntryRules, before *[]webhookEntry, entries func() []webhookEntry,
) error {
	// Without the resource version a replica could overwrite what another one added at the same time.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := i.Client.Get(ctx, types.NamespacedName{Name: name}, object); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s does not exist: apply the manifests, or name another in registration: %w", object, name, err)
			}
			return fmt.Errorf("get %T %s: %w", object, name, err)
		}
		present := entries()
		*before = append(*before, present...)
		patch := entriesPatch(object.GetResourceVersion(), present, encodeBundle(others.merge(own, present, i.now())), rules)
		if patch == nil {
			return nil
		}
		// A strategic merge patch merges the list of webhooks by their names.
		rawPatch := client.RawPatch(types.StrategicMergePatchType, patch)
		if err := i.Client.Patch(ctx, object, rawPatch, client.FieldOwner(v1alpha1.FieldManagerWebhook)); err != nil {
			return fmt.Errorf("patch the caBundle and the rules of %T %s: %w", object, name, err)
		}
		i.Logger.Info("Injected CA bundle and rules", "configuration", name, "type", fmt.Sprintf("%T", object))
		return nil
	})
}

// entriesPatch returns the patch that sets the bundle of every entry, and the rules of those that have some; nil if all entries
// have them.
func entriesPatch(resourceVersion string, entries []webhookEntry, bundle []byte, rules EntryRules) []byte {
	var webhooks []map[string]any
	for _, e := range entries {
		changed := map[string]any{"name": e.name}
		if !bytes.Equal(e.caBundle, bundle) {
			changed["clientConfig"] = map[string]any{"caBundle": bundle}
		}
		if desired, ok := rules[e.name]; ok && !equality.Semantic.DeepEqual(desired, e.rules) {
			changed["rules"] = desired // the whole list, also an empty one
		}
		if len(changed) > 1 {
			webhooks = append(webhooks, changed)
		}
	}
	if len(webhooks) == 0 {
		return nil
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion}, "webhooks": webhooks,
	})
	if err != nil {
		panic(err) // strings and bytes always marshal
	}
	return raw
}
