// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/api"
	"sluice.dev/api/policytime"
	"sluice.dev/webhook/certificates"
)

var certificateExpiry = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "sluice_certificate_expiry_timestamp_seconds",
	Help: "Unix time at which the certificate that this replica serves expires.",
})

func init() { metrics.Registry.MustRegister(certificateExpiry) }

// certificatePollInterval is the interval at which the webhook reads its directory until there is a certificate, in machine time.
const certificatePollInterval = time.Second

// servingCertificate serves the certificate of a directory. The files may be created after the start, and change. While they
// cannot be used, the last good certificate is served.
type servingCertificate struct {
	directory string
	logger    logr.Logger
	// watcher has the certificate; nil until there is one.
	watcher atomic.Pointer[certwatcher.CertWatcher]
}

// Start reads the files until ctx ends. It implements manager.Runnable.
func (s *servingCertificate) Start(ctx context.Context) error {
	var watcher *certwatcher.CertWatcher
	reported := ""
	err := wait.PollUntilContextCancel(ctx, certificatePollInterval, true, func(context.Context) (bool, error) {
		var err error
		watcher, err = certwatcher.New(filepath.Join(s.directory, corev1.TLSCertKey), filepath.Join(s.directory, corev1.TLSPrivateKeyKey))
		if err != nil && err.Error() != reported {
			reported = err.Error()
			s.logger.Info("Waiting for certificate", "reason", reported)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	watcher.RegisterCallback(func(certificate tls.Certificate) {
		certificateExpiry.Set(float64(certificate.Leaf.NotAfter.Unix()))
		s.logger.Info("Serving certificate", "expires", certificate.Leaf.NotAfter, "dnsNames", certificate.Leaf.DNSNames)
	})
	s.watcher.Store(watcher)
	return watcher.Start(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*servingCertificate) NeedLeaderElection() bool { return false }

// get returns the certificate, for tls.Config.
func (s *servingCertificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if watcher := s.watcher.Load(); watcher != nil {
		return watcher.GetCertificate(hello)
	}
	return nil, errors.New("there is no certificate yet")
}

// ready is a health check. It fails until there is a certificate, and once it has expired.
func (s *servingCertificate) ready(*http.Request) error {
	certificate, err := s.get(nil)
	if err != nil {
		return fmt.Errorf("%w in %s: the Job or CronJob certificates, or cert-manager, creates it", err, s.directory)
	}
	if end := certificate.Leaf.NotAfter; policytime.MachineNow().After(end) {
		return fmt.Errorf("the certificate expired on %s", end.Format(time.RFC3339))
	}
	return nil
}

// The limits of a run of [RenewCertificates]. A run that renews takes less than a minute.
const (
	renewalTimeout = 4 * time.Minute
	renewalRetry   = 2 * time.Second
)

// RenewCertificates creates the webhook's certificate or renews it if it is due, and writes the certificate authorities into the
// webhook configurations. It repeats what fails for four minutes, and then returns the last error.
func RenewCertificates(ctx context.Context, cfg *Config, logger logr.Logger) error {
	restConfig, err := cfg.RESTConfig()
	if err != nil {
		return err
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return err
	}
	uncached, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("renew certificates: %w", err)
	}
	renewal := certificates.Renewal{Client: uncached, Names: cfg.Certificates.DNSNames, Logger: logger}
	var last error
	err = wait.PollUntilContextTimeout(ctx, renewalRetry, renewalTimeout, true, func(ctx context.Context) (bool, error) {
		if last = renewal.Run(ctx); last != nil {
			logger.Info("Run failed, retrying", "reason", last.Error())
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("renew certificates: %w", errors.Join(last, err))
	}
	return nil
}
