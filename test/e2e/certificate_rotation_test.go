// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook"
)

// slowAPIServer is how late an API server may observe the webhook configurations in TestRotationLosesNoAdmission.
const slowAPIServer = 10 * time.Second

// rotationTest has two replicas of the webhook behind a balancer that passes TLS on, and checks their certificates all the time.
type rotationTest struct {
	*sluiceCluster
	replicas []string
	next     atomic.Int64

	mu sync.Mutex
	// bundles are the caBundles of the last minute.
	bundles []observedBundles
	// leaves are the served certificates of the replicas.
	leaves map[string][]byte
}

type observedBundles struct {
	at      time.Time
	bundles [][]byte
}

// The authority and the certificate are rotated several times while pods are created, with two replicas of the webhook. Not one
// admission is lost, and a replica serves no certificate that an API server ten seconds behind would not trust.
func TestRotationLosesNoAdmission(t *testing.T) {
	s := newDedicatedCluster(t)
	first := s.webhookConfig(t)
	second, _ := s.startWebhookReplica(t, filepath.Join(filepath.Dir(s.binary), "webhook"), first, 1)
	r := &rotationTest{sluiceCluster: s, replicas: []string{first.Listen, second}, leaves: map[string][]byte{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go r.balance(listener)
	s.setWebhookURL(t, listener.Addr().String())
	s.createDepartment(t, "rotation", newPoolQuota("dgx", "0", "1"))
	s.createGovernedProject(t, "rotation", "rotation", newPoolQuota("dgx", "0", "1"))

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var created, handshakes atomic.Int64
	load.Go(func() { r.createPods(ctx, t, &created) })
	load.Go(func() { r.checkServedCertificates(ctx, t, &handshakes) })
	secrets := s.clientset.CoreV1().Secrets(v1alpha1.SystemNamespace)
	change := func(change func(*corev1.Secret)) {
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			secret, err := secrets.Get(t.Context(), "webhook-certificates", metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(secret)
			_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, rotate := range []struct {
		name string
		run  func()
	}{
		{"emptied Secret", func() { change(func(secret *corev1.Secret) { clear(secret.Data) }) }},
		{"empty certificate", func() {
			change(func(secret *corev1.Secret) { secret.Data["tls.crt"], secret.Data["tls.key"] = []byte{}, []byte{} })
		}},
		{"garbage", func() {
			change(func(secret *corev1.Secret) {
				secret.Data["ca.crt"], secret.Data["tls.crt"] = []byte("garbage"), []byte("garbage")
			})
		}},
		{"emptied Secret again", func() { change(func(secret *corev1.Secret) { clear(secret.Data) }) }},
	} {
		eventually(t, func() error { return r.sameLeaf(nil) })
		former, before, since := r.leaf(), created.Load(), time.Now()
		rotate.run()
		s.renewCertificates(t)
		eventuallyLong(t, func() error { return r.sameLeaf(former) })
		t.Logf("%s: rotated after %s, during %d pods", rotate.name, time.Since(since).Round(time.Second), created.Load()-before)
	}
	after := created.Load()
	eventually(t, func() error {
		if created.Load() < after+10 {
			return errors.New("no pods after the last rotation")
		}
		return nil
	})
	stop()
	load.Wait()
	t.Logf("%d pods, %d handshakes", created.Load(), handshakes.Load())
	if handshakes.Load() < 100 {
		t.Errorf("%d handshakes", handshakes.Load())
	}
}

// renewCertificates runs the CronJob certificates now, as the documentation says, and waits until it is complete.
func (s *sluiceCluster) renewCertificates(t testing.TB) {
	t.Helper()
	name := fmt.Sprintf("certificates-%d", time.Now().UnixNano())
	s.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "create", "job", "--from=cronjob/certificates", name)
	s.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "wait", "--for=condition=complete", "job/"+name, "--timeout="+restartTimeout.String())
}

// leaf returns the certificate that the first replica serves.
func (r *rotationTest) leaf() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaves[r.replicas[0]]
}

// sameLeaf returns an error unless both replicas serve one certificate other than the former one, as in the Secret.
func (r *rotationTest) sameLeaf(former []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, b := r.leaves[r.replicas[0]], r.leaves[r.replicas[1]]
	if a == nil || !bytes.Equal(a, b) || bytes.Equal(a, former) {
		return errors.New("the replicas do not serve a new certificate yet")
	}
	return nil
}

// createPods creates pods, which the webhook has to mutate, until ctx ends.
func (r *rotationTest) createPods(ctx context.Context, t *testing.T, created *atomic.Int64) {
	for i := 0; ctx.Err() == nil; i++ {
		pod, err := r.clientset.CoreV1().Pods("rotation").Create(ctx, newPod("rotation", fmt.Sprintf("pod-%d", i)),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Errorf("pod %d is refused: %v", i, err)
			return
		case pod.Labels[v1alpha1.LabelProject] == "" && len(pod.Annotations) == 0:
			t.Errorf("pod %d is ungoverned: %v", i, pod.ObjectMeta)
			return
		}
		created.Add(1)
	}
}

// checkServedCertificates connects with each replica all the time, as an API server would that is slow to observe changes.
func (r *rotationTest) checkServedCertificates(ctx context.Context, t *testing.T, handshakes *atomic.Int64) {
	for ctx.Err() == nil {
		if err := r.observeBundles(ctx); err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		for _, replica := range r.replicas {
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			connection, err := dialer.DialContext(ctx, "tcp", replica)
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("connect: %v", err)
				}
				return
			}
			leaf := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
			connection.Close()
			handshakes.Add(1)
			r.mu.Lock()
			r.leaves[replica] = leaf.Raw
			r.mu.Unlock()
			for _, bundle := range r.bundlesSeen(time.Now()) {
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(bundle)
				if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost"}); err != nil {
					t.Errorf("a replica serves a certificate that an API server does not trust: %v", err)
					return
				}
			}
		}
	}
}

func (r *rotationTest) observeBundles(ctx context.Context) error {
	observed := observedBundles{at: time.Now()}
	registration := r.clientset.AdmissionregistrationV1()
	mutating, err := registration.MutatingWebhookConfigurations().Get(ctx, "sluice", metav1.GetOptions{})
	if err != nil {
		return err
	}
	validating, err := registration.ValidatingWebhookConfigurations().Get(ctx, "sluice", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range mutating.Webhooks {
		observed.bundles = append(observed.bundles, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := range validating.Webhooks {
		observed.bundles = append(observed.bundles, validating.Webhooks[i].ClientConfig.CABundle)
	}
	r.bundles = append(r.bundles, observed)
	return nil
}

// bundlesSeen returns the present bundles, and those that a slow API server has: the oldest of the last slowAPIServer. On a busy
// machine, the observation before them may be much older.
func (r *rotationTest) bundlesSeen(now time.Time) [][]byte {
	for len(r.bundles) > 1 && now.Sub(r.bundles[0].at) > slowAPIServer {
		r.bundles = r.bundles[1:]
	}
	slow, present := r.bundles[0], r.bundles[len(r.bundles)-1]
	return append([][]byte{slow.bundles[0], slow.bundles[len(slow.bundles)-1]}, present.bundles...)
}

// balance passes connections on to the replicas in turn.
func (r *rotationTest) balance(listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer from.Close()
			to, err := net.Dial("tcp", r.replicas[int(r.next.Add(1))%len(r.replicas)])
			if err != nil {
				return
			}
			defer to.Close()
			go func() { _, _ = io.Copy(to, from); to.Close() }()
			_, _ = io.Copy(from, to)
		}()
	}
}

// A request in flight when the webhook is told to end is answered, and so is one that arrives in the drain period, while the
// replica is not ready any more.
func TestWebhookDrains(t *testing.T) {
	s := sharedCluster
	config := s.webhookConfig(t)
	config.DrainPeriod = &metav1.Duration{Duration: time.Second}
	health := ""
	address, process := s.startWebhookReplica(t, filepath.Join(filepath.Dir(s.binary), "webhook"), config, 1, func(c webhook.Config) { health = c.Health })
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",` +
		`"resource":{"version":"v1","resource":"pods"},"namespace":"default","object":{"apiVersion":"v1","kind":"Pod"}}}`
	inFlight := beginRequest(t, address, review, len(review)/2)
	pid := process.PID()
	process.Signal(syscall.SIGTERM)
	eventually(t, func() error {
		response, err := http.Get("http://" + health + "/readyz/draining")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(body), "shuts down") {
			return fmt.Errorf("%s, %w", body, err)
		}
		return nil
	})
	inFlight.finish(t, review[len(review)/2:])
	beginRequest(t, address, review, len(review)).finish(t, "")
	eventually(t, func() error {
		if err := syscall.Kill(pid, 0); err == nil {
			return errors.New("the webhook still runs")
		}
		return nil
	})
}

// startedRequest is a request whose body is not complete.
type startedRequest struct{ connection net.Conn }

func beginRequest(t *testing.T, address, body string, part int) startedRequest {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		webhook.PathForgedDecisions, len(body), body[:part])
	return startedRequest{connection}
}

// finish sends the rest of the body, and checks the answer.
func (r startedRequest) finish(t *testing.T, rest string) {
	t.Helper()
	if _, err := io.WriteString(r.connection, rest); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(r.connection), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"uid":"1"`)) {
		t.Errorf("%d %s, %v", response.StatusCode, answer, err)
	}
}
