// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates issues, renews and serves the webhook's certificate, and injects the CA bundle into the webhook
// configurations, so that the API server trusts it.
//
// [Store] serves the certificate of a [Source]: a Secret that it watches, or a directory that it reads. It replaces the served
// certificate only once the API server trusts the authority of the next one, and keeps the last good one while the source is
// unusable. [Issuer] writes the Secret, unless cert-manager or the platform team does. [Injector] writes the CA bundle.
package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sluice.dev/api/policytime"
)

const (
	// checkInterval is the interval of checks, in machine time.
	checkInterval = time.Second
	// issueRetryInterval is the shortest time between two attempts to write the Secret, in machine time.
	issueRetryInterval = 10 * time.Second
)

// Content is the content of a source.
type Content struct {
	// Data has tls.crt, tls.key and ca.crt.
	Data map[string][]byte
	// Secret is the Secret with the data; nil for a directory, or if it does not exist.
	Secret *corev1.Secret
	// Err is set if the source cannot be read.
	Err error
}

// Source is a Secret or a directory with a certificate.
type Source interface {
	// Watch sends the content, at the start and after each change, until ctx ends.
	Watch(ctx context.Context, contents chan<- Content)
	// String names the source.
	String() string
}

// Trust knows the authorities that the API server trusts.
type Trust interface {
	// Trusted reports whether all API servers have had the time to observe the authority in the webhook configurations.
	Trusted(authority *x509.Certificate) bool
	// Update injects the present authorities soon.
	Update()
}

// Store holds the certificate that the webhook serves. It is safe for concurrent use.
type Store struct {
	// Source is the source of the certificate.
	Source Source
	// Issuer renews the certificate; nil if another program does.
	Issuer *Issuer
	// Names are the DNS names that the certificate must have.
	Names []string
	// Trust knows the authorities that the API server trusts.
	Trust Trust
	// Logger logs changes and failures.
	Logger logr.Logger

	now         func() time.Time // machine time, if a test does not set it
	content     *Content         // the last one
	nextAttempt time.Time        // of writing the Secret

	mu sync.RWMutex
	// served is the present certificate, and next the one that replaces it once the API server trusts its authority.
	served, next *bundle
	trusted      bool // whether the API server has trusted the served certificate
	problem      error
}

// Start serves the certificates of the source until ctx ends. It implements manager.Runnable.
func (s *Store) Start(ctx context.Context) error {
	if s.now == nil {
		s.now = policytime.MachineNow
	}
	contents := make(chan Content)
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() { s.Source.Watch(ctx, contents) })
	ticker := time.NewTicker(checkInterval) //nolint:forbidigo // machine time: the interval of checks
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case content := <-contents:
			s.observe(content)
		case <-ticker.C:
		}
		s.issueIfDue(ctx)
		s.promote()
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Store) NeedLeaderElection() bool { return false }

// observe evaluates the content of the source.
func (s *Store) observe(content Content) {
	s.content = &content
	switch {
	case content.Err != nil:
		s.fail(reasonUnreadable, fmt.Errorf("read %s: %w", s.Source, content.Err))
		return
	case content.Data == nil:
		s.fail(reasonMissing, fmt.Errorf("%s does not exist", s.Source))
		return
	}
	observed, err := parseBundle(content.Data, s.Names, s.now())
	if err != nil {
		s.fail(reasonInvalid, fmt.Errorf("%s: %w", s.Source, err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problem = nil
	problemGauge.Set(0)
	switch {
	case s.served == nil || s.served.sameCertificate(observed):
		if s.served == nil {
			s.Logger.Info("Serving certificate", s.describe(observed)...)
		}
		s.served, s.next = observed, nil
	case s.next == nil || !s.next.sameCertificate(observed):
		s.next = observed
		s.Logger.Info("Observed new certificate", s.describe(observed)...)
	}
	recordExpiry(s.served)
	s.Trust.Update()
}

// fail records a failure. It is logged when it changes, and the served certificate stays.
func (s *Store) fail(reason string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != nil && s.problem.Error() == err.Error() {
		return
	}
	s.problem = err
	failures.WithLabelValues(reason).Inc()
	problemGauge.Set(1)
	if s.served == nil && reason == reasonMissing {
		s.Logger.Info("Waiting for certificate", "source", s.Source.String())
		return
	}
	s.Logger.Error(err, "Failed to use certificate, keeping the last good one", "serving", s.served != nil)
}

// issueIfDue writes the Secret if the certificate or its authority is due.
func (s *Store) issueIfDue(ctx context.Context) {
	now := s.now()
	if s.Issuer == nil || s.content == nil || s.content.Err != nil || now.Before(s.nextAttempt) {
		return
	}
	due := s.Issuer.due(s.content.Secret, now)
	if due == noRotation {
		return
	}
	s.nextAttempt = now.Add(issueRetryInterval)
	written, err := s.Issuer.issue(ctx, s.content.Secret, due, now)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		// Another replica was first; the watch delivers its certificate.
		s.Logger.V(1).Info("Another replica issued the certificate")
	case err != nil:
		s.fail(reasonIssue, fmt.Errorf("issue %s in %s: %w", due, s.Source, err))
	default:
		rotations.WithLabelValues(string(due)).Inc()
		s.Logger.Info("Issued certificate", "secret", s.Issuer.Secret.String(), "issued", string(due))
		s.nextAttempt = time.Time{}
		s.observe(Content{Data: written.Data, Secret: written})
	}
}

// promote serves the next certificate once the API server trusts its authority, or if the present one has expired.
func (s *Store) promote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served != nil && !s.trusted {
		s.trusted = s.Trust.Trusted(s.served.root)
	}
	if s.next == nil || (!s.Trust.Trusted(s.next.root) && !s.served.expired(s.now())) {
		return
	}
	s.served, s.next = s.next, nil
	replacements.Inc()
	recordExpiry(s.served)
	s.Logger.Info("Replaced certificate", s.describe(s.served)...)
}

func (s *Store) describe(b *bundle) []any {
	return []any{
		"source", s.Source.String(), "expires", b.certificate.Leaf.NotAfter, "authorityExpires", b.root.NotAfter,
		"dnsNames", b.certificate.Leaf.DNSNames,
	}
}

// GetCertificate returns the served certificate, for tls.Config.
func (s *Store) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.served == nil {
		return nil, s.waiting()
	}
	return s.served.certificate, nil
}

// Authorities returns the authorities of the served certificate and of the next one. Both belong into the caBundle.
func (s *Store) Authorities() []*x509.Certificate {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var authorities []*x509.Certificate
	for _, b := range []*bundle{s.served, s.next} {
		if b == nil {
			continue
		}
		for _, authority := range b.authorities {
			if !slices.ContainsFunc(authorities, authority.Equal) {
				authorities = append(authorities, authority)
			}
		}
	}
	return authorities
}

// Ready is a health check. It fails until a certificate is served that the API server trusts, and once it has expired.
func (s *Store) Ready(*http.Request) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.served == nil:
		return s.waiting()
	case s.served.expired(policytime.MachineNow()):
		return errors.Join(fmt.Errorf("the certificate expired on %s", s.served.certificate.Leaf.NotAfter.Format(time.RFC3339)), s.problem)
	case !s.trusted:
		return errors.New("waiting until the API server trusts the certificate")
	}
	return nil
}

func (s *Store) waiting() error {
	if s.problem != nil {
		return fmt.Errorf("waiting for a certificate: %w", s.problem)
	}
	return fmt.Errorf("waiting for a certificate in %s", s.Source)
}
