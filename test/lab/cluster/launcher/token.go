// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package launcher

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenCache has the tokens of one pod, by what they were requested for.
type tokenCache struct {
	client kubernetes.Interface
	tokens map[tokenKey]cachedToken
}

type tokenKey struct {
	audience string
	seconds  int64
}

type cachedToken struct {
	token   string
	renewAt time.Time // wall clock
}

func newTokenCache(client kubernetes.Interface) *tokenCache {
	return &tokenCache{client: client, tokens: map[tokenKey]cachedToken{}}
}

const (
	defaultTokenSeconds = 3600
	tokenRequestTimeout = 10 * time.Second
)

// get returns a token for a volume, a new one after four fifths of the lifetime, as the
// kubelet does. The API server refuses it once the pod is gone. If a renewal fails, get
// returns the former token.
func (c *tokenCache) get(ctx context.Context, pod *corev1.Pod, source *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	key := tokenKey{audience: source.Audience, seconds: defaultTokenSeconds}
	if source.ExpirationSeconds != nil {
		key.seconds = *source.ExpirationSeconds
	}
	// Round drops the monotonic reading, which stops while a laptop sleeps.
	now := time.Now().Round(0)
	former := c.tokens[key]
	if now.Before(former.renewAt) {
		return []byte(former.token), nil
	}
	ctx, cancel := context.WithTimeout(ctx, tokenRequestTimeout)
	defer cancel()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &key.seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if key.audience != "" {
		request.Spec.Audiences = []string{key.audience}
	}
	account := pod.Spec.ServiceAccountName
	response, err := c.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	switch {
	case err != nil && former.token != "":
		return []byte(former.token), nil
	case err != nil:
		return nil, fmt.Errorf("token of ServiceAccount %s: %w", account, err)
	}
	// The server may grant another lifetime than requested.
	lifetime := response.Status.ExpirationTimestamp.Sub(now)
	c.tokens[key] = cachedToken{token: response.Status.Token, renewAt: now.Add(lifetime * 4 / 5)}
	return []byte(response.Status.Token), nil
}

// serviceAccountPath is the mount path of a pod's identity.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// writeKubeconfig writes the kubeconfig of a pod that mounts an identity at folder.
func writeKubeconfig(path, server, folder, namespace string) error {
	const name = "pod"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: server, CertificateAuthority: filepath.Join(folder, corev1.ServiceAccountRootCAKey),
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(folder, corev1.ServiceAccountTokenKey)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err == nil {
		err = writeIfChanged(path, content)
	}
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
