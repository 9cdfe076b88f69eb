// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates creates and renews the webhook's certificate, and writes the certificate authorities that the API server
// trusts into the webhook configurations. It runs for seconds, as a Job and a CronJob with rights of their own: the webhook itself
// only reads the files of the mounted Secret.
package certificates

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// SecretName is the name of the Secret in sluice-system.
	SecretName = "webhook-certificates"
	// configurationName is the name of both webhook configurations.
	configurationName = "sluice"
)

const (
	// trustDelay is the time after which every API server has observed a changed configuration, in machine time. They watch
	// the configurations, and observe a change within a second unless they are overloaded.
	trustDelay = 15 * time.Second
	// mountDelay is the time after which every replica serves a new certificate, in machine time. Kubelets update mounted
	// Secrets within two minutes.
	mountDelay = time.Hour
)

// Renewal is one run of the program. A run may be killed at any point, and several may run at once: each step leaves the API
// server with the authority of every certificate that a replica may serve.
//
//  1. If the certificate is due, a new one and its authority are stored in the Secret, beside the present one.
//  2. Both authorities are written into each entry of the configurations, and the API servers get the time to observe them.
//  3. The new certificate replaces the present one in the Secret. Replicas serve it when their kubelet has updated the volume.
//  4. A run after mountDelay removes the former authority from the configurations.
type Renewal struct {
	// Client reads and writes the Secret and both configurations, without a cache.
	Client client.Client
	// Names are the DNS names by which the API server calls the webhook.
	Names []string
	// Logger logs what changes.
	Logger logr.Logger

	now  func() time.Time                                 // machine time, if a test does not set it
	wait func(ctx context.Context, d time.Duration) error // sleeps, if a test does not set it
}

// Run renews the certificate if it is due, and writes the authorities into the configurations. It returns an error of the API
// server if another run changed the Secret at the same time; the caller repeats the run.
func (r *Renewal) Run(ctx context.Context) error {
	if r.now == nil {
		r.now, r.wait = policytime.MachineNow, sleep
	}
	secret, err := r.readSecret(ctx)
	if err != nil {
		return err
	}
	renewed := r.now().Add(renewBefore)
	due := pairOf(secret.Data, servedPrefix).check(r.Names, renewed)
	former := pairOf(secret.Data, nextPrefix)
	next := former
	switch {
	case former.check(r.Names, renewed) == nil: // a run that was killed left it
	case due == nil:
		next = pair{}
	default:
		if next, err = newPair(r.Names, r.now()); err != nil {
			return err
		}
		r.Logger.Info("Created certificate", "reason", due.Error())
	}
	if next != former {
		next.put(secret.Data, nextPrefix)
		if err := r.updateSecret(ctx, secret); err != nil {
			return err
		}
	}
	if next != (pair{}) {
		if err := r.distribute(ctx); err != nil {
			return err
		}
		next.put(secret.Data, servedPrefix)
		pair{}.put(secret.Data, nextPrefix)
		secret.Data[keyServedSince] = []byte(r.now().UTC().Format(time.RFC3339))
		if err := r.updateSecret(ctx, secret); err != nil {
			return err
		}
		r.Logger.Info("Replaced certificate", "dnsNames", r.Names)
	}
	_, _, err = r.writeBundles(ctx)
	return err
}

// distribute returns once every API server trusts the authorities of the Secret. If none was trusted before, no request can fail
// meanwhile, and it does not wait.
func (r *Renewal) distribute(ctx context.Context) error {
	for first := true; ; first = false {
		changed, trusted, err := r.writeBundles(ctx)
		if err != nil || !changed && !first {
			return err
		}
		if trusted {
			if err := r.wait(ctx, trustDelay); err != nil {
				return err
			}
		}
	}
}

func (r *Renewal) readSecret(ctx context.Context) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: SecretName}, &secret)
	if err != nil {
		return nil, fmt.Errorf("read the Secret %s, which the manifests contain: %w", SecretName, err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	return &secret, nil
}

// updateSecret writes the Secret unless it changed since it was read.
func (r *Renewal) updateSecret(ctx context.Context, secret *corev1.Secret) error {
	if err := r.Client.Update(ctx, secret, client.FieldOwner(v1alpha1.FieldManagerCertificates)); err != nil {
		return fmt.Errorf("write the Secret %s: %w", SecretName, err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d) //nolint:forbidigo // machine time: what API servers need
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(errors.New("the run ended early"), ctx.Err())
	case <-timer.C:
		return nil
	}
}
