// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/registration"
	"sluice.dev/test/clustertest"
	"sluice.dev/webhook"
)

// loadBalancer forwards each connection to the next webhook replica that listens, as a
// Service does.
type loadBalancer struct {
	replicas []string // addresses; the first is the one of `sluice up`
	certPool *x509.CertPool
	connects []atomic.Int64
	next     atomic.Int64
	// killOne kills the second replica, which starts again after a second.
	killOne func()
}

func (b *loadBalancer) connectionCounts() []int64 {
	counts := make([]int64, len(b.connects))
	for i := range b.connects {
		counts[i] = b.connects[i].Load()
	}
	return counts
}

// startWebhookReplicas makes the API server call n replicas of the webhook in turn: the
// running one, and others with its configuration and certificates.
func (s *sluiceCluster) startWebhookReplicas(t testing.TB, n int) *loadBalancer {
	t.Helper()
	first := s.webhookConfig(t)
	b := &loadBalancer{replicas: []string{first.Listen}, connects: make([]atomic.Int64, n)}
	for i := 1; i < n; i++ {
		address, process := s.startWebhookReplica(t, filepath.Join(filepath.Dir(s.binary), "webhook"), first, i)
		b.replicas = append(b.replicas, address)
		if i == 1 {
			b.killOne = func() { process.Signal(syscall.SIGKILL) }
		}
	}
	var listener net.Listener
	listener, b.certPool = s.listenAsWebhook(t)
	go b.serve(t.Context(), listener)
	s.setWebhookURL(t, listener.Addr().String())
	return b
}

// webhookConfig returns the configuration of the running webhook.
func (s *sluiceCluster) webhookConfig(t testing.TB) (config webhook.Config) {
	t.Helper()
	raw, err := os.ReadFile(s.configurationFile("webhook"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &config); err != nil {
		t.Fatal(err)
	}
	config.Kubeconfig = filepath.Join(s.podDir("webhook"), "kubeconfig")
	return config
}

// listenAsWebhook returns a listener with the certificate of the webhook, and the authority that issued them. Over HTTP/2 the
// API server would send all requests over one connection, and so to one replica.
func (s *sluiceCluster) listenAsWebhook(t testing.TB) (net.Listener, *x509.CertPool) {
	t.Helper()
	secret, err := s.clientset.CoreV1().Secrets(v1alpha1.SystemNamespace).Get(t.Context(), "webhook-certificates", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(secret.Data["ca.crt"])
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener, pool
}

// startWebhookReplica starts another webhook, of a program, and returns its address and process. It calls started with its
// configuration.
func (s *sluiceCluster) startWebhookReplica(
	t testing.TB, program string, config webhook.Config, i int, started ...func(webhook.Config),
) (address string, process *clustertest.Process) {
	t.Helper()
	ports, err := clustertest.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(ports[i]) }
	config.Health, config.Metrics, config.Listen = at(0), at(1), at(2)
	raw, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "webhook-"+strconv.Itoa(i)+".log")
	process, err = clustertest.KeepProcess(t.Context(), log, clustertest.HTTPReady("http://"+config.Health+"/readyz"), program, "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Log(err)
		}
	})
	for _, each := range started {
		each(config)
	}
	return config.Listen, process
}

func (b *loadBalancer) serve(ctx context.Context, listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go b.forward(ctx, from)
	}
}

// forward connects the client with the next replica that listens.
func (b *loadBalancer) forward(ctx context.Context, from net.Conn) {
	defer from.Close()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: b.certPool, ServerName: "localhost", NextProtos: []string{"http/1.1"}}}
	for range b.replicas {
		at := int(b.next.Add(1)) % len(b.replicas)
		to, err := dialer.DialContext(ctx, "tcp", b.replicas[at])
		if err != nil {
			continue
		}
		b.connects[at].Add(1)
		go func() {
			defer to.Close()
			_, _ = io.Copy(to, from) // either side may close
		}()
		_, _ = io.Copy(from, to)
		to.Close()
		return
	}
}

// setWebhookURL makes the API server call another address.
func (s *sluiceCluster) setWebhookURL(t testing.TB, address string) {
	t.Helper()
	replaceService := func(in *admissionv1.WebhookClientConfig) error {
		if in.Service == nil {
			return fmt.Errorf("a webhook has the URL %q, want the Service", ptr.Deref(in.URL, ""))
		}
		// The certificate has the name, and no address.
		in.URL = ptr.To("https://localhost:" + portOf(address) + ptr.Deref(in.Service.Path, ""))
		in.Service = nil
		return nil
	}
	configurations := s.clientset.AdmissionregistrationV1()
	// A run of certificates writes these objects as well.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		mutating, err := configurations.MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range mutating.Webhooks {
			err = errors.Join(err, replaceService(&mutating.Webhooks[i].ClientConfig))
		}
		if err == nil {
			_, err = configurations.MutatingWebhookConfigurations().Update(t.Context(), mutating, metav1.UpdateOptions{})
		}
		return err
	})
	if err == nil {
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			validating, err := configurations.ValidatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for i := range validating.Webhooks {
				err = errors.Join(err, replaceService(&validating.Webhooks[i].ClientConfig))
			}
			if err == nil {
				_, err = configurations.ValidatingWebhookConfigurations().Update(t.Context(), validating, metav1.UpdateOptions{})
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }
