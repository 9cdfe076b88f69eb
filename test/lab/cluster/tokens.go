// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	tokenLifetime = 24 * time.Hour
	// renewalCheckInterval is the period of the check for expiring tokens. A timer for a
	// day would stop while a laptop sleeps; the wall clock does not.
	renewalCheckInterval = time.Minute
	tokenRequestTimeout  = time.Minute
)

// tokenRenewer keeps the token files of service accounts valid.
type tokenRenewer struct {
	client kubernetes.Interface

	mu       sync.Mutex
	accounts map[string]*boundAccount // by token file

	cancel context.CancelFunc
	done   chan struct{}
}

type boundAccount struct {
	namespace, name string
	renewAt         time.Time // wall clock
}

func newTokenRenewer(c *Cluster) (*tokenRenewer, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("client for service account tokens: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &tokenRenewer{client: client, accounts: map[string]*boundAccount{}, cancel: cancel, done: make(chan struct{})}
	go t.renewAll(ctx)
	return t, nil
}

// stop does nothing on a nil renewer: a cluster whose start failed has none.
func (t *tokenRenewer) stop() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// ServiceAccountKubeconfig writes a kubeconfig for an existing service account and returns
// its path. The kubeconfig refers to a token file beside it. A token is valid for 24 hours,
// and the cluster renews it after 12 until Stop. Clients that read the file again, as
// client-go does, need no restart.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	path, err := c.writeServiceAccount(ctx, boundAccount{namespace: namespace, name: name})
	if err != nil {
		return "", fmt.Errorf("kubeconfig of service account %s/%s: %w", namespace, name, err)
	}
	return path, nil
}

func (c *Cluster) writeServiceAccount(ctx context.Context, a boundAccount) (string, error) {
	dir, err := c.folder.makeDir("kubeconfigs")
	if err != nil {
		return "", err
	}
	cluster, err := c.clusterEntry()
	if err != nil {
		return "", err
	}
	user := "system:serviceaccount:" + a.namespace + ":" + a.name
	base := filepath.Join(dir, a.namespace+"_"+a.name) // no name has a _
	if err := c.tokens.addToken(ctx, base+".token", &a); err != nil {
		return "", err
	}
	path := base + ".kubeconfig"
	return path, writeKubeconfig(path, cluster, user, tokenFileAuthInfo(base+".token"), a.namespace)
}

// addToken requests and writes the first token, and registers the account for renewal.
func (t *tokenRenewer) addToken(ctx context.Context, file string, next *boundAccount) error {
	if err := t.renewToken(ctx, file, next); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accounts[file] = next
	return nil
}

func (t *tokenRenewer) renewToken(ctx context.Context, file string, a *boundAccount) error {
	ctx, cancel := context.WithTimeout(ctx, tokenRequestTimeout)
	defer cancel()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second)),
	}}
	response, err := t.client.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, a.name, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request token: %w", err)
	}
	if err := writeFile(file, []byte(response.Status.Token)); err != nil {
		return err
	}
	// The server may grant a shorter lifetime than requested. Round drops the monotonic
	// reading, so that wall clocks are compared.
	now := time.Now().Round(0)
	a.renewAt = now.Add(response.Status.ExpirationTimestamp.Sub(now) / 2)
	return nil
}

func (t *tokenRenewer) renewAll(ctx context.Context) {
	defer close(t.done)
	tick := time.NewTicker(renewalCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.renewDue(ctx, time.Now().Round(0))
		}
	}
}

// renewDue renews the tokens past half of their lifetime. After a failure the next check
// tries again; the token is valid for hours.
func (t *tokenRenewer) renewDue(ctx context.Context, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for file, a := range t.accounts {
		if now.After(a.renewAt) {
			_ = t.renewToken(ctx, file, a)
		}
	}
}
