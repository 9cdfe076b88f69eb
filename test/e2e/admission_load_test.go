// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// outcome is how the creation of a pod ended.
type outcome int

const (
	// admitted pods have the label and the annotation that the policies set.
	admitted outcome = iota
	// ungoverned pods are admitted without them.
	ungoverned
	// refused pods got an answer that denies them.
	refused
	// noWebhook means that the API server had no answer from a webhook.
	noWebhook
	// noServer means that the client had no answer from the API server, or the API server none from etcd.
	noServer
	// noParameters means that the API server did not know the kind of the admission policies' parameters yet.
	noParameters

	outcomes = iota
)

var outcomeNames = [outcomes]string{
	"admitted", "ungoverned", "refused", "without an answer of a webhook",
	"without an answer of the API server or etcd", "refused by an API server that does not know the parameters yet",
}

const (
	// loadClients is the number of clients, each with one request at a time. More clients are not faster on two processors.
	loadClients = 4
	// loadTimeout bounds the time for which a client waits for an answer, on a busy machine. The webhooks of a request take less.
	loadTimeout = time.Minute
	// loadRetryInterval is the time after which a client tries again that has no connection.
	loadRetryInterval = 100 * time.Millisecond
)

// admissionLoad is clients that create pods without effect, each one after the other.
type admissionLoad struct {
	cancel  context.CancelFunc
	clients sync.WaitGroup

	mu    sync.Mutex
	total loadCounts
}

// loadCounts are the requests until a time.
type loadCounts struct {
	at    time.Time
	count [outcomes]int
	// example is the last error of each outcome.
	example [outcomes]error
	// lastAdmitted is when the last pod was admitted, and gap the longest time without one since the last report.
	lastAdmitted time.Time
	gap          time.Duration
}

// startAdmissionLoad starts the clients. They end with the test.
func startAdmissionLoad(t *testing.T, config *rest.Config, namespace string) *admissionLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &admissionLoad{cancel: cancel, total: loadCounts{lastAdmitted: time.Now()}}
	for range loadClients {
		// A connection of its own: a client does not wait for the requests of others on it.
		own := rest.CopyConfig(config)
		own.Dial, own.WarningHandler = new(net.Dialer).DialContext, rest.NoWarnings{}
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			t.Fatal(err)
		}
		l.clients.Go(func() {
			for ctx.Err() == nil {
				result, err := createGovernedPod(ctx, client, namespace)
				if ctx.Err() == nil {
					l.add(result, err)
				}
				if result == noServer {
					pause(ctx, loadRetryInterval)
				}
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// end ends the clients.
func (l *admissionLoad) end() {
	l.cancel()
	l.clients.Wait()
}

// createGovernedPod creates a pod that is not stored.
func createGovernedPod(ctx context.Context, client kubernetes.Interface, namespace string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	pod, err := client.CoreV1().Pods(namespace).Create(ctx, newPod(namespace, "", func(p *corev1.Pod) { p.GenerateName = "load-" }),
		metav1.CreateOptions{DryRun: dryRun})
	switch {
	case err == nil && pod.Labels[v1alpha1.LabelProject] == namespace && pod.Annotations[v1alpha1.AnnotationCreatedBy] != "":
		return admitted, nil
	case err == nil:
		return ungoverned, fmt.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	case strings.Contains(err.Error(), "failed calling webhook"):
		return noWebhook, err
	case strings.Contains(err.Error(), "failed to configure policy") || strings.Contains(err.Error(), "failed to configure binding"):
		return noParameters, err
	case noAnswer(err):
		return noServer, err
	}
	return refused, err
}

// noAnswer reports whether an error says that the API server or etcd does not answer, or not yet.
func noAnswer(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return true // refused and broken connections, timeouts of the client
	}
	starting := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "not yet ready to handle request")
	return starting || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		strings.Contains(err.Error(), "etcdserver: ") || utilnet.IsConnectionRefused(err)
}

func (l *admissionLoad) add(result outcome, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.count[result]++
	if err != nil {
		l.total.example[result] = err
	}
	if now := time.Now(); result == admitted {
		l.total.gap = max(l.total.gap, now.Sub(l.total.lastAdmitted))
		l.total.lastAdmitted = now
	}
}

// counts returns the requests until now, and begins to measure the longest gap again.
func (l *admissionLoad) counts() loadCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.total
	now.at, l.total.gap, l.total.example = time.Now(), 0, [outcomes]error{}
	return now
}

// waitForAdmissions waits until each client could have had a pod admitted.
func (l *admissionLoad) waitForAdmissions(t *testing.T, within time.Duration) {
	t.Helper()
	l.mu.Lock()
	before := l.total.count[admitted]
	l.mu.Unlock()
	clustertest.EventuallyWithin(t, within, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.total.count[admitted] < before+10*loadClients {
			return fmt.Errorf("no pods are admitted; the last errors: %w", errors.Join(l.total.example[:]...))
		}
		return nil
	})
}

// since returns the requests after an earlier time.
func (c loadCounts) since(earlier loadCounts) loadCounts {
	for i := range c.count {
		c.count[i] -= earlier.count[i]
	}
	c.at = earlier.at
	return c
}

// check reports the requests since c.at, and fails the test unless all pods are admitted, except for expected outcomes.
func (c loadCounts) check(t *testing.T, expected ...outcome) {
	t.Helper()
	took := time.Since(c.at)
	t.Logf("%d pods admitted in %s, %.0f a second; the longest time without one: %s", c.count[admitted], took.Round(time.Second),
		float64(c.count[admitted])/took.Seconds(), c.gap.Round(time.Millisecond))
	for o := ungoverned; o < outcomes; o++ {
		switch {
		case c.count[o] == 0:
		case slices.Contains(expected, o):
			t.Logf("%d %s: %v", c.count[o], outcomeNames[o], c.example[o])
		default:
			t.Errorf("%d %s: %v", c.count[o], outcomeNames[o], c.example[o])
		}
	}
}

// pause waits for a time. It reports false if ctx ends.
func pause(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
