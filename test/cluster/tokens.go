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
	// renewalCheckInterval is how often the tokens' ages are looked at. A timer for the
	// day would stand still while a laptop sleeps; the wall clock does not.
	renewalCheckInterval = time.Minute
	tokenRequestTimeout  = 10 * time.Second
)

// tokenRenewer keeps the token files of service accounts fresh.
type tokenRenewer struct {
	client kubernetes.Interface

	mu       sync.Mutex
	accounts map[string]*boundAccount // by token file

	cancel context.CancelFunc
	done   chan struct{}
}

type boundAccount struct {
	namespace, name string
	node            string    // to which its tokens are bound; empty for none
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

// stop does nothing on nil tokens: a cluster whose start failed has none.
func (t *tokenRenewer) stop() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// ServiceAccountKubeconfig writes a kubeconfig for an existing service account
// and returns its path; it refers to a token file beside it. A token is valid for
// 24 hours and renewed after twelve, until Stop; clients that read the file anew,
// as client-go does, never notice.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	path, err := c.writeServiceAccount(ctx, boundAccount{namespace: namespace, name: name})
	if err != nil {
		return "", fmt.Errorf("kubeconfig of service account %s/%s: %w", namespace, name, err)
	}
	return path, nil
}

// NodeBoundKubeconfig is ServiceAccountKubeconfig for a pod on an existing node: the
// token names the node, as authentication.kubernetes.io/node-name, and is refused
// once that Node is gone.
func (c *Cluster) NodeBoundKubeconfig(ctx context.Context, namespace, name, node string) (string, error) {
	path, err := c.writeServiceAccount(ctx, boundAccount{namespace: namespace, name: name, node: node})
	if err != nil {
		return "", fmt.Errorf("kubeconfig of service account %s/%s on node %s: %w", namespace, name, node, err)
	}
	return path, nil
}

func (c *Cluster) writeServiceAccount(ctx context.Context, a boundAccount) (string, error) {
	dir, err := c.folder.makeDir("kubeconfigs")
	if err != nil {
		return "", err
	}
	cluster, _, err := c.adminKubeconfig()
	if err != nil {
		return "", err
	}
	user := "system:serviceaccount:" + a.namespace + ":" + a.name
	base := filepath.Join(dir, fileName(user, nil))
	if a.node != "" {
		base = filepath.Join(dir, fileName(user+"@"+a.node, nil))
	}
	if err := c.tokens.addToken(ctx, base+".token", &a); err != nil {
		return "", err
	}
	path := base + ".kubeconfig"
	return path, writeKubeconfig(path, cluster, user, tokenFileAuthInfo(base+".token"), a.namespace)
}

// addToken asks for a first token, writes it, and sees to it that it stays fresh.
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
	if a.node != "" {
		// Without a UID it is the Node that has the name now.
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: a.node}
	}
	answer, err := t.client.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, a.name, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request token: %w", err)
	}
	if err := writeFile(file, []byte(answer.Status.Token)); err != nil {
		return err
	}
	// A server may grant less than was asked for. Round drops the monotonic
	// reading, so that the comparison is one of wall clocks.
	now := time.Now().Round(0)
	a.renewAt = now.Add(answer.Status.ExpirationTimestamp.Sub(now) / 2)
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

// renewDue renews the tokens that are past half of their life. One that cannot be
// renewed now is tried again the next time: there are hours left.
func (t *tokenRenewer) renewDue(ctx context.Context, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for file, a := range t.accounts {
		if now.After(a.renewAt) {
			_ = t.renewToken(ctx, file, a)
		}
	}
}
